package io.headwater.connect.postgresql;

import io.debezium.connector.postgresql.PostgresConnectorTask;
import io.debezium.service.spi.ServiceRegistry;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTaskContext;
import org.apache.kafka.connect.storage.OffsetStorageReader;

/** Debezium's task, which starts from positions between transactions, and sends arrays that it cannot carry as text. */
public final class HeadwaterPostgresTask extends PostgresConnectorTask {
    @Override
    public void initialize(SourceTaskContext context) {
        super.initialize(new BetweenTransactions(context));
    }

    @Override
    protected void registerServiceProviders(ServiceRegistry services) {
        super.registerServiceProviders(services);
        services.registerServiceProvider(new ArrayConverters.Provider());
    }

    @Override
    public List<SourceRecord> doPoll() throws InterruptedException {
        return super.doPoll().stream().map(UnfitArray::asText).toList();
    }

    /** The worker's context, whose stored positions are between transactions. */
    private record BetweenTransactions(SourceTaskContext worker) implements SourceTaskContext {
        @Override
        public Map<String, String> configs() {
            return worker.configs();
        }

        @Override
        public OffsetStorageReader offsetStorageReader() {
            return new TransactionStarts(worker.offsetStorageReader());
        }
    }
}
