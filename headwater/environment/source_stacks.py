"""Which stacks only one source needs, and which stay without it; and which stacks refuse another kind of source."""

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
"""The stacks that only one source needs, by their names within the environment. A stack comes after those it needs.

They are deleted in the reverse order. So connect goes first, and the connector drops its slot while the database is
there."""
_OF_A_KIND = {
    "database": {"connect"},
    "database-content": {"connect"},
    "key-value": {"glue-job"},
    "database-peering": {"connect", "database"},
}
"""The stacks that only one kind of a source has, and others. The other kind has taken their place if an app with these
others has not them."""
SHARED = ("lake", "monitoring", "bi")
"""The stacks that no source has for itself, by their names within the environment. Only some environments have bi."""
SOURCES_OUTPUT = "Sources"
"""The output of the lake's stack that names the sources it was deployed for, with commas between them."""
WITH_DATA = ("network", "database", "stream", "stream-topics", "key-value")
"""The stacks that hold a source's data, and the network in which its database and brokers are. They stay if the
environment keeps its data: their resources have fixed names, which would refuse a later stack."""


def refuse_another_kind(environment: Environment, there: Collection[str], wanted: Collection[str]) -> None:
    """Raise UserError if the account has stacks of the environment that another kind of its sources has made.

    ``there`` and ``wanted`` are names in CloudFormation. No deploy would update such stacks, and they need what this
    deploy would take away.
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
            f"expected none: bring the former file back and `headwater destroy --env {environment.name}` first, or "
            "make another environment (docs/how-to/existing-sources.md)"
        )


def left_over(source: str, there: Collection[str], wanted: Collection[str]) -> list[str]:
    """The stacks of a source that are ``there``, in the order of their deletion, if none of the source is ``wanted``.
    Names are those within the environment."""
    stacks = STACKS[source]
    if any(part in wanted for part in stacks):
        return []
    return [part for part in reversed(stacks) if part in there]


def divided(left: Sequence[str], environment: Environment) -> tuple[list[str], list[str]]:
    """Divide the stacks that are left over into those that are deleted, and those that stay with the data that the
    environment keeps."""
    kept = [part for part in left if part in WITH_DATA and not environment.deletes_data]
    return [part for part in left if part not in kept], kept
