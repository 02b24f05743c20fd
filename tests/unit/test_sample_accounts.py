"""The accounts: items of every shape that the contract takes, and a plan with every kind of write."""

import itertools
import json
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from unittest.mock import MagicMock

import pytest

from headwater.contract.reading import read_contract
from headwater.errors import UserError
from headwater.lake.decoding.dynamodb_decoder import DynamoDecoder
from headwater.paths import CONTRACTS
from rig.local.relay import kinesis_data
from rig.samples import accounts, accounts_workload
from rig.samples.items import TYPES, Item
from rig.samples.paced_workers import WorkloadPlan

MICROS = 1_700_000_000_000_000


@pytest.fixture(scope="module")
def items() -> list[Item]:
    return list(accounts.generate(1000, seed=1))


def values(value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every value in an attribute, with its type, from the outside in."""
    ((type_, inner),) = value.items()
    yield type_, inner
    for nested in inner.values() if type_ == "M" else inner if type_ == "L" else ():
        yield from values(nested)


def names(item: Item) -> Iterator[str]:
    """Every name in an item, nested ones too."""
    for name, value in item.items():
        yield name
        for type_, inner in values(value):
            if type_ == "M":
                yield from inner


def all_values(items: list[Item]) -> Iterator[tuple[str, Any]]:
    return itertools.chain.from_iterable(values(value) for item in items for value in item.values())


def test_an_item_depends_on_its_number_and_the_seed_alone(items: list[Item]) -> None:
    assert list(accounts.generate(10, seed=1)) == items[:10]
    assert list(accounts.generate(10, seed=2)) != items[:10]


def test_the_whole_key_is_needed_to_tell_items_apart(items: list[Item]) -> None:
    keys = [(item["id"]["S"], item["custName"]["S"]) for item in items]
    assert len(set(keys)) == len(items)
    assert len({partition for partition, _ in keys}) == len(items) * 4 // 5


def test_items_have_every_type_nested_too_and_names_that_need_quoting(items: list[Item]) -> None:
    assert {type_ for type_, _ in all_values(items)} == set(TYPES)
    assert {type_ for item in items for type_, _ in values(item.get("mixed", {"NULL": True}))} == set(TYPES)
    assert {"nick.name", 'said "hello"', "città", "a.b.c", "größe", "["} <= {
        name for item in items for name in names(item)
    }


def test_values_at_the_edges_occur(items: list[Item]) -> None:
    scalars = {(type_, str(value)) for type_, value in all_values(items) if type_ not in ("M", "L")}
    assert {("S", ""), ("B", "b''"), ("N", "1E-130"), ("NULL", "True")} <= scalars
    digits = [len(Decimal(value).as_tuple().digits) for type_, value in all_values(items) if type_ == "N"]
    assert max(digits) == 38
    assert any("" in value for type_, value in all_values(items) if type_ == "SS")
    assert any({"registrationDate", "email"} - item.keys() for item in items)


def test_no_set_is_empty_or_holds_a_member_twice(items: list[Item]) -> None:
    for type_, value in all_values(items):
        if type_ in ("SS", "NS", "BS"):
            members = [Decimal(member) for member in value] if type_ == "NS" else value
            assert 0 < len(set(members)) == len(value)


def test_every_item_fits_its_contract(items: list[Item]) -> None:
    decoder = DynamoDecoder(read_contract(CONTRACTS / "accounts.yaml"))
    for item in items:
        change = {"Keys": {name: item[name] for name in ("id", "custName")}, "NewImage": item, "SizeBytes": 1}
        record = {"eventID": "1", "eventName": "INSERT", "dynamodb": change}
        data = kinesis_data(record, accounts.TABLE, MICROS)
        decoder.decode(data, "1", "here")
        decoder.item(json.dumps({"Item": json.loads(data)["dynamodb"]["NewImage"]}), MICROS, "here")


def test_every_kind_is_chosen_and_makes_enough_changes() -> None:
    kinds = accounts_workload.choose_kinds(2000, seed=3)
    assert set(kinds) == set(accounts_workload.KINDS)
    assert 2000 <= sum(accounts_workload.KINDS[kind].changes for kind in kinds) < 2020
    assert set(accounts_workload.choose_kinds(0, seed=3)) == set(accounts_workload.KINDS)


def test_the_kinds_are_the_same_for_the_same_seed() -> None:
    assert accounts_workload.choose_kinds(500, seed=1) == accounts_workload.choose_kinds(500, seed=1)
    assert accounts_workload.choose_kinds(500, seed=1) != accounts_workload.choose_kinds(500, seed=2)


def test_a_value_is_of_one_of_the_types_asked_for() -> None:
    make = accounts.AccountMaker(random.Random(5))
    assert {next(iter(make.any(["S", "NULL"]))) for _ in range(50)} == {"S", "NULL"}


def test_an_empty_table_is_refused() -> None:
    client = MagicMock()
    client.get_paginator.return_value.paginate.return_value = [{"Items": []}]
    with pytest.raises(UserError, match=r"table headwater-accounts has 0 items, expected at least 8: load it first"):
        accounts_workload.run(lambda: client, WorkloadPlan(seconds=1, changes=10, workers=2, seed=1))


def test_items_that_have_expired_are_left_alone_since_dynamodb_may_delete_them() -> None:
    written: list[str] = []
    stored = [
        {"id": {"S": f"account-{number:08d}"}, "custName": {"S": f"No. {number}"}, "expires_at": expires}
        for number, expires in enumerate([*[{"S": "a text"}, {"N": "1"}, {"N": "4102444800"}] * 4])
    ]
    client = MagicMock()
    client.get_paginator.return_value.paginate.return_value = [{"Items": stored}]
    client.batch_write_item.return_value = {"UnprocessedItems": {}}
    client.update_item.side_effect = lambda **request: written.append(request["Key"]["id"]["S"])
    client.put_item.side_effect = lambda **request: written.append(request["Item"]["id"]["S"])
    client.get_item.side_effect = lambda **request: {"Item": {**request["Key"], "version": {"N": "1"}}}
    accounts_workload.run(lambda: client, WorkloadPlan(seconds=0.5, changes=200, workers=1, seed=1))
    expired = {item["id"]["S"] for item in stored if item["expires_at"] == {"N": "1"}}
    assert expired
    assert set(written).isdisjoint(expired)
    assert set(written) & {item["id"]["S"] for item in stored}
