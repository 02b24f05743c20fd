package io.headwater.dynamodb;

import static io.headwater.decoding.LeftToCarefulDecoder.LEFT;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.databind.JsonNode;
import io.headwater.decoding.Scalars;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Converts what stands beside the tag of a typed value, at which a parser stands, into what Spark holds inside of a row, and
 * leaves the parser at its end.
 */
@FunctionalInterface
interface Conversion {
    int INT_DIGITS = 9;
    int LONG_DIGITS = 18;
    int DATE_LENGTH = 10;
    int MONTH_LENGTH = 7;

    /**
     * {@code source} has what the parser reads; the typed value begins at {@code start}. What the type does not name goes to
     * {@code left}.
     */
    Object read(JsonParser beside, byte[] source, int start, Leftovers left) throws IOException;

    /** The conversion of that plan, which {@code usual_items.py} makes of a column. */
    static Conversion of(JsonNode plan) {
        String kind = plan.get("kind").asText();
        switch (kind) {
            case "set":
                Conversion member = of(plan.get("element"));
                return (beside, source, start, left) -> set(beside, source, member);
            case "list":
                Conversion element = of(plan.get("element"));
                String tag = plan.get("tag").asText();
                boolean inParts = isInParts(plan);
                return (beside, source, start, left) -> list(beside, source, tag, element, inParts ? left : null);
            case "struct":
                return new Struct(plan.get("fields"));
            case "document":
                JsonToken opening = plan.get("tag").asText().equals("M") ? JsonToken.START_OBJECT : JsonToken.START_ARRAY;
                return (beside, source, start, left) -> document(beside, source, start, opening);
            case "boolean":
                return (beside, source, start, left) -> switch (beside.currentToken()) {
                    case VALUE_TRUE -> true;
                    case VALUE_FALSE -> false;
                    default -> throw LEFT;
                };
            default:
                OfText scalar = scalar(kind, plan);
                return (beside, source, start, left) -> scalar.read(text(beside));
        }
    }

    /** Whether a type names parts of a value, of which there may be others. */
    private static boolean isInParts(JsonNode plan) {
        return plan.get("kind").asText().equals("struct") || plan.path("in_parts").asBoolean();
    }

    /** Converts a text. */
    @FunctionalInterface
    interface OfText {
        Object read(String text);
    }

    private static OfText scalar(String kind, JsonNode plan) {
        long lowest = plan.path("lowest").asLong();
        long highest = plan.path("highest").asLong();
        int precision = plan.path("precision").asInt();
        int scale = plan.path("scale").asInt();
        return switch (kind) {
            case "string" -> UTF8String::fromString;
            case "binary" -> Conversion::bytes;
            case "int" -> text -> (int) integer(text, INT_DIGITS);
            case "bigint" -> text -> integer(text, LONG_DIGITS);
            case "decimal" -> text -> Scalars.decimal(text, precision, scale);
            case "number text" -> text -> {
                Scalars.checkDecimal(text);
                return UTF8String.fromString(text);
            };
            case "plain number text" -> text -> {
                int point = Scalars.checkDecimal(text);
                if (point < text.length() && text.endsWith("0") || text.equals("-0")) {
                    throw LEFT;
                }
                return UTF8String.fromString(text);
            };
            case "date" -> text -> (int) Scalars.day(text);
            case "instant" -> text -> Scalars.within(Scalars.micros(text), lowest, highest);
            case "month" -> text -> {
                boolean isMoment = text.length() > DATE_LENGTH;
                if (text.length() < DATE_LENGTH
                        || isMoment && text.charAt(DATE_LENGTH) != 'T' && text.charAt(DATE_LENGTH) != ' ') {
                    throw LEFT;
                }
                Scalars.day(text.substring(0, DATE_LENGTH));
                return UTF8String.fromString(text.substring(0, MONTH_LENGTH));
            };
            default -> text -> {
                throw LEFT;
            };
        };
    }

    private static String text(JsonParser beside) throws IOException {
        if (beside.currentToken() != JsonToken.VALUE_STRING) {
            throw LEFT;
        }
        return beside.getText();
    }

    private static long integer(String text, int mostDigits) {
        int start = text.startsWith("-") ? 1 : 0;
        if (text.length() - start > mostDigits || Scalars.checkDecimal(text) < text.length()) {
            throw LEFT;
        }
        return Long.parseLong(text);
    }

    private static byte[] bytes(String base64) {
        try {
            byte[] bytes = Base64.getDecoder().decode(base64);
            // Java would do without padding, and takes bits that say nothing.
            if (!Base64.getEncoder().encodeToString(bytes).equals(base64)) {
                throw LEFT;
            }
            return bytes;
        } catch (IllegalArgumentException broken) {
            throw LEFT;
        }
    }

    private static Object set(JsonParser beside, byte[] source, Conversion member) throws IOException {
        if (beside.currentToken() != JsonToken.START_ARRAY) {
            throw LEFT;
        }
        List<Object> found = new ArrayList<>();
        while (beside.nextToken() != JsonToken.END_ARRAY) {
            found.add(member.read(beside, source, -1, null));
        }
        return new GenericArrayData(found.toArray());
    }

    /** A list; {@code left} is for elements with parts, of which null is left over too. */
    private static Object list(JsonParser beside, byte[] source, String tag, Conversion element, Leftovers left)
            throws IOException {
        if (beside.currentToken() != JsonToken.START_ARRAY) {
            throw LEFT;
        }
        List<Object> found = new ArrayList<>();
        while (beside.nextToken() != JsonToken.END_ARRAY) {
            found.add(typed(beside, source, tag, element, left, left == null ? "" : Integer.toString(found.size())));
        }
        return new GenericArrayData(found.toArray());
    }

    /** The part of that name of a value, at whose beginning the parser stands; a null of it goes to {@code left}. */
    private static Object typed(
            JsonParser value, byte[] source, String tag, Conversion conversion, Leftovers left, String name)
            throws IOException {
        int start = left == null ? -1 : (int) value.currentTokenLocation().getByteOffset();
        if (value.currentToken() != JsonToken.START_OBJECT || value.nextToken() != JsonToken.FIELD_NAME) {
            throw LEFT;
        }
        String its = value.currentName();
        JsonToken token = value.nextToken();
        boolean isNull = its.equals("NULL") && token == JsonToken.VALUE_TRUE;
        Object converted = null;
        if (its.equals(tag)) {
            Leftovers inside = left == null ? null : left.of(name);
            converted = conversion.read(value, source, -1, inside);
            if (left != null) {
                left.addAll(inside);
            }
        } else if (!isNull) {
            throw LEFT;
        }
        if (value.nextToken() != JsonToken.END_OBJECT) {
            throw LEFT;
        }
        if (isNull && left != null) {
            left.take(name, source, start, value);
        }
        return converted;
    }

    /** The text of a map or a list with its tag, where it has no spaces. */
    private static Object document(JsonParser beside, byte[] source, int start, JsonToken opening)
            throws IOException {
        if (beside.currentToken() != opening) {
            throw LEFT;
        }
        beside.skipChildren();
        int end = (int) beside.currentLocation().getByteOffset();
        boolean isInText = false;
        for (int at = start; at < end; at++) {
            byte letter = source[at];
            if (letter == '"') {
                isInText = !isInText;
            } else if (letter == '\\') {
                at++;
            } else if (!isInText && letter <= ' ' && letter >= 0) {
                throw LEFT;
            }
        }
        byte[] text = Arrays.copyOfRange(source, start, end + 1);
        text[end - start] = '}';
        return UTF8String.fromBytes(text);
    }

    /** A map whose members the type names. */
    final class Struct implements Conversion {
        private final Map<String, Integer> places = new HashMap<>();
        private final List<String> tags = new ArrayList<>();
        private final List<Boolean> inParts = new ArrayList<>();
        private final List<Conversion> conversions = new ArrayList<>();

        Struct(JsonNode fields) {
            for (JsonNode field : fields) {
                places.put(field.get("name").asText(), conversions.size());
                tags.add(field.get("tag").asText());
                inParts.add(isInParts(field.get("convert")));
                conversions.add(of(field.get("convert")));
            }
        }

        /** Reads a member into {@code found}; returns what it leaves, null for nothing. */
        private Leftovers typed(
                JsonParser value, byte[] source, int at, Leftovers left, String name, Object[] found) throws IOException {
            int start = (int) value.currentTokenLocation().getByteOffset();
            if (value.currentToken() != JsonToken.START_OBJECT || value.nextToken() != JsonToken.FIELD_NAME) {
                throw LEFT;
            }
            String its = value.currentName();
            JsonToken token = value.nextToken();
            Leftovers inside = null;
            boolean isNull = false;
            if (its.equals(tags.get(at))) {
                inside = inParts.get(at) ? left.of(name) : null;
                found[at] = conversions.get(at).read(value, source, -1, inside);
            } else if (its.equals("NULL") && token == JsonToken.VALUE_TRUE) {
                isNull = true;
            } else {
                throw LEFT;
            }
            if (value.nextToken() != JsonToken.END_OBJECT) {
                throw LEFT;
            }
            if (isNull) {
                inside = left.others();
                inside.take(name, source, start, value);
            }
            return inside;
        }

        @Override
        public Object read(JsonParser beside, byte[] source, int start, Leftovers left) throws IOException {
            if (beside.currentToken() != JsonToken.START_OBJECT) {
                throw LEFT;
            }
            Object[] found = new Object[conversions.size()];
            // The careful decoder tells first what the members of the type leave, in the type's order.
            Leftovers[] ofMembers = null;
            Leftovers unnamed = null;
            Once once = new Once();
            while (beside.nextToken() != JsonToken.END_OBJECT) {
                String name = beside.currentName();
                Integer at = places.get(name);
                beside.nextToken();
                if (at == null) {
                    once.see(name);
                    unnamed = unnamed == null ? left.others() : unnamed;
                    unnamed.take(name, beside, source);
                    continue;
                }
                once.see(at);
                Leftovers ofMember = typed(beside, source, at, left, name, found);
                if (ofMember != null) {
                    ofMembers = ofMembers == null ? new Leftovers[found.length] : ofMembers;
                    ofMembers[at] = ofMember;
                }
            }
            if (ofMembers != null) {
                for (Leftovers ofMember : ofMembers) {
                    left.addAll(ofMember);
                }
            }
            left.addAll(unnamed);
            return new GenericInternalRow(found);
        }
    }
}
