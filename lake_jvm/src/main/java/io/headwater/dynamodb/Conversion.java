package io.headwater.dynamodb;

import static io.headwater.decoding.LeftToCarefulDecoder.LEFT;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.databind.JsonNode;
import io.headwater.decoding.Scalars;
import io.headwater.decoding.Transform;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Converts the content of a typed value to Spark's internal form.
 *
 * <p>The parser stands at the content, and is left at the content's end.
 */
@FunctionalInterface
interface Conversion {
    int LONG_DIGITS = 18;

    /**
     * Converts the value. {@code source} holds the bytes that the parser reads. Parts that the type lacks go to {@code
     * left}.
     */
    Object read(JsonParser beside, byte[] source, Leftovers left) throws IOException;

    /** Returns the conversion of a plan, which {@code usual_items.py} makes from a column. */
    static Conversion of(JsonNode plan) {
        String kind = plan.get("kind").asText();
        switch (kind) {
            case "set":
                Conversion member = of(plan.get("element"));
                return (beside, source, left) -> set(beside, source, member);
            case "list":
                Conversion element = of(plan.get("element"));
                String tag = plan.get("tag").asText();
                boolean inParts = isInParts(plan);
                return (beside, source, left) -> list(beside, source, tag, element, inParts ? left : null);
            case "struct":
                return new Struct(plan.get("fields"));
            case "document":
                String ofDocument = plan.get("tag").asText();
                return (beside, source, left) -> document(beside, source, ofDocument);
            case "boolean":
                return (beside, source, left) -> switch (beside.currentToken()) {
                    case VALUE_TRUE -> true;
                    case VALUE_FALSE -> false;
                    default -> throw LEFT;
                };
            default:
                OfText scalar = scalar(kind, plan);
                return (beside, source, left) -> scalar.read(Scalars.text(beside));
        }
    }

    /** Whether a type names parts of a value, so that the value may have other parts too. */
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
            case "int" -> text -> (int) Scalars.within(integer(text), Integer.MIN_VALUE, Integer.MAX_VALUE);
            case "bigint" -> Conversion::integer;
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
            case "transform" -> {
                OfText before = scalar(plan.get("before").get("kind").asText(), plan.get("before"));
                Transform transform = new Transform(plan);
                yield text -> transform.of(before.read(text));
            }
            default -> text -> {
                throw LEFT;
            };
        };
    }

    private static long integer(String text) {
        int start = text.startsWith("-") ? 1 : 0;
        if (text.length() - start > LONG_DIGITS || Scalars.checkDecimal(text) < text.length()) {
            throw LEFT;
        }
        return Long.parseLong(text);
    }

    private static byte[] bytes(String base64) {
        try {
            byte[] bytes = Base64.getDecoder().decode(base64);
            // Java would also accept base64 without padding, and with unused bits that are not zero.
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
            found.add(member.read(beside, source, null));
        }
        return new GenericArrayData(found.toArray());
    }

    /** Converts a list. Its elements may have leftovers: parts that the type lacks, or nulls if the type has parts. */
    private static Object list(JsonParser beside, byte[] source, String tag, Conversion element, Leftovers left)
            throws IOException {
        if (beside.currentToken() != JsonToken.START_ARRAY) {
            throw LEFT;
        }
        List<Object> found = new ArrayList<>();
        while (beside.nextToken() != JsonToken.END_ARRAY) {
            found.add(element(beside, source, tag, element, left, found.size()));
        }
        return new GenericArrayData(found.toArray());
    }

    /**
     * Converts an element of a list, at whose beginning the parser stands.
     *
     * <p>A null goes to {@code left} if the type has parts.
     */
    private static Object element(
            JsonParser value, byte[] source, String tag, Conversion conversion, Leftovers left, int number)
            throws IOException {
        int start = startOf(value);
        String its = tagOf(value);
        boolean isNull = isNull(its, value);
        Object converted = null;
        if (its.equals(tag)) {
            Leftovers inside = left == null ? null : left.of(Integer.toString(number));
            converted = conversion.read(value, source, inside);
            if (left != null) {
                left.addAll(inside);
            }
        } else if (!isNull) {
            throw LEFT;
        }
        end(value);
        if (isNull && left != null) {
            left.take(Integer.toString(number), source, start, value);
        }
        return converted;
    }

    /** Returns the text of a map or a list with its tag, if it has no spaces. */
    private static Object document(JsonParser beside, byte[] source, String tag) throws IOException {
        if (beside.currentToken() != (tag.equals("M") ? JsonToken.START_OBJECT : JsonToken.START_ARRAY)) {
            throw LEFT;
        }
        int start = startOf(beside);
        beside.skipChildren();
        int end = endOf(beside);
        Leftovers.checkCompact(source, start, end, true);
        byte[] opening = ("{\"" + tag + "\":").getBytes(StandardCharsets.UTF_8);
        byte[] text = new byte[opening.length + end - start + 1];
        System.arraycopy(opening, 0, text, 0, opening.length);
        System.arraycopy(source, start, text, opening.length, end - start);
        text[text.length - 1] = '}';
        return UTF8String.fromBytes(text);
    }

    /** Returns the position where the current token begins. */
    static int startOf(JsonParser json) {
        return (int) json.currentTokenLocation().getByteOffset();
    }

    /** Returns the position where the current token ends. */
    static int endOf(JsonParser json) {
        return (int) json.currentLocation().getByteOffset();
    }

    /** Returns the tag of the typed value at whose beginning the parser stands, and moves the parser to its content. */
    static String tagOf(JsonParser value) throws IOException {
        if (value.currentToken() != JsonToken.START_OBJECT || value.nextToken() != JsonToken.FIELD_NAME) {
            throw LEFT;
        }
        String tag = value.currentName();
        value.nextToken();
        return tag;
    }

    /** Whether that typed value is a null. */
    static boolean isNull(String tag, JsonParser beside) {
        return tag.equals("NULL") && beside.currentToken() == JsonToken.VALUE_TRUE;
    }

    /** Moves the parser from the content of a typed value to the value's end. */
    static void end(JsonParser value) throws IOException {
        if (value.nextToken() != JsonToken.END_OBJECT) {
            throw LEFT;
        }
    }

    /** A map with members that the type names. */
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

        /** Reads a member into {@code found}. Returns its leftovers, or null if there are none. */
        private Leftovers member(
                JsonParser value, byte[] source, int at, Leftovers left, String name, Object[] found) throws IOException {
            int start = startOf(value);
            String its = tagOf(value);
            boolean isNull = isNull(its, value);
            Leftovers inside = null;
            if (its.equals(tags.get(at))) {
                inside = inParts.get(at) ? left.of(name) : null;
                found[at] = conversions.get(at).read(value, source, inside);
            } else if (!isNull) {
                throw LEFT;
            }
            end(value);
            if (isNull) {
                inside = left.others();
                inside.take(name, source, start, value);
            }
            return inside;
        }

        @Override
        public Object read(JsonParser beside, byte[] source, Leftovers left) throws IOException {
            if (beside.currentToken() != JsonToken.START_OBJECT) {
                throw LEFT;
            }
            Object[] found = new Object[conversions.size()];
            // The reference decoder reports the leftovers of the type's members first, in the type's order.
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
                Leftovers ofMember = member(beside, source, at, left, name, found);
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
