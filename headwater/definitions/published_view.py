"""Published views, which show a lake table to readers without its tombstones."""

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

# The writer's columns that a view shows: the time of a row's last change, the fields without a column, and the names of
# the columns whose values did not fit.
_KEPT = ("_source_ts", "_rest", "_unfit")


@dataclass(frozen=True)
class View:
    """A view of a Glue database."""

    name: str
    """The view's name."""
    description: str
    """The view's description in the catalog."""
    sql: str
    """The view's SELECT, in Athena's SQL."""
    columns: list[tuple[str, Type]]
    """Name and lake type of each column, in order."""
    comments: Mapping[str, str]
    """The meaning of columns, by name."""

    def table_input(self, database: str) -> dict[str, Any]:
        """Return the ``TableInput`` of Glue's API for the view in a Glue database. CloudFormation takes it unchanged.

        Athena and Trino read only the original text: a comment with JSON, which holds their SQL and column types. Spark
        reads only the expanded text. So all three can query the view.
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
                # There is no location, because Spark would take an empty one for a path.
                "SerdeInfo": {},
            },
            "ViewOriginalText": f"/* Presto View: {encoded} */",
            "ViewExpandedText": self.in_spark(),
        }

    def in_spark(self) -> str:
        """Return the view's SELECT in Spark's SQL."""
        query = sqlglot.parse_one(self.sql, read="athena")
        return query.sql(dialect="spark", unsupported_level=ErrorLevel.RAISE)


def published_view(contract: Contract, database: str) -> View:
    """Return the published view of a lake table."""
    return View(
        published_view_name(contract),
        f"{contract.description} Deleted rows are left out.",
        published_view_sql(contract, database),
        published_columns(contract),
        column_comments(contract),
    )


def published_view_name(contract: Contract) -> str:
    """Return the view's name. The view is in the same Glue database as its table."""
    return f"{contract.table}_current"


def published_columns(contract: Contract) -> list[tuple[str, Type]]:
    """Return the name and the lake type of each column of the view, in order."""
    own = {column.name for column in contract.columns}
    return [(name, type_) for name, type_ in contract.lake_columns() if name in own or name in _KEPT]


def published_view_sql(contract: Contract, database: str) -> str:
    """Return the view's SELECT in Athena's SQL, which gives one row per key and hides tombstones.

    ``database`` is the Glue database with the table, or the schema in a local run.
    """
    columns = ",\n  ".join(quoted(name) for name, _ in published_columns(contract))
    table = qualified(database, contract.table)
    # Only tombstones are hidden, so a row whose ``_deleted`` is null is shown.
    return f'SELECT\n  {columns}\nFROM {table}\nWHERE "_deleted" IS DISTINCT FROM true'


def athena_type(type_: Type) -> str:
    """Return a lake type as Athena's engine (Trino) spells it."""
    if type_.kind == "array" and type_.element is not None:
        return f"array({athena_type(type_.element)})"
    if type_.kind == "struct":
        return "row(" + ", ".join(f'"{name}" {athena_type(field)}' for name, field in type_.fields) + ")"
    names = {"int": "integer", "float": "real", "string": "varchar", "binary": "varbinary", "timestamp": "timestamp(3)"}
    return names.get(type_.kind, type_.ddl())


def quoted(name: str) -> str:
    """Return a name in double quotes, for SQL."""
    return '"' + name.replace('"', '""') + '"'


def qualified(database: str, name: str) -> str:
    """Return the full name of a table or view in a Glue database, for SQL."""
    return f"{quoted(database)}.{quoted(name)}"
