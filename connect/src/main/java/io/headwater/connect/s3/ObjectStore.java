package io.headwater.connect.s3;

import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * The S3 operations of the sink.
 *
 * <p>Each method throws {@link TransientStoreException} if the same request may succeed later, and {@link
 * org.apache.kafka.connect.errors.ConnectException} if it will not.
 */
interface ObjectStore extends AutoCloseable {
    /** Some keys in ascending order; {@code truncated} if the store has more keys after them. */
    record Page(List<String> keys, boolean truncated) {}

    /**
     * Writes an object unless its key is taken.
     *
     * @return false if the key is taken; the existing object stays unchanged
     */
    boolean putIfAbsent(String key, byte[] body, Map<String, String> metadata);

    /** Returns an object's user metadata, or empty if the object does not exist. */
    Optional<Map<String, String>> metadata(String key);

    /** Returns the first keys that begin with {@code prefix} and come after {@code startAfter}. */
    Page list(String prefix, String startAfter);

    @Override
    void close();
}
