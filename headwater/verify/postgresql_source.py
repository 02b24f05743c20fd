"""PostgreSQL as a source: its tables as forms, all read in one snapshot, or in bunches of keys while others write."""

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from functools import cached_property, partial
from pathlib import Path
from typing import Any, LiteralString

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
from headwater.verify.spelling import (
    hides,
    spelled,
    spelled_date,
    spelled_hidden,
    spelled_interval,
    spelled_moment,
    spelled_time,
)

_FIRST_ROWS = 1_000
_KEYS_AT_ONCE = 500
# The columns of a unique index without nulls. In its order a table can be read in parts without leaving a row out.
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
_COLUMNS = """
SELECT attname::text
FROM pg_attribute
JOIN pg_class ON pg_class.oid = attrelid
JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = %s AND relname = %s AND attnum > 0 AND NOT attisdropped
ORDER BY attnum
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
    """A PostgreSQL database.

    Args:
        connection: Reads the database; it is in no transaction.
        queries: The SQL of each ``verify_with``, by table (see ``load_queries``).
        mask_key: The key of masks.
        share: The largest share of one server core that reading in bunches may use.
        pace: The pace that all tables of the database share.
    """

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

        Raises ValueError if the connection is inside a transaction, and UserError if it is lost.
        """
        if self._connection.info.transaction_status is not psycopg.pq.TransactionStatus.IDLE:
            raise ValueError("verify needs a connection outside a transaction, to read all tables in one snapshot")
        try:
            with snapshot(self._connection):
                yield
        except psycopg.Error as error:
            raise UserError(f"PostgreSQL: the connection does not work: {told(error)}. Run the command again") from None

    def table(self, contract: Contract) -> "PostgresqlTable":
        """Return the rows of a contract's table, or the rows that its ``verify_with`` computes.

        Raises UserError if the table needs the key of masks and there is none.
        """
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
        self.fields = tuple(_field(contract, column) for column in contract.columns)
        self._connection = connection
        self._query = query
        self.pace = pace or Pace()
        self._reader = PacedReader(connection, share, self.pace)
        # COPY gives every value as PostgreSQL's own text. Only arrays come as JSON, which is easier to parse.
        self._selected: list[tuple[str, LiteralString]] = []
        self._plan: list[tuple[int, tuple[str, ...], bool, ToForm]] = []
        for column in contract.columns:
            source_type = SourceType.parse(column.source_type or "")
            wanted = (column.path[0], _selection(source_type))
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
        """Stream the rows, within a transaction that goes on if the stream is left before its end.

        Raises UserError if the source lacks the table or a column, or refuses to read it.
        """
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
        """Stream the rows with these keys in parts, each as of one moment.

        The keys come from ``Found.asked`` or ``asked_of``. If ``bunches`` takes one statement, there is one part.
        Raises UserError as ``rows`` does.
        """
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
        """The columns of an index, all of the key, by which the table can be read in parts.

        It is None if there is no such index. Raises UserError.
        """
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
                "expected room for the rows of one statement: set TMPDIR to a larger disk"
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
                f"{self.contract.table}: found a row whose {null} is null, expected a value in a key column"
            )
        return tuple(str(text) for text in key.values())

    @contextmanager
    def _errors(self, minutes: int | None = None) -> Iterator[None]:
        """Turn an error of PostgreSQL into a UserError; a statement may take ``minutes`` at most."""
        try:
            yield
        except psycopg.Error as error:
            # Without the error as a cause, because its own text may repeat values of rows.
            raise UserError(self._said(error, minutes)) from None

    def _said(self, error: psycopg.Error, minutes: int | None) -> str:
        """What an error means for the contract, and what to do."""
        table, source = self.contract.table, self.contract.source
        if self._query is None and isinstance(error, psycopg.errors.UndefinedColumn):
            found = self._columns()
            if any(column.path[0] not in found for column in self.contract.columns):
                return self._missing_columns(found)
        if self._query is None and isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.InvalidSchemaName):
            return (
                f"contracts/{table}.yaml: source.table: found no table {source.table} in the database "
                f"{self._connection.info.dbname}, expected the contract's: docs/runbooks/gone-table.md says what to do "
                "about a table that was renamed or dropped"
            )
        origin = self.contract.verify_with or source.table
        return f"{table}: reading {origin} failed: {told(error)}. {self._advice(error, minutes)}"

    def _advice(self, error: psycopg.Error, minutes: int | None) -> str:
        """What to do about an error that no field of the contract explains."""
        user, source = self._connection.info.user, self.contract.source
        if self._connection.closed:
            return "The connection is lost: run the command again."
        if isinstance(error, psycopg.errors.QueryCanceled) and minutes is not None:
            return f"A statement may take {minutes} minutes: see what it waits for, or what makes it slow."
        if isinstance(error, psycopg.errors.LockNotAvailable):
            return "Somebody has locked the table: find the process in pg_locks, and compare again when it has ended."
        if self._query is not None:
            return (
                "The query must give the contract's columns, and name each table with its schema. "
                f"{user} needs SELECT on these tables."
            )
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            return (
                f"As the table's owner: GRANT USAGE ON SCHEMA {source.schema} TO {user}; "
                f"GRANT SELECT ON {source.table} TO {user}"
            )
        return (
            f"{user} must be able to read all of the contract's columns: `headwater contract check` compares the "
            "contract with its source."
        )

    def _columns(self) -> list[str]:
        """The names of the source table's columns; none if they cannot be read."""
        try:
            rows = self._connection.execute(_COLUMNS, (self.contract.source.schema, self.contract.source.name))
            return [str(name) for (name,) in rows]
        except psycopg.Error:
            return []

    def _missing_columns(self, found: Sequence[str]) -> str:
        """Name the contract's columns that the source lacks, and the columns of the source that they may be by now."""
        contract = self.contract
        missing = "; ".join(
            f"contracts/{contract.table}.yaml: columns: {column.name}: found no column {column.path[0]} in "
            f"{contract.source.table}, expected it"
            for column in contract.columns
            if column.path[0] not in found
        )
        named = [column.path[0] for column in contract.columns]
        others = [name for name in found if name not in named and not hides(contract, (name,))]
        renamed = f"If it is {' or '.join(others)} now" if others else "If it was renamed"
        return (
            f"{missing}. {renamed}, write `from: NEW_NAME` and keep `name`. If it was dropped, take it out of the "
            "contract: docs/how-to/columns.md"
        )

    def _is_among(self, keys: Sequence[tuple[str, ...]]) -> sql.Composed:
        listed = sql.SQL(", ").join(sql.SQL("({})").format(_literals(key)) for key in keys)
        return sql.SQL("({}) IN ({})").format(_names(self._key_names), listed)

    def _probe(self, where: sql.Composable) -> sql.Composed:
        """A statement that makes PostgreSQL parse the condition, but read no row."""
        return sql.SQL("SELECT FROM {} WHERE {} LIMIT 0").format(self._table(), where)

    def _next_statement(self, order: Sequence[str], after: Sequence[str] | None, limit: int) -> sql.Composed:
        """The first rows after a key, in the order of an index."""
        behind = None if after is None else sql.SQL("({}) > ({})").format(_names(order), _literals(after))
        ordered = sql.SQL(" ORDER BY {} LIMIT {}").format(_names(order), sql.Literal(limit))
        return self._statement(behind, ordered)

    def _statement(self, where: sql.Composable | None = None, ordered: sql.Composable | None = None) -> sql.Composed:
        selected = [sql.SQL(selection).format(sql.Identifier(name)) for name, selection in self._selected]
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
    """Parsed JSON; the text itself if it is not JSON, or too deep for Python. The lake calls such a document unfit."""
    try:
        return json.loads(text, parse_float=Decimal, parse_int=_json_integer)
    except (RecursionError, ValueError):
        return text


def _json_integer(text: str) -> int | Decimal:
    # A float may be -0, which int cannot hold; and Python makes no int of more than 4300 digits.
    return Decimal(text) if text == "-0" or len(text) > 4_000 else int(text)


def _field(contract: Contract, column: Column) -> Field:
    base = "" if column.transform is not None else SourceType.parse(column.source_type or "").base
    text = _text_form(base)
    return Field(
        column.name,
        # A number that the lake holds as text is compared as that text.
        partial(arrow_forms, type_=column.type, text=plain_text if text is _number_text else text),
        spelled_hidden if hides(contract, column.path) else _spell(column.type, base),
    )


def _selection(source: SourceType) -> LiteralString:
    """The SQL that selects a column of this type, with ``{}`` for the column."""
    if not source.array:
        return "{}"
    # A document within an array is compared as its text.
    return "pg_catalog.to_json({}::text[])" if source.base in ("json", "jsonb") else "pg_catalog.to_json({})"


def _spell(type_: Type, base: str) -> Callable[[Form], str]:
    """The function that writes a form as PostgreSQL reads it, also for a time that the lake holds as text."""
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
    """The function that turns a text into its form.

    A text is its own form, except for dates, times and intervals, which the two sides write differently.
    """
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
