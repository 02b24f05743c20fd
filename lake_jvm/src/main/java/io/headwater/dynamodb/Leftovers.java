package io.headwater.dynamodb;

import static io.headwater.decoding.LeftToCarefulDecoder.LEFT;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/** The parts of an attribute's value, or of a part of it, that a column's type does not name, by path. */
final class Leftovers {
    /** A text, and the position of its value in the record. */
    record Entry(String path, int start, int end) {}

    private final Leftovers above;
    private final String name;
    private List<Entry> entries;

    /** Makes the leftovers of the attribute at that path. */
    Leftovers(String path) {
        this(null, path);
    }

    private Leftovers(Leftovers above, String name) {
        this.above = above;
        this.name = name;
    }

    /** Makes the leftovers of a part of this value. */
    Leftovers of(String part) {
        return new Leftovers(this, part);
    }

    /** Adds leftovers of a part of this value. */
    Leftovers others() {
        return new Leftovers(above, name);
    }

    List<Entry> entries() {
        return entries == null ? List.of() : entries;
    }

    void addAll(Leftovers later) {
        if (later != null && later.entries != null) {
            if (entries == null) {
                entries = new ArrayList<>();
            }
            entries.addAll(later.entries);
        }
    }

    /** Adds the member of that name, at whose value the parser stands, to its end. */
    void take(String member, JsonParser value, byte[] source) throws IOException {
        int start = Conversion.startOf(value);
        skipVerbatim(value);
        take(member, source, start, value);
    }

    /** Adds the member of that name, whose value begins at {@code start} and at whose end the parser stands. */
    void take(String member, byte[] source, int start, JsonParser value) throws IOException {
        int end = Conversion.endOf(value);
        checkCompact(source, start, end, false);
        if (entries == null) {
            entries = new ArrayList<>();
        }
        StringBuilder path = new StringBuilder();
        append(path, member);
        entries.add(new Entry(path.toString(), start, end));
    }

    private void append(StringBuilder path, String member) {
        if (member.indexOf('.') >= 0 || member.indexOf('"') >= 0) {
            throw LEFT;
        }
        if (above == null) {
            path.append(name);
        } else {
            above.append(path, name);
        }
        path.append('.').append(member);
    }

    /** Skips a value that Python would write unchanged: without a repeated name, and without a number. */
    private static void skipVerbatim(JsonParser value) throws IOException {
        if (value.currentToken() == JsonToken.START_OBJECT) {
            Set<String> names = new HashSet<>();
            while (value.nextToken() != JsonToken.END_OBJECT) {
                if (!names.add(value.currentName())) {
                    throw LEFT;
                }
                value.nextToken();
                skipVerbatim(value);
            }
        } else if (value.currentToken() == JsonToken.START_ARRAY) {
            while (value.nextToken() != JsonToken.END_ARRAY) {
                skipVerbatim(value);
            }
        } else if (value.currentToken().isNumeric()) {
            // Python may write a number in another way.
            throw LEFT;
        } else if (value.currentToken() == JsonToken.VALUE_STRING) {
            value.finishToken();
        }
    }

    /** Leaves a record to the reference decoder if a text has spaces between tokens, or unexpected escapes. */
    static void checkCompact(byte[] source, int start, int end, boolean mayEscape) {
        boolean isInText = false;
        for (int at = start; at < end; at++) {
            byte letter = source[at];
            if (letter == '"') {
                isInText = !isInText;
            } else if (letter == '\\' && mayEscape) {
                at++;
            } else if (letter == '\\' || !isInText && letter >= 0 && letter <= ' ') {
                throw LEFT;
            }
        }
    }
}
