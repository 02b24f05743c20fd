"""Items for any contract: of every type that a contract may name, the same for the same number and seed."""

import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any
from unittest.mock import MagicMock

import pytest

from headwater.contract.model import Contract
from headwater.contract.reading import parse_contract
from headwater.errors import UserError
from headwater.lake.decoding.dynamodb_decoder import DynamoDecoder
from rig.local.relay import kinesis_data
from rig.samples import dynamodb_tables, items, items_workload
from rig.samples.items import REVISION, TYPES, ItemMaker
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
    assert make.item(make.key(7)) != make.item(make.key(7))
    assert make.item(make.key(7)).keys() >= make.key(7).keys()


def values(value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every value in an attribute, with its type, from the outside in."""
    ((type_, inner),) = value.items()
    yield type_, inner
    for nested in inner.values() if type_ == "M" else inner if type_ == "L" else ():
        yield from values(nested)


def all_values(made: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    return itertools.chain.from_iterable(values(value) for item in made for value in item.values())


def test_items_have_every_type_nested_too_and_names_that_need_quoting(made: list[dict[str, Any]]) -> None:
    assert {type_ for item in made for type_, _ in values(item.get("mixed", {"NULL": True}))} == set(TYPES)
    nested = {name for type_, value in all_values(made) if type_ == "M" for name in value}
    assert {"nick.name", 'said "hello"', "città"} <= {name for item in made for name in item}
    assert {"a.b.c", "größe", "["} <= nested


def test_values_at_the_edges_occur(made: list[dict[str, Any]]) -> None:
    scalars = {(type_, str(value)) for type_, value in all_values(made) if type_ not in ("M", "L")}
    assert {("S", ""), ("B", "b''"), ("N", "1E-130"), ("NULL", "True")} <= scalars
    digits = [len(Decimal(value).as_tuple().digits) for type_, value in all_values(made) if type_ == "N"]
    assert max(digits) == 38
    assert any("" in value for type_, value in all_values(made) if type_ == "SS")


def test_no_set_is_empty_or_holds_a_member_twice(made: list[dict[str, Any]]) -> None:
    for type_, value in all_values(made):
        if type_ in ("SS", "NS", "BS"):
            members = [Decimal(member) for member in value] if type_ == "NS" else value
            assert 0 < len(set(members)) == len(value)


def test_every_kind_is_chosen_and_makes_enough_changes(contract: Contract) -> None:
    kinds, known = items_workload.choose_kinds(contract, 2000, seed=3), items_workload.kinds_of(contract)
    assert set(kinds) == set(known)
    assert 2000 <= sum(known[kind].changes for kind in kinds) < 2020
    assert set(items_workload.choose_kinds(contract, 0, seed=3)) == set(known)


def test_without_a_time_to_live_no_item_expires(contract: Contract) -> None:
    lasting = replace(contract, source=replace(contract.source, time_to_live=None))
    kinds = items_workload.choose_kinds(lasting, 2000, seed=3)
    assert set(items_workload.choose_kinds(contract, 2000, seed=3)) - set(kinds) == {"expire", "renew"}


def test_the_kinds_are_the_same_for_the_same_seed(contract: Contract) -> None:
    kinds = items_workload.choose_kinds(contract, 500, seed=1)
    assert items_workload.choose_kinds(contract, 500, seed=1) == kinds
    assert items_workload.choose_kinds(contract, 500, seed=2) != kinds


def test_a_value_is_of_one_of_the_types_asked_for(contract: Contract) -> None:
    make = ItemMaker(contract, random.Random(5)).values
    assert {next(iter(make.any(["S", "NULL"]))) for _ in range(50)} == {"S", "NULL"}


def test_an_empty_table_is_refused(contract: Contract) -> None:
    client = MagicMock()
    client.get_paginator.return_value.paginate.return_value = [{"Items": []}]
    plan = WorkloadPlan(seconds=1, changes=10, workers=2, seed=1)
    with pytest.raises(UserError, match=r"table things has no items, expected one at least: load it first"):
        items_workload.run(lambda: client, contract, plan)


def test_items_that_have_expired_are_left_alone_since_dynamodb_may_delete_them(contract: Contract) -> None:
    written: list[bytes] = []
    stored: list[dict[str, Any]] = [
        {"owner": {"B": number.to_bytes(2, "big")}, "boughtOn": {"S": "2024-01-01"}, "expires_at": expires}
        for number, expires in enumerate([*[{"S": "a text"}, {"N": "1"}, {"N": "4102444800"}] * 4])
    ]
    client = MagicMock()
    client.get_paginator.return_value.paginate.return_value = [{"Items": stored}]
    client.batch_write_item.return_value = {"UnprocessedItems": {}}
    client.update_item.side_effect = lambda **request: written.append(request["Key"]["owner"]["B"])
    client.put_item.side_effect = lambda **request: written.append(request["Item"]["owner"]["B"])
    client.get_item.side_effect = lambda **request: {"Item": {**request["Key"], REVISION: {"N": "1"}}}
    items_workload.run(lambda: client, contract, WorkloadPlan(seconds=0.5, changes=200, workers=1, seed=1))
    expired = {item["owner"]["B"] for item in stored if item["expires_at"] == {"N": "1"}}
    assert expired
    assert set(written).isdisjoint(expired)
    assert set(written) & {item["owner"]["B"] for item in stored}


def test_summaries_add_up() -> None:
    first = items_workload.ItemsSummary(3, 2.0, refused=1, by_kind={"put": 2, "expire": 1})
    second = items_workload.ItemsSummary(4, 5.0, by_kind={"put": 4})
    assert items_workload.together([first, second]) == items_workload.ItemsSummary(
        7, 5.0, refused=1, by_kind={"expire": 1, "put": 6}
    )
    assert items_workload.together([]) == items_workload.ItemsSummary(0, 0.0)


def test_each_table_gets_an_equal_part_of_the_plan() -> None:
    plan = WorkloadPlan(seconds=60, changes=2_400, workers=4, seed=1)
    assert dynamodb_tables.part_of(plan, 1) == plan
    part = dynamodb_tables.part_of(plan, 8)
    assert (part.seconds, part.changes, part.workers) == (60, 300, 1)
