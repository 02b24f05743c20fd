package io.headwater.connect.postgresql;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatExceptionOfType;

import io.debezium.connector.postgresql.PostgresConnector;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.OffsetStorageReader;
import org.junit.jupiter.api.Test;

class HeadwaterPostgresConnectorTest {
    private static final Map<String, String> SERVER = Map.of("server", "headwater");
    private static final Map<String, String> SERVER_IN_2 = Map.of("server", "headwater", "epoch", "2");

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
        StoredPositions positions = new StoredPositions(new Stored(Map.of()), new Epoch(1));
        assertThat(positions.offset(SERVER)).isNull();
        assertThat(positions.offsets(List.of(SERVER))).isEmpty();
    }

    @Test
    void theLogIsReadFromAPositionOnceItsSnapshotIsComplete() {
        assertThat(List.of(
                        StoredPositions.isOfLog(null),
                        StoredPositions.isOfLog(Map.of("lsn", 1L, "snapshot", "INITIAL", "snapshot_completed", false)),
                        StoredPositions.isOfLog(Map.of("lsn", 1L, "snapshot", "INITIAL", "snapshot_completed", true)),
                        StoredPositions.isOfLog(
                                Map.of("lsn", 1L, "snapshot", "INCREMENTAL", "snapshot_completed", false)),
                        StoredPositions.isOfLog(Map.of("lsn", 1L))))
                .containsExactly(false, false, true, true, true);
    }

    @Test
    void eachEpochHasPositionsOfItsOwn() {
        Stored stored = new Stored(Map.of(SERVER, Map.of("lsn", 1L), SERVER_IN_2, Map.of("lsn", 2L)));
        assertThat(new StoredPositions(stored, new Epoch(1)).offset(SERVER)).isEqualTo(Map.of("lsn", 1L));
        for (Map<String, String> partition : List.of(SERVER, SERVER_IN_2)) {
            assertThat(new StoredPositions(stored, new Epoch(2)).offset(partition)).isEqualTo(Map.of("lsn", 2L));
            assertThat(new StoredPositions(stored, new Epoch(3)).offset(partition)).isNull();
        }
    }

    @Test
    void anEpochIsRaisedWhereOnlyAnEarlierOneHasAPosition() {
        Stored stored = new Stored(Map.of(SERVER, Map.of("lsn", 1L), SERVER_IN_2, Map.of("lsn", 2L)));
        assertThat(List.of(
                        new StoredPositions(stored, new Epoch(1)).isRaised(SERVER),
                        new StoredPositions(stored, new Epoch(2)).isRaised(SERVER),
                        new StoredPositions(stored, new Epoch(3)).isRaised(SERVER),
                        new StoredPositions(new Stored(Map.of()), new Epoch(3)).isRaised(SERVER)))
                .containsExactly(false, false, true, false);
    }

    @Test
    void anEpochIsNeverLowered() {
        Stored stored = new Stored(Map.of(SERVER, Map.of("lsn", 1L), SERVER_IN_2, Map.of("lsn", 2L)));
        new StoredPositions(stored, new Epoch(2)).refuseLowered(SERVER);
        new StoredPositions(stored, new Epoch(9999)).refuseLowered(SERVER);
        assertThatExceptionOfType(ConnectException.class)
                .isThrownBy(() -> new StoredPositions(stored, new Epoch(1)).refuseLowered(SERVER))
                .withMessage("headwater.epoch: found 1, expected at least 2, in which the source was read. An epoch is "
                        + "never lowered.");
    }

    @Test
    void anEpochIsAWholeNumberFromOne() {
        assertThat(Epoch.of(Map.of())).isEqualTo(new Epoch(1));
        assertThat(Epoch.of(Map.of("headwater.epoch", "9999"))).isEqualTo(new Epoch(9999));
        for (String text : List.of("0", "-1", "10000", "two", "02", "")) {
            assertThatExceptionOfType(ConnectException.class)
                    .isThrownBy(() -> Epoch.of(Map.of("headwater.epoch", text)))
                    .withMessage("headwater.epoch: found " + text + ", expected a whole number from 1 to 9999");
        }
    }

    @Test
    void recordsSayTheirEpochUnlessItIsTheFirst() {
        SourceRecord record = new SourceRecord(
                SERVER, Map.of("lsn", 7L), "t", 0, null, "k", null, "v", 5L,
                new ConnectHeaders().addString("__debezium.newkey", "n"));
        assertThat(new Epoch(1).mark(record)).isSameAs(record);
        SourceRecord marked = new Epoch(3).mark(record);
        assertThat(marked.sourcePartition()).isEqualTo(Map.of("server", "headwater", "epoch", "3"));
        assertThat(marked.headers())
                .isEqualTo(new ConnectHeaders().addString("__debezium.newkey", "n").addInt("headwater.epoch", 3));
        assertThat(record.headers()).hasSize(1);
        assertThat(List.of(marked.sourceOffset(), marked.topic(), marked.kafkaPartition(), marked.key(),
                        marked.value(), marked.timestamp()))
                .containsExactly(Map.of("lsn", 7L), "t", 0, "k", "v", 5L);
    }

    @Test
    void tasksRunWithDebeziumsClassNameAndOurConnections() {
        HeadwaterPostgresConnector connector = new HeadwaterPostgresConnector();
        connector.start(Map.of("connector.class", HeadwaterPostgresConnector.class.getName(), "slot.name", "headwater"));
        Map<String, String> expected = Map.of(
                "connector.class", PostgresConnector.class.getName(),
                "database.connection.factory.class", ServerConnections.class.getName(),
                "slot.name", "headwater");
        assertThat(connector.taskConfigs(1)).containsExactly(expected);
        assertThat(connector.taskClass()).isEqualTo(HeadwaterPostgresTask.class);
    }

    @Test
    void aTaskThatHasNotStartedCanBeAskedForItsErrorHandlerSoThatItTriesAgain() {
        assertThat(new HeadwaterPostgresTask().getErrorHandler()).isEmpty();
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
        StoredPositions positions = new StoredPositions(new Stored(Map.of(SERVER, stored)), new Epoch(1));
        Map<String, Object> position = positions.offset(SERVER);
        assertThat(positions.offsets(List.of(SERVER))).isEqualTo(Map.of(SERVER, position));
        return position;
    }

    /** Positions by their partitions. */
    private record Stored(Map<Map<String, String>, Map<String, Object>> positions) implements OffsetStorageReader {
        @Override
        public <T> Map<String, Object> offset(Map<String, T> partition) {
            return positions.get(partition);
        }

        @Override
        public <T> Map<Map<String, T>, Map<String, Object>> offsets(Collection<Map<String, T>> partitions) {
            Map<Map<String, T>, Map<String, Object>> offsets = new HashMap<>();
            partitions.forEach(partition -> offsets.put(partition, offset(partition)));
            return offsets;
        }
    }
}
