package io.headwater.connect.s3;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.OptionalLong;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTaskContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Lands one partition: takes its position from the bucket, buffers records, writes objects in order.
 *
 * <p>It never believes anyone but the bucket. Each object begins at the end of the one before. When the name is taken,
 * someone else has written this range: another worker's task, or this one before a crash or a lost answer. Then the
 * stored object counts: the writer drops its buffer and has Kafka read again from the stored object's end.
 */
final class PartitionWriter {
    private static final Logger LOG = LoggerFactory.getLogger(PartitionWriter.class);
    private static final long UNKNOWN = -1;
    private static final long NEVER = Long.MIN_VALUE / 2;
    /** After a silence, the first record waits this part of the interval for the records that belong to it. */
    private static final int GATHERING_PART = 10;

    private final TopicPartition partition;
    private final LandingFolder folder;
    private final SinkTaskContext context;
    private final int flushRecords;
    private final int flushBytes;
    private final long flushInterval;
    private final boolean acceptMissing;

    private final Deque<LandingObject> sealed = new ArrayDeque<>();
    private LandingObject.Builder open;
    private boolean located;
    private boolean seeking;
    private long stored = UNKNOWN;
    private long next = UNKNOWN;
    private long sealedAt = NEVER;

    PartitionWriter(
            TopicPartition partition, LandingFolder folder, SinkTaskContext context, S3SinkConfig config) {
        this.partition = partition;
        this.folder = folder;
        this.context = context;
        this.flushRecords = config.getInt(S3SinkConfig.FLUSH_RECORDS);
        this.flushBytes = config.getInt(S3SinkConfig.FLUSH_BYTES);
        this.flushInterval = config.getLong(S3SinkConfig.FLUSH_INTERVAL_MS);
        this.acceptMissing = S3SinkConfig.ACCEPT.equals(config.getString(S3SinkConfig.MISSING_OFFSETS));
    }

    /** Tells that Connect has carried out the last seek: the records that follow come from there. */
    void beginBatch() {
        seeking = false;
    }

    /**
     * Buffers a record. Ignores it while Kafka is about to be read again from another offset.
     *
     * @throws ConnectException when Kafka gives an offset below the requested one, or one above it although
     *     no record may be missing
     */
    void append(SinkRecord record, long now) {
        if (!located || seeking) {
            return;
        }
        long offset = record.originalKafkaOffset();
        if (next == UNKNOWN) { // the bucket is empty: the topic's first available record begins the first object
            next = offset;
            stored = offset;
        }
        if (offset < next) {
            throw new ConnectException("Kafka gives offset " + offset + " of " + partition + " after it was asked for "
                    + next + ", where the bucket ends: the topic was created anew or has lost records that are stored. "
                    + "docs/runbooks/connector.md says how its table begins anew.");
        }
        if (offset > next) {
            missing(offset);
        }
        if (open == null) {
            open = new LandingObject.Builder(next, now);
        }
        open.add(record);
        next = offset + 1;
        if (open.records() >= flushRecords || open.bytes() >= flushBytes) {
            seal(now);
        }
    }

    /** Closes the open object when it is due. */
    void sealIfAged(long now) {
        if (open != null && untilAged(now) <= 0) {
            seal(now);
        }
    }

    /**
     * Milliseconds until the open object is due, or {@link Long#MAX_VALUE} when nothing is buffered. It is due an interval
     * after the one before, so there is at most one per interval. After a silence it is due as soon as the records that
     * belong together have come. In any case it is due when its first record has waited for the interval.
     */
    long untilAged(long now) {
        if (open == null) {
            return Long.MAX_VALUE;
        }
        long gathered = Math.max(open.openedAt() + flushInterval / GATHERING_PART, sealedAt + flushInterval);
        return Math.min(gathered, open.openedAt() + flushInterval) - now;
    }

    /** Is something to be done in the bucket: finding the position, or writing an object? */
    boolean hasWork() {
        return !located || !sealed.isEmpty();
    }

    /**
     * Finds the position, then writes the objects that are due.
     *
     * @throws TransientStoreException if it has to be called again later; the work done so far stays done
     */
    void work() {
        if (!located) {
            locate();
        }
        while (!sealed.isEmpty()) {
            store(sealed.element());
        }
    }

    /** Returns the offset after all that is stored, or empty when that is not known. */
    OptionalLong stored() {
        return stored == UNKNOWN ? OptionalLong.empty() : OptionalLong.of(stored);
    }

    private void locate() {
        OptionalLong end = folder.end();
        next = end.orElse(UNKNOWN);
        stored = next;
        located = true;
        // With nothing stored, ask for 0: if the topic begins later, Kafka goes to its first available record.
        seek(end.orElse(0));
        LOG.info("{} begins at {}", partition, end.isPresent() ? next : "its first record: the bucket has none");
    }

    private void missing(long offset) {
        if (!acceptMissing) {
            throw new ConnectException("Kafka has no record at offset " + next + " of " + partition
                    + ", which is the next to land; it goes on at " + offset + ". Retention has removed " + (offset - next)
                    + " records before they were landed, and the changes in them are lost. Lengthen the topic's "
                    + "retention. To go on without them, set " + S3SinkConfig.MISSING_OFFSETS + " = " + S3SinkConfig.ACCEPT
                    + " until the sink is past offset " + offset + ", and bring the table's rows again by a new snapshot "
                    + "with a raised epoch.");
        }
        if (offset > next + 1) { // a single one is the mark of a transaction's end: too common to log
            LOG.warn("{} has no records at offsets {} to {}: compaction, an aborted transaction or retention",
                    partition, next, offset - 1);
        }
    }

    private void seek(long offset) {
        context.offset(partition, offset);
        seeking = true;
    }

    private void seal(long now) {
        sealed.add(open.build());
        sealedAt = now;
        open = null;
    }

    private void store(LandingObject object) {
        boolean written = folder.put(object);
        long end = written ? object.next() : folder.endOf(object.first());
        stored = end;
        context.requestCommit();
        if (end == object.next()) { // written here, or the same range by another task
            sealed.remove();
            return;
        }
        LOG.info("{} {} is stored up to {} by another task; reading on from there", partition, object.first(), end);
        sealed.clear();
        sealedAt = NEVER;
        open = null;
        next = end;
        seek(end);
    }
}
