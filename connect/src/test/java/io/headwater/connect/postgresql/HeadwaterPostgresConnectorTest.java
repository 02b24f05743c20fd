package io.headwater.connect.postgresql;

import static org.assertj.core.api.Assertions.assertThat;

import io.debezium.connector.postgresql.PostgresConnector;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.storage.OffsetStorageReader;
import org.junit.jupiter.api.Test;

class HeadwaterPostgresConnectorTest {
    private static final Map<String, String> SERVER = Map.of("server", "headwater");

    @Test
    void aPositionWithinATransactionBecomesTheEndOfTheCommitBefore() {
        Map<String, Object> stored =
                Map.of("lsn", 170L, "lsn_proc", 160L, "lsn_commit", 120L, "txId", 7L, "messageType", "INSERT");
        assertThat(read(stored)).isEqualTo(Map.of("lsn", 120L, "lsn_commit", 120L, "txId", 7L, "messageType", "INSERT"));
    }

    @Test
    void aPositionBeforeTheFirstCommitKeepsItsLsnWhichIsBelowIt() {
        assertThat(read(Map.of("lsn", 170L, "lsn_proc", 170L))).isEqualTo(Map.of("lsn", 170L));
    }

    @Test
    void aPositionWithinASnapshotStays() {
        Map<String, Object> stored = Map.of("lsn", 100L, "snapshot", "INITIAL", "snapshot_completed", false);
        assertThat(read(stored)).isEqualTo(stored);
    }

    @Test
    void whereNothingIsStoredNothingIsRead() {
        assertThat(read(null)).isNull();
    }

    @Test
    void tasksRunWithDebeziumsClassNameByWhichItFindsItsParts() {
        HeadwaterPostgresConnector connector = new HeadwaterPostgresConnector();
        connector.start(Map.of("connector.class", HeadwaterPostgresConnector.class.getName(), "slot.name", "headwater"));
        assertThat(connector.taskConfigs(1))
                .containsExactly(
                        Map.of("connector.class", PostgresConnector.class.getName(), "slot.name", "headwater"));
        assertThat(connector.taskClass()).isEqualTo(HeadwaterPostgresTask.class);
    }

    @Test
    void connectFindsTheConnector() throws IOException {
        String services = "/META-INF/services/" + SourceConnector.class.getName();
        try (var listed = getClass().getResourceAsStream(services)) {
            assertThat(new String(listed.readAllBytes(), StandardCharsets.UTF_8).strip())
                    .isEqualTo(HeadwaterPostgresConnector.class.getName());
        }
    }

    /** What Debezium reads of a stored position, by either method. */
    private static Map<String, Object> read(Map<String, Object> stored) {
        TransactionStarts starts = new TransactionStarts(new Stored(stored));
        Map<String, Object> position = starts.offset(SERVER);
        assertThat(starts.offsets(List.of(SERVER)).get(SERVER)).isEqualTo(position);
        return position;
    }

    private record Stored(Map<String, Object> position) implements OffsetStorageReader {
        @Override
        public <T> Map<String, Object> offset(Map<String, T> partition) {
            return position;
        }

        @Override
        public <T> Map<Map<String, T>, Map<String, Object>> offsets(Collection<Map<String, T>> partitions) {
            Map<Map<String, T>, Map<String, Object>> offsets = new HashMap<>();
            partitions.forEach(partition -> offsets.put(partition, position));
            return offsets;
        }
    }
}
