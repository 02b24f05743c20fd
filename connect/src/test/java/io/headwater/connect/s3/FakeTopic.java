package io.headwater.connect.s3;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.NavigableMap;
import java.util.TreeMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.sink.SinkRecord;

/** The log of one partition, with the holes that compaction and transactions make. */
final class FakeTopic {
    final TopicPartition partition;
    private final NavigableMap<Long, SinkRecord> records = new TreeMap<>();
    private long end;

    FakeTopic(String topic, int partition) {
        this.partition = new TopicPartition(topic, partition);
    }

    /** Appends records with the values {@code v<offset>}. */
    void produce(int count) {
        for (int i = 0; i < count; i++) {
            produce("v" + end);
        }
    }

    void produce(String value) {
        byte[] bytes = value.getBytes(StandardCharsets.UTF_8);
        records.put(end, new SinkRecord(partition.topic(), partition.partition(), Schema.OPTIONAL_BYTES_SCHEMA, bytes,
                Schema.OPTIONAL_BYTES_SCHEMA, bytes, end, 1000 + end, TimestampType.CREATE_TIME));
        end++;
    }

    /** Makes offsets without a record. */
    void skip(int offsets) {
        end += offsets;
    }

    /** Offsets that hold a record. */
    List<Long> offsets() {
        return List.copyOf(records.keySet());
    }

    /** At most {@code max} records from {@code position} on; below the first record it begins there. */
    List<SinkRecord> read(long position, int max) {
        return records.tailMap(position).values().stream().limit(max).toList();
    }

    /** Starts over with offset 0, as a topic that was deleted and created. */
    void recreate() {
        records.clear();
        end = 0;
    }
}
