package io.headwater.decoding;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.LocalDate;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Places the rows of a table's change history, in which each change is a row of the day that it was made: {@code
 * Identity.row} of {@code changes.py}.
 */
public final class ChangeHistory {
    private static final long DAY_MICROS = 86_400_000_000L;
    private static final int SOURCE_TIME = 3;

    private final int key;
    private final int day;

    private ChangeHistory(int key, int day) {
        this.key = key;
        this.day = day;
    }

    /** That of a plan; null where the table is no history. */
    public static ChangeHistory of(JsonNode plan) {
        JsonNode day = plan.get("change_day");
        return day.isNull() ? null : new ChangeHistory(plan.get("first_own").asInt(), day.asInt());
    }

    /** Gives a row, which has all else, the key of its change and its day. The change has the same text if it comes again. */
    public void place(Object[] row, String change) {
        String itsKey = row[key].toString();
        String ofChange = itsKey.substring(0, itsKey.length() - 1) + ",\"" + change + "\"]";
        row[key] = UTF8String.fromString(RecordKey.hashable(ofChange));
        long days = Math.floorDiv((Long) row[key + SOURCE_TIME], DAY_MICROS);
        row[day] = UTF8String.fromString(LocalDate.ofEpochDay(days).toString());
    }
}
