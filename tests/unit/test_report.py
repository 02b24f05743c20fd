"""The report's figures and its page, from orders made by hand."""

import itertools
import json
import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.verify import Example, TableComparison
from rig.demo import report
from rig.demo.report import (
    CustomerRevenue,
    DemoRun,
    Freshness,
    PipelineRun,
    UpdateUnderLoad,
    revenue_by_customer,
)
from rig.samples.orders_workload import OrdersSummary

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


@dataclass(frozen=True)
class Wishes:
    """Any workload will do."""

    granted: int
    seconds: float = 7.0
    by_kind: dict[str, int] = field(default_factory=dict)

    def counted(self) -> tuple[int, str]:
        return self.granted, "wishes"

    def remark(self) -> str:
        return "none was refused."


RELATIONAL = PipelineRun(
    "relational",
    [EQUAL],
    Freshness.of([1.0, 2.0, 3.0]),
    OrdersSummary(2_400, 70, 12, 60.0, {"insert_order": 300, "update_order": 900}),
)
KEY_VALUE = PipelineRun(
    "key_value",
    [TableComparison("accounts", 7, 7, 0, 0, 0)],
    Freshness.of([0.5, 4.0]),
    Wishes(1_234, by_kind={"put_item": 3}),
)


def built(folder: Path, **changes: Any) -> tuple[str, dict[str, Any]]:
    arguments: dict[str, Any] = {
        "pipelines": [RELATIONAL],
        "seconds": {"start": 1.5, "drain": 0.5},
        "lake_orders": ORDERS,
        "loop_seconds": 0.75,
    } | changes
    report.build(folder / "demo", DemoRun(**arguments))
    page = (folder / "demo" / "report.html").read_text()
    return page, json.loads((folder / "demo" / "report.json").read_text())


def test_an_update_under_load_stands_beside_the_freshness_that_it_does_not_count_in(tmp_path: Path) -> None:
    page, figures = built(tmp_path, update=UpdateUnderLoad(61.25, 44.0))
    text = " ".join(page.split())
    assert "deployed under the workload, in 61 s." in text
    assert "The slowest of them was readable after 44.0 s" in text
    assert figures["update_under_load"] == {"seconds": 61.25, "worst_freshness": 44.0}
    page, figures = built(tmp_path)
    assert "An update" not in page
    assert figures["update_under_load"] is None


def test_a_pipeline_with_stages_says_where_its_changes_wait(tmp_path: Path) -> None:
    stages = {"about the median": {"a to b": 1.23456, "b to c": 2.0}, "the slowest 5 %": {"a to b": 3.0, "b to c": 4.0}}
    page, figures = built(tmp_path, pipelines=[replace(RELATIONAL, stages=stages), KEY_VALUE])
    assert "Where relational changes wait" in page
    assert "(3 changes)" in " ".join(page.split())
    assert "chart-stages-relational" in page
    assert figures["stage_seconds_by_pipeline"]["relational"]["about the median"] == {"a to b": 1.235, "b to c": 2.0}
    page, figures = built(tmp_path)
    assert "changes wait" not in page
    assert figures["stage_seconds_by_pipeline"] == {}


def test_without_orders_a_page_shows_no_customers(tmp_path: Path) -> None:
    page, figures = built(tmp_path, pipelines=[KEY_VALUE], lake_orders=None)
    assert "Revenue" not in page
    assert "customer" not in page
    assert figures["top_customers"] == []
    assert "Revenue" in built(tmp_path)[0]


def test_the_peak_of_all_parts_is_that_of_one_moment(tmp_path: Path) -> None:
    parts = {"Kafka": 1 << 30, "EMR (Spark)": 2 << 30}
    page, figures = built(tmp_path, memory_bytes=parts, peak_memory_bytes=int(2.5 * 2**30))
    assert "<b>2.5 GiB</b>" in page
    assert figures["peak_memory_bytes"] == int(2.5 * 2**30)
    assert figures["memory_bytes"] == parts


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


class TestLabels:
    @pytest.mark.parametrize("seed", range(5))
    def test_no_label_covers_a_dot_or_another_label_at_any_width_of_the_page(self, seed: int, tmp_path: Path) -> None:
        draw = random.Random(seed)
        customers = [f"C{number:04}" for number in range(100)]
        crowd = [
            (customer, [(f"{draw.gauss(30, 8):.4f}", max(round(draw.gauss(22, 5)), 1), "0")])
            for customer in customers
            for _ in range(draw.randint(1, 9))
        ]
        chart = scatter(tmp_path, crowd)
        assert len(chart["layout"]["annotations"]) >= 6
        assert overlaps(chart) == set()

    def test_the_labels_of_dots_on_one_another_stand_around_them(self, tmp_path: Path) -> None:
        chart = scatter(tmp_path, [(f"TWIN{number}", [("10.0000", 4, "0")]) for number in range(9)])
        assert [label["text"] for label in chart["layout"]["annotations"]] == [f"TWIN{number}" for number in range(8)]
        assert overlaps(chart) == set()

    def test_a_label_is_left_out_where_it_has_no_place(self, tmp_path: Path) -> None:
        name = "A" * 60
        chart = scatter(tmp_path, [(name, [("10.0000", 4, "0")]), ("SHORT", [("1.0000", 2, "0")])])
        assert [label["text"] for label in chart["layout"]["annotations"]] == ["SHORT"]


class TestFreshness:
    def test_a_percentile_is_the_sample_that_so_many_do_not_exceed(self) -> None:
        freshness = Freshness.of([float(second) for second in range(100, 0, -1)])
        assert freshness is not None
        assert freshness.figures() == {"p50": 50.0, "p95": 95.0, "max": 100.0}

    @settings(deadline=None)
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
        _, document = built(tmp_path, pipelines=[RELATIONAL, KEY_VALUE])
        none = {"missing": 0, "extra": 0, "different": 0, "unfit": 0}
        assert document["tables"] == [
            {"name": "orders", "source_rows": 3, "lake_rows": 3, **none},
            {"name": "accounts", "source_rows": 7, "lake_rows": 7, **none},
        ]
        assert document["seconds"] == {"start": 1.5, "drain": 0.5}
        assert [customer["customer_id"] for customer in document["top_customers"]] == ["LARGE", "SMALL"]

    def test_freshness_is_told_of_each_pipeline_and_of_all_changes_together(self, tmp_path: Path) -> None:
        _, document = built(tmp_path, pipelines=[RELATIONAL, KEY_VALUE])
        assert document["freshness_seconds"] == {"p50": 2.0, "p95": 4.0, "max": 4.0}
        assert document["freshness_seconds_by_pipeline"] == {
            "relational": {"p50": 2.0, "p95": 3.0, "max": 3.0},
            "key_value": {"p50": 0.5, "p95": 4.0, "max": 4.0},
        }

    def test_each_pipelines_workload_keeps_its_own_figures(self, tmp_path: Path) -> None:
        _, document = built(tmp_path, pipelines=[RELATIONAL, KEY_VALUE])
        assert document["workloads"]["relational"]["rolled_back"] == 70
        assert document["workloads"]["key_value"] == {"granted": 1234, "seconds": 7.0, "by_kind": {"put_item": 3}}

    def test_the_page_loads_nothing(self, tmp_path: Path) -> None:
        page, _ = built(tmp_path)
        assert not re.search(r"\b(src|href)\s*=|@import|url\(", shown(page))
        assert "Plotly.newPlot" in page

    def test_every_chart_has_its_place(self, tmp_path: Path) -> None:
        page, _ = built(
            tmp_path,
            pipelines=[RELATIONAL, KEY_VALUE],
            memory_bytes={"Kafka": 2**28},
            top_customers_before=["QUICK", "ERNSH", "SAVEA"],
        )
        places = re.findall(r'id="(chart-[\w-]+)"', page)
        names = [
            *("freshness-relational", "freshness-key-value", "workload-relational", "workload-key-value"),
            *("revenue", "customers", "seconds", "memory"),
        ]
        assert sorted(places) == sorted(f"chart-{name}" for name in names)
        assert sorted(places) == sorted(re.findall(r'"(chart-[\w-]+)": \{', page))
        assert "QUICK, ERNSH, SAVEA before the workload" in page

    def test_the_page_tells_both_pipelines_apart(self, tmp_path: Path) -> None:
        page, _ = built(tmp_path, pipelines=[RELATIONAL, KEY_VALUE])
        text = readable(page)
        assert "from the databases to the lake" in text
        assert "Before that, 2,400 transactions and 1,234 wishes had changed the source." in text
        assert "orders relational 3 3 0 0 0 0 ✓ accounts key-value 7 7 0 0 0 0 ✓" in text
        assert "2.0 s, 95 % within 3.0 s, all within 3.0 s (3 changes)" in text
        assert "0.5 s, 95 % within 4.0 s, all within 4.0 s (2 changes)" in text
        assert "2,400 transactions in 60 s, by kind; 70 rolled back on purpose, 12 attempts repeated" in text
        assert "1,234 wishes in 7 s, by kind; none was refused." in text

    def test_freshness_charts_share_their_axis_so_that_they_can_be_compared(self, tmp_path: Path) -> None:
        page, _ = built(tmp_path, pipelines=[RELATIONAL, KEY_VALUE])
        ends = [
            chart["layout"]["xaxis"]["range"]
            for chart in (json.loads(text) for text in re.findall(r'"chart-freshness-[\w-]+": (\{.*\}),', page))
        ]
        assert ends == [[0, 4.2], [0, 4.2]]

    def test_charts_take_the_width_of_the_screen_and_tables_scroll_within_themselves(self, tmp_path: Path) -> None:
        page, _ = built(tmp_path, pipelines=[RELATIONAL, KEY_VALUE], memory_bytes={"Kafka": 2**28})
        charts = [json.loads(text) for text in re.findall(r'"chart-[\w-]+": (\{.*\}),', page)]
        assert len(charts) == 8
        assert [chart["layout"]["width"] for chart in charts if "width" in chart["layout"]] == []
        assert "new ResizeObserver" in page.rpartition("<script>")[2]
        assert len(re.findall("<table", page)) == len(re.findall(r'<div class="scroll"><table', page)) == 1

    def test_one_pipeline_alone_fills_the_page(self, tmp_path: Path) -> None:
        page, document = built(tmp_path)
        assert "from the database to the lake" in page
        assert "key-value" not in readable(page)
        assert document["freshness_seconds"] == document["freshness_seconds_by_pipeline"]["relational"]

    def test_a_difference_is_told_with_its_examples(self, tmp_path: Path) -> None:
        example = Example("different", {"id": "8"}, {"balance": ("1.5000", "2.0000")})
        wrong = PipelineRun("key_value", [TableComparison("accounts", 3, 3, 0, 0, 1, (example,))])
        page, document = built(tmp_path, pipelines=[RELATIONAL, wrong])
        assert "The lake differs from its source" in page
        assert "balance: source 1.5000 | lake 2.0000" in page
        assert [table["different"] for table in document["tables"]] == [0, 1]

    def test_an_empty_run_still_has_a_report(self, tmp_path: Path) -> None:
        empty = PipelineRun("relational", [])
        page, document = built(tmp_path, pipelines=[empty], seconds={}, lake_orders=orders())
        assert document["freshness_seconds"] is None
        assert document["freshness_seconds_by_pipeline"] == {"relational": None}
        assert document["workloads"] == {"relational": None}
        assert "chart-" not in shown(page)

    def test_data_cannot_end_the_script_or_become_markup(self, tmp_path: Path) -> None:
        name = "</script><b>x"
        example = Example("extra", {"customer_id": name})
        wrong = PipelineRun("relational", [TableComparison("customers", 0, 1, 0, 1, 0, (example,))])
        page, _ = built(tmp_path, pipelines=[wrong], lake_orders=orders((name, [("1.0000", 1, "0")])))
        assert name not in page
        assert "&lt;/script&gt;&lt;b&gt;x" in page


def scatter(folder: Path, rows: Sequence[tuple[str, list[tuple[str, int, str]]]]) -> dict[str, Any]:
    """The chart of what customers buy, as the page hands it to Plotly."""
    page, _ = built(folder, lake_orders=orders(*rows))
    [chart] = re.findall(r'"chart-customers": (\{.*\}),', page)
    return dict(json.loads(chart))


def overlaps(chart: dict[str, Any]) -> set[str]:
    """The labels that cover another one or a dot, or are cut off, on a screen of some width."""
    layout = chart["layout"]
    dots = [dot for part in chart["data"] for dot in zip(part["x"], part["y"], part["marker"]["size"], strict=True)]
    margin, (_, right), (_, top) = layout["margin"], layout["xaxis"]["range"], layout["yaxis"]["range"]
    high, found = layout["height"] - margin["t"] - margin["b"], set()
    for width in range(270, 1140, 10):
        wide = width - margin["l"] - margin["r"]
        labels = {}
        for label in layout["annotations"]:
            x, y = label["x"] / right * wide + label["ax"], label["y"] / top * high - label["ay"]
            reach = 4 * len(label["text"])
            labels[label["text"]] = (x - reach, x + reach, y - 7, y + 7)
            if x < reach or x > wide - reach or y < 7 or y > high - 7:
                found.add(f"{label['text']} is cut off")
            for dot_x, dot_y, size in dots:
                across = max(abs(dot_x / right * wide - x) - reach, 0)
                up = max(abs(dot_y / top * high - y) - 7, 0)
                if math.hypot(across, up) < size / 2:
                    found.add(f"{label['text']} covers a dot")
        for (one, (left, end, low, high_end)), (two, other) in itertools.combinations(labels.items(), 2):
            if left < other[1] and other[0] < end and low < other[3] and other[2] < high_end:
                found.add(f"{one} covers {two}")
    return found


def shown(page: str) -> str:
    """The page without its scripts."""
    return re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)


def readable(page: str) -> str:
    """The page's words, as a reader meets them."""
    return " ".join(re.sub(r"<style>.*?</style>|<[^>]*>", " ", shown(page), flags=re.DOTALL).split())


def test_a_report_that_cannot_be_written_costs_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said: list[str] = []
    for folder in (tmp_path / "file", tmp_path / "folder"):
        with report.reported(folder, said.append):
            report.build(folder, DemoRun([RELATIONAL], {}, ORDERS, 0.75))
    failed, written = said
    assert failed.startswith(f"There is no report in {tmp_path / 'file'}: FileExistsError: ")
    assert written == f"Report: {tmp_path / 'folder' / 'report.html'}"
