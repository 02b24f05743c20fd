"""Asks a table's change history in Athena's words, by way of DuckDB."""

from __future__ import annotations

import datetime as dt
from typing import Any

import duckdb
import pyarrow as pa
import sqlglot

from headwater.contract.model import Contract, change_history
from headwater.definitions.history_queries import history_statements, history_views
from headwater.definitions.published_view import athena_type

DATABASE = "lake"


class Analyst:
    """Asks the history of a contract's table; ``stored`` are the rows that the history's table has."""

    def __init__(self, contract: Contract, stored: pa.Table) -> None:
        history = change_history(contract)
        assert history is not None
        self.connection = duckdb.connect()
        self.connection.execute(f"CREATE SCHEMA {DATABASE}; SET TimeZone = 'UTC'")
        columns = ", ".join(f'"{name}" {athena_type(type_)}' for name, type_ in history.lake_columns())
        create = sqlglot.transpile(f"CREATE TABLE {DATABASE}.{history.table} ({columns})", read="trino", write="duckdb")
        self.connection.execute(create[0])
        names = ", ".join(f'"{name}"' for name, _ in history.lake_columns())
        self.connection.register("stored", stored)
        self.connection.execute(f"INSERT INTO {DATABASE}.{history.table} SELECT {names} FROM stored")
        versions, span = history_views(contract, DATABASE)
        # A table, since it is asked a thousand times.
        self.connection.execute(f"CREATE TABLE {DATABASE}.{versions.name} AS {_in_duckdb(versions.sql)}")
        self.connection.execute(f"CREATE VIEW {DATABASE}.{span.name} AS {_in_duckdb(span.sql)}")
        statements = history_statements(contract, DATABASE)
        self._statements = {statement.name: _in_duckdb(statement.sql) for statement in statements}
        self._contract = contract
        self.rows = stored.num_rows

    def asks(self, statement: str, *instants: dt.datetime) -> list[dict[str, Any]]:
        """The rows that a prepared statement gives."""
        naive = [instant.astimezone(dt.UTC).replace(tzinfo=None) for instant in instants]
        answer = self.connection.execute(self._statements[statement], naive)
        names = [column[0] for column in answer.description or ()]
        return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]

    def as_of(self, instant: dt.datetime) -> list[dict[str, Any]]:
        """The table at an instant, which has no key twice."""
        rows = self.asks(f"{self._contract.table}_as_of", instant)
        assert len({tuple(row[name] for name in self._contract.key) for row in rows}) == len(rows), rows
        return rows

    def span(self) -> tuple[dt.datetime, dt.datetime]:
        """From when on and up to when all is known."""
        view = f"{DATABASE}.{self._contract.table}_history"
        (row,) = self.connection.execute(f"SELECT begins, complete_until FROM {view}").fetchall()
        return row[0].replace(tzinfo=dt.UTC), row[1].replace(tzinfo=dt.UTC)


def _in_duckdb(sql: str) -> str:
    (text,) = sqlglot.transpile(sql, read="athena", write="duckdb")
    return text
