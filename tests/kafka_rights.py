"""Translates the operations of Kafka's clients, as the broker's authorizer logs them, into MSK's IAM actions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from headwater.review.rights import Right
from rig.local.kafka import USER

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # The authorizer allows everything. It only logs each operation.
    "super.users": f"User:{USER}",
}
"""Broker properties that turn the authorizer on."""
LOGGER = "log4j.logger.kafka.authorizer.logger=DEBUG\n"
"""The line of the broker's logging configuration that lets the authorizer log."""

_ASKED = re.compile(r"is Allowed operation = (\w+) from host = \S+ (?:on|for) resource = (\w+):LITERAL:(\S+)")
_ARN = "arn:aws:kafka:{{region}}:{{account}}:{}/{{kafka}}{}"
# https://docs.aws.amazon.com/msk/latest/developerguide/kafka-actions.html
_ACTIONS = {
    ("Topic", "READ"): "ReadData",
    ("Topic", "WRITE"): "WriteData",
    ("Topic", "DESCRIBE"): "DescribeTopic",
    ("Topic", "CREATE"): "CreateTopic",
    ("Topic", "DESCRIBE_CONFIGS"): "DescribeTopicDynamicConfiguration",
    ("Topic", "ALTER_CONFIGS"): "AlterTopicDynamicConfiguration",
    ("Topic", "DELETE"): "DeleteTopic",
    ("Group", "READ"): "AlterGroup",
    ("Group", "DESCRIBE"): "DescribeGroup",
    ("Group", "DELETE"): "DeleteGroup",
    ("Cluster", "DESCRIBE"): "DescribeCluster",
    ("Cluster", "IDEMPOTENT_WRITE"): "WriteDataIdempotently",
}
# Operations between brokers and controllers.
_OWN = {("Cluster", "CLUSTER_ACTION")}


class Operation(NamedTuple):
    """An operation of a client."""

    kind: str
    """The resource's kind."""
    name: str
    """The resource's name."""
    verb: str
    """Kafka's word for the operation."""


def asked(log: Iterable[str]) -> set[Operation]:
    """The operations in a broker's log."""
    operations = set()
    for line in log:
        match = _ASKED.search(line)
        if match is not None:
            verb, kind, name = match.groups()
            operations.add(Operation(kind, name, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", verb).upper()))
    return operations


def rights(operations: Iterable[Operation], names: Mapping[str, str]) -> Iterator[Right]:
    """The rights that the operations need on MSK.

    ``names`` has the names on MSK of topics and groups that have other names here. Raises KeyError for an operation
    whose action is not known.
    """
    for kind, name, verb in operations:
        if (kind, verb) in _OWN:
            continue
        arn = _ARN.format(kind.lower(), "" if kind == "Cluster" else f"/{names.get(name, name)}")
        yield Right(f"kafka-cluster:{_ACTIONS[kind, verb]}", arn)
        yield Right("kafka-cluster:Connect", _ARN.format("cluster", ""))
