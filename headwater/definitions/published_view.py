"""Published views: a lake table as its readers see it, without tombstones."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot.errors import ErrorLevel

from headwater.contract.model import Contract
from headwater.contract.types import Type
from headwater.definitions.glue_table import column_comments, glue_column

# A view has these beside the contract's columns: they say how fresh a row is, keep the fields that no contract names,
# and name the columns whose values did not fit.
_KEPT = ("_source_ts", "_rest", "_unfit")


@dataclass(frozen=True)
class View:
    """A view of a Glue database."""

    name: str
    description: str
    sql: str
    """The view's SELECT, in Athena's SQL."""
    columns: list[tuple[str, Type]]
    """Name and lake type of each column, in order."""
    comments: Mapping[str, str]
    """The meaning of columns, by name."""

    def table_input(self, database: str) -> dict[str, Any]:
        """The ``TableInput`` of Glue's API, which CloudFormation takes as it is, for the view in that Glue database.

        Athena, as Trino, asks the original text alone: SQL and columns in its types, as JSON in a comment. Spark asks
        the expanded text alone. So both have the view.
        """
        definition = {
            "originalSql": self.sql,
            "catalog": "awsdatacatalog",
            "schema": database,
            "columns": [{"name": name, "type": athena_type(type_)} for name, type_ in self.columns],
        }
        encoded = base64.b64encode(json.dumps(definition).encode()).decode()
        return {
            "Name": self.name,
            "Description": self.description,
            "TableType": "VIRTUAL_VIEW",
            "Parameters": {"presto_view": "true", "comment": "Presto View"},
            "PartitionKeys": [],
            "StorageDescriptor": {
                "Columns": [glue_column(*column, self.comments) for column in self.columns],
                # An empty location would not do: Spark makes a path of it.
                "SerdeInfo": {},
            },
            "ViewOriginalText": f"/* Presto View: {encoded} */",
            "ViewExpandedText": self.in_spark(),
        }

    def in_spark(self) -> str:
        """Its SELECT in Spark's SQL."""
        query = sqlglot.parse_one(self.sql, read="athena")
        return query.sql(dialect="spark", unsupported_level=ErrorLevel.RAISE)


def published_view(contract: Contract, database: str) -> View:
    """The published view of a lake table."""
    return View(
        published_view_name(contract),
        f"{contract.description} Deleted rows are left out.",
        published_view_sql(contract, database),
        published_columns(contract),
        column_comments(contract),
    )


def published_view_name(contract: Contract) -> str:
    """The view's name, in the same Glue database as its table."""
    return f"{contract.table}_current"


def published_columns(contract: Contract) -> list[tuple[str, Type]]:
    """Name and lake type of the view's columns, in order."""
    own = {column.name for column in contract.columns}
    return [(name, type_) for name, type_ in contract.lake_columns() if name in own or name in _KEPT]


def published_view_sql(contract: Contract, database: str) -> str:
    """The view's SELECT in Athena's SQL: one row per key, tombstones hidden.

    ``database`` is the Glue database (locally: the schema) that holds the table.
    """
    columns = ",\n  ".join(quoted(name) for name, _ in published_columns(contract))
    table = qualified(database, contract.table)
    # A row whose ``_deleted`` is null is shown: only a tombstone is hidden.
    return f'SELECT\n  {columns}\nFROM {table}\nWHERE "_deleted" IS DISTINCT FROM true'


def athena_type(type_: Type) -> str:
    """A lake type as Athena's engine (Trino) spells it."""
    if type_.kind == "array" and type_.element is not None:
        return f"array({athena_type(type_.element)})"
    if type_.kind == "struct":
        return "row(" + ", ".join(f'"{name}" {athena_type(field)}' for name, field in type_.fields) + ")"
    names = {"int": "integer", "float": "real", "string": "varchar", "binary": "varbinary", "timestamp": "timestamp(3)"}
    return names.get(type_.kind, type_.ddl())


def quoted(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def qualified(database: str, name: str) -> str:
    """A table or view of a Glue database, in SQL."""
    return f"{quoted(database)}.{quoted(name)}"
