package io.headwater.connect.s3;

import java.util.regex.Pattern;
import javax.management.InstanceAlreadyExistsException;
import javax.management.InstanceNotFoundException;
import javax.management.JMException;
import javax.management.MBeanServer;
import javax.management.MalformedObjectNameException;
import javax.management.ObjectName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;

/** Shows a task's metrics by JMX. */
final class JmxBeans {
    private static final Pattern PLAIN = Pattern.compile("[A-Za-z0-9._-]+");

    private final MBeanServer server;
    private final String owner;

    JmxBeans(MBeanServer server, String connector, String task) {
        this.server = server;
        this.owner = ",connector=" + quoted(connector) + ",task=" + quoted(task);
    }

    void show(SinkMetrics metrics) {
        register(metrics, taskName());
    }

    void hide() {
        unregister(taskName());
    }

    void show(TopicPartition partition, PartitionMetrics metrics) {
        register(metrics, partitionName(partition));
    }

    void hide(TopicPartition partition) {
        unregister(partitionName(partition));
    }

    private ObjectName taskName() {
        return name("io.headwater.connect:type=s3-sink" + owner);
    }

    private ObjectName partitionName(TopicPartition partition) {
        return name("io.headwater.connect:type=s3-sink-partition" + owner + ",topic=" + quoted(partition.topic())
                + ",partition=" + partition.partition());
    }

    private void register(Object bean, ObjectName name) {
        try {
            try {
                server.registerMBean(bean, name);
            } catch (InstanceAlreadyExistsException e) {
                unregister(name); // left by a task that Connect gave up waiting for
                server.registerMBean(bean, name);
            }
        } catch (JMException e) {
            throw new ConnectException("Cannot register " + name + " with JMX", e);
        }
    }

    private void unregister(ObjectName name) {
        try {
            server.unregisterMBean(name);
        } catch (InstanceNotFoundException e) {
            // Its successor has replaced and removed it.
        } catch (JMException e) {
            throw new ConnectException("Cannot unregister " + name + " from JMX", e);
        }
    }

    private static ObjectName name(String text) {
        try {
            return new ObjectName(text);
        } catch (MalformedObjectNameException e) {
            throw new ConnectException("Not a JMX name: " + text, e);
        }
    }

    private static String quoted(String value) {
        return PLAIN.matcher(value).matches() ? value : ObjectName.quote(value);
    }
}
