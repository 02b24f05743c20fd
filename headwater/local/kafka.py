"""A Kafka broker on this machine, its own controller (KRaft)."""

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from headwater.errors import UserError
from headwater.local import java
from headwater.local.processes import Part, Process, free_port, listens, occurrences
from headwater.packaging import jars

HEAP = "256m"
ADMIN = Path(__file__).with_name("KafkaAdmin.java")
# KRaft wants one; a broker alone may have any.
CLUSTER_ID = "aGVhZHdhdGVyLWxvY2FsMQ"


class Broker(Part):
    """One broker: data and log in a folder, on a free port of 127.0.0.1 that stays the same over restarts.

    Topics are made by `create_topics` only, as on MSK.
    """

    name = "the Kafka broker"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port = 0

    @property
    def bootstrap(self) -> str:
        """The address clients connect to, as `host:port`."""
        return f"127.0.0.1:{self.port}"

    def create_topics(self, topics: Mapping[str, int]) -> None:
        """Create topics with their numbers of partitions; those that exist are left alone."""
        self._admin("create", [f"{name}={partitions}" for name, partitions in topics.items()])

    def ends(self, topics: Iterable[str]) -> dict[tuple[str, int], int]:
        """Return the next offset to be written, by topic and partition."""
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
            self.name,
            self._java("kafka.Kafka", str(properties)),
            log,
            # Its port opens before it serves: the log tells.
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
            # After a crash the controller takes the broker back only when its last session has run out.
            "broker.session.timeout.ms": "4000",
            "broker.heartbeat.interval.ms": "1000",
            # A group of one does not gain by waiting for others.
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            "num.network.threads": "2",
            "num.io.threads": "4",
            "log.cleaner.dedupe.buffer.size": "2097152",
        }

    def _java(self, main: str, *arguments: str) -> list[str]:
        return java.argv(main, arguments, class_path=jars.class_path("kafka"), heap=HEAP, folder=self.folder)

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
