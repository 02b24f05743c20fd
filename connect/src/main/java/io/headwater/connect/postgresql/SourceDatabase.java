package io.headwater.connect.postgresql;

import io.debezium.config.Configuration;
import io.debezium.connector.postgresql.PostgresConnectorConfig;
import io.debezium.connector.postgresql.SourceInfo;
import io.debezium.connector.postgresql.connection.PostgresConnection;
import io.debezium.jdbc.JdbcConfiguration;
import io.headwater.connect.postgresql.TableColumns.Identity;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.RetriableException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The work of a task in the source's database beside Debezium, before the log is read and meanwhile. */
final class SourceDatabase {
    /** Finds the slot and the end of the log. Another database of the server may have a slot of the same name. */
    private static final String FIND_SLOT =
            """
            SELECT wal_status, confirmed_flush_lsn - '0/0'::pg_lsn, active, pg_current_wal_lsn() - '0/0'::pg_lsn
            FROM (SELECT) AS always
            LEFT JOIN pg_replication_slots
            ON slot_name = ? AND database = current_database() AND plugin = 'pgoutput'
            """;
    /**
     * Finds the listed tables outside a publication, and whether each exists and was never in the publication. Any role
     * may read the catalogue.
     */
    private static final String FIND_UNPUBLISHED =
            """
            SELECT listed.name,
                known.oid IS NOT NULL AND NOT EXISTS (
                    SELECT FROM capture.published AS former WHERE replace(former.name, '"', '') = listed.name
                )
            FROM unnest(?) AS listed (name)
            LEFT JOIN (pg_class AS known JOIN pg_namespace ON pg_namespace.oid = relnamespace AND relkind IN ('r', 'p'))
            ON nspname || '.' || relname = listed.name
            WHERE NOT EXISTS (
                SELECT FROM pg_publication LEFT JOIN pg_publication_rel ON prpubid = pg_publication.oid
                WHERE pubname = ? AND (puballtables AND known.oid IS NOT NULL OR prrelid = known.oid)
            )
            ORDER BY listed.name
            """;
    /** Records which columns of a table have the names of hidden ones now. */
    private static final String HIDE_COLUMNS =
            """
            SELECT capture.hide_columns(pg_class.oid, ?) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
            WHERE nspname || '.' || relname = ? AND relkind IN ('r', 'p')
            """;
    /** A table's columns, each with the names under which contracts hide it, and its replica identity. */
    private static final String FIND_COLUMNS =
            """
            WITH RECURSIVE known (id, identity, kind, depth) AS (
                SELECT pg_class.oid, relreplident, relkind, 0
                FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
                WHERE nspname || '.' || relname = ? AND relkind IN ('r', 'p')
                UNION ALL
                SELECT pg_class.oid, relreplident, relkind, depth + 1
                FROM known JOIN pg_inherits ON inhparent = id JOIN pg_class ON pg_class.oid = inhrelid
                WHERE relispartition
            )
            SELECT attname, coalesce(names, '{}'), attnotnull, (
                SELECT CASE WHEN bool_or(identity = 'i') THEN 'INDEX' WHEN bool_and(identity = 'f') THEN 'FULL' END
                FROM known WHERE kind = 'r'
            )
            FROM known JOIN pg_attribute ON attrelid = id AND attnum > 0 AND NOT attisdropped
            LEFT JOIN capture.hidden_columns_of(id) AS hidden ON hidden.number = attnum
            WHERE depth = 0
            """;
    private static final String READ_AWAITED = "SELECT capture.read_awaited(?)";
    /** Classes of SQLSTATE whose errors a person has to mend, such as a missing function or right. */
    private static final String LASTING = "(?s)(3F|42).*";

    private static final Duration FREE_WITHIN = Duration.ofSeconds(30);
    private static final Duration POLL = Duration.ofMillis(200);
    private static final Duration REPORT_EVERY = Duration.ofSeconds(30);
    private static final int QUERY_SECONDS = 10;
    private static final int SOCKET_SECONDS = 15;
    /** Begins a line of the log, which an alarm counts. */
    static final String GONE = "A captured table is gone";

    private static final Logger LOG = LoggerFactory.getLogger(SourceDatabase.class);

    private final PostgresConnectorConfig config;
    private PostgresConnection watch;
    private long reported = System.nanoTime() - REPORT_EVERY.toNanos();

    SourceDatabase(PostgresConnectorConfig config) {
        this.config = config;
    }

    /**
     * Checks the slot, and asks for the rows of tables that were added since the task last started. Debezium itself
     * finds that a slot is missing. But it tries again for good if the server has invalidated the slot, and skips the
     * changes before a slot that was made anew.
     *
     * <p>Raises ConnectException if the slot cannot give all changes after {@code position}, a stored one or null. Also
     * raises it if a configured table exists but was never in the publication, which would not send its changes.
     * (One that has left the publication is reported while the log is read, and stops no other table.)
     *
     * <p>Before an epoch's log is read, drops a slot that is lost, or that belongs to an earlier epoch ({@code isRaised}).
     * Debezium then makes it again, with the snapshot if there is to be one.
     */
    void prepare(Map<String, Object> position, boolean isRaised) {
        try (PostgresConnection connection = new PostgresConnection(config.getJdbcConfig(), "Headwater")) {
            Slot slot = free(connection.connection());
            boolean isOfLog = StoredPositions.isOfLog(position);
            if (isOfLog) {
                refuseLost(slot, ((Number) position.get(SourceInfo.LSN_KEY)).longValue());
            }
            refuseUnpublished(connection.connection());
            if (isOfLog) {
                if (readsRows()) {
                    readAwaited(connection.connection());
                }
            } else if (slot.isLost() || slot.exists() && isRaised && readsRows()) {
                drop(connection);
            }
        } catch (SQLException e) {
            throw failed(e);
        }
    }

    /** Drops the slot of this database, if there is one, once no task reads it. */
    void release() {
        try (PostgresConnection connection = new PostgresConnection(config.getJdbcConfig(), "Headwater")) {
            if (free(connection.connection()).exists()) {
                drop(connection);
            }
        } catch (SQLException e) {
            throw new RetriableException("The source's database does not answer.", e);
        }
    }

    /** Raises ConnectException if the slot cannot give all changes after {@code position} by now. */
    void refuseLost(Map<String, Object> position) {
        if (!StoredPositions.isOfLog(position)) {
            return;
        }
        try (PostgresConnection connection = new PostgresConnection(config.getJdbcConfig(), "Headwater")) {
            refuseLost(slot(connection.connection()), ((Number) position.get(SourceInfo.LSN_KEY)).longValue());
        } catch (SQLException e) {
            throw new RetriableException("The source's database does not answer.", e);
        }
    }

    /** The slot, once no other task reads it: a task with an older configuration would skip the rows asked for here. */
    private Slot free(Connection connection) throws SQLException {
        long deadline = System.nanoTime() + FREE_WITHIN.toNanos();
        Slot slot = slot(connection);
        while (slot.isActive()) {
            if (System.nanoTime() > deadline) {
                throw new RetriableException("The replication slot " + config.slotName() + " is in use.");
            }
            LockSupport.parkNanos(POLL.toNanos());
            slot = slot(connection);
        }
        return slot;
    }

    private Slot slot(Connection connection) throws SQLException {
        try (PreparedStatement query = connection.prepareStatement(FIND_SLOT)) {
            query.setString(1, config.slotName());
            try (ResultSet found = query.executeQuery()) {
                found.next();
                return new Slot(found.getString(1), found.getLong(2), found.getBoolean(3), found.getLong(4));
            }
        }
    }

    private void refuseUnpublished(Connection connection) throws SQLException {
        String unpublished = String.join(", ", unpublished(connection, true));
        if (!unpublished.isEmpty()) {
            throw new ConnectException("Tables outside the publication " + config.publicationName() + ": "
                    + unpublished + ". If a contract is new, deploy, or for a database of your own run"
                    + " headwater db capture; else add what was taken away (ALTER PUBLICATION). Then restart"
                    + " the connector.");
        }
    }

    /** The configured tables outside the publication; with {@code newOnly}, only existing ones that were never in it. */
    private List<String> unpublished(Connection connection, boolean newOnly) throws SQLException {
        try (PreparedStatement query = connection.prepareStatement(FIND_UNPUBLISHED)) {
            query.setQueryTimeout(QUERY_SECONDS);
            query.setArray(1, connection.createArrayOf("text", tables()));
            query.setString(2, config.publicationName());
            List<String> names = new ArrayList<>();
            try (ResultSet found = query.executeQuery()) {
                while (found.next()) {
                    if (!newOnly || found.getBoolean(2)) {
                        names.add(found.getString(1));
                    }
                }
            }
            return names;
        }
    }

    /**
     * Returns the present columns of a table, {@code schema.table}, from the catalogue. Its columns with the names of
     * {@code hidden} stay hidden from now on, whatever they are called later. Raises RetriableException if the database
     * does not answer, and ConnectException if it lacks what its deployment, or headwater db capture, makes.
     */
    TableColumns columns(String table, Set<String> hidden) {
        Map<String, Set<String>> hiddenAs = new HashMap<>();
        Set<String> required = new HashSet<>();
        Identity identity = Identity.OTHER;
        try (PreparedStatement record = watching().prepareStatement(HIDE_COLUMNS);
                PreparedStatement query = watching().prepareStatement(FIND_COLUMNS)) {
            if (!hidden.isEmpty()) {
                record.setQueryTimeout(QUERY_SECONDS);
                record.setArray(1, watching().createArrayOf("text", hidden.toArray()));
                record.setString(2, table);
                record.execute();
            }
            query.setQueryTimeout(QUERY_SECONDS);
            query.setString(1, table);
            try (ResultSet found = query.executeQuery()) {
                while (found.next()) {
                    hiddenAs.put(found.getString(1), Set.of((String[]) found.getArray(2).getArray()));
                    if (found.getBoolean(3)) {
                        required.add(found.getString(1));
                    }
                    identity = found.getString(4) == null ? Identity.OTHER : Identity.valueOf(found.getString(4));
                }
            }
        } catch (SQLException e) {
            close();
            throw failed(e);
        }
        return new TableColumns(hiddenAs, required, identity);
    }

    /** Logs, now and then, each table of the configuration that was dropped, renamed or taken out of the publication. */
    void reportGone() {
        if (System.nanoTime() - reported < REPORT_EVERY.toNanos()) {
            return;
        }
        reported = System.nanoTime();
        try {
            unpublished(watching(), false).forEach(table -> LOG.error(
                    "{}: {}: it was dropped, renamed or taken out of the publication {}, and its changes no longer reach "
                            + "the lake: docs/runbooks/gone-table.md",
                    GONE, table, config.publicationName()));
        } catch (SQLException e) {
            close();
            LOG.warn("Whether all captured tables are there is not known: the database does not answer", e);
        }
    }

    /** The connection that is kept for the catalogue while the log is read. */
    private Connection watching() throws SQLException {
        if (watch == null) {
            // Records wait meanwhile: a server that is gone without a word must not hold them for as long as TCP tries.
            Configuration bounded = config.getJdbcConfig().edit().with("socketTimeout", SOCKET_SECONDS).build();
            watch = new PostgresConnection(JdbcConfiguration.adapt(bounded), "Headwater");
        }
        Connection connection = watch.connection();
        connection.setAutoCommit(true);
        return connection;
    }

    /** Closes the connection that is kept. */
    void close() {
        if (watch != null) {
            watch.close();
            watch = null;
        }
    }

    private static ConnectException failed(SQLException e) {
        return e.getSQLState() != null && e.getSQLState().matches(LASTING)
                ? new ConnectException(
                        "The source's database is not as its last deploy, or headwater db capture, has made it.", e)
                : new RetriableException("The source's database does not answer.", e);
    }

    /** Has the tables of the configuration that wait for it read from their first row on, by a signal in the log. */
    private void readAwaited(Connection connection) throws SQLException {
        try (PreparedStatement call = connection.prepareStatement(READ_AWAITED)) {
            call.setArray(1, connection.createArrayOf("text", tables()));
            call.execute();
            if (!connection.getAutoCommit()) {
                connection.commit();
            }
        }
    }

    /** Whether tables' rows are the connector's to read. */
    private boolean readsRows() {
        return config.getSnapshotMode() != PostgresConnectorConfig.SnapshotMode.NO_DATA;
    }

    private String[] tables() {
        return config.tableIncludeList().split(",");
    }

    private void refuseLost(Slot slot, long position) {
        String problem = null;
        if (!slot.exists()) {
            problem = "is gone";
        } else if (slot.isLost()) {
            problem = "was invalidated by the server, which did not keep its log";
        } else if (slot.confirmed() > position) {
            problem = "was made anew, or read by another program, and begins at " + lsn(slot.confirmed());
        } else if (slot.logEnd() < position) {
            problem = "is of a server whose log ends at " + lsn(slot.logEnd());
        }
        if (problem != null) {
            throw new ConnectException("Changes of the source are lost: the replication slot " + config.slotName() + " "
                    + problem + "; the source was read up to " + lsn(position)
                    + ". Raise connect.epoch and deploy: docs/runbooks/lost-slot.md.");
        }
    }

    private void drop(PostgresConnection connection) {
        if (!connection.dropReplicationSlot(config.slotName())) {
            throw new RetriableException("The replication slot " + config.slotName() + " could not be dropped yet.");
        }
    }

    /** An LSN as PostgreSQL prints it. */
    private static String lsn(long number) {
        return String.format("%X/%08X", number >>> 32, number & 0xFFFFFFFFL);
    }

    /**
     * A row of pg_replication_slots.
     *
     * @param walStatus whether the server keeps the slot's log; null if there is no slot
     * @param confirmed the LSN from which the slot gives changes
     * @param isActive whether something reads it
     * @param logEnd the LSN where the server's log ends
     */
    private record Slot(String walStatus, long confirmed, boolean isActive, long logEnd) {
        boolean exists() {
            return walStatus != null;
        }

        boolean isLost() {
            return "lost".equals(walStatus);
        }
    }
}
