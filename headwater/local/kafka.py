"""A Kafka broker on this machine, its own controller (KRaft)."""

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from headwater.errors import UserError
from headwater.local import java
from headwater.local.processes import Part, Process, Program, free_port, listens, occurrences
from headwater.packaging import jars

HEAP = "256m"
ADMIN = Path(__file__).with_name("KafkaAdmin.java")
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
        settings = ",".join(f"{name}={value}" for name, value in config.items())
        self._admin("create", [settings, *(f"{name}={partitions}" for name, partitions in topics.items())])

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Delete a partition's records before an offset, as retention does."""
        self._admin("delete", [topic, str(partition), str(offset)])

    def ends(self, topics: Iterable[str]) -> dict[tuple[str, int], int]:
        """Return the next offset that will be written, by topic and partition."""
        lines = [line.split() for line in self._admin("ends", topics).splitlines()]
        return {(topic, int(partition)): int(end) for topic, partition, end in lines}

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

    def _admin(self, verb: str, arguments: Iterable[str]) -> str:
        self.check()
        command = self._java(str(ADMIN), self.bootstrap, verb, *arguments)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise UserError(f"Kafka did not {verb} topics:\n{done.stdout}{done.stderr}")
        return done.stdout
