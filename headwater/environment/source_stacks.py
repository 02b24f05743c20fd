"""The stacks that only one source needs. Some stay without their source, and some refuse another kind of source."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headwater.contract.model import DYNAMODB, POSTGRESQL
from headwater.environment.model import Environment
from headwater.errors import UserError

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
"""By source, the stacks that only this source needs, by their names without the prefix.

A stack comes after the stacks that it needs. Stacks are deleted in the reverse order. So connect is deleted first, and
the connector drops its slot while the database still exists.
"""
_OF_A_KIND = {
    "database": {"connect"},
    "database-content": {"connect"},
    "key-value": {"glue-job"},
    "database-peering": {"connect", "database"},
}
"""The stacks that only one kind of a source has, each with other stacks that both kinds have.

If an app has these other stacks but not the stack itself, it uses the other kind.
"""
SHARED = ("lake", "monitoring", "bi")
"""The stacks that all sources share, by their names without the prefix. Only some environments have bi."""
SOURCES_OUTPUT = "Sources"
"""The output of the lake's stack with the sources that it was deployed for, separated by commas."""
WITH_DATA = ("network", "database", "stream", "stream-topics", "key-value")
"""The stacks with a source's data, and the network of its database and brokers.

They stay if the environment keeps its data. Their resources have fixed names, so a second stack could not be made.
"""


def refuse_another_kind(environment: Environment, there: Collection[str], wanted: Collection[str]) -> None:
    """Raise UserError if the account has stacks that belong to another kind of one of the environment's sources.

    ``there`` and ``wanted`` are names in CloudFormation. A deploy would not update such stacks, and it would remove
    resources that these stacks need.
    """
    prefix = f"{environment.prefix}-"
    left = [
        f"{prefix}{part}"
        for part, others in _OF_A_KIND.items()
        if f"{prefix}{part}" in there
        and f"{prefix}{part}" not in wanted
        and {f"{prefix}{other}" for other in others} <= {*wanted}
    ]
    if left:
        raise UserError(
            f"{environment.name}: found the stacks {', '.join(left)} of another database.kind or key_value.kind, "
            f"expected none: first restore the former file and run `headwater destroy --env {environment.name}`, or "
            "make another environment (docs/how-to/existing-sources.md)"
        )


def left_over(source: str, there: Collection[str], wanted: Collection[str]) -> list[str]:
    """Return the stacks of a source that are ``there`` in the order of their deletion, if no stack of it is ``wanted``.

    All names are without the prefix.
    """
    stacks = STACKS[source]
    if any(part in wanted for part in stacks):
        return []
    return [part for part in reversed(stacks) if part in there]


def divided(left: Sequence[str], environment: Environment) -> tuple[list[str], list[str]]:
    """Divide the stacks that are left over into stacks to delete, and stacks that stay because of their data."""
    kept = [part for part in left if part in WITH_DATA and not environment.deletes_data]
    return [part for part in left if part not in kept], kept
