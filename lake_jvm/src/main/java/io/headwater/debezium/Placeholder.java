package io.headwater.debezium;

import com.fasterxml.jackson.core.JsonParser;
import io.headwater.decoding.JsonText;
import java.io.IOException;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Debezium's marker for a TOASTed value that did not come along, as {@code debezium_decoder.py} knows it for each type. The
 * marker is a text, bytes in hexadecimal, an object for hstore, or an array of these, of its UUID or of its letters' codes.
 * A value that looks like the marker counts as the marker.
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

    /** Whether the text at which a parser stands is one. */
    static boolean is(JsonParser value) throws IOException {
        if (value.getTextLength() <= MOST_LETTERS) {
            return is(value.getText());
        }
        // A document is long: what it begins with tells.
        return is(new String(value.getTextCharacters(), value.getTextOffset(), MOST_LETTERS + 1));
    }

    private static boolean is(String text) {
        return text.startsWith(TEXT) || TEXTS.contains(text) || text.startsWith(OBJECT);
    }

    /** Whether an array or an object, as {@link JsonText} writes it, is one or of one. */
    static boolean isIn(String text) {
        return text.startsWith(OBJECT)
                || text.equals(CODES)
                || text.equals(DOUBLES)
                || text.startsWith("[\"") && TEXTS.contains(text.substring(2, text.length() - 2));
    }

    /** Whether an array of that content may be of one. */
    static boolean isIn(Object[] array) {
        if (array.length == 1) {
            return array[0] instanceof UTF8String text && is(text.toString());
        }
        return array.length == TEXT.length() && !(array[0] instanceof UTF8String);
    }
}
