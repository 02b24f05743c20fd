package io.headwater.lake;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.headwater.decoding.DecodedRows;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import net.razorvine.pickle.Unpickler;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.execution.python.EvaluatePython;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Function1;

/** A decoded batch in the driver, in the columns of {@code columns_tagged}: few rows, which need no Spark job. */
public final class HeldRows {
    /** The parsed types, because Spark takes milliseconds to parse one. */
    private static final Map<String, StructType> TYPES = new ConcurrentHashMap<>();

    /** Spark sends the rows of a task in one message, whose size is limited. */
    private static final long BYTES_OF_TASK = 16 << 20;

    private final StructType type;
    private final int op;
    private final int order;
    private final int sourceTime;
    private final int deleted;
    private final int unfit;
    private final int leftOut;
    private final int floor;
    private final int reason;
    private final int raw;
    private final int[] place;
    /** The rows of the Java decoder. */
    private final Latest latest = new Latest();
    /** The rows of the Python decoder, among them late rows and rows that lack values. */
    private final List<InternalRow> carefulRows = new ArrayList<>();
    /** Truncate markers and bad records. */
    private final List<InternalRow> rowless = new ArrayList<>();

    private final List<String> left = new ArrayList<>();
    private long bytesOfOthers;
    private int careful;

    /** Takes the columns of partition and key ({@code place}), and all columns in Spark's DDL. */
    public HeldRows(String ddl, List<String> place) {
        type = TYPES.computeIfAbsent(ddl, StructType::fromDDL);
        this.place = place.stream().mapToInt(type::fieldIndex).toArray();
        op = type.fieldIndex("_op");
        order = type.fieldIndex("_order");
        sourceTime = type.fieldIndex("_source_ts");
        deleted = type.fieldIndex("_deleted");
        unfit = type.fieldIndex("_unfit");
        leftOut = type.fieldIndex("_left_out");
        floor = type.fieldIndex("_floor");
        reason = type.fieldIndex("_reason");
        raw = type.fieldIndex("_raw");
    }

    /**
     * Adds the rows that a decoder makes of records.
     *
     * <p>Adds nothing if the records of the held rows and of the latest new rows have more than {@code mostBytes}.
     *
     * @return whether the rows are added
     */
    public boolean add(DecodedRows decoded, long mostBytes) {
        Latest found = new Latest();
        List<InternalRow> without = new ArrayList<>();
        long read = 0;
        long ofOthers = 0;
        while (decoded.hasNext()) {
            InternalRow row = decoded.next();
            long length = decoded.bytes() - read;
            read = decoded.bytes();
            if (row.isNullAt(order)) {
                without.add(row);
                ofOthers += length;
            } else {
                found.add(row, length);
            }
            if (latest.bytes + bytesOfOthers + found.bytes + ofOthers > mostBytes) {
                return false;
            }
        }
        latest.addAll(found);
        without.forEach(this::add);
        bytesOfOthers += ofOthers;
        return true;
    }

    /**
     * Adds all rows of another batch.
     *
     * <p>Adds nothing if the records of both exceed {@code mostBytes}. Also adds nothing if the records without a row
     * exceed {@code mostOfOthers}, because Python decodes left records one after the other.
     *
     * @return whether the rows are added
     */
    public boolean take(HeldRows other, long mostBytes, long mostOfOthers) {
        long others = bytesOfOthers + other.bytesOfOthers;
        if (others > mostOfOthers || latest.bytes + other.latest.bytes + others > mostBytes) {
            return false;
        }
        latest.addAll(other.latest);
        carefulRows.addAll(other.carefulRows);
        rowless.addAll(other.rowless);
        left.addAll(other.left);
        bytesOfOthers += other.bytesOfOthers;
        careful += other.careful;
        return true;
    }

    /**
     * Returns the latest row of each location, from the rows of a Java decoder.
     *
     * <p>Two rows with the same order have the same content, so either is the latest.
     */
    private final class Latest {
        private final Map<List<Object>, Sized> held = new LinkedHashMap<>();
        private int rows;
        private int living;
        private int deletes;
        private long oldest = Long.MAX_VALUE;
        private UTF8String lowest;
        private long bytes;

        void add(InternalRow row, long length) {
            rows++;
            living += isLiving(row) ? 1 : 0;
            deletes += isDelete(row) ? 1 : 0;
            oldest = Math.min(oldest, row.getLong(sourceTime));
            lowest = lower(lowest, row.getUTF8String(order));
            List<Object> key = new ArrayList<>(place.length);
            for (int at : place) {
                key.add(row.isNullAt(at) ? null : row.get(at, type.fields()[at].dataType()));
            }
            put(key, new Sized(row, length));
        }

        private void put(List<Object> key, Sized row) {
            Sized before = held.get(key);
            if (before != null && row.row().getUTF8String(order).compareTo(before.row().getUTF8String(order)) < 0) {
                return;
            }
            held.put(key, row);
            bytes += row.bytes() - (before == null ? 0 : before.bytes());
        }

        void addAll(Latest later) {
            later.held.forEach(this::put);
            rows += later.rows;
            living += later.living;
            deletes += later.deletes;
            oldest = Math.min(oldest, later.oldest);
            lowest = lower(lowest, later.lowest);
        }
    }

    /** Returns the lower one of two orders; each may be null. */
    private static UTF8String lower(UTF8String one, UTF8String other) {
        return one == null || other != null && other.compareTo(one) < 0 ? other : one;
    }

    private boolean isLiving(InternalRow row) {
        return !row.getBoolean(deleted);
    }

    private boolean isDelete(InternalRow row) {
        return row.getBoolean(deleted) && text(row, op).equals("d");
    }

    private record Sized(InternalRow row, long bytes) {}

    /** Returns the columns' types, in Spark's JSON form. */
    public String type() {
        return type.json();
    }

    /** Adds rows in the form in which Spark's Python packages pass rows to the JVM. */
    public void add(byte[] pickled) throws IOException {
        Function1<Object, Object> toRow = EvaluatePython.makeFromJava(type);
        for (Object row : (Iterable<?>) new Unpickler().loads(pickled)) {
            add((InternalRow) toRow.apply(row));
        }
    }

    private void add(InternalRow row) {
        if (!row.isNullAt(order)) {
            carefulRows.add(row);
        } else if (row.isNullAt(reason) && !row.isNullAt(raw)) {
            left.add(text(row, raw));
        } else {
            rowless.add(row);
        }
    }

    /**
     * Returns the records that the Java decoder leaves to the Python decoder, and drops them. Python adds its rows
     * later.
     *
     * @return UTF-8, one record per line
     */
    public byte[] takeLeft() {
        byte[] taken = String.join("\n", left).getBytes(StandardCharsets.UTF_8);
        careful += left.size();
        left.clear();
        return taken;
    }

    /** Returns the rows to write. */
    public List<InternalRow> rows() {
        List<InternalRow> all = new ArrayList<>();
        latest.held.values().forEach(held -> all.add(held.row()));
        all.addAll(carefulRows);
        return all;
    }

    /** The fields of {@code Counts}, as JSON. Rows that a later row of the same key has replaced count too. */
    public String counts(String purged, String tablesFloor) {
        int living = latest.living;
        int deletes = latest.deletes;
        long oldest = latest.oldest;
        UTF8String lowest = latest.lowest;
        int unfitRows = 0;
        int unfitValues = 0;
        int attributesLeftOut = 0;
        for (InternalRow row : carefulRows) {
            living += isLiving(row) ? 1 : 0;
            deletes += isDelete(row) ? 1 : 0;
            oldest = Math.min(oldest, row.getLong(sourceTime));
            lowest = lower(lowest, row.getUTF8String(order));
            if (!row.isNullAt(unfit)) {
                unfitRows++;
                unfitValues += row.getArray(unfit).numElements();
            }
            attributesLeftOut += row.isNullAt(leftOut) ? 0 : row.getInt(leftOut);
        }
        int late = 0;
        int lateUntold = 0;
        UTF8String from = UTF8String.fromString(tablesFloor);
        UTF8String until = UTF8String.fromString(purged);
        for (InternalRow row : rows()) {
            UTF8String its = row.getUTF8String(order);
            if (its.compareTo(until) < 0) {
                late++;
                lateUntold += its.compareTo(from) >= 0 && isLiving(row) && row.isNullAt(raw) ? 1 : 0;
            }
        }
        int bad = 0;
        String highest = "";
        for (InternalRow other : rowless) {
            bad += other.isNullAt(reason) ? 0 : 1;
            String its = other.isNullAt(floor) ? "" : text(other, floor);
            highest = its.compareTo(highest) > 0 ? its : highest;
        }
        Map<String, Object> counts = new HashMap<>();
        counts.put("rows", latest.rows + carefulRows.size());
        counts.put("live_rows", living);
        counts.put("records", living + deletes + bad);
        counts.put("bad", bad);
        counts.put("unfit_rows", unfitRows);
        counts.put("unfit_values", unfitValues);
        counts.put("left_out", attributesLeftOut);
        counts.put("floor", highest);
        counts.put("oldest", moment(oldest));
        counts.put("late", late);
        counts.put("late_untold", lateUntold);
        counts.put("careful", careful + left.size());
        counts.put("lowest", text(lowest));
        return json(counts);
    }

    /**
     * Counts, as JSON, of rows that a newer row of their key has replaced, and of records left to the reference
     * decoder.
     */
    public String countsBeside() {
        int living = latest.living;
        int deletes = latest.deletes;
        for (Sized held : latest.held.values()) {
            living -= isLiving(held.row()) ? 1 : 0;
            deletes -= isDelete(held.row()) ? 1 : 0;
        }
        Map<String, Object> counts = new HashMap<>();
        counts.put("rows", latest.rows - latest.held.size());
        counts.put("live_rows", living);
        counts.put("records", living + deletes);
        counts.put("oldest", moment(latest.oldest));
        counts.put("careful", careful + left.size());
        counts.put("lowest", text(latest.lowest));
        return json(counts);
    }

    private static String text(UTF8String order) {
        return order == null ? "" : order.toString();
    }

    /** Converts microseconds to seconds; null if there are none. */
    private static Double moment(long micros) {
        return micros == Long.MAX_VALUE ? null : (Double) (micros / 1e6);
    }

    /** Returns reason and record of the bad records, at most that many, as JSON. */
    public String bad(int most) {
        return json(rowless.stream()
                .filter(other -> !other.isNullAt(reason))
                .limit(most)
                .map(other -> List.of(text(other, reason), text(other, raw)))
                .collect(Collectors.toList()));
    }

    /** Returns the columns that lack values, sorted, as JSON. */
    public String unfitColumns() {
        TreeSet<String> names = new TreeSet<>();
        for (InternalRow row : carefulRows) {
            if (!row.isNullAt(unfit)) {
                ArrayData found = row.getArray(unfit);
                for (int at = 0; at < found.numElements(); at++) {
                    names.add(found.getUTF8String(at).toString());
                }
            }
        }
        return json(names);
    }

    /** Returns the batch for Spark. */
    public Dataset<Row> frame(SparkSession session) {
        UnsafeProjection toUnsafe = UnsafeProjection.create(type);
        List<InternalRow> all = new ArrayList<>();
        for (List<InternalRow> part : List.of(rows(), rowless)) {
            part.forEach(row -> all.add(toUnsafe.apply(row).copy()));
        }
        JavaSparkContext spark = JavaSparkContext.fromSparkContext(session.sparkContext());
        int tasks = 1 + (int) ((latest.bytes + bytesOfOthers) / BYTES_OF_TASK);
        return session.internalCreateDataFrame(spark.parallelize(all, tasks).rdd(), type, false);
    }

    /** Writes JSON: Python reads one text faster than the parts of an object, each by its own call. */
    private static String json(Object value) {
        try {
            return new ObjectMapper().writeValueAsString(value);
        } catch (JsonProcessingException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private static String text(InternalRow row, int at) {
        return row.getUTF8String(at).toString();
    }
}
