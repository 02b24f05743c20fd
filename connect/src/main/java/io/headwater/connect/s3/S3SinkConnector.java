package io.headwater.connect.s3;

import io.headwater.connect.PluginVersion;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.sink.SinkConnector;

/** Lands the records of Kafka topics in S3, every offset in exactly one object. */
public final class S3SinkConnector extends SinkConnector {
    private Map<String, String> properties;

    @Override
    public void start(Map<String, String> properties) {
        new S3SinkConfig(properties); // refuses a bad configuration before any task starts
        this.properties = Map.copyOf(properties);
    }

    @Override
    public Class<? extends Task> taskClass() {
        return S3SinkTask.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int maxTasks) {
        return Collections.nCopies(maxTasks, properties);
    }

    @Override
    public void stop() {
        // The connector holds no resource that must be closed.
    }

    @Override
    public ConfigDef config() {
        return S3SinkConfig.DEFINITION;
    }

    @Override
    public String version() {
        return PluginVersion.of(S3SinkConnector.class);
    }
}
