"""Which stacks only one source needs, and which of them stay when no contract is of that source any more."""

from __future__ import annotations

from collections.abc import Collection

from headwater.contract.model import DYNAMODB, POSTGRESQL

STACKS = {
    POSTGRESQL: (
        "network",
        "database",
        "database-content",
        "database-peering",
        "stream",
        "stream-topics",
        "emr",
        "emr-writer",
        "connect",
    ),
    DYNAMODB: ("key-value", "glue-job"),
}
"""The stacks that only one source needs, by their names within the environment. A stack comes after those it needs.

They are deleted in the reverse order. So the connector drops its slot while the database is there. connect goes
first, because monitoring imports from it. If nobody has deployed without the contracts yet, then CloudFormation
refuses that deletion, and nothing is lost."""
WITH_DATA = ("network", "database", "stream", "stream-topics", "key-value")
"""The stacks that hold a source's data, and the network in which its database and brokers are. They stay if the
environment keeps its data: their resources have fixed names, which would refuse a later stack."""


def left_over(source: str, there: Collection[str], wanted: Collection[str]) -> list[str]:
    """The stacks of a source that are ``there``, in the order of their deletion, if none of the source is ``wanted``.
    Names are those within the environment."""
    stacks = STACKS[source]
    if any(part in wanted for part in stacks):
        return []
    return [part for part in reversed(stacks) if part in there]
