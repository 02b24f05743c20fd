"""Answers queries in Athena's SQL: sqlglot translates them for DuckDB, which runs them on the rows that hudi-rs reads.

The queries can use the tables of all contracts, their histories and views, and the prepared statements of Athena's
workgroup. A table is read when a query first names it, or a view of it. Later queries use the same rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import duckdb
import sqlglot
from sqlglot import expressions as exp
from sqlglot.errors import ErrorLevel, SqlglotError

from headwater.contract.model import Contract, lake_tables
from headwater.contract.types import Type
from headwater.definitions.glue_table import HUDI_COLUMNS
from headwater.definitions.history_queries import Statement, history_statements, history_views
from headwater.definitions.published_view import View, athena_type, published_view, quoted
from headwater.errors import UserError
from headwater.queries.isolated_duckdb import isolated_duckdb
from headwater.verify import Lake

DATABASE = "lake"
"""The name of the database that holds the tables. A name without a database means a table in it."""
_EXECUTE = re.compile(r"\s*EXECUTE\s+\"?(\w+)\"?(?:\s+USING\s+(.+?))?\s*;?\s*", re.IGNORECASE | re.DOTALL)
_EXPECTED = "expected one SELECT in Athena's SQL, or EXECUTE"
_ALONE = "headwater sql reads the tables and views of the lake alone: no files, no addresses, no extensions."


@dataclass(frozen=True)
class Answer:
    """The result of a query."""

    columns: list[str]
    """The names of the columns."""
    rows: list[tuple[Any, ...]]
    """The rows, with values in the order of the columns."""


class LakeQueries:
    """Query the tables of some contracts in a lake."""

    def __init__(self, contracts: Sequence[Contract], lake: Lake) -> None:
        self._lake = lake
        self._tables = {contract.table: contract for contract in lake_tables(contracts)}
        self._views: dict[str, View] = {}
        self._statements: dict[str, Statement] = {}
        for contract in contracts:
            for view in (published_view(contract, DATABASE), *history_views(contract, DATABASE)):
                self._views[view.name] = view
            self._statements |= {each.name: each for each in history_statements(contract, DATABASE)}
        self._there: set[str] = set()
        self.without_rows: set[str] = set()
        """The tables without rows that a query has read, and those that no writer has written in this lake."""
        self._connection = isolated_duckdb(
            f"CREATE SCHEMA {DATABASE}",
            f"USE {DATABASE}",
            "SET TimeZone = 'UTC'",
            # Athena divides integers in the same way.
            "SET integer_division = true",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    @property
    def names(self) -> list[str]:
        """The tables and views."""
        return sorted([*self._tables, *self._views])

    @property
    def statements(self) -> list[str]:
        """The prepared statements."""
        return sorted(self._statements)

    def answer(self, sql: str) -> Answer:
        """The answer to one query, or to ``EXECUTE statement USING …``. Raises UserError."""
        query = self._parsed(sql)
        try:
            self._provide_all(query)
            found = self._connection.execute(_in_duckdb(query))
            return Answer([column[0] for column in found.description or ()], found.fetchall())
        except duckdb.Error as error:
            raise UserError(f"query: {_explained(error)}") from None

    def _parsed(self, sql: str) -> exp.Query:
        executed = _EXECUTE.fullmatch(sql)
        if executed is None:
            return _read(sql)
        name, given = executed.groups()
        statement = self._statements.get(name)
        if statement is None:
            known = ", ".join(self.statements) or "none: no contract has a history"
            raise UserError(f"EXECUTE: found {name}, expected a prepared statement out of: {known}")
        query = _read(statement.sql)
        values = _values(given) if given else []
        places = list(query.find_all(exp.Placeholder, bfs=False))
        if len(values) != len(places):
            raise UserError(
                f"EXECUTE {name}: found {len(values)} values, expected {len(places)}. {statement.description}"
            )
        for place, value in zip(places, values, strict=True):
            place.replace(value)
        return query

    def _provide_all(self, query: exp.Query) -> None:
        """Provide the tables and views that a query names, and remove the name of Athena's database from the query."""
        own = {each.alias.lower() for each in query.find_all(exp.CTE)}
        for source in query.find_all(exp.Table, exp.Lateral):
            if isinstance(source.this, exp.Func) and not isinstance(source.this, exp.Unnest):
                raise UserError(
                    f"query: found the function {_called(source.this)} in FROM, expected a table, a view, a subquery "
                    f"or UNNEST. {_ALONE}"
                )
        for table in query.find_all(exp.Table):
            name = table.name.lower()
            if name in self._views or name in self._tables:
                self._provide(name)
            elif name and (table.db or name not in own):
                raise UserError(f"query: found {table.name}, expected a table or view out of: {', '.join(self.names)}")
            table.set("db", None)
            table.set("catalog", None)

    def _provide(self, name: str) -> None:
        """Provide a table, or a view with all that it reads."""
        if name in self._there:
            return
        view = self._views.get(name)
        if view is not None:
            query = _read(view.sql)
            self._provide_all(query)
            self._connection.execute(f"CREATE OR REPLACE VIEW {quoted(name)} AS {_in_duckdb(query)}")
        else:
            self._load(self._tables[name])
        self._there.add(name)

    def _load(self, contract: Contract) -> None:
        typed = [*((name, Type("string")) for name in HUDI_COLUMNS), *contract.lake_columns()]
        columns = ", ".join(f"{quoted(name)} {athena_type(type_)}" for name, type_ in typed)
        # Athena's own CREATE TABLE is Hive's; its types in queries are Trino's.
        create = f"CREATE OR REPLACE TABLE {quoted(contract.table)} ({columns})"
        (create,) = sqlglot.transpile(create, "trino", "duckdb")
        self._connection.execute(create)
        names = [name for name, _ in typed]
        self.without_rows.add(contract.table)
        for batch in self._lake.table(contract):
            self.without_rows.discard(contract.table)
            # A file from before a column was added lacks this column.
            taken = [name for name in names if name in batch.schema.names]
            self._connection.register("read", batch)
            listed = ", ".join(map(quoted, taken))
            self._connection.execute(f"INSERT INTO {quoted(contract.table)} ({listed}) SELECT {listed} FROM read")
            self._connection.unregister("read")


def _values(given: str) -> list[exp.Expression]:
    """The values after USING."""
    query = _read(f"SELECT {given}")
    if any(value for name, value in query.args.items() if name not in ("kind", "expressions")):
        raise UserError(f"EXECUTE: found {given}, expected values with commas between them")
    return list(query.expressions)


def _read(sql: str) -> exp.Query:
    try:
        queries = [query for query in sqlglot.parse(sql, read="athena") if not isinstance(query, exp.Semicolon | None)]
    except SqlglotError as error:
        raise UserError(f"query: {error}\n{_EXPECTED}") from None
    if len(queries) != 1 or not isinstance(queries[0], exp.Query):
        raise UserError(f"query: found none, several or another statement, {_EXPECTED}")
    return queries[0]


def _in_duckdb(query: exp.Query) -> str:
    try:
        return query.sql(dialect="duckdb", unsupported_level=ErrorLevel.RAISE)
    except SqlglotError as error:
        raise UserError(f"query: this machine has no such function: {error}") from None


def _called(function: exp.Func) -> str:
    return str(function.name if isinstance(function, exp.Anonymous) else function.sql_name()).lower()


def _explained(error: duckdb.Error) -> str:
    """DuckDB's message, without its advice to load an extension, which is refused here."""
    message = str(error)
    if isinstance(error, duckdb.PermissionException):
        return f"{message.splitlines()[0]}. {_ALONE}"
    if isinstance(error, duckdb.CatalogException) and "LOAD " in message:
        return f"{message.splitlines()[0]} {_ALONE} Write the query without it, or ask Athena."
    return message
