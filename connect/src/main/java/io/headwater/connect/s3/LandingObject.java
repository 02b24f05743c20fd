package io.headwater.connect.s3;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import java.io.ByteArrayOutputStream;
import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.util.zip.GZIPOutputStream;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.sink.SinkRecord;

/**
 * One object of the landing bucket: its bytes and the range of its offsets.
 *
 * @param first first offset of its range, which may begin before its first record: some offsets have no record
 * @param next the offset after its range
 * @param body gzip, one JSON object per line; the same records give the same bytes
 */
record LandingObject(long first, long next, byte[] body) {

    /** Collects records into an object, and compresses each record at once, so that memory holds little. */
    static final class Builder {
        private static final JsonFactory JSON = new JsonFactory();

        private final long first;
        private final long openedAt;
        private final ByteArrayOutputStream body = new ByteArrayOutputStream();
        private final CountingStream lines;
        private final JsonGenerator json;
        private long next;
        private long records;

        /**
         * @param first first offset of the object's range
         * @param openedAt now, in milliseconds on the task's clock
         */
        Builder(long first, long openedAt) {
            this.first = first;
            this.next = first;
            this.openedAt = openedAt;
            try {
                lines = new CountingStream(new GZIPOutputStream(body));
                json = JSON.createGenerator(lines);
                json.setRootValueSeparator(null);
                json.disable(JsonGenerator.Feature.FLUSH_PASSED_TO_STREAM);
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }

        /**
         * Adds the next record.
         *
         * @throws DataException if a converter has changed the record's bytes
         */
        void add(SinkRecord record) {
            byte[] key = bytes(record, "key", record.key());
            byte[] value = bytes(record, "value", record.value());
            for (Header header : record.headers()) {
                bytes(record, "header", header.value());
            }
            try {
                json.writeStartObject();
                json.writeNumberField("offset", record.originalKafkaOffset());
                json.writeFieldName("timestamp");
                if (record.timestamp() == null) {
                    json.writeNull();
                } else {
                    json.writeNumber(record.timestamp());
                }
                json.writeFieldName("key");
                write(key);
                json.writeFieldName("value");
                write(value);
                json.writeArrayFieldStart("headers");
                for (Header header : record.headers()) {
                    json.writeStartArray();
                    json.writeString(header.key());
                    write((byte[]) header.value());
                    json.writeEndArray();
                }
                json.writeEndArray();
                json.writeEndObject();
                json.writeRaw('\n');
                json.flush(); // only into the counting stream, not through the compressor
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
            next = record.originalKafkaOffset() + 1;
            records++;
        }

        long records() {
            return records;
        }

        /** The uncompressed size so far, in bytes. */
        long bytes() {
            return lines.count;
        }

        long openedAt() {
            return openedAt;
        }

        LandingObject build() {
            try {
                json.close();
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
            return new LandingObject(first, next, body.toByteArray());
        }

        private void write(byte[] bytes) throws IOException {
            if (bytes == null) {
                json.writeNull();
            } else {
                json.writeBinary(bytes);
            }
        }

        private static byte[] bytes(SinkRecord record, String part, Object value) {
            if (value == null || value instanceof byte[]) {
                return (byte[]) value;
            }
            throw new DataException("The " + part + " of " + record.originalTopic() + "-" + record.originalKafkaPartition()
                    + " offset " + record.originalKafkaOffset() + " is " + value.getClass().getName()
                    + ", expected byte[]: set " + part
                    + ".converter to org.apache.kafka.connect.converters.ByteArrayConverter.");
        }
    }

    private static final class CountingStream extends FilterOutputStream {
        private long count;

        CountingStream(OutputStream out) {
            super(out);
        }

        @Override
        public void write(int b) throws IOException {
            out.write(b);
            count++;
        }

        @Override
        public void write(byte[] bytes, int offset, int length) throws IOException {
            out.write(bytes, offset, length);
            count += length;
        }
    }
}
