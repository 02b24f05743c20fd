"""Compare one source table with its lake table, whatever database the source is.

The comparison keeps the keys and a hash of each source row in memory, about 200 bytes per row; the lake's rows stream
past them. Rows that lack a value which does not fit are kept whole, and the source is read once more for them.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from headwater.contract.model import Contract
from headwater.errors import UserError
from headwater.verify.forms import Form, Row
from headwater.verify.lake_reader import BATCH_ROWS, live_rows
from headwater.verify.spelling import shortened, shortened_pair

MAX_EXAMPLES = 10
"""A comparison shows at most this many rows of a table."""
MAX_KEYS = 1_000
"""A comparison returns at most this many keys of a table for a repair."""

RowsRead = Callable[[str, str, int], None]
"""Is called with a table's name, the side (``source`` or ``lake``), and how many of its rows are read."""


@dataclass(frozen=True)
class Field:
    """One compared column of the lake."""

    name: str
    lake_forms: Callable[[pa.Array], list[Form]]
    """Turns the lake's values into forms."""
    spell: Callable[[Form], str]
    """Turns a form into text for people, without what the contract masks or excludes."""
    beside: Callable[[Form, Set[str]], Form] | None = None
    """Gets a form and the names of unfit columns, and returns the form without their values."""

    def compared(self, form: Form, unfit: Set[str]) -> Form:
        """The part of a form that is compared, if a row has unfit values in the columns ``unfit``."""
        if self.name in unfit:
            return None
        return form if self.beside is None else self.beside(form, unfit)


class SourceTable(Protocol):
    """What a comparison needs of a source's table."""

    @property
    def contract(self) -> Contract:
        """The table's contract."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """The compared columns of the lake; the contract's key is among them."""

    def rows(self) -> Iterator[Row]:
        """The source's rows as forms in the order of ``fields``.

        A second call, which finds out which columns differ, should give the same rows. Raises UserError if the rows
        cannot be read.
        """


class Source(Protocol):
    """A database that contracts name as their source."""

    def reading(self) -> AbstractContextManager[None]:
        """A context around all reading of the source, in which its tables may share a snapshot."""

    def table(self, contract: Contract) -> SourceTable:
        """The table of a contract."""


@dataclass(frozen=True)
class Example:
    """One row that differs.

    The values are text.
    """

    kind: str
    """``missing``, ``extra``, ``different`` or ``unfit``."""
    key: dict[str, str]
    """The key's values, by column."""
    columns: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The source's and the lake's value of each column that differs or whose value does not fit."""


@dataclass(frozen=True)
class TableComparison:
    """The counts of a table's comparison."""

    name: str
    """The name of the lake table."""
    source_rows: int
    lake_rows: int
    """The live rows of the lake."""
    missing: int
    """The keys that only the source has."""
    extra: int
    """The live lake rows whose key the source does not have, and every copy of a key beyond the first."""
    different: int
    """The keys that both have, with different content."""
    examples: tuple[Example, ...] = ()
    """Some of the rows that differ."""
    unfit: int = 0
    """The values of live lake rows that did not fit their columns, as ``_unfit`` says. They make no row different."""
    keys: tuple[dict[str, str], ...] = ()
    """The missing and the different keys as text, by the key's columns. Empty if there are more than ``MAX_KEYS``.
    Empty also if a row is extra, because reading the keys again would then not make the lake equal."""

    @property
    def equal(self) -> bool:
        """Whether source and lake hold the same rows, with all their values."""
        return self.missing == self.extra == self.different == self.unfit == 0

    @property
    def differs(self) -> bool:
        """Whether a row is missing, extra or different, which reading it again may mend."""
        return bool(self.missing or self.extra or self.different)

    def counts(self) -> dict[str, str | int]:
        """The comparison as one entry of a report's ``tables``."""
        return {
            "name": self.name,
            "source_rows": self.source_rows,
            "lake_rows": self.lake_rows,
            "missing": self.missing,
            "extra": self.extra,
            "different": self.different,
            "unfit": self.unfit,
        }


def compare(table: SourceTable, batches: Iterable[pa.RecordBatch], report: RowsRead | None = None) -> TableComparison:
    """Compare a source's table with Arrow batches of its lake table, tombstones included.

    Raises UserError if the source repeats a key.
    """
    name = table.contract.table
    report = report or (lambda table, side, rows: None)
    key_of = key_taker(table)
    unseen: dict[Row, bytes] = {}
    for row in table.rows():
        key = key_of(row)
        if key in unseen:
            repeated = ", ".join(f"{column} = {value}" for column, value in spelled_key(table, key).items())
            raise UserError(
                f"{name}: the source has {repeated} twice, expected once: the columns of the "
                f"contract's `key` ({', '.join(table.contract.key)}) must be unique there."
            )
        unseen[key] = digest(row)
        if len(unseen) % BATCH_ROWS == 0:
            report(name, "source", len(unseen))
    source_count = len(unseen)
    report(name, "source", source_count)

    differing: dict[Row, bytes] = {}
    example_rows: dict[Row, Row] = {}
    unfit_rows: dict[Row, tuple[Row, frozenset[str]]] = {}
    extra_examples: list[Example] = []
    extra = lake_count = unfit_count = 0
    for batch in live_rows(batches):
        for row, unfit in zip(lake_rows(table.fields, batch), unfit_columns(batch), strict=True):
            key = key_of(row)
            unfit_count += len(unfit)
            expected = unseen.pop(key, None)
            if expected is None:
                extra += 1
                if len(extra_examples) < MAX_EXAMPLES:
                    extra_examples.append(Example("extra", spelled_key(table, key)))
                if key in differing and differing[key] == digest(row):
                    # A right copy after a wrong one: the key has its row and one too many.
                    del differing[key]
                    example_rows.pop(key, None)
            elif unfit:
                unfit_rows[key] = (row, unfit)
            elif expected != digest(row):
                differing[key] = expected
                if len(example_rows) < MAX_EXAMPLES:
                    example_rows[key] = row
        lake_count += batch.num_rows
        report(name, "lake", lake_count)

    missing_examples = [Example("missing", spelled_key(table, key)) for key in itertools.islice(unseen, MAX_EXAMPLES)]
    unfit_examples, beside_unfit = _compare_unfit(table, unfit_rows)
    examples = _some_of_each(extra_examples, missing_examples, _different_examples(table, example_rows), unfit_examples)
    wrong = [*unseen, *differing, *beside_unfit]
    keys = () if extra or len(wrong) > MAX_KEYS else tuple(spelled_key(table, key, str) for key in wrong)
    different = len(differing) + len(beside_unfit)
    return TableComparison(
        name, source_count, lake_count, len(unseen), extra, different, tuple(examples), unfit=unfit_count, keys=keys
    )


def _some_of_each(*kinds: list[Example]) -> list[Example]:
    """The first examples, ``MAX_EXAMPLES`` in all, which each kind shares as evenly as it can."""
    in_turn = [example for each in itertools.zip_longest(*kinds) for example in each if example is not None]
    chosen = set(map(id, in_turn[:MAX_EXAMPLES]))
    return [example for kind in kinds for example in kind if id(example) in chosen]


def unfit_columns(batch: pa.RecordBatch) -> Iterator[frozenset[str]]:
    """The names of the columns whose values do not fit, for each row of a batch."""
    at = batch.schema.get_field_index("_unfit")
    if at < 0:
        return iter([frozenset[str]()] * batch.num_rows)
    return (frozenset(names or ()) for names in batch.column(at).to_pylist())


def _compare_unfit(
    table: SourceTable, lake: Mapping[Row, tuple[Row, frozenset[str]]]
) -> tuple[list[Example], list[Row]]:
    """Compare the lake's rows with unfit values, by reading the source again.

    Returns some examples, and the keys of the rows that differ in other values too.
    """
    examples: list[Example] = []
    different: list[Row] = []
    if not lake:
        return examples, different
    key_of = key_taker(table)
    for row in table.rows():
        key = key_of(row)
        if key not in lake:
            continue
        stored, unfit = lake[key]
        differing = differing_columns(table, row, stored, unfit)
        if differing:
            different.append(key)
        if len(examples) < MAX_EXAMPLES:
            columns = spelled_columns(table, row, stored, differing or unfit)
            examples.append(Example("different" if differing else "unfit", spelled_key(table, key), columns))
    return examples, different


def lake_rows(fields: Iterable[Field], batch: pa.RecordBatch) -> Iterator[Row]:
    """The rows of an Arrow batch as forms in the order of ``fields``.

    A column that the batch lacks is null: the contract got it after the batch was written.
    """
    columns = []
    for column in fields:
        at = batch.schema.get_field_index(column.name)
        columns.append([None] * batch.num_rows if at < 0 else column.lake_forms(batch.column(at)))
    return zip(*columns, strict=True)


def key_taker(table: SourceTable) -> Callable[[Row], Row]:
    """The function that takes the key out of a row."""
    names = [column.name for column in table.fields]
    places = [names.index(name) for name in table.contract.key]
    return lambda row: tuple(row[at] for at in places)


def _different_examples(table: SourceTable, lake: Mapping[Row, Row]) -> list[Example]:
    """Read the source's rows again to say which columns differ, and how."""
    examples: list[Example] = []
    if not lake:
        return examples
    key_of = key_taker(table)
    for row in table.rows():
        key = key_of(row)
        if key not in lake:
            continue
        columns = spelled_columns(table, row, lake[key], differing_columns(table, row, lake[key]))
        examples.append(Example("different", spelled_key(table, key), columns))
        if len(examples) == len(lake):
            break
    return examples


def differing_columns(table: SourceTable, source: Row, lake: Row, unfit: Set[str] = frozenset()) -> set[str]:
    """The names of the columns in which a row differs, beside those whose values do not fit."""
    return {
        column.name
        for column, source_form, lake_form in zip(table.fields, source, lake, strict=True)
        if column.compared(source_form, unfit) != column.compared(lake_form, unfit)
    }


def spelled_columns(table: SourceTable, source: Row, lake: Row, names: Set[str]) -> dict[str, tuple[str, str]]:
    """The source's and the lake's values of these columns of a row, as text."""
    return {
        column.name: shortened_pair(column.spell(source_form), column.spell(lake_form))
        for column, source_form, lake_form in zip(table.fields, source, lake, strict=True)
        if column.name in names
    }


def spelled_key(table: SourceTable, key: Row, cut: Callable[[str], str] = shortened) -> dict[str, str]:
    """A key as text, by its columns."""
    spell = {column.name: column.spell for column in table.fields}
    return {name: cut(spell[name](value)) for name, value in zip(table.contract.key, key, strict=True)}


def digest(row: Row) -> bytes:
    """A hash of 16 bytes that stands for a row, for tables of many rows."""
    return hashlib.blake2b(repr(row).encode("utf-8", "surrogatepass"), digest_size=16).digest()
