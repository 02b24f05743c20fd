"""Contracts for existing tables, as YAML in which a comment marks each guess.

Guesses are needed for buckets, for the content of JSON documents, and for the choice among several keys. Values that no
column takes are in ``_rest``, so that a guess loses none. Stays on the laptop, as it needs PyYAML.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import yaml

from headwater.console import one_line
from headwater.contract.conversions import check_conversion
from headwater.contract.model import Contract
from headwater.contract.reading import parse_contract
from headwater.contract.types import NAME, SourceType, lake_type, parse_type
from headwater.errors import UserError

ROWS_PER_BUCKET = 500_000
"""A file group of this many rows is compacted in seconds: docs/scaling.md."""
_MOST_BUCKETS = 10_000
_KEY_KINDS = ("int", "bigint", "string", "date")
_SOURCE_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_COMMENT_BYTES, _DESCRIPTION_BYTES = 255, 1_500
_LARGEST_BIGINT = 2**63 - 1
_DECIMAL_DIGITS = 38
_MIB = 1 << 20

Query = Callable[[str], Iterable[Sequence[Any]]]
"""Runs a query and returns its rows."""


@dataclass(frozen=True)
class Inferred:
    """The contract that was inferred for a source table, or why there is none."""

    source: str
    """The source table, as a contract names it."""
    name: str = ""
    """The lake table's name."""
    text: str = ""
    """The contract's YAML."""
    guesses: int = 0
    """How many comments of the text mark a guess."""
    refused: str = ""
    """Why the table cannot be captured; "" if there is a contract."""

    @property
    def contract(self) -> Contract:
        """The contract, as its file would be read. Raises UserError if there is none."""
        if self.refused:
            raise UserError(f"{self.source}: {self.refused}")
        return parse_contract(self.text, f"the inferred contract {self.name}")


@dataclass
class _Draft:
    """A contract's text while it is written."""

    header: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    guesses: int = 0

    def says(self, name: str, value: str, guess: str = "") -> None:
        self.header.append(f"{name}: {value}{self._comment(guess)}")

    def column(self, entries: Mapping[str, str | list[str]], guess: str = "") -> None:
        written = ", ".join(f"{name}: {_scalar(value)}" for name, value in entries.items())
        self.columns.append(f"  - {{{written}}}{self._comment(guess)}")

    def without_column(self, name: str, why: str) -> None:
        self.guesses += 1
        self.columns.append(f"  # guessed: no column for {one_line(name)}, {one_line(why)}")

    def _comment(self, guess: str) -> str:
        self.guesses += bool(guess)
        return f"  # guessed: {one_line(guess)}" if guess else ""

    def inferred(self, source: str, name: str) -> Inferred:
        text = "\n".join([*self.header, "columns:", *self.columns]) + "\n"
        made = Inferred(source, name, text, self.guesses)
        try:
            _ = made.contract
        except UserError as error:
            return Inferred(source, refused=str(error))
        return made


# Partitions are not listed: their changes belong to the partitioned table. A domain counts as its base type, and a text
# type of an extension as text. The key is the primary key, or else the unique index with the fewest columns, if all are
# NOT NULL. The replica identity is what the contract must say, or index if the table or a partition uses an index. From
# PostgreSQL 18 on it is default if a column is generated: publications leave such a column out, so UPDATE and DELETE
# would fail under FULL. Before ANALYZE the number of rows comes from the table's bytes, as in PostgreSQL's planner: 32
# for a value of variable length, and 28 for the row.
_TABLES = """WITH RECURSIVE
    tables AS (
        SELECT pg_class.oid, relname, reltuples, relkind, relpersistence
        FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
        WHERE nspname = {schema} AND relkind IN ('r', 'p') AND NOT relispartition
    ),
    typed (relation, number, type, modifier) AS (
        SELECT attrelid, attnum, atttypid, atttypmod
        FROM pg_attribute JOIN tables ON tables.oid = attrelid WHERE attnum > 0 AND NOT attisdropped
        UNION ALL
        SELECT relation, number, typbasetype, typtypmod
        FROM typed JOIN pg_type ON pg_type.oid = type AND typtype = 'd'
    ),
    spelled AS (
        SELECT relation, number, CASE
            WHEN typtype = 'e' THEN 'enum'
            WHEN typcategory = 'S' AND typnamespace <> 'pg_catalog'::regnamespace THEN 'text'
            ELSE format_type(type, modifier)
        END AS type
        FROM typed JOIN pg_type ON pg_type.oid = type AND typtype <> 'd'
    ),
    keys AS (
        SELECT DISTINCT ON (indrelid) indrelid, indisprimary,
            ARRAY(
                SELECT attname::text FROM generate_series(0, indnkeyatts - 1) AS place
                JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[place] ORDER BY place
            ) AS columns
        FROM pg_index JOIN tables ON tables.oid = indrelid
        WHERE indisunique AND indisvalid AND indimmediate AND indpred IS NULL AND indexprs IS NULL
        AND NOT EXISTS (
            SELECT FROM generate_series(0, indnkeyatts - 1) AS place
            JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[place] WHERE NOT attnotnull
        )
        ORDER BY indrelid, indisprimary DESC, indnkeyatts, indexrelid
    ),
    widths (relation, width) AS (
        SELECT attrelid, sum(CASE WHEN attlen > 0 THEN attlen ELSE 32 END) + 28
        FROM pg_attribute JOIN tables ON tables.oid = attrelid WHERE attnum > 0 AND NOT attisdropped GROUP BY attrelid
    ),
    leaves (relation, leaf, reltuples) AS (
        SELECT oid, oid, reltuples FROM tables WHERE relkind = 'r'
        UNION ALL
        SELECT tables.oid, relid, pg_class.reltuples
        FROM tables CROSS JOIN pg_partition_tree(tables.oid) AS tree JOIN pg_class ON pg_class.oid = relid
        WHERE tables.relkind = 'p' AND isleaf
    ),
    sizes (relation, rows, bytes) AS (
        SELECT relation, sum(CASE WHEN reltuples < 0 THEN bytes / coalesce(width, 28) ELSE reltuples END)::bigint,
            sum(bytes)::bigint
        FROM leaves
        CROSS JOIN LATERAL (SELECT CASE WHEN reltuples < 0 THEN pg_relation_size(leaf) END) AS measured (bytes)
        LEFT JOIN widths USING (relation)
        GROUP BY relation
    )
SELECT
    relname,
    coalesce(sizes.rows, 0),
    relpersistence = 'p',
    obj_description(tables.oid, 'pg_class'),
    CASE
        WHEN EXISTS (
            SELECT FROM pg_class AS part WHERE part.relreplident = 'i'
            AND part.oid IN (SELECT tables.oid UNION SELECT relid FROM pg_partition_tree(tables.oid))
        ) THEN 'index'
        WHEN current_setting('server_version_num')::int >= 180000 AND EXISTS (
            SELECT FROM pg_attribute WHERE attrelid = tables.oid AND attgenerated <> '' AND NOT attisdropped
        ) THEN 'default'
        ELSE 'full'
    END,
    keys.columns,
    keys.indisprimary,
    ARRAY(
        SELECT ARRAY[attname::text, type, attgenerated::text, coalesce(col_description(attrelid, attnum), '')]
        FROM pg_attribute JOIN spelled ON relation = attrelid AND number = attnum
        WHERE attrelid = tables.oid ORDER BY attnum
    ),
    bytes,
    ARRAY(
        SELECT nspname::text FROM pg_class AS other JOIN pg_namespace ON pg_namespace.oid = relnamespace
        WHERE other.relname = tables.relname AND other.oid <> tables.oid
        AND other.relkind IN ('r', 'p') AND NOT other.relispartition
        AND nspname !~ '^pg_' AND nspname NOT IN ('information_schema', 'capture') ORDER BY nspname
    )
FROM tables LEFT JOIN keys ON indrelid = tables.oid LEFT JOIN sizes ON sizes.relation = tables.oid
ORDER BY relname"""


def from_postgresql(schema: str, query: Query, tables: Sequence[str] = ()) -> list[Inferred]:
    """Infer contracts for these tables of a schema, or for all if none is named, sorted by name.

    ``query`` reads the catalog, which any role may. If several schemas of the database have a table of one name, the
    lake's names begin with the schema. Raises UserError if the schema has no table, or not one of these.
    """
    rows = list(query(_TABLES.replace("{schema}", "'" + schema.replace("'", "''") + "'")))
    if not rows:
        raise UserError(f"--schema: found no table in {schema!r}, expected a schema with tables")
    known = [row[0] for row in rows]
    for table in tables:
        if table not in known:
            raise UserError(f"--table: found {table!r}, expected one of {', '.join(known)}, of the schema {schema}")
    return [_of_table(schema, *row) for row in rows if not tables or row[0] in tables]


def _of_table(
    schema: str,
    table: str,
    rows: int,
    logged: bool,
    comment: str | None,
    identity: str,
    key: list[str] | None,
    primary: bool | None,
    columns: list[list[str]],
    unanalyzed_bytes: int | None = None,
    other_schemas: Sequence[str] = (),
) -> Inferred:
    """Infer the contract of a table from its row of ``_TABLES``."""
    source = f"{schema}.{table}"
    types = {name: type_ for name, type_, generated, _ in columns if not generated}
    wrong = _refusal(schema, table, logged=logged, identity=identity, key=key, primary=primary, types=types)
    wrong = wrong or _same_name([name for name, *_ in columns])
    if wrong:
        return Inferred(source, refused=wrong)
    name = _lake_name(f"{schema}_{table}" if other_schemas else table)
    draft = _Draft(["# yaml-language-server: $schema=../schemas/contract.schema.json"])
    others = ", ".join(f"{other}.{table}" for other in other_schemas)
    draft.says("table", _scalar(name), f"with its schema, because there is {others} too" if others else "")
    _describe(draft, comment, f"One row a row of {source}.")
    by_default = identity == "default"
    draft.says(
        "source",
        f"{{database: postgresql, table: {_scalar(source)}{', replica_identity: default' if by_default else ''}}}",
        "from PostgreSQL 18 on, FULL would have UPDATE and DELETE fail beside generated columns" if by_default else "",
    )
    keys = [_scalar(_lake_name(column)) for column in key or []]
    draft.says("key", f"[{', '.join(keys)}]", "" if primary else "a unique index, as there is no primary key")
    _place(draft, rows, unanalyzed_bytes)
    told: set[str] = set()
    for column, type_, generated, said in sorted(columns, key=lambda each: each[0] not in (key or [])):
        lake_name = _lake_name(column)
        lake, guess = _key_type(type_) if column in (key or []) else _lake_type(type_)
        if generated:
            draft.without_column(column, "which is generated: PostgreSQL leaves it out of its changes")
        elif "." in column or not NAME.match(lake_name) or lake_name in told:
            draft.without_column(column, "whose name the lake cannot have beside the others; its values are in _rest")
        elif not lake:
            draft.without_column(column, f"of type {type_}; its values are in _rest")
        else:
            told.add(lake_name)
            entries = {"name": lake_name, "type": lake, "source_type": type_}
            draft.column(entries | ({"from": column} if lake_name != column else {}) | _commented(said), guess)
    return draft.inferred(source, name)


def _refusal(
    schema: str,
    table: str,
    *,
    logged: bool,
    identity: str,
    key: list[str] | None,
    primary: bool | None,
    types: Mapping[str, str],
) -> str:
    """Why a table cannot be captured; "" if it can."""
    if not (_SOURCE_NAME.fullmatch(schema) and _SOURCE_NAME.fullmatch(table)):
        return "its name, or its schema's, has capitals or other characters, and contracts cannot name it"
    if not logged:
        return "it is unlogged or temporary, so that its changes are not in the server's log"
    if not key:
        return "it has neither a primary key nor a unique index of columns that are NOT NULL"
    if identity == "index":
        return (
            "it, or a partition of it, has REPLICA IDENTITY USING INDEX: deletes would arrive without their key; as "
            "its owner, ALTER TABLE … REPLICA IDENTITY FULL or DEFAULT, unless another reader needs the index"
        )
    if identity == "default" and not primary:
        return (
            "it has generated columns and no primary key: from PostgreSQL 18 on, its UPDATE and DELETE would fail; "
            "give it a primary key, or make these columns plain ones that a trigger fills"
        )
    for column in key:
        if not _key_type(types.get(column, ""))[0] or "." in column or not NAME.match(_lake_name(column)):
            told = types.get(column, "generated")
            return f"its key has the column {column} ({told}), which no key of the lake can have"
    return ""


def _same_name(columns: Sequence[str]) -> str:
    """Why a table cannot be captured if the source connector confuses several of these columns; else ""."""
    by_name: dict[str, list[str]] = {}
    for column in columns:
        by_name.setdefault(re.sub(r"^([\"'`])(.*)\1$", r"\2", column).lower(), []).append(column)
    same = next((names for names in by_name.values() if len(names) > 1), None)
    if same is None:
        return ""
    return (
        f"its columns {', '.join(same)} differ only in capitals or in quotes around them, and an event has the value "
        "of one alone: rename all of them but one (ALTER TABLE … RENAME COLUMN … TO …)"
    )


def _key_type(source_type: str) -> tuple[str, str]:
    """As ``_lake_type``, for a column of a key: a text if no key can have the usual type."""
    kind, guess = _lake_type(source_type)
    if kind.partition("(")[0] in _KEY_KINDS:
        return kind, guess
    is_text = bool(kind) and check_conversion(source_type, parse_type("string")) is None
    return ("string", "a text, because no key of the lake can have its own type") if is_text else ("", "")


def _lake_type(source_type: str) -> tuple[str, str]:
    """The lake type for a type of PostgreSQL's, "" if there is none, and a comment on the part that is guessed."""
    source = SourceType.parse(source_type)
    if source.base == "numeric" and not _fits_decimal(source):
        kind, guess = "string", "no decimal holds all these numbers; write source_type numeric(p,s) if they are bounded"
    elif source.base in ("json", "jsonb") and not source.array:
        kind, guess = "string", "the whole document; a struct, or columns with paths, reach into it"
    else:
        kind, guess = lake_type(source_type.removesuffix("[]")) or "string", ""
    if source.array:
        # An array of the lake holds no timestamps.
        kind = f"array<{'string' if kind == 'timestamp' else kind}>"
    fits = check_conversion(source_type, parse_type(kind)) is None
    return (kind, guess) if fits else ("", "")


def _fits_decimal(source: SourceType) -> bool:
    return (
        source.precision is not None
        and source.scale is not None
        and source.scale <= source.precision <= _DECIMAL_DIGITS
    )


def from_dynamodb(
    description: Mapping[str, Any], time_to_live: str | None, items: Sequence[Mapping[str, Any]]
) -> Inferred:
    """Infer a contract for a DynamoDB table. Attributes with several types in the sample get no column.

    Args:
        description: The table, as ``DescribeTable`` describes it.
        time_to_live: The attribute by which the items expire; None if they do not.
        items: A sample of items, as the API returns them.
    """
    table = description["TableName"]
    name = _lake_name(table)
    draft = _Draft(["# yaml-language-server: $schema=../schemas/contract.schema.json"])
    draft.says("table", _scalar(name))
    _describe(draft, None, f"One row an item of {table}.")
    expires = "" if time_to_live is None else f", time_to_live: {_scalar(time_to_live)}"
    draft.says("source", f"{{database: dynamodb, table: {_scalar(table)}{expires}}}")
    key = [entry["AttributeName"] for entry in description["KeySchema"]]
    draft.says("key", f"[{', '.join(_scalar(_lake_name(attribute)) for attribute in key)}]")
    _place(draft, description.get("ItemCount", 0))
    declared = {entry["AttributeName"]: entry["AttributeType"] for entry in description["AttributeDefinitions"]}
    seen: dict[str, dict[str, list[Any]]] = {attribute: {declared[attribute]: []} for attribute in key}
    for item in items:
        for attribute, typed in item.items():
            ((type_, value),) = typed.items()
            if type_ != "NULL":
                seen.setdefault(attribute, {}).setdefault(type_, []).append(value)
    told: set[str] = set()
    for attribute, by_type in seen.items():
        lake_name = _lake_name(attribute)
        if not NAME.match(lake_name) or lake_name in told:
            draft.without_column(attribute, "whose name the lake cannot have; its values are in _rest")
        elif len(by_type) > 1:
            draft.without_column(attribute, f"which has several types ({', '.join(by_type)}): see _rest")
        else:
            told.add(lake_name)
            ((type_, values),) = by_type.items()
            _attribute(draft, attribute, lake_name, type_, values, is_key=attribute in key, sample=len(items))
    return draft.inferred(table, name)


def _attribute(
    draft: _Draft, attribute: str, name: str, type_: str, values: Sequence[Any], *, is_key: bool, sample: int
) -> None:
    numbers = {"N": values, "NS": [each for value in values for each in value] if type_ == "NS" else []}
    number, digits = _numbers(numbers.get(type_, []))
    if type_ == "N" and is_key:
        # No other type holds each of DynamoDB's numbers, and a key that does not fit is put aside.
        number, digits = "string", "any number as text; write bigint if all are whole"
    types = {
        "S": ("string", "" if is_key else "a date or a timestamp, if all values are one"),
        "N": (number, digits),
        "B": ("binary", ""),
        "BOOL": ("boolean", ""),
        "M": ("string", "the whole map as JSON; a struct, or columns with paths, reach into it"),
        "L": ("string", "the whole list as JSON, or an array of one type"),
        "SS": ("array<string>", ""),
        "NS": (f"array<{number}>", digits),
        "BS": ("array<binary>", ""),
    }
    lake, guess = types[type_]
    if type_ == "S" and not all(map(re.compile(r"\d{4}-\d\d-\d\d").match, values)):
        guess = ""
    if not is_key:
        guess = f"{guess + '; ' if guess else ''}seen in {len(values)} of {sample} items"
    entries: dict[str, str | list[str]] = {"name": name, "type": lake, "source_type": type_}
    if name != attribute:
        entries["from"] = [attribute] if "." in attribute else attribute
    draft.column(entries, guess)


def _numbers(values: Sequence[Any]) -> tuple[str, str]:
    """The type for numbers such as these, and a comment on the part that is guessed."""
    numbers = [Decimal(value) for value in values if isinstance(value, str) and _is_number(value)]
    scale = max(map(_decimals, numbers), default=0)
    if scale == 0 and all(abs(number) <= _LARGEST_BIGINT for number in numbers):
        return "bigint", "whole numbers, as in the sample; others are in _rest"
    scale = min(max(scale, 2), _DECIMAL_DIGITS // 2)
    return f"decimal({_DECIMAL_DIGITS},{scale})", "digits after the point as in the sample; longer ones are in _rest"


def _is_number(value: str) -> bool:
    return re.fullmatch(r"[-+0-9.eE]+", value) is not None


def _decimals(number: Decimal) -> int:
    """How many digits a number has after its decimal point."""
    return len(format(number, "f").rstrip("0").partition(".")[2]) if "." in format(number, "f") else 0


def _describe(draft: _Draft, comment: str | None, otherwise: str) -> None:
    text = _bounded(comment or "", _DESCRIPTION_BYTES)
    draft.says("description", _scalar(text or otherwise), "" if text else "nothing says what it is")


def _place(draft: _Draft, rows: int, unanalyzed_bytes: int | None = None) -> None:
    """Write the draft's fields that decide which file holds a row: ``partition_by`` and ``buckets``."""
    draft.says("partition_by", "[]", "no partitions; it cannot be changed later")
    buckets = min(_MOST_BUCKETS, -(-rows // ROWS_PER_BUCKET) or 1)
    size = f"for {rows:,} rows"
    if unanalyzed_bytes:
        about = round(rows, 2 - len(str(rows)))
        size = f"for about {about:,} rows, by {unanalyzed_bytes / _MIB:,.1f} MiB that ANALYZE has not counted"
    draft.says("buckets", str(buckets), f"{size}; it cannot be changed later")


def _commented(comment: str) -> dict[str, str]:
    text = _bounded(comment, _COMMENT_BYTES)
    return {"description": text} if text else {}


def _bounded(comment: str, most: int) -> str:
    """A comment as one line of at most this many bytes."""
    return one_line(comment).encode()[:most].decode(errors="ignore").strip()


def _lake_name(name: str) -> str:
    """A name as the lake has it: in lower case, with _ between words."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    plain = re.sub(r"[^a-z0-9_]+", "_", parted.lower())
    return plain if NAME.match(plain) else f"c_{plain.strip('_')}" if plain.strip("_") else plain


def _scalar(value: str | list[str]) -> str:
    """A text, or a list of texts, as YAML writes it within a mapping in braces."""
    written = yaml.safe_dump([value], default_flow_style=True, width=1 << 20, allow_unicode=True)
    return written.strip()[1:-1]
