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
 * <p>Only the bucket decides the position. Each object begins at the end of the last one. If an object's name is
 * taken, another writer has written this range: another worker's task, or this task before a crash or a lost answer.
 * Then the stored object counts: the writer drops its buffer and makes Kafka read again from the stored object's end.
 */
final class PartitionWriter {
    private static final Logger LOG = LoggerFactory.getLogger(PartitionWriter.class);
    private static final long UNKNOWN = -1;
    private static final long NEVER = Long.MIN_VALUE / 2;
    /** After a silence, the first record waits for this part of the interval, so that related records join it. */
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

    /** Records that Connect has carried out the last seek: later records come from that offset. */
    void beginBatch() {
        seeking = false;
    }

    /**
     * Buffers a record. Ignores it while a seek to another offset is still to come.
     *
     * @throws ConnectException if Kafka delivers an offset below the requested one. Also if it delivers one above it
     *     although no record may be missing
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
            throw new ConnectException("Kafka gives offset " + offset + " of " + partition + " after a seek to "
                    + next + ", the end of the landed records: the topic was created again, or has lost records. "
                    + "docs/runbooks/connector.md says how to read its table again.");
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

    /** Closes the open object if it is due. */
    void sealIfAged(long now) {
        if (open != null && untilAged(now) <= 0) {
            seal(now);
        }
    }

    /**
     * Returns the milliseconds until the open object is due, or {@link Long#MAX_VALUE} if nothing is buffered.
     *
     * <p>An object is due one interval after the object before it, so there is at most one per interval. After a
     * silence it is due as soon as the related records have come. In any case it is due when its first record has
     * waited for one interval.
     */
    long untilAged(long now) {
        if (open == null) {
            return Long.MAX_VALUE;
        }
        long gathered = Math.max(open.openedAt() + flushInterval / GATHERING_PART, sealedAt + flushInterval);
        return Math.min(gathered, open.openedAt() + flushInterval) - now;
    }

    /** Whether the bucket needs work: finding the position, or writing an object. */
    boolean hasWork() {
        return !located || !sealed.isEmpty();
    }

    /**
     * Finds the position, then writes the objects that are due.
     *
     * @throws TransientStoreException if the call has to be repeated later; completed work stays done
     */
    void work() {
        if (!located) {
            locate();
        }
        while (!sealed.isEmpty()) {
            store(sealed.element());
        }
    }

    /** Returns the offset after all stored objects, or empty if it is not known. */
    OptionalLong stored() {
        return stored == UNKNOWN ? OptionalLong.empty() : OptionalLong.of(stored);
    }

    private void locate() {
        OptionalLong end = folder.end();
        next = end.orElse(UNKNOWN);
        stored = next;
        located = true;
        // With nothing stored, seek to 0: if the topic begins later, Kafka goes to its first available record.
        seek(end.orElse(0));
        LOG.info("{} begins at {}", partition, end.isPresent() ? next : "its first record: the bucket has none");
    }

    private void missing(long offset) {
        if (!acceptMissing) {
            throw new ConnectException("Kafka has no record at offset " + next + " of " + partition
                    + ", which is the next to land; it goes on at " + offset + ". Retention has removed " + (offset - next)
                    + " records before the sink landed them, and their changes are lost. Lengthen the topic's "
                    + "retention. To go on without them, set " + S3SinkConfig.MISSING_OFFSETS + " = " + S3SinkConfig.ACCEPT
                    + " until the sink has passed offset " + offset + ", and read the table again by a new snapshot "
                    + "with a raised epoch.");
        }
        if (offset > next + 1) { // a single missing offset is a transaction marker, which is too common to log
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
        if (end == object.next()) { // this task wrote it, or another task wrote the same range
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
