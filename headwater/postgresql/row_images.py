"""Rows of a source table in the form of Debezium's snapshot: the server makes the images that change events have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from headwater.contract.model import DROP, HMAC, Contract
from headwater.contract.types import SourceType
from headwater.definitions.connectors import VALUE_FORMS
from headwater.errors import UserError

SESSION = {
    "client_encoding": "UTF8",
    "timezone": "UTC",
    "datestyle": "ISO, YMD",
    **VALUE_FORMS,
    # Functions of the users may not take the place of PostgreSQL's.
    "search_path": "pg_catalog",
}
"""Settings with which PostgreSQL writes the same texts that Debezium sends."""

# Like Debezium, read a domain as its base type. Generated columns are not in changes. The type of an extension, such as
# citext, has its name without a schema, wherever the extension is.
_COLUMNS = """
WITH RECURSIVE below AS (
    SELECT attnum, attname::text AS name, atttypid AS type, atttypmod AS modifier
    FROM pg_attribute
    WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
    UNION ALL
    SELECT attnum, name, typbasetype, greatest(typtypmod, modifier)
    FROM below JOIN pg_type ON pg_type.oid = type
    WHERE typtype = 'd'
)
SELECT below.name,
    CASE coalesce(element.typnamespace, known.typnamespace) WHEN 'pg_catalog'::regnamespace
    THEN format_type(type, modifier) ELSE coalesce(element.typname || '[]', known.typname::text) END,
    coalesce(element.typtype, known.typtype), coalesce(names, '{}')
FROM below
LEFT JOIN capture.hidden_columns_of(to_regclass(%s)) AS hidden ON hidden.number = attnum
JOIN pg_type AS known ON known.oid = type
LEFT JOIN pg_type AS element ON known.typcategory = 'A' AND element.oid = known.typelem
WHERE known.typtype <> 'd'
ORDER BY attnum
"""
_AS_THEY_ARE = frozenset(
    {"smallint", "integer", "bigint", "boolean", "text", "character varying", "character", "uuid", "name"}
)
_AS_TEXT = frozenset({"numeric", "json", "jsonb", "xml", "cidr", "macaddr", "macaddr8", "citext", "ltree"})
_RANGES = frozenset({"int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange"})
# The source connector sends PostgreSQL's text for these types and their arrays.
_PRINTED = frozenset(
    {"aclitem", "bit varying", "box", "cid", "circle", "int2vector", "jsonpath", "line", "lseg", "oidvector", "path",
     "pg_lsn", "pg_snapshot", "polygon", "tid", "tsquery", "txid_snapshot", "xid", "xid8"}
)  # fmt: skip
# For these types, it sends PostgreSQL's text only for arrays.
_PRINTED_ARRAYS = frozenset(
    {"bit", "interval", "money", "name", "point", "time with time zone", "time without time zone", "xml"}
)
_FAR = 9223372036854775807
_MILLI_DIGITS = 3
# The forms of Debezium 3.6.1 with the options of ``source_connector``. No lake type can hold an infinity, however
# Debezium counts it.
_IMAGES = {
    "date": "CASE WHEN isfinite({0}) THEN {0} - DATE '1970-01-01' WHEN {0} > '1970-01-01' THEN 2147483647"
    " WHEN {0} < '1970-01-01' THEN -2147483648 END",
    "time without time zone": "(extract(epoch FROM {0}) * 1000000)::bigint",
    # No lake type has timestamps from before the era.
    "timestamp with time zone": "CASE WHEN isfinite({0}) AND {0} >= '0001-01-01 00:00:00+00' THEN"
    " to_char({0} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') ELSE {0}::text END",
    "interval": "CASE WHEN {0} IS NOT NULL THEN format('P%sY%sM%sDT%sH%sM%sS', extract(year FROM {0}),"
    " extract(month FROM {0}), extract(day FROM {0}), extract(hour FROM {0}), extract(minute FROM {0}),"
    " trim_scale(extract(second FROM {0}))) END",
    "bytea": "encode({0}, 'hex')",
    "oid": "{0}::bigint",
    # A cast to text would add /32 to a host's address.
    "inet": "abbrev({0})",
}
# A float is never an integer in JSON, and a zero keeps its sign.
_FLOAT = "CASE WHEN {0}::text ~ '^-?[0-9]+$' THEN ({0}::text || '.0')::json ELSE to_json({0}) END"
_MOMENT = (
    "CASE WHEN isfinite({{0}}) THEN least(extract(epoch FROM {{0}}) * {units}, {far})::bigint"
    " WHEN {{0}} > '1970-01-01' THEN {far} WHEN {{0}} < '1970-01-01' THEN -{far} END"
)


@dataclass(frozen=True)
class _Column:
    name: str
    """The column's name."""
    type: str
    """The column's type, as PostgreSQL writes it."""
    kind: str
    """PostgreSQL's ``typtype`` of the column's type, or of its elements' type for an array."""
    hidden_as: Sequence[str]
    """The names under which contracts have excluded or masked the column. It may have been renamed since."""


@dataclass(frozen=True)
class RowImages:
    """The SQL with which the server makes the images of a table's rows."""

    selected: sql.Composed
    """The columns of an image, as SQL expressions with their names."""
    left_out: Sequence[str]
    """Columns whose form is not known. Their values come with the row's next change."""

    def copied(self, table: sql.Composable, where: sql.Composable) -> sql.Composed:
        """A COPY that gives each row of a table, or of one of its partitions, as a line of JSON."""
        # JSON has no such character, so no value is ever quoted.
        return sql.SQL(
            "COPY (SELECT to_json(image.*)::text FROM (SELECT {} FROM ONLY {} WHERE {}) AS image)"
            " TO STDOUT (FORMAT csv, QUOTE E'\\x01', DELIMITER E'\\x02')"
        ).format(self.selected, table, where)


def row_images(connection: psycopg.Connection, contract: Contract) -> RowImages:
    """The images of a contract's source table, without values that the contract leaves out or masks as null.

    A value that the contract masks by ``hmac`` is in clear. Raises UserError if there is no such table, or if the
    contract names a column whose form is not known.
    """
    table = contract.source.table
    try:
        columns = [_Column(*row) for row in connection.execute(_COLUMNS, (table, table)).fetchall()]
    except psycopg.errors.UndefinedFunction:
        raise UserError(
            f"{connection.info.dbname}: found a database that an earlier release has prepared: deploy, or run "
            "headwater db capture"
        ) from None
    if not columns:
        raise UserError(f"{table}: found no such table in {connection.info.dbname}, expected the contract's source")
    named = {column.path[0] for column in contract.columns}
    # The source connector compares names of columns without regard to capitals.
    excluded = {name.lower() for (name,) in contract.exclude}
    nulled = {name.lower() for mask in contract.masks if mask.how != HMAC for name in mask.path}
    hashed = {name.lower() for mask in contract.masks if mask.how == HMAC for name in mask.path}
    selected: list[sql.Composable] = []
    left_out: list[str] = []
    for column in columns:
        names = {name.lower() for name in (column.name, *column.hidden_as)}
        if names & excluded or (contract.unnamed == DROP and column.name not in named):
            continue
        # The code that masks rows by hmac knows a column only by the contract's name.
        is_null = names & nulled or (names & hashed and column.name.lower() not in hashed)
        image = "NULL" if is_null else _image(column)
        if image is None:
            if column.name in named:
                raise UserError(
                    f"{table}: {column.name}: found the type {column.type}, expected one that a contract may have: "
                    "remove the column from the contract"
                )
            left_out.append(column.name)
            continue
        name = sql.Identifier(column.name)
        selected.append(sql.SQL("{} AS {}").format(sql.SQL(image).format(name), name))
    return RowImages(sql.SQL(", ").join(selected), left_out)


def _image(column: _Column) -> str | None:
    """The SQL of a column's image, with ``{0}`` for the column; None if its form is not known."""
    source = SourceType.parse(column.type)
    if _is_printed(column, source):
        return "{0}::text"
    scalar = _scalar(source, column.kind)
    if not source.array or scalar is None:
        return scalar
    # The source connector sends values that Debezium cannot represent as PostgreSQL's own text.
    nested = "array_ndims({0}) > 1"
    if source.base == "numeric":
        nested += " OR {0}::text ~ 'NaN|Infinity'"
    elements = "to_json({0})"
    if source.base not in _AS_THEY_ARE:
        each = scalar.replace("{0}", "element")
        elements = (
            f"(SELECT coalesce(json_agg({each} ORDER BY place), '[]')"
            " FROM unnest({0}) WITH ORDINALITY AS listed (element, place))"
        )
    return f"CASE WHEN {nested} THEN to_json({{0}}::text) WHEN {{0}} IS NOT NULL THEN {elements} END"


def _is_printed(column: _Column, source: SourceType) -> bool:
    """Whether the source connector sends PostgreSQL's text of a type that Debezium does not know, or changes."""
    if source.base in _PRINTED or source.base.startswith("reg") or (source.array and source.base in _PRINTED_ARRAYS):
        return True
    is_own_range = column.kind == "r" and source.base not in _RANGES
    is_bits = source.base == "bit" and column.type != "bit(1)"
    return is_bits or is_own_range or column.kind in ("c", "d", "m")


def _scalar(source: SourceType, kind: str) -> str | None:
    if source.base in _AS_THEY_ARE:
        return "{0}"
    if source.base in _AS_TEXT or kind in ("e", "r"):
        return "{0}::text"
    if source.base in ("real", "double precision"):
        return _FLOAT
    if source.base == "timestamp without time zone":
        units = 1_000 if source.precision is not None and source.precision <= _MILLI_DIGITS else 1_000_000
        return _MOMENT.format(units=units, far=_FAR)
    return _IMAGES.get(source.base)
