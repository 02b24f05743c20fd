package io.headwater.debezium;

import io.headwater.decoding.DecodedRows;
import io.headwater.decoding.JsonText;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Iterator;
import java.util.Queue;
import java.util.zip.GZIPInputStream;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.StructType;

/**
 * Decodes the usual change events of one PostgreSQL table, as the S3 sink lands them: the rows that
 * {@code debezium_decoder.py} makes of them, which decides what is right and is many times slower. A record in which
 * anything is not as usual is left to that decoder: it comes as a row of nothing but {@code _raw}, its source and its line
 * with a space between them.
 */
public final class DebeziumDecoder implements Serializable {
    private static final long serialVersionUID = 1;

    private final String plan;
    private transient ChangeEvents events;

    /** The plan is that of {@code usual_changes.py}, as JSON. */
    public DebeziumDecoder(String plan) {
        this.plan = plan;
        events = new ChangeEvents(JsonText.parsed(plan));
    }

    /** Landing objects, each its {@code topic/partition}, a line feed and its content, to their rows of that type. */
    public Dataset<Row> decode(SparkSession session, JavaRDD<byte[]> objects, StructType type) {
        return session.internalCreateDataFrame(objects.flatMap(this::decoded).rdd(), type, false);
    }

    private Iterator<InternalRow> decoded(byte[] object) {
        int end = 0;
        while (object[end] != '\n') {
            end++;
        }
        String source = new String(object, 0, end, StandardCharsets.UTF_8);
        return decode(source, Arrays.copyOfRange(object, end + 1, object.length));
    }

    /** A landing object of a {@code topic/partition} to its rows, which are decoded as they are asked for. */
    public Lines decode(String source, byte[] body) {
        if (events == null) {
            events = new ChangeEvents(JsonText.parsed(plan));
        }
        try {
            return new Lines(events, source, new GZIPInputStream(new ByteArrayInputStream(body), 1 << 16));
        } catch (IOException broken) {
            throw new IllegalStateException(source + ": " + broken, broken);
        }
    }

    /** The rows of an object's lines. */
    public static final class Lines implements DecodedRows {
        private final ChangeEvents events;
        private final String source;
        private final InputStream content;
        private final Queue<InternalRow> ready = new ArrayDeque<>();
        private byte[] buffer = new byte[1 << 16];
        private int start;
        private int end;
        private long bytes;

        Lines(ChangeEvents events, String source, InputStream content) {
            this.events = events;
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
                InternalRow row = events.decode(source, buffer, start, until - start);
                if (row != null) {
                    ready.add(row);
                }
            } catch (RuntimeException | IOException unusual) {
                String line = new String(buffer, start, until - start, StandardCharsets.UTF_8);
                ready.add(events.left(source + " " + line));
            }
        }
    }
}
