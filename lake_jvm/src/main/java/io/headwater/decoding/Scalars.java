package io.headwater.decoding;

import static io.headwater.decoding.LeftToCarefulDecoder.LEFT;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.math.BigDecimal;
import java.time.DateTimeException;
import java.time.LocalDate;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;

/** Converts the text of a single value to Spark's internal form, and the digits of an order. Refuses unusual texts. */
public final class Scalars {
    public static final long DAY_MICROS = 86_400_000_000L;
    /** The first and the last moment of the years 1 to 9999. */
    public static final long FIRST_MICROS = LocalDate.of(1, 1, 1).toEpochDay() * DAY_MICROS;

    public static final long LAST_MICROS = LocalDate.of(10_000, 1, 1).toEpochDay() * DAY_MICROS - 1;

    private static final int MOST_PARTITION_BYTES = 200;

    private Scalars() {}

    /** Returns the text at which a parser stands. */
    public static String text(JsonParser value) throws IOException {
        if (value.currentToken() != JsonToken.VALUE_STRING) {
            throw LEFT;
        }
        return value.getText();
    }

    public static long within(long number, long lowest, long highest) {
        if (number < lowest || number > highest) {
            throw LEFT;
        }
        return number;
    }

    /** Refuses all but plain digits: no exponent, no needless leading zero. Returns the position of the point. */
    public static int checkDecimal(String digits) {
        int at = digits.startsWith("-") ? 1 : 0;
        int whole = at;
        while (at < digits.length() && isDigit(digits.charAt(at))) {
            at++;
        }
        if (at == whole || at - whole > 1 && digits.charAt(whole) == '0') {
            throw LEFT;
        }
        int point = at;
        if (at < digits.length()) {
            if (digits.charAt(at++) != '.' || at == digits.length()) {
                throw LEFT;
            }
            while (at < digits.length()) {
                if (!isDigit(digits.charAt(at++))) {
                    throw LEFT;
                }
            }
        }
        return point;
    }

    private static boolean isDigit(char letter) {
        return letter >= '0' && letter <= '9';
    }

    /** Returns a number in plain digits, with its zeros. */
    public static Decimal decimal(String digits, int precision, int scale) {
        int point = checkDecimal(digits);
        int start = digits.startsWith("-") ? 1 : 0;
        boolean hasWhole = digits.charAt(start) != '0';
        int fraction = Math.max(digits.length() - point - 1, 0);
        if (hasWhole && point - start > precision - scale || fraction > scale) {
            throw LEFT;
        }
        if (precision > Decimal.MAX_LONG_DIGITS()) {
            return Decimal.apply(new BigDecimal(digits).setScale(scale), precision, scale);
        }
        long unscaled = 0;
        for (int at = start; at < digits.length(); at++) {
            if (at != point) {
                unscaled = unscaled * 10 + digits.charAt(at) - '0';
            }
        }
        for (int at = fraction; at < scale; at++) {
            unscaled *= 10;
        }
        return Decimal.createUnsafe(start == 0 ? unscaled : -unscaled, precision, scale);
    }

    /** Returns the days since 1970 of a date in ISO 8601. */
    public static long day(String text) {
        if (text.length() != 10 || text.charAt(4) != '-' || text.charAt(7) != '-') {
            throw LEFT;
        }
        int year = digits(text, 0, 4);
        if (year == 0) {
            throw LEFT;
        }
        try {
            return LocalDate.of(year, digits(text, 5, 7), digits(text, 8, 10)).toEpochDay();
        } catch (DateTimeException unknown) {
            throw LEFT;
        }
    }

    /** Returns the number that the digits mean. */
    static int digits(String text, int from, int to) {
        int number = 0;
        for (int at = from; at < to; at++) {
            if (!isDigit(text.charAt(at))) {
                throw LEFT;
            }
            number = number * 10 + text.charAt(at) - '0';
        }
        return number;
    }

    /** Returns the microseconds since 1970 of an instant in UTC with up to six digits of a second's fraction. */
    public static long micros(String text) {
        int length = text.length();
        if (length != 20 && length < 22
                || length > 27
                || text.charAt(length - 1) != 'Z'
                || text.charAt(10) != 'T'
                || text.charAt(13) != ':'
                || text.charAt(16) != ':'
                || length > 20 && text.charAt(19) != '.') {
            throw LEFT;
        }
        int hour = digits(text, 11, 13);
        int minute = digits(text, 14, 16);
        int second = digits(text, 17, 19);
        if (hour > 23 || minute > 59 || second > 59) {
            throw LEFT;
        }
        long fraction = length == 20 ? 0 : digits(text, 20, length - 1);
        for (int given = length - 21; length > 20 && given < 6; given++) {
            fraction *= 10;
        }
        long seconds = day(text.substring(0, 10)) * 86_400 + hour * 3600L + minute * 60L + second;
        return seconds * 1_000_000 + fraction;
    }

    /** Refuses null in a key, and values that the reference decoders check before they make a partition of them. */
    public static void checkPlace(Object value, boolean isKey, boolean isPartition) {
        if (value == null && isKey) {
            throw LEFT;
        }
        if (!isPartition || !(value instanceof UTF8String text)) {
            return;
        }
        byte[] bytes = text.getBytes();
        boolean isUsual = bytes.length > 0 && bytes.length <= MOST_PARTITION_BYTES && bytes[0] != '_';
        for (int letter = 0; isUsual && letter < bytes.length; letter++) {
            isUsual = bytes[letter] < 0 || bytes[letter] >= ' ' && bytes[letter] != 0x7f;
        }
        if (!isUsual) {
            throw LEFT;
        }
    }

    /** Writes a number with leading zeros between two positions. */
    public static void put(char[] digits, int from, int to, long number) {
        long left = number;
        for (int at = to - 1; at >= from; at--) {
            digits[at] = (char) ('0' + left % 10);
            left /= 10;
        }
    }
}
