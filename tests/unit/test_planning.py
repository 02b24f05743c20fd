"""What ``headwater simulate`` is given, by measured unit costs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from headwater.benchmark import planning
from headwater.cli import app
from headwater.demo.cores import taken_beside
from headwater.errors import UserError
from headwater.paths import ROOT
from headwater.yaml_files import read_yaml

BURST = {"12.3": 800}
RUNS = Path(__file__).with_name("demo_runs")


def report(others: float) -> dict[str, Any]:
    return {
        "arrivals_by_pipeline": {"relational": {"orders": BURST, "customers": {"0.0": 1}, "products": {}}},
        "cores": {"machine": 2, "others": others},
        "workloads": {"relational": {"seconds": 20.0}},
        "freshness_seconds_by_pipeline": {"relational": {"p50": 1.25, "p95": 2.5}},
    }


def test_a_run_is_simulated_with_its_arrivals_and_the_cores_that_others_took() -> None:
    idle, busy = (planning.replayed(report(others)) for others in (0.0, 1.9))
    assert sum(changes for _, changes in idle.freshness) == 801
    assert busy.percentile(50) > idle.percentile(50)
    assert busy.cores_used > 0.8 > idle.cores_used
    # Readers look every half second.
    assert (idle.percentile(50) + 12.3) % 0.5 == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("rate", [1, 20, 40])
def test_the_page_on_scaling_holds_the_simulation_against_measured_runs(rate: int) -> None:
    run = json.loads((RUNS / f"rate_{rate}.json").read_text())
    of_table = run["arrivals_by_pipeline"]["relational"].values()
    outcome, measured = planning.replayed(run), run["freshness_seconds_by_pipeline"]["relational"]
    told = [
        f"{sum(number for arrivals in of_table for number in arrivals.values()):,}",
        f"{run['cores']['others']:.2f}",
    ]
    for percent in (50, 95):
        simulated = outcome.percentile(percent)
        told += [f"{measured[f'p{percent}']:.1f} s", f"{simulated:.1f} s"]
        assert measured[f"p{percent}"] / 2 < simulated < measured[f"p{percent}"]
    rows = [line.strip("| ").split(" | ") for line in (ROOT / "docs" / "scaling.md").read_text().splitlines()]
    (row,) = (row for row in rows if len(row) == len(told) + 1 and row[0].partition(",")[0] == str(rate))
    assert row[1:] == told


def test_each_unit_cost_says_where_it_is_from() -> None:
    document = read_yaml(planning.UNIT_COSTS)
    assert all(cost["source"] for kind in ("costs", "changes") for cost in document[kind].values())


def test_the_command_shows_what_was_measured_beside_what_is_simulated(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report(0.5)))
    arguments = ["simulate", "--report", str(path)]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    lines = [line.replace("│", " ").split() for line in shown.stdout.splitlines()]
    assert ["measured", "1.2", "2.5"] in lines
    assert [len(line) for line in lines if line[:1] == ["simulated"]] == [7]


@pytest.mark.parametrize("text", ["", "[]", json.dumps({"cores": None})])
def test_a_file_that_is_no_report_of_the_demo_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    arguments = ["simulate", "--report", str(path)]
    refused = CliRunner().invoke(app, arguments)
    assert isinstance(refused.exception, UserError)
    assert "expected a report.json of `headwater demo`" in str(refused.exception)


def test_the_cores_of_others_are_all_that_are_taken_but_a_programs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((100.0, 110.0))
    machine = iter((50.0, 65.0))
    own = iter((7.0, 12.0))

    class Program:
        def __init__(self, pid: int) -> None:
            assert pid == 7

        def children(self, *, recursive: bool) -> list[Program]:
            return []

        def cpu_times(self) -> SimpleNamespace:
            return SimpleNamespace(user=next(own), system=1.0)

    monkeypatch.setattr("headwater.demo.cores.time.monotonic", lambda: next(clock))
    monkeypatch.setattr(psutil, "cpu_times", lambda: SimpleNamespace(user=next(machine), idle=1e6, iowait=1e6))
    monkeypatch.setattr(psutil, "Process", Program)
    with taken_beside(7) as cores:
        pass
    # 15 seconds of all, of which 5 are the program's, in 10.
    assert cores.others == pytest.approx(1.0)


def test_a_program_that_ends_meanwhile_ends_no_measurement() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with taken_beside(child.pid) as cores:
        child.communicate(b"\n")
    assert cores.others == 0.0
