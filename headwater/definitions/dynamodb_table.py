"""What a contract says of its DynamoDB table: the key and the time to live. The template has them and so has the local
run."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.contract.model import Contract
from headwater.errors import UserError

# The column whose attribute is the table's time to live, in every contract that has it.
TTL_COLUMN = "expires_at"


@dataclass(frozen=True)
class KeyAttribute:
    """An attribute of a table's key; ``type`` is S, N or B."""

    name: str
    type: str


def key_attributes(contract: Contract) -> list[KeyAttribute]:
    """The partition key and, where there is one, the sort key, in the contract's order.

    Raises ``UserError`` where the contract's key has more than two columns.
    """
    if len(contract.key) > 2:
        raise UserError(
            f"contract {contract.table}: key: found {', '.join(contract.key)}, expected one or two columns: the "
            "partition key and the sort key of a DynamoDB table"
        )
    columns = [contract.column(name) for name in contract.key]
    return [KeyAttribute(column.path[0], str(column.source_type)) for column in columns]


def ttl_attribute(contract: Contract) -> str | None:
    """The attribute of the table's time to live; None where the contract has no column ``expires_at``."""
    return next((column.path[0] for column in contract.columns if column.name == TTL_COLUMN), None)
