"""How many of DynamoDB's changes per second the decoder reads, compared with what most jobs use: ``json.loads`` and
boto3's ``TypeDeserializer``."""

from __future__ import annotations

import base64
import json
import multiprocessing
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from boto3.dynamodb.types import TypeDeserializer

from headwater.contract.reading import read_contract
from headwater.lake.dynamodb_decoder import DynamoDecoder
from headwater.local.relay import kinesis_data
from headwater.paths import CONTRACTS
from headwater.samples import accounts

PROCESSES = 2
# How many orders an account holds beside what its contract names: items of about 1, 5 and 11 KB. A record holds two
# items.
ORDERS = (0, 30, 80)
_RECORDS = 1_500
_ROUNDS = 3
_SEED = 1996
_MICROS = 1_700_000_000_000_000
_MODIFIES, _INSERTS = 0.85, 0.1  # shares of the records; the rest are deletes


@dataclass(frozen=True)
class DecoderFigures:
    """Records per second of ``PROCESSES`` processes together, for records of ``record_bytes`` on average.

    ``orders`` is the number of orders per account; None stands for the same number of records of each size.
    """

    orders: int | None
    record_bytes: int
    decoder_per_second: int
    deserializer_per_second: int

    @property
    def times_as_fast(self) -> float:
        """The decoder's speed as a multiple of the deserializer's."""
        return self.decoder_per_second / self.deserializer_per_second


def run(count: int = _RECORDS, rounds: int = _ROUNDS) -> list[DecoderFigures]:
    """Let both read the same ``count`` records of each size, by turns, in each process.

    The last figures are those of all sizes together.
    """
    tasks = [(orders, count, rounds, _SEED + number) for orders in ORDERS for number in range(PROCESSES)]
    with ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool:
        measured = list(pool.map(_measure, *zip(*tasks, strict=True)))
    by_size = [measured[at : at + PROCESSES] for at in range(0, len(measured), PROCESSES)]
    figures = [_figures(orders, of_size, count * rounds) for orders, of_size in zip(ORDERS, by_size, strict=True)]
    # As if each process had read the records of one size after those of another.
    of_processes = [_Measured.one_after_another(of_process) for of_process in zip(*by_size, strict=True)]
    return [*figures, _figures(None, of_processes, count * rounds * len(ORDERS))]


@dataclass(frozen=True)
class _Measured:
    """What one process measured: the mean size of a record, and the seconds that both took for all reads."""

    record_bytes: float
    decoder_seconds: float
    deserializer_seconds: float

    @staticmethod
    def one_after_another(parts: Sequence[_Measured]) -> _Measured:
        return _Measured(
            sum(part.record_bytes for part in parts) / len(parts),
            sum(part.decoder_seconds for part in parts),
            sum(part.deserializer_seconds for part in parts),
        )


def _figures(orders: int | None, measured: Sequence[_Measured], reads: int) -> DecoderFigures:
    """The figures of processes that each made so many ``reads``."""
    return DecoderFigures(
        orders=orders,
        record_bytes=round(sum(process.record_bytes for process in measured) / len(measured)),
        decoder_per_second=round(sum(reads / process.decoder_seconds for process in measured)),
        deserializer_per_second=round(sum(reads / process.deserializer_seconds for process in measured)),
    )


def changes(orders: int, count: int, seed: int) -> list[bytes]:
    """The data of Kinesis records: mostly MODIFY with both images, some INSERT and REMOVE."""
    rng = random.Random(seed)  # noqa: S311 - can be repeated, not secret
    return [_change(number, orders, rng).encode() for number in range(count)]


def _change(number: int, orders: int, rng: random.Random) -> str:
    key = accounts.key_of(number)
    old = {**accounts.AccountMaker(rng).item(key), "orders": {"L": [_order(rng) for _ in range(orders)]}}
    new = {**old, "balance": {"N": str(rng.randrange(10**6))}, "version": {"N": str(rng.randrange(10**12))}}
    kind = rng.random()
    event = "MODIFY" if kind < _MODIFIES else "INSERT" if kind < _MODIFIES + _INSERTS else "REMOVE"
    images = {"MODIFY": {"NewImage": new, "OldImage": old}, "INSERT": {"NewImage": new}, "REMOVE": {"OldImage": old}}
    record = {
        "eventID": f"{rng.getrandbits(128):032x}",
        "eventName": event,
        "dynamodb": {"Keys": key, **images[event], "SizeBytes": 0},
    }
    return kinesis_data(record, accounts.TABLE, _MICROS + number)


def _order(rng: random.Random) -> dict[str, Any]:
    day = f"2024-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}T10:11:12Z"
    number, quantity = str(rng.randrange(10**8)), str(rng.randrange(1, 20))
    price = f"{rng.randrange(10**5) / 100:.2f}"
    order = {"number": {"S": number}, "at": {"S": day}, "quantity": {"N": quantity}, "price": {"N": price}}
    return {"M": {**order, "gift": {"BOOL": rng.random() < 0.1}}}


def _measure(orders: int, count: int, rounds: int, seed: int) -> _Measured:
    records = changes(orders, count, seed)
    decoder, deserializer = DynamoDecoder(read_contract(CONTRACTS / "accounts.yaml")), _Deserializer()
    decoder_seconds = deserializer_seconds = 0.0
    for _ in range(rounds):
        decoder_seconds += _seconds(
            records, lambda data: decoder.decode(data, "49590338271490256608559692538361571095", "p")
        )
        deserializer_seconds += _seconds(records, lambda data: _deserialized(deserializer, data))
    return _Measured(sum(map(len, records)) / count, decoder_seconds, deserializer_seconds)


def _seconds(records: Sequence[bytes], read: Callable[[bytes], object]) -> float:
    started = time.perf_counter()
    for data in records:
        read(data)
    return time.perf_counter() - started


class _Deserializer(TypeDeserializer):
    """boto3's deserializer for JSON, which has binary values in base64 where boto3 expects bytes."""

    def _deserialize_b(self, value: str) -> Any:
        return super()._deserialize_b(base64.b64decode(value))  # type: ignore[misc]


def _deserialized(deserializer: TypeDeserializer, data: bytes) -> list[Mapping[str, Any]]:
    change = json.loads(data)["dynamodb"]
    images = (change[name] for name in ("Keys", "NewImage", "OldImage") if name in change)
    return [{name: deserializer.deserialize(value) for name, value in image.items()} for image in images]
