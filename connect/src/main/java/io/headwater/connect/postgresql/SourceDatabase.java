package io.headwater.connect.postgresql;

import io.debezium.connector.postgresql.PostgresConnectorConfig;
import io.debezium.connector.postgresql.SourceInfo;
import io.debezium.connector.postgresql.connection.PostgresConnection;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.Map;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.RetriableException;

/** What a task does in the source's database before Debezium reads the log. */
final class SourceDatabase {
    private static final String FIND_SLOT =
            "SELECT wal_status, confirmed_flush_lsn - '0/0'::pg_lsn FROM pg_replication_slots WHERE slot_name = ?";
    private static final String READ_AWAITED = "SELECT capture.read_awaited(?)";
    /** Classes of SQLSTATE: what asks for somebody who mends it, such as a missing function or right. */
    private static final String LASTING = "(?s)(3F|42).*";

    private final PostgresConnectorConfig config;

    SourceDatabase(PostgresConnectorConfig config) {
        this.config = config;
    }

    /**
     * Looks at the slot, and asks for the rows of tables that were added since the task last started. Debezium itself
     * finds that a slot is missing, but tries again for good where the server has invalidated it, and skips what came
     * before where one was made anew.
     *
     * <p>Raises ConnectException where the slot cannot give all changes after {@code position}, a stored one or null.
     * Before an epoch's log is read, drops a slot that is lost or of an epoch before, so that Debezium makes it again
     * with the snapshot.
     */
    void prepare(Map<String, Object> position, Epoch epoch) {
        try (PostgresConnection connection = new PostgresConnection(config.getJdbcConfig(), "Headwater")) {
            Slot slot = slot(connection.connection());
            if (StoredPositions.isOfLog(position)) {
                refuseLost(slot, ((Number) position.get(SourceInfo.LSN_KEY)).longValue());
                readAwaited(connection.connection());
            } else if (slot.isLost() || slot.exists() && position == null && !epoch.isFirst()) {
                drop(connection);
            }
        } catch (SQLException e) {
            if (e.getSQLState() != null && e.getSQLState().matches(LASTING)) {
                throw new ConnectException("The source's database is not as its last deploy has made it.", e);
            }
            throw new RetriableException("The source's database does not answer.", e);
        }
    }

    private Slot slot(Connection connection) throws SQLException {
        try (PreparedStatement query = connection.prepareStatement(FIND_SLOT)) {
            query.setString(1, config.slotName());
            try (ResultSet found = query.executeQuery()) {
                return found.next() ? new Slot(found.getString(1), found.getLong(2)) : new Slot(null, 0);
            }
        }
    }

    /** Has the tables of the configuration that wait for it read from their first row on, by a signal in the log. */
    private void readAwaited(Connection connection) throws SQLException {
        String[] tables = config.tableIncludeList().split(",");
        try (PreparedStatement call = connection.prepareStatement(READ_AWAITED)) {
            call.setArray(1, connection.createArrayOf("text", tables));
            call.execute();
            if (!connection.getAutoCommit()) {
                connection.commit();
            }
        }
    }

    private void refuseLost(Slot slot, long position) {
        String problem = null;
        if (!slot.exists()) {
            problem = "is gone";
        } else if (slot.isLost()) {
            problem = "was invalidated by the server, which did not keep its log";
        } else if (slot.confirmed() > position) {
            problem = "was made anew, or read by another program, and begins at " + lsn(slot.confirmed());
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
     * @param walStatus whether the server keeps the slot's log; null where there is no slot
     * @param confirmed the LSN from which the slot gives changes
     */
    private record Slot(String walStatus, long confirmed) {
        boolean exists() {
            return walStatus != null;
        }

        boolean isLost() {
            return "lost".equals(walStatus);
        }
    }
}
