"""Reads contracts from YAML, and checks them. Never shipped to the jobs, which read the model's own JSON.

``document`` checks each field by itself. This module checks rules of several fields, and parses types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from msgspec import UNSET, UnsetType, structs

from headwater.contract.conversions import check_conversion, check_dynamodb_conversion, check_transform, holds
from headwater.contract.document import (
    ATTRIBUTE_PATH_EXPECTED,
    DynamodbColumn,
    DynamodbContract,
    PostgresqlColumn,
    PostgresqlContract,
)
from headwater.contract.model import (
    CHANGE_DAY,
    DEFAULT,
    DYNAMODB,
    HMAC,
    POSTGRESQL,
    Column,
    Contract,
    History,
    Mask,
    Source,
    along,
    catalog_names,
    from_json,
    masks_of,
    same_path,
    split_path,
)
from headwater.contract.transforms import Transform, parse_transform
from headwater.contract.types import SourceType, Type, parse_type
from headwater.errors import UserError
from headwater.yaml_files import convert, load_yaml, read_yaml, refusal, yaml_paths

_PARTITION_KINDS = ("int", "bigint", "string", "date")
_KEY_KINDS = {POSTGRESQL: _PARTITION_KINDS, DYNAMODB: (*_PARTITION_KINDS, "decimal", "binary")}
_DYNAMODB_KEYS = ("S", "N", "B")
_DESCRIPTION_BYTES, _COMMENT_BYTES = 1_500, 255
_TEXTS = {POSTGRESQL: ("text", "character varying", "character"), DYNAMODB: ("S",)}
"""The source types whose values can be masked by HMAC."""
_OF_HISTORY = (CHANGE_DAY, "changed_at", "valid_from", "valid_to")
"""The columns that a change history and its views add to the contract's columns."""
_Column = TypeVar("_Column")


def read_contracts(folder: Path) -> list[Contract]:
    """Return all contracts of a folder, sorted by table name.

    Raises UserError if the folder has no contract, or has a ``.yml`` file. Raises it also if two contracts describe one
    table, or if two names differ only in underscores.
    """
    contracts, refused = readable_contracts(folder)
    if refused:
        raise next(iter(refused.values()))
    return contracts


def readable_contracts(folder: Path) -> tuple[list[Contract], dict[str, UserError]]:
    """Return the contracts of a folder, and by table name the error of each contract that cannot be read.

    Raises UserError as ``read_contracts`` does, but only if no contract of the folder can be read.
    """
    contracts: list[Contract] = []
    refused: dict[str, UserError] = {}
    for path in yaml_paths(folder):
        try:
            contracts.append(_read_named(path))
        except UserError as error:
            refused[path.stem] = error
    if refused and not contracts:
        raise next(iter(refused.values()))
    contracts.sort(key=lambda contract: contract.table)
    if not contracts:
        raise UserError(
            f"{folder}: found no contract, expected at least one .yaml file: headwater contract infer writes contracts"
        )
    # No two contracts may share a name in the catalog or a source table.
    described = {
        "name of a table or view": [name for contract in contracts for name in catalog_names(contract)],
        "source": [f"{contract.source.database}: {contract.source.table}" for contract in contracts],
    }
    for name, values in described.items():
        for value in values:
            if values.count(value) > 1:
                raise UserError(f"{folder}: {name} {value} is described by two contracts, expected one")
    ids: dict[str, str] = {}
    for name in described["name of a table or view"]:
        # CDK leaves underscores out of the id of a resource.
        other = ids.setdefault(name.replace("_", ""), name)
        if other != name:
            raise UserError(
                f"{folder}: found tables or views named {other} and {name}, expected names that differ in letters or "
                "digits: CloudFormation's ids have no underscores. Give one table another name in the lake"
            )
    return contracts, refused


def _read_named(path: Path) -> Contract:
    """Read the contract of a file that is called as its table."""
    contract = read_contract(path)
    if path.stem != contract.table:
        raise refusal(str(path), "table", contract.table, f"the file's name {path.stem!r}")
    return contract


def read_versions(path: Path) -> list[Contract]:
    """Return the contracts of a file or a folder, which are YAML, or JSON of ``Contract.to_json``. Raises UserError."""
    if path.is_dir() and not any(path.glob("*.json")):
        return read_contracts(path)
    paths = sorted(path.glob("*.json")) if path.is_dir() else [path]
    return [_read_json(entry) if entry.suffix == ".json" else read_contract(entry) for entry in paths]


def _read_json(path: Path) -> Contract:
    try:
        return from_json(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None


def read_contract(path: Path) -> Contract:
    """Read one contract's YAML file. Raises UserError, which names file, field, found and expected."""
    return from_document(read_yaml(path), str(path))


def parse_contract(text: str, where: str) -> Contract:
    """Return the contract that a YAML text describes. ``where`` names the file in errors. Raises UserError."""
    return from_document(load_yaml(text, where), where)


def from_document(document: Any, where: str) -> Contract:
    """Return the contract that a document describes. ``where`` names the file in errors. Raises UserError."""
    # Convert the fields that differ between the databases first.
    written: PostgresqlContract | DynamodbContract
    if _database(document) == DYNAMODB:
        written = convert(document, DynamodbContract, where)
        columns = tuple(_dynamodb_column(column, where, at) for at, column in _placed(written.columns))
        source = Source(DYNAMODB, written.source.table, time_to_live=_given(written.source.time_to_live))
        verify_with = None
        exclude = tuple(_attribute_path(entry, where, f"exclude[{at}]") for at, entry in enumerate(written.exclude))
    else:
        written = convert(document, PostgresqlContract, where)
        columns = tuple(_postgresql_column(column, where, at) for at, column in _placed(written.columns))
        identity = DEFAULT if written.source.replica_identity == DEFAULT else None
        source = Source(POSTGRESQL, written.source.table, replica_identity=identity)
        verify_with = _given(written.verify_with)
        exclude = tuple((name,) for name in written.exclude)
    # Build the contract, then check its fields against each other.
    contract = Contract(
        table=written.table,
        description=_in_bytes(written.description, _DESCRIPTION_BYTES, where, "description"),
        source=source,
        key=tuple(written.key),
        partition_by=tuple(written.partition_by),
        buckets=written.buckets,
        columns=columns,
        verify_with=verify_with,
        on_unfit=written.on_unfit,
        exclude=exclude,
        unnamed=written.unnamed,
        masks=masks_of(source.database, written.mask or {}),
        history=None if isinstance(written.history, UnsetType) else History(**structs.asdict(written.history)),
    )
    _check_names(contract, where)
    _check_exclude(contract, where)
    _check_masks(contract, where)
    _check_hidden_inside(contract, where)
    return contract


def _database(document: Any) -> object:
    """Return the database that a document names; None if it names none. The document may have any shape."""
    source = document.get("source") if isinstance(document, Mapping) else None
    return source.get("database") if isinstance(source, Mapping) else None


def _placed(columns: Iterable[_Column]) -> Iterator[tuple[str, _Column]]:
    """Return each column with its path in the document, such as ``columns[1]``."""
    return ((f"columns[{index}]", column) for index, column in enumerate(columns))


def _in_bytes(text: str, most: int, where: str, field: str) -> str:
    """Return a text if it has at most ``most`` bytes. The catalog counts bytes, and ``document`` counts characters."""
    size = len(text.encode())
    if size > most:
        raise UserError(f"{where}: {field}: found {size} bytes, expected at most {most}")
    return text


def _described(column: PostgresqlColumn | DynamodbColumn, where: str, at: str) -> str | None:
    text = _given(column.description)
    return None if text is None else _in_bytes(text, _COMMENT_BYTES, where, f"{at}.description")


def _given(value: str | UnsetType) -> str | None:
    return None if value is UNSET else value


def _check_names(contract: Contract, where: str) -> None:
    """Check that columns have different names, and that columns of key and partition exist and are allowed there."""
    names = [column.name for column in contract.columns]
    for name in names:
        if contract.history is not None and name in _OF_HISTORY:
            raise UserError(
                f"{where}: columns: found {name}, which a table's history adds itself, expected another name"
            )
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{where}: columns: {name!r} appears twice, expected once")
    # Key and partition name existing columns of suitable types, each once.
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
            raise UserError(f"{where}: key: {name} has a transform, expected a column without a transform")


def _check_exclude(contract: Contract, where: str) -> None:
    """Check that each path is excluded once, and that no column has an excluded value."""
    for path in contract.exclude:
        found = ".".join(path)
        if contract.exclude.count(path) > 1:
            raise UserError(f"{where}: exclude: found {found!r} twice, expected it once")
        for column in contract.columns:
            if same_path(column.path[: len(path)], path, contract.source.database):
                raise UserError(
                    f"{where}: exclude: found {found!r}, which the column {column.name} holds, expected a path that no "
                    "column names: remove the column, or the entry"
                )


def _check_masks(contract: Contract, where: str) -> None:
    """Check that masks overlap neither each other nor excluded paths, and that columns can hold masked values."""
    database = contract.source.database
    left_out = [mask.path for mask in contract.masks] + list(contract.exclude)
    for mask in contract.masks:
        found = ".".join(mask.path)
        if "" in mask.path:
            raise UserError(f"{where}: mask: found {found!r}, expected {ATTRIBUTE_PATH_EXPECTED.rpartition(',')[0]}")
        if sum(along(mask.path, other, database) for other in left_out) > 1:
            raise UserError(
                f"{where}: mask: found {found!r}, which overlaps another path of mask or exclude, expected each value "
                "once"
            )
        for column in contract.columns:
            if same_path(column.path[: len(mask.path)], mask.path, database):
                _check_masked(column, mask, contract, f"{where}: mask: {found}")


def _check_hidden_inside(contract: Contract, where: str) -> None:
    """Check that paths to excluded or masked values of DynamoDB lead only through maps, as far as columns say.

    A path cannot lead into a list, because a list's elements have no names.
    """
    for path in contract.hidden_inside:
        field = "exclude" if path in contract.exclude else "mask"
        for column in contract.columns:
            other = _other_than_map(column, path)
            if other is not None:
                held, type_ = other
                whole = ".".join(held)
                raise UserError(
                    f"{where}: {field}: found {'.'.join(path)!r}, which leads into {whole}, of type {type_} by the "
                    f"column {column.name}. Expected a path only through maps: {field} {whole} as a whole"
                    f"{', without the column' if field == 'exclude' and held == column.path else ''}"
                )


def _other_than_map(column: Column, path: tuple[str, ...]) -> tuple[tuple[str, ...], str] | None:
    """Return the first value before a path's end that has another type than a map: the value's own path, and its type.

    The column declares the types. None if the column declares only maps, or nothing, on the path.
    """
    # Follow the rest of the path through the column's structs, which hold maps.
    depth = len(column.path)
    if depth >= len(path) or column.path != path[:depth]:
        return None
    if column.source_type != "M":
        return column.path, f"{column.source_type} ({column.type.ddl()})"
    type_ = column.type
    for at in range(depth, len(path) - 1):
        inside = dict(type_.fields).get(path[at]) if type_.kind == "struct" else None
        if inside is None:
            return None
        if inside.kind != "struct":
            return path[: at + 1], inside.ddl()
        type_ = inside
    return None


def _check_masked(column: Column, mask: Mask, contract: Contract, where: str) -> None:
    """Check a column that holds a masked value or a part of one. ``where`` names file, field and path."""
    identity = {"key": contract.key, "partition_by": contract.partition_by}
    for field_name, names in identity.items():
        if column.name in names:
            raise UserError(
                f"{where}: found the column {column.name} of {field_name}, expected a column of neither key nor "
                "partition_by"
            )
    if len(column.path) > len(mask.path):
        raise UserError(
            f"{where}: found the column {column.name}, which holds a part of the masked value, expected no such "
            "column: let the column hold the whole value"
        )
    if mask.how != HMAC:
        return
    texts = _TEXTS[contract.source.database]
    source_type = column.source_type or ""
    base = SourceType.parse(source_type) if contract.source.database == POSTGRESQL else None
    is_text = source_type in texts if base is None else base.base in texts and not base.array
    if not is_text or column.type.kind != "string" or column.transform is not None:
        raise UserError(
            f"{where}: found hmac on {column.type.ddl()} from {source_type}, expected string from "
            f"{', '.join(texts)}: mask it as null"
        )


def _check_identity(column: Column, kinds: tuple[str, ...], database: str, where: str) -> None:
    """Raise UserError if a column cannot be part of a key or a partition. ``where`` names file, field and column."""
    if column.type.kind not in kinds:
        raise UserError(f"{where} is {column.type.kind}, expected {', '.join(kinds)}")
    if database == DYNAMODB and column.source_type not in _DYNAMODB_KEYS:
        raise UserError(f"{where} has source_type {column.source_type}, expected {', '.join(_DYNAMODB_KEYS)}")
    if len(column.path) > 1:
        inside, whole = ("a map", "an attribute") if database == DYNAMODB else ("JSON", "a column")
        raise UserError(f"{where} comes from inside {inside}, expected {whole} of the source")


def _postgresql_column(column: PostgresqlColumn, where: str, at: str) -> Column:
    """Return the column at the path ``at`` in the file ``where``. Raises UserError."""
    type_ = _column_type(column, where, at)
    path = tuple(column.path.split(".")) if isinstance(column.path, str) else (column.name,)
    source_type, transform, description = (
        _given(column.source_type),
        _transform(column),
        _described(column, where, at),
    )
    # A path into JSON has neither a source type nor a transform. Any other column needs a source type.
    in_json = len(path) > 1 or (source_type is not None and SourceType.parse(source_type).base in ("json", "jsonb"))
    if in_json and holds(type_, "float"):
        raise UserError(f"{where}: {at}.type: found a float inside JSON in {type_.ddl()}, expected double or decimal")
    if len(path) > 1:
        if source_type is not None:
            raise refusal(where, f"{at}.source_type", source_type, "none beside a path into JSON")
        if transform is not None:
            raise refusal(where, f"{at}.transform", str(transform), "none beside a path into JSON")
        return Column(column.name, type_, None, path, None, description)
    if source_type is None:
        raise UserError(
            f"{where}: {at}.source_type: found nothing, expected a text: PostgreSQL's type of the column {path[0]}"
        )
    _check_type(POSTGRESQL, source_type, type_, transform, f"{where}: {at}")
    return Column(column.name, type_, source_type, path, transform, description)


def _dynamodb_column(column: DynamodbColumn, where: str, at: str) -> Column:
    """Return the column at the path ``at`` in the file ``where``. Raises UserError."""
    type_ = _column_type(column, where, at)
    path = (column.name,) if isinstance(column.path, UnsetType) else _attribute_path(column.path, where, f"{at}.from")
    transform = _transform(column)
    _check_type(DYNAMODB, column.source_type, type_, transform, f"{where}: {at}")
    return Column(column.name, type_, column.source_type, path, transform, _described(column, where, at))


def _transform(column: PostgresqlColumn | DynamodbColumn) -> Transform | None:
    return None if isinstance(column.transform, UnsetType) else parse_transform(column.transform)


def _check_type(database: str, source_type: str, type_: Type, transform: Transform | None, where: str) -> None:
    """Raise UserError if values cannot reach a type by their transform, or unchanged if there is none.

    ``where`` names file and column.
    """
    if transform is not None:
        problem = check_transform(database, source_type, type_, transform)
    else:
        check = check_dynamodb_conversion if database == DYNAMODB else check_conversion
        problem = check(source_type, type_)
    if problem is not None:
        by = "" if transform is None else f" by {transform}"
        raise UserError(f"{where}.type: found {type_.ddl()} from {source_type}{by}, but {problem}")


def _attribute_path(written: str | list[str], where: str, field: str) -> tuple[str, ...]:
    """Return the names in a path to an attribute of DynamoDB. Raises UserError if a name is empty."""
    path = split_path(written)
    if "" in path:
        raise refusal(where, field, written, ATTRIBUTE_PATH_EXPECTED)
    return path


def _column_type(column: PostgresqlColumn | DynamodbColumn, where: str, at: str) -> Type:
    try:
        type_ = parse_type(column.type)
    except ValueError as error:
        raise UserError(f"{where}: {at}.type: {error}") from None
    if type_.kind != "timestamp" and holds(type_, "timestamp"):
        # hudi-rs 0.5 cannot reconcile such a column between a base and a log file.
        raise UserError(f"{where}: {at}.type: found a timestamp inside {type_.ddl()}, expected string in its place")
    return type_
