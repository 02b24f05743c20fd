package io.headwater.connect.postgresql;

import io.debezium.connector.postgresql.PostgresOffsetContext;
import io.debezium.connector.postgresql.SourceInfo;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.connect.storage.OffsetStorageReader;

/**
 * Stored positions of Debezium's PostgreSQL connector, each moved back to the end of the last transaction that was sent
 * whole.
 *
 * <p>A stored position is that of a row. Debezium 3.3.2 asks the server for all of the row's transaction again, searches
 * it for the row's LSN, and goes on at the next LSN. Rows that share the LSN and were not sent yet are lost: rows of a
 * COPY, and the insert that stands for half of an update of a primary key (dbz#1554). It searches only where the
 * position has {@code lsn_proc}. Without that, it asks the server for what was committed after {@code lsn}, and sends
 * it all.
 *
 * <p>{@code lsn_commit} is where the last commit ends that Debezium has read. The server sends whole transactions in
 * the order of their commits, so that all that were committed before were sent, and none that was committed later. It
 * stays in the position, so that each repeated row has the {@code source.sequence} that it had the first time.
 */
final class TransactionStarts implements OffsetStorageReader {
    private final OffsetStorageReader stored;

    TransactionStarts(OffsetStorageReader stored) {
        this.stored = stored;
    }

    @Override
    public <T> Map<String, Object> offset(Map<String, T> partition) {
        return moved(stored.offset(partition));
    }

    @Override
    public <T> Map<Map<String, T>, Map<String, Object>> offsets(Collection<Map<String, T>> partitions) {
        return stored.offsets(partitions).entrySet().stream()
                .filter(entry -> entry.getValue() != null)
                .collect(Collectors.toMap(Map.Entry::getKey, entry -> moved(entry.getValue())));
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
