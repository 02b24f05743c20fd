package io.headwater.connect.s3;

/** What a sink task has done since it started: {@code io.headwater.connect:type=s3-sink,connector=…,task=…}. */
public interface SinkMetricsMXBean {
    /** Records in the objects that this task wrote. */
    long getStoredRecords();

    /** Objects that this task wrote. */
    long getStoredObjects();

    /** Compressed bytes in the objects that this task wrote. */
    long getStoredBytes();

    /** Time spent in puts that S3 answered, in milliseconds. */
    long getPutMillisTotal();

    /** Longest put that S3 answered, in milliseconds. */
    long getPutMillisMax();

    /** S3 requests that failed and are tried again. */
    long getRetries();

    /** Puts that S3 refused because an object with the name exists. */
    long getConflicts();

    /** Offsets that have no record: compaction, transactions, or records lost to retention. */
    long getMissingOffsets();

    /** How long the oldest record not yet in S3 has waited, in milliseconds; 0 when there is none. */
    long getOldestBufferedMillis();
}
