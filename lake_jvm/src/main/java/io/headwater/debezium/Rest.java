package io.headwater.debezium;

import static io.headwater.decoding.LeftToCarefulDecoder.LEFT;

import com.fasterxml.jackson.core.JsonParser;
import io.headwater.decoding.JsonText;
import java.io.IOException;
import java.util.Map;
import java.util.TreeMap;

/** The unmapped values of a row, by path: they go to {@code _rest}. */
final class Rest {
    private final boolean isDropped;
    private Map<String, String> entries;

    Rest(boolean isDropped) {
        this.isDropped = isDropped;
    }

    /** The path of a value: a source column, a member of an object in it, or an element of an array in it. */
    record Path(Path above, String name, int level) {
        Path(String column) {
            this(null, column, 0);
        }

        Path member(String name) {
            return new Path(this, name, level + 1);
        }

        Path element(int at) {
            return new Path(this, Integer.toString(at), level + 1);
        }

        /** Returns the path as text, as Python's {@code dotted} does. */
        String text() {
            if (name.indexOf('.') >= 0 || name.indexOf('"') >= 0) {
                throw LEFT;
            }
            return above == null ? JsonText.sortable(name) : above.text() + "." + JsonText.sortable(name);
        }
    }

    /** Adds the value at which the parser stands; {@code exact} as in {@link JsonText#of}. */
    void take(Path path, JsonParser value, boolean exact) throws IOException {
        if (isDropped) {
            JsonText.skip(value, path.level());
            return;
        }
        put(path, JsonText.of(value, exact, path.level()));
    }

    /** Adds a value that is written as JSON already. */
    void put(Path path, String text) {
        if (isDropped) {
            return;
        }
        if (entries == null) {
            entries = new TreeMap<>();
        }
        if (entries.put(path.text(), text) != null) {
            throw LEFT;
        }
    }

    /** Returns all values as JSON; null if there are none. */
    String text() {
        return entries == null ? null : JsonText.ofMembers(entries);
    }
}
