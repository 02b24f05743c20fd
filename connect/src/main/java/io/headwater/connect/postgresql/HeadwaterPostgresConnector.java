package io.headwater.connect.postgresql;

import io.debezium.connector.postgresql.PostgresConnector;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.connector.Task;

/**
 * Debezium's connector, which goes on at the start of a transaction after it was stopped within one, and can drop its
 * slot before it is deleted.
 */
@SuppressWarnings("unchecked") // PostgresConnector overrides a generic method without its type parameter
public final class HeadwaterPostgresConnector extends PostgresConnector {
    static final String CONNECTOR_CLASS = "connector.class";

    private boolean releasesSlot;

    @Override
    public void start(Map<String, String> config) {
        releasesSlot = SlotRelease.isAsked(config);
        super.start(config);
    }

    @Override
    public Class<? extends Task> taskClass() {
        return releasesSlot ? SlotRelease.class : HeadwaterPostgresTask.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int maxTasks) {
        return super.taskConfigs(maxTasks).stream()
                .map(HeadwaterPostgresConnector::ofDebezium)
                .toList();
    }

    /** Debezium finds the parts of its snapshots by the name of its own connector class. */
    private static Map<String, String> ofDebezium(Map<String, String> config) {
        Map<String, String> named = new HashMap<>(config);
        named.put(CONNECTOR_CLASS, PostgresConnector.class.getName());
        return named;
    }
}
