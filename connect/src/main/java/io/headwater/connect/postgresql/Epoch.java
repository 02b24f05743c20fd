package io.headwater.connect.postgresql;

import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Headers;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * One uncut history of the source. An operator raises its number when the history was cut: the slot was lost, or the
 * cluster restored. Each epoch has stored positions of its own, so a raised one begins with a snapshot. Each record says
 * its epoch, so records of two epochs may be on their way to the lake at the same time.
 *
 * <p>The first epoch leaves positions and records as Debezium makes them.
 */
record Epoch(int number) {
    static final String CONFIG = "headwater.epoch";
    /** The header with the epoch's number, in records after the first epoch. */
    static final String HEADER = "headwater.epoch";

    private static final String PARTITION_KEY = "epoch";
    static final int FIRST = 1;
    static final int LAST = 9999;

    static Epoch of(Map<String, String> config) {
        String text = config.getOrDefault(CONFIG, Integer.toString(FIRST));
        if (!text.matches("[1-9][0-9]{0,3}")) {
            throw new ConnectException(
                    CONFIG + ": found " + text + ", expected a whole number from " + FIRST + " to " + LAST);
        }
        return new Epoch(Integer.parseInt(text));
    }

    private boolean isFirst() {
        return number == FIRST;
    }

    /** Returns this epoch's key of a stored position, from Debezium's source partition or from such a key. */
    Map<String, Object> partition(Map<String, ?> partition) {
        Map<String, Object> own = new HashMap<>(partition);
        if (!isFirst()) {
            own.put(PARTITION_KEY, Integer.toString(number));
        }
        return own;
    }

    /** A record of Debezium's in this epoch. */
    SourceRecord mark(SourceRecord record) {
        if (isFirst()) {
            return record;
        }
        Headers headers = new ConnectHeaders(record.headers()).add(HEADER, number, Schema.INT32_SCHEMA);
        return new SourceRecord(
                partition(record.sourcePartition()), record.sourceOffset(), record.topic(), record.kafkaPartition(),
                record.keySchema(), record.key(), record.valueSchema(), record.value(), record.timestamp(), headers);
    }
}
