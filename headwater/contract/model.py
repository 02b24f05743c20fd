"""A contract as the writers, CDK and ``headwater verify`` know it.

Runs on EMR and Glue too: the standard library only, Python 3.11 and later. ``reading`` makes contracts from YAML.
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
"""The month, day or hour of an item without the attribute."""
KEEP = "keep"
"""A row with a value that does not fit is written without that value."""
QUARANTINE = "quarantine"
"""A record with a value that does not fit is put aside."""
DROP = "drop"
"""Values that no column names are stored nowhere."""
DEFAULT = "default"
"""Of a row before its change, PostgreSQL logs only the primary key, and only if the key changes."""
HMAC = "hmac"
"""A text is replaced by its HMAC-SHA-256 under the environment's key."""
CHANGE_DAY = "change_day"
"""The column that partitions a change history: the day of the change in UTC, as 2024-02-29. Hive and Athena do not see
folders whose names begin with an underscore."""
ROW_OPS = ("c", "r", "u", "d")
"""The values of ``_op`` of a row's changes. A history has rows of no key besides: ``t`` for a floor, and two notes."""
BEGUN_LATE = "late"
"""A note that a history begins with changes from that ``_order`` on. It may lack older ones."""
EXPIRED = "expired"
"""A note that a history's changes before then may be gone."""


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
    type: Type
    """The type in the lake."""
    source_type: str | None
    """The type in the source; None if the contract does not name it."""
    path: tuple[str, ...]
    """(source column,) or (source column, JSON key, …); for DynamoDB (attribute,) or (attribute, key of its map, …)."""
    transform: Transform | None = None
    """How the value at the path is changed; None if it stays as it is."""
    description: str | None = None
    """The meaning of the values; None if the contract has none."""

    @property
    def absent(self) -> str | None:
        """The column's value for a DynamoDB item without the attribute."""
        return UNKNOWN if self.transform is not None and not self.transform.is_bucket else None

    def before_transform(self) -> Column:
        """Return the column without its transform, of the type that the transform takes.

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
    """The change history that is kept beside a table."""

    keep_days: int
    """For how many days changes are kept."""
    buckets: int = 1
    """The number of file groups for each day."""


@dataclass(frozen=True)
class Contract:
    """One lake table.

    ``docs/reference/contracts.md`` describes the fields as a contract's file has them.
    """

    table: str
    """The name of the lake table."""
    description: str
    source: Source
    key: tuple[str, ...]
    """The columns of the record key."""
    partition_by: tuple[str, ...]
    """The columns that partition the table."""
    buckets: int
    """The number of file groups in each partition."""
    columns: tuple[Column, ...]
    verify_with: str | None = None
    """The SQL file whose query computes the source's rows for ``headwater verify``; None for the table's own rows."""
    on_unfit: str = KEEP
    """How a row with a value that does not fit its column is stored."""
    exclude: tuple[tuple[str, ...], ...] = ()
    """The paths of values that are stored nowhere: (source column,) for PostgreSQL; for DynamoDB (attribute,) or
    (attribute, key of its map, …)."""
    unnamed: str = KEEP
    """``KEEP`` or ``DROP`` for values that no column names."""
    masks: tuple[Mask, ...] = ()
    """The masked values, sorted by the texts of their paths."""
    history: History | None = None
    """The change history; None if there is none."""
    is_history: bool = False
    """Whether this is the contract of a change history itself (``change_history``), with a row for each change, by key
    and order."""

    @property
    def main_table(self) -> str:
        """The lake table whose change history it is, or itself if it is none. Commands ask for a history's rows by
        that name."""
        return self.table.removesuffix(HISTORY_ENDING) if self.is_history else self.table

    @property
    def needs_mask_key(self) -> bool:
        """Whether something of the table is masked by HMAC."""
        return any(mask.how == HMAC for mask in self.masks)

    @property
    def hides_columns(self) -> bool:
        """Whether PostgreSQL's source connector removes or masks columns of the table."""
        return self.source.database == POSTGRESQL and bool(self.exclude or self.masks or self.unnamed == DROP)

    @property
    def hidden_inside(self) -> list[tuple[str, ...]]:
        """The paths that ``exclude`` and ``masks`` name inside attributes of DynamoDB. They lead through maps alone."""
        return [path for path in (*self.exclude, *(mask.path for mask in self.masks)) if len(path) > 1]

    def column(self, name: str) -> Column:
        """The column of that name; raises KeyError."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def has(self, name: str) -> bool:
        """Whether the contract has a column of that name."""
        return any(column.name == name for column in self.columns)

    def lake_columns(self) -> list[tuple[str, Type]]:
        """Name and type of all columns that the writer stores, in order; Hudi's own ``_hoodie_*`` come before them."""
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
        """The columns that partition the lake table: those by which the source's rows are partitioned, or a history's
        day."""
        return (CHANGE_DAY,) if self.is_history else self.partition_by

    @property
    def place(self) -> tuple[str, ...]:
        """The columns of the lake table that say where a row is: its partition and its record key."""
        return (*self.partitions, "_key")

    def to_json(self) -> str:
        """The contract as the JSON that ships to the cluster; ``from_json`` reads it back to an equal contract."""
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
    """The names of a path as contracts write it: with dots between them, or as a list."""
    return tuple(written.split(".") if isinstance(written, str) else written)


def along(path: tuple[str, ...], other: tuple[str, ...], database: str) -> bool:
    """Whether one of two paths leads to the other, or through it."""
    shorter = min(len(path), len(other))
    return same_path(path[:shorter], other[:shorter], database)


def same_path(path: tuple[str, ...], other: tuple[str, ...], database: str) -> bool:
    """Whether two paths are one. Debezium compares the names of columns without regard to capitals."""
    if database == DYNAMODB:
        return path == other
    return [name.lower() for name in path] == [name.lower() for name in other]


def masks_of(database: str, written: Mapping[str, str | None]) -> tuple[Mask, ...]:
    """Masks as contracts write them: by column for PostgreSQL, by path for DynamoDB. They are sorted by what they
    mask."""
    return tuple(Mask(split_path(name) if database == DYNAMODB else (name,), written[name]) for name in sorted(written))


def from_json(text: str, where: str) -> Contract:
    """Read what ``Contract.to_json`` wrote; ``where`` is its address. Raises UserError if it is something else."""
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
"""How the name of a table's history ends."""


def change_history(contract: Contract) -> Contract | None:
    """The contract of the table that keeps a table's changes; None if none are kept. A row that takes another place
    in the table stays one row there: the history has no partitions but the days."""
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
    """The contracts of all tables that the lake has for these, each one's history behind it."""
    tables: list[Contract] = []
    for contract in contracts:
        history = change_history(contract)
        tables += [contract] if history is None else [contract, history]
    return tables


def catalog_names(contract: Contract) -> list[str]:
    """The names that a contract's tables and views have in the Glue database."""
    names = [contract.table, f"{contract.table}_current"]
    if contract.history is not None:
        names += [f"{contract.table}{end}" for end in (HISTORY_ENDING, "_versions", "_history")]
    return names


def of_database(contracts: Iterable[Contract], database: str) -> list[Contract]:
    """Those contracts whose source is a database of that kind (``POSTGRESQL`` or ``DYNAMODB``), in their order."""
    return [contract for contract in contracts if contract.source.database == database]
