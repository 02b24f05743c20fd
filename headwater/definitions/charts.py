"""The charts of a lake folder, ``queries/charts.yaml``, which QuickSight's analysis and dashboard show.

``definition`` returns them in the form of QuickSight's API, which CloudFormation takes unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from headwater.definitions.saved_queries import SavedQuery
from headwater.yaml_files import convert, either, read_yaml, refusal

FILE = "charts.yaml"
"""The name of the file in ``queries/``."""
TYPES = ("string", "integer", "decimal", "datetime", "boolean")
"""The QuickSight types that a query's columns may have."""
_Text = Annotated[str, Meta(min_length=1, max_length=128, extra={"expected": "a text of 128 letters at most"})]


class Data(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A saved query as QuickSight shows it."""

    query: str
    """The query's name."""
    title: _Text
    """The name in QuickSight."""
    columns: dict[str, str]
    """The QuickSight type of each column, one of ``TYPES``, in the order of the query's columns."""


class Axis(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An axis of a scatter plot."""

    column: str
    """The column whose average is a point's position on the axis."""
    label: _Text
    """The text at the axis."""


class Pie(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="pie"):
    """A pie with a slice for each value of a column."""

    title: _Text
    """The chart's title."""
    query: str
    """The name of the query with the chart's data."""
    slice: str
    """The column whose values have slices."""
    size: str
    """The column whose sum is a slice's size."""
    slices: Annotated[int, Meta(ge=1, le=100)]
    """How many values have a slice of their own. All other values share one slice."""

    @property
    def used(self) -> dict[str, str]:
        """The chart's columns, by the fields of the file that name them."""
        return {"slice": self.slice, "size": self.size}


class Scatter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="scatter"):
    """A scatter plot with a point for each value of a column."""

    title: _Text
    """The chart's title."""
    query: str
    """The name of the query with the chart's data."""
    point: str
    """The column whose values have points."""
    x: Axis
    """The horizontal axis."""
    y: Axis
    """The vertical axis."""
    size: str
    """The column whose sum is a point's size."""

    @property
    def used(self) -> dict[str, str]:
        """The chart's columns, by the fields of the file that name them."""
        return {"point": self.point, "x.column": self.x.column, "y.column": self.y.column, "size": self.size}


class Charts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sheet of charts, and the queries that they show."""

    sheet: _Text
    """The sheet's name."""
    data: Annotated[tuple[Data, ...], Meta(min_length=1, extra={"expected": "one query at least"})]
    """The queries that the charts use."""
    charts: Annotated[tuple[Pie | Scatter, ...], Meta(min_length=1, extra={"expected": "one chart at least"})]
    """The charts of the sheet, in their order."""


def read_charts(folder: Path, queries: Sequence[SavedQuery]) -> Charts | None:
    """Return the charts in a folder of saved queries; None if the folder has no charts. Raises UserError."""
    path = folder / FILE
    if not path.is_file():
        return None
    charts = convert(read_yaml(path), Charts, str(path))
    # Check that the file names existing queries, and that the charts name columns of these.
    names = [query.name for query in queries]
    for index, data in enumerate(charts.data):
        if data.query not in names:
            raise refusal(str(path), f"data[{index}].query", data.query, _one_of(names, "a saved query in this folder"))
        if data.query in [other.query for other in charts.data[:index]]:
            raise refusal(str(path), f"data[{index}].query", data.query, "each query once")
        for name, kind in data.columns.items():
            if kind not in TYPES:
                raise refusal(str(path), f"data[{index}].columns.{name}", kind, either(TYPES))
    columns = {data.query: data.columns for data in charts.data}
    for index, chart in enumerate(charts.charts):
        if chart.query not in columns:
            raise refusal(str(path), f"charts[{index}].query", chart.query, either(columns))
        for field, column in chart.used.items():
            if column not in columns[chart.query]:
                raise refusal(str(path), f"charts[{index}].{field}", column, either(columns[chart.query]))
    return charts


def _one_of(names: Sequence[str], otherwise: str) -> str:
    return either(names) if names else otherwise


def definition(charts: Charts, arns: Mapping[str, str]) -> dict[str, Any]:
    """Return the definition of an analysis or a dashboard with the charts.

    ``arns`` has the ARN of each query's data set.
    """
    visuals = [
        _pie(f"pie-{number}", chart) if isinstance(chart, Pie) else _scatter(f"scatter-{number}", chart)
        for number, chart in enumerate(charts.charts, start=1)
    ]
    return {
        "DataSetIdentifierDeclarations": [
            {"Identifier": data.query, "DataSetArn": arns[data.query]} for data in charts.data
        ],
        "Sheets": [{"SheetId": "charts", "Name": charts.sheet, "Visuals": visuals}],
    }


def _pie(id_: str, chart: Pie) -> dict[str, Any]:
    size = _measure(id_, chart.query, chart.size, "SUM")
    return {
        "PieChartVisual": {
            "VisualId": id_,
            "Title": _title(chart.title),
            "ChartConfiguration": {
                "FieldWells": {
                    "PieChartAggregatedFieldWells": {
                        "Category": [_dimension(id_, chart.query, chart.slice)],
                        "Values": [size],
                    }
                },
                "SortConfiguration": {
                    "CategorySort": [{"FieldSort": {"FieldId": f"{id_}-{chart.size}", "Direction": "DESC"}}],
                    "CategoryItemsLimit": {"ItemsLimit": chart.slices, "OtherCategories": "INCLUDE"},
                },
                "DonutOptions": {"ArcOptions": {"ArcThickness": "MEDIUM"}},
            },
        }
    }


def _scatter(id_: str, chart: Scatter) -> dict[str, Any]:
    return {
        "ScatterPlotVisual": {
            "VisualId": id_,
            "Title": _title(chart.title),
            "ChartConfiguration": {
                "FieldWells": {
                    "ScatterPlotCategoricallyAggregatedFieldWells": {
                        "XAxis": [_measure(id_, chart.query, chart.x.column, "AVERAGE")],
                        "YAxis": [_measure(id_, chart.query, chart.y.column, "AVERAGE")],
                        "Category": [_dimension(id_, chart.query, chart.point)],
                        "Size": [_measure(id_, chart.query, chart.size, "SUM")],
                    }
                },
                "XAxisLabelOptions": _axis(chart.x.label),
                "YAxisLabelOptions": _axis(chart.y.label),
                "Legend": {"Visibility": "HIDDEN"},
            },
        }
    }


def _title(text: str) -> dict[str, Any]:
    return {"Visibility": "VISIBLE", "FormatText": {"PlainText": text}}


def _axis(label: str) -> dict[str, Any]:
    return {"AxisLabelOptions": [{"CustomLabel": label}]}


def _dimension(id_: str, query: str, column: str) -> dict[str, Any]:
    return {"CategoricalDimensionField": {"FieldId": f"{id_}-{column}", "Column": _column(query, column)}}


def _measure(id_: str, query: str, column: str, aggregation: str) -> dict[str, Any]:
    function = {"SimpleNumericalAggregation": aggregation}
    return {
        "NumericalMeasureField": {
            "FieldId": f"{id_}-{column}",
            "Column": _column(query, column),
            "AggregationFunction": function,
        }
    }


def _column(query: str, name: str) -> dict[str, str]:
    return {"DataSetIdentifier": query, "ColumnName": name}
