"""Requests of tests to a broker that the pipeline does not make: losing records, and reading a group's assignments."""

from __future__ import annotations

from kafka import TopicPartition
from kafka.admin import KafkaAdminClient

from rig.local.kafka import Broker


def delete_before(broker: Broker, topic: str, partition: int, offset: int) -> None:
    """Delete a partition's records before an offset, as retention does."""
    with KafkaAdminClient(**broker.access.for_python()) as admin:
        admin.delete_records({TopicPartition(topic, partition): offset})


def assignments(broker: Broker, group: str) -> list[set[tuple[str, int]]]:
    """Return the partitions of each member of a consumer group, as topic and number."""
    with KafkaAdminClient(**broker.access.for_python()) as admin:
        members = admin.describe_groups([group])[group]["members"]
    return [
        {
            (assigned["topic"], number)
            for assigned in member["member_assignment"]["assigned_partitions"]
            for number in assigned["partitions"]
        }
        for member in members
    ]
