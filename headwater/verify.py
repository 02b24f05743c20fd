"""Compare source tables with their lake tables, by key and by content.

The lake is read with hudi-rs, so that the writer's library does not vouch for itself. A row of either side becomes a
tuple of *forms*: plain values that are equal exactly when the stored values are, whatever each side calls them
(``1.50`` and ``1.5`` are one decimal, ``12:00+02`` and ``10:00Z`` one instant). Of the source only the keys and a hash
of each row are kept in memory, about 200 bytes a row; the lake streams past them.
"""

import hashlib
import itertools
import json
import math
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from hudi import HudiReadOptions, HudiTableBuilder
from psycopg import sql

from headwater.contract import Column, Contract, SourceType, Type
from headwater.errors import UserError

MAX_EXAMPLES = 5
_SHOWN_LENGTH = 200
_BATCH_ROWS = 8192

# What the source prints depends on these; with them its text is exact and the same on every server.
_SESSION = {
    "timezone": "UTC",
    "datestyle": "ISO, YMD",
    "intervalstyle": "iso_8601",
    "extra_float_digits": "1",
    "bytea_output": "hex",
}

Form = Any  # None, bool, int, str, or a tuple of forms: hashable, compared by ==
Row = tuple[Form, ...]
ToForm = Callable[[Any], Form]
ReadTable = Callable[[str, Mapping[str, str]], Iterable[pa.RecordBatch]]
Progress = Callable[[str, str, int], None]


@dataclass(frozen=True)
class Example:
    """One row that differs. ``kind`` is missing, extra or different; ``columns`` maps a column's name to its source
    and its lake value, as text, for the columns that differ."""

    kind: str
    key: dict[str, str]
    columns: dict[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class TableComparison:
    """What a table's comparison found, in rows.

    ``missing`` are keys that only the source has. ``extra`` are live lake rows whose key the source does not have, and
    every copy of a key beyond the first. ``different`` are keys that both have with other content.
    """

    name: str
    source_rows: int
    lake_rows: int
    missing: int
    extra: int
    different: int
    examples: tuple[Example, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether source and lake hold the same rows."""
        return self.missing == self.extra == self.different == 0

    def counts(self) -> dict[str, str | int]:
        """The comparison as one entry of a report's ``tables``."""
        return {
            "name": self.name,
            "source_rows": self.source_rows,
            "lake_rows": self.lake_rows,
            "missing": self.missing,
            "extra": self.extra,
            "different": self.different,
        }


def verify(
    contracts: Sequence[Contract],
    connection: psycopg.Connection,
    lake_uri: str,
    storage: Mapping[str, str],
    queries: Mapping[str, str],
    *,
    read_table: ReadTable | None = None,
    progress: Progress | None = None,
) -> list[TableComparison]:
    """Compare every contract's source with its lake table.

    All sources are read in one REPEATABLE READ transaction, so a running workload does not tear them apart; the lake
    is equal to it only once the pipeline has drained. ``storage`` are hudi-rs's storage options (see
    ``s3_options``), ``queries`` the text of each ``verify_with`` by table (see ``load_queries``), ``read_table`` a
    reader in place of ``read_lake``, and ``progress`` is called with table, side (``source`` or ``lake``) and rows so
    far. The connection must not be inside a transaction.

    Raises UserError where the lake or the source cannot be read.
    """
    if connection.info.transaction_status is not psycopg.pq.TransactionStatus.IDLE:
        raise ValueError("verify needs a connection outside a transaction, to read all tables in one snapshot")
    read = read_table or read_lake
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        for name, value in _SESSION.items():
            connection.execute("SELECT set_config(%s, %s, true)", (name, value))
        return [
            compare(
                contract,
                SourceReader(contract, connection, queries.get(contract.table)).rows,
                read(f"{lake_uri.rstrip('/')}/{contract.table}", storage),
                progress,
            )
            for contract in contracts
        ]


def load_queries(contracts: Iterable[Contract], folder: Path) -> dict[str, str]:
    """The text of each ``verify_with``, which lies beside its contract, by table. Raises UserError."""
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
                "expected an SQL file beside the contract"
            ) from None
    return queries


def s3_options(
    region: str, endpoint: str | None = None, access_key: str | None = None, secret_key: str | None = None,
    session_token: str | None = None,
) -> dict[str, str]:  # fmt: skip
    """hudi-rs's storage options for S3; with an ``endpoint`` (http allowed), buckets are addressed in the path.
    Without keys, those of the environment or of the machine's role are taken."""
    options = {
        "aws_region": region,
        "aws_access_key_id": access_key,
        "aws_secret_access_key": secret_key,
        "aws_session_token": session_token,
    }
    if endpoint is not None:
        options |= {
            # The name that the environment's AWS_ENDPOINT_URL becomes: another one would lose to it now and then.
            "aws_endpoint_url": endpoint,
            "aws_allow_http": "true",
            "aws_virtual_hosted_style_request": "false",
        }
    return {name: value for name, value in options.items() if value is not None}


# --- The lake -------------------------------------------------------------------------------------------------------


def read_lake(uri: str, storage: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """Stream a Hudi table's current snapshot, tombstones included; nothing where the table was never written.

    Raises UserError where it cannot be read.
    """
    try:
        table = HudiTableBuilder.from_base_uri(uri).with_storage_options(dict(storage)).build()
        yield from table.read_stream(HudiReadOptions().with_batch_size(_BATCH_ROWS))
    except Exception as error:
        # hudi-rs raises one class for everything and tells only in its text what happened.
        if _never_written(str(error)):
            return
        raise UserError(
            f"{uri} cannot be read as a Hudi table: {error}. Check --lake, --endpoint and the AWS credentials"
        ) from error


def _never_written(message: str) -> bool:
    return "hoodie.properties not found" in message and "NoSuchBucket" not in message


def live_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Leave out tombstones: rows whose ``_deleted`` is true."""
    for batch in batches:
        at = batch.schema.get_field_index("_deleted")
        if at < 0:
            yield batch
        else:
            deleted = pc.fill_null(batch.column(at), False)
            yield batch.filter(pc.invert(deleted))


def read_live_table(uri: str, storage: Mapping[str, str]) -> pa.Table | None:
    """A lake table's live rows as one Arrow table, or None where it was never written."""
    batches = list(live_rows(read_lake(uri, storage)))
    return pa.Table.from_batches(batches) if batches else None


# --- Comparing ------------------------------------------------------------------------------------------------------


def compare(
    contract: Contract,
    source_rows: Callable[[], Iterable[Row]],
    batches: Iterable[pa.RecordBatch],
    progress: Progress | None = None,
) -> TableComparison:
    """Compare a source with Arrow batches of its lake table, tombstones among them.

    ``source_rows`` gives the source's rows as forms, the same rows at each call: a second one is made to say what
    differs. Raises UserError where the source repeats a key.
    """
    report = progress or (lambda table, side, rows: None)
    key_of = _key_taker(contract)
    unseen: dict[Row, bytes] = {}
    for row in source_rows():
        key = key_of(row)
        if key in unseen:
            shown = ", ".join(f"{name} = {value}" for name, value in _shown_key(contract, key).items())
            raise UserError(
                f"{contract.table}: the source has {shown} twice, expected once: the contract's key "
                f"({', '.join(contract.key)}) must be unique there"
            )
        unseen[key] = _digest(row)
        if len(unseen) % _BATCH_ROWS == 0:
            report(contract.table, "source", len(unseen))
    source_count = len(unseen)
    report(contract.table, "source", source_count)

    differing: dict[Row, bytes] = {}
    shown_rows: dict[Row, Row] = {}
    examples: list[Example] = []
    extra = lake_count = 0
    for batch in live_rows(batches):
        for row in lake_rows(contract, batch):
            key = key_of(row)
            expected = unseen.pop(key, None)
            if expected is None:
                extra += 1
                if len(examples) < MAX_EXAMPLES:
                    examples.append(Example("extra", _shown_key(contract, key)))
                if key in differing and differing[key] == _digest(row):
                    # A right copy after a wrong one: the key has its row, and one too many.
                    del differing[key]
                    shown_rows.pop(key, None)
            elif expected != _digest(row):
                differing[key] = expected
                if len(shown_rows) < MAX_EXAMPLES:
                    shown_rows[key] = row
        lake_count += batch.num_rows
        report(contract.table, "lake", lake_count)

    examples += [Example("missing", _shown_key(contract, key)) for key in itertools.islice(unseen, MAX_EXAMPLES)]
    examples += _different_examples(contract, source_rows, shown_rows)
    return TableComparison(
        contract.table, source_count, lake_count, len(unseen), extra, len(differing), tuple(examples)
    )


def _key_taker(contract: Contract) -> Callable[[Row], Row]:
    names = [column.name for column in contract.columns]
    places = [names.index(name) for name in contract.key]
    return lambda row: tuple(row[at] for at in places)


def _different_examples(
    contract: Contract, source_rows: Callable[[], Iterable[Row]], lake: Mapping[Row, Row]
) -> list[Example]:
    """Look the source's rows up again to say which columns differ and how."""
    examples: list[Example] = []
    if not lake:
        return examples
    key_of = _key_taker(contract)
    for row in source_rows():
        key = key_of(row)
        if key not in lake:
            continue
        columns = {
            column.name: (_shown(theirs, column.type), _shown(ours, column.type))
            for column, theirs, ours in zip(contract.columns, row, lake[key], strict=True)
            if theirs != ours
        }
        examples.append(Example("different", _shown_key(contract, key), columns))
        if len(examples) == len(lake):
            break
    return examples


def _digest(row: Row) -> bytes:
    return hashlib.blake2b(repr(row).encode("utf-8", "surrogatepass"), digest_size=16).digest()


# --- The source -----------------------------------------------------------------------------------------------------


class SourceReader:
    """A contract's rows in the source database, as forms in the order of the contract's columns."""

    def __init__(self, contract: Contract, connection: psycopg.Connection, query: str | None) -> None:
        if contract.verify_with is not None and query is None:
            raise ValueError(f"{contract.table}: no text for verify_with: {contract.verify_with}")
        self.contract = contract
        self._connection = connection
        self._query = query
        # COPY gives every value as PostgreSQL's own text. Arrays alone go as JSON, which is easier to take apart.
        self._fields: list[tuple[str, bool]] = []
        self._plan: list[tuple[int, tuple[str, ...], bool, ToForm]] = []
        for column in contract.columns:
            source_type = SourceType.parse(column.source_type or "")
            wanted = (column.path[0], source_type.array)
            if wanted not in self._fields:
                self._fields.append(wanted)
            is_json = len(column.path) > 1 or column.type.kind in ("array", "struct")
            self._plan.append(
                (self._fields.index(wanted), column.path[1:], is_json, _source_form(column.type, source_type.base))
            )

    def rows(self) -> Iterator[Row]:
        """Stream the rows. Raises UserError where the source has no such table or column."""
        statement = self._statement()
        try:
            with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
                for texts in copy.rows():
                    yield self.row(texts)
        except psycopg.Error as error:
            what = self.contract.verify_with or self.contract.source.table
            raise UserError(
                f"{self.contract.table}: reading {what} failed: {error}. The contract's columns must exist there, and "
                "the user needs SELECT on what is read"
            ) from error

    def _statement(self) -> sql.Composed:
        fields = [
            sql.SQL("to_json({})" if array else "{}").format(sql.Identifier(name)) for name, array in self._fields
        ]
        if self._query is None:
            table: sql.Composable = sql.Identifier(self.contract.source.schema, self.contract.source.name)
        else:
            # The line end closes a comment on the query's last line.
            table = sql.SQL("(" + self._query.strip().rstrip(";") + "\n) AS recomputed")
        return sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT").format(sql.SQL(", ").join(fields), table)

    def row(self, texts: Sequence[str | None]) -> Row:
        """One row's forms from PostgreSQL's texts, which are in the order of the statement's fields."""
        documents: dict[int, Any] = {}
        row: list[Form] = []
        for at, path, is_json, to_form in self._plan:
            value: Any = texts[at]
            if is_json and value is not None:
                if at not in documents:
                    documents[at] = json.loads(value, parse_float=Decimal, parse_int=_json_integer)
                value = documents[at]
                for name in path:
                    value = value.get(name) if isinstance(value, dict) else None
            row.append(None if value is None else to_form(value))
        return tuple(row)


def _json_integer(text: str) -> int | Decimal:
    # int has no negative zero, which a float may be.
    return Decimal(text) if text == "-0" else int(text)


# --- Forms ----------------------------------------------------------------------------------------------------------


def _unreadable(value: Any) -> Form:
    """The form of a value that its type cannot hold: equal to no readable value."""
    return ("not of its type", repr(value))


def _source_form(type_: Type, base: str) -> ToForm:
    """What turns a non-null source value, PostgreSQL's text or parsed JSON, into its form."""
    if type_.kind == "array" and type_.element is not None:
        element = _source_form(type_.element, base)
        return lambda value: (
            tuple(None if item is None else element(item) for item in value)
            if isinstance(value, list)
            else _unreadable(value)
        )
    if type_.kind == "struct":
        fields = [(name, _source_form(field_type, "")) for name, field_type in type_.fields]
        return lambda value: (
            tuple(None if value.get(name) is None else to_form(value[name]) for name, to_form in fields)
            if isinstance(value, dict)
            else _unreadable(value)
        )
    return _guarded(_scalar_form(type_, base))


def _guarded(to_form: ToForm) -> ToForm:
    """A value that cannot be taken for its type is a difference to report, not a reason to stop."""

    def form(value: Any) -> Form:
        try:
            return to_form(value)
        except (ValueError, TypeError, AttributeError, InvalidOperation, OverflowError):
            return _unreadable(value)

    return form


def _scalar_form(type_: Type, base: str) -> ToForm:
    if type_.kind == "decimal":
        return lambda value: _unscaled(Decimal(value), type_.scale)
    return {
        "int": _integer_form,
        "bigint": _integer_form,
        "float": lambda value: _float_bits(float(value), single=True),
        "double": lambda value: _float_bits(float(value), single=False),
        "boolean": _boolean_form,
        "string": _text_form(base),
        "binary": lambda value: bytes.fromhex(value.removeprefix("\\x")).hex(),
        "date": _days,
        "timestamp": _micros,
    }[type_.kind]


def _integer_form(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, Decimal) and value != value.to_integral_value()):
        raise ValueError(value)
    return int(value)


def _boolean_form(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    return {"t": True, "f": False}[value] if value in ("t", "f") else _unreadable(value)


def _text_form(base: str) -> ToForm:
    """Texts are compared as they are, except calendar types, which the two sides spell differently."""
    if base == "date":
        return _days
    if base.startswith("timestamp"):
        return _micros
    if base.startswith("time"):
        return _clock
    if base == "interval":
        return _interval
    return _number_text if base in ("smallint", "integer", "bigint", "numeric") else _plain_text


def _plain_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value


def _number_text(value: Any) -> str:
    """A number as PostgreSQL prints it; in an array it comes as a JSON number."""
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _unscaled(value: Decimal, scale: int) -> Form:
    """A decimal in units of its last digit, e.g. 15000 for 1.5 at scale 4; a text where it has more digits or is no
    finite number."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return str(value)
    number = int("".join(map(str, digits)) or "0")
    shift = exponent + scale
    if shift >= 0:
        number *= 10**shift
    else:
        number, rest = divmod(number, 10**-shift)
        if rest:
            return str(value)
    return -number if sign else number


def _float_bits(value: float, *, single: bool) -> Form:
    """The bits of a float, all NaNs alike (PostgreSQL's text does not tell them apart); tells 0.0 from -0.0."""
    if math.isnan(value):
        return "NaN"
    kind = "<f" if single else "<d"
    return int.from_bytes(struct.pack(kind, value), "little")


_DATE = re.compile(r"(\d{4,})-(\d\d)-(\d\d)Z?( BC)?\Z")
_MOMENT = re.compile(
    r"(?P<date>\d{4,}-\d\d-\d\d)[T ](?P<time>\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)"
    r"(?P<zone>Z|[+-]\d\d(?::?\d\d(?::?\d\d)?)?)?(?P<era> BC)?\Z"
)
_TIME = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?\Z")
_INTERVAL = re.compile(
    r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)W)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?\d*\.?\d+)S)?)?\Z"
)
_DAY_MICROS = 86_400_000_000


def _days(value: Any) -> Form:
    """A date as days since 1970-01-01 of the proleptic Gregorian calendar, of any year; an infinity as text."""
    if value in ("infinity", "-infinity"):
        return value
    found = _DATE.match(value)
    if found is None:
        raise ValueError(value)
    year, month, day, era = found.groups()
    return _days_from_civil(1 - int(year) if era else int(year), int(month), int(day))


def _days_from_civil(year: int, month: int, day: int) -> int:
    # Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", days_from_civil: datetime ends at year 9999.
    year -= month <= 2
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _micros(value: Any) -> Form:
    """A timestamp as microseconds since 1970-01-01 UTC; one without a zone is taken as UTC; an infinity as text."""
    if value in ("infinity", "-infinity"):
        return value
    found = _MOMENT.match(value)
    if found is None:
        raise ValueError(value)
    days: int = _days(found["date"] + (found["era"] or ""))
    return days * _DAY_MICROS + _clock(found["time"]) - _offset(found["zone"])


def _clock(value: Any) -> int:
    """A time of day as microseconds since midnight."""
    found = _TIME.match(value)
    if found is None:
        raise ValueError(value)
    hour, minute, second, fraction = found.groups()
    digits = (fraction or "").ljust(6, "0")
    if digits[6:].strip("0"):
        raise ValueError(value)
    return ((int(hour) * 60 + int(minute)) * 60 + int(second or 0)) * 1_000_000 + int(digits[:6])


def _offset(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    digits = zone[1:].replace(":", "").ljust(6, "0")
    micros = ((int(digits[:2]) * 60 + int(digits[2:4])) * 60 + int(digits[4:6])) * 1_000_000
    return -micros if zone[0] == "-" else micros


def _interval(value: Any) -> Form:
    """An ISO 8601 interval as PostgreSQL keeps it: months, days and microseconds."""
    found = _INTERVAL.match(value)
    if found is None:
        raise ValueError(value)
    years, months, weeks, days, hours, minutes = (int(part or 0) for part in found.groups()[:6])
    micros = Decimal(found[7] or 0) * 1_000_000 + (hours * 60 + minutes) * 60_000_000
    return ("interval", years * 12 + months, weeks * 7 + days, int(micros))


def lake_rows(contract: Contract, batch: pa.RecordBatch) -> Iterator[Row]:
    """The rows of an Arrow batch as forms in the order of the contract's columns; a column that the batch lacks, as
    one that was added to the contract later, is null."""
    columns = [_lake_column(column, batch) for column in contract.columns]
    return zip(*columns, strict=True)


def _lake_column(column: Column, batch: pa.RecordBatch) -> list[Form]:
    at = batch.schema.get_field_index(column.name)
    if at < 0:
        return [None] * batch.num_rows
    return _lake_forms(batch.column(at), column.type, SourceType.parse(column.source_type or "").base)


_INT_TYPES = (pa.types.is_integer,)
_TEXT_TYPES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BINARY_TYPES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
_ARROW_TYPES: dict[str, tuple[Callable[[pa.DataType], bool], ...]] = {
    "int": _INT_TYPES,
    "bigint": _INT_TYPES,
    "float": (pa.types.is_floating,),
    "double": (pa.types.is_floating,),
    "boolean": (pa.types.is_boolean,),
    "decimal": (pa.types.is_decimal,),
    "string": _TEXT_TYPES,
    "binary": _BINARY_TYPES,
    "date": (pa.types.is_date32,),
    "timestamp": (pa.types.is_timestamp,),
    "array": (pa.types.is_list, pa.types.is_large_list),
    "struct": (pa.types.is_struct,),
}
_MICROS_PER_UNIT = {"s": 1_000_000, "ms": 1000, "us": 1}


def _lake_forms(array: pa.Array, type_: Type, base: str) -> list[Form]:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_null(array.type):
        return [None] * len(array)
    if not any(fits(array.type) for fits in _ARROW_TYPES[type_.kind]):
        return [None if value is None else _unreadable(value) for value in array.to_pylist()]
    if type_.kind == "struct":
        return _struct_forms(array, type_)
    if type_.kind == "array" and type_.element is not None:
        return _list_forms(array, type_.element, base)
    if type_.kind == "timestamp":
        return _timestamp_forms(array)
    if type_.kind == "date":
        # As a number, since datetime.date ends at year 9999.
        return list(array.view(pa.int32()).to_pylist())
    values = array.to_pylist()
    if type_.kind == "string":
        to_text = _text_form(base)
        if to_text in (_plain_text, _number_text):
            return list(values)
        guarded = _guarded(to_text)
        return [None if value is None else guarded(value) for value in values]
    if type_.kind == "decimal":
        return [None if value is None else _unscaled(value, type_.scale) for value in values]
    if type_.kind in ("float", "double"):
        # A double in a float's column keeps bits that a float has not, and must not compare equal by losing them.
        single = type_.kind == "float" and not pa.types.is_float64(array.type)
        return [None if value is None else _float_bits(value, single=single) for value in values]
    if type_.kind == "binary":
        return [None if value is None else value.hex() for value in values]
    return list(values)


def _struct_forms(array: pa.StructArray, type_: Type) -> list[Form]:
    names = [array.type.field(at).name for at in range(array.type.num_fields)]
    children = array.flatten()
    columns = [
        _lake_forms(children[names.index(name)], field_type, "") if name in names else [None] * len(array)
        for name, field_type in type_.fields
    ]
    valid = array.is_valid().to_pylist()
    return [row if present else None for present, row in zip(valid, zip(*columns, strict=True), strict=True)]


def _list_forms(array: pa.ListArray, element: Type, base: str) -> list[Form]:
    if len(array) == 0:
        return []
    offsets = array.offsets.to_pylist()
    start = offsets[0]
    items = _lake_forms(array.values.slice(start, offsets[-1] - start), element, base)
    valid = array.is_valid().to_pylist()
    return [
        tuple(items[offsets[at] - start : offsets[at + 1] - start]) if present else None
        for at, present in enumerate(valid)
    ]


def _timestamp_forms(array: pa.TimestampArray) -> list[Form]:
    numbers = array.view(pa.int64()).to_pylist()
    unit = array.type.unit
    if unit == "ns":
        return [
            None if value is None else value // 1000 if value % 1000 == 0 else _unreadable(f"{value} ns")
            for value in numbers
        ]
    return [None if value is None else value * _MICROS_PER_UNIT[unit] for value in numbers]


# --- Showing --------------------------------------------------------------------------------------------------------


def _shown_key(contract: Contract, key: Row) -> dict[str, str]:
    return {name: _shown(value, contract.column(name).type) for name, value in zip(contract.key, key, strict=True)}


def _shown(form: Form, type_: Type) -> str:
    """A form as a person would write it, cut to a readable length."""
    text = _spelled(form, type_)
    return text if len(text) <= _SHOWN_LENGTH else text[: _SHOWN_LENGTH - 1] + "…"


def _spelled(form: Form, type_: Type) -> str:
    if form is None:
        return "null"
    if isinstance(form, tuple):
        if type_.kind == "struct" and len(form) == len(type_.fields):
            fields = zip(type_.fields, form, strict=True)
            return "{" + ", ".join(f"{name}: {_spelled(value, kind)}" for (name, kind), value in fields) + "}"
        if type_.kind == "array" and type_.element is not None:
            return "[" + ", ".join(_spelled(item, type_.element) for item in form) + "]"
        return " ".join(str(part) for part in form)
    if isinstance(form, int) and not isinstance(form, bool):
        return _spelled_number(form, type_)
    return str(form)


def _spelled_number(form: int, type_: Type) -> str:
    if type_.kind == "decimal":
        digits = str(abs(form)).rjust(type_.scale + 1, "0")
        whole, fraction = digits[: len(digits) - type_.scale], digits[len(digits) - type_.scale :]
        return ("-" if form < 0 else "") + whole + (f".{fraction}" if fraction else "")
    if type_.kind == "float" and form < 2**32:
        return repr(struct.unpack("<f", form.to_bytes(4, "little"))[0])
    if type_.kind in ("float", "double"):
        return repr(struct.unpack("<d", form.to_bytes(8, "little"))[0])
    if type_.kind == "date":
        return str(pa.scalar(form, pa.date32()).cast(pa.string()))
    if type_.kind == "timestamp":
        return str(pa.scalar(form, pa.timestamp("us")).cast(pa.string())) + "Z"
    return str(form)
