"""Generated histories of a PostgreSQL table: the changes of its rows, Debezium's events for them, and the lake's final
rows.

The model knows nothing of decoders, ``_order`` or Hudi. A value is drawn together with what the lake must make of it,
and the last image of each row says what must be there.
"""

from __future__ import annotations

import datetime as dt
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Any

from hypothesis import strategies as st

from tests.lake.pipeline import Landed, event, in_epoch

PHASES = 5
TOAST = "__debezium_unavailable_value"
CONTRACT = """
table: accounts
description: A table of generated histories.
source: {database: postgresql, table: shop.accounts}
key: [id]
partition_by: [month]
buckets: 2
columns:
  - {name: id, type: bigint, source_type: bigint}
  - {name: month, type: string, source_type: text}
  - {name: name, type: string, source_type: text}
  - {name: balance, type: "decimal(12,2)", source_type: "numeric(12,2)"}
  - {name: opened, type: date, source_type: date}
  - {name: lines, type: "array<struct<price:decimal(12,4),note:string>>", from: payload.lines}
"""


@dataclass(frozen=True)
class Value:
    """A value in Debezium's event, and the lake's value for it."""

    raw: Any
    typed: Any = None
    """The column's value if the raw one fits."""
    fits: bool | None = True
    """If false, the column is null, and the raw value is in ``_rest``. None if that depends on the contract of the
    time."""
    rest: Mapping[str, Any] = field(default_factory=dict)
    """Other values that must be in ``_rest``, by path."""
    kept: tuple[str, Any] | None = None
    """The part of an unfit value that is kept; None if all of it is."""


def plain(value: Any) -> Value:
    """A value that the lake has as it is."""
    return Value(value, value)


NOTHING = plain(None)
# A column's first value is the one that most rows have.
VALUES: dict[str, list[Value]] = {
    "month": [*map(plain, ("2024-01", "2024-02", "a/b=c d")), NOTHING, Value("", fits=False)],
    "name": [*map(plain, ("Ann", "", "Zoë 😀\n\"'", "x" * 3000)), NOTHING],
    "balance": [
        Value("1.5", Decimal("1.50")),
        Value("-9999999999.99", Decimal("-9999999999.99")),
        Value("NAN", fits=False),
        Value("1.005", fits=False),
        Value("123456789012.25", Decimal("123456789012.25"), fits=None),
        NOTHING,
    ],
    "opened": [
        Value(19_000, dt.date(2022, 1, 8)),
        Value(2_147_483_647, fits=False),
        Value(4_000_000, fits=False),
        NOTHING,
    ],
    "payload": [
        Value('{"lines": [{"price": 12.5, "note": "a"}, null]}', [{"price": Decimal("12.5000"), "note": "a"}, None]),
        Value('{"lines": null, "x": 0.1}', rest={"payload.x": 0.1}),
        Value('{"lines": 5}', fits=False, kept=("payload.lines", 5)),
        Value("[1, 2]", fits=False, kept=("payload", [1, 2])),
        NOTHING,
    ],
    "note": [*map(plain, ("red", "blue")), NOTHING],
}
_COLUMN_OF = {"payload": "lines"}


@dataclass(frozen=True)
class Step:
    """A change of one of a history's two rows; a change that is impossible at the time does not happen."""

    kind: str
    second: bool
    values: Mapping[str, int]
    """The indexes of new values in ``VALUES``, by column."""


steps = st.builds(
    Step,
    kind=st.sampled_from(("write", "write", "write", "delete", "rekey", "read")),
    second=st.booleans(),
    values=st.fixed_dictionaries({}, optional={name: st.integers(0, len(VALUES[name]) - 1) for name in VALUES}),
)
histories = st.tuples(*[st.lists(steps, max_size=4)] * PHASES)
"""What happens to two rows in each phase."""
turns = st.lists(
    st.sampled_from(("none", "truncate", "lost slot", "lost changes", "add note", "drop note", "widen", "identity")),
    min_size=PHASES - 1,
    max_size=PHASES - 1,
)
"""What happens to the table between two phases."""

Row = dict[str, Value]
_Transaction = dict[int, list[list[Landed]]]
"""The records of each statement, by the history that it belongs to."""


class Source:
    """The table and its log.

    ``events`` are the records of its topic since they were last taken; ``epoch`` is the source connector's. If
    ``logs_all``, the log holds a row before its change in full. Otherwise id and month are the primary key, and the log
    holds the old key only if it changes. Each write then sets all columns of a row.
    """

    def __init__(self, random: Random) -> None:
        self.epoch = 1
        self.images: dict[int, Row] = {}
        self.logs_all = random.random() < 0.5
        self.columns = [name for name in VALUES if name != "note"]
        self._random = random
        self._lsn = 1_000
        self._last_commit: int | None = None
        self._events: list[Landed] = []
        self._write(0, {}, [])  # a snapshot of an empty table has no end

    def take(self) -> list[Landed]:
        """The records since the last call."""
        taken, self._events = self._events, []
        return [record._replace(headers=(*record.headers, *in_epoch(self.epoch))) for record in taken]

    # --- Rows ---------------------------------------------------------------------------------------------------------

    def run(self, histories: Sequence[Sequence[Step]]) -> None:
        """Let all happen, in transactions that overlap. History number n has the rows 2n + 2 and 2n + 3."""
        waiting = {number: list(steps) for number, steps in enumerate(histories) if steps}
        transactions: list[_Transaction] = [{} for _ in range(self._random.randint(1, 4))]
        while waiting:
            transaction = self._random.choice(transactions)
            locked = {number for other in transactions if other is not transaction for number in other}
            free = [number for number in waiting if number not in locked]
            if free and self._random.random() < 0.8:
                number = self._random.choice(free)
                statements = transaction.setdefault(number, [])
                statements.append(self._step(number, waiting[number].pop(0), any(statements)))
                if not waiting[number]:
                    del waiting[number]
            else:
                self._commit(transaction)
        for transaction in transactions:
            self._commit(transaction)

    def run_unseen(self, histories: Sequence[Sequence[Step]]) -> None:
        """Let all happen while nothing captures it."""
        self.run(histories)
        self._events.clear()

    def _commit(self, transaction: _Transaction) -> None:
        """Debezium hands a transaction's changes on in the order of the log, when it is committed."""
        statements = [records for statements in transaction.values() for records in statements if records]
        transaction.clear()
        before = None if self._last_commit is None else str(self._last_commit)
        for records in sorted(statements, key=lambda records: int(records[0].value["source"]["lsn"])):
            for record in records:
                if record.value is not None:
                    source = record.value["source"]
                    source["sequence"] = json.dumps([before, str(source["lsn"])])
            self._events += records
        if statements:
            self._last_commit = self._next_lsn()

    def _step(self, number: int, step: Step, pending: bool) -> list[Landed]:
        """The records of a step; ``pending`` says whether its transaction has changed the history's rows before."""
        first, second = 2 * number + 2, 2 * number + 3
        id_, other = (second, first) if step.second else (first, second)
        values = {name: VALUES[name][place] for name, place in step.values.items()}
        if step.kind == "write":
            return self._write(id_, values, [])
        if id_ not in self.images:
            return []
        if step.kind == "delete":
            return self._delete(id_, [])
        if step.kind == "rekey" and other not in self.images:
            row = self.images[id_]
            lsn = self._next_lsn()
            gone = self._delete(id_, [("__debezium.newkey", "")], lsn)
            return [*gone, *self._write(other, {**row, **values}, [("__debezium.oldkey", "")], lsn)]
        if step.kind == "read" and not pending:
            self._read([id_])
        return []

    def _read(self, ids: Sequence[int]) -> None:
        """Let an incremental snapshot read committed rows again, between two commits of its own."""
        self._last_commit = self._next_lsn()
        sequence = json.dumps([str(self._last_commit), str(self._next_lsn())])
        for id_ in ids:
            self.images[id_] = {name: self.images[id_].get(name, NOTHING) for name in self.columns}
            read = event("r", 0, after=self._image(id_), snapshot="incremental")
            read["source"] |= {"lsn": None, "sequence": sequence}
            self._events.append(self._landed(self._image(id_), read))
        self._last_commit = self._next_lsn()

    def _next_lsn(self) -> int:
        self._lsn += self._random.randint(1, 90)
        return self._lsn

    def _image(self, id_: int) -> dict[str, Any]:
        return {"id": id_, **{name: value.raw for name, value in self.images[id_].items()}}

    def _write(self, id_: int, values: Row, headers: list[tuple[str, str]], lsn: int | None = None) -> list[Landed]:
        before = self._image(id_) if id_ in self.images else None
        old = self.images.get(id_, {})
        row = {name: values.get(name, old.get(name, VALUES[name][0])) for name in self.columns}
        if not self.logs_all:
            if row["month"] is NOTHING:
                row["month"] = VALUES["month"][0]
            if before is not None and row["month"] is not old["month"]:
                lsn = lsn or self._next_lsn()
                gone = self._delete(id_, [("__debezium.newkey", "")], lsn)
                return [*gone, *self._write(id_, row, [*headers, ("__debezium.oldkey", "")], lsn)]
        self.images[id_] = row
        after = self._image(id_)
        if not self.logs_all:
            change = event("c" if before is None else "u", lsn or self._next_lsn(), after=after)
            return [self._landed(after, change, headers)]
        if before is not None and before.get("payload") is not None and before["payload"] == after["payload"]:
            after["payload"] = self._random.choice([TOAST, after["payload"]])
        change = event("c" if before is None else "u", lsn or self._next_lsn(), before=before, after=after)
        return [self._landed(after, change, headers)]

    def _delete(self, id_: int, headers: list[tuple[str, str]], lsn: int | None = None) -> list[Landed]:
        before = image = self._image(id_)
        del self.images[id_]
        if not self.logs_all:
            before = {**dict.fromkeys(image), "id": id_, "month": image["month"]}
        deleted = self._landed(image, event("d", lsn or self._next_lsn(), before=before), headers)
        return [deleted, Landed(None, deleted.key, partition=deleted.partition)]

    def _landed(
        self, image: Mapping[str, Any], change: dict[str, Any], headers: Sequence[tuple[str, str]] = ()
    ) -> Landed:
        columns = ("id",) if self.logs_all else ("id", "month")
        key = json.dumps({name: image[name] for name in columns}).encode()
        return Landed(change, key, tuple(headers), zlib.crc32(key) % 2)

    # --- The table ----------------------------------------------------------------------------------------------------

    def truncate(self) -> None:
        """TRUNCATE, and a row so that a later snapshot has an end."""
        self.images.clear()
        self._commit({0: [[Landed(event("t", self._next_lsn()))]]})
        self._commit({0: [self._write(0, {}, [])]})

    def snapshot(self, *, interrupted: bool = False) -> None:
        """Read all rows, or some of them."""
        lsn = self._next_lsn()
        ids = sorted(self.images)
        for id_ in ids:
            self.images[id_] = {name: self.images[id_].get(name, NOTHING) for name in self.columns}
        marks = {ids[0]: "first", ids[-1]: "last" if self._random.random() < 0.5 else "last_in_data_collection"}
        images = {id_: self._image(id_) for id_ in ids}
        read = [
            self._landed(image, event("r", lsn, after=image, snapshot=marks.get(id_, "true")))
            for id_, image in images.items()
        ]
        self._events += read[: self._random.randrange(len(read))] if interrupted else read
        self._last_commit = None

    def read_again(self) -> None:
        """Read the whole table again beside its changes (headwater resync). That ends the rows that are not there."""
        began = self._next_lsn()
        ids = sorted(self.images)
        self._random.shuffle(ids)
        self._read(ids)
        self._events.append(Landed(event("t", began, snapshot="incremental")))

    def change_identity(self) -> None:
        """Give the table the other primary key, which takes no null, and the other replica identity."""
        for id_, row in list(self.images.items()):
            if row["month"] is NOTHING:
                self._commit({0: [self._write(id_, {"month": VALUES["month"][0]}, [])]})
        self.logs_all = not self.logs_all

    def lose_slot(self) -> None:
        """The log is gone, and another one begins lower; the epoch is raised."""
        self._lsn = self._random.randint(1, 1_000)
        self.epoch += 1


def differences(image: Row, row: Mapping[str, Any]) -> list[str]:
    """The differences between a row of the lake and the last image of the source's row."""
    rest = json.loads(row["_rest"] or "{}")
    unfit = row["_unfit"] or []
    found = []
    for source, value in image.items():
        name = _COLUMN_OF.get(source, source)
        stored = row.get(name)
        path, kept = value.kept or (source, value.raw)
        if stored == value.typed and name not in unfit and value.fits is not False:
            right = all(rest.get(inner) == left for inner, left in value.rest.items())
        else:
            right = stored is None and path in rest and rest[path] == kept
            # A column that no contract named was not a misfit.
            right = right and ((value.fits is not True and name in unfit) or (name == "note" and name not in unfit))
        if not right:
            found.append(f"{name}: found {stored!r}, _rest {row['_rest']}, _unfit {unfit}, expected {value}")
    return found
