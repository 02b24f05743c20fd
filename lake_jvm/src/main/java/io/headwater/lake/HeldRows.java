package io.headwater.lake;

import io.headwater.debezium.DebeziumDecoder;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
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
    private final List<InternalRow> rows = new ArrayList<>();
    private final List<InternalRow> others = new ArrayList<>();
    private final List<String> left = new ArrayList<>();
    private long bytes;

    public HeldRows(StructType type) {
        this.type = type;
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
     * Adds what a decoder makes of a landing object, unless all of them together would have more than so many bytes.
     *
     * @return whether it is added
     */
    public boolean add(DebeziumDecoder decoder, String source, byte[] body, long mostBytes) {
        List<InternalRow> found = new ArrayList<>();
        DebeziumDecoder.Lines lines = decoder.decode(source, body);
        while (lines.hasNext()) {
            found.add(lines.next());
            if (bytes + lines.bytes() > mostBytes) {
                return false;
            }
        }
        if (bytes + lines.bytes() > mostBytes) {
            return false;
        }
        bytes += lines.bytes();
        found.forEach(this::add);
        return true;
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

    /** What the decoder in Java leaves to the one in Python, which adds what it makes of it: it is not held any more. */
    public List<String> takeLeft() {
        List<String> taken = new ArrayList<>(left);
        left.clear();
        return taken;
    }

    /** Those that are to be written. */
    public List<InternalRow> rows() {
        return rows;
    }

    /** The fields of {@code Counts} by their names. */
    public Map<String, Object> counts(String purged, String tablesFloor) {
        int living = 0;
        int deletes = 0;
        int late = 0;
        int lateUntold = 0;
        int unfitRows = 0;
        int unfitValues = 0;
        long oldest = Long.MAX_VALUE;
        UTF8String from = UTF8String.fromString(tablesFloor);
        UTF8String until = UTF8String.fromString(purged);
        for (InternalRow row : rows) {
            boolean isDeleted = row.getBoolean(deleted);
            living += isDeleted ? 0 : 1;
            deletes += isDeleted && text(row, op).equals("d") ? 1 : 0;
            UTF8String place = row.getUTF8String(order);
            if (place.compareTo(until) < 0 && place.compareTo(from) >= 0) {
                late++;
                lateUntold += !isDeleted && row.isNullAt(raw) ? 1 : 0;
            }
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
        counts.put("rows", rows.size());
        counts.put("live_rows", living);
        counts.put("records", living + deletes + bad);
        counts.put("bad", bad);
        counts.put("unfit_rows", unfitRows);
        counts.put("unfit_values", unfitValues);
        counts.put("floor", highest);
        counts.put("oldest", rows.isEmpty() ? null : oldest / 1e6);
        counts.put("late", late);
        counts.put("late_untold", lateUntold);
        counts.put("left", left.size());
        return counts;
    }

    /** Reason and record of the bad ones, of so many at most. */
    public List<List<String>> bad(int most) {
        return others.stream()
                .filter(other -> !other.isNullAt(reason))
                .limit(most)
                .map(other -> List.of(text(other, reason), text(other, raw)))
                .collect(Collectors.toList());
    }

    /** The columns that lack values, sorted. */
    public List<String> unfitColumns() {
        TreeSet<String> names = new TreeSet<>();
        for (InternalRow row : rows) {
            if (!row.isNullAt(unfit)) {
                ArrayData found = row.getArray(unfit);
                for (int at = 0; at < found.numElements(); at++) {
                    names.add(found.getUTF8String(at).toString());
                }
            }
        }
        return new ArrayList<>(names);
    }

    /** The batch for Spark. */
    public Dataset<Row> frame(SparkSession session) {
        UnsafeProjection toUnsafe = UnsafeProjection.create(type);
        List<InternalRow> all = new ArrayList<>();
        for (List<InternalRow> part : Arrays.asList(rows, others)) {
            part.forEach(row -> all.add(toUnsafe.apply(row).copy()));
        }
        JavaSparkContext spark = JavaSparkContext.fromSparkContext(session.sparkContext());
        return session.internalCreateDataFrame(spark.parallelize(all, 1).rdd(), type, false);
    }

    private static String text(InternalRow row, int at) {
        return row.getUTF8String(at).toString();
    }
}
