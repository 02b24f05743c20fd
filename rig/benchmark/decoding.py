"""How many DynamoDB changes per second become rows, in the writer and by the usual means of other jobs.

Other jobs use ``json.loads`` and boto3's ``TypeDeserializer``. Both ways end in the same rows; the contract names every
attribute.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import multiprocessing
import os
import random
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from boto3.dynamodb.types import Binary, TypeDeserializer
from pyspark.sql import SparkSession

from headwater.contract.model import Column, Contract
from headwater.contract.reading import read_contract
from headwater.contract.types import Type, parse_type
from headwater.lake.decoding.batches import HeldBatch
from headwater.lake.decoding.changes import ROW_TAGS, Identity, epoch_digits
from headwater.lake.decoding.usual_items import StreamedRecord, UsualItems
from headwater.lake_folder import EXAMPLE
from rig.local import spark as local_spark
from rig.local.relay import kinesis_data
from rig.samples.items import ItemMaker

# How many orders an account holds besides its other attributes, for items of about 1, 5 and 11 KB. A change's record
# holds two items.
ORDERS = (0, 30, 80)
_RECORDS = 1_500
_ROUNDS = 8
# The JVM needs some 90,000 records until it has compiled the decoder.
_WARMING = 60
_SEED = 1996
_MICROS = 1_700_000_000_000_000
_MODIFIES, _INSERTS = 0.85, 0.1  # shares of the records; the rest are deletes
_ORDERS_TYPE = "array<struct<number:string,at:string,quantity:int,price:decimal(10,2),gift:boolean>>"
# The deserializer has already decoded such a value, which the writer would keep as DynamoDB's JSON.
_LEFT_OUT = "preferences"
_OPS = {"INSERT": "c", "MODIFY": "u", "REMOVE": "d"}
_MEMORY = "3g"


@dataclass(frozen=True)
class DecoderFigures:
    """How many records per second become rows on one core."""

    orders: int
    """The orders per account."""
    record_bytes: int
    """The mean size of a record."""
    decoder_per_second: int
    """The records per second of the writer's decoder, in the driver's JVM."""
    deserializer_per_second: int
    """The records per second of boto3's deserializer, which decodes the keys and both images."""
    one_image_per_second: int
    """The records per second of boto3's deserializer if it decodes only the image that the row needs."""

    @property
    def times_as_fast(self) -> float:
        """The decoder's speed as a multiple of the deserializer's."""
        return self.decoder_per_second / self.deserializer_per_second

    @property
    def times_one_image(self) -> float:
        """The decoder's speed as a multiple of the deserializer's with one image."""
        return self.decoder_per_second / self.one_image_per_second


def run(count: int = _RECORDS, rounds: int = _ROUNDS) -> list[DecoderFigures]:
    """Let both ways read the same ``count`` records of each size, by turns, in a process on one core.

    Raises AssertionError if they end in different rows.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measure_all, count, rounds).result()


def _measure_all(count: int, rounds: int) -> list[DecoderFigures]:
    # The JVM that starts from here stays on this core, too.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as folder:
        builder = SparkSession.builder.master("local[1]")
        settings = local_spark.configuration(Path(folder), endpoint="", memory=_MEMORY, optimized=True)
        for name, value in settings.items():
            builder = builder.config(name, value)
        with builder.getOrCreate() as spark:
            return [_measure(spark, orders, count, rounds, _WARMING if orders == 0 else 1) for orders in ORDERS]


def _measure(spark: SparkSession, orders: int, count: int, rounds: int, warming: int) -> DecoderFigures:
    contract = _contract()
    records: list[StreamedRecord] = [
        (data, f"{number}", f"s/{number}") for number, data in enumerate(changes(contract, orders, count, _SEED))
    ]
    usual, deserializer = UsualItems(spark, contract, 1, "", contract.source.table, None), _Deserializer()
    identity = Identity(contract)

    def decode() -> HeldBatch:
        held = HeldBatch(spark, contract)
        usual.hold(records, held)
        return held

    def deserialize(*, every: bool) -> list[tuple[Any, ...]]:
        return [_deserialized(deserializer, contract, identity, record, every=every) for record in records]

    # Both ways must end in the same rows before their speeds are compared.
    ours = _comparable(contract, decode())
    for every in (True, False):
        others = HeldBatch(spark, contract)
        others.add(deserialize(every=every))
        if ours != _comparable(contract, others):
            raise AssertionError("the decoder and the deserializer made different rows")
    for _ in range(warming):
        decode()
    # The ways take turns, and the best round of each counts.
    ways = (decode, partial(deserialize, every=True), partial(deserialize, every=False))
    seconds = [[_seconds(way) for way in ways] for _ in range(rounds)]
    decoder, all_images, one_image = (min(times) for times in zip(*seconds, strict=True))
    return DecoderFigures(
        orders=orders,
        record_bytes=round(sum(len(data or b"") for data, *_ in records) / count),
        decoder_per_second=round(count / decoder),
        deserializer_per_second=round(count / all_images),
        one_image_per_second=round(count / one_image),
    )


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _contract() -> Contract:
    """The contract of the accounts, which also names the orders and the version."""
    contract = read_contract(EXAMPLE.contracts / "accounts.yaml")
    named = [column for column in contract.columns if column.path != (_LEFT_OUT,)]
    more = [
        Column("orders", parse_type(_ORDERS_TYPE), "L", ("orders",)),
        Column("version", parse_type("bigint"), "N", ("version",)),
    ]
    return replace(contract, columns=(*named, *more))


def changes(contract: Contract, orders: int, count: int, seed: int) -> list[bytes]:
    """The data of Kinesis records: mostly MODIFY with both images, some INSERT and REMOVE.

    The contract names all attributes of the items.
    """
    rng = random.Random(seed)  # noqa: S311 - can be repeated, not secret
    return [_change(contract, number, orders, rng).encode() for number in range(count)]


def _change(contract: Contract, number: int, orders: int, rng: random.Random) -> str:
    make = ItemMaker(contract, rng)
    key = make.key(number)
    item = {**make.item(key), "orders": {"L": [_order(rng) for _ in range(orders)]}}
    old = _named(contract, item)
    new = {**old, "balance": {"N": str(rng.randrange(10**6))}, "version": {"N": str(rng.randrange(10**12))}}
    kind = rng.random()
    event = "MODIFY" if kind < _MODIFIES else "INSERT" if kind < _MODIFIES + _INSERTS else "REMOVE"
    images = {"MODIFY": {"NewImage": new, "OldImage": old}, "INSERT": {"NewImage": new}, "REMOVE": {"OldImage": old}}
    record = {
        "eventID": f"{rng.getrandbits(128):032x}",
        "eventName": event,
        "dynamodb": {"Keys": key, **images[event], "SizeBytes": 0},
    }
    return kinesis_data(record, contract.source.table, _MICROS + number)


def _named(contract: Contract, item: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of an item that the contract names, without nulls.

    The writer would keep other attributes as DynamoDB's JSON.
    """
    named: dict[str, Any] = {}
    for column in contract.columns:
        name, *inside = column.path
        if name not in item or "NULL" in item[name]:
            continue
        if inside:
            named[name] = {"M": {member: item[name]["M"][member] for member in inside if member in item[name]["M"]}}
        else:
            named[name] = _fitting(column.type, item[name])
    return named


def _fitting(type_: Type, value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the value without the map members that the lake's type lacks."""
    if type_.kind == "struct":
        return {"M": {name: _fitting(field, value["M"][name]) for name, field in type_.fields if name in value["M"]}}
    if type_.element is not None and "L" in value:
        return {"L": [_fitting(type_.element, each) for each in value["L"]]}
    return value


def _order(rng: random.Random) -> dict[str, Any]:
    day = f"2024-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}T10:11:12Z"
    number, quantity = str(rng.randrange(10**8)), str(rng.randrange(1, 20))
    price = f"{rng.randrange(10**5) / 100:.2f}"
    order = {"number": {"S": number}, "at": {"S": day}, "quantity": {"N": quantity}, "price": {"N": price}}
    return {"M": {**order, "gift": {"BOOL": rng.random() < 0.1}}}


class _Deserializer(TypeDeserializer):
    """boto3's deserializer for JSON, whose binary values are base64; boto3 expects bytes."""

    def _deserialize_b(self, value: str) -> Any:
        return super()._deserialize_b(base64.b64decode(value))  # type: ignore[misc]


def _deserialized(
    deserializer: TypeDeserializer, contract: Contract, identity: Identity, record: StreamedRecord, *, every: bool
) -> tuple[Any, ...]:
    """A record's row, as a job makes it from boto3's values.

    The job decodes ``every`` image, or only the image that the row needs.
    """
    data, sequence, position = record
    document = json.loads(data or b"")
    change = document["dynamodb"]
    op = _OPS[document["eventName"]]
    is_delete = op == "d"
    # A delete has its values in the old image, all other changes in the new image.
    needed = "OldImage" if is_delete else "NewImage"
    images = {
        name: {attribute: deserializer.deserialize(value) for attribute, value in change[name].items()}
        for name in ("Keys", "NewImage", "OldImage")
        if name in change and (every or name == needed)
    }
    item = images[needed]
    # A deleted item keeps only key and partition.
    at = set(identity.kept_at) if is_delete else range(len(contract.columns))
    values = [_converted(column, item) if number in at else None for number, column in enumerate(contract.columns)]
    micros = change["ApproximateCreationDateTime"]
    order = f"{epoch_digits(1)}{micros:020d}1{sequence:0>56}"
    moment = dt.datetime.fromtimestamp(micros / 1e6, dt.UTC)
    deleted_by = "client" if is_delete else None
    own = (identity.record_key(values), op, order, moment, position, is_delete, deleted_by, None, None)
    return (*values, *own, *ROW_TAGS)


def _converted(column: Column, item: Mapping[str, Any]) -> Any:
    value: Any = item
    for name in column.path:
        value = value.get(name) if value is not None else None
    if column.transform is not None:
        return "unknown" if value is None else value[:7]
    return _of_type(column.type, value)


def _of_type(type_: Type, value: Any) -> Any:
    if value is None:
        return None
    if type_.kind == "struct":
        return tuple(_of_type(field, value.get(name)) for name, field in type_.fields)
    if type_.element is not None:
        element = type_.element
        return [_of_type(element, each) for each in value]
    if type_.kind in ("int", "bigint"):
        return int(value)
    if type_.kind == "date":
        return dt.date.fromisoformat(value)
    if type_.kind == "timestamp":
        return dt.datetime.fromisoformat(value)
    return value.__bytes__() if isinstance(value, Binary) else value


def _comparable(contract: Contract, held: HeldBatch) -> list[str]:
    """Rows as texts. boto3's sets are sorted, because they have no order."""
    sets = [column.name for column in contract.columns if column.source_type in ("SS", "NS", "BS")]
    rows = [row.asDict(recursive=True) for row in held.frame().collect()]
    for row in rows:
        row |= {name: sorted(row[name]) for name in sets if row[name] is not None}
    return sorted(json.dumps(row, default=_text, sort_keys=True) for row in rows)


def _text(value: Any) -> str:
    return format(value, "f") if isinstance(value, Decimal) else str(value)
