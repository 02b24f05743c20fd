package io.headwater.connect.postgresql;

import io.debezium.connector.postgresql.PostgresConnector;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.common.config.Config;
import org.apache.kafka.common.config.ConfigValue;
import org.apache.kafka.connect.connector.Task;

/**
 * Debezium's connector, with two additions. If it was stopped within a transaction, it goes on at the transaction's start.
 * And it can drop its slot before it is deleted.
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

    /**
     * Debezium 3.6.1 returns no value for some of its options. Connect 3.7 fails at such an option instead of naming the
     * error in another one.
     */
    @Override
    public Config validate(Map<String, String> config) {
        List<ConfigValue> values = new ArrayList<>(super.validate(config).configValues());
        Set<String> known = values.stream().map(ConfigValue::name).collect(Collectors.toSet());
        config().names().stream().filter(name -> !known.contains(name)).map(ConfigValue::new).forEach(values::add);
        return new Config(values);
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

    /** Debezium finds the parts of its snapshots by the name of its own connector class, and connects by ours. */
    private static Map<String, String> ofDebezium(Map<String, String> config) {
        Map<String, String> named = new HashMap<>(config);
        named.put(CONNECTOR_CLASS, PostgresConnector.class.getName());
        named.put(ServerConnections.CONFIG, ServerConnections.class.getName());
        return named;
    }
}
