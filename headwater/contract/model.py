"""A contract as the writers, CDK and ``headwater verify`` know it. ``reading`` makes contracts from YAML.

Runs on EMR and Glue too, so it uses the standard library only, in Python 3.11 and later.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from headwater.contract.transforms import Transform, parse_transform
from headwater.contract.types import Type, parse_type
from headwater.errors import UserError

POSTGRESQL = "postgresql"
DYNAMODB = "dynamodb"
UNKNOWN = "unknown"
"""The month, day or hour of an item that lacks the attribute."""
KEEP = "keep"
"""A row with a value that does not fit is written without that value."""
QUARANTINE = "quarantine"
"""A record with a value that does not fit goes into quarantine."""
DROP = "drop"
"""Values that no column names are stored nowhere."""
DEFAULT = "default"
"""PostgreSQL logs only the primary key of a row before its change, and only if the key changes."""
HMAC = "hmac"
"""A text is replaced by its HMAC-SHA-256 under the environment's key."""
CHANGE_DAY = "change_day"
"""The column that partitions a change history: the day of the change in UTC, as 2024-02-29.

Its name does not begin with an underscore, because Hive and Athena ignore such folders.
"""
ROW_OPS = ("c", "r", "u", "d")
"""The values of ``_op`` for changes of a row.

A history also has rows without a key: ``t`` for a truncate marker, ``BEGUN_LATE`` and ``EXPIRED``.
"""
BEGUN_LATE = "late"
"""The ``_op`` of a history's marker row: the history may lack changes below the row's ``_order``."""
EXPIRED = "expired"
"""The ``_op`` of a history's marker row: the history may lack changes before the row's ``_source_ts``."""


@dataclass(frozen=True)
class Source:
    """The source table of a contract."""

    database: str
    """The kind of database: ``POSTGRESQL`` or ``DYNAMODB``."""
    table: str
    """The table's full name in the database."""
    time_to_live: str | None = None
    """The attribute by which a DynamoDB table's items expire; None if they do not."""
    replica_identity: str | None = None
    """``DEFAULT``, or None if PostgreSQL logs the whole row before a change."""

    @property
    def schema(self) -> str:
        """The schema of a PostgreSQL table."""
        return self.table.partition(".")[0]

    @property
    def name(self) -> str:
        """The table's name without its schema."""
        return self.table.rpartition(".")[2]


@dataclass(frozen=True)
class Column:
    """A column of a lake table."""

    name: str
    """The column's name."""
    type: Type
    """The type in the lake."""
    source_type: str | None
    """The type in the source; None if the contract does not name it."""
    path: tuple[str, ...]
    """The path in the source: (column, JSON key, …), or in DynamoDB (attribute, map key, …). Keys may be missing."""
    transform: Transform | None = None
    """How the value at the path is changed; None if it stays as it is."""
    description: str | None = None
    """The meaning of the values; None if the contract has none."""

    @property
    def absent(self) -> str | None:
        """The column's value for a DynamoDB item that lacks the attribute."""
        return UNKNOWN if self.transform is not None and not self.transform.is_bucket else None

    def before_transform(self) -> Column:
        """Return the column without its transform. Its type is the one that the transform takes.

        The type is ``bigint`` for a number with a unit, ``date`` or ``timestamp`` for a time of PostgreSQL, and
        ``string`` otherwise.
        """
        if self.transform is None:
            return self
        kind = "string"
        if self.transform.unit is not None:
            kind = "bigint"
        elif not self.transform.is_bucket and self.source_type != "S":
            kind = "date" if self.source_type == "date" else "timestamp"
        return replace(self, type=Type(kind), transform=None)


@dataclass(frozen=True)
class Mask:
    """A value of the source that the lake stores only in masked form."""

    path: tuple[str, ...]
    """The value's path, as in ``Contract.exclude``."""
    how: str | None
    """``HMAC``, or None for null."""


@dataclass(frozen=True)
class History:
    """The change history of a table."""

    keep_days: int
    """For how many days changes are kept."""
    buckets: int = 1
    """The number of file groups for each day."""


@dataclass(frozen=True)
class Contract:
    """The contract of one lake table.

    ``docs/reference/contracts.md`` describes the fields as a contract's file has them.
    """

    table: str
    """The name of the lake table."""
    description: str
    """The description for readers and the catalog."""
    source: Source
    """The source table."""
    key: tuple[str, ...]
    """The columns of the record key."""
    partition_by: tuple[str, ...]
    """The columns that partition the table."""
    buckets: int
    """The number of file groups in each partition."""
    columns: tuple[Column, ...]
    """The columns, in the order of the contract's file."""
    verify_with: str | None = None
    """The SQL file whose query computes the source's rows for ``headwater verify``; None for the table's own rows."""
    on_unfit: str = KEEP
    """How a row with a value that does not fit its column is stored."""
    exclude: tuple[tuple[str, ...], ...] = ()
    """The paths of values that are stored nowhere: (column,), or in DynamoDB (attribute, map key, …)."""
    unnamed: str = KEEP
    """The handling of values that no column names: ``KEEP`` or ``DROP``."""
    masks: tuple[Mask, ...] = ()
    """The masked values, sorted by the texts of their paths."""
    history: History | None = None
    """The change history; None if there is none."""
    is_history: bool = False
    """Whether the contract describes a change history, with a row for each change (``change_history``)."""

    @property
    def main_table(self) -> str:
        """The lake table that a change history belongs to; for any other contract, its own table.

        Commands use this name to request work for a history.
        """
        return self.table.removesuffix(HISTORY_ENDING) if self.is_history else self.table

    @property
    def needs_mask_key(self) -> bool:
        """Whether a value of the table is masked by HMAC."""
        return any(mask.how == HMAC for mask in self.masks)

    @property
    def hides_columns(self) -> bool:
        """Whether PostgreSQL's source connector removes or masks columns of the table."""
        return self.source.database == POSTGRESQL and bool(self.exclude or self.masks or self.unnamed == DROP)

    @property
    def hidden_inside(self) -> list[tuple[str, ...]]:
        """The paths in ``exclude`` and ``masks`` that lead into attributes of DynamoDB. They lead only through maps."""
        return [path for path in (*self.exclude, *(mask.path for mask in self.masks)) if len(path) > 1]

    def column(self, name: str) -> Column:
        """Return the column with a name. Raises KeyError if there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def has(self, name: str) -> bool:
        """Return whether the contract has a column with this name."""
        return any(column.name == name for column in self.columns)

    def lake_columns(self) -> list[tuple[str, Type]]:
        """Return name and type of all columns that the writer stores, in order, without Hudi's ``_hoodie_*``."""
        own = ("_key", "_op", "_order")
        deleted_by = [("_deleted_by", Type("string"))] if self.source.database == DYNAMODB else []
        change_day = [(CHANGE_DAY, Type("string"))] if self.is_history else []
        return [
            *((column.name, column.type) for column in self.columns),
            *((name, Type("string")) for name in own),
            ("_source_ts", Type("timestamp")),
            ("_position", Type("string")),
            ("_deleted", Type("boolean")),
            *deleted_by,
            ("_rest", Type("string")),
            ("_unfit", Type("array", element=Type("string"))),
            *change_day,
        ]

    @property
    def partitions(self) -> tuple[str, ...]:
        """The columns that partition the lake table: ``partition_by``, or the day of the change in a history."""
        return (CHANGE_DAY,) if self.is_history else self.partition_by

    @property
    def place(self) -> tuple[str, ...]:
        """The columns of a row's record location: the partition columns and the record key (Hudi's ``HoodieKey``)."""
        return (*self.partitions, "_key")

    def to_json(self) -> str:
        """Return the contract as the JSON that is shipped to the cluster. ``from_json`` reads an equal contract."""
        document: dict[str, Any] = {
            "table": self.table,
            "description": self.description,
            "source": {name: value for name, value in asdict(self.source).items() if value is not None},
            "key": list(self.key),
            "partition_by": list(self.partition_by),
            "buckets": self.buckets,
            "on_unfit": self.on_unfit,
            "columns": [_column_document(column) for column in self.columns],
        }
        if self.verify_with is not None:
            document["verify_with"] = self.verify_with
        if self.exclude:
            document["exclude"] = [_path_document(path) for path in self.exclude]
        if self.unnamed != KEEP:
            document["unnamed"] = self.unnamed
        if self.history is not None:
            document["history"] = asdict(self.history)
        if self.masks:
            document["mask"] = {".".join(mask.path): mask.how for mask in self.masks}
        return json.dumps(document, indent=1, sort_keys=True) + "\n"


def _column_document(column: Column) -> dict[str, Any]:
    document: dict[str, Any] = {"name": column.name, "type": column.type.ddl()}
    if column.source_type is not None:
        document["source_type"] = column.source_type
    if column.path != (column.name,):
        document["from"] = _path_document(column.path)
    if column.transform is not None:
        document["transform"] = str(column.transform)
    if column.description is not None:
        document["description"] = column.description
    return document


def _path_document(path: tuple[str, ...]) -> str | list[str]:
    return list(path) if any("." in name for name in path) else ".".join(path)


def split_path(written: str | list[str]) -> tuple[str, ...]:
    """Return the names of a path, which contracts write with dots between the names, or as a list."""
    return tuple(written.split(".") if isinstance(written, str) else written)


def along(path: tuple[str, ...], other: tuple[str, ...], database: str) -> bool:
    """Return whether two paths are the same, or one is the beginning of the other."""
    shorter = min(len(path), len(other))
    return same_path(path[:shorter], other[:shorter], database)


def same_path(path: tuple[str, ...], other: tuple[str, ...], database: str) -> bool:
    """Return whether two paths are the same. For PostgreSQL capitals do not count, because Debezium ignores them."""
    if database == DYNAMODB:
        return path == other
    return [name.lower() for name in path] == [name.lower() for name in other]


def masks_of(database: str, written: Mapping[str, str | None]) -> tuple[Mask, ...]:
    """Return the masks that a contract writes: by column for PostgreSQL, and by path for DynamoDB.

    They are sorted by column or path.
    """
    return tuple(Mask(split_path(name) if database == DYNAMODB else (name,), written[name]) for name in sorted(written))


def from_json(text: str, where: str) -> Contract:
    """Read a contract that ``Contract.to_json`` wrote, at the address ``where``. Raises UserError for another text."""
    try:
        document = json.loads(text)
        source = Source(**document["source"])
        return Contract(
            table=document["table"],
            description=document["description"],
            source=source,
            key=tuple(document["key"]),
            partition_by=tuple(document["partition_by"]),
            buckets=document["buckets"],
            columns=tuple(_column(entry) for entry in document["columns"]),
            verify_with=document.get("verify_with"),
            on_unfit=document.get("on_unfit", KEEP),
            exclude=tuple(split_path(entry) for entry in document.get("exclude", ())),
            unnamed=document.get("unnamed", KEEP),
            masks=masks_of(source.database, document.get("mask", {})),
            history=History(**document["history"]) if "history" in document else None,
        )
    except (LookupError, TypeError, ValueError) as error:
        raise UserError(
            f"{where}: found {type(error).__name__}: {error}, expected a contract as JSON, as a deployment writes it"
        ) from None


def _column(document: dict[str, Any]) -> Column:
    origin = document.get("from", [document["name"]])
    transform = document.get("transform")
    return Column(
        document["name"],
        parse_type(document["type"]),
        document.get("source_type"),
        split_path(origin),
        None if transform is None else parse_transform(transform),
        document.get("description"),
    )


HISTORY_ENDING = "_changes"
"""The end of the name of a table's history."""


def change_history(contract: Contract) -> Contract | None:
    """Return the contract of a table's change history; None if there is none.

    A history is partitioned only by days. So all changes of a row that moves to another partition have one key there.
    """
    if contract.history is None:
        return None
    return replace(
        contract,
        table=f"{contract.table}{HISTORY_ENDING}",
        description=f"All changes of {contract.table}, of {contract.history.keep_days} days. {contract.description}",
        partition_by=(),
        buckets=contract.history.buckets,
        verify_with=None,
        is_history=True,
    )


def lake_tables(contracts: Iterable[Contract]) -> list[Contract]:
    """Return the contracts of all lake tables, each followed by its change history."""
    tables: list[Contract] = []
    for contract in contracts:
        history = change_history(contract)
        tables += [contract] if history is None else [contract, history]
    return tables


def catalog_names(contract: Contract) -> list[str]:
    """Return the names of a contract's tables and views in the Glue database."""
    names = [contract.table, f"{contract.table}_current"]
    if contract.history is not None:
        names += [f"{contract.table}{end}" for end in (HISTORY_ENDING, "_versions", "_history")]
    return names


def of_database(contracts: Iterable[Contract], database: str) -> list[Contract]:
    """Return the contracts whose source is a database of a kind, ``POSTGRESQL`` or ``DYNAMODB``, in their order."""
    return [contract for contract in contracts if contract.source.database == database]
