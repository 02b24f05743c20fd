package io.headwater.debezium;

import static io.headwater.decoding.LeftToCarefulDecoder.LEFT;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import io.headwater.decoding.JsonText;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;

/**
 * A record exactly as the S3 sink lands it.
 *
 * <p>A line has offset, timestamp, key, value and headers in this order, with contents in base64. A record is {@code
 * rekeyed} if Debezium made it from an update that changed the primary key.
 */
record LandedLine(long offset, byte[] key, byte[] value, int epoch, boolean rekeyed) {
    private static final String EPOCH = "headwater.epoch";
    /** The header of an update or a delete whose old key PostgreSQL did not log: such a record goes to quarantine. */
    private static final String IDENTITY = "headwater.identity";

    /** Reads a line; {@code epoch} applies if the line has no epoch of its own. */
    static LandedLine of(byte[] buffer, int start, int length, int epoch) throws IOException {
        Scanner line = new Scanner(buffer, start, start + length);
        line.take("{\"offset\":");
        long offset = line.number();
        line.take(",\"timestamp\":");
        if (!line.takes("null")) {
            line.number();
        }
        line.take(",\"key\":");
        byte[] key = line.content();
        line.take(",\"value\":");
        byte[] value = line.content();
        line.take(",\"headers\":");
        if (line.takes("[]}")) {
            line.end();
            return new LandedLine(offset, key, value, epoch, false);
        }
        int closing = start + length - 1;
        if (closing <= line.at || buffer[closing] != '}') {
            throw LEFT;
        }
        try (JsonParser headers = JsonText.READER.createParser(buffer, line.at, closing - line.at)) {
            return of(headers, offset, key, value, epoch);
        }
    }

    /** Returns the line of a record with only a value, and with its epoch. */
    static String text(long offset, byte[] value, int epoch) {
        Base64.Encoder encoder = Base64.getEncoder();
        String number = encoder.encodeToString(Integer.toString(epoch).getBytes(StandardCharsets.UTF_8));
        return "{\"offset\":" + offset + ",\"timestamp\":null,\"key\":null,\"value\":\"" + encoder.encodeToString(value)
                + "\",\"headers\":[[\"" + EPOCH + "\",\"" + number + "\"]]}";
    }

    private static LandedLine of(JsonParser headers, long offset, byte[] key, byte[] value, int without)
            throws IOException {
        int epoch = without;
        boolean rekeyed = false;
        if (headers.nextToken() != JsonToken.START_ARRAY) {
            throw LEFT;
        }
        while (headers.nextToken() != JsonToken.END_ARRAY) {
            if (headers.currentToken() != JsonToken.START_ARRAY || headers.nextToken() != JsonToken.VALUE_STRING) {
                throw LEFT;
            }
            String name = headers.getText();
            if (name.equals(IDENTITY)) {
                throw LEFT;
            }
            rekeyed |= name.equals("__debezium.newkey") || name.equals("__debezium.oldkey");
            boolean hasContent = headers.nextToken() == JsonToken.VALUE_STRING;
            if (name.equals(EPOCH)) {
                epoch = digits(hasContent ? headers.getBinaryValue() : new byte[0]);
            }
            if (headers.nextToken() != JsonToken.END_ARRAY) {
                throw LEFT;
            }
        }
        if (headers.nextToken() != null) {
            throw LEFT;
        }
        return new LandedLine(offset, key, value, epoch, rekeyed);
    }

    private static int digits(byte[] text) {
        if (text.length == 0 || text.length > 4) {
            throw LEFT;
        }
        int number = 0;
        for (byte digit : text) {
            if (digit < '0' || digit > '9') {
                throw LEFT;
            }
            number = number * 10 + digit - '0';
        }
        return number;
    }

    private static final class Scanner {
        private final byte[] buffer;
        private final int end;
        private int at;

        Scanner(byte[] buffer, int start, int end) {
            this.buffer = buffer;
            this.end = end;
            at = start;
        }

        boolean takes(String text) {
            if (end - at < text.length()) {
                return false;
            }
            for (int letter = 0; letter < text.length(); letter++) {
                if (buffer[at + letter] != text.charAt(letter)) {
                    return false;
                }
            }
            at += text.length();
            return true;
        }

        void take(String text) {
            if (!takes(text)) {
                throw LEFT;
            }
        }

        long number() {
            int from = at;
            long number = 0;
            while (at < end && buffer[at] >= '0' && buffer[at] <= '9') {
                number = number * 10 + buffer[at++] - '0';
            }
            // Any number with this many digits fits a long.
            if (at == from || at - from > 18 || buffer[from] == '0' && at - from > 1) {
                throw LEFT;
            }
            return number;
        }

        /** Decodes a field in base64; null stays null. */
        byte[] content() {
            if (takes("null")) {
                return null;
            }
            take("\"");
            int from = at;
            while (at < end && buffer[at] != '"') {
                at++;
            }
            ByteBuffer text = ByteBuffer.wrap(buffer, from, at - from);
            take("\"");
            // Java would also accept base64 without padding.
            if (text.remaining() % 4 != 0) {
                throw LEFT;
            }
            try {
                ByteBuffer content = Base64.getDecoder().decode(text);
                return content.remaining() == content.array().length
                        ? content.array()
                        : Arrays.copyOf(content.array(), content.remaining());
            } catch (IllegalArgumentException broken) {
                throw LEFT;
            }
        }

        void end() {
            if (at != end) {
                throw LEFT;
            }
        }
    }
}
