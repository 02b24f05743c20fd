package io.headwater.connect.s3;

import io.headwater.connect.PluginVersion;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.DoubleSupplier;
import java.util.function.Function;
import java.util.function.LongSupplier;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Lands the partitions that Connect assigns to this task.
 *
 * <p>Failures of S3 never block the thread and never make Connect deliver a batch twice. The task keeps its buffers,
 * pauses its partitions, and tries again when Connect next calls {@link #put}, for which it sets a timeout. So the task
 * continues to poll Kafka, stays in its group, and holds at most one batch above the flush limits.
 */
public final class S3SinkTask extends SinkTask {
    private static final Logger LOG = LoggerFactory.getLogger(S3SinkTask.class);

    private final LongSupplier clock;
    private final DoubleSupplier random;
    private final Function<S3SinkConfig, ObjectStore> stores;
    private final Map<TopicPartition, PartitionWriter> partitions = new LinkedHashMap<>();
    private S3SinkConfig config;
    private ObjectStore store;
    private Retry retry;
    private boolean paused;

    /** Connect calls this constructor. */
    public S3SinkTask() {
        this(() -> TimeUnit.NANOSECONDS.toMillis(System.nanoTime()),
                () -> ThreadLocalRandom.current().nextDouble(),
                S3ObjectStore::of);
    }

    /**
     * @param clock monotonic time in milliseconds
     * @param random gives numbers in [0, 1)
     * @param stores opens the configured bucket
     */
    S3SinkTask(LongSupplier clock, DoubleSupplier random, Function<S3SinkConfig, ObjectStore> stores) {
        this.clock = clock;
        this.random = random;
        this.stores = stores;
    }

    @Override
    public void start(Map<String, String> properties) {
        config = new S3SinkConfig(properties);
        store = stores.apply(config);
        retry = new Retry(config, random);
    }

    /** Takes the positions of newly assigned partitions from the bucket. */
    @Override
    public void open(Collection<TopicPartition> assigned) {
        for (TopicPartition partition : assigned) {
            LandingFolder folder = new LandingFolder(store, config.getString(S3SinkConfig.PREFIX), partition);
            partitions.put(partition, new PartitionWriter(partition, folder, context, config));
        }
        work();
    }

    @Override
    public void put(Collection<SinkRecord> records) {
        partitions.values().forEach(PartitionWriter::beginBatch);
        for (SinkRecord record : records) {
            // The topic and partition before any transform: a transform may have renamed the topic of the record.
            PartitionWriter writer = partitions.get(
                    new TopicPartition(record.originalTopic(), record.originalKafkaPartition()));
            writer.append(record, clock.getAsLong());
            if (writer.hasWork()) {
                attempt(writer);
            }
        }
        work();
    }

    /** Returns the offsets up to which all records are in S3. Buffered records are not committed. */
    @Override
    public Map<TopicPartition, OffsetAndMetadata> preCommit(Map<TopicPartition, OffsetAndMetadata> consumed) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        partitions.forEach((partition, writer) ->
                writer.stored().ifPresent(offset -> offsets.put(partition, new OffsetAndMetadata(offset))));
        return offsets;
    }

    /**
     * Drops the partitions' buffers. The next task with these partitions reads again all records that are not in S3.
     */
    @Override
    public void close(Collection<TopicPartition> revoked) {
        partitions.keySet().removeAll(revoked);
    }

    @Override
    public void stop() {
        if (store == null) {
            return; // start() has refused the configuration
        }
        partitions.clear();
        store.close();
    }

    @Override
    public String version() {
        return PluginVersion.of(S3SinkTask.class);
    }

    /** Does all due work in S3, then tells Connect when to call again. */
    private void work() {
        long now = clock.getAsLong();
        boolean done = true;
        for (PartitionWriter writer : partitions.values()) {
            writer.sealIfAged(now);
            done = (!writer.hasWork() || attempt(writer)) && done;
        }
        if (done) {
            retry.succeeded();
        }
        pauseWhileFailing();
        askToBeCalledAgain();
    }

    /** Does a partition's work unless the task is waiting to try again; returns whether all of it is done. */
    private boolean attempt(PartitionWriter writer) {
        if (!retry.mayTry(clock.getAsLong())) {
            return false;
        }
        try {
            writer.work();
            return true;
        } catch (TransientStoreException e) {
            long now = clock.getAsLong();
            retry.failed(now, e);
            LOG.warn("Trying again in {} ms: {}", retry.untilNextTry(now), e.getMessage());
            return false;
        }
    }

    private void pauseWhileFailing() {
        TopicPartition[] assigned = partitions.keySet().toArray(TopicPartition[]::new);
        if (retry.failing()) {
            context.pause(assigned);
        } else if (paused) {
            context.resume(assigned);
        }
        paused = retry.failing();
    }

    private void askToBeCalledAgain() {
        long now = clock.getAsLong();
        long wait = retry.failing() ? retry.untilNextTry(now) : Long.MAX_VALUE;
        for (PartitionWriter writer : partitions.values()) {
            wait = Math.min(wait, writer.untilAged(now));
        }
        if (wait < Long.MAX_VALUE) {
            context.timeout(Math.max(1, wait));
        }
    }
}
