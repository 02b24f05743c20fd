package io.headwater.dynamodb;

import io.headwater.decoding.DecodedRows;
import io.headwater.decoding.JsonText;
import java.io.IOException;
import java.io.Serializable;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Iterator;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.StructType;

/**
 * Decodes the usual changes of one DynamoDB table, as its Kinesis destination sends them.
 *
 * <p>The reference decoder, {@code dynamodb_decoder.py}, is many times slower and defines which rows are correct: this
 * decoder makes the same rows. It leaves each unusual record to the reference decoder, as a row with only {@code _raw}.
 * That column holds the record as quarantine keeps it.
 */
public final class DynamoDecoder implements Serializable {
    private static final long serialVersionUID = 1;

    private final String plan;
    private transient ItemChanges changes;

    /** Takes the plan of {@code usual_items.py}, as JSON. */
    public DynamoDecoder(String plan) {
        this.plan = plan;
        changes = new ItemChanges(JsonText.parsed(plan));
    }

    /** Decodes Spark's records (data, sequence number and position each) to rows of that type. */
    public Dataset<Row> decode(SparkSession session, Dataset<Row> records, StructType type) {
        JavaRDD<InternalRow> rows = records.toJavaRDD()
                .mapPartitions(part -> new Decoded(new Iterator<>() {
                    @Override
                    public boolean hasNext() {
                        return part.hasNext();
                    }

                    @Override
                    public StreamRecord next() {
                        Row record = part.next();
                        return new StreamRecord(record.getAs(0), record.getString(1), record.getString(2));
                    }
                }));
        return session.internalCreateDataFrame(rows.rdd(), type, false);
    }

    /** Decodes the records in a file to rows, in this process. Python has written the file. */
    public DecodedRows decode(String file) {
        return new Decoded(StreamRecord.all(content(file)));
    }

    private static byte[] content(String file) {
        try {
            return Files.readAllBytes(Path.of(file));
        } catch (IOException broken) {
            throw new IllegalStateException(file + ": " + broken, broken);
        }
    }

    private ItemChanges changes() {
        if (changes == null) {
            changes = new ItemChanges(JsonText.parsed(plan));
        }
        return changes;
    }

    private final class Decoded implements DecodedRows {
        private final ItemChanges items = changes();
        private final Iterator<StreamRecord> records;
        private long bytes;

        Decoded(Iterator<StreamRecord> records) {
            this.records = records;
        }

        @Override
        public boolean hasNext() {
            return records.hasNext();
        }

        @Override
        public InternalRow next() {
            StreamRecord record = records.next();
            bytes += record.data() == null ? 0 : record.data().length;
            try {
                return items.decode(record);
            } catch (RuntimeException | IOException unusual) {
                return items.left(record.kept());
            }
        }

        @Override
        public long bytes() {
            return bytes;
        }
    }
}
