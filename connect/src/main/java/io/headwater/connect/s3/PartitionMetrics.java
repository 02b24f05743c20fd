package io.headwater.connect.s3;

/** State of one partition; written by the task's thread, read by JMX's. */
public final class PartitionMetrics implements PartitionMetricsMXBean {
    private volatile long storedOffset = -1;
    private volatile long lagToFlush;
    private volatile long bufferedRecords;
    private volatile long oldestBufferedMillis;

    PartitionMetrics() {}

    void update(long stored, long lag, long records, long oldestMillis) {
        storedOffset = stored;
        lagToFlush = lag;
        bufferedRecords = records;
        oldestBufferedMillis = oldestMillis;
    }

    @Override
    public long getStoredOffset() {
        return storedOffset;
    }

    @Override
    public long getLagToFlush() {
        return lagToFlush;
    }

    @Override
    public long getBufferedRecords() {
        return bufferedRecords;
    }

    @Override
    public long getOldestBufferedMillis() {
        return oldestBufferedMillis;
    }
}
