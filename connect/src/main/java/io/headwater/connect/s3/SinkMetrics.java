package io.headwater.connect.s3;

import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BooleanSupplier;
import java.util.function.LongSupplier;

/** Counters of a task; written by the task's thread, read by JMX's. */
public final class SinkMetrics implements SinkMetricsMXBean {
    private final LongSupplier clock;
    private final AtomicLong records = new AtomicLong();
    private final AtomicLong objects = new AtomicLong();
    private final AtomicLong bytes = new AtomicLong();
    private final AtomicLong putMillis = new AtomicLong();
    private final AtomicLong putMillisMax = new AtomicLong();
    private final AtomicLong retries = new AtomicLong();
    private final AtomicLong conflicts = new AtomicLong();
    private final AtomicLong missing = new AtomicLong();
    private final AtomicLong oldest = new AtomicLong();

    /** @param clock monotonic time in milliseconds */
    SinkMetrics(LongSupplier clock) {
        this.clock = clock;
    }

    /** Runs a put, measures it and counts it; returns whether it wrote the object (false: the name is taken). */
    boolean timePut(LandingObject object, BooleanSupplier put) {
        long start = clock.getAsLong();
        boolean written = put.getAsBoolean();
        long millis = clock.getAsLong() - start;
        putMillis.addAndGet(millis);
        putMillisMax.accumulateAndGet(millis, Math::max);
        if (written) {
            records.addAndGet(object.records());
            objects.incrementAndGet();
            bytes.addAndGet(object.body().length);
        } else {
            conflicts.incrementAndGet();
        }
        return written;
    }

    void retry() {
        retries.incrementAndGet();
    }

    void missingOffsets(long count) {
        missing.addAndGet(count);
    }

    void oldestBuffered(long millis) {
        oldest.set(millis);
    }

    @Override
    public long getStoredRecords() {
        return records.get();
    }

    @Override
    public long getStoredObjects() {
        return objects.get();
    }

    @Override
    public long getStoredBytes() {
        return bytes.get();
    }

    @Override
    public long getPutMillisTotal() {
        return putMillis.get();
    }

    @Override
    public long getPutMillisMax() {
        return putMillisMax.get();
    }

    @Override
    public long getRetries() {
        return retries.get();
    }

    @Override
    public long getConflicts() {
        return conflicts.get();
    }

    @Override
    public long getMissingOffsets() {
        return missing.get();
    }

    @Override
    public long getOldestBufferedMillis() {
        return oldest.get();
    }
}
