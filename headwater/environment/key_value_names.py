"""The names of the DynamoDB tables of an environment's contracts, and of the streams with their changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headwater.contract.model import DYNAMODB, Contract, of_database
from headwater.environment.model import Environment, ExistingTables
from headwater.yaml_files import refusal


@dataclass(frozen=True)
class KeyValueNames:
    """The names of a DynamoDB table and its stream."""

    table: str
    """The name of the DynamoDB table."""
    stream: str
    """The name of the Kinesis stream that gets the table's changes."""
    stream_key: str | None = None
    """The ARN of an existing stream's KMS key; None if no right to a key is needed."""


def key_value_names(environment: Environment, contracts: Iterable[Contract]) -> dict[str, KeyValueNames]:
    """Return the names of each DynamoDB contract's table and stream, by the contract's table.

    The environment's file names existing tables. For the source ``headwater-accounts`` a deployment in dev makes the
    table ``headwater-dev-accounts``. Raises UserError unless the file names a table for each of these contracts, and
    for no other contract.
    """
    written = of_database(contracts, DYNAMODB)
    settings = environment.dynamodb.key_value if written else environment.key_value
    if not isinstance(settings, ExistingTables):
        names = {
            contract.table: f"{environment.prefix}-{contract.source.table.removeprefix('headwater-')}"
            for contract in written
        }
        return {table: KeyValueNames(name, name) for table, name in names.items()}
    named = {table.contract: KeyValueNames(table.table, table.stream, table.stream_key) for table in settings.tables}
    expected = sorted(contract.table for contract in written)
    if sorted(named) != expected:
        raise refusal(
            f"environment {environment.name}",
            "key_value.tables",
            sorted(named),
            f"{expected!r}: a table for each DynamoDB contract, and for no other contract",
        )
    return {table: named[table] for table in expected}
