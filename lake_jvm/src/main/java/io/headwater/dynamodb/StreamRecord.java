package io.headwater.dynamodb;

import io.headwater.decoding.JsonText;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Iterator;

/** A record of a Kinesis stream; data and sequence number may be null. */
record StreamRecord(byte[] data, String sequence, String position) {
    /**
     * Reads records of {@code usual_items.py}: each has the lengths of its three fields, -1 for null, then the fields.
     */
    static Iterator<StreamRecord> all(byte[] written) {
        ByteBuffer content = ByteBuffer.wrap(written);
        return new Iterator<>() {
            @Override
            public boolean hasNext() {
                return content.hasRemaining();
            }

            @Override
            public StreamRecord next() {
                int ofData = content.getInt();
                int ofSequence = content.getInt();
                int ofPosition = content.getInt();
                byte[] data = part(content, ofData);
                return new StreamRecord(data, text(part(content, ofSequence)), text(part(content, ofPosition)));
            }
        };
    }

    private static byte[] part(ByteBuffer content, int length) {
        if (length < 0) {
            return null;
        }
        byte[] part = new byte[length];
        content.get(part);
        return part;
    }

    private static String text(byte[] part) {
        return part == null ? null : new String(part, StandardCharsets.UTF_8);
    }

    /** Returns the record in the form that quarantine keeps and {@code kept_decoder} reads. */
    String kept() {
        StringBuilder text = new StringBuilder("{\"sequence\":");
        append(text, sequence);
        append(text.append(",\"position\":"), position);
        try {
            String content = data == null
                    ? null
                    : StandardCharsets.UTF_8
                            .newDecoder()
                            .decode(ByteBuffer.wrap(data))
                            .toString();
            append(text.append(",\"data\":"), content);
        } catch (CharacterCodingException broken) {
            append(text.append(",\"data_base64\":"), Base64.getEncoder().encodeToString(data));
        }
        return text.append('}').toString();
    }

    private static void append(StringBuilder text, String value) {
        if (value == null) {
            text.append("null");
        } else {
            JsonText.quote(text, value);
        }
    }
}
