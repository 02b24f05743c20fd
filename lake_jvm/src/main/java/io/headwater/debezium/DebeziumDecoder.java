package io.headwater.debezium;

import io.headwater.decoding.DecodedRows;
import io.headwater.decoding.JsonText;
import io.headwater.decoding.StoredObjects;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Queue;
import java.util.function.Supplier;
import java.util.zip.GZIPInputStream;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.StructType;

/**
 * Decodes the usual change events of one PostgreSQL table, as the S3 sink lands them.
 *
 * <p>The reference decoder, {@code debezium_decoder.py}, is many times slower and defines which rows are correct: this
 * decoder makes the same rows. It leaves each unusual record to the reference decoder, as a row with only {@code _raw}.
 * That column holds the record's source and line, with a space between them.
 */
public final class DebeziumDecoder implements Serializable {
    private static final long serialVersionUID = 1;

    private final String plan;
    private transient ChangeEvents events;

    /** Takes the plan of {@code usual_changes.py}, as JSON. */
    public DebeziumDecoder(String plan) {
        this.plan = plan;
        events = new ChangeEvents(JsonText.parsed(plan));
    }

    /**
     * Decodes landing objects, each named by its {@code topic/partition}, to rows of that type.
     *
     * <p>Objects and parallelism are as in {@link StoredObjects#read}.
     */
    public Dataset<Row> decode(SparkSession session, String objects, int parallelism, StructType type) {
        return decoded(session, objects, parallelism, type, () -> LANDED);
    }

    /**
     * Decodes the data files of a table's copy to rows of that type, in the same way.
     *
     * <p>A line is the image of a row. The event of a snapshot has {@code head} before the image and {@code tail} after
     * it.
     */
    public Dataset<Row> decodeImages(
            SparkSession session, String files, int parallelism, StructType type, String head, String tail, int epoch) {
        return decoded(session, files, parallelism, type, () -> new Images(head, tail, epoch));
    }

    private Dataset<Row> decoded(
            SparkSession session, String objects, int parallelism, StructType type, RecordsOfObject records) {
        JavaRDD<InternalRow> rows = StoredObjects.read(session, objects, parallelism)
                .flatMap(object -> lines(object.name(), object.bytes(), records.get()));
        return session.internalCreateDataFrame(rows.rdd(), type, false);
    }

    /** Decodes a landing object of a {@code topic/partition}. A row is decoded when the caller takes it. */
    public Lines decode(String source, byte[] body) {
        return lines(source, body, LANDED);
    }

    private Lines lines(String source, byte[] body, Records records) {
        if (events == null) {
            events = new ChangeEvents(JsonText.parsed(plan));
        }
        try {
            InputStream content = new GZIPInputStream(new ByteArrayInputStream(body), 1 << 16);
            return new Lines(events, records, source, content);
        } catch (IOException broken) {
            throw new IllegalStateException(source + ": " + broken, broken);
        }
    }

    /** Decodes the lines of one object. */
    private interface Records {
        /** Returns the row of the next line of a source; null if the line gives none. */
        InternalRow decode(ChangeEvents events, String source, byte[] buffer, int start, int length) throws IOException;

        /** Returns that line in the form in which the S3 sink lands lines. */
        String landed(byte[] buffer, int start, int length);
    }

    /** Supplies the decoder for the lines of the next object. */
    private interface RecordsOfObject extends Supplier<Records>, Serializable {}

    private static final Records LANDED = new Records() {
        @Override
        public InternalRow decode(ChangeEvents events, String source, byte[] buffer, int start, int length)
                throws IOException {
            return events.decode(source, buffer, start, length);
        }

        @Override
        public String landed(byte[] buffer, int start, int length) {
            return new String(buffer, start, length, StandardCharsets.UTF_8);
        }
    };

    /** Images of rows; the first image has the offset 0. */
    private static final class Images implements Records {
        private final byte[] head;
        private final byte[] tail;
        private final int epoch;
        private long offset = -1;

        Images(String head, String tail, int epoch) {
            this.head = head.getBytes(StandardCharsets.UTF_8);
            this.tail = tail.getBytes(StandardCharsets.UTF_8);
            this.epoch = epoch;
        }

        @Override
        public InternalRow decode(ChangeEvents events, String source, byte[] buffer, int start, int length)
                throws IOException {
            offset++;
            return events.decode(source, new LandedLine(offset, null, event(buffer, start, length), epoch, false));
        }

        @Override
        public String landed(byte[] buffer, int start, int length) {
            return LandedLine.text(offset, event(buffer, start, length), epoch);
        }

        private byte[] event(byte[] buffer, int start, int length) {
            byte[] event = Arrays.copyOf(head, head.length + length + tail.length);
            System.arraycopy(buffer, start, event, head.length, length);
            System.arraycopy(tail, 0, event, head.length + length, tail.length);
            return event;
        }
    }

    /** The rows of an object's lines. */
    public static final class Lines implements DecodedRows {
        private final ChangeEvents events;
        private final Records records;
        private final String source;
        private final InputStream content;
        private final Queue<InternalRow> ready = new ArrayDeque<>();
        private byte[] buffer = new byte[1 << 16];
        private int start;
        private int end;
        private long bytes;

        Lines(ChangeEvents events, Records records, String source, InputStream content) {
            this.events = events;
            this.records = records;
            this.source = source;
            this.content = content;
        }

        @Override
        public long bytes() {
            return bytes;
        }

        @Override
        public boolean hasNext() {
            try {
                while (ready.isEmpty() && readLine()) {}
            } catch (IOException broken) {
                throw new IllegalStateException(source + ": " + broken, broken);
            }
            return !ready.isEmpty();
        }

        @Override
        public InternalRow next() {
            hasNext();
            return ready.remove();
        }

        private boolean readLine() throws IOException {
            int at = start;
            while (true) {
                while (at < end && buffer[at] != '\n') {
                    at++;
                }
                if (at < end) {
                    decode(at);
                    start = at + 1;
                    return true;
                }
                at -= start;
                if (start == 0 && end == buffer.length) {
                    buffer = Arrays.copyOf(buffer, 2 * buffer.length);
                } else {
                    System.arraycopy(buffer, start, buffer, 0, end - start);
                    end -= start;
                    start = 0;
                }
                int read = content.read(buffer, end, buffer.length - end);
                if (read < 0) {
                    if (end == 0) {
                        return false;
                    }
                    decode(end);
                    start = end;
                    return true;
                }
                end += read;
            }
        }

        private void decode(int until) {
            bytes += until - start;
            try {
                InternalRow row = records.decode(events, source, buffer, start, until - start);
                if (row != null) {
                    ready.add(row);
                }
            } catch (RuntimeException | IOException unusual) {
                ready.add(events.left(source + " " + records.landed(buffer, start, until - start)));
            }
        }
    }
}
