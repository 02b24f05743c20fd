package io.headwater.connect.postgresql;

import io.debezium.DebeziumException;
import io.debezium.config.Configuration;
import io.debezium.connector.postgresql.PostgresConnectorConfig;
import io.debezium.connector.postgresql.PostgresConnectorTask;
import io.debezium.connector.postgresql.PostgresOffsetContext;
import io.debezium.connector.postgresql.PostgresPartition;
import io.debezium.pipeline.ChangeEventSourceCoordinator;
import io.debezium.pipeline.ErrorHandler;
import io.debezium.service.spi.ServiceRegistry;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTaskContext;
import org.apache.kafka.connect.storage.OffsetStorageReader;

/**
 * Debezium's task, with additions at its start and for each record. It starts from positions of its epoch and between
 * transactions, and refuses a slot that has lost changes. It reports tables that are gone, and says where a table was read
 * to its end. It sends arrays that Debezium cannot carry as text, and removes and masks columns.
 */
public final class HeadwaterPostgresTask extends PostgresConnectorTask {
    private Epoch epoch;
    private StoredPositions positions;
    private TableReads reads;
    private SourceDatabase database;
    private ColumnGuard guard;
    private boolean hasStarted;

    @Override
    public void initialize(SourceTaskContext context) {
        epoch = Epoch.of(context.configs());
        positions = new StoredPositions(context.offsetStorageReader(), epoch);
        super.initialize(new InEpoch(context, positions));
    }

    @Override
    public ChangeEventSourceCoordinator<PostgresPartition, PostgresOffsetContext> start(Configuration configuration) {
        PostgresConnectorConfig config = new PostgresConnectorConfig(configuration);
        Map<String, String> partition = new PostgresPartition(config.getLogicalName(), "").getSourcePartition();
        positions.refuseLowered(partition);
        Map<String, Object> position = positions.offset(partition);
        database = new SourceDatabase(config);
        guard = new ColumnGuard(configuration.asMap(), database::columns);
        database.prepare(position, positions.isRaised(partition));
        reads = new TableReads(configuration.asMap(), position);
        ChangeEventSourceCoordinator<PostgresPartition, PostgresOffsetContext> started;
        try {
            started = super.start(configuration);
        } catch (DebeziumException e) {
            // The slot may have gone since the last check. Debezium reports that in other words.
            database.refuseLost(position);
            throw e;
        }
        hasStarted = true;
        return started;
    }

    /** Empty before the first start: Debezium's task asks for it at each retry of a start, and would end for good then. */
    @Override
    protected Optional<ErrorHandler> getErrorHandler() {
        return hasStarted ? super.getErrorHandler() : Optional.empty();
    }

    @Override
    protected void registerServiceProviders(ServiceRegistry services) {
        super.registerServiceProviders(services);
        services.registerServiceProvider(new ValueConverters.Provider());
    }

    @Override
    public List<SourceRecord> doPoll() throws InterruptedException {
        database.reportGone();
        return super.doPoll().stream()
                .map(guard::apply)
                .map(UnfitArray::asText)
                .map(reads::apply)
                .flatMap(Optional::stream)
                .map(epoch::mark)
                .toList();
    }

    @Override
    protected void doStop() {
        super.doStop();
        if (database != null) {
            database.close();
        }
    }

    /** The worker's context with the positions of the task's epoch. */
    private record InEpoch(SourceTaskContext worker, StoredPositions positions) implements SourceTaskContext {
        @Override
        public Map<String, String> configs() {
            return worker.configs();
        }

        @Override
        public OffsetStorageReader offsetStorageReader() {
            return positions;
        }
    }
}
