package io.headwater.lake;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.headwater.debezium.DebeziumDecoder;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
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

/** A decoded batch in the driver, in the columns of {@code columns_tagged}: few rows, which need no job of Spark. */
public final class HeldRows {
    private final StructType type;
    private final int op;
    private final int order;
    private final int sourceTime;
    private final int deleted;
    private final int unfit;
    private final int floor;
    private final int reason;
    private final int raw;
    private final int[] place;
    /** What the decoder in Java has made. */
    private final Latest latest = new Latest();
    /** What the decoder in Python has made: here late rows are, and those that lack values. */
    private final List<InternalRow> rows = new ArrayList<>();

    private final List<InternalRow> others = new ArrayList<>();
    private final List<String> left = new ArrayList<>();
    private int careful;

    /** The columns are given as Spark's DDL; {@code place} are those that say where a row is. */
    public HeldRows(String ddl, List<String> place) {
        type = StructType.fromDDL(ddl);
        this.place = place.stream().mapToInt(type::fieldIndex).toArray();
        op = type.fieldIndex("_op");
        order = type.fieldIndex("_order");
        sourceTime = type.fieldIndex("_source_ts");
        deleted = type.fieldIndex("_deleted");
        unfit = type.fieldIndex("_unfit");
        floor = type.fieldIndex("_floor");
        reason = type.fieldIndex("_reason");
        raw = type.fieldIndex("_raw");
    }

    /**
     * Adds what a decoder makes of a landing object, unless all of them together would have more than so many bytes: their
     * lines', of which the latest of a place counts, for nothing is held of the others.
     *
     * @return whether it is added
     */
    public boolean add(DebeziumDecoder decoder, String source, byte[] body, long mostBytes) {
        Latest found = new Latest();
        DebeziumDecoder.Lines lines = decoder.decode(source, body);
        long read = 0;
        while (lines.hasNext()) {
            InternalRow row = lines.next();
            found.add(row, lines.bytes() - read);
            read = lines.bytes();
            if (latest.bytes + found.bytes > mostBytes) {
                return false;
            }
        }
        latest.addAll(found);
        return true;
    }

    /** What a decoder makes of lines: the latest row of each place, and what is said of the others. */
    private final class Latest {
        private final Map<List<Object>, Sized> rows = new LinkedHashMap<>();
        private final List<InternalRow> others = new ArrayList<>();
        private int all;
        private int living;
        private int deletes;
        private long oldest = Long.MAX_VALUE;
        private long bytes;

        void add(InternalRow row, long length) {
            if (row.isNullAt(order)) {
                others.add(row);
                bytes += length;
                return;
            }
            all++;
            boolean isDeleted = row.getBoolean(deleted);
            living += isDeleted ? 0 : 1;
            deletes += isDeleted && text(row, op).equals("d") ? 1 : 0;
            oldest = Math.min(oldest, row.getLong(sourceTime));
            List<Object> key = new ArrayList<>(place.length);
            for (int at : place) {
                key.add(row.isNullAt(at) ? null : row.get(at, type.apply(at).dataType()));
            }
            put(key, new Sized(row, length));
        }

        private void put(List<Object> key, Sized row) {
            Sized before = rows.get(key);
            if (before != null && row.row().getUTF8String(order).compareTo(before.row().getUTF8String(order)) < 0) {
                return;
            }
            rows.put(key, row);
            bytes += row.bytes() - (before == null ? 0 : before.bytes());
        }

        void addAll(Latest later) {
            later.rows.forEach(this::put);
            later.others.forEach(HeldRows.this::add);
            bytes += later.bytes - later.rows.values().stream().mapToLong(Sized::bytes).sum();
            all += later.all;
            living += later.living;
            deletes += later.deletes;
            oldest = Math.min(oldest, later.oldest);
        }
    }

    private record Sized(InternalRow row, long bytes) {}

    /** The columns' types, as Spark writes them in JSON. */
    public String type() {
        return type.json();
    }

    /** Adds rows, each as Spark's Python packages hand rows to the JVM. */
    public void add(byte[] pickled) throws IOException {
        Function1<Object, Object> toRow = EvaluatePython.makeFromJava(type);
        for (Object row : (Iterable<?>) new Unpickler().loads(pickled)) {
            add((InternalRow) toRow.apply(row));
        }
    }

    private void add(InternalRow row) {
        if (!row.isNullAt(order)) {
            rows.add(row);
        } else if (row.isNullAt(reason) && !row.isNullAt(raw)) {
            left.add(text(row, raw));
        } else {
            others.add(row);
        }
    }

    /**
     * What the decoder in Java leaves to the one in Python, which adds what it makes of it: it is not held any more.
     *
     * @return UTF-8, a line each
     */
    public byte[] takeLeft() {
        byte[] taken = String.join("\n", left).getBytes(StandardCharsets.UTF_8);
        careful += left.size();
        left.clear();
        return taken;
    }

    /** Those that are to be written. */
    public List<InternalRow> rows() {
        List<InternalRow> all = new ArrayList<>();
        latest.rows.values().forEach(held -> all.add(held.row()));
        all.addAll(rows);
        return all;
    }

    /** The fields of {@code Counts}, as JSON. */
    public String counts(String purged, String tablesFloor) {
        int living = latest.living;
        int deletes = latest.deletes;
        int late = 0;
        int lateUntold = 0;
        int unfitRows = 0;
        int unfitValues = 0;
        long oldest = latest.oldest;
        UTF8String from = UTF8String.fromString(tablesFloor);
        UTF8String until = UTF8String.fromString(purged);
        for (InternalRow row : rows()) {
            UTF8String its = row.getUTF8String(order);
            if (its.compareTo(until) < 0 && its.compareTo(from) >= 0) {
                late++;
                lateUntold += !row.getBoolean(deleted) && row.isNullAt(raw) ? 1 : 0;
            }
        }
        for (InternalRow row : rows) {
            boolean isDeleted = row.getBoolean(deleted);
            living += isDeleted ? 0 : 1;
            deletes += isDeleted && text(row, op).equals("d") ? 1 : 0;
            if (!row.isNullAt(unfit)) {
                unfitRows++;
                unfitValues += row.getArray(unfit).numElements();
            }
            oldest = Math.min(oldest, row.getLong(sourceTime));
        }
        int bad = 0;
        String highest = "";
        for (InternalRow other : others) {
            bad += other.isNullAt(reason) ? 0 : 1;
            String its = other.isNullAt(floor) ? "" : text(other, floor);
            highest = its.compareTo(highest) > 0 ? its : highest;
        }
        Map<String, Object> counts = new HashMap<>();
        counts.put("rows", latest.all + rows.size());
        counts.put("live_rows", living);
        counts.put("records", living + deletes + bad);
        counts.put("bad", bad);
        counts.put("unfit_rows", unfitRows);
        counts.put("unfit_values", unfitValues);
        counts.put("floor", highest);
        counts.put("oldest", oldest == Long.MAX_VALUE ? null : oldest / 1e6);
        counts.put("late", late);
        counts.put("late_untold", lateUntold);
        counts.put("careful", careful + left.size());
        return json(counts);
    }

    /** Reason and record of the bad ones, of so many at most, as JSON. */
    public String bad(int most) {
        return json(others.stream()
                .filter(other -> !other.isNullAt(reason))
                .limit(most)
                .map(other -> List.of(text(other, reason), text(other, raw)))
                .collect(Collectors.toList()));
    }

    /** The columns that lack values, sorted, as JSON. */
    public String unfitColumns() {
        TreeSet<String> names = new TreeSet<>();
        for (InternalRow row : rows) {
            if (!row.isNullAt(unfit)) {
                ArrayData found = row.getArray(unfit);
                for (int at = 0; at < found.numElements(); at++) {
                    names.add(found.getUTF8String(at).toString());
                }
            }
        }
        return json(names);
    }

    /** The batch for Spark. */
    public Dataset<Row> frame(SparkSession session) {
        UnsafeProjection toUnsafe = UnsafeProjection.create(type);
        List<InternalRow> all = new ArrayList<>();
        for (List<InternalRow> part : List.of(rows(), others)) {
            part.forEach(row -> all.add(toUnsafe.apply(row).copy()));
        }
        JavaSparkContext spark = JavaSparkContext.fromSparkContext(session.sparkContext());
        return session.internalCreateDataFrame(spark.parallelize(all, 1).rdd(), type, false);
    }

    /** Python reads one text sooner than the parts of an object, each by a call of its own. */
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
