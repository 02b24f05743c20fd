"""The charts of QuickSight's analysis and dashboard: those of a run's report, from the same query.

Everything is in the form of QuickSight's API, which CloudFormation takes as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PIE_CUSTOMERS = 20
"""So many customers have a slice of their own; the others share one."""
REVENUE_COLUMNS: Mapping[str, str] = {
    "customer_id": "STRING",
    "company_name": "STRING",
    "orders": "INTEGER",
    "revenue": "DECIMAL",
    "average_item_revenue": "DECIMAL",
    "average_quantity": "DECIMAL",
}
"""The columns of ``named_queries.revenue_sql``, and their types in QuickSight."""
_DATA_SET = "revenue"


def charts(data_set_arn: str) -> dict[str, Any]:
    """The definition of an analysis or a dashboard: a sheet with the share that each customer has of the revenue, and
    each customer's average item by quantity and revenue."""
    return {
        "DataSetIdentifierDeclarations": [{"Identifier": _DATA_SET, "DataSetArn": data_set_arn}],
        "Sheets": [
            {
                "SheetId": "customers",
                "Name": "Customers",
                "Visuals": [{"PieChartVisual": _shares()}, {"ScatterPlotVisual": _items()}],
            }
        ],
    }


def _shares() -> dict[str, Any]:
    return {
        "VisualId": "shares",
        "Title": _title("Revenue by customer"),
        "ChartConfiguration": {
            "FieldWells": {
                "PieChartAggregatedFieldWells": {
                    "Category": [_dimension("shares-customer", "company_name")],
                    "Values": [_measure("shares-revenue", "revenue", "SUM")],
                }
            },
            "SortConfiguration": {
                "CategorySort": [{"FieldSort": {"FieldId": "shares-revenue", "Direction": "DESC"}}],
                "CategoryItemsLimit": {"ItemsLimit": PIE_CUSTOMERS, "OtherCategories": "INCLUDE"},
            },
            "DonutOptions": {"ArcOptions": {"ArcThickness": "MEDIUM"}},
        },
    }


def _items() -> dict[str, Any]:
    # The query has one row a customer: whatever aggregates it gives its values.
    return {
        "VisualId": "items",
        "Title": _title("A customer's average item: quantity and revenue"),
        "ChartConfiguration": {
            "FieldWells": {
                "ScatterPlotCategoricallyAggregatedFieldWells": {
                    "XAxis": [_measure("items-quantity", "average_quantity", "AVERAGE")],
                    "YAxis": [_measure("items-revenue", "average_item_revenue", "AVERAGE")],
                    "Category": [_dimension("items-customer", "customer_id")],
                    "Size": [_measure("items-orders", "orders", "SUM")],
                }
            },
            "XAxisLabelOptions": _axis("average quantity per item"),
            "YAxisLabelOptions": _axis("average revenue per item"),
            "Legend": {"Visibility": "HIDDEN"},
        },
    }


def _title(text: str) -> dict[str, Any]:
    return {"Visibility": "VISIBLE", "FormatText": {"PlainText": text}}


def _axis(label: str) -> dict[str, Any]:
    return {"AxisLabelOptions": [{"CustomLabel": label}]}


def _dimension(field: str, column: str) -> dict[str, Any]:
    return {"CategoricalDimensionField": {"FieldId": field, "Column": _column(column)}}


def _measure(field: str, column: str, aggregation: str) -> dict[str, Any]:
    function = {"SimpleNumericalAggregation": aggregation}
    return {"NumericalMeasureField": {"FieldId": field, "Column": _column(column), "AggregationFunction": function}}


def _column(name: str) -> dict[str, str]:
    return {"DataSetIdentifier": _DATA_SET, "ColumnName": name}
