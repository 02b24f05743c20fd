"""Items for any contract: of every type that a contract may name, the same for the same number and seed."""

import json
import random
import threading
from typing import Any
from unittest.mock import MagicMock

import pytest

from headwater.contract.model import Contract
from headwater.contract.reading import parse_contract
from headwater.lake.decoding.dynamodb_decoder import DynamoDecoder
from rig.local.relay import kinesis_data
from rig.samples import dynamodb_tables, items, items_workload
from rig.samples.accounts import TABLE
from rig.samples.items import REVISION, ItemMaker
from rig.samples.paced_workers import WorkloadPlan

MICROS = 1_700_000_000_000_000
EVERY_TYPE = """
table: things
description: A column of every source type, with every lake type that it reaches.
source: {database: dynamodb, table: things, time_to_live: expires_at}
key: [owner, bought_on]
partition_by: [size]
buckets: 1
columns:
  - {name: owner, type: binary, source_type: B}
  - {name: bought_on, type: date, source_type: S, from: boughtOn}
  - {name: size, type: int, source_type: N}
  - {name: label, type: string, source_type: S}
  - {name: day, type: date, source_type: S}
  - {name: day_month, type: string, source_type: S, from: day, transform: month}
  - {name: moment, type: timestamp, source_type: S}
  - {name: moment_month, type: string, source_type: S, from: moment, transform: month}
  - {name: month_alone, type: string, source_type: S, from: since, transform: month}
  - {name: small, type: int, source_type: N}
  - {name: large, type: bigint, source_type: N}
  - {name: whole, type: "decimal(5,0)", source_type: N}
  - {name: fraction, type: "decimal(6,6)", source_type: N}
  - {name: number_text, type: string, source_type: N}
  - {name: bytes, type: binary, source_type: B}
  - {name: flag, type: boolean, source_type: BOOL}
  - {name: map, type: "struct<a:int,b:struct<c:date,d:array<boolean>>>", source_type: M}
  - {name: map_text, type: string, source_type: M}
  - {name: from_map, type: binary, source_type: B, from: map.extra.deep}
  - {name: from_a_dot, type: string, source_type: S, from: [a.b, c]}
  - {name: list, type: "array<struct<e:bigint,f:binary>>", source_type: L}
  - {name: list_text, type: string, source_type: L}
  - {name: texts, type: array<string>, source_type: SS}
  - {name: ints, type: array<int>, source_type: NS}
  - {name: number_texts, type: array<string>, source_type: NS}
  - {name: blobs, type: array<binary>, source_type: BS}
  - {name: expires_at, type: int, source_type: N}
"""


@pytest.fixture(scope="module")
def contract() -> Contract:
    return parse_contract(EVERY_TYPE, "things.yaml")


@pytest.fixture(scope="module")
def made(contract: Contract) -> list[dict[str, Any]]:
    return list(items.generate(contract, 300, seed=1))


def test_an_item_depends_on_its_number_and_the_seed_alone(contract: Contract, made: list[dict[str, Any]]) -> None:
    assert list(items.generate(contract, 10, seed=1)) == made[:10]
    assert list(items.generate(contract, 10, seed=2)) != made[:10]


def test_every_item_fits_its_contract(contract: Contract, made: list[dict[str, Any]]) -> None:
    decoder = DynamoDecoder(contract)
    rows: list[tuple[Any, ...]] = []
    for item in made:
        change = {"Keys": {name: item[name] for name in ("owner", "boughtOn")}, "NewImage": item, "SizeBytes": 1}
        record = {"eventID": "1", "eventName": "INSERT", "dynamodb": change}
        data = kinesis_data(record, "things", MICROS)
        rows += decoder.decode(data, "1", "here").rows
        decoder.item(json.dumps({"Item": json.loads(data)["dynamodb"]["NewImage"]}), MICROS, "here")
    for at, column in enumerate(contract.columns):
        assert any(row[at] is not None for row in rows), column.name
    rest = len(contract.columns) + len(("_key", "_op", "_order", "_source_ts", "_position", "_deleted", "_deleted_by"))
    assert all(REVISION in row[rest] for row in rows)


def test_each_number_has_a_key_of_its_own_and_some_share_a_partition_key(made: list[dict[str, Any]]) -> None:
    assert len({(item["owner"]["B"], item["boughtOn"]["S"]) for item in made}) == len(made)
    assert len({item["owner"]["B"] for item in made}) == len(made) / 3


def test_the_lake_table_gets_few_partitions_and_no_item_without_one(made: list[dict[str, Any]]) -> None:
    assert {item["size"]["N"] for item in made} == {"0", "1", "2", "3"}


def test_attributes_are_missing_or_null_now_and_then_but_never_the_key(made: list[dict[str, Any]]) -> None:
    assert any("label" not in item for item in made)
    assert any(item.get("label") == {"NULL": True} for item in made)
    assert all(item.keys() >= {"owner", "boughtOn"} for item in made)


def test_an_item_outlives_the_test(made: list[dict[str, Any]]) -> None:
    assert {item["expires_at"].get("N") for item in made if "expires_at" in item} == {None, str(2**31 - 1)}


def test_two_versions_of_an_item_differ(contract: Contract) -> None:
    make = ItemMaker(contract, random.Random(1))
    assert make.item(7) != make.item(7)
    assert make.item(7).keys() >= make.key(7).keys()


class Table:
    """A DynamoDB table in memory, as far as the workload uses it."""

    def __init__(self, present: list[dict[str, Any]], key: tuple[str, ...]) -> None:
        self._key = key
        self.items = {self._place(item): item for item in present}
        self.changes = 0
        self._counting = threading.Lock()

    def _place(self, item: dict[str, Any]) -> str:
        return repr([item[name] for name in self._key])

    def get_paginator(self, _: str) -> Any:
        keys = [{name: item[name] for name in self._key} for item in self.items.values()]
        return MagicMock(paginate=lambda **_: [{"Items": keys}])

    def put_item(self, Item: dict[str, Any], **_: Any) -> None:  # noqa: N803
        with self._counting:
            self.changes += Item != self.items.get(self._place(Item))
            self.items[self._place(Item)] = Item

    def delete_item(self, Key: dict[str, Any], **_: Any) -> None:  # noqa: N803
        with self._counting:
            del self.items[self._place(Key)]
            self.changes += 1

    def update_item(self, Key: dict[str, Any], **request: Any) -> None:  # noqa: N803
        assert self._place(Key) in self.items
        assert REVISION in request["ExpressionAttributeNames"].values()
        assert not set(request["ExpressionAttributeNames"].values()) & set(self._key)
        with self._counting:
            self.changes += 1


def test_a_workload_counts_each_change_and_makes_every_kind(contract: Contract, made: list[dict[str, Any]]) -> None:
    table = Table(made[:20], ("owner", "boughtOn"))
    plan = WorkloadPlan(seconds=0.1, changes=200, workers=3, seed=4)
    summary = items_workload.run(lambda: table, contract, plan)
    assert summary.changes == table.changes >= 200
    assert summary.by_kind.keys() == items_workload.KINDS.keys()
    assert len(table.items) == 20 + summary.by_kind["put"] - summary.by_kind["delete"]


def test_an_empty_table_can_be_changed_too(contract: Contract) -> None:
    table = Table([], ("owner", "boughtOn"))
    plan = WorkloadPlan(seconds=0.1, changes=20, workers=2, seed=4)
    assert items_workload.run(lambda: table, contract, plan).changes == table.changes


def test_summaries_add_up() -> None:
    first = items_workload.ItemsSummary(3, 2.0, refused=1, by_kind={"put": 2, "expire": 1})
    second = items_workload.ItemsSummary(4, 5.0, by_kind={"put": 4})
    assert items_workload.together([first, second]) == items_workload.ItemsSummary(
        7, 5.0, refused=1, by_kind={"expire": 1, "put": 6}
    )
    assert items_workload.together([]) == items_workload.ItemsSummary(0, 0.0)


def test_the_accounts_get_the_whole_plan_and_other_tables_a_part(contract: Contract) -> None:
    plan = WorkloadPlan(seconds=60, changes=2_400, workers=4, seed=1)
    part = dynamodb_tables.plan_of(contract, plan)
    assert (part.seconds, part.changes, part.workers) == (60, 300, 1)
    accounts = parse_contract(EVERY_TYPE.replace("table: things,", f"table: {TABLE},"), "things.yaml")
    assert dynamodb_tables.plan_of(accounts, plan) == plan
