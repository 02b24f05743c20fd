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
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TopicExistsException;

/**
 * Administers topics, many in one run: {@code KafkaAdmin BOOTSTRAP create NAME=PARTITIONS…} or
 * {@code KafkaAdmin BOOTSTRAP ends NAME…}, which prints {@code NAME PARTITION END} for each partition.
 * Run from its source, so that it needs no build.
 */
public final class KafkaAdmin {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", arguments[0], "default.api.timeout.ms", 30000);
        List<String> rest = Arrays.asList(arguments).subList(2, arguments.length);
        try (Admin admin = Admin.create(config)) {
            if (arguments[1].equals("create")) {
                create(admin, rest);
            } else {
                ends(admin, rest);
            }
        }
    }

    private static void create(Admin admin, List<String> topics) throws Exception {
        List<NewTopic> wanted = new ArrayList<>();
        for (String topic : topics) {
            int at = topic.lastIndexOf('=');
            int partitions = Integer.parseInt(topic.substring(at + 1));
            wanted.add(new NewTopic(topic.substring(0, at), Optional.of(partitions), Optional.of((short) 1)));
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
