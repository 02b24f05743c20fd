package io.headwater.connect.postgresql;

import io.debezium.config.Configuration;
import io.debezium.connector.postgresql.PostgresConnector;
import io.debezium.connector.postgresql.PostgresConnectorConfig;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The task of a connector that is about to be deleted for good: it drops the replication slot when it starts, and sends
 * nothing.
 *
 * <p>Debezium's {@code slot.drop.on.stop} would drop the slot when the worker ends: nobody waits for that, and nobody sees
 * it fail. If the deletion does not come, it would drop the slot at every restart. A connector with
 * this task runs only if the slot is gone, and whoever makes it read again finds that changes are lost.
 */
public final class SlotRelease extends SourceTask {
    /** Whether the connector drops its slot instead of reading it. */
    static final String CONFIG = "headwater.release.slot";

    private static final Logger LOG = LoggerFactory.getLogger(SlotRelease.class);
    private static final int POLL_SECONDS = 1;

    private final CountDownLatch stopped = new CountDownLatch(1);

    static boolean isAsked(Map<String, String> config) {
        return Boolean.parseBoolean(config.get(CONFIG));
    }

    @Override
    public void start(Map<String, String> config) {
        PostgresConnectorConfig settings = new PostgresConnectorConfig(Configuration.from(config));
        new SourceDatabase(settings).release();
        // custom_resources/connector.py waits for these words.
        LOG.warn("The replication slot {} is released, and the connector reads no more", settings.slotName());
    }

    @Override
    public List<SourceRecord> poll() throws InterruptedException {
        stopped.await(POLL_SECONDS, TimeUnit.SECONDS);
        return null;
    }

    @Override
    public void stop() {
        stopped.countDown();
    }

    @Override
    public String version() {
        return new PostgresConnector().version();
    }
}
