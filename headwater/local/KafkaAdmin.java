import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TopicExistsException;

/**
 * Administers topics, many in one run: {@code KafkaAdmin BOOTSTRAP create KEY=VALUE,… NAME=PARTITIONS…} (the first
 * argument is their configuration, and may be empty), {@code KafkaAdmin BOOTSTRAP delete NAME PARTITION OFFSET}, which
 * deletes the records before an offset, or {@code KafkaAdmin BOOTSTRAP ends NAME…}, which prints
 * {@code NAME PARTITION END} for each partition. Run from its source, so that it needs no build.
 */
public final class KafkaAdmin {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", arguments[0], "default.api.timeout.ms", 30000);
        List<String> rest = Arrays.asList(arguments).subList(2, arguments.length);
        try (Admin admin = Admin.create(config)) {
            switch (arguments[1]) {
                case "create" -> create(admin, settings(rest.get(0)), rest.subList(1, rest.size()));
                case "delete" -> admin.deleteRecords(Map.of(
                        new TopicPartition(rest.get(0), Integer.parseInt(rest.get(1))),
                        RecordsToDelete.beforeOffset(Long.parseLong(rest.get(2))))).all().get();
                default -> ends(admin, rest);
            }
        }
    }

    private static Map<String, String> settings(String text) {
        Map<String, String> settings = new HashMap<>();
        for (String setting : text.isEmpty() ? new String[0] : text.split(",")) {
            int at = setting.indexOf('=');
            settings.put(setting.substring(0, at), setting.substring(at + 1));
        }
        return settings;
    }

    private static void create(Admin admin, Map<String, String> settings, List<String> topics) throws Exception {
        List<NewTopic> wanted = new ArrayList<>();
        for (String topic : topics) {
            int at = topic.lastIndexOf('=');
            int partitions = Integer.parseInt(topic.substring(at + 1));
            wanted.add(new NewTopic(topic.substring(0, at), Optional.of(partitions), Optional.of((short) 1))
                    .configs(settings));
        }
        for (var result : admin.createTopics(wanted).values().values()) {
            try {
                result.get();
            } catch (ExecutionException error) {
                if (!(error.getCause() instanceof TopicExistsException)) {
                    throw error;
                }
            }
        }
    }

    private static void ends(Admin admin, List<String> topics) throws Exception {
        Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
        for (var topic : admin.describeTopics(topics).allTopicNames().get().values()) {
            topic.partitions().forEach(p -> asked.put(new TopicPartition(topic.name(), p.partition()), OffsetSpec.latest()));
        }
        admin.listOffsets(asked).all().get().forEach(
                (partition, end) -> System.out.println(partition.topic() + " " + partition.partition() + " " + end.offset()));
    }
}
