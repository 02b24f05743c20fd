package io.headwater.connect.s3;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTaskContext;

/** Runs a task as Connect's WorkerSinkTask does: seeks before a poll, pauses, timeouts, commits of what preCommit says. */
final class FakeWorker implements SinkTaskContext {
    /** Time in milliseconds that only tests move. */
    static final class Clock {
        long now = 1_000_000;
    }

    final S3SinkTask task;
    final Map<TopicPartition, Long> committed;
    private final Clock clock;
    private final Map<TopicPartition, FakeTopic> assigned = new LinkedHashMap<>();
    private final Map<TopicPartition, Long> positions = new HashMap<>();
    private final Map<TopicPartition, Long> seeks = new HashMap<>();
    private final Set<TopicPartition> paused = new HashSet<>();
    private long timeout = -1;
    private boolean commitRequested;

    /** @param committed the consumer group's offsets, which outlive the worker */
    FakeWorker(Map<String, String> properties, Clock clock, Map<TopicPartition, Long> committed) {
        this.clock = clock;
        this.committed = committed;
        this.task = new S3SinkTask(() -> clock.now, () -> 0.5, S3ObjectStore::of);
        task.initialize(this);
        task.start(properties);
    }

    void assign(FakeTopic... topics) {
        List<TopicPartition> added = new ArrayList<>();
        for (FakeTopic topic : topics) {
            assigned.put(topic.partition, topic);
            positions.put(topic.partition, committed.getOrDefault(topic.partition, 0L));
            added.add(topic.partition);
        }
        task.open(added);
        rewind();
    }

    void revoke(FakeTopic topic) {
        commit();
        task.close(List.of(topic.partition));
        assigned.remove(topic.partition);
        positions.remove(topic.partition);
        paused.remove(topic.partition);
    }

    /** Polls Kafka once, for at most {@code max} records per partition, and hands them to the task. */
    List<SinkRecord> poll(int max) {
        if (commitRequested) {
            commit();
        }
        rewind();
        timeout = -1;
        List<SinkRecord> batch = new ArrayList<>();
        assigned.forEach((partition, topic) -> {
            if (!paused.contains(partition)) {
                List<SinkRecord> records = topic.read(positions.get(partition), max);
                batch.addAll(records);
                if (!records.isEmpty()) {
                    positions.put(partition, records.get(records.size() - 1).kafkaOffset() + 1);
                }
            }
        });
        task.put(batch);
        return batch;
    }

    /** Lets the time pass that the task has asked for, then polls: what Connect does while topics are silent. */
    void pollAfterTimeout() {
        if (timeout < 0) {
            throw new AssertionError("the task asked for no timeout: a silent topic would never wake it");
        }
        clock.now += timeout;
        poll(0);
    }

    void commit() {
        commitRequested = false;
        Map<TopicPartition, OffsetAndMetadata> consumed = new HashMap<>();
        positions.forEach((partition, offset) -> consumed.put(partition, new OffsetAndMetadata(offset)));
        task.preCommit(consumed).forEach((partition, offset) -> committed.put(partition, offset.offset()));
    }

    long position(FakeTopic topic) {
        return positions.get(topic.partition);
    }

    boolean commitRequested() {
        return commitRequested;
    }

    long requestedTimeout() {
        return timeout;
    }

    Set<TopicPartition> paused() {
        return Set.copyOf(paused);
    }

    private void rewind() {
        seeks.forEach((partition, offset) -> positions.replace(partition, offset));
        seeks.clear();
    }

    @Override
    public Map<String, String> configs() {
        throw new UnsupportedOperationException();
    }

    @Override
    public void offset(Map<TopicPartition, Long> offsets) {
        seeks.putAll(offsets);
    }

    @Override
    public void offset(TopicPartition partition, long offset) {
        seeks.put(partition, offset);
    }

    @Override
    public void timeout(long timeoutMs) {
        timeout = timeoutMs;
    }

    @Override
    public Set<TopicPartition> assignment() {
        return Set.copyOf(assigned.keySet());
    }

    @Override
    public void pause(TopicPartition... partitions) {
        paused.addAll(List.of(partitions));
    }

    @Override
    public void resume(TopicPartition... partitions) {
        paused.removeAll(Set.of(partitions));
    }

    @Override
    public void requestCommit() {
        commitRequested = true;
    }
}
