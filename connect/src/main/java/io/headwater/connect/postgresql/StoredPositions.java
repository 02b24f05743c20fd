package io.headwater.connect.postgresql;

import io.debezium.connector.AbstractSourceInfo;
import io.debezium.connector.postgresql.PostgresOffsetContext;
import io.debezium.connector.postgresql.SourceInfo;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.OptionalInt;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.storage.OffsetStorageReader;

/**
 * Stored positions of an epoch of Debezium's PostgreSQL connector, each moved back to the end of the last transaction
 * that was sent whole.
 *
 * <p>A stored position is that of a row. Debezium 3.6.1 asks the server for all of the row's transaction again, searches
 * it for the row's LSN, and goes on at the next LSN. Rows that share the LSN and were not sent yet are lost. This happens
 * to rows of a COPY, and to the insert that is half of an update of a primary key (dbz#1554). It searches only if the
 * position has {@code lsn_proc}. Without that, it asks the server for all commits after {@code lsn}, and sends
 * them all.
 *
 * <p>{@code lsn_commit} is where the last commit ends that Debezium has read. The server sends whole transactions in
 * the order of their commits. So all transactions up to there were sent, and none that was committed later. It
 * stays in the position, so each repeated row has the {@code source.sequence} that it had the first time.
 */
final class StoredPositions implements OffsetStorageReader {
    private static final String SNAPSHOT_COMPLETED = "snapshot_completed";
    /** The kind of snapshot in the positions of rows that are read beside the log. */
    private static final String INCREMENTAL = "INCREMENTAL";

    private final OffsetStorageReader stored;
    private final Epoch epoch;

    StoredPositions(OffsetStorageReader stored, Epoch epoch) {
        this.stored = stored;
        this.epoch = epoch;
    }

    @Override
    public <T> Map<String, Object> offset(Map<String, T> partition) {
        return moved(stored.offset(epoch.partition(partition)));
    }

    @Override
    public <T> Map<Map<String, T>, Map<String, Object>> offsets(Collection<Map<String, T>> partitions) {
        Map<Map<String, T>, Map<String, Object>> found = new HashMap<>();
        for (Map<String, T> partition : partitions) {
            Map<String, Object> position = offset(partition);
            if (position != null) {
                found.put(partition, position);
            }
        }
        return found;
    }

    /** Raises ConnectException if a position of a later epoch is stored: that epoch's records win over this one's. */
    void refuseLowered(Map<String, ?> partition) {
        newest(partition, epoch.number() + 1, Epoch.LAST).ifPresent(last -> {
            throw new ConnectException(Epoch.CONFIG + ": found " + epoch.number() + ", expected at least " + last
                    + ", in which the source was read. An epoch is never lowered.");
        });
    }

    /** Whether an earlier epoch has a position, and this epoch has none. */
    boolean isRaised(Map<String, ?> partition) {
        return offset(partition) == null
                && newest(partition, Epoch.FIRST, epoch.number() - 1).isPresent();
    }

    /** The last of some epochs that has a stored position. */
    private OptionalInt newest(Map<String, ?> partition, int first, int last) {
        Map<Map<String, Object>, Integer> epochs = IntStream.rangeClosed(first, last)
                .boxed()
                .collect(Collectors.toMap(number -> new Epoch(number).partition(partition), number -> number));
        return stored.offsets(epochs.keySet()).entrySet().stream()
                .filter(entry -> entry.getValue() != null)
                .mapToInt(entry -> epochs.get(entry.getKey()))
                .max();
    }

    /** Whether the log is read from this position on; a snapshot that is not complete begins anew. */
    static boolean isOfLog(Map<String, Object> position) {
        return position != null
                && (!position.containsKey(AbstractSourceInfo.SNAPSHOT_KEY)
                        || INCREMENTAL.equals(position.get(AbstractSourceInfo.SNAPSHOT_KEY))
                        || Boolean.TRUE.equals(position.get(SNAPSHOT_COMPLETED)));
    }

    /**
     * Before the first commit there is no {@code lsn_commit}: nothing was sent before the row's transaction, and the
     * row's own LSN is below its commit.
     */
    private static Map<String, Object> moved(Map<String, Object> position) {
        if (position == null) {
            return null;
        }
        Map<String, Object> moved = new HashMap<>(position);
        moved.remove(PostgresOffsetContext.LAST_COMPLETELY_PROCESSED_LSN_KEY);
        moved.computeIfPresent(
                SourceInfo.LSN_KEY,
                (key, lsn) -> position.getOrDefault(PostgresOffsetContext.LAST_COMMIT_LSN_KEY, lsn));
        return moved;
    }
}
