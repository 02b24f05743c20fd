"""What ``headwater verify --repair`` has read again, and when that is a whole table."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest

from headwater.commands import repairs
from headwater.commands.lakes import NamedLake
from headwater.commands.repairs import ItemRepairs, RowRepairs
from headwater.contract.reading import read_contract
from headwater.lake_folder import EXAMPLE
from headwater.postgresql import conditions
from headwater.postgresql.conditions import Condition
from headwater.verify.watch import Difference

CUSTOMERS = read_contract(EXAMPLE.contracts / "customers.yaml")
ACCOUNTS = read_contract(EXAMPLE.contracts / "accounts.yaml")


def different(*asked: Any, kind: str = "different") -> list[Difference]:
    return [Difference(kind, {}, {}, each, 0.0) for each in asked]


@dataclass
class Asked:
    """The conditions of new readings, "" for whole tables, and how many rows PostgreSQL finds by a condition."""

    read: list[str] = field(default_factory=list)
    found: int = 0
    spent: list[tuple[str, float]] = field(default_factory=list)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked()

    class Reader:
        def __init__(self, dynamodb: Any, s3: Any, lake: str, spent: Any) -> None:
            self._spent = spent

        def read(self, contract: Any, table: str, where: str) -> None:
            assert table == "shop-accounts"
            asked.read.append(where)
            self._spent(2.5)

    monkeypatch.setattr(repairs, "ItemReader", Reader)

    def read(connection: Any, contracts: Any, where: Condition | None) -> None:
        asked.read.append(where.text if where else "")

    monkeypatch.setattr(repairs, "read_by_connector", read)
    monkeypatch.setattr(conditions, "rows_where", lambda connection, table, where: asked.found)
    return asked


@pytest.fixture
def rows() -> RowRepairs:
    return RowRepairs(lambda: nullcontext())  # type: ignore[arg-type,return-value]  # nothing is asked


@pytest.fixture
def items(asked: Asked, s3: Any) -> ItemRepairs:
    place = NamedLake("s3://b/lake", "", "eu-west-1", {"accounts": "shop-accounts"}, "http://127.0.0.1:1", "", "", 60)
    return ItemRepairs(place, lambda contract, units: asked.spent.append((contract.table, units)))


def test_rows_are_read_by_their_keys(asked: Asked, rows: RowRepairs) -> None:
    asked.found = 2
    assert not rows.mend(CUSTOMERS, different(("A",), ("O'B",)), may_be_whole=True)
    assert asked.read == ["(\"customer_id\") IN (('A'), ('O''B'))"]


def test_a_row_too_many_has_the_whole_table_read_where_that_may_be(asked: Asked, rows: RowRepairs) -> None:
    found = different(("A",)) + different(("X",), kind="extra")
    asked.found = 1
    assert rows.mend(CUSTOMERS, found, may_be_whole=True)
    assert not rows.mend(CUSTOMERS, found, may_be_whole=False)
    assert not rows.mend(CUSTOMERS, found[1:], may_be_whole=False)
    assert asked.read == ["", "(\"customer_id\") IN (('A'))"]


def test_rows_that_are_gone_meanwhile_have_no_whole_table_read(asked: Asked, rows: RowRepairs) -> None:
    for asked.found in (1, 0):
        assert not rows.mend(CUSTOMERS, different(("A",), ("B",)), may_be_whole=True)
    assert asked.read == ["(\"customer_id\") IN (('A'), ('B'))"]


def test_keys_that_no_condition_can_hold_are_left_out_and_told(
    asked: Asked, rows: RowRepairs, capsys: pytest.CaptureFixture[str]
) -> None:
    asked.found = 1
    assert not rows.mend(CUSTOMERS, different(("A",), ("what?",), ("a;b",)), may_be_whole=True)
    assert asked.read == ["(\"customer_id\") IN (('A'))"]
    assert "2 rows of customers are not repaired" in capsys.readouterr().out


def test_a_comparison_that_ends_has_the_whole_table_read_where_keys_are_not_found(
    asked: Asked, rows: RowRepairs
) -> None:
    for asked.found in (2, 1):
        rows.read(CUSTOMERS, [("A",), ("B",)])
    assert asked.read == ["(\"customer_id\") IN (('A'), ('B'))", ""]


def test_items_are_read_some_at_a_time_and_what_they_take_is_told(asked: Asked, items: ItemRepairs) -> None:
    some = different(*({"id": {"S": f"{number:03}"}} for number in range(items.at_once)))
    assert not items.mend(ACCOUNTS, some, may_be_whole=True)
    (where,) = asked.read
    assert where.startswith("\"id\" IN ['000', '001'")
    assert where.count(",") == 49
    assert asked.spent == [("accounts", 2.5)]


def test_items_that_cannot_be_asked_for_have_the_whole_table_read_where_that_may_be(
    asked: Asked, items: ItemRepairs
) -> None:
    binary = different({"id": {"B": b"1"}})
    assert not items.mend(ACCOUNTS, binary, may_be_whole=False)
    assert not items.mend(ACCOUNTS, different({"id": {"S": "1"}}, kind="extra"), may_be_whole=False)
    assert asked.read == []
    assert items.mend(ACCOUNTS, binary, may_be_whole=True)
    assert items.mend(ACCOUNTS, different({"id": {"S": "1"}}, kind="extra"), may_be_whole=True)
    assert asked.read == ["", ""]
