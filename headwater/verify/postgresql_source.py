"""PostgreSQL as a source: its tables as forms, all read in one snapshot, or in bunches of keys while others write."""

import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from headwater.contract.masks import masked, needed_key
from headwater.contract.model import HMAC, Column, Contract, Mask
from headwater.contract.transforms import Transform
from headwater.contract.types import SourceType, Type
from headwater.errors import UserError
from headwater.verify.arrow_forms import arrow_forms
from headwater.verify.bunches import Bunch, Found
from headwater.verify.compare import Field, key_taker, spelled_key
from headwater.verify.forms import (
    Form,
    Row,
    ToForm,
    clock,
    days,
    float_bits,
    guarded,
    integer,
    interval,
    micros,
    part_form,
    plain_text,
    unreadable,
    unscaled,
)
from headwater.verify.spelling import spelled

# PostgreSQL's text for a value depends on these settings; with these it is exact and the same on every server.
_SESSION = {
    "timezone": "UTC",
    "datestyle": "ISO, YMD",
    "intervalstyle": "iso_8601",
    "extra_float_digits": "1",
    "bytea_output": "hex",
}
_HELD_CHARACTERS = 32 * 1024 * 1024
# A share of a core is that of one process.
_ONE_PROCESS = {"max_parallel_workers_per_gather": "0"}


def load_queries(contracts: Iterable[Contract], folder: Path) -> dict[str, str]:
    """The SQL of each contract's ``verify_with``, by table; ``folder`` holds the contracts and these files.

    Raises UserError where a file cannot be read.
    """
    queries: dict[str, str] = {}
    for contract in contracts:
        if contract.verify_with is None:
            continue
        path = folder / contract.verify_with
        try:
            queries[contract.table] = path.read_text(encoding="utf-8")
        except OSError as error:
            raise UserError(
                f"{folder / contract.table}.yaml: verify_with: {path} cannot be read: {error.strerror}; "
                "expected an SQL file beside the contract."
            ) from None
    return queries


class PostgresqlSource:
    """A PostgreSQL database. ``queries`` holds the SQL of each ``verify_with`` by table (see ``load_queries``);
    ``mask_key`` is the key of masks. Reading in bunches takes at most a ``share`` of one of the server's cores."""

    def __init__(
        self,
        connection: psycopg.Connection,
        queries: Mapping[str, str],
        mask_key: bytes | None = None,
        share: float = 0.1,
    ) -> None:
        self._mask_key = mask_key
        self._share = share
        self._connection = connection
        self._queries = queries

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read all tables in one REPEATABLE READ transaction, so that they fit together while a workload runs.

        Raises ValueError where the connection is inside a transaction.
        """
        if self._connection.info.transaction_status is not psycopg.pq.TransactionStatus.IDLE:
            raise ValueError("verify needs a connection outside a transaction, to read all tables in one snapshot")
        with _snapshot(self._connection, _SESSION):
            yield

    def table(self, contract: Contract) -> "PostgresqlTable":
        """The rows of a contract's table, or those that its ``verify_with`` computes. Raises UserError where it needs
        the key of masks and there is none."""
        query = self._queries.get(contract.table)
        return PostgresqlTable(contract, self._connection, query, self._mask_key, self._share)


@contextmanager
def _snapshot(connection: psycopg.Connection, settings: Mapping[str, str]) -> Iterator[None]:
    """A transaction that reads, as of one moment, with these settings."""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        for name, value in settings.items():
            connection.execute("SELECT set_config(%s, %s, true)", (name, value))
        yield


class PostgresqlTable:
    """A contract's rows in PostgreSQL, as forms in the order of the contract's columns."""

    def __init__(
        self,
        contract: Contract,
        connection: psycopg.Connection,
        query: str | None,
        mask_key: bytes | None = None,
        share: float = 0.1,
    ) -> None:
        key = needed_key(contract, mask_key)
        masks = {mask.path[0].lower(): mask for mask in contract.masks}
        if contract.verify_with is not None and query is None:
            raise ValueError(f"{contract.table}: no text for verify_with: {contract.verify_with}")
        self.contract = contract
        self.fields = tuple(_field(column) for column in contract.columns)
        self._connection = connection
        self._query = query
        self._share = share
        self._seconds = 0.0
        # COPY gives every value as PostgreSQL's own text. Only arrays come as JSON, which is easier to parse.
        self._selected: list[tuple[str, bool]] = []
        self._plan: list[tuple[int, tuple[str, ...], bool, ToForm]] = []
        for column in contract.columns:
            source_type = SourceType.parse(column.source_type or "")
            wanted = (column.path[0], source_type.array)
            if wanted not in self._selected:
                self._selected.append(wanted)
            is_json = len(column.path) > 1 or column.type.kind in ("array", "struct")
            to_form = _source_form(column.type, source_type.base)
            if column.transform is not None:
                to_form = _part_form(column.transform, source_type.base)
            mask = masks.get(column.path[0].lower())
            if mask is not None:
                to_form = _masked_form(mask, key)
            self._plan.append((self._selected.index(wanted), column.path[1:], is_json, to_form))

    def rows(self) -> Iterator[Row]:
        """Stream the rows. Raises UserError where the source lacks the table or a column, or refuses to read it.

        Within a transaction, which goes on where the stream is left before its end."""
        with self._errors(), self._connection.transaction():
            for texts in self._copied(self._statement()):
                yield self.row(texts)

    def bunches(self, rows: int, pause: Callable[[float], None]) -> Iterator[Bunch]:
        """The rows in bunches of at most ``rows``, by ranges of their key, each as of a moment of its own. ``pause`` is
        called with the seconds to wait after each, so that the server spends the source's share of a core. Raises
        UserError as ``rows`` does, and where the key lies within a document."""
        self._seconds = 0.0
        ends = self._bunch_ends(rows)
        for after, end in itertools.pairwise((None, *ends, None)):
            ranges = [
                sql.SQL("({}) {} ({})").format(self._key(), sql.SQL(comparison), _literals(key))
                for comparison, key in ((">", after), ("<=", end))
                if key is not None
            ]
            bunch = self._bunch(sql.SQL(" AND ").join(ranges) if ranges else None)
            yield bunch
            pause(self._seconds * (1 / self._share - 1))
            self._seconds = 0.0

    def rows_at(self, asked: Sequence[Any]) -> Bunch:
        """The rows with these keys, of ``Found.asked`` or ``asked_of``, as of one moment. Raises UserError as ``rows``
        does."""
        keys = sql.SQL(", ").join(sql.SQL("({})").format(_literals(key)) for key in asked)
        return self._bunch(sql.SQL("({}) IN ({})").format(self._key(), keys))

    def asked_of(self, key: Row) -> tuple[str, ...] | None:
        """By what a row is asked for whose key the lake alone has, as forms; None where the source would not know it:
        what is masked, made of another value, or not of its type."""
        columns = [self.contract.column(name) for name in self.contract.key]
        masked_names = {mask.path[0].lower() for mask in self.contract.masks}
        if any(column.transform is not None or column.path[0].lower() in masked_names for column in columns):
            return None
        if any(value is None or isinstance(value, tuple) for value in key):
            return None
        return tuple(spelled_key(self, key, str).values())

    def _bunch_ends(self, rows: int) -> list[tuple[str, ...]]:
        """The key of every so many rows, in the order of the source."""
        numbered = sql.SQL("SELECT {key}, row_number() OVER (ORDER BY {key}) AS row_number_ FROM {table}").format(
            key=self._key(), table=self._table()
        )
        every = sql.SQL(
            "COPY (SELECT {key} FROM ({numbered}) AS numbered WHERE row_number_ % {rows} = 0 ORDER BY row_number_) "
            "TO STDOUT"
        ).format(key=self._key(), numbered=numbered, rows=sql.Literal(rows))
        with self._errors(), _snapshot(self._connection, _SESSION | _ONE_PROCESS):
            return [tuple(str(text) for text in texts) for texts in self._copied(every)]

    def _bunch(self, where: sql.Composable | None) -> Bunch:
        """The rows that meet a condition, or all."""
        key_of = key_taker(self)
        names = [name for name, _ in self._selected]
        places = [names.index(self.contract.column(name).path[0]) for name in self.contract.key]
        found: dict[Row, Found] = {}
        with self._errors(), _snapshot(self._connection, _SESSION | _ONE_PROCESS):
            for texts in self._copied(self._statement(where)):
                row = self.row(texts)
                found[key_of(row)] = Found(row, tuple(str(texts[place]) for place in places))
        return found

    def _key(self) -> sql.Composed:
        """The key's columns. Raises UserError."""
        paths = [self.contract.column(name).path for name in self.contract.key]
        inner = next((path for path in paths if len(path) > 1), None)
        if inner is not None:
            raise UserError(
                f"{self.contract.table}: found {'.'.join(inner)} in the key, expected columns of the source: what lies "
                "within a document is not read in bunches"
            )
        return sql.SQL(", ").join(sql.Identifier(path[0]) for path in paths)

    def _copied(self, statement: sql.Composed) -> Iterator[tuple[Any, ...]]:
        """A statement's rows. Some are held before they are given, so that the server's time is not that of who takes
        them."""
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            rows = copy.rows()
            while True:
                began = time.perf_counter()
                held, size = [], 0
                for texts in rows:
                    held.append(texts)
                    size += sum(len(text) for text in texts if text)
                    if size >= _HELD_CHARACTERS:
                        break
                self._seconds += time.perf_counter() - began
                if not held:
                    return
                yield from held

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            origin = self.contract.verify_with or self.contract.source.table
            raise UserError(
                f"{self.contract.table}: reading {origin} failed: {error}. It must have the contract's columns, and "
                "the user needs SELECT on the tables that are read."
            ) from error

    def _statement(self, where: sql.Composable | None = None) -> sql.Composed:
        selected = [
            sql.SQL("to_json({})" if array else "{}").format(sql.Identifier(name)) for name, array in self._selected
        ]
        condition = sql.SQL("") if where is None else sql.SQL(" WHERE {}").format(where)
        return sql.SQL("COPY (SELECT {} FROM {}{}) TO STDOUT").format(
            sql.SQL(", ").join(selected), self._table(), condition
        )

    def _table(self) -> sql.Composable:
        if self._query is None:
            return sql.Identifier(self.contract.source.schema, self.contract.source.name)
        # The line end closes a comment on the query's last line.
        return sql.SQL("(" + self._query.strip().rstrip(";") + "\n) AS recomputed")

    def row(self, texts: Sequence[str | None]) -> Row:
        """One row's forms from PostgreSQL's texts, which come in the order in which the statement selects them."""
        documents: dict[int, Any] = {}
        row: list[Form] = []
        for at, path, is_json, to_form in self._plan:
            value: Any = texts[at]
            if is_json and value is not None:
                if at not in documents:
                    documents[at] = _document(value)
                value = documents[at]
                for name in path:
                    value = value.get(name) if isinstance(value, dict) else None
            row.append(None if value is None else to_form(value))
        return tuple(row)


def _literals(key: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Literal, key))


def _document(text: str) -> Any:
    """Parsed JSON; the text itself where it is too deep for Python. The lake calls such a document unfit."""
    try:
        return json.loads(text, parse_float=Decimal, parse_int=_json_integer)
    except RecursionError:
        return text


def _json_integer(text: str) -> int | Decimal:
    # A float may be -0, which int cannot hold; and Python makes no int of more than 4300 digits.
    return Decimal(text) if text == "-0" or len(text) > 4_000 else int(text)


def _field(column: Column) -> Field:
    base = "" if column.transform is not None else SourceType.parse(column.source_type or "").base
    text = _text_form(base)
    return Field(
        column.name,
        # A number that the lake holds as text is compared as that text.
        partial(arrow_forms, type_=column.type, text=plain_text if text is _number_text else text),
        partial(spelled, type_=column.type),
    )


def _part_form(transform: Transform, base: str) -> ToForm:
    part = part_form(transform)
    is_time = base == "date" or base.startswith("timestamp")
    return guarded(lambda value: unreadable(value) if is_time and value.endswith(" BC") else part(value))


def _masked_form(mask: Mask, key: bytes) -> ToForm:
    return guarded(lambda value: plain_text(masked(value, key)) if mask.how == HMAC else None)


def _source_form(type_: Type, base: str) -> ToForm:
    """The function that turns a value, PostgreSQL's text or parsed JSON but not null, into its form."""
    if type_.kind == "array" and type_.element is not None:
        element = _source_form(type_.element, base)
        return lambda value: (
            tuple(None if item is None else element(item) for item in value)
            if isinstance(value, list)
            else unreadable(value)
        )
    if type_.kind == "struct":
        fields = [(name, _source_form(field_type, "")) for name, field_type in type_.fields]
        return lambda value: (
            tuple(None if value.get(name) is None else to_form(value[name]) for name, to_form in fields)
            if isinstance(value, dict)
            else unreadable(value)
        )
    return guarded(_scalar_form(type_, base))


def _scalar_form(type_: Type, base: str) -> ToForm:
    if type_.kind == "decimal":
        return lambda value: unscaled(Decimal(value), type_.scale)
    return {
        "int": integer,
        "bigint": integer,
        "float": lambda value: float_bits(float(value), single=True),
        "double": lambda value: float_bits(float(value), single=False),
        "boolean": _boolean,
        "string": _text_form(base),
        "binary": lambda value: bytes.fromhex(value.removeprefix("\\x")).hex(),
        "date": days,
        "timestamp": micros,
    }[type_.kind]


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    return {"t": True, "f": False}[value] if value in ("t", "f") else unreadable(value)


def _text_form(base: str) -> ToForm:
    """The function that turns a text into its form: as it is, except for dates, times and intervals, which the two
    sides write differently."""
    if base == "date":
        return days
    if base.startswith("timestamp"):
        return micros
    if base.startswith("time"):
        return clock
    if base == "interval":
        return interval
    return _number_text if base in ("smallint", "integer", "bigint", "numeric") else plain_text


def _number_text(value: Any) -> str:
    """A number as PostgreSQL writes it; out of an array it comes as a JSON number."""
    return format(value, "f") if isinstance(value, Decimal) else str(value)
