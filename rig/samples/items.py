"""Items for any DynamoDB table: generated from its contract, the same for the same number and seed.

An item has the contract's attributes with the contract's types. Now and then an attribute is missing or null. The item
also has free-form attributes of every type, with names that need quoting. Key attributes are numbered, so that each
number has its own key.
"""

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

from headwater.contract.model import Column, Contract
from headwater.contract.transforms import HOUR
from headwater.contract.types import Type

Key = dict[str, Any]
Item = dict[str, Any]
"""An item in the form of boto3's client: attribute name → {type: value}, binary values as bytes."""

FREE_FORM = ("nick.name", 'said "hello"', "città", "mixed", "history", "scores", "flags", "blob", "blobs", "nothing")
TYPES = ("S", "N", "B", "BOOL", "NULL", "M", "L", "SS", "NS", "BS")
REVISION = "revision (sample)"
"""An attribute in which two versions of an item always differ."""

_BATCH_LIMIT = 25  # BatchWriteItem's
_FIRST_DAY = date(2024, 1, 1)
_DAYS = 366  # few months, so that a commit of the demo writes to few partitions
_PARTITIONS = 4  # of a table that has no month to be partitioned by
_KEYS_PER_PARTITION_KEY = 3
_ABSENT, _NULL = 0.1, 0.05  # shares of the attributes that may be missing
_UNNAMED = 0.2  # share of the maps that have a member that the contract does not name
_LAST_INT = 2**31 - 1
FAR_FUTURE = int(datetime(2099, 1, 1, tzinfo=UTC).timestamp())
WORDS = ("north", "wind", "Ærø", "São", "東京", "Łódź", "fjord", "quay", "ship's", "naïve", "tide", "Ωmega")
# DynamoDB's type of a value inside a map or a list, by the lake's type.
_INNER_TYPES = {
    "string": "S", "date": "S", "int": "N", "bigint": "N", "decimal": "N", "binary": "B", "boolean": "BOOL",
    "array": "L", "struct": "M",
}  # fmt: skip


class ValueMaker:
    """Makes values of DynamoDB's types from one source of random numbers."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def any(self, types: Iterable[str] = TYPES, depth: int = 3) -> dict[str, Any]:
        """Return a value of one of several types, nested at most ``depth`` deep."""
        type_ = self._rng.choice([name for name in types if depth > 0 or name not in ("M", "L")])
        return {type_: self._value(type_, depth)}

    def day(self) -> str:
        """Return a day of some month."""
        return str(_FIRST_DAY + timedelta(days=self._rng.randrange(_DAYS)))

    def moment(self) -> str:
        """Return a moment in UTC, in seconds, milliseconds or microseconds."""
        moment = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(microseconds=self._rng.randrange(10**14))
        precision = self._rng.choice(["seconds", "milliseconds", "microseconds"])
        return moment.isoformat(timespec=precision).replace("+00:00", "Z")

    def decimal(self, whole: int, scale: int) -> str:
        """Return a number of at most ``whole`` digits before the point and ``scale`` after it.

        The number has no trailing zeros, which DynamoDB would drop.
        """
        rng = self._rng
        number = str(rng.randrange(10 ** rng.randint(1, whole)) if whole else 0)
        fraction = f"{rng.randrange(10**scale):0{scale}d}".rstrip("0") if scale else ""
        number = f"{number}.{fraction}" if fraction else number
        return f"-{number}" if rng.random() < 0.2 and number != "0" else number

    def word(self) -> str:
        """Return a word, often with letters beyond ASCII."""
        return self._rng.choice(WORDS) + self._rng.choice(WORDS)

    def map(self, depth: int) -> Item:
        """Return a map of up to three values with names that need quoting, nested at most ``depth`` deep."""
        names = ("street", "a.b.c", 'it\'s "quoted"', "größe", "["), self._rng.randrange(4)
        return {name: self.any(depth=depth - 1) for name in self._rng.sample(*names)}

    def number(self) -> str:
        """Return a number, now and then with as many digits or as far from 1 as DynamoDB allows."""
        rng = self._rng
        return rng.choice(
            [
                "0",
                str(rng.randrange(-1000, 1000)),
                str(rng.randrange(10**37, 10**38)),
                f"-{rng.randrange(1, 10)}.{rng.randrange(10**36, 10**37)}",
                "1E-130",
                f"9.{rng.randrange(10**8, 10**9)}E+125",
            ]
        )

    def _value(self, type_: str, depth: int) -> Any:
        rng = self._rng
        match type_:
            case "S":
                return rng.choice(
                    ["", "null", 'a "b" \\ c', "line\nbreak\ttab", "snow ☃ and 𝄞", "x" * 200, self.word()]
                )
            case "N":
                return self.number()
            case "B":
                return rng.choice([b"", b"\x00\xff\xfe", rng.randbytes(20)])
            case "BOOL":
                return rng.random() < 0.5
            case "NULL":
                return True
            case "M":
                return self.map(depth)
            case "L":
                return [self.any(depth=depth - 1) for _ in range(rng.randrange(4))]
            case "SS":
                return sorted({rng.choice(["", "a.b", self.word()]) for _ in range(rng.randint(1, 3))})
            case "NS":
                return sorted({str(rng.randrange(-(10**37), 10**37)) for _ in range(rng.randint(1, 3))})
            case _:
                return sorted({rng.randbytes(rng.randrange(6)) for _ in range(rng.randint(1, 3))})


@dataclass
class _Attribute:
    """An attribute of an item, or a value inside a map."""

    columns: list[Column] = field(default_factory=list)
    """The columns that hold this value."""
    members: dict[str, "_Attribute"] = field(default_factory=dict)
    """The values inside this map, by name."""

    def add(self, column: Column, path: tuple[str, ...]) -> None:
        """Add a column, whose ``path`` begins at this value."""
        if path:
            self.members.setdefault(path[0], _Attribute()).add(column, path[1:])
        else:
            self.columns.append(column)


class ItemMaker:
    """Makes items that fit a contract, from one source of random numbers."""

    def __init__(self, contract: Contract, rng: random.Random) -> None:
        self.values = ValueMaker(rng)
        self._rng = rng
        self._contract = contract
        self._time_to_live = contract.source.time_to_live
        self._keys = [contract.column(name) for name in contract.key]
        attributes = _Attribute()
        for column in contract.columns:
            attributes.add(column, column.path)
        names = {column.path[0] for column in self._keys}
        self._attributes = {name: made for name, made in attributes.members.items() if name not in names}
        self.unnamed = [name for name in FREE_FORM if name not in attributes.members]
        # Every item has its partition attribute, unless a transform makes the partition: items without it share one.
        self._partitioned = {
            contract.column(name).path[0] for name in contract.partition_by if not contract.column(name).transform
        }

    @property
    def names(self) -> list[str]:
        """The attributes that the contract names, without the key."""
        return list(self._attributes)

    @property
    def partitioning(self) -> list[str]:
        """The attributes among ``names`` that decide the partition of the lake table."""
        names = [self._contract.column(name).path[0] for name in self._contract.partition_by]
        return [name for name in self._attributes if name in names]

    @property
    def optional(self) -> list[str]:
        """The attributes that an item may lack, including free-form ones."""
        return [*self.unnamed, *(name for name in self._attributes if name not in self._partitioned)]

    def key(self, number: int) -> Key:
        """Return the key of an item by its number. If there is a sort key, some items share a partition key."""
        if len(self._keys) == 1:
            return {column.path[0]: _counted(column, number) for column in self._keys}
        partition, sort = self._keys
        group = number // _KEYS_PER_PARTITION_KEY
        return {partition.path[0]: _counted(partition, group), sort.path[0]: _counted(sort, number)}

    def item(self, key: Key) -> Item:
        """Return an item with this key: another version each time."""
        item = dict(key)
        for name in self._attributes:
            value = self.attribute(name)
            if value is not None:
                item[name] = value
        item |= self.free_form()
        # Each version of an item gets its own number, so that no two versions are equal by chance.
        return {**item, REVISION: {"N": str(self._rng.randrange(10**15))}}

    def free_form(self) -> Item:
        """Return some attributes that the contract does not name, of any types."""
        return {name: self.values.any() for name in self._rng.sample(self.unnamed, self._rng.randint(1, 3))}

    def attribute(self, name: str) -> dict[str, Any] | None:
        """Return a value of an attribute that the contract names; None if the item will lack it."""
        value = self._value(self._attributes[name])
        if name in self._partitioned:
            ((type_, inner),) = value.items()
            return {type_: self._one_of_few(type_, inner)}
        chance = self._rng.random()
        if chance < _ABSENT:
            return None
        return {"NULL": True} if chance < _ABSENT + _NULL else value

    def _one_of_few(self, type_: str, value: Any) -> Any:
        """Return one of a few values, for an attribute that decides the partition of the lake table."""
        number = self._rng.randrange(_PARTITIONS)
        match type_:
            case "N":
                return str(number)
            case "B":
                return bytes([number])
            case _:
                dated = len(value) == len("2024-01-01") and value[4] == value[7] == "-"
                return str(_FIRST_DAY + timedelta(days=number)) if dated else f"part {number}"

    def _value(self, attribute: _Attribute) -> dict[str, Any]:
        if not attribute.columns:
            return {"M": self._members(attribute)}
        # If several columns hold one attribute, such as a date and its month, a value that fits the strictest column
        # fits all.
        column = min(attribute.columns, key=_looseness)
        if column.path == (self._time_to_live,):
            future = _LAST_INT if column.type.kind == "int" else FAR_FUTURE + self._rng.randrange(10**6)
            return {"N": str(future)}
        value = self._of_column(column)
        if "M" in value:
            value["M"] |= self._members(attribute)
        return value

    def _members(self, attribute: _Attribute) -> Item:
        members = {name: self._value(member) for name, member in attribute.members.items()}
        return {"an unnamed one": self.values.any(depth=1), **members} if self._rng.random() < _UNNAMED else members

    def _of_column(self, column: Column) -> dict[str, Any]:
        """Return a value that fits a column, or that the column's transform accepts."""
        transform, source_type = column.transform, str(column.source_type)
        if transform is None or transform.is_bucket:
            return self._typed(column.before_transform().type, source_type)
        if source_type == "N":
            return {"N": str(self._rng.randrange(-(10**9), 2 * 10**9))}
        return {"S": self.values.moment() if transform.part == HOUR else self.values.day()}

    def _typed(self, type_: Type, source_type: str) -> dict[str, Any]:
        """Return a value of DynamoDB's ``source_type`` that the lake's type can hold."""
        rng, values = self._rng, self.values
        match source_type:
            case "S":
                return {"S": values.day() if type_.kind == "date" else self._text(type_)}
            case "N":
                return {"N": self._number(type_)}
            case "B":
                return {"B": rng.randbytes(rng.randrange(40))}
            case "BOOL":
                return {"BOOL": rng.random() < 0.8}
            case "M" if type_.kind == "struct":
                return {"M": self._struct(type_)}
            case "L" if type_.element is not None:
                return {"L": [self._inner(type_.element) for _ in range(rng.randrange(4))]}
            case "M" | "L":
                return values.any([source_type])
        element = type_.element or Type("string")
        members = [self._typed(element, source_type[0])[source_type[0]] for _ in range(rng.randint(1, 4))]
        return {source_type: sorted(set(members))}

    def _struct(self, type_: Type) -> Item:
        members = {name: self._inner(field_type) for name, field_type in type_.fields if self._rng.random() > _ABSENT}
        return {**members, "an unnamed one": self.values.any(depth=1)} if self._rng.random() < _UNNAMED else members

    def _inner(self, type_: Type) -> dict[str, Any]:
        return self._typed(type_, _INNER_TYPES[type_.kind])

    def _text(self, type_: Type) -> str:
        return self.values.moment() if type_.kind == "timestamp" else self.values.word()

    def _number(self, type_: Type) -> str:
        match type_.kind:
            case "int":
                return str(self._rng.randrange(-_LAST_INT, _LAST_INT))
            case "bigint":
                return str(self._rng.randrange(-(2**62), 2**62))
            case "decimal":
                return self.values.decimal(type_.precision - type_.scale, type_.scale)
            case _:
                return self.values.number()


def generate(contract: Contract, count: int, seed: int) -> Iterator[Item]:
    """Return items number 0 to ``count`` - 1. An item depends only on contract, number and seed."""
    for number in range(count):
        rng = random.Random(f"{seed}/{contract.table}/{number}")  # noqa: S311 - can be repeated, not secret
        make = ItemMaker(contract, rng)
        yield make.item(make.key(number))


def load(client: Any, table: str, items: Iterable[Item]) -> int:
    """Put items into a table in batches, and return their number."""
    count = 0
    batch: list[dict[str, Any]] = []
    for item in items:
        batch.append({"PutRequest": {"Item": item}})
        count += 1
        if len(batch) == _BATCH_LIMIT:
            write_batch(client, table, batch)
            batch = []
    if batch:
        write_batch(client, table, batch)
    return count


def write_batch(client: Any, table: str, requests: list[dict[str, Any]]) -> None:
    """Make the writes of a batch, and repeat those that DynamoDB leaves unprocessed."""
    left: Mapping[str, Any] = {table: requests}
    while left:
        left = client.batch_write_item(RequestItems=left)["UnprocessedItems"]


def _looseness(column: Column) -> int:
    """How much a column's attribute may vary: a timestamp or date least, a value with a month more, any text most."""
    if column.transform is not None:
        return 1
    return 2 if column.type.kind == "string" else 0


def _counted(column: Column, number: int) -> dict[str, Any]:
    """Return a key attribute that is derived from a number."""
    match str(column.source_type), column.type.kind:
        case "S", "date":
            return {"S": str(_FIRST_DAY + timedelta(days=number))}
        case "S", _:
            return {"S": f"{column.name} {WORDS[number % len(WORDS)]} {number:06d}"}
        case "N", _:
            return {"N": str(number)}
        case _:
            return {"B": number.to_bytes(8, "big")}
