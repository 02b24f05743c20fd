"""Contracts from YAML, checked field by field. Stays on the laptop: the jobs read the model's own JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headwater.contract.conversions import check_conversion, check_dynamodb_conversion, holds
from headwater.contract.model import DYNAMODB, POSTGRESQL, Column, Contract, Source
from headwater.contract.types import NAME, SourceType, Type, parse_type
from headwater.errors import UserError
from headwater.yaml_files import load_yaml

_PARTITION_KINDS = ("int", "bigint", "string", "date")
_KEY_KINDS = {POSTGRESQL: _PARTITION_KINDS, DYNAMODB: (*_PARTITION_KINDS, "decimal", "binary")}
_DYNAMODB_KEYS = ("S", "N", "B")
_SOURCE_TABLES = {
    POSTGRESQL: (re.compile(r"[a-z_][a-z0-9_]*\.[a-z_][a-z0-9_]*\Z"), "schema.table"),
    DYNAMODB: (re.compile(r"[a-zA-Z0-9_.-]{3,255}\Z"), "a DynamoDB table's name"),
}


class _Reader:
    """Reads a mapping field by field and reports file, field, found and expected."""

    def __init__(self, where: str, document: Any, known: tuple[str, ...]) -> None:
        self.where = where
        if not isinstance(document, Mapping):
            raise UserError(f"{where}: found {document!r}, expected a mapping with {', '.join(known)}")
        self._document = document
        for name in document:
            if name not in known:
                raise UserError(f"{where}: unknown field {name!r}, expected one of {', '.join(known)}")

    def fail(self, field: str, expected: str) -> UserError:
        return UserError(f"{self.where}: {field}: found {self._document.get(field)!r}, expected {expected}")

    def text(self, field: str) -> str:
        value = self._document.get(field)
        if not isinstance(value, str) or not value.strip():
            raise self.fail(field, "a text")
        return value

    def has(self, field: str) -> bool:
        return field in self._document

    def get(self, field: str) -> Any:
        return self._document.get(field)

    def name(self, field: str) -> str:
        value = self.text(field)
        if not NAME.match(value):
            raise self.fail(field, "lower-case letters, digits and _, starting with a letter")
        return value

    def names(self, field: str, known: tuple[str, ...]) -> tuple[str, ...]:
        value = self._document.get(field)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.fail(field, "a list of column names")
        if len(set(value)) != len(value) or any(item not in known for item in value):
            raise self.fail(field, f"different names out of: {', '.join(known)}")
        return tuple(value)


def from_document(document: Any, where: str) -> Contract:
    """Build a contract from its document; ``where`` names the file in errors. Raises UserError."""
    reader = _Reader(
        where,
        document,
        ("table", "description", "source", "key", "partition_by", "buckets", "columns", "verify_with"),
    )
    source = _Reader(f"{where}: source", reader.get("source"), ("database", "table"))
    database = source.text("database")
    if database not in _SOURCE_TABLES:
        raise source.fail("database", " or ".join(_SOURCE_TABLES))
    pattern, expected = _SOURCE_TABLES[database]
    if not pattern.match(source.text("table")):
        raise source.fail("table", expected)
    if database == DYNAMODB and reader.has("verify_with"):
        raise reader.fail("verify_with", "none: DynamoDB answers no SQL")
    entries = reader.get("columns")
    if not isinstance(entries, list) or not entries:
        raise reader.fail("columns", "a list of columns")
    read_column = _dynamodb_column if database == DYNAMODB else _postgresql_column
    columns = tuple(read_column(entry, f"{where}: columns[{index}]") for index, entry in enumerate(entries))
    names = tuple(column.name for column in columns)
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{where}: columns: {name!r} appears twice, expected once")
    key = reader.names("key", names)
    if not key:
        raise reader.fail("key", "at least one column")
    partition_by = reader.names("partition_by", names)
    buckets = reader.get("buckets")
    if not isinstance(buckets, int) or isinstance(buckets, bool) or not 1 <= buckets <= 10_000:
        raise reader.fail("buckets", "a number from 1 to 10000")
    contract = Contract(
        table=reader.name("table"),
        description=reader.text("description"),
        source=Source(database, source.text("table")),
        key=key,
        partition_by=partition_by,
        buckets=buckets,
        columns=columns,
        verify_with=reader.text("verify_with") if reader.has("verify_with") else None,
    )
    for field, chosen, kinds in (("key", key, _KEY_KINDS[database]), ("partition_by", partition_by, _PARTITION_KINDS)):
        for name in chosen:
            _check_identity(contract.column(name), kinds, database, f"{where}: {field}: {name}")
    for name in key:
        if contract.column(name).transform is not None:
            raise UserError(f"{where}: key: {name} has a transform, expected the attribute as it is")
    if len(partition_by) > 1:
        raise reader.fail("partition_by", "no column or one")
    return contract


def _check_identity(column: Column, kinds: tuple[str, ...], database: str, where: str) -> None:
    """Refuse a column that cannot be part of a key or a partition. ``where`` names file, field and column."""
    if column.type.kind not in kinds:
        raise UserError(f"{where} is {column.type.kind}, expected {', '.join(kinds)}")
    if database == DYNAMODB and column.source_type not in _DYNAMODB_KEYS:
        raise UserError(f"{where} has source_type {column.source_type}, expected {', '.join(_DYNAMODB_KEYS)}")
    if len(column.path) > 1:
        inside, whole = ("a map", "an attribute") if database == DYNAMODB else ("JSON", "a column")
        raise UserError(f"{where} comes from inside {inside}, expected {whole} of the source")


def _postgresql_column(document: Any, where: str) -> Column:
    reader = _Reader(where, document, ("name", "type", "source_type", "from"))
    name, type_ = reader.name("name"), _column_type(reader)
    path = tuple(reader.text("from").split(".")) if reader.has("from") else (name,)
    if not all(path):
        raise reader.fail("from", "a source column, or a path such as payload.customer")
    in_json = len(path) > 1 or SourceType.parse(str(reader.get("source_type"))).base in ("json", "jsonb")
    if in_json and holds(type_, "float"):
        raise UserError(f"{where}: type: found a float inside JSON in {type_.ddl()}, expected double or decimal")
    if len(path) > 1:
        if reader.has("source_type"):
            raise UserError(f"{where}: source_type: found {reader.get('source_type')!r}, expected none beside a path")
        return Column(name, type_, None, path)
    source_type = reader.text("source_type")
    problem = check_conversion(source_type, type_)
    if problem is not None:
        raise UserError(f"{where}: type: found {type_.ddl()} from {source_type}, but {problem}")
    return Column(name, type_, source_type, path)


def _dynamodb_column(document: Any, where: str) -> Column:
    reader = _Reader(where, document, ("name", "type", "source_type", "from", "transform"))
    name, type_ = reader.name("name"), _column_type(reader)
    given = reader.get("from") if reader.has("from") else [name]
    path = given.split(".") if isinstance(given, str) else given
    if not isinstance(path, list) or not path or not all(isinstance(part, str) and part for part in path):
        raise reader.fail("from", "an attribute, a path such as address.city, or a list of names that may hold dots")
    source_type = reader.text("source_type")
    problem = check_dynamodb_conversion(source_type, type_)
    if problem is not None:
        raise UserError(f"{where}: type: found {type_.ddl()} from {source_type}, but {problem}")
    transform = None
    if reader.has("transform"):
        transform = reader.text("transform")
        if transform != "month":
            raise reader.fail("transform", "month")
        if (source_type, type_.kind) != ("S", "string"):
            raise reader.fail("transform", f"none on {type_.ddl()} from {source_type}: month makes a string of an S")
    return Column(name, type_, source_type, tuple(path), transform)


def _column_type(reader: _Reader) -> Type:
    try:
        type_ = parse_type(reader.text("type"))
    except ValueError as error:
        raise UserError(f"{reader.where}: type: {error}") from None
    if type_.kind != "timestamp" and holds(type_, "timestamp"):
        # hudi-rs 0.5 cannot reconcile such a column between a base and a log file.
        raise UserError(f"{reader.where}: type: found a timestamp inside {type_.ddl()}, expected string in its place")
    return type_


def read_contract(path: Path) -> Contract:
    """Read one contract's YAML. Raises UserError naming file, field, found and expected."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    return parse_contract(text, str(path))


def parse_contract(text: str, where: str) -> Contract:
    """Build a contract from its YAML; ``where`` names the file in errors. Raises UserError."""
    return from_document(load_yaml(text, where), where)


def read_contracts(folder: Path) -> list[Contract]:
    """All contracts of a folder by table name. Raises UserError on an empty folder or a table described twice."""
    contracts = sorted(_contracts(folder), key=lambda contract: contract.table)
    if not contracts:
        raise UserError(f"{folder}: found no contract, expected at least one .yaml file")
    for field in ("table", "source"):
        values = [getattr(contract, field) for contract in contracts]
        for value in values:
            if values.count(value) > 1:
                raise UserError(f"{folder}: {field} {value!r} is described by two contracts, expected one")
    return contracts


def _contracts(folder: Path) -> Iterator[Contract]:
    for path in sorted(folder.glob("*.yaml")):
        contract = read_contract(path)
        if path.stem != contract.table:
            raise UserError(f"{path}: table: found {contract.table!r}, expected the file's name {path.stem!r}")
        yield contract
