package io.headwater.connect.postgresql;

import io.debezium.connector.postgresql.PostgresConnectorTask;
import java.util.Map;
import org.apache.kafka.connect.source.SourceTaskContext;
import org.apache.kafka.connect.storage.OffsetStorageReader;

/** Debezium's task, which starts from positions between transactions. */
public final class HeadwaterPostgresTask extends PostgresConnectorTask {
    @Override
    public void initialize(SourceTaskContext context) {
        super.initialize(new BetweenTransactions(context));
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
