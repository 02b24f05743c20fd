package io.headwater.connect.postgresql;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.api.Test;

class TableReadsTest {
    private static final Map<String, String> CONFIG =
            Map.of("topic.prefix", "hw", "notification.sink.topic.name", "hw.capture.notices");
    private static final Map<String, String> SERVER = Map.of("server", "hw");
    private static final Schema NOTICE = SchemaBuilder.struct()
            .field("id", Schema.STRING_SCHEMA)
            .field("aggregate_type", Schema.STRING_SCHEMA)
            .field("type", Schema.STRING_SCHEMA)
            .field("additional_data", SchemaBuilder.map(Schema.STRING_SCHEMA, Schema.STRING_SCHEMA).build())
            .build();

    private static final Map<String, Object> READING = Map.of(
            "lsn", 700L, "incremental_snapshot_collections", "[" + collections("shop.visits", "null") + "]");

    private final TableReads reads = new TableReads(CONFIG, null);

    @Test
    void theEndOfATablesFirstSnapshotIsThatOfTheSnapshot() {
        assertThat(initial("STARTED", "")).isEmpty();
        assertEnd(initial("TABLE_SCAN_COMPLETED", "SUCCEEDED"), 700L, "last_in_data_collection");
        assertEnd(initial("TABLE_SCAN_COMPLETED", "EMPTY"), 700L, "last_in_data_collection");
        assertThat(initial("COMPLETED", "")).isEmpty();
        assertThat(position(change())).isEqualTo(Map.of("lsn", 700L));
    }

    @Test
    void theEndOfATableThatIsReadAgainIsWhereTheLogWasBefore() {
        assertThat(again("STARTED", "", "{\"resync\" : 500}")).isEmpty();
        assertEnd(again("TABLE_SCAN_COMPLETED", "SUCCEEDED", "{\"resync\" : 500}"), 500L, "incremental");
        assertThat(again("COMPLETED", "", "{\"resync\" : 500}")).isEmpty();
    }

    @Test
    void ofSeveralSignalsTheFirstCounts() {
        again("STARTED", "", "{\"resync\": 500}");
        assertEnd(again("TABLE_SCAN_COMPLETED", "SUCCEEDED", "{\"resync\": 600}"), 500L, "incremental");
        again("COMPLETED", "", "{\"resync\": 600}");
        again("STARTED", "", "{\"resync\": 650}");
        assertEnd(again("TABLE_SCAN_COMPLETED", "SUCCEEDED", "{\"resync\": 650}"), 650L, "incremental");
    }

    @Test
    void itIsKeptInThePositionsWhileTablesAreRead() {
        again("STARTED", "", "{\"resync\": 500}");
        Map<String, Object> stored = position(change());
        assertThat(stored).isEqualTo(Map.of("lsn", 700L, "headwater_resync_since", 500L));
        Map<String, Object> reading = new HashMap<>(stored);
        reading.put("incremental_snapshot_correlation_id", "{\"resync\": 600}");
        TableReads restarted = new TableReads(CONFIG, reading);
        assertEnd(again(restarted, "TABLE_SCAN_COMPLETED", "SUCCEEDED", "{\"resync\": 600}"), 500L, "incremental");
        // One of several tables was left out, or a snapshot of another kind was taken meanwhile.
        again("ABORTED", "", "{\"resync\": 600}");
        initial("STARTED", "");
        initial("COMPLETED", "");
        assertThat(position(change())).isEqualTo(stored);
        again("COMPLETED", "", "{\"resync\": 600}");
        assertThat(position(change())).isEqualTo(Map.of("lsn", 700L));
    }

    @Test
    void wherePositionsDoNotSayItNothingEnds() {
        Map<String, Object> reading = Map.of("incremental_snapshot_correlation_id", "{\"resync\": 600}");
        TableReads restarted = new TableReads(CONFIG, reading);
        assertThat(again(restarted, "TABLE_SCAN_COMPLETED", "EMPTY", "{\"resync\": 600}")).isEmpty();
    }

    @Test
    void aSignalOfSomebodyElsesEndsNothing() {
        for (String id : List.of("mine", "{}", "{\"resync\": \"500\"}", "{\"resync\": 1.5}", "[1", "")) {
            again("STARTED", "", id);
            assertThat(again("TABLE_SCAN_COMPLETED", "SUCCEEDED", id)).isEmpty();
            // One of Headwater's that is read together with it came later than rows that were read.
            assertThat(again("TABLE_SCAN_COMPLETED", "SUCCEEDED", "{\"resync\": 500}")).isEmpty();
        }
    }

    @Test
    void rowsThatWereReadByAConditionEndNothing() {
        String id = "{\"resync\": 500}";
        again("STARTED", "", id);
        String byCondition = collections("shop.visits", "\"id > 7\"") + ", " + collections("shop.visits", "null");
        for (String tables : Arrays.asList("[" + byCondition + "]", "[" + collections("shop.others", "null") + "]", "[", "[]", null)) {
            Map<String, Object> position = new HashMap<>(READING);
            position.put("incremental_snapshot_collections", tables);
            assertThat(reads.apply(notice("Incremental Snapshot", "TABLE_SCAN_COMPLETED", "SUCCEEDED", id, position)))
                    .isEmpty();
        }
        assertEnd(again("TABLE_SCAN_COMPLETED", "SUCCEEDED", id), 500L, "incremental");
    }

    @Test
    void aTableThatWasNotReadToItsEndHasNone() {
        again("STARTED", "", "{\"resync\": 500}");
        for (String status : List.of("NO_PRIMARY_KEY", "SKIPPED", "SQL_EXCEPTION", "STOPPED", "UNKNOWN_SCHEMA")) {
            assertThat(again("TABLE_SCAN_COMPLETED", status, "{\"resync\": 500}")).isEmpty();
        }
    }

    @Test
    void otherRecordsPassAndOtherNoticesDoNot() {
        SourceRecord change = change();
        assertThat(reads.apply(change)).containsSame(change);
        assertThat(reads.apply(notice("Something", "STARTED", "", "x"))).isEmpty();
        assertThat(again("IN_PROGRESS", "", "x")).isEmpty();
    }

    private Optional<SourceRecord> initial(String type, String status) {
        return reads.apply(notice("Initial Snapshot", type, status, "x"));
    }

    private Optional<SourceRecord> again(String type, String status, String id) {
        return again(reads, type, status, id);
    }

    private static Optional<SourceRecord> again(TableReads reads, String type, String status, String id) {
        return reads.apply(notice("Incremental Snapshot", type, status, id));
    }

    private static SourceRecord notice(String kind, String type, String status, String id) {
        return notice(kind, type, status, id, kind.startsWith("Incremental") ? READING : Map.of("lsn", 700L));
    }

    private static SourceRecord notice(
            String kind, String type, String status, String id, Map<String, Object> position) {
        Struct value = new Struct(NOTICE)
                .put("id", id)
                .put("aggregate_type", kind)
                .put("type", type)
                .put("additional_data", Map.of("scanned_collection", "shop.visits", "status", status));
        return new SourceRecord(SERVER, position, "hw.capture.notices", NOTICE, value);
    }

    private static String collections(String table, String condition) {
        return "{\"incremental_snapshot_collections_id\": \"" + table
                + "\", \"incremental_snapshot_collections_additional_condition\": " + condition
                + ", \"incremental_snapshot_collections_surrogate_key\": null}";
    }

    private static SourceRecord change() {
        return new SourceRecord(SERVER, Map.of("lsn", 700L), "hw.shop.visits", null, "v");
    }

    @SuppressWarnings("unchecked") // a position is of texts
    private Map<String, Object> position(SourceRecord record) {
        return (Map<String, Object>) reads.apply(record).orElseThrow().sourceOffset();
    }

    private static void assertEnd(Optional<SourceRecord> record, long lsn, String snapshot) {
        Struct end = (Struct) record.orElseThrow().value();
        Struct source = end.getStruct("source");
        assertThat(record.get().topic()).isEqualTo("hw.shop.visits");
        assertThat(record.get().sourcePartition()).isEqualTo(SERVER);
        assertThat(record.get().sourceOffset()).isNotEmpty();
        assertThat(List.of(end.getString("op"), source.get("schema"), source.get("table"), source.get("lsn"),
                        source.get("snapshot")))
                .containsExactly("t", "shop", "visits", lsn, snapshot);
    }
}
