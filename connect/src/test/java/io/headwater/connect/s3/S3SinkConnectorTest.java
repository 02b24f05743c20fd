package io.headwater.connect.s3;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.headwater.connect.secrets.SecretsManagerConfigProvider;
import java.util.HashMap;
import java.util.Map;
import java.util.ServiceLoader;
import java.util.ServiceLoader.Provider;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.config.provider.ConfigProvider;
import org.apache.kafka.connect.sink.SinkConnector;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class S3SinkConnectorTest {
    private static final Map<String, String> GOOD = Map.of("s3.bucket", "lake", "s3.region", "eu-central-1");

    @Test
    void everyTaskGetsTheConfiguration() {
        S3SinkConnector connector = new S3SinkConnector();
        connector.start(GOOD);
        assertThat(connector.taskConfigs(2)).containsExactly(GOOD, GOOD);
    }

    @ParameterizedTest
    @CsvSource({
        "s3.bucket, ''",
        "s3.prefix, /landing",
        "s3.prefix, landing/",
        "s3.endpoint, localhost:9000",
        "flush.records, 0",
        "flush.interval.ms, soon"
    })
    void namesTheOptionThatIsWrong(String option, String value) {
        Map<String, String> properties = new HashMap<>(GOOD);
        properties.put(option, value);
        assertThatThrownBy(() -> new S3SinkConnector().start(properties))
                .isInstanceOf(ConfigException.class).hasMessageContaining(option);
    }

    @Test
    void connectFindsThePluginsByServiceLoader() {
        assertThat(ServiceLoader.load(SinkConnector.class).stream().map(Provider::type))
                .contains(S3SinkConnector.class);
        assertThat(ServiceLoader.load(ConfigProvider.class).stream().map(Provider::type))
                .contains(SecretsManagerConfigProvider.class);
    }
}
