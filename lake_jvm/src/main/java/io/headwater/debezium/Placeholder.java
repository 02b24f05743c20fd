package io.headwater.debezium;

import com.fasterxml.jackson.core.JsonParser;
import io.headwater.decoding.JsonText;
import java.io.IOException;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Recognizes Debezium's marker for an unchanged TOASTed value, which PostgreSQL does not log.
 *
 * <p>The rules of each type are the same as in {@code debezium_decoder.py}. The marker is a text, bytes in hexadecimal,
 * or an object for hstore. In an array it is each element: the marker, its UUID or the code of one of its letters. A
 * value that looks like the marker counts as the marker.
 */
final class Placeholder {
    private static final String TEXT = "__debezium_unavailable_value";
    private static final Set<String> TEXTS = Set.of(
            TEXT, "5f5f646562657a69756d5f756e617661696c61626c655f76616c7565", "b68a35a7-17ad-35b3-af2a-ae46edb4545a");
    private static final int MOST_LETTERS =
            TEXTS.stream().mapToInt(String::length).max().getAsInt();
    private static final String OBJECT = "{\"" + TEXT;
    private static final String CODES = codes("");
    private static final String DOUBLES = codes(".0");

    private Placeholder() {}

    private static String codes(String fraction) {
        return TEXT.chars().mapToObj(letter -> letter + fraction).collect(Collectors.joining(",", "[", "]"));
    }

    /** Whether the text at which a parser stands is the marker. */
    static boolean is(JsonParser value) throws IOException {
        if (value.getTextLength() <= MOST_LETTERS) {
            return is(value.getText());
        }
        // A document is long, but its beginning is enough to decide.
        return is(new String(value.getTextCharacters(), value.getTextOffset(), MOST_LETTERS + 1));
    }

    private static boolean is(String text) {
        return text.startsWith(TEXT) || TEXTS.contains(text) || text.startsWith(OBJECT);
    }

    /** Whether an array or an object, as {@link JsonText} writes it, is the marker or contains it. */
    static boolean isIn(String text) {
        return text.startsWith(OBJECT)
                || text.equals(CODES)
                || text.equals(DOUBLES)
                || text.startsWith("[\"") && TEXTS.contains(text.substring(2, text.length() - 2));
    }

    /** Whether an array with that content may contain the marker. */
    static boolean isIn(Object[] array) {
        if (array.length == 1) {
            return array[0] instanceof UTF8String text && is(text.toString());
        }
        return array.length == TEXT.length() && !(array[0] instanceof UTF8String);
    }
}
