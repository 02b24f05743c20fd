"""A Kafka broker on this machine, which is its own controller (KRaft)."""

import os
import secrets
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from kafka import TopicPartition
from kafka.admin import KafkaAdminClient, OffsetSpec
from kafka.errors import KafkaError, TopicAlreadyExistsError, UnknownTopicOrPartitionError

from headwater import private_files
from headwater.errors import UserError
from headwater.packaging import jars
from rig.local import java
from rig.local.processes import Part, Process, Program, free_port, occurrences

HEAP = "256m"
# KRaft requires a cluster id; a single broker may have any.
CLUSTER_ID = "aGVhZHdhdGVyLWxvY2FsMQ"


USER = "headwater"
"""The broker's only user, who may do everything."""
_SCRAM = "SCRAM-SHA-512"
_SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@dataclass(frozen=True)
class Access:
    """The address and password by which a client reaches a broker."""

    bootstrap: str
    """The broker's address, as ``host:port``."""
    password: str = field(repr=False)
    """The password of ``USER``."""

    def for_python(self) -> dict[str, str]:
        """Return the options of a kafka-python client."""
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": _SCRAM,
            "sasl_plain_username": USER,
            "sasl_plain_password": self.password,
        }

    def for_java(self) -> dict[str, str]:
        """Return the properties of a Java client."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": _SCRAM,
            "sasl.jaas.config": _login(_SCRAM_LOGIN, self.password),
        }


class Broker(Part):
    """One broker on a free port of 127.0.0.1 that stays the same over restarts.

    Its data, password and log are in ``folder``.

    The broker accepts every client that knows the password, which is made together with the data. ``config`` are
    settings that MSK's brokers get too. As on MSK, only ``create_topics`` creates topics.
    """

    name = "the Kafka broker"

    def __init__(self, folder: Path, config: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(folder)
        self._config = dict(config)

    @property
    def bootstrap(self) -> str:
        """The address to which clients connect, as ``host:port``. Raises ``UserError`` before the first start."""
        return f"127.0.0.1:{self._ports()[0]}"

    @property
    def access(self) -> Access:
        """The access for a client, also in another process. Raises ``UserError`` before the first start."""
        return Access(self.bootstrap, self._kept("password"))

    @property
    def client_properties(self) -> Path:
        """A file of properties for Kafka's own tools, as their ``--command-config``."""
        return self.folder / "client.properties"

    def create_topics(self, topics: Mapping[str, int], config: Mapping[str, str] = MappingProxyType({})) -> None:
        """Create topics with their numbers of partitions and this configuration; existing topics stay as they are."""
        with self._admin() as admin:
            for name, partitions in topics.items():
                with suppress(TopicAlreadyExistsError):
                    admin.create_topics(
                        {name: {"num_partitions": partitions, "replication_factor": 1, "configs": dict(config)}},
                        wait_for_metadata=True,
                    )

    def configure(self, config: Mapping[str, str]) -> None:
        """Set the broker's configuration for its next start."""
        self._config = dict(config)

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        with self._admin() as admin:
            return list(admin.list_topics())

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its records, if it exists."""
        with self._admin() as admin, suppress(UnknownTopicOrPartitionError):
            admin.delete_topics([topic])

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Raise a topic's number of partitions. Keys move to other partitions; existing records stay."""
        with self._admin() as admin:
            admin.create_partitions({topic: partitions})

    def ends(self, topics: Iterable[str]) -> dict[tuple[str, int], int]:
        """Return the offset of the next record to be written, by topic and partition."""
        with self._admin() as admin:
            described = admin.describe_topics(list(topics))
            asked = {
                TopicPartition(topic["name"], partition["partition_index"]): OffsetSpec.LATEST
                for topic in described
                for partition in topic["partitions"]
            }
            found = admin.list_partition_offsets(asked)
        return {(at.topic, at.partition): end.offset for at, end in found.items()}

    def answers(self) -> bool:
        """Whether the broker answers within two seconds."""
        try:
            KafkaAdminClient(**self.access.for_python(), request_timeout_ms=2000, bootstrap_timeout_ms=2000).close()
        except KafkaError:
            return False
        return True

    def lags(self) -> dict[tuple[str, str], int]:
        """Return how many records each consumer group has still to read, by group and topic.

        Only topics count in which the group has committed an offset.
        """
        with self._admin() as admin:
            groups = [group["group_id"] for group in admin.list_groups()]
            committed = admin.list_group_offsets(groups) if groups else {}
            topics = set(admin.list_topics())
        ends = self.ends({at.topic for of in committed.values() for at in of} & topics)
        lags: dict[tuple[str, str], int] = {}
        for group, of in committed.items():
            for at, offset in of.items():
                # A group's offsets outlive their topic for a while.
                end = ends.get((at.topic, at.partition))
                if end is not None:
                    lags[group, at.topic] = lags.get((group, at.topic), 0) + max(0, end - offset.offset)
        return lags

    def _prepare(self) -> Process:
        if not (self.folder / "ports").exists():
            (self.folder / "ports").write_text(f"{free_port()} {free_port()}\n")
        is_new = not (self.folder / "data" / "meta.properties").exists()
        if is_new:
            private_files.write(self.folder / "password", f"{secrets.token_urlsafe(32)}\n")
        port, controller = self._ports()
        properties = self.folder / "server.properties"
        java.write_properties(properties, self._properties(controller).items())
        java.write_properties(self.client_properties, self.access.for_java().items())
        if is_new:
            self._format(properties)
        log = self.folder / "broker.log"
        served = occurrences(log, b"Kafka Server started")
        broker = java.JavaProgram("kafka.Kafka", [str(properties)], jars.class_path("kafka"), HEAP)
        return Process(
            Program(self.name, java.argv(broker, self.folder), log),
            # The port opens before the broker serves. The log says when it serves.
            ready=lambda: occurrences(log, b"Kafka Server started") > served,
            port=port,
        )

    def _ports(self) -> tuple[int, int]:
        """The ports of clients and of the controller."""
        port, controller = self._kept("ports").split()
        return int(port), int(controller)

    def _kept(self, name: str) -> str:
        """Read a file of the folder that keeps a value for the next start."""
        path = self.folder / name
        if not path.exists():
            raise UserError(
                f"{path} is missing: start the broker first. If the broker has data without this file, an earlier "
                f"release has written the data: delete {self.folder}"
            )
        return path.read_text().strip()

    def _properties(self, controller: int) -> dict[str, str]:
        # A controller knows SCRAM passwords only after reading its log, so its own password is in its configuration.
        # Only this process connects to the controller, and only with this start's password.
        own = secrets.token_urlsafe(32)
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "CLIENT",
            "listeners": f"CLIENT://{self.bootstrap},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"CLIENT://{self.bootstrap}",
            "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            "listener.name.client.sasl.enabled.mechanisms": _SCRAM,
            "listener.name.client.scram-sha-512.sasl.jaas.config": _login(_SCRAM_LOGIN, self.access.password),
            "sasl.mechanism.inter.broker.protocol": _SCRAM,
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": _login(_PLAIN_LOGIN, own, f'user_{USER}="{own}"'),
            "sasl.mechanism.controller.protocol": "PLAIN",
            "log.dirs": str(self.folder / "data"),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "5",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "5",
            # After a crash the controller accepts the broker again only after its last session has expired.
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

    def _format(self, properties: Path) -> None:
        user = f"{_SCRAM}=[name={USER},password={self.access.password}]"
        arguments = ["format", "--cluster-id", CLUSTER_ID, "--config", str(properties), "--add-scram", user]
        tool = java.JavaProgram("kafka.tools.StorageTool", arguments, jars.class_path("kafka"), HEAP)
        # If LD_LIBRARY_PATH names a folder of its own, Java starts itself again, and then shows all arguments.
        environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
        command = java.hidden_argv(tool, self.folder)
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode != 0:
            raise UserError(f"Kafka could not format {self.folder / 'data'}:\n{done.stdout}{done.stderr}")

    def _admin(self) -> KafkaAdminClient:
        self.check()
        return KafkaAdminClient(**self.access.for_python(), client_id=USER)


def _login(module: str, password: str, *options: str) -> str:
    """Return the JAAS configuration of a login as ``USER``; ``options`` are further options of the login module."""
    return " ".join([module, "required", f'username="{USER}"', f'password="{password}"', *options]) + ";"
