package io.headwater.decoding;

import static io.headwater.decoding.LeftToCarefulDecoder.LEFT;

import com.fasterxml.jackson.databind.JsonNode;
import java.math.BigDecimal;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The writer's own columns, which follow a row's values, as {@code Identity.row} of {@code changes.py} makes them.
 *
 * <p>In a table's change history, each change is a row of the day of the change.
 */
public final class OwnColumns {
    private final int first;
    private final int width;
    private final int changeDay;
    private final String purged;
    private final List<KeyPart> key = new ArrayList<>();

    /** Takes the plan of {@code own_columns_plan}. */
    public OwnColumns(JsonNode plan) {
        first = plan.get("first_own").asInt();
        width = plan.get("width").asInt();
        changeDay = plan.get("change_day").asInt(-1);
        purged = plan.get("purged").asText();
        plan.get("key").forEach(part -> key.add(new KeyPart(part.get("at").asInt(), part.get("kind").asText())));
    }

    public int width() {
        return width;
    }

    public boolean isHistory() {
        return changeDay >= 0;
    }

    /** Returns the row that leaves a record to the reference decoder. */
    public InternalRow left(String raw) {
        Object[] row = new Object[width];
        row[width - 1] = UTF8String.fromString(raw);
        return new GenericInternalRow(row);
    }

    /**
     * Sets the writer's columns up to {@code _deleted} in a row that has its values.
     *
     * @param change a text that stays the same if the change comes again
     * @return the index of the first column after them
     */
    public int fill(
            Object[] row, String op, String order, long micros, String position, boolean isDelete, String change) {
        if (order.compareTo(purged) < 0) {
            throw LEFT;
        }
        String itsKey = hashable(keyOf(row));
        if (isHistory()) {
            itsKey = hashable(itsKey.substring(0, itsKey.length() - 1) + ",\"" + change + "\"]");
            String day = LocalDate.ofEpochDay(Math.floorDiv(micros, Scalars.DAY_MICROS)).toString();
            row[changeDay] = UTF8String.fromString(day);
        }
        row[first] = UTF8String.fromString(itsKey);
        row[first + 1] = UTF8String.fromString(op);
        row[first + 2] = UTF8String.fromString(order);
        row[first + 3] = micros;
        row[first + 4] = UTF8String.fromString(position);
        row[first + 5] = isDelete;
        return first + 6;
    }

    private String keyOf(Object[] row) {
        StringBuilder text = new StringBuilder("[");
        for (KeyPart part : key) {
            text.append(text.length() == 1 ? "" : ",");
            part.append(text, row[part.at()]);
        }
        return text.append(']').toString();
    }

    /**
     * Works like {@code _hashable} of {@code changes.py}, which says for which keys Hudi would search endlessly.
     */
    private static String hashable(String key) {
        int last = key.lastIndexOf(':');
        if (last < 0 || key.indexOf(',') < 0) {
            return key;
        }
        int comma = key.lastIndexOf(',', last);
        boolean ends = key.indexOf(':', comma + 1) == last
                || key.startsWith("_key:", comma + 1) && key.lastIndexOf(':', comma) >= 0;
        return ends ? key : key.replace(":", "\\u003a");
    }

    /** A column of the key, and the kind of its type. */
    private record KeyPart(int at, String kind) {
        void append(StringBuilder text, Object value) {
            switch (kind) {
                case "int", "bigint" -> text.append(value);
                case "date" -> JsonText.quote(
                        text, LocalDate.ofEpochDay((Integer) value).toString());
                case "decimal" -> {
                    BigDecimal number = ((Decimal) value).toJavaBigDecimal();
                    JsonText.quote(text, number.signum() == 0 ? "0" : number.stripTrailingZeros().toPlainString());
                }
                case "binary" -> JsonText.quote(text, Base64.getEncoder().encodeToString((byte[]) value));
                case "string" -> JsonText.quote(text, value.toString());
                default -> throw LEFT;
            }
        }
    }
}
