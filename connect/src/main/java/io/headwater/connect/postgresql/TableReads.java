package io.headwater.connect.postgresql;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.debezium.connector.postgresql.SourceInfo;
import io.debezium.pipeline.notification.IncrementalSnapshotNotificationService;
import io.debezium.pipeline.notification.InitialSnapshotNotificationService;
import io.debezium.pipeline.notification.Notification;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Tells the lake that a table was read to its end, by a record of the table's topic. A row of the lake that is older than
 * the reading, and was not read, is gone. Debezium would send its notices of this to a topic of their own; here they become
 * these records. (Its own mark, {@code snapshot: last}, is missing if a table has no row, and if
 * the first table has one.)
 *
 * <p>The record looks like a TRUNCATE at the LSN where the reading began. For a first snapshot this is the
 * snapshot's LSN. For a signal it is the LSN in the signal's id, {@code {"resync": LSN}}: the server's current one before
 * the signal was written. If several signals are read together, it is the first one's LSN. Debezium does not
 * keep that LSN, so the stored positions do. If a signal wanted only some rows of a table, there is no such record,
 * because the other rows may still exist.
 */
final class TableReads {
    private static final Logger LOG = LoggerFactory.getLogger(TableReads.class);
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String TOPIC_CONFIG = "notification.sink.topic.name";
    private static final String PREFIX_CONFIG = "topic.prefix";
    /** Keys of stored positions while tables are read: the reading's LSN, and Debezium's id of the newest signal. */
    private static final String SINCE = "headwater_resync_since";
    private static final String SIGNAL_ID = "incremental_snapshot_correlation_id";
    /** In the position of Debezium's notices: the tables to be read, as JSON. The first is being read now. */
    private static final String TABLES = "incremental_snapshot_collections";
    private static final String TABLE = TABLES + "_id";
    private static final String CONDITION = TABLES + "_additional_condition";
    /** The LSN of a signal that somebody else wrote: lower than all others. */
    private static final long UNKNOWN = 0;
    private static final Set<String> READ = Set.of("SUCCEEDED", "EMPTY");

    private static final Schema SOURCE = SchemaBuilder.struct()
            .field("schema", Schema.STRING_SCHEMA)
            .field("table", Schema.STRING_SCHEMA)
            .field("lsn", Schema.INT64_SCHEMA)
            .field("snapshot", Schema.STRING_SCHEMA)
            .build();
    // Debezium reads the names of the schemas that it passes on.
    private static final Schema END = SchemaBuilder.struct()
            .name("io.headwater.TableEnd")
            .field("op", Schema.STRING_SCHEMA)
            .field("source", SOURCE)
            .build();

    private final String topic;
    private final String prefix;
    private Long since;

    /** {@code position} is the stored one, or null. */
    TableReads(Map<String, String> config, Map<String, Object> position) {
        topic = config.get(TOPIC_CONFIG);
        prefix = config.get(PREFIX_CONFIG);
        if (position != null && position.containsKey(SIGNAL_ID)) {
            since = position.get(SINCE) instanceof Number known ? known.longValue() : UNKNOWN;
        }
    }

    /** Returns the record with the stored positions' fields. For a notice returns the record of a table's end, or none. */
    Optional<SourceRecord> apply(SourceRecord record) {
        if (!record.topic().equals(topic)) {
            return Optional.of(withPosition(record));
        }
        Struct notice = (Struct) record.value();
        String kind = notice.getString(Notification.AGGREGATE_TYPE);
        boolean isSignalled = IncrementalSnapshotNotificationService.INCREMENTAL_SNAPSHOT.equals(kind);
        if (!isSignalled && !InitialSnapshotNotificationService.INITIAL_SNAPSHOT.equals(kind)) {
            return Optional.empty();
        }
        String type = notice.getString(Notification.TYPE);
        if (type.equals("TABLE_SCAN_COMPLETED")) {
            return end(record, notice.getMap(Notification.ADDITIONAL_DATA), isSignalled);
        }
        if (isSignalled && type.equals("STARTED")) {
            since = lsnOf(notice.getString(Notification.ID_KEY));
        } else if (isSignalled && type.equals("COMPLETED")) { // ABORTED comes where one of several tables is left out, too
            since = null;
        }
        return Optional.empty();
    }

    private Optional<SourceRecord> end(SourceRecord notice, Map<String, String> data, boolean isSignalled) {
        String table = data.get(IncrementalSnapshotNotificationService.SCANNED_COLLECTION);
        String status = data.get(IncrementalSnapshotNotificationService.STATUS);
        if (!READ.contains(status)) {
            LOG.error("A table was not read to its end: {}, {}", table, status);
            return Optional.empty();
        }
        if (isSignalled && !isReadWhole(table, notice.sourceOffset().get(TABLES))) {
            LOG.info("Of {}, rows were read again by a condition", table);
            return Optional.empty();
        }
        Object place = isSignalled ? since : notice.sourceOffset().get(SourceInfo.LSN_KEY);
        if (!(place instanceof Number lsn) || lsn.longValue() == UNKNOWN) {
            LOG.warn("{} was read by a signal that is not Headwater's: rows that the source lost stay in the lake", table);
            return Optional.empty();
        }
        String[] names = table.split("\\.", 2);
        Struct source = new Struct(SOURCE)
                .put("schema", names[0])
                .put("table", names[1])
                .put("lsn", lsn.longValue())
                .put("snapshot", isSignalled ? "incremental" : "last_in_data_collection");
        Struct end = new Struct(END).put("op", "t").put("source", source);
        return Optional.of(withPosition(new SourceRecord(
                notice.sourcePartition(), notice.sourceOffset(), prefix + "." + table, END, end)));
    }

    /** Whether the first of the tables is that one, and all of its rows are wanted. */
    private static boolean isReadWhole(String table, Object tables) {
        try {
            JsonNode first = JSON.readTree(String.valueOf(tables)).path(0);
            return first.path(TABLE).asText().equals(table) && first.path(CONDITION).asText("").isEmpty();
        } catch (JsonProcessingException e) {
            return false;
        }
    }

    private SourceRecord withPosition(SourceRecord record) {
        if (since == null) {
            return record;
        }
        Map<String, Object> position = new HashMap<>(record.sourceOffset());
        position.put(SINCE, since);
        return new SourceRecord(
                record.sourcePartition(), position, record.topic(), record.kafkaPartition(), record.keySchema(),
                record.key(), record.valueSchema(), record.value(), record.timestamp(), record.headers());
    }

    private static long lsnOf(String signal) {
        try {
            JsonNode lsn = JSON.readTree(signal).path("resync");
            return lsn.canConvertToLong() && lsn.isIntegralNumber() ? lsn.longValue() : UNKNOWN;
        } catch (JsonProcessingException | IllegalArgumentException e) {
            return UNKNOWN;
        }
    }
}
