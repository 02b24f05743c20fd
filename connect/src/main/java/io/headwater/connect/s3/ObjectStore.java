package io.headwater.connect.s3;

import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * The operations of S3 that the sink uses.
 *
 * <p>Each method throws {@link TransientStoreException} when the same request may work later, and
 * {@link org.apache.kafka.connect.errors.ConnectException} when it will not.
 */
interface ObjectStore extends AutoCloseable {
    /** Some keys in ascending order; {@code truncated} when the store has more after them. */
    record Page(List<String> keys, boolean truncated) {}

    /**
     * Writes an object unless its key is taken.
     *
     * @return false when an object has this key; it is left as it was
     */
    boolean putIfAbsent(String key, byte[] body, Map<String, String> metadata);

    /** Returns an object's user metadata, or empty when there is no such object. */
    Optional<Map<String, String>> metadata(String key);

    /** Returns the first keys that begin with {@code prefix} and come after {@code startAfter}. */
    Page list(String prefix, String startAfter);

    @Override
    void close();
}
