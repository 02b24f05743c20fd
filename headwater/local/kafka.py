"""A Kafka broker on this machine, its own controller (KRaft)."""

import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from kafka import TopicPartition
from kafka.admin import KafkaAdminClient, OffsetSpec
from kafka.errors import KafkaError, TopicAlreadyExistsError, UnknownTopicOrPartitionError

from headwater.errors import UserError
from headwater.local import java
from headwater.local.processes import Part, Process, Program, free_port, listens, occurrences
from headwater.packaging import jars

HEAP = "256m"
# KRaft requires one; a single broker may have any.
CLUSTER_ID = "aGVhZHdhdGVyLWxvY2FsMQ"


class Broker(Part):
    """One broker on a free port of 127.0.0.1 that stays the same over restarts; its data and log are in ``folder``.

    ``config`` are settings that MSK's brokers get too. As on MSK, nothing but ``create_topics`` creates topics.
    """

    name = "the Kafka broker"

    def __init__(self, folder: Path, config: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(folder)
        self.port = 0
        self._config = dict(config)

    @property
    def bootstrap(self) -> str:
        """The address that clients connect to, as ``host:port``."""
        return f"127.0.0.1:{self.port}"

    def create_topics(self, topics: Mapping[str, int], config: Mapping[str, str] = MappingProxyType({})) -> None:
        """Create topics with their numbers of partitions and this configuration; topics that exist stay as they are."""
        with self._admin() as admin:
            for name, partitions in topics.items():
                with suppress(TopicAlreadyExistsError):
                    admin.create_topics(
                        {name: {"num_partitions": partitions, "replication_factor": 1, "configs": dict(config)}},
                        wait_for_metadata=True,
                    )

    def configure(self, config: Mapping[str, str]) -> None:
        """Have it start with other settings the next time."""
        self._config = dict(config)

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        with self._admin() as admin:
            return list(admin.list_topics())

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its records, where it is there."""
        with self._admin() as admin, suppress(UnknownTopicOrPartitionError):
            admin.delete_topics([topic])

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Give a topic as many partitions, which are more than it has. Keys move: the old ones' records stay."""
        with self._admin() as admin:
            admin.create_partitions({topic: partitions})

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Delete a partition's records before an offset, as retention does."""
        with self._admin() as admin:
            admin.delete_records({TopicPartition(topic, partition): offset})

    def ends(self, topics: Iterable[str]) -> dict[tuple[str, int], int]:
        """Return the next offset that will be written, by topic and partition."""
        with self._admin() as admin:
            described = admin.describe_topics(list(topics))
            asked = {
                TopicPartition(topic["name"], partition["partition_index"]): OffsetSpec.LATEST
                for topic in described
                for partition in topic["partitions"]
            }
            found = admin.list_partition_offsets(asked)
        return {(at.topic, at.partition): end.offset for at, end in found.items()}

    def assignments(self, group: str) -> list[set[tuple[str, int]]]:
        """Return the partitions that each member of a consumer group has, as topic and number."""
        with self._admin() as admin:
            members = admin.describe_groups([group])[group]["members"]
        return [
            {
                (assigned["topic"], number)
                for assigned in member["member_assignment"]["assigned_partitions"]
                for number in assigned["partitions"]
            }
            for member in members
        ]

    def answers(self) -> bool:
        """Whether it answers within two seconds."""
        try:
            KafkaAdminClient(
                bootstrap_servers=self.bootstrap, request_timeout_ms=2000, bootstrap_timeout_ms=2000
            ).close()
        except KafkaError:
            return False
        return True

    def lags(self) -> dict[tuple[str, str], int]:
        """Return the records that each consumer group has still to read of each topic where it has committed an
        offset, by group and topic."""
        with self._admin() as admin:
            groups = [group["group_id"] for group in admin.list_groups()]
            committed = admin.list_group_offsets(groups) if groups else {}
            topics = set(admin.list_topics())
        ends = self.ends({at.topic for of in committed.values() for at in of} & topics)
        lags: dict[tuple[str, str], int] = {}
        for group, of in committed.items():
            for at, offset in of.items():
                # The offsets of a topic outlive it for a while.
                end = ends.get((at.topic, at.partition))
                if end is not None:
                    lags[group, at.topic] = lags.get((group, at.topic), 0) + max(0, end - offset.offset)
        return lags

    def _prepare(self) -> Process:
        ports = self.folder / "ports"
        if not ports.exists():
            ports.write_text(f"{free_port()} {free_port()}\n")
        self.port, controller = (int(port) for port in ports.read_text().split())
        properties = self.folder / "server.properties"
        java.write_properties(properties, self._properties(controller).items())
        if not (self.folder / "data" / "meta.properties").exists():
            self._format(properties)
        log = self.folder / "broker.log"
        served = occurrences(log, b"Kafka Server started")
        return Process(
            Program(self.name, self._java("kafka.Kafka", str(properties)), log),
            # The port opens before the broker serves; the log tells when it does.
            ready=lambda: listens(self.port) and occurrences(log, b"Kafka Server started") > served,
            timeout=90,
        )

    def _properties(self, controller: int) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.folder / "data"),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "5",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "5",
            # After a crash the controller accepts the broker again only once its last session has expired.
            "broker.session.timeout.ms": "4000",
            "broker.heartbeat.interval.ms": "1000",
            # A consumer group of one member need not wait for others.
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            "num.network.threads": "2",
            "num.io.threads": "4",
            "log.cleaner.dedupe.buffer.size": "2097152",
            **self._config,
        }

    def _java(self, main: str, *arguments: str) -> list[str]:
        return java.argv(java.JavaProgram(main, arguments, jars.class_path("kafka"), HEAP), self.folder)

    def _format(self, properties: Path) -> None:
        command = self._java(
            "kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config", str(properties)
        )
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise UserError(f"Kafka could not format {self.folder / 'data'}:\n{done.stdout}{done.stderr}")

    def _admin(self) -> KafkaAdminClient:
        self.check()
        return KafkaAdminClient(bootstrap_servers=self.bootstrap, client_id="headwater")
