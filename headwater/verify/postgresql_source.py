"""PostgreSQL as a source: its tables as forms, all read in one snapshot, or in bunches of keys while others write."""

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from functools import cached_property, partial
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
from headwater.verify.bunches import Bunch, Found, Pace, bunch_of
from headwater.verify.compare import Field, spelled_key
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
    is_interval,
    micros,
    part_form,
    plain_text,
    unreadable,
    unscaled,
)
from headwater.verify.paced_reader import (
    PASS_MINUTES,
    STATEMENT_MINUTES,
    PacedReader,
    Piece,
    Texts,
    Work,
    copied,
    snapshot,
)
from headwater.verify.postgresql_errors import told
from headwater.verify.spelling import spelled, spelled_date, spelled_interval, spelled_moment, spelled_time

_FIRST_ROWS = 1_000
_KEYS_AT_ONCE = 500
# The columns of an index by whose order a table can be read in parts, without leaving a row out: no two rows are alike
# in them, and none has a null there.
_ORDERS = """
SELECT array_agg(attname::text ORDER BY place)
FROM pg_index
CROSS JOIN generate_series(0, indnkeyatts - 1) AS place
LEFT JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[place] AND attnum > 0
WHERE indrelid = to_regclass(%s) AND indisunique AND indisvalid AND indpred IS NULL
GROUP BY indexrelid, indisprimary
HAVING bool_and(coalesce(attnotnull AND attname = ANY (%s), false))
ORDER BY indisprimary DESC, indexrelid
LIMIT 1
"""


def load_queries(contracts: Iterable[Contract], folder: Path) -> dict[str, str]:
    """The SQL of each contract's ``verify_with``, by table; ``folder`` holds the contracts and these files.

    Raises UserError if a file cannot be read.
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
    ``mask_key`` is the key of masks. Reading in bunches takes at most a ``share`` of one of the server's cores: all its
    tables have one ``pace``."""

    def __init__(
        self,
        connection: psycopg.Connection,
        queries: Mapping[str, str],
        mask_key: bytes | None = None,
        share: float = 0.1,
        pace: Pace | None = None,
    ) -> None:
        self._mask_key = mask_key
        self._share = share
        self._pace = pace or Pace()
        self._connection = connection
        self._queries = queries

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read all tables in one REPEATABLE READ transaction, so that they fit together while a workload runs.

        Raises ValueError if the connection is inside a transaction.
        """
        if self._connection.info.transaction_status is not psycopg.pq.TransactionStatus.IDLE:
            raise ValueError("verify needs a connection outside a transaction, to read all tables in one snapshot")
        with snapshot(self._connection):
            yield

    def table(self, contract: Contract) -> "PostgresqlTable":
        """The rows of a contract's table, or those that its ``verify_with`` computes. Raises UserError if it needs
        the key of masks and there is none."""
        query = self._queries.get(contract.table)
        return PostgresqlTable(contract, self._connection, query, self._mask_key, self._share, self._pace)


class PostgresqlTable:
    """A contract's rows in PostgreSQL, as forms in the order of the contract's columns."""

    def __init__(
        self,
        contract: Contract,
        connection: psycopg.Connection,
        query: str | None,
        mask_key: bytes | None = None,
        share: float = 0.1,
        pace: Pace | None = None,
    ) -> None:
        key = needed_key(contract, mask_key)
        masks = {mask.path[0].lower(): mask for mask in contract.masks}
        if contract.verify_with is not None and query is None:
            raise ValueError(f"{contract.table}: no text for verify_with: {contract.verify_with}")
        self.contract = contract
        self.fields = tuple(_field(column) for column in contract.columns)
        self._connection = connection
        self._query = query
        self.pace = pace or Pace()
        self._reader = PacedReader(connection, share, self.pace)
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
        """Stream the rows. Raises UserError if the source lacks the table or a column, or refuses to read it.

        Within a transaction, which goes on where the stream is left before its end."""
        with self._errors(), self._connection.transaction():
            for piece in copied(self._connection, self._statement(), Work()):
                yield from map(self.row, piece.rows)

    def bunches(self, rows: int, after: Any | None = None) -> Iterator[Bunch]:
        """Stream the rows in bunches of at most ``rows``, in the order of an index of their key.

        Each bunch is as of a moment of its own, and has fewer rows if they are long. The stream begins after the row
        whose ``Found.asked`` is ``after``. A ``verify_with``, and a table without such an index, is read from its
        beginning by one statement, into a temporary file. Raises UserError as ``rows`` does, and if a key is null.
        """
        order = self._order
        if order is None:
            yield from self._in_one_pass(self._statement(), rows)
            return
        limit = min(rows, _FIRST_ROWS)
        while True:
            last = None if after is None else [after[self._key_names.index(name)] for name in order]
            with self._errors(STATEMENT_MINUTES):
                piece, left = self._reader.part(self._next_statement(order, last, limit))
            yield self._bunch(piece)
            if len(piece.rows) + left < limit:
                return
            after = self._asked(piece.rows[-1])
            limit = min(rows, piece.fitting())

    def rows_at(self, asked: Sequence[Any]) -> Iterator[Bunch]:
        """The rows with these keys, of ``Found.asked`` or ``asked_of``, in parts as of one moment each; all at once
        if ``bunches`` takes one statement. Raises UserError as ``rows`` does."""
        if not asked:
            return
        if self._order is None:
            keys = self._readable(asked)
            if keys:
                yield from self._in_one_pass(self._statement(self._is_among(keys)), len(keys))
            return
        waiting = [asked[at : at + _KEYS_AT_ONCE] for at in range(0, len(asked), _KEYS_AT_ONCE)]
        while waiting:
            keys = self._readable(waiting.pop(0))
            if not keys:
                yield {}
                continue
            with self._errors(STATEMENT_MINUTES):
                piece, left = self._reader.part(self._statement(self._is_among(keys)))
            if left and len(keys) > 1:
                half = len(keys) // 2
                waiting[:0] = [keys[:half], keys[half:]]
                yield {}
            else:
                yield self._bunch(piece)

    def asked_of(self, key: Row) -> tuple[str, ...] | None:
        """Return the key of a row that only the lake has, as ``rows_at`` takes it.

        Returns None for a key that is not of the source's type.
        """
        if any(value is None or (isinstance(value, tuple) and not is_interval(value)) for value in key):
            return None
        return tuple(spelled_key(self, key, str).values())

    @cached_property
    def _key_names(self) -> tuple[str, ...]:
        """The key's columns in the source."""
        return tuple(self.contract.column(name).path[0] for name in self.contract.key)

    @cached_property
    def _order(self) -> tuple[str, ...] | None:
        """The columns of an index, all of the key, by which the table can be read in parts; None if there is none.
        Raises UserError."""
        if self._query is not None:
            return None
        table = self._table().as_string(self._connection)
        with self._errors():
            found = self._connection.execute(_ORDERS, (table, list(self._key_names))).fetchone()
        return None if found is None else tuple(found[0])

    def _readable(self, keys: Sequence[tuple[str, ...]]) -> Sequence[tuple[str, ...]]:
        """Return the keys that PostgreSQL can read as values of their columns.

        The source has no row of the other keys, because it can read its own values. They come from the lake.
        """
        with self._errors(STATEMENT_MINUTES):
            try:
                self._reader.run(self._probe(self._is_among(keys)))
                return keys
            except (psycopg.DataError, UnicodeEncodeError):
                # If this fails as well, the keys are not the cause, and the error is raised.
                self._reader.run(self._probe(sql.SQL("true")))
        half = len(keys) // 2
        return [*self._readable(keys[:half]), *self._readable(keys[half:])] if half else []

    def _in_one_pass(self, statement: sql.Composed, rows: int) -> Iterator[Bunch]:
        try:
            with self._errors(PASS_MINUTES):
                yield from map(self._bunch, self._reader.in_one_pass(statement, rows))
        except OSError as error:
            raise UserError(
                f"{self.contract.table}: found no room for its rows in {tempfile.gettempdir()}: {error.strerror}; "
                "expected room for all that one statement gives: set TMPDIR to where there is"
            ) from None

    def _bunch(self, piece: Piece) -> Bunch:
        return bunch_of(self, (Found(self.row(texts), self._asked(texts)) for texts in piece.rows))

    def _asked(self, texts: Texts) -> tuple[str, ...]:
        """Return the key that reads a row again. Raises UserError if a part of it is null."""
        names = [name for name, _ in self._selected]
        key = {name: texts[names.index(name)] for name in self._key_names}
        null = next((name for name, text in key.items() if text is None), None)
        if null is not None:
            raise UserError(
                f"{self.contract.table}: found a row whose {null} is null, expected a value: it is of the key"
            )
        return tuple(str(text) for text in key.values())

    @contextmanager
    def _errors(self, minutes: int | None = None) -> Iterator[None]:
        """Raises UserError for what PostgreSQL says; ``minutes`` are those that a statement may take."""
        try:
            yield
        except psycopg.Error as error:
            origin = self.contract.verify_with or self.contract.source.table
            advice = "It must have the contract's columns, and the user needs SELECT on the tables that are read."
            if minutes is not None and isinstance(error, psycopg.errors.QueryCanceled):
                advice = f"A statement may take {minutes} minutes: see what it waits for, or what makes it slow."
            # Not from it: its own text may repeat values of rows.
            raise UserError(f"{self.contract.table}: reading {origin} failed: {told(error)}. {advice}") from None

    def _is_among(self, keys: Sequence[tuple[str, ...]]) -> sql.Composed:
        listed = sql.SQL(", ").join(sql.SQL("({})").format(_literals(key)) for key in keys)
        return sql.SQL("({}) IN ({})").format(_names(self._key_names), listed)

    def _probe(self, where: sql.Composable) -> sql.Composed:
        """A statement for which PostgreSQL reads the condition, and no row."""
        return sql.SQL("SELECT FROM {} WHERE {} LIMIT 0").format(self._table(), where)

    def _next_statement(self, order: Sequence[str], after: Sequence[str] | None, limit: int) -> sql.Composed:
        """The first rows behind a key, in the order of an index."""
        behind = None if after is None else sql.SQL("({}) > ({})").format(_names(order), _literals(after))
        ordered = sql.SQL(" ORDER BY {} LIMIT {}").format(_names(order), sql.Literal(limit))
        return self._statement(behind, ordered)

    def _statement(self, where: sql.Composable | None = None, ordered: sql.Composable | None = None) -> sql.Composed:
        selected = [
            sql.SQL("to_json({})" if array else "{}").format(sql.Identifier(name)) for name, array in self._selected
        ]
        condition = sql.SQL("") if where is None else sql.SQL(" WHERE {}").format(where)
        return sql.SQL("COPY (SELECT {} FROM {}{}{}) TO STDOUT").format(
            sql.SQL(", ").join(selected), self._table(), condition, ordered or sql.SQL("")
        )

    def _table(self) -> sql.Composable:
        if self._query is None:
            return sql.Identifier(self.contract.source.schema, self.contract.source.name)
        # The line end closes a comment on the query's last line.
        return sql.SQL("(" + self._query.strip().rstrip(";") + "\n) AS recomputed")

    def row(self, texts: Texts) -> Row:
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


def _names(names: Iterable[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _literals(key: Iterable[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Literal, key))


def _document(text: str) -> Any:
    """Parsed JSON; the text itself if it is too deep for Python. The lake calls such a document unfit."""
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
        _spell(column.type, base),
    )


def _spell(type_: Type, base: str) -> Callable[[Form], str]:
    """The function that spells a form, a time that the lake holds as text among them, as PostgreSQL reads it."""
    times: dict[str, Callable[[Any], str]] = {
        "date": spelled_date,
        "time without time zone": spelled_time,
        "timestamp without time zone": spelled_moment,
        "timestamp with time zone": partial(spelled_moment, zone="Z"),
    }
    if type_.kind != "string" or base not in (*times, "interval"):
        return partial(spelled, type_=type_)
    if base == "interval":
        return lambda form: spelled_interval(form) if is_interval(form) else spelled(form, type_)
    return lambda form: times[base](form) if isinstance(form, int) else spelled(form, type_)


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
