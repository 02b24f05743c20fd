"""Contracts from YAML, checked field by field. Stays on the laptop: the jobs read the model's own JSON.

The Structs are the documents as people write them; ``schemas/contract.schema.json`` tells editors the same. What spans
several fields, or needs a type to be parsed, is checked here in code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType, field

from headwater.contract.conversions import check_conversion, check_dynamodb_conversion, holds
from headwater.contract.model import DYNAMODB, POSTGRESQL, Column, Contract, Source
from headwater.contract.types import NAME, SourceType, Type, parse_type
from headwater.errors import UserError
from headwater.yaml_files import convert, load_yaml, read_yaml, refusal, yaml_paths

_Column = TypeVar("_Column")
_PARTITION_KINDS = ("int", "bigint", "string", "date")
_KEY_KINDS = {POSTGRESQL: _PARTITION_KINDS, DYNAMODB: (*_PARTITION_KINDS, "decimal", "binary")}
_DYNAMODB_KEYS = ("S", "N", "B")

# Python's $ alone would also match before a line break at the end.
_END = r"$(?!\n)"
_DIFFERENT = {"uniqueItems": True}
_TEXT = {"pattern": r"\S", "extra": {"expected": "a text that is not empty"}}
_NAME = {
    "pattern": NAME.pattern,
    "extra": {"expected": "lower-case letters, digits and _, beginning with a letter"},
}


class _Written(Struct, frozen=True, forbid_unknown_fields=True):
    """A mapping that takes the fields it names and no others."""


class PostgresqlSource(_Written, frozen=True, kw_only=True):
    """The PostgreSQL table whose changes make the lake table."""

    database: Annotated[Literal["postgresql", "dynamodb"], Meta(description="The kind of database.")]
    table: Annotated[
        str,
        Meta(
            pattern=rf"^[a-z_][a-z0-9_]*\.[a-z_][a-z0-9_]*{_END}",
            description="schema.table",
            extra={"expected": "schema.table"},
        ),
    ]


class DynamodbSource(_Written, frozen=True, kw_only=True):
    """The DynamoDB table whose changes make the lake table."""

    database: Annotated[Literal["postgresql", "dynamodb"], Meta(description="The kind of database.")]
    table: Annotated[
        str,
        Meta(
            pattern=rf"^[a-zA-Z0-9_.-]{{3,255}}{_END}",
            description="The table's name; an environment's own follows `headwater-`.",
            extra={"expected": "a DynamoDB table's name"},
        ),
    ]


class _WrittenColumn(_Written, frozen=True, kw_only=True):
    name: Annotated[str, Meta(description="The lake column's name, in lower case.", **_NAME)]
    type: Annotated[
        str,
        Meta(
            description="The lake column's type, as Spark spells it; in quotes where it has a comma.",
            examples=[
                "int", "bigint", "float", "double", "boolean", "string", "binary", "date", "timestamp",
                "decimal(12,4)", "array<string>", "struct<city:string,zip:string>",
            ],
            **_TEXT,
        ),
    ]  # fmt: skip


class PostgresqlColumn(_WrittenColumn, frozen=True, kw_only=True):
    """A lake column and the PostgreSQL column, or the place in a JSON column, that it holds."""

    source_type: (
        Annotated[
            str,
            Meta(
                description="PostgreSQL's type, as format_type prints it; enum for any enum. Left out beside a path.",
                examples=[
                    "smallint", "integer", "bigint", "numeric(12,4)", "numeric", "real", "double precision", "boolean",
                    "character varying(40)", "text", "uuid", "enum", "date", "timestamp with time zone", "jsonb",
                    "bytea",
                ],
                **_TEXT,
            ),
        ]
        | UnsetType
    ) = UNSET  # fmt: skip
    path: (
        Annotated[
            str,
            Meta(
                pattern=rf"^[^.]+(\.[^.]+)*{_END}",
                description="The source column where it has another name, or a path into JSON: payload.customer.",
                extra={"expected": "a text: a source column, or a path such as payload.customer"},
            ),
        ]
        | UnsetType
    ) = field(name="from", default=UNSET)


class DynamodbColumn(_WrittenColumn, frozen=True, kw_only=True):
    """A lake column and the attribute, or the place in a map, that it holds."""

    source_type: Annotated[
        Literal["S", "N", "B", "BOOL", "M", "L", "SS", "NS", "BS"],
        Meta(description="DynamoDB's type; of a path, the type of what it leads to."),
    ]
    path: (
        Annotated[
            Annotated[str, Meta(pattern=rf"^[^.]+(\.[^.]+)*{_END}")]
            | Annotated[list[Annotated[str, Meta(min_length=1, extra={"expected": "a name"})]], Meta(min_length=1)],
            Meta(
                description="The attribute where it has another name, a path into its maps (settings.locale), or a "
                "list of names, which may hold dots ([nick.name]). Capitals count.",
                extra={"expected": "an attribute, a path such as address.city, or a list of names that may hold dots"},
            ),
        ]
        | UnsetType
    ) = field(name="from", default=UNSET)
    transform: (
        Annotated[
            Literal["month"],
            Meta(description="month: makes a string of the month of an ISO 8601 date or timestamp: 2024-02."),
        ]
        | UnsetType
    ) = UNSET


class _WrittenContract(_Written, frozen=True, kw_only=True):
    table: Annotated[str, Meta(description="The lake table's name, as the file's.", **_NAME)]
    description: Annotated[str, Meta(description="For readers and the catalog.", **_TEXT)]
    key: Annotated[
        list[str],
        Meta(
            min_length=1,
            description="The columns that identify a row. Cannot be changed later.",
            extra_json_schema=_DIFFERENT,
            extra={"expected": "a list of at least one column"},
        ),
    ]
    partition_by: Annotated[
        list[str],
        Meta(
            max_length=1,
            description="The column that partitions the table, or none: []. Cannot be changed later.",
            extra={"expected": "a list of no column or one"},
        ),
    ]
    buckets: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description="File groups per partition: one for a few thousand rows, more for millions. Cannot be changed "
            "later.",
        ),
    ]


class PostgresqlContract(_WrittenContract, frozen=True, kw_only=True):
    """A lake table that is kept in step with a PostgreSQL table."""

    source: PostgresqlSource
    verify_with: (
        Annotated[
            str,
            Meta(
                description="An SQL file beside the contract that recomputes the source's rows, for headwater verify.",
                **_TEXT,
            ),
        ]
        | UnsetType
    ) = UNSET
    columns: Annotated[
        list[PostgresqlColumn],
        Meta(min_length=1, description="The columns.", extra={"expected": "a list of at least one column"}),
    ]


class DynamodbContract(_WrittenContract, frozen=True, kw_only=True):
    """A lake table that is kept in step with a DynamoDB table."""

    source: DynamodbSource
    columns: Annotated[
        list[DynamodbColumn],
        Meta(min_length=1, description="The columns.", extra={"expected": "a list of at least one column"}),
    ]


def read_contracts(folder: Path) -> list[Contract]:
    """All contracts of a folder by table name. Raises UserError on an empty folder, a table described twice and a file
    with the ending ``.yml``."""
    contracts = sorted(_contracts(folder), key=lambda contract: contract.table)
    if not contracts:
        raise UserError(f"{folder}: found no contract, expected at least one .yaml file")
    for name in ("table", "source"):
        values = [getattr(contract, name) for contract in contracts]
        for value in values:
            if values.count(value) > 1:
                raise UserError(f"{folder}: {name} {value!r} is described by two contracts, expected one")
    return contracts


def _contracts(folder: Path) -> Iterator[Contract]:
    for path in yaml_paths(folder):
        contract = read_contract(path)
        if path.stem != contract.table:
            raise refusal(str(path), "table", contract.table, f"the file's name {path.stem!r}")
        yield contract


def read_contract(path: Path) -> Contract:
    """Read one contract's YAML. Raises UserError naming file, field, what was found and what was expected."""
    return from_document(read_yaml(path), str(path))


def parse_contract(text: str, where: str) -> Contract:
    """Build a contract from its YAML; ``where`` names the file in errors. Raises UserError."""
    return from_document(load_yaml(text, where), where)


def from_document(document: Any, where: str) -> Contract:
    """Build a contract from its document; ``where`` names the file in errors. Raises UserError."""
    written: PostgresqlContract | DynamodbContract
    if _database(document) == DYNAMODB:
        written = convert(document, DynamodbContract, where)
        columns = tuple(_dynamodb_column(column, where, at) for at, column in _placed(written.columns))
        verify_with = None
    else:
        written = convert(document, PostgresqlContract, where)
        columns = tuple(_postgresql_column(column, where, at) for at, column in _placed(written.columns))
        verify_with = _given(written.verify_with)
    contract = Contract(
        table=written.table,
        description=written.description,
        source=Source(written.source.database, written.source.table),
        key=tuple(written.key),
        partition_by=tuple(written.partition_by),
        buckets=written.buckets,
        columns=columns,
        verify_with=verify_with,
    )
    _check_names(contract, where)
    return contract


def _database(document: Any) -> object:
    """The database that a document names, whatever else it is."""
    source = document.get("source") if isinstance(document, Mapping) else None
    return source.get("database") if isinstance(source, Mapping) else None


def _placed(columns: Iterable[_Column]) -> Iterator[tuple[str, _Column]]:
    """Each column with its place in the document, such as ``columns[1]``."""
    return ((f"columns[{index}]", column) for index, column in enumerate(columns))


def _given(value: str | UnsetType) -> str | None:
    return None if value is UNSET else value


def _check_names(contract: Contract, where: str) -> None:
    """Check that columns have different names, and that key and partition are columns that can be that."""
    names = [column.name for column in contract.columns]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{where}: columns: {name!r} appears twice, expected once")
    database = contract.source.database
    chosen = (
        ("key", contract.key, _KEY_KINDS[database]),
        ("partition_by", contract.partition_by, _PARTITION_KINDS),
    )
    for field_name, chosen_names, kinds in chosen:
        if len(set(chosen_names)) != len(chosen_names) or any(name not in names for name in chosen_names):
            raise refusal(where, field_name, list(chosen_names), f"different names out of: {', '.join(names)}")
        for name in chosen_names:
            _check_identity(contract.column(name), kinds, database, f"{where}: {field_name}: {name}")
    for name in contract.key:
        if contract.column(name).transform is not None:
            raise UserError(f"{where}: key: {name} has a transform, expected the attribute as it is")


def _check_identity(column: Column, kinds: tuple[str, ...], database: str, where: str) -> None:
    """Refuse a column that cannot be part of a key or a partition. ``where`` names file, field and column."""
    if column.type.kind not in kinds:
        raise UserError(f"{where} is {column.type.kind}, expected {', '.join(kinds)}")
    if database == DYNAMODB and column.source_type not in _DYNAMODB_KEYS:
        raise UserError(f"{where} has source_type {column.source_type}, expected {', '.join(_DYNAMODB_KEYS)}")
    if len(column.path) > 1:
        inside, whole = ("a map", "an attribute") if database == DYNAMODB else ("JSON", "a column")
        raise UserError(f"{where} comes from inside {inside}, expected {whole} of the source")


def _postgresql_column(column: PostgresqlColumn, where: str, at: str) -> Column:
    """The column that stands at ``at`` in the file ``where``."""
    type_ = _column_type(column, where, at)
    path = tuple(column.path.split(".")) if isinstance(column.path, str) else (column.name,)
    source_type = _given(column.source_type)
    in_json = len(path) > 1 or (source_type is not None and SourceType.parse(source_type).base in ("json", "jsonb"))
    if in_json and holds(type_, "float"):
        raise UserError(f"{where}: {at}.type: found a float inside JSON in {type_.ddl()}, expected double or decimal")
    if len(path) > 1:
        if source_type is not None:
            raise refusal(where, f"{at}.source_type", source_type, "none beside a path")
        return Column(column.name, type_, None, path)
    if source_type is None:
        raise UserError(
            f"{where}: {at}.source_type: found nothing, expected a text: PostgreSQL's type of the column {path[0]}"
        )
    problem = check_conversion(source_type, type_)
    if problem is not None:
        raise UserError(f"{where}: {at}.type: found {type_.ddl()} from {source_type}, but {problem}")
    return Column(column.name, type_, source_type, path)


def _dynamodb_column(column: DynamodbColumn, where: str, at: str) -> Column:
    """The column that stands at ``at`` in the file ``where``."""
    type_ = _column_type(column, where, at)
    if isinstance(column.path, UnsetType):
        path = [column.name]
    else:
        path = column.path.split(".") if isinstance(column.path, str) else column.path
    problem = check_dynamodb_conversion(column.source_type, type_)
    if problem is not None:
        raise UserError(f"{where}: {at}.type: found {type_.ddl()} from {column.source_type}, but {problem}")
    transform = _given(column.transform)
    if transform is not None and (column.source_type, type_.kind) != ("S", "string"):
        expected = f"none on {type_.ddl()} from {column.source_type}: month makes a string of an S"
        raise refusal(where, f"{at}.transform", transform, expected)
    return Column(column.name, type_, column.source_type, tuple(path), transform)


def _column_type(column: PostgresqlColumn | DynamodbColumn, where: str, at: str) -> Type:
    try:
        type_ = parse_type(column.type)
    except ValueError as error:
        raise UserError(f"{where}: {at}.type: {error}") from None
    if type_.kind != "timestamp" and holds(type_, "timestamp"):
        # hudi-rs 0.5 cannot reconcile such a column between a base and a log file.
        raise UserError(f"{where}: {at}.type: found a timestamp inside {type_.ddl()}, expected string in its place")
    return type_
