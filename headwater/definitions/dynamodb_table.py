"""The key of a contract's DynamoDB table."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.contract.model import Contract
from headwater.errors import UserError


@dataclass(frozen=True)
class KeyAttribute:
    """An attribute of a table's key."""

    name: str
    """The attribute's name."""
    type: str
    """The attribute's type: S, N or B."""


def key_attributes(contract: Contract) -> list[KeyAttribute]:
    """Return the partition key and, if there is one, the sort key, in the contract's order.

    Raises ``UserError`` if the contract's key has more than two columns.
    """
    if len(contract.key) > 2:
        raise UserError(
            f"contract {contract.table}: key: found {', '.join(contract.key)}, expected one or two columns: the "
            "partition key and the sort key of a DynamoDB table"
        )
    columns = [contract.column(name) for name in contract.key]
    return [KeyAttribute(column.path[0], str(column.source_type)) for column in columns]
