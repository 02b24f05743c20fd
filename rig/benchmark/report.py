"""The page and the figures of a benchmark run."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import psutil

from rig import pages
from rig.benchmark import commits
from rig.benchmark.commits import Measured, Scale
from rig.benchmark.decoding import DecoderFigures
from rig.benchmark.pipeline import Figures

_TEMPLATE = Path(__file__).with_name("report.html.j2")


@dataclass(frozen=True)
class Run:
    """The figures of one run on one machine."""

    commits: Sequence[Measured]
    decoding: Sequence[DecoderFigures]
    pipeline: Figures | None
    """The pipeline's figures; None if the run left the pipeline out."""
    loop_seconds: float
    """The seconds of the fixed loop on this machine."""

    @property
    def scales(self) -> list[Scale]:
        """The scales at which commits were measured."""
        return list(dict.fromkeys(measured.scale for measured in self.commits))

    def at(self, scale: Scale) -> list[Measured]:
        """The figures of every system at one scale."""
        return [measured for measured in self.commits if measured.scale == scale]


def build(folder: Path, run: Run) -> None:
    """Write ``report.html`` and ``report.json`` into a folder, which is created if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    page = pages.render(
        _TEMPLATE,
        _charts(run),
        run=run,
        ours=commits.OURS[0].system,
        ratios={measured: commits.ratio(measured, run.commits) for measured in run.commits},
        warming=commits.WARMING,
        commits_a_month=commits.commits_a_month(),
        cores=psutil.cpu_count(),
        machine=platform.machine(),
    )
    (folder / "report.html").write_text(page, encoding="utf-8")
    (folder / "report.json").write_text(json.dumps(_document(run), indent=1) + "\n")


def _document(run: Run) -> dict[str, Any]:
    return {
        "commits": [
            {**measured.document(), "times_headwater": round(commits.ratio(measured, run.commits), 2)}
            for measured in run.commits
        ],
        "decoding": [asdict(figures) for figures in run.decoding],
        "pipeline": asdict(run.pipeline) if run.pipeline else None,
        "loop_seconds": round(run.loop_seconds, 2),
    }


def _charts(run: Run) -> dict[str, go.Figure | None]:
    charts: dict[str, go.Figure | None] = {}
    for scale in run.scales:
        measured = run.at(scale)
        charts[f"medians-{scale.rows}"] = pages.bars(
            {each.system: each.median for each in measured}, " s", pages.ACCENT
        )
        charts[f"memory-{scale.rows}"] = pages.bars(
            {each.system: each.peak_memory_bytes / 2**20 for each in measured}, " MiB", pages.WARM
        )
        charts[f"commits-{scale.rows}"] = _commits_chart(measured)
    return charts


def _commits_chart(measured: Sequence[Measured]) -> go.Figure:
    """The seconds of each commit, one after the other."""
    chart = go.Figure(
        [
            go.Scatter(
                y=each.commit_seconds,
                name=each.system,
                mode="lines",
                hovertemplate="%{y:.2f} s<extra>" + each.system + "</extra>",
            )
            for each in measured
        ]
    )
    chart.update_xaxes(title="commit")
    chart.update_yaxes(title="seconds", type="log", dtick="D2")
    return pages.styled(chart, 420).update_layout(showlegend=True, legend={"orientation": "h", "y": -0.2})
