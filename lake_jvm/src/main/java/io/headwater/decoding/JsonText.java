package io.headwater.decoding;

import static io.headwater.decoding.LeftToCarefulDecoder.LEFT;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.StreamReadConstraints;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.Map;
import java.util.TreeMap;

/**
 * JSON as Python reads it, and as Python's {@code dump_json} writes it: members sorted, no spaces, digits unchanged.
 */
public final class JsonText {
    /** Names in documents are data, so Jackson does not intern them. Python's reader accepts some 1,000 levels. */
    public static final JsonFactory READER = JsonFactory.builder()
            .disable(JsonFactory.Feature.INTERN_FIELD_NAMES)
            .streamReadConstraints(
                    StreamReadConstraints.builder().maxNestingDepth(500).build())
            .build();

    /** The limit of levels: a document with more levels is left to the reference decoder. */
    private static final int MOST_LEVELS = 90;

    private static final VarHandle EIGHT = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.nativeOrder());
    private static final long EACH_ONE = 0x0101010101010101L;
    private static final long EACH_HIGHEST_BIT = 0x80 * EACH_ONE;
    private static final long EACH_A_BACKSLASH = '\\' * EACH_ONE;
    private static final long EACH_A_U = 'u' * EACH_ONE;
    private static final int MOST_EXACT_DIGITS = 15;
    private static final String HEX = "0123456789abcdef";

    private JsonText() {}

    /** Parses a plan or a list that Python has written. */
    public static JsonNode parsed(String text) {
        try {
            return new ObjectMapper().readTree(text);
        } catch (IOException broken) {
            throw new IllegalArgumentException(broken);
        }
    }

    /**
     * Whether eight letters are ASCII and none begins an escaped code.
     *
     * <p>A code begins with a backslash; the eight letters from the next position then have a u there. To find a zero
     * byte, subtract one from each byte: a zero byte borrows its highest bit.
     */
    private static boolean isPlain(long letters, long later) {
        long others = letters ^ EACH_A_BACKSLASH | later ^ EACH_A_U;
        return ((letters | others - EACH_ONE & ~others) & EACH_HIGHEST_BIT) == 0;
    }

    /**
     * Refuses JSON that Jackson and Python may read differently, or that the lake cannot hold.
     *
     * @return whether the JSON may have a letter that is written as its code: a backslash before a u
     */
    public static boolean check(byte[] value) {
        if (value.length < 2 || value[0] != '{' || value[1] == 0) {
            throw LEFT;
        }
        boolean mayHaveCodes = false;
        int at = 0;
        while (at < value.length) {
            // Check eight letters at once if none of them needs a closer look.
            if (at + Long.BYTES < value.length && isPlain((long) EIGHT.get(value, at), (long) EIGHT.get(value, at + 1))) {
                at += Long.BYTES;
                continue;
            }
            byte letter = value[at];
            if (letter < 0) {
                at += bytesOfLetter(value, at);
                continue;
            }
            if (letter == '\\' && at + 2 < value.length && value[at + 1] == 'u') {
                mayHaveCodes = true;
                if ((value[at + 2] | 32) == 'd') {
                    // The code may be half of a surrogate pair.
                    throw LEFT;
                }
            }
            at++;
        }
        return mayHaveCodes;
    }

    /**
     * Returns the number of bytes of a letter that is not ASCII; the Unicode Standard defines the well-formed
     * sequences.
     */
    private static int bytesOfLetter(byte[] value, int at) {
        int first = value[at] & 0xff;
        int more = first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
        if (first < 0xc2 || first > 0xf4 || at + more >= value.length) {
            throw LEFT;
        }
        int second = value[at + 1] & 0xff;
        int lowest = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
        int highest = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
        if (second < lowest || second > highest) {
            throw LEFT;
        }
        for (int later = 2; later <= more; later++) {
            if ((value[at + later] & 0xc0) != 0x80) {
                throw LEFT;
            }
        }
        return more + 1;
    }

    /**
     * Writes the value at which the parser stands.
     *
     * @param exact whether numbers are kept as decimals; otherwise they are doubles, as Python reads them
     * @param level the number of objects and arrays around the value
     */
    public static String of(JsonParser value, boolean exact, int level) throws IOException {
        StringBuilder text = new StringBuilder();
        write(text, value, exact, level);
        return text.toString();
    }

    /** Skips the value at which the parser stands; {@code level} is the number of objects and arrays around it. */
    public static void skip(JsonParser value, int level) throws IOException {
        int now = level;
        JsonToken token = value.currentToken();
        while (true) {
            now += token.isStructStart() ? 1 : token.isStructEnd() ? -1 : 0;
            if (now > MOST_LEVELS) {
                throw LEFT;
            }
            if (now == level) {
                return;
            }
            token = value.nextToken();
        }
    }

    /** Writes an object of members whose values are written as JSON already. */
    public static String ofMembers(Map<String, String> sorted) {
        StringBuilder text = new StringBuilder("{");
        sorted.forEach((name, value) -> {
            text.append(text.length() == 1 ? "" : ",");
            quote(text, name);
            text.append(':').append(value);
        });
        return text.append('}').toString();
    }

    private static void write(StringBuilder text, JsonParser value, boolean exact, int level) throws IOException {
        if (level > MOST_LEVELS) {
            throw LEFT;
        }
        switch (value.currentToken()) {
            case START_OBJECT:
                Map<String, String> members = new TreeMap<>();
                while (value.nextToken() != JsonToken.END_OBJECT) {
                    String name = sortable(value.currentName());
                    value.nextToken();
                    if (members.put(name, of(value, exact, level + 1)) != null) {
                        throw LEFT;
                    }
                }
                text.append(ofMembers(members));
                break;
            case START_ARRAY:
                text.append('[');
                for (int at = 0; value.nextToken() != JsonToken.END_ARRAY; at++) {
                    text.append(at == 0 ? "" : ",");
                    write(text, value, exact, level + 1);
                }
                text.append(']');
                break;
            case VALUE_STRING:
                quote(text, value.getText());
                break;
            case VALUE_NUMBER_INT:
                text.append(integer(value.getText()));
                break;
            case VALUE_NUMBER_FLOAT:
                String digits = value.getText();
                if (!(exact ? isPlainDecimal(digits) : isPlainDouble(digits))) {
                    throw LEFT;
                }
                text.append(digits);
                break;
            default:
                text.append(value.getText());
        }
    }

    private static String integer(String digits) {
        if (digits.equals("-0")) {
            throw LEFT;
        }
        return digits;
    }

    /** A name that sorts in Java as in Python. */
    public static String sortable(String name) {
        for (int at = 0; at < name.length(); at++) {
            if (Character.isSurrogate(name.charAt(at))) {
                throw LEFT;
            }
        }
        return name;
    }

    /** Whether Python writes a decimal with these digits without an exponent. */
    private static boolean isPlainDecimal(String digits) {
        int point = digits.indexOf('.');
        return !hasExponent(digits) && (!isZero(digits, 0, point) || digits.length() - point - 1 <= 6);
    }

    /** Whether Python writes a double with these digits in the same way. */
    private static boolean isPlainDouble(String digits) {
        int point = digits.indexOf('.');
        if (hasExponent(digits) || digits.length() > MOST_EXACT_DIGITS) {
            return false;
        }
        if (digits.charAt(digits.length() - 1) == '0' && digits.length() - point > 2) {
            return false;
        }
        // Python writes numbers below 0.0001 with an exponent.
        return !isZero(digits, 0, point)
                || !isZero(digits, point + 1, Math.min(point + 5, digits.length()))
                || digits.length() - point == 2;
    }

    private static boolean hasExponent(String digits) {
        return digits.indexOf('e') >= 0 || digits.indexOf('E') >= 0 || digits.indexOf('.') < 0;
    }

    private static boolean isZero(String digits, int from, int to) {
        for (int at = from; at < to; at++) {
            if (digits.charAt(at) != '0' && digits.charAt(at) != '-') {
                return false;
            }
        }
        return true;
    }

    /** Returns a text in quotation marks, as Python's {@code json.dumps} writes it without ASCII escapes. */
    public static void quote(StringBuilder text, String value) {
        text.append('"');
        for (int at = 0; at < value.length(); at++) {
            char letter = value.charAt(at);
            switch (letter) {
                case '"' -> text.append("\\\"");
                case '\\' -> text.append("\\\\");
                case '\n' -> text.append("\\n");
                case '\r' -> text.append("\\r");
                case '\t' -> text.append("\\t");
                case '\b' -> text.append("\\b");
                case '\f' -> text.append("\\f");
                default -> {
                    if (letter < ' ') {
                        text.append("\\u00").append(HEX.charAt(letter >> 4)).append(HEX.charAt(letter & 15));
                    } else {
                        text.append(letter);
                    }
                }
            }
        }
        text.append('"');
    }
}
