package io.headwater.debezium;

import static io.headwater.decoding.LeftToCarefulDecoder.LEFT;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.databind.JsonNode;
import io.headwater.debezium.Rest.Path;
import io.headwater.decoding.Scalars;
import io.headwater.decoding.Transform;
import java.io.IOException;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Converts a value exactly to Spark's internal form.
 *
 * <p>The parser stands at the value, which is not null. A value in an unexpected form throws, which leaves its record
 * to the reference decoder.
 */
@FunctionalInterface
interface Converter {
    Object read(JsonParser value, Rest rest, Path path) throws IOException;

    /** Reads only the value. */
    @FunctionalInterface
    interface OfScalar {
        Object read(JsonParser value) throws IOException;
    }

    /** The converter of values without inner values, which need no path. */
    record Scalar(OfScalar converter) implements Converter {
        @Override
        public Object read(JsonParser value, Rest rest, Path path) throws IOException {
            return converter.read(value);
        }
    }

    /** Returns the converter of a plan, which {@code usual_changes.py} makes from a column. */
    static Converter of(JsonNode plan) {
        String kind = plan.get("kind").asText();
        if (kind.equals("struct")) {
            return new Struct(plan.get("fields"));
        }
        if (kind.equals("array")) {
            return array(of(plan.get("element")));
        }
        return new Scalar(scalar(kind, plan));
    }

    private static OfScalar scalar(String kind, JsonNode plan) {
        long lowest = plan.path("lowest").asLong();
        long highest = plan.path("highest").asLong();
        long unit = plan.path("unit").asLong();
        switch (kind) {
            case "int":
                return value -> {
                    if (value.currentToken() != JsonToken.VALUE_NUMBER_INT
                            || value.getNumberType() != JsonParser.NumberType.INT) {
                        throw LEFT;
                    }
                    return value.getIntValue();
                };
            case "bigint":
                return Converter::integer;
            case "transform":
                OfScalar before = scalar(plan.get("before").get("kind").asText(), plan.get("before"));
                Transform transform = new Transform(plan);
                return value -> transform.of(before.read(value));
            case "integer text":
                return value -> UTF8String.fromString(Long.toString(integer(value)));
            case "float":
                return value -> {
                    float number = (float) number(value);
                    if (Float.isInfinite(number)) {
                        throw LEFT;
                    }
                    return number;
                };
            case "double":
                return Converter::number;
            case "exact double":
                return value -> {
                    double number = number(value);
                    String digits = value.getText();
                    // A double with so few digits is printed with the same digits.
                    if (digits.length() > 15 || digits.indexOf('e') >= 0 || digits.indexOf('E') >= 0) {
                        throw LEFT;
                    }
                    return number;
                };
            case "boolean":
                return value -> switch (value.currentToken()) {
                    case VALUE_TRUE -> true;
                    case VALUE_FALSE -> false;
                    default -> throw LEFT;
                };
            case "string":
                return value -> UTF8String.fromString(Scalars.text(value));
            case "binary":
                return value -> bytes(Scalars.text(value));
            case "decimal":
                int precision = plan.get("precision").asInt();
                int scale = plan.get("scale").asInt();
                boolean numbers = plan.get("numbers").asBoolean();
                return value -> decimal(value, precision, scale, numbers);
            case "numeric text":
                return value -> {
                    String digits = Scalars.text(value);
                    Scalars.checkDecimal(digits);
                    return UTF8String.fromString(digits);
                };
            case "days":
                return value -> (int) Scalars.within(integer(value), lowest, highest);
            case "days text":
                return value -> UTF8String.fromString(
                        LocalDate.ofEpochDay(Scalars.within(integer(value), lowest, highest)).toString());
            case "date":
                return value -> (int) Scalars.day(Scalars.text(value));
            case "moment":
                return value -> Scalars.within(integer(value), lowest, highest) * unit;
            case "moment text":
                return value -> {
                    long micros = Scalars.within(integer(value), lowest, highest) * unit;
                    LocalDate day = LocalDate.ofEpochDay(Math.floorDiv(micros, Scalars.DAY_MICROS));
                    return UTF8String.fromString(day + " " + time(Math.floorMod(micros, Scalars.DAY_MICROS)));
                };
            case "instant":
                return value -> Scalars.within(Scalars.micros(Scalars.text(value)), lowest, highest);
            case "instant text":
                return value -> {
                    String instant = Scalars.text(value);
                    Scalars.within(Scalars.micros(instant), lowest, highest);
                    return UTF8String.fromString(instant);
                };
            case "time text":
                return value -> UTF8String.fromString(time(integer(value)));
            default:
                return value -> {
                    throw LEFT;
                };
        }
    }

    private static Converter array(Converter element) {
        return (value, rest, path) -> {
            if (value.currentToken() != JsonToken.START_ARRAY) {
                throw LEFT;
            }
            List<Object> found = new ArrayList<>();
            while (value.nextToken() != JsonToken.END_ARRAY) {
                boolean isNull = value.currentToken() == JsonToken.VALUE_NULL;
                found.add(isNull ? null : element.read(value, rest, path.element(found.size())));
            }
            return new GenericArrayData(found.toArray());
        };
    }

    /** Converts objects: columns get the members that the type names; all other members go to {@code _rest}. */
    final class Struct implements Converter {
        private final Map<String, Integer> places = new HashMap<>();
        private final Converter[] converters;

        Struct(JsonNode fields) {
            converters = new Converter[fields.size()];
            for (JsonNode field : fields) {
                int at = places.size();
                places.put(field.get(0).asText(), at);
                converters[at] = of(field.get(1));
            }
        }

        @Override
        public Object read(JsonParser value, Rest rest, Path path) throws IOException {
            if (value.currentToken() != JsonToken.START_OBJECT) {
                throw LEFT;
            }
            Object[] found = new Object[converters.length];
            boolean[] seen = new boolean[found.length];
            while (value.nextToken() != JsonToken.END_OBJECT) {
                String name = value.currentName();
                Integer at = places.get(name);
                JsonToken token = value.nextToken();
                if (at == null) {
                    rest.take(path.member(name), value, true);
                    continue;
                }
                if (seen[at]) {
                    throw LEFT;
                }
                seen[at] = true;
                if (token != JsonToken.VALUE_NULL) {
                    // Most members are scalars, which need no path.
                    found[at] = converters[at] instanceof Scalar scalar
                            ? scalar.converter().read(value)
                            : converters[at].read(value, rest, path.member(name));
                }
            }
            return new GenericInternalRow(found);
        }
    }

    static long integer(JsonParser value) throws IOException {
        if (value.currentToken() != JsonToken.VALUE_NUMBER_INT
                || value.getNumberType() == JsonParser.NumberType.BIG_INTEGER) {
            throw LEFT;
        }
        return value.getLongValue();
    }

    private static double number(JsonParser value) throws IOException {
        if (!value.currentToken().isNumeric()) {
            throw LEFT;
        }
        String digits = value.getText();
        double number = Double.parseDouble(digits);
        // In Python, -0 is an integer without a sign.
        if (Double.isInfinite(number) || digits.equals("-0")) {
            throw LEFT;
        }
        return number;
    }

    private static Decimal decimal(JsonParser value, int precision, int scale, boolean numbers) throws IOException {
        JsonToken token = value.currentToken();
        if (token != JsonToken.VALUE_STRING
                && token != JsonToken.VALUE_NUMBER_INT
                && !(numbers && token == JsonToken.VALUE_NUMBER_FLOAT)) {
            throw LEFT;
        }
        return Scalars.decimal(value.getText(), precision, scale);
    }

    private static byte[] bytes(String hex) {
        if (hex.length() % 2 != 0) {
            throw LEFT;
        }
        byte[] bytes = new byte[hex.length() / 2];
        for (int at = 0; at < bytes.length; at++) {
            char high = hex.charAt(2 * at);
            char low = hex.charAt(2 * at + 1);
            if (high > 'f' || low > 'f') {
                throw LEFT;
            }
            int value = Character.digit(high, 16) << 4 | Character.digit(low, 16);
            if (value < 0) {
                throw LEFT;
            }
            bytes[at] = (byte) value;
        }
        return bytes;
    }

    /** Returns the microseconds since midnight of a time as PostgreSQL prints it. */
    private static String time(long micros) {
        if (micros < 0 || micros > Scalars.DAY_MICROS) {
            throw LEFT;
        }
        int seconds = (int) (micros / 1_000_000);
        StringBuilder time = new StringBuilder(15);
        append(time, seconds / 3600, 10);
        append(time.append(':'), seconds / 60 % 60, 10);
        append(time.append(':'), seconds % 60, 10);
        int fraction = (int) (micros % 1_000_000);
        if (fraction != 0) {
            append(time.append('.'), fraction, 100_000);
            while (time.charAt(time.length() - 1) == '0') {
                time.setLength(time.length() - 1);
            }
        }
        return time.toString();
    }

    /** Appends a number with leading zeros; {@code highest} is the value of its first digit. */
    private static void append(StringBuilder text, int number, int highest) {
        for (int worth = highest; worth > 0; worth /= 10) {
            text.append((char) ('0' + number / worth % 10));
        }
    }
}
