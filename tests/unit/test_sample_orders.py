"""The generator's data: the same for the same scale and seed, and shaped like Northwind."""

import csv
from pathlib import Path

import pytest

from headwater.errors import UserError
from rig.samples import orders, orders_workload


def _read(folder: Path, table: str) -> list[dict[str, str]]:
    with (folder / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("northwind")
    orders.generate(1, 7, folder)
    return folder


def test_same_scale_and_seed_give_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    orders.generate(1, 7, tmp_path)
    for table in orders.TABLES:
        assert (tmp_path / f"{table}.csv").read_bytes() == (folder / f"{table}.csv").read_bytes()


def test_another_seed_gives_other_orders(folder: Path, tmp_path: Path) -> None:
    orders.generate(1, 8, tmp_path)
    assert (tmp_path / "orders.csv").read_bytes() != (folder / "orders.csv").read_bytes()


def test_scale_one_is_as_large_as_northwind(folder: Path) -> None:
    assert len(_read(folder, "orders")) == 830
    assert len(_read(folder, "customers")) == 91
    assert len(_read(folder, "products")) == 77
    assert 1_800 <= len(_read(folder, "order_details")) <= 2_500


@pytest.mark.parametrize(("scale", "count"), [(0.001, 1), (0.1, 83), (3, 2490)])
def test_orders_grow_with_the_scale(tmp_path: Path, scale: float, count: int) -> None:
    assert orders.generate(scale, 1, tmp_path)["orders"] == count


def test_every_reference_has_its_row(folder: Path) -> None:
    references = [
        ("orders", "customer_id", "customers", "customer_id"),
        ("orders", "employee_id", "employees", "employee_id"),
        ("orders", "ship_via", "shippers", "shipper_id"),
        ("order_details", "order_id", "orders", "order_id"),
        ("order_details", "product_id", "products", "product_id"),
        ("products", "supplier_id", "suppliers", "supplier_id"),
        ("products", "category_id", "categories", "category_id"),
        ("employee_territories", "territory_id", "territories", "territory_id"),
        ("territories", "region_id", "region", "region_id"),
        ("employees", "reports_to", "employees", "employee_id"),
    ]
    for table, column, parent, key in references:
        known = {row[key] for row in _read(folder, parent)} | {""}
        assert {row[column] for row in _read(folder, table)} <= known, (table, column)


def test_it_has_the_gaps_that_the_outbox_must_bear(folder: Path) -> None:
    orders = _read(folder, "orders")
    assert any(row["ship_via"] == "" for row in orders)
    assert any(row["shipped_date"] == "" for row in orders)
    with_territory = {row["employee_id"] for row in _read(folder, "employee_territories")}
    assert {row["employee_id"] for row in orders} - with_territory


@pytest.mark.parametrize("scale", [0, -1, 10_001, float("nan")])
def test_a_scale_out_of_range_is_refused(tmp_path: Path, scale: float) -> None:
    with pytest.raises(UserError, match="above 0"):
        orders.generate(scale, 1, tmp_path)


def test_workloads_one_after_another_are_summed_up() -> None:
    first = orders_workload.OrdersSummary(10, 1, 2, 1.5, {"insert_order": 11})
    second = orders_workload.OrdersSummary(5, 0, 1, 2.0, {"insert_order": 2, "long": 3})
    both = orders_workload.OrdersSummary(15, 1, 3, 3.5, {"insert_order": 13, "long": 3})
    assert orders_workload.one_after_another([first, second]) == both
