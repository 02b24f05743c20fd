"""The report of a run: a page for people and its figures for machines.

``report.html`` contains everything that it shows, charts included, and opens without a network.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import plotly.graph_objects as go
import pyarrow as pa
import sqlglot

from headwater.console import one_line
from headwater.contract.reading import read_contracts
from headwater.definitions.saved_queries import read_saved_queries
from headwater.lake_folder import EXAMPLE
from headwater.private_files import make_private
from headwater.queries import isolated_duckdb
from headwater.verify import TableComparison
from rig import pages
from rig.demo.scatter_labels import PLOT_HEIGHT, Dot, label_offsets
from rig.pages import ACCENT, INK, MUTED, WARM, bars, styled

PIE_CUSTOMERS = 20
"""How many customers have their own slice; the others share one."""
_REVENUE = "revenue-by-customer"
"""The example's saved query of each customer's revenue."""
_NAMED_DOTS = 8
# Radii in pixels, and the part of the axes beyond the largest dot.
_LARGEST_DOT, _SMALLEST_DOT = 19, 4
_BEYOND = 1.08
_BINS = 50
_TEMPLATE = Path(__file__).with_name("report.html.j2")

_OTHERS = "#c9d2d8"
_STAGES = {
    "source to Debezium": "#8fd0e0",
    "Debezium to Kafka": "#1b8fb3",
    "Kafka to S3": "#0b4f6c",
    "source to Kinesis": "#0b4f6c",
    "S3 to the writer": "#f0c987",
    "Kinesis to the writer": "#f0c987",
    "decode": "#d1752c",
    "write and commit": "#9c4a1a",
    "commit to reader": "#b9b4ad",
    "S3 to the lake": "#71569c",
    "Kinesis to the lake": "#71569c",
}
# From dark to light within each hue, so that neighbouring slices differ.
_PALETTE = (
    "#0b4f6c", "#0b6e8f", "#1b8fb3", "#4fb0cc", "#8fd0e0",
    "#1f6f50", "#2f9068", "#56b086", "#8accaa", "#bde3cf",
    "#8a4b12", "#d1752c", "#e39a5b", "#f0bd8f", "#f7dcc2",
    "#513a77", "#71569c", "#937bbb", "#b6a4d4", "#d8cfe9",
)  # fmt: skip


@dataclass(frozen=True)
class Freshness:
    """How long changes took from their commit in the source until they were readable in the lake."""

    seconds: tuple[float, ...]
    """The seconds of all changes, sorted from the shortest."""

    @staticmethod
    def of(seconds: Sequence[float]) -> "Freshness | None":
        """The freshness of these samples; None without samples."""
        return Freshness(tuple(sorted(seconds))) if seconds else None

    def percentile(self, percent: float) -> float:
        """The smallest sample that at least ``percent`` of all samples do not exceed."""
        return self.seconds[max(math.ceil(percent / 100 * len(self.seconds)) - 1, 0)]

    def figures(self) -> dict[str, float]:
        """The percentiles of a report, in seconds."""
        return {
            "p50": round(self.percentile(50), 3),
            "p95": round(self.percentile(95), 3),
            "max": round(self.seconds[-1], 3),
        }


class Workload(Protocol):
    """The result of a pipeline's workload: a dataclass whose fields a report copies unchanged."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def seconds(self) -> float:
        """The duration."""

    @property
    def by_kind(self) -> Mapping[str, int]:
        """The number of changes by kind."""

    def counted(self) -> tuple[int, str]:
        """The amount of work and its unit: 2400 and ``transactions``, for example."""

    def remark(self) -> str:
        """A further remark for the report, a sentence or more."""


@dataclass(frozen=True)
class PipelineRun:
    """The results of one pipeline in a run."""

    name: str
    """The pipeline's key in ``report.json``, such as ``key_value``."""
    tables: Sequence[TableComparison]
    """The comparisons of source and lake tables."""
    freshness: Freshness | None = None
    """The freshness of all changes; None without changes."""
    workload: Workload | None = None
    """The result of the workload; None without one."""
    stages: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """The mean seconds of each stage, by group of changes and by stage, as ``waterfall.profile`` returns them."""

    @property
    def title(self) -> str:
        """The name for readers, such as ``key-value``."""
        return self.name.replace("_", "-")


@dataclass(frozen=True)
class CustomerRevenue:
    """The revenue of one customer in the lake."""

    customer_id: str
    company_name: str
    orders: int
    """The number of the customer's orders."""
    revenue: float
    """The total revenue of the orders."""
    average_item_revenue: float
    """The average revenue of an item."""
    average_quantity: float
    """The average quantity of an item."""


def revenue_by_customer(lake_orders: pa.Table) -> list[CustomerRevenue]:
    """Each customer's revenue from the lake's live orders, largest first, by the query of QuickSight's charts."""
    saved = {query.name: query for query in read_saved_queries(EXAMPLE.queries, read_contracts(EXAMPLE.contracts))}
    (query,) = sqlglot.transpile(saved[_REVENUE].sql({"view.orders": "orders"}), read="athena", write="duckdb")
    with isolated_duckdb() as connection:
        connection.register("orders", lake_orders.select(["order_id", "customer", "items"]))
        found = [CustomerRevenue(*row) for row in connection.execute(query).fetchall()]
    return sorted(found, key=lambda customer: (-customer.revenue, customer.customer_id))


@dataclass(frozen=True)
class UpdateUnderLoad:
    """An update that was deployed while the workload ran."""

    seconds: float
    """The duration of the update."""
    worst_freshness: float
    """The longest wait in seconds among the changes that were made or on their way during the update."""


@dataclass(frozen=True)
class DemoRun:
    """The results of a run."""

    pipelines: Sequence[PipelineRun]
    """The results of each pipeline. Freshness leaves out the changes that were on their way during the update."""
    seconds: Mapping[str, float]
    """The seconds of each phase."""
    lake_orders: pa.Table | None
    """The live rows of the lake's orders; None if no contract describes them."""
    loop_seconds: float
    """The seconds of the fixed loop on this machine."""
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    """The largest memory of each part."""
    peak_memory_bytes: int = 0
    """The largest memory of all parts at one time."""
    top_customers_before: Sequence[str] = ()
    """The customers with the most revenue before the workload."""
    update: UpdateUnderLoad | None = None
    """The update under load; None if nothing was deployed under the workload."""

    @property
    def tables(self) -> list[TableComparison]:
        """The comparisons of all pipelines' tables."""
        return [table for pipeline in self.pipelines for table in pipeline.tables]

    @property
    def freshness(self) -> Freshness | None:
        """The freshness of all pipelines' changes together."""
        fresh = [pipeline.freshness for pipeline in self.pipelines if pipeline.freshness is not None]
        return Freshness.of([second for freshness in fresh for second in freshness.seconds])


@contextmanager
def reported(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Print the path of the report that the block writes into ``folder``.

    An error ends only the block, and a printed line names it: the comparison of the tables has yet to be printed.
    """
    try:
        yield
    except Exception as error:  # whatever it is, the comparison must be printed
        say(f"There is no report in {folder}: {type(error).__name__}: {one_line(str(error))}")
    else:
        say(f"Report: {folder / 'report.html'}")


def build(folder: Path, run: DemoRun) -> None:
    """Write ``report.html`` and ``report.json`` of a run into a folder.

    The folder is created if it is missing. Only its owner can read it, because a report names customers and their
    orders.
    """
    customers = [] if run.lake_orders is None else revenue_by_customer(run.lake_orders)
    make_private(folder)
    (folder / "report.html").write_text(_page(run, customers), encoding="utf-8")
    document = json.dumps(_document(run, customers), indent=1, ensure_ascii=False)
    (folder / "report.json").write_text(document + "\n", encoding="utf-8")


def _document(run: DemoRun, customers: Sequence[CustomerRevenue]) -> dict[str, Any]:
    overall = run.freshness
    return {
        "tables": [table.counts() for table in run.tables],
        "freshness_seconds": overall.figures() if overall else None,
        "freshness_seconds_by_pipeline": {
            pipeline.name: pipeline.freshness.figures() if pipeline.freshness else None for pipeline in run.pipelines
        },
        "stage_seconds_by_pipeline": {
            pipeline.name: {
                group: {stage: round(seconds, 3) for stage, seconds in stages.items()}
                for group, stages in pipeline.stages.items()
            }
            for pipeline in run.pipelines
            if pipeline.stages
        },
        "seconds": dict(run.seconds),
        "loop_seconds": round(run.loop_seconds, 2),
        "memory_bytes": dict(run.memory_bytes),
        "peak_memory_bytes": run.peak_memory_bytes,
        "update_under_load": {name: round(value, 3) for name, value in asdict(run.update).items()}
        if run.update
        else None,
        "workloads": {
            pipeline.name: asdict(pipeline.workload) if pipeline.workload else None for pipeline in run.pipelines
        },
        "top_customers": [asdict(customer) for customer in customers[:PIE_CUSTOMERS]],
        "top_customers_before_workload": list(run.top_customers_before),
    }


def _page(run: DemoRun, customers: Sequence[CustomerRevenue]) -> str:
    return pages.render(
        _TEMPLATE,
        _charts(run, customers),
        pipelines=run.pipelines,
        tables=run.tables,
        equal=all(table.equal for table in run.tables),
        workloads=[pipeline.workload for pipeline in run.pipelines if pipeline.workload],
        memory=run.peak_memory_bytes or sum(run.memory_bytes.values()),
        update=run.update,
        seconds=sum(run.seconds.values()),
        loop_seconds=run.loop_seconds,
        leaders_before=run.top_customers_before,
        leaders=[customer.customer_id for customer in customers[:3]],
        shown_customers=PIE_CUSTOMERS,
    )


def _charts(run: DemoRun, customers: Sequence[CustomerRevenue]) -> dict[str, go.Figure | None]:
    charts = {
        "revenue": _revenue_chart(customers) if customers else None,
        "customers": _customers_chart(customers) if customers else None,
        "seconds": bars(run.seconds, " s", ACCENT),
        "memory": bars({name: size / 2**20 for name, size in run.memory_bytes.items()}, " MiB", WARM),
    }
    overall = run.freshness
    for pipeline in run.pipelines:
        if pipeline.freshness and overall:
            charts[f"freshness-{pipeline.title}"] = _freshness_chart(pipeline.freshness, overall.seconds[-1])
        if pipeline.stages:
            charts[f"stages-{pipeline.title}"] = _stages_chart(pipeline.stages)
        if pipeline.workload:
            charts[f"workload-{pipeline.title}"] = bars(_ranked(pipeline.workload.by_kind), "", ACCENT)
    return charts


def _ranked(by_kind: Mapping[str, int]) -> dict[str, float]:
    return {kind.replace("_", " "): count for kind, count in sorted(by_kind.items(), key=lambda item: -item[1])}


def _freshness_chart(freshness: Freshness, longest: float) -> go.Figure:
    """The distribution of the changes' freshness. The axis ends at ``longest`` seconds in all pipelines' charts."""
    chart = go.Figure(
        go.Histogram(
            x=freshness.seconds,
            xbins={"start": 0, "size": longest / _BINS or 1},
            marker={"color": ACCENT, "line": {"color": "white", "width": 1}},
            hovertemplate="%{x} s: %{y:,} changes<extra></extra>",
        )
    )
    for percent, color, height in ((50, INK, 1.09), (95, WARM, 1.0)):
        at = freshness.percentile(percent)
        chart.add_vline(
            x=at,
            line={"color": color, "width": 2, "dash": "dot"},
            annotation={
                "text": f"p{percent} {at:.1f} s",
                "font": {"color": color},
                # Labels lie towards the middle of the chart, so that their text is never cut off.
                "xanchor": "right" if at > longest / 2 else "left",
                "yanchor": "bottom",
                "y": height,
            },
        )
    chart.update_xaxes(title="seconds from commit to readable", range=[0, longest * 1.05 or 1])
    chart.update_yaxes(title="changes")
    return styled(chart, 300).update_layout(margin_t=48)


def _stages_chart(stages: Mapping[str, Mapping[str, float]]) -> go.Figure:
    """One bar per group of changes, with one part per stage."""
    chart = go.Figure()
    for stage in next(iter(stages.values())):
        seconds = [group[stage] for group in stages.values()]
        chart.add_bar(
            name=stage,
            x=seconds,
            y=list(stages),
            orientation="h",
            marker_color=_STAGES.get(stage, _OTHERS),
            text=[f"{each:.1f}" for each in seconds],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            hovertemplate=f"{stage}: %{{x:.2f}} s<extra></extra>",
        )
    chart.update_xaxes(title="seconds")
    chart.update_yaxes(autorange="reversed", showgrid=False, ticks="", ticksuffix="  ")
    return styled(chart, 250).update_layout(
        barmode="stack",
        bargap=0.4,
        showlegend=True,
        legend={"orientation": "h", "y": 1.4, "traceorder": "normal", "itemclick": False, "itemdoubleclick": False},
        uniformtext={"minsize": 9, "mode": "hide"},
    )


def _revenue_chart(customers: Sequence[CustomerRevenue]) -> go.Figure:
    shown, rest = customers[:PIE_CUSTOMERS], customers[PIE_CUSTOMERS:]
    names = [customer.company_name for customer in shown]
    labels = [customer.customer_id for customer in shown]
    revenues = [customer.revenue for customer in shown]
    colors = list(_PALETTE[: len(shown)])
    # Customers other than the largest ones share a slice.
    if rest:
        names.append(f"{len(rest)} other customers")
        labels.append("others")
        revenues.append(sum(customer.revenue for customer in rest))
        colors.append(_OTHERS)
    chart = go.Figure(
        go.Pie(
            labels=labels,
            values=revenues,
            text=names,
            sort=False,
            direction="clockwise",
            hole=0.45,
            textinfo="label+percent",
            textposition="inside",
            insidetextorientation="horizontal",
            marker={"colors": colors, "line": {"color": "white", "width": 1.5}},
            hovertemplate="<b>%{text}</b> (%{label})<br>%{value:,.2f} · %{percent}<extra></extra>",
        )
    )
    total = sum(revenues)
    chart.add_annotation(text=f"<b>{total:,.0f}</b><br>in total", showarrow=False, font={"size": 16})
    return styled(chart, 520).update_layout(
        showlegend=True,
        legend={"font": {"size": 12}, "itemclick": False, "itemdoubleclick": False},
        uniformtext={"minsize": 10, "mode": "hide"},
    )


def _customers_chart(customers: Sequence[CustomerRevenue]) -> go.Figure:
    most = max(customer.orders for customer in customers)
    right = _BEYOND * max(customer.average_quantity for customer in customers) or 1
    top = _BEYOND * max(customer.average_item_revenue for customer in customers) or 1
    dots = [
        Dot(
            customer.average_quantity / right,
            customer.average_item_revenue / top,
            max(_LARGEST_DOT * math.sqrt(customer.orders / most), _SMALLEST_DOT),
        )
        for customer in customers
    ]
    chart = go.Figure()
    # Dots with a name lie on top.
    for part, color in ((slice(_NAMED_DOTS, None), ACCENT), (slice(_NAMED_DOTS), WARM)):
        chart.add_scatter(
            x=[customer.average_quantity for customer in customers[part]],
            y=[customer.average_item_revenue for customer in customers[part]],
            mode="markers",
            customdata=[[customer.company_name, customer.orders, customer.revenue] for customer in customers[part]],
            marker={
                "size": [2 * dot.radius for dot in dots[part]],
                "color": color,
                "opacity": 0.6,
                "line": {"color": "white", "width": 1},
            },
            hovertemplate="<b>%{customdata[0]}</b><br>%{customdata[1]:,} orders, revenue %{customdata[2]:,.2f}<br>"
            "per item: quantity %{x:.1f}, revenue %{y:,.2f}<extra></extra>",
        )
    offsets = label_offsets(dots, [customer.customer_id for customer in customers[:_NAMED_DOTS]])
    for customer, dot, offset in zip(customers, dots, offsets, strict=False):
        if offset:
            chart.add_annotation(
                x=customer.average_quantity,
                y=customer.average_item_revenue,
                text=customer.customer_id,
                font={"size": 11, "color": INK},
                ax=offset[0],
                ay=-offset[1],
                arrowhead=0,
                arrowwidth=1,
                arrowcolor=MUTED,
                standoff=dot.radius,
            )
    # The labels' positions are computed for a plot of this height.
    margin = {"l": 64, "r": 12, "t": 12, "b": 52}
    styled(chart, PLOT_HEIGHT + margin["t"] + margin["b"]).update_layout(margin=margin)
    chart.update_xaxes(title="average quantity per item", range=[0, right], automargin=False)
    return chart.update_yaxes(title="average revenue per item", range=[0, top], automargin=False)
