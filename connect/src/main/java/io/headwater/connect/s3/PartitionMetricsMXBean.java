package io.headwater.connect.s3;

/**
 * Where a task stands in one partition:
 * {@code io.headwater.connect:type=s3-sink-partition,connector=…,task=…,topic=…,partition=…}.
 */
public interface PartitionMetricsMXBean {
    /** Offset after all that is in S3, or -1 while that is not known. */
    long getStoredOffset();

    /** Offsets read from Kafka and not yet in S3. */
    long getLagToFlush();

    /** Records read from Kafka and not yet in S3. */
    long getBufferedRecords();

    /** How long the oldest of these records has waited, in milliseconds; 0 when there is none. */
    long getOldestBufferedMillis();
}
