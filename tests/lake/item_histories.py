"""Generated histories of a DynamoDB table: the changes of its items, the records of its stream and exports, and the
final rows.

The model knows nothing of decoders, ``_order`` or Hudi. An attribute's value is drawn together with the lake's value
for it. The last image of each item says which row must be in the lake.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.lake.accounts import change

PHASES = 4
CONTRACT = """
table: accounts
description: A table of generated histories.
source: {database: dynamodb, table: headwater-accounts}
key: [id]
partition_by: [month]
buckets: 2
columns:
  - {name: id, type: string, source_type: S}
  - {name: month, type: string, source_type: S, from: registered, transform: month}
  - {name: name, type: string, source_type: S}
  - {name: balance, type: "decimal(12,2)", source_type: N}
  - {name: city, type: string, source_type: S, from: address.city}
"""
_MINUTE = 60 * 10**6


@dataclass(frozen=True)
class Attribute:
    """An attribute's value in DynamoDB, and the lake's value for it."""

    raw: Any
    """The value as DynamoDB writes it; None if the item has none."""
    typed: Any = None
    """The column's value if the raw one fits."""
    fits: bool = True
    """If false, the column is null, and the raw value is in ``_rest``."""
    path: str = ""
    """The path in ``_rest``."""


ABSENT = Attribute(None)
# An attribute's first value is the one that most items have.
ATTRIBUTES: dict[str, list[Attribute]] = {
    "registered": [
        Attribute({"S": "2024-01-31"}, "2024-01"),
        Attribute({"S": "2024-02-01"}, "2024-02"),
        Attribute({"S": "garbage"}, "unknown", fits=False, path="registered"),
        Attribute({"N": "5"}, "unknown", fits=False, path="registered"),
        Attribute(None, "unknown"),
    ],
    "name": [
        Attribute({"S": "Ann"}, "Ann"),
        Attribute({"S": "Zoë 😀\n\"'"}, "Zoë 😀\n\"'"),
        Attribute({"S": ""}, ""),
        Attribute({"BOOL": True}, fits=False, path="name"),
        ABSENT,
    ],
    "balance": [
        Attribute({"N": "1.5"}, Decimal("1.50")),
        Attribute({"N": "-9999999999.99"}, Decimal("-9999999999.99")),
        Attribute({"N": "1E+30"}, fits=False, path="balance"),
        Attribute({"S": "1.5"}, fits=False, path="balance"),
        ABSENT,
    ],
    "address": [
        Attribute({"M": {"city": {"S": "Ulm"}}}, "Ulm"),
        Attribute({"M": {"city": {"N": "7"}}}, fits=False, path="address.city"),
        Attribute({"S": "Ulm"}, fits=False, path="address"),
        ABSENT,
    ],
    "more": [Attribute({"L": [{"NULL": True}, {"N": "0.10"}]}, path="more"), ABSENT],
}
_COLUMN_OF = {"registered": "month", "address": "city"}


@dataclass(frozen=True)
class Step:
    """A change of an item; a change that is impossible at the time does not happen."""

    kind: str
    values: Mapping[str, int]
    """The indexes of new values in ``ATTRIBUTES``, by attribute."""
    micros: int
    """The time since the step before."""


steps = st.builds(
    Step,
    kind=st.sampled_from(("put", "put", "put", "delete")),
    values=st.fixed_dictionaries({}, optional={name: st.integers(0, len(ATTRIBUTES[name]) - 1) for name in ATTRIBUTES}),
    micros=st.sampled_from((1, 1_000, _MINUTE)),
)
histories = st.tuples(*[st.lists(steps, max_size=4)] * PHASES)
"""What happens to an item in each phase."""
turns = st.lists(
    st.sampled_from(("none", "export", "lost records", "lost stream")), min_size=PHASES - 1, max_size=PHASES - 1
)
"""What happens to the table between two phases."""

Item = dict[str, Attribute]


class Change(NamedTuple):
    """A record of the stream: its data and its sequence number in its shard."""

    data: str
    sequence: str


class Source:
    """The table and its stream. ``now`` is in microseconds since 1970; ``epoch`` is what an operator must set the job's
    to."""

    def __init__(self, random: Random, now: int) -> None:
        self.epoch = 1
        self.now = now
        self.images: dict[str, Item] = {}
        self._random = random
        self._sequence = 10**20
        self._changes: list[Change] = []

    def take(self) -> list[Change]:
        """The records since the last call."""
        taken, self._changes = self._changes, []
        return taken

    def run(self, histories: Sequence[Sequence[Step]]) -> None:
        """Let all happen, in any order of the items. History number n has the item ``k<n>``."""
        waiting = {f"k{number}": list(steps) for number, steps in enumerate(histories) if steps}
        while waiting:
            id_ = self._random.choice(list(waiting))
            self._step(id_, waiting[id_].pop(0))
            if not waiting[id_]:
                del waiting[id_]

    def _step(self, id_: str, step: Step) -> None:
        old = self.images.get(id_)
        if step.kind == "delete" and old is None:
            return
        self.now += step.micros
        before = None if old is None else _image(id_, old)
        after = None
        if step.kind == "put":
            known = old or {name: values[0] for name, values in ATTRIBUTES.items()}
            values = {name: ATTRIBUTES[name][place] for name, place in step.values.items()}
            self.images[id_] = {**known, **values}
            after = _image(id_, self.images[id_])
        else:
            del self.images[id_]
        self._sequence += self._random.randint(1, 10**9)
        self._changes.append(Change(change(self.now, before, after), str(self._sequence)))

    def wait(self) -> None:
        """Let more time pass than clocks may differ by."""
        self.now += 2 * _MINUTE

    def items(self) -> list[dict[str, Any]]:
        """All items, as an export has them."""
        return [_image(id_, item) for id_, item in sorted(self.images.items())]

    def lose_stream(self) -> None:
        """A new stream begins; the epoch is raised."""
        self._changes.clear()
        self._sequence = 10**20
        self.epoch += 1


def _image(id_: str, item: Item) -> dict[str, Any]:
    return {"id": {"S": id_}, **{name: value.raw for name, value in item.items() if value.raw is not None}}


def differences(image: Item, row: Mapping[str, Any]) -> list[str]:
    """The differences between a row of the lake and the item's last image."""
    rest = json.loads(row["_rest"] or "{}")
    unfit = row["_unfit"] or []
    found = []
    for name, value in image.items():
        column = _COLUMN_OF.get(name, name)
        right = row.get(column) == value.typed and (column in unfit) is not value.fits
        if value.path:
            right = right and value.path in rest and (value.path != name or rest[name] == value.raw)
        if not right:
            found.append(f"{column}: found {row.get(column)!r}, _rest {row['_rest']}, _unfit {unfit}, expected {value}")
    return found
