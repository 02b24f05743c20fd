"""The common parts of the HTML reports: a self-contained page, and the style of its charts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

INK = "#1d2b36"
MUTED = "#5d6f7c"
GRID = "#e3e9ed"
ACCENT = "#0b6e8f"
WARM = "#d1752c"


def render(template: Path, charts: Mapping[str, go.Figure | None], **values: Any) -> str:
    """Render a template that extends ``page.html.j2``.

    A chart's place is the element ``chart-NAME``; a chart that is None has no place.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([template.parent, Path(__file__).parent]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template.name).render(
        plotly=get_plotlyjs(),
        charts={name: _json(chart) for name, chart in charts.items() if chart is not None},
        **values,
    )


def _json(chart: go.Figure) -> str:
    # The text </script> inside a script element would end it.
    return str(chart.to_json()).replace("<", "\\u003c")


def styled(chart: go.Figure, height: int) -> go.Figure:
    """The chart in the pages' colours, with a height in pixels."""
    chart.update_layout(
        template="none",
        height=height,
        font={"family": "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif", "size": 13, "color": INK},
        margin={"l": 12, "r": 12, "t": 12, "b": 12},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        hoverlabel={"bgcolor": "white", "bordercolor": GRID, "font": {"color": INK}},
        showlegend=False,
    )
    chart.update_xaxes(gridcolor=GRID, zeroline=False, automargin=True, title_font_color=MUTED, tickcolor=GRID)
    chart.update_yaxes(gridcolor=GRID, zeroline=False, automargin=True, title_font_color=MUTED, tickcolor=GRID)
    return chart


def bars(values: Mapping[str, float], unit: str, color: str) -> go.Figure | None:
    """Horizontal bars in the order given, each with its value; None if there are no values."""
    if not values:
        return None
    digits = ",.1f" if unit == " s" else ",.0f"
    chart = go.Figure(
        go.Bar(
            x=list(values.values()),
            y=list(values),
            orientation="h",
            marker_color=color,
            text=[f"{value:{digits}}{unit}" for value in values.values()],
            textposition="outside",
            cliponaxis=False,
            hoverinfo="skip",
        )
    )
    chart.update_xaxes(visible=False, range=[0, max(values.values()) * 1.3 or 1])
    chart.update_yaxes(autorange="reversed", showgrid=False, ticks="", ticksuffix="  ")
    return styled(chart, 24 * len(values) + 40).update_layout(bargap=0.35)
