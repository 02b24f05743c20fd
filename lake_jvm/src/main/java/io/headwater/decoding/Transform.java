package io.headwater.decoding;

import static io.headwater.decoding.LeftToCarefulDecoder.LEFT;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.LocalDate;
import java.util.zip.CRC32;
import org.apache.spark.unsafe.types.UTF8String;

/** A contract's transform of a value in Spark's internal form. */
public final class Transform {
    private static final int MONTH_LENGTH = "2024-02".length();
    private static final int DAY_LENGTH = "2024-02-29".length();
    private static final int HOUR_LENGTH = "2024-02-29T13".length();
    private static final long HOUR_MICROS = 3_600_000_000L;

    private final String part;
    private final long unit;
    private final int buckets;

    /** Takes the plan of {@code transformed_values.py}. */
    public Transform(JsonNode plan) {
        part = plan.get("part").asText();
        unit = plan.get("unit").asLong();
        buckets = plan.get("buckets").asInt();
    }

    /** Returns the month, day, hour or bucket of a value. A number counts units; without a unit, microseconds. */
    public Object of(Object value) {
        if (buckets > 0) {
            CRC32 checksum = new CRC32();
            checksum.update(((UTF8String) value).getBytes());
            return (int) (checksum.getValue() % buckets);
        }
        if (value instanceof UTF8String text) {
            return UTF8String.fromString(ofWritten(text.toString()));
        }
        if (value instanceof Integer day) {
            return UTF8String.fromString(ofDay(LocalDate.ofEpochDay(day).toString(), 0));
        }
        long number = (Long) value;
        long micros = unit == 0
                ? number
                : Scalars.within(number, Scalars.FIRST_MICROS / unit, Scalars.LAST_MICROS / unit) * unit;
        String day = LocalDate.ofEpochDay(Math.floorDiv(micros, Scalars.DAY_MICROS)).toString();
        return UTF8String.fromString(ofDay(day, (int) (Math.floorMod(micros, Scalars.DAY_MICROS) / HOUR_MICROS)));
    }

    private String ofDay(String day, int hour) {
        return switch (part) {
            case "month" -> day.substring(0, MONTH_LENGTH);
            case "day" -> day;
            default -> day + (hour < 10 ? "-0" : "-") + hour;
        };
    }

    /** Transforms a date, or a timestamp in its own offset. */
    private String ofWritten(String text) {
        boolean isMoment = text.length() > DAY_LENGTH;
        if (text.length() < DAY_LENGTH
                || isMoment && text.charAt(DAY_LENGTH) != 'T' && text.charAt(DAY_LENGTH) != ' ') {
            throw LEFT;
        }
        String day = text.substring(0, DAY_LENGTH);
        Scalars.day(day);
        int hour = 0;
        if (part.equals("hour")) {
            // The characters after the hour are not read, except that the next one must not be a digit.
            if (text.length() < HOUR_LENGTH || text.length() > HOUR_LENGTH && text.charAt(HOUR_LENGTH) != ':') {
                throw LEFT;
            }
            hour = Scalars.digits(text, DAY_LENGTH + 1, HOUR_LENGTH);
            Scalars.within(hour, 0, 23);
        }
        return ofDay(day, hour);
    }
}
