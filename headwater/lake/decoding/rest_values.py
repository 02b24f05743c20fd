"""Fills (backfills) columns from ``_rest``: columns that a contract has gained, or whose types have grown.

``_rest`` keeps unmapped fields and values with conversion errors, by their paths. A column is filled from the entry at
its path, or from an entry around it, with the same conversion as for a new change. The unused part of an entry goes
back to ``_rest``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from headwater.contract.model import Column, Contract, along
from headwater.lake.decoding.exact_values import dotted

Names = tuple[str, ...]
Entries = dict[str, Any]
"""The entries of ``_rest``, by their paths as text."""


class Read(NamedTuple):
    """The result of reading entries of ``_rest``."""

    values: Mapping[str, Any]
    """The columns' values, by the columns' names."""
    rest: Entries
    """The entries that no column uses."""
    unfit: Collection[str]
    """The columns that have conversion errors."""


class RowRest(NamedTuple):
    """The parts of a row that are needed to fill it."""

    rest: str
    """The row's ``_rest``."""
    unfit: Collection[str]
    """The row's ``_unfit``."""
    op: str
    """The row's ``_op``."""
    absent: Collection[str]
    """The columns that have no value."""


class Filled(NamedTuple):
    """The new values of a filled row."""

    values: Mapping[str, Any]
    """The filled columns, by name."""
    rest: str | None
    """The new ``_rest``."""
    unfit: list[str] | None
    """The new ``_unfit``."""


class RestForm(NamedTuple):
    """The format of a source's values in ``_rest``."""

    split: Callable[[str], Entries]
    """Splits the text of ``_rest`` into entries."""
    join: Callable[[Entries], str]
    """Makes the text of ``_rest`` from entries."""
    read: Callable[[tuple[Column, ...], Mapping[Names, Any], RowRest], Read]
    """Reads entries into these columns of a row. The entries are given by their paths."""


class Filler:
    """Fills the columns of a contract from ``_rest``.

    It leaves out the columns of the key and of the partition, because they decide the row's location. It also leaves
    out columns with masked or excluded values, because ``_rest`` may have these in clear.
    """

    def __init__(self, contract: Contract, form: RestForm) -> None:
        fixed = {*contract.key, *contract.partition_by}
        self._form = form
        # In _rest, a name with a dot may look like a path.
        self._columns = [
            column
            for column in contract.columns
            if column.name not in fixed and not any("." in n for n in column.path) and not _is_hidden(column, contract)
        ]

    def fill(self, row: RowRest) -> Filled | None:
        """Fill the row's columns from its ``_rest``. Returns None if that changes nothing."""
        # Find the entries with values for empty columns, and read all columns that share these entries.
        entries = self._form.split(row.rest)
        holders = {column.name: _holder(column.path, entries) for column in self._columns}
        used = {holders[name] for name in row.absent if holders.get(name)} - {None}
        if not used:
            return None
        columns = tuple(column for column in self._columns if holders[column.name] in used)
        read = self._form.read(columns, {path: entries[dotted(path)] for path in used if path}, row)
        values = {name: value for name, value in read.values.items() if name in row.absent and value is not None}
        # The tried columns are unfit only if their values still do not fit. All other columns keep their mark.
        tried = {column.name for column in columns} & set(row.absent)
        unfit = (set(row.unfit) - tried) | (tried & set(read.unfit))
        if not values and unfit == set(row.unfit):
            return None
        kept = {name: entry for name, entry in entries.items() if name not in {dotted(path) for path in used if path}}
        rest = {**kept, **read.rest}
        return Filled(values, self._form.join(rest) if rest else None, sorted(unfit) or None)


def _is_hidden(column: Column, contract: Contract) -> bool:
    """Whether a contract masks or excludes a column's value or a part of it."""
    hidden = (*(mask.path for mask in contract.masks), *contract.exclude)
    return any(along(column.path, path, contract.source.database) for path in hidden)


def _holder(path: Names, entries: Collection[str]) -> Names | None:
    """The path of the outermost entry that holds a path's value, or None."""
    for length in range(1, len(path) + 1):
        if dotted(path[:length]) in entries:
            return path[:length]
    return None


def nested(entries: Mapping[Names, Any], wrap: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """Turn entries with paths into a tree by the paths' names. ``wrap`` makes a value from the members of a branch."""
    tree: dict[str, Any] = {}
    inner: dict[str, dict[Names, Any]] = {}
    for (name, *further), entry in entries.items():
        if further:
            inner.setdefault(name, {})[tuple(further)] = entry
        else:
            tree[name] = entry
    return {**{name: wrap(nested(below, wrap)) for name, below in inner.items()}, **tree}
