"""Taking values out of ``_rest`` into columns that a contract has gained, or whose types have grown.

``_rest`` keeps what no column named, and what did not fit, by its path. A column is filled from the entry at its path,
or around it, by the conversion that a change of now would meet. What the columns leave over of an entry goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from headwater.contract.model import Column, Contract, along
from headwater.lake.decoding.exact_values import dotted

Names = tuple[str, ...]
Entries = dict[str, Any]
"""What stands in ``_rest``, by its path as text."""


class Read(NamedTuple):
    """What entries give: the columns' values by name, what is left over, and the columns that they do not fit."""

    values: Mapping[str, Any]
    rest: Entries
    unfit: Collection[str]


class RowRest(NamedTuple):
    """What fills a row: its ``_rest``, its ``_unfit``, its ``_op``, and the columns that have no value."""

    rest: str
    unfit: Collection[str]
    op: str
    absent: Collection[str]


class Filled(NamedTuple):
    """A row's filled columns by name, its new ``_rest`` and its new ``_unfit``."""

    values: Mapping[str, Any]
    rest: str | None
    unfit: list[str] | None


class RestForm(NamedTuple):
    """How a source's values stand in ``_rest``. ``read`` reads entries, each by its path, into these columns of a
    row."""

    split: Callable[[str], Entries]
    join: Callable[[Entries], str]
    read: Callable[[tuple[Column, ...], Mapping[Names, Any], RowRest], Read]


class Filler:
    """Fills the columns of a contract, except those of its key and its partition, which decide where a row stands, and
    those of what it masks or excludes, which ``_rest`` may have in clear."""

    def __init__(self, contract: Contract, form: RestForm) -> None:
        fixed = {*contract.key, *contract.partition_by}
        self._form = form
        # In _rest, a name with a dot may be taken for a path.
        self._columns = [
            column
            for column in contract.columns
            if column.name not in fixed and not any("." in n for n in column.path) and not _is_hidden(column, contract)
        ]

    def fill(self, row: RowRest) -> Filled | None:
        """The row's values out of its ``_rest``; None where that changes nothing."""
        entries = self._form.split(row.rest)
        holders = {column.name: _holder(column.path, entries) for column in self._columns}
        used = {holders[name] for name in row.absent if holders.get(name)} - {None}
        if not used:
            return None
        columns = tuple(column for column in self._columns if holders[column.name] in used)
        read = self._form.read(columns, {path: entries[dotted(path)] for path in used if path}, row)
        values = {name: value for name, value in read.values.items() if name in row.absent and value is not None}
        tried = {column.name for column in columns} & set(row.absent)
        unfit = (set(row.unfit) - tried) | (tried & set(read.unfit))
        if not values and unfit == set(row.unfit):
            return None
        kept = {name: entry for name, entry in entries.items() if name not in {dotted(path) for path in used if path}}
        rest = {**kept, **read.rest}
        return Filled(values, self._form.join(rest) if rest else None, sorted(unfit) or None)


def _is_hidden(column: Column, contract: Contract) -> bool:
    """Whether a contract masks or excludes what a column takes, or a part of it."""
    hidden = (*(mask.path for mask in contract.masks), *contract.exclude)
    return any(along(column.path, path, contract.source.database) for path in hidden)


def _holder(path: Names, entries: Collection[str]) -> Names | None:
    """The path of the outermost entry that holds a path's value, or None."""
    for length in range(1, len(path) + 1):
        if dotted(path[:length]) in entries:
            return path[:length]
    return None


def nested(entries: Mapping[Names, Any], wrap: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """Entries by their paths as the values of the names that their paths begin with; ``wrap`` makes the value that
    stands around others."""
    tree: dict[str, Any] = {}
    inner: dict[str, dict[Names, Any]] = {}
    for (name, *further), entry in entries.items():
        if further:
            inner.setdefault(name, {})[tuple(further)] = entry
        else:
            tree[name] = entry
    return {**{name: wrap(nested(below, wrap)) for name, below in inner.items()}, **tree}
