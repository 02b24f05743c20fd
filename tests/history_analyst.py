"""Queries a table's change history in Athena's SQL, by way of DuckDB."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa
import sqlglot

from headwater.contract.model import Contract, change_history
from headwater.definitions.history_queries import as_of_sql, history_statements, history_views
from headwater.definitions.published_view import athena_type

DATABASE = "lake"


class Analyst:
    """Queries the history of a contract's table. ``stored`` are the rows of the history's table."""

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
        # A table in place of the view, because tests query it a thousand times.
        self.connection.execute(f"CREATE TABLE {DATABASE}.{versions.name} AS {_in_duckdb(versions.sql)}")
        self.connection.execute(f"CREATE VIEW {DATABASE}.{span.name} AS {_in_duckdb(span.sql)}")
        statements = history_statements(contract, DATABASE)
        self._statements = {statement.name: _in_duckdb(statement.sql) for statement in statements}
        self._contract = contract
        self.rows = stored.num_rows

    def asks(self, statement: str, *instants: dt.datetime) -> list[dict[str, Any]]:
        """The rows that a prepared statement returns."""
        return _rows(self.connection.execute(self._statements[statement], [_naive(instant) for instant in instants]))

    def as_of(self, instant: dt.datetime) -> list[dict[str, Any]]:
        """The table at an instant, by the prepared statement. Fails if a key occurs twice."""
        return self._checked(self.asks(f"{self._contract.table}_as_of", instant))

    def as_of_each(self, instants: Sequence[dt.datetime]) -> list[list[dict[str, Any]]]:
        """The table at each of these instants, by the statement's own SQL.

        One query covers all instants, because each query takes milliseconds.
        """
        asked_for = [{"_nth": nth, "instant": _naive(instant)} for nth, instant in enumerate(instants)]
        self.connection.register("asked_for_all", pa.Table.from_pylist(asked_for))
        as_of = _in_duckdb(as_of_sql(self._contract, DATABASE, "asked_for_all.instant"))
        query = f"SELECT asked_for_all._nth, states.* FROM asked_for_all, LATERAL ({as_of}) AS states"
        states: list[list[dict[str, Any]]] = [[] for _ in instants]
        for row in _rows(self.connection.execute(query)):
            states[row.pop("_nth")].append(row)
        return [self._checked(rows) for rows in states]

    def _checked(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        assert len({tuple(row[name] for name in self._contract.key) for row in rows}) == len(rows), rows
        return rows

    def span(self) -> tuple[dt.datetime, dt.datetime]:
        """The first and the last instant for which the history is complete."""
        view = f"{DATABASE}.{self._contract.table}_history"
        (row,) = self.connection.execute(f"SELECT begins, complete_until FROM {view}").fetchall()
        return row[0].replace(tzinfo=dt.UTC), row[1].replace(tzinfo=dt.UTC)


def _rows(answer: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    names = [column[0] for column in answer.description or ()]
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]


def _naive(instant: dt.datetime) -> dt.datetime:
    return instant.astimezone(dt.UTC).replace(tzinfo=None)


def _in_duckdb(sql: str) -> str:
    (text,) = sqlglot.transpile(sql, read="athena", write="duckdb")
    return text
