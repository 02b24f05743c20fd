"""What Kafka's clients ask of a broker, as MSK's IAM actions: read from the log of a broker with an authorizer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from headwater.deployment.rights import Right

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Who asks is not what is wanted to know: everybody may do everything, and what is done is logged.
    "super.users": "User:ANONYMOUS",
}
"""The broker's properties with which it logs what is asked of it."""
LOGGER = "log4j.logger.kafka.authorizer.logger=DEBUG\n"
"""The line of its logging configuration that makes it do so."""

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
# What brokers and controllers ask of each other.
_OWN = {("Cluster", "CLUSTER_ACTION")}


def asked(log: Iterable[str]) -> set[tuple[str, str, str]]:
    """What a broker's log says was asked of it: kind of resource, its name, operation."""
    found = set()
    for line in log:
        match = _ASKED.search(line)
        if match is not None:
            operation, kind, name = match.groups()
            found.add((kind, name, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper()))
    return found


def rights(asked: Iterable[tuple[str, str, str]], names: Mapping[str, str]) -> Iterator[Right]:
    """The rights that this takes on MSK; ``names`` are those of topics and groups there where they differ. Raises
    KeyError on an operation that has no action here."""
    for kind, name, operation in asked:
        if (kind, operation) in _OWN:
            continue
        arn = _ARN.format(kind.lower(), "" if kind == "Cluster" else f"/{names.get(name, name)}")
        yield Right(f"kafka-cluster:{_ACTIONS[kind, operation]}", arn)
        yield Right("kafka-cluster:Connect", _ARN.format("cluster", ""))
