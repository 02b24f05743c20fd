"""How the DynamoDB tables of an environment's contracts are called, and the streams that their changes go to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headwater.contract.model import DYNAMODB, Contract, of_database
from headwater.environment.model import Environment, ExistingTables
from headwater.yaml_files import refusal


@dataclass(frozen=True)
class KeyValueNames:
    """The names of a table and of its stream, and the ARN of the stream's key if somebody else has made it."""

    table: str
    stream: str
    stream_key: str | None = None


def key_value_names(environment: Environment, contracts: Iterable[Contract]) -> dict[str, KeyValueNames]:
    """Return the names of each DynamoDB contract's table and stream, by the contract's table.

    The environment names existing tables. A deployment makes others: ``headwater-dev-accounts`` in dev for the source
    ``headwater-accounts``. Raises UserError if the environment lacks one of these contracts' tables, or names another
    contract's.
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
            f"{expected!r}: a table for each DynamoDB contract, and for no other",
        )
    return {table: named[table] for table in expected}
