"""Comparing one source table with its lake table, whatever database the source is.

Of the source only the keys and a hash of each row are kept in memory, about 200 bytes a row; the lake streams past
them.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from headwater.contract.model import Contract
from headwater.errors import UserError
from headwater.verify.forms import Form, Row
from headwater.verify.lake import BATCH_ROWS, live_rows
from headwater.verify.spelling import shortened

MAX_EXAMPLES = 5

Progress = Callable[[str, str, int], None]


@dataclass(frozen=True)
class Field:
    """One compared column of the lake: its name, what turns the lake's values into forms, and what turns a form into
    text for people."""

    name: str
    lake: Callable[[pa.Array], list[Form]]
    shown: Callable[[Form], str]


class SourceTable(Protocol):
    """One table of a source, as its comparison needs it."""

    @property
    def contract(self) -> Contract:
        """The table's contract."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """The lake's columns that are compared, among them the contract's key."""

    def rows(self) -> Iterator[Row]:
        """The source's rows as forms in the order of ``fields``. A second call, made to say what differs, should give
        the same rows. Raises UserError where they cannot be read."""


class Source(Protocol):
    """A database that contracts name as their source."""

    def reading(self) -> AbstractContextManager[None]:
        """Around all that is read of the source, for a snapshot that all its tables share."""

    def table(self, contract: Contract) -> SourceTable:
        """The table of a contract."""


@dataclass(frozen=True)
class Example:
    """One row that differs. ``kind`` is missing, extra or different; ``columns`` maps a column's name to its source
    and its lake value, as text, for the columns that differ."""

    kind: str
    key: dict[str, str]
    columns: dict[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class TableComparison:
    """What a table's comparison found, in rows.

    ``missing`` are keys that only the source has. ``extra`` are live lake rows whose key the source does not have, and
    every copy of a key beyond the first. ``different`` are keys that both have with other content.
    """

    name: str
    source_rows: int
    lake_rows: int
    missing: int
    extra: int
    different: int
    examples: tuple[Example, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether source and lake hold the same rows."""
        return self.missing == self.extra == self.different == 0

    def counts(self) -> dict[str, str | int]:
        """The comparison as one entry of a report's ``tables``."""
        return {
            "name": self.name,
            "source_rows": self.source_rows,
            "lake_rows": self.lake_rows,
            "missing": self.missing,
            "extra": self.extra,
            "different": self.different,
        }


def compare(table: SourceTable, batches: Iterable[pa.RecordBatch], progress: Progress | None = None) -> TableComparison:
    """Compare a source's table with Arrow batches of its lake table, tombstones among them.

    ``progress`` is called with table, side (``source`` or ``lake``) and rows so far. Raises UserError where the source
    repeats a key.
    """
    name = table.contract.table
    report = progress or (lambda table, side, rows: None)
    key_of = _key_taker(table)
    unseen: dict[Row, bytes] = {}
    for row in table.rows():
        key = key_of(row)
        if key in unseen:
            shown = ", ".join(f"{column} = {value}" for column, value in _shown_key(table, key).items())
            raise UserError(
                f"{name}: the source has {shown} twice, expected once: the contract's key "
                f"({', '.join(table.contract.key)}) must be unique there"
            )
        unseen[key] = _digest(row)
        if len(unseen) % BATCH_ROWS == 0:
            report(name, "source", len(unseen))
    source_count = len(unseen)
    report(name, "source", source_count)

    differing: dict[Row, bytes] = {}
    shown_rows: dict[Row, Row] = {}
    examples: list[Example] = []
    extra = lake_count = 0
    for batch in live_rows(batches):
        for row in lake_rows(table.fields, batch):
            key = key_of(row)
            expected = unseen.pop(key, None)
            if expected is None:
                extra += 1
                if len(examples) < MAX_EXAMPLES:
                    examples.append(Example("extra", _shown_key(table, key)))
                if key in differing and differing[key] == _digest(row):
                    # A right copy after a wrong one: the key has its row, and one too many.
                    del differing[key]
                    shown_rows.pop(key, None)
            elif expected != _digest(row):
                differing[key] = expected
                if len(shown_rows) < MAX_EXAMPLES:
                    shown_rows[key] = row
        lake_count += batch.num_rows
        report(name, "lake", lake_count)

    examples += [Example("missing", _shown_key(table, key)) for key in itertools.islice(unseen, MAX_EXAMPLES)]
    examples += _different_examples(table, shown_rows)
    return TableComparison(name, source_count, lake_count, len(unseen), extra, len(differing), tuple(examples))


def lake_rows(fields: Iterable[Field], batch: pa.RecordBatch) -> Iterator[Row]:
    """The rows of an Arrow batch as forms in the order of ``fields``; a column that the batch lacks, as one that was
    added to the contract later, is null."""
    columns = []
    for one in fields:
        at = batch.schema.get_field_index(one.name)
        columns.append([None] * batch.num_rows if at < 0 else one.lake(batch.column(at)))
    return zip(*columns, strict=True)


def _key_taker(table: SourceTable) -> Callable[[Row], Row]:
    names = [one.name for one in table.fields]
    places = [names.index(name) for name in table.contract.key]
    return lambda row: tuple(row[at] for at in places)


def _different_examples(table: SourceTable, lake: Mapping[Row, Row]) -> list[Example]:
    """Look the source's rows up again to say which columns differ and how."""
    examples: list[Example] = []
    if not lake:
        return examples
    key_of = _key_taker(table)
    for row in table.rows():
        key = key_of(row)
        if key not in lake:
            continue
        columns = {
            one.name: (shortened(one.shown(theirs)), shortened(one.shown(ours)))
            for one, theirs, ours in zip(table.fields, row, lake[key], strict=True)
            if theirs != ours
        }
        examples.append(Example("different", _shown_key(table, key), columns))
        if len(examples) == len(lake):
            break
    return examples


def _shown_key(table: SourceTable, key: Row) -> dict[str, str]:
    shown = {one.name: one.shown for one in table.fields}
    return {name: shortened(shown[name](value)) for name, value in zip(table.contract.key, key, strict=True)}


def _digest(row: Row) -> bytes:
    return hashlib.blake2b(repr(row).encode("utf-8", "surrogatepass"), digest_size=16).digest()
