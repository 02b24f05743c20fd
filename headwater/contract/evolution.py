"""The rules for changes of a contract whose table has rows, and what each change means for these rows.

The writer enforces the rules. Runs on EMR and Glue too, so it uses the standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from headwater.contract.model import DROP, DYNAMODB, POSTGRESQL, Column, Contract
from headwater.contract.types import SourceType, Type

SAFE = "safe"
"""The change needs no action."""
FILL = "fill"
"""Stored rows do not fit the new contract until somebody acts."""
REFUSED = "refused"
"""The writer stops, the deployment is refused, or rows would be wrong."""

SAME, WIDER, NARROWER, OTHER = "same", "wider", "narrower", "other"
TYPE_RULE = "Only a decimal's digits before the point may become more or fewer."
_FROM_SOURCE = "change the rows in the source (PostgreSQL: UPDATE … SET c = c), or take the table anew"
_AGAIN = "have the table's rows read again: headwater resync"
_CLEAR = f"{_AGAIN}; to clear all other stores, see docs/how-to/leaked-values.md"
_READ_IN_CATALOG = "readers see it in the catalog; the writer is started anew"
_UNMASKED = "rows that were written before keep their masks"
_LAYOUT = ("key", "partition_by", "buckets")
# Fields of a contract's source: the name, the text for a field without a value, and the consequence of a change.
_SOURCE_SETTINGS = (
    (
        "time_to_live",
        "none",
        "DynamoDB expires items by it from the deployment on; expired items become tombstones",
    ),
    ("replica_identity", "full", "the deployment sets it, and changes logged with either identity are read"),
)


@dataclass(frozen=True)
class Change:
    """One change of a table's contract."""

    table: str
    """The name of the lake table."""
    subject: str
    """The changed part: a field (``key``, ``source.table``), a column (``columns.city``), or ``table``."""
    verdict: str
    """``SAFE``, ``FILL`` or ``REFUSED``."""
    change: str
    """The difference between the two contracts."""
    meaning: str
    """The consequence for the stored rows."""
    action: str = ""
    """What to do; "" if no action is needed."""
    resources: bool = False
    """Whether resources would be lost. ``reviewed/acknowledged_replacements.yaml`` may acknowledge the loss."""

    def __str__(self) -> str:
        """Return the sentence that a reviewer reads."""
        action = f"; {self.action}" if self.action else ""
        return f"{self.table}: {self.subject}: {self.change}: {self.meaning}{action}"


def layout(contract: Contract) -> str:
    """Return the part of a contract that decides which file holds a row. It cannot change once rows are stored."""
    return json.dumps({**_named_layout(contract), **_transforms(contract)}, sort_keys=True)


def is_layout(stored: str, contract: Contract) -> bool:
    """Return whether the writer, with this contract, finds rows of the layout ``stored``.

    Layouts of releases before 0.2.0 have no transforms.
    """
    return stored in (layout(contract), json.dumps(_named_layout(contract), sort_keys=True))


def _named_layout(contract: Contract) -> dict[str, Any]:
    return {name: getattr(contract, name) for name in _LAYOUT}


def _transforms(contract: Contract) -> dict[str, list[str]]:
    """Return the transforms of the partition columns, if there are any."""
    transforms = [contract.column(name).transform for name in contract.partition_by]
    return {"transforms": [str(transform) for transform in transforms]} if any(transforms) else {}


def type_change(before: Type, after: Type) -> str:
    """Return how a column's type changes: ``SAME``, ``WIDER``, ``NARROWER`` or ``OTHER``.

    A decimal is wider or narrower if it gets more or fewer digits before the point. The writer refuses any other
    change. Inside arrays and structs a decimal's change is refused as well, because Hudi 0.15 does not read both widths
    in one table.
    """
    if before == after:
        return SAME
    if before.kind == after.kind == "decimal" and before.scale == after.scale:
        return WIDER if before.precision < after.precision else NARROWER
    return OTHER


def changes(before: Iterable[Contract], after: Iterable[Contract]) -> list[Change]:
    """Return the changes from the contracts ``before`` to the contracts ``after``, sorted by table.

    A column that an earlier contract had, and that ``before`` lacks, is unknown here. If such a column comes back, its
    type in the table counts.
    """
    old = {contract.table: contract for contract in before}
    new = {contract.table: contract for contract in after}
    return [
        change
        for table in sorted(old.keys() | new.keys())
        for change in _changes(table, old.get(table), new.get(table))
    ]


def _changes(table: str, old: Contract | None, new: Contract | None) -> Iterator[Change]:
    if new is None:
        yield Change(
            table,
            "table",
            REFUSED,
            "the contract is gone",
            "its topic or its DynamoDB table, and its Glue table, would be deleted; the lake's files stay",
            "see docs/reference/contracts.md, Limits, and agree to the losses that `headwater dev review gate` names",
            resources=True,
        )
    elif old is None:
        if new.source.database == DYNAMODB:
            are_read, load = "are not read", f"load them by `headwater backfill EXPORT --table {table}`"
        else:
            are_read = "are read, unless connect.snapshot_mode is no_data"
            load = f"if it is no_data, load them by `headwater backfill --table {table}`"
        yield Change(
            table,
            "table",
            FILL,
            "a new contract",
            f"changes arrive from the deployment on, and older rows of the source {are_read}",
            load,
        )
    else:
        yield from _source_changes(old, new)
        yield from _layout_changes(old, new)
        yield from _column_changes(old, new)
        yield from _setting_changes(old, new)


def _source_changes(old: Contract, new: Contract) -> Iterator[Change]:
    before, after = old.source, new.source
    if (before.database, before.table) != (after.database, after.table):
        yield Change(
            new.table,
            "source.table",
            REFUSED,
            f"{before.database} {before.table} becomes {after.database} {after.table}",
            "the old topic or DynamoDB table would be deleted, and changes between a rename and the deployment are "
            "captured under neither name",
            "describe a new table; or agree to the losses that `headwater dev review gate` names, raise the epoch, and "
            "have the table read anew",
            resources=True,
        )
    for name, unset, what_follows in _SOURCE_SETTINGS:
        former, present = getattr(before, name), getattr(after, name)
        if former != present:
            yield Change(
                new.table, f"source.{name}", SAFE, f"{former or unset} becomes {present or unset}", what_follows
            )


def _layout_changes(old: Contract, new: Contract) -> Iterator[Change]:
    for name in _LAYOUT:
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            yield Change(
                new.table,
                name,
                REFUSED,
                f"{_listed(before)} becomes {_listed(after)}",
                f"{name} decides which file holds a row, and stored rows stay in their files: the writer refuses",
                "describe the table under another name, in place of this one, and have it read by `headwater resync`; "
                "the deployment deletes the former view",
            )


def _listed(value: object) -> str:
    return (", ".join(value) or "none") if isinstance(value, tuple) else str(value)


def _column_changes(old: Contract, new: Contract) -> Iterator[Change]:
    before = {column.name: column for column in old.columns}
    after = {column.name: column for column in new.columns}
    for name in before.keys() - after.keys():
        yield _dropped(before[name], new)
    for column in new.columns:
        if column.name in before:
            yield from _column_change(before[column.name], column, new)
        else:
            yield _added(column, old, new)
    kept = [name for name in before if name in after]
    if kept != [name for name in after if name in before]:
        yield Change(new.table, "columns", SAFE, "another order", "files and readers know columns by their names")


def _dropped(column: Column, new: Contract) -> Change:
    if new.unnamed == DROP:
        meaning = "rows of earlier files keep their values there, unseen; later rows are written without the values"
        return Change(new.table, f"columns.{column.name}", SAFE, "dropped", meaning)
    heir = next((other.name for other in new.columns if other.path == column.path), None)
    meaning = "rows of earlier files keep their values there, unseen; later rows have the values in _rest"
    if heir is not None:
        meaning = f"rows of earlier files keep their values there, unseen; later rows have the values in {heir}"
    return Change(new.table, f"columns.{column.name}", SAFE, "dropped", meaning)


def _added(column: Column, old: Contract, new: Contract) -> Change:
    # The new column's values may be in a former column, nowhere, or in _rest.
    renamed = next((other.name for other in old.columns if other.path == column.path), None)
    change = "added" if renamed is None or new.has(renamed) else f"added in place of {renamed}"
    subject = f"columns.{column.name}"
    meaning = "null in rows that were written before"
    if renamed is not None:
        stored = f"{meaning}; their values stay in {renamed} and are not in _rest"
        return Change(new.table, subject, FILL, change, stored, _FROM_SOURCE)
    if old.unnamed == DROP or any(path == column.path[: len(path)] for path in old.exclude):
        return Change(
            new.table, subject, FILL, change, f"{meaning}; their _rest does not have the values", _FROM_SOURCE
        )
    return Change(
        new.table,
        subject,
        FILL,
        change,
        meaning,
        _fill(new),
    )


def _fill(contract: Contract) -> str:
    return f"after the deployment run `headwater fill {contract.table}`"


def _column_change(before: Column, after: Column, contract: Contract) -> Iterator[Change]:
    subject = f"columns.{after.name}"
    kind = type_change(before.type, after.type)
    retyped = f"{before.type.ddl()} becomes {after.type.ddl()}"
    if kind == WIDER:
        meaning = "old and new rows stand side by side; before the first wide row the writer compacts the table once"
        yield Change(contract.table, subject, SAFE, retyped, meaning)
    elif kind == NARROWER:
        meaning = "stored rows keep the wide type; a new value with more digits does not fit"
        yield Change(contract.table, subject, SAFE, retyped, meaning)
    elif kind == OTHER:
        yield Change(
            contract.table, subject, REFUSED, retyped, f"the writer refuses. {TYPE_RULE}", _way_out(after, contract)
        )
    # Another path means that the source has renamed the column, or that the column gets other values.
    if before.path != after.path:
        meaning = (
            "older rows keep their values; values that came under the new name until the deployment are in _rest, or "
            "in quarantine if this is a column of the key"
        )
        if after.name in contract.partition_by:
            meaning += (
                "; this is right only if the source has renamed the column: otherwise a row that changes leaves its "
                "old copy in its former partition"
            )
        yield Change(
            contract.table,
            subject,
            FILL,
            f"from {'.'.join(before.path)} becomes from {'.'.join(after.path)}",
            meaning,
            _fill(contract),
        )
    if before.transform != after.transform:
        yield _transformed(before, after, contract)
    if before.description != after.description:
        yield Change(contract.table, subject, SAFE, "another description", _READ_IN_CATALOG)
    if before.source_type != after.source_type and before.path == after.path:
        if after.name in contract.partition_by and _is_part_of_another_time(before, after):
            yield Change(
                contract.table,
                subject,
                REFUSED,
                f"source_type {before.source_type} becomes {after.source_type}",
                f"the {after.transform} of a row may differ, and the row's old copy would stay in the former partition",
                "describe a new table",
            )
            return
        yield Change(
            contract.table,
            subject,
            SAFE,
            f"source_type {before.source_type} becomes {after.source_type}",
            "records that were captured before the source changed are read by the new type",
            "before the deployment, wait until the writer has read all records from before the source's change",
        )


def _is_part_of_another_time(before: Column, after: Column) -> bool:
    """Return whether a transform takes a part of a time whose source type changes.

    The source sends no events for such a change, although it may shift times by the session's time zone.
    """
    bases = {SourceType.parse(column.source_type or "").base for column in (before, after)}
    is_part = after.transform is not None and not after.transform.is_bucket and after.transform.unit is None
    return is_part and len(bases) > 1


def _way_out(column: Column, contract: Contract) -> str:
    if column.name in contract.key or column.name in contract.partition_by:
        return "describe a new table: a column of key or partition keeps its type"
    path = ".".join(column.path)
    named = f"a second column, such as {{name: {column.name}_2, from: {path}, type: …}}"
    if column.type.kind in ("struct", "array"):
        return (
            f"keep this column as it is, and add a column for each new field by its path (from: {path}.…), or "
            f"add {named}"
        )
    return f"keep this column as it is and add {named}; older rows get its value with their next change"


def _paths(contract: Contract, other: Contract) -> list[str]:
    """Return the paths that ``contract`` excludes and ``other`` does not."""
    return [".".join(path) for path in contract.exclude if path not in other.exclude]


def _transformed(before: Column, after: Column, contract: Contract) -> Change:
    change = f"transform {before.transform or 'none'} becomes {after.transform or 'none'}"
    subject = f"columns.{after.name}"
    if after.name in contract.partition_by:
        return Change(
            contract.table,
            subject,
            REFUSED,
            change,
            "rows would lie in other partitions than before, and their old copies stay",
            "describe a new table",
        )
    return Change(
        contract.table,
        subject,
        FILL,
        change,
        "rows that were written before keep their values",
        _FROM_SOURCE,
    )


def _mask_changes(old: Contract, new: Contract, stored: str) -> Iterator[Change]:
    before, after = ({mask.path: mask.how or "null" for mask in contract.masks} for contract in (old, new))
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) == after.get(path):
            continue
        change = f"{'.'.join(path)} {before.get(path, 'in clear')} becomes {after.get(path, 'in clear')}"
        meaning = stored if path in after else _UNMASKED
        if new.source.database == POSTGRESQL:
            meaning += "; a value that arrives unmasked while the writer's contract has the mask becomes null"
        yield Change(new.table, "mask", FILL, change, meaning, _CLEAR if path in after else _AGAIN)


def _history_changes(old: Contract, new: Contract) -> Iterator[Change]:
    before, after, table = old.history, new.history, new.table
    if before == after:
        return
    if before is None:
        meaning = (
            "it begins with the changes that are still in the landing objects or in the stream, and is whole once all "
            "rows are read again"
        )
        yield Change(table, "history", FILL, "begun", meaning, f"after the deployment run `headwater resync {table}`")
    elif after is None:
        meaning = (
            "its table, views and statements leave the catalog; its files stay, with all their values, and get no "
            f"more changes. Delete {table}_changes before another history is begun"
        )
        yield Change(table, "history", SAFE, "ended", meaning)
    elif before.buckets != after.buckets:
        yield Change(
            table,
            "history.buckets",
            REFUSED,
            f"{before.buckets} becomes {after.buckets}",
            "it decides which file holds a change, and stored changes stay in their files: the writer refuses",
            "keep the former value",
        )
    else:
        change = f"{before.keep_days} becomes {after.keep_days}"
        meaning = (
            f"the history begins {after.keep_days} days ago at the earliest; changes that were deleted already do not "
            "come back"
        )
        yield Change(table, "history.keep_days", SAFE, change, meaning)


def _setting_changes(old: Contract, new: Contract) -> Iterator[Change]:
    stored = (
        "existing rows, landing objects, quarantine and history, and earlier versions of files, keep the values that "
        "are excluded or masked from now on"
    )
    fewer, more = _paths(old, new), _paths(new, old)
    if more:
        yield Change(new.table, "exclude", FILL, f"{', '.join(more)} added", stored, _CLEAR)
    if fewer:
        meaning = "rows that are written from now on have the value in _rest or in its column"
        yield Change(new.table, "exclude", SAFE, f"{', '.join(fewer)} removed", meaning)
    yield from _mask_changes(old, new, stored)
    if old.unnamed != new.unnamed:
        change = f"{old.unnamed} becomes {new.unnamed}"
        if new.unnamed == DROP:
            yield Change(new.table, "unnamed", FILL, change, stored, _CLEAR)
        else:
            meaning = "rows that are written from now on keep fields that no column names, in _rest"
            yield Change(new.table, "unnamed", SAFE, change, meaning)
    if old.on_unfit != new.on_unfit:
        meaning = "it holds for records that are read from the deployment on; quarantined records stay in quarantine"
        yield Change(new.table, "on_unfit", SAFE, f"{old.on_unfit} becomes {new.on_unfit}", meaning)
    yield from _history_changes(old, new)
    if old.verify_with != new.verify_with:
        change = f"{old.verify_with or 'none'} becomes {new.verify_with or 'none'}"
        yield Change(new.table, "verify_with", SAFE, change, "only headwater verify reads it")
    if old.description != new.description:
        yield Change(new.table, "description", SAFE, "another text", _READ_IN_CATALOG)
