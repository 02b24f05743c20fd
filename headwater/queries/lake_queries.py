"""Answers queries in Athena's SQL: sqlglot writes them in DuckDB's, and DuckDB runs them on what hudi-rs reads.

There are the tables of all contracts, their histories and views, and the prepared statements of Athena's workgroup. A
table is read when a query first names it, or a view of it, and stays as it was read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import duckdb
import sqlglot
from sqlglot import expressions as exp
from sqlglot.errors import SqlglotError

from headwater.contract.model import Contract, lake_tables
from headwater.contract.types import Type
from headwater.definitions.glue_table import HUDI_COLUMNS
from headwater.definitions.history_queries import Statement, history_statements, history_views
from headwater.definitions.published_view import View, athena_type, published_view, quoted
from headwater.errors import UserError
from headwater.verify import Lake

DATABASE = "lake"
"""What the tables' database is called; names without one are looked for in it."""
_EXECUTE = re.compile(r"\s*EXECUTE\s+\"?(\w+)\"?(?:\s+USING\s+(.+?))?\s*;?\s*", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Answer:
    """What a query gives: the names of its columns, and its rows."""

    columns: list[str]
    rows: list[tuple[Any, ...]]


class LakeQueries:
    """The tables of these contracts in ``lake``, to be asked."""

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
        self._connection = duckdb.connect()
        self._connection.execute(f"CREATE SCHEMA {DATABASE}; USE {DATABASE}; SET TimeZone = 'UTC'")

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
        for name in _tables_of(query):
            self._provide(name)
        try:
            found = self._connection.execute(query.sql(dialect="duckdb"))
            return Answer([column[0] for column in found.description or ()], found.fetchall())
        except duckdb.Error as error:
            raise UserError(f"query: {error}") from None

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
        values = _read(f"SELECT {given}").expressions if given else []
        places = list(query.find_all(exp.Placeholder, bfs=False))
        if len(values) != len(places):
            raise UserError(
                f"EXECUTE {name}: found {len(values)} values, expected {len(places)}. {statement.description}"
            )
        for place, value in zip(places, values, strict=True):
            place.replace(value)
        return query

    def _provide(self, name: str) -> None:
        """Have a table or a view there, with all that it is made of."""
        if name in self._there:
            return
        view = self._views.get(name)
        if view is not None:
            query = _read(view.sql)
            for inner in _tables_of(query):
                self._provide(inner)
            self._connection.execute(f"CREATE VIEW {quoted(name)} AS {query.sql(dialect='duckdb')}")
        elif name in self._tables:
            self._load(self._tables[name])
        else:
            raise UserError(f"query: found {name}, expected a table or view out of: {', '.join(self.names)}")
        self._there.add(name)

    def _load(self, contract: Contract) -> None:
        typed = [*((name, Type("string")) for name in HUDI_COLUMNS), *contract.lake_columns()]
        columns = ", ".join(f"{quoted(name)} {athena_type(type_)}" for name, type_ in typed)
        # Athena's own CREATE TABLE is Hive's; its types in queries are Trino's.
        (create,) = sqlglot.transpile(f"CREATE TABLE {quoted(contract.table)} ({columns})", "trino", "duckdb")
        self._connection.execute(create)
        names = [name for name, _ in typed]
        for batch in self._lake.table(contract):
            # A file of before a column was added has none of it.
            taken = [name for name in names if name in batch.schema.names]
            self._connection.register("read", batch)
            listed = ", ".join(map(quoted, taken))
            self._connection.execute(f"INSERT INTO {quoted(contract.table)} ({listed}) SELECT {listed} FROM read")
            self._connection.unregister("read")


def _read(sql: str) -> exp.Query:
    try:
        queries = [query for query in sqlglot.parse(sql, read="athena") if query is not None]
    except SqlglotError as error:
        raise UserError(f"query: {error}") from None
    if len(queries) != 1 or not isinstance(queries[0], exp.Query):
        raise UserError(
            "query: found none, several or another statement, expected one SELECT in Athena's SQL, or EXECUTE"
        )
    return queries[0]


def _tables_of(query: exp.Query) -> Iterator[str]:
    """The tables and views that a query names, other than those of its own WITH."""
    own = {each.alias for each in query.find_all(exp.CTE)}
    for table in query.find_all(exp.Table):
        if table.name and (table.db or table.name not in own):
            yield table.name
