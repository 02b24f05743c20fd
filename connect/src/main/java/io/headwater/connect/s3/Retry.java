package io.headwater.connect.s3;

import java.util.function.DoubleSupplier;
import org.apache.kafka.connect.errors.ConnectException;

/**
 * Decides when to try a failing store again: exponential backoff with jitter, up to a limit. Times are milliseconds.
 */
final class Retry {
    private final long backoff;
    private final long maxBackoff;
    private final long timeout;
    private final DoubleSupplier random;
    private long failures;
    private long failingSince;
    private long nextTry;

    /** @param random gives numbers in [0, 1) */
    Retry(S3SinkConfig config, DoubleSupplier random) {
        this.backoff = config.getLong(S3SinkConfig.RETRY_BACKOFF_MS);
        this.maxBackoff = config.getLong(S3SinkConfig.RETRY_MAX_BACKOFF_MS);
        this.timeout = config.getLong(S3SinkConfig.RETRY_TIMEOUT_MS);
        this.random = random;
    }

    boolean failing() {
        return failures > 0;
    }

    boolean mayTry(long now) {
        return !failing() || now >= nextTry;
    }

    /** Milliseconds until the next try. */
    long untilNextTry(long now) {
        return Math.max(0, nextTry - now);
    }

    void succeeded() {
        failures = 0;
    }

    /**
     * Records a failure and computes the time of the next try.
     *
     * @throws ConnectException if the store has failed for longer than the limit
     */
    void failed(long now, TransientStoreException cause) {
        if (!failing()) {
            failingSince = now;
        }
        failures++;
        if (now - failingSince >= timeout) {
            throw new ConnectException("S3 has not worked for " + (now - failingSince) + " ms ("
                    + S3SinkConfig.RETRY_TIMEOUT_MS + " = " + timeout + "), after " + failures + " tries. "
                    + "Nothing is lost: restart the task when S3 works. Last failure: " + cause.getMessage(), cause);
        }
        double exponential = Math.min(maxBackoff, backoff * Math.pow(2, failures - 1.0));
        // Between half of the delay and all of it, so that tasks that failed together do not retry together.
        nextTry = now + Math.max(1, Math.round(exponential * (0.5 + random.getAsDouble() / 2)));
    }
}
