"""The report's figures and its page, from orders made by hand."""

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import report
from headwater.report import CustomerRevenue, Freshness, revenue_by_customer
from headwater.verify import Example, TableComparison
from headwater.workload import WorkloadSummary

ITEM = pa.struct(
    [
        ("product_id", pa.int32()),
        ("unit_price", pa.decimal128(12, 4)),
        ("quantity", pa.int32()),
        ("discount", pa.decimal128(5, 4)),
    ]
)
CUSTOMER = pa.struct([("customer_id", pa.string()), ("company_name", pa.string())])
EQUAL = TableComparison("orders", 3, 3, 0, 0, 0)


def orders(*rows: tuple[str | None, list[tuple[str, int, str]]]) -> pa.Table:
    """Orders of a customer, each with items of unit price, quantity and discount."""
    items = [
        [
            {"product_id": at, "unit_price": Decimal(price), "quantity": quantity, "discount": Decimal(discount)}
            for at, (price, quantity, discount) in enumerate(order)
        ]
        for _, order in rows
    ]
    customers = [{"customer_id": name, "company_name": f"{name} & Co"} if name else None for name, _ in rows]
    return pa.table(
        {
            "order_id": pa.array(range(len(rows)), pa.int32()),
            "customer": pa.array(customers, CUSTOMER),
            "items": pa.array(items, pa.list_(ITEM)),
        }
    )


ORDERS = orders(
    ("SMALL", [("1.0000", 3, "0")]),
    ("LARGE", [("10.0000", 10, "0.2500"), ("0.1000", 3, "0.0000")]),
    ("LARGE", [("5.0000", 2, "0.0000")]),
    (None, [("1000.0000", 10, "0")]),
    ("EMPTY", []),
)


def built(folder: Path, **changes: Any) -> tuple[str, dict[str, Any]]:
    arguments: dict[str, Any] = {
        "tables": [EQUAL],
        "freshness": Freshness.of([1.0, 2.0, 3.0]),
        "seconds": {"start": 1.5, "drain": 0.5},
        "lake_orders": ORDERS,
    } | changes
    report.build(folder / "demo", **arguments)
    page = (folder / "demo" / "report.html").read_text()
    return page, json.loads((folder / "demo" / "report.json").read_text())


class TestRevenue:
    def test_customers_come_by_revenue_after_discount(self) -> None:
        large, small = revenue_by_customer(ORDERS)
        assert large == CustomerRevenue("LARGE", "LARGE & Co", 2, 85.3, large.average_item_revenue, 5.0)
        assert large.average_item_revenue == pytest.approx(85.3 / 3)
        assert small == CustomerRevenue("SMALL", "SMALL & Co", 1, 3.0, 3.0, 3.0)

    def test_revenue_is_summed_exactly(self) -> None:
        table = orders(*[("ONE", [("0.1000", 1, "0.0000")])] * 10)
        assert revenue_by_customer(table)[0].revenue == 1.0

    def test_a_lake_without_orders_has_no_customers(self) -> None:
        assert revenue_by_customer(orders()) == []


class TestFreshness:
    def test_a_percentile_is_the_sample_that_so_many_do_not_exceed(self) -> None:
        freshness = Freshness.of([float(second) for second in range(100, 0, -1)])
        assert freshness is not None
        assert freshness.figures() == {"p50": 50.0, "p95": 95.0, "max": 100.0}

    @given(st.lists(st.floats(0, 1e6), min_size=1))
    def test_percentiles_are_samples_in_order(self, seconds: list[float]) -> None:
        freshness = Freshness.of(seconds)
        assert freshness is not None
        chosen = [freshness.percentile(percent) for percent in (0, 50, 95, 100)]
        assert chosen == sorted(chosen)
        assert set(chosen) <= set(seconds)
        assert chosen[-1] == max(seconds)

    def test_no_samples_have_no_freshness(self) -> None:
        assert Freshness.of([]) is None


class TestFiles:
    def test_the_json_holds_what_a_gate_reads(self, tmp_path: Path) -> None:
        _, document = built(tmp_path)
        assert document["tables"] == [
            {"name": "orders", "source_rows": 3, "lake_rows": 3, "missing": 0, "extra": 0, "different": 0}
        ]
        assert document["freshness_seconds"] == {"p50": 2.0, "p95": 3.0, "max": 3.0}
        assert document["seconds"] == {"start": 1.5, "drain": 0.5}
        assert [customer["customer_id"] for customer in document["top_customers"]] == ["LARGE", "SMALL"]

    def test_the_page_loads_nothing(self, tmp_path: Path) -> None:
        page, _ = built(tmp_path)
        own = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
        assert not re.search(r"\b(src|href)\s*=|@import|url\(", own)
        assert "Plotly.newPlot" in page

    def test_every_chart_has_its_place(self, tmp_path: Path) -> None:
        page, _ = built(
            tmp_path,
            memory_bytes={"Kafka": 2**28},
            workload=WorkloadSummary(2_400, 70, 12, 60.0, {"insert_order": 300}),
            top_customers_before=["QUICK", "ERNSH", "SAVEA"],
        )
        places = set(re.findall(r'id="(chart-\w+)"', page))
        assert places == {
            f"chart-{name}" for name in ("freshness", "revenue", "customers", "seconds", "memory", "kinds")
        }
        assert places == set(re.findall(r'"(chart-\w+)": \{', page))
        assert "QUICK, ERNSH, SAVEA before the workload" in page

    def test_a_difference_is_told_with_its_examples(self, tmp_path: Path) -> None:
        example = Example("different", {"order_id": "8"}, {"freight": ("1.5000", "2.0000")})
        wrong = TableComparison("orders", 3, 3, 0, 0, 1, (example,))
        page, document = built(tmp_path, tables=[wrong])
        assert "The lake differs from its source" in page
        assert "freight: source 1.5000 | lake 2.0000" in page
        assert document["tables"][0]["different"] == 1

    def test_an_empty_run_still_has_a_report(self, tmp_path: Path) -> None:
        page, document = built(tmp_path, tables=[], freshness=None, seconds={}, lake_orders=orders())
        assert document["freshness_seconds"] is None
        assert "chart-" not in re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)

    def test_data_cannot_end_the_script_or_become_markup(self, tmp_path: Path) -> None:
        name = "</script><b>x"
        example = Example("extra", {"customer_id": name})
        page, _ = built(
            tmp_path,
            tables=[TableComparison("customers", 0, 1, 0, 1, 0, (example,))],
            lake_orders=orders((name, [("1.0000", 1, "0")])),
        )
        assert name not in page
        assert "&lt;/script&gt;&lt;b&gt;x" in page
