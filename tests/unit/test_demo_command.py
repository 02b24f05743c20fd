"""``headwater demo`` as somebody calls it. The run itself is taken out: tests/local has it."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from headwater.cli import app
from headwater.contract.model import POSTGRESQL
from headwater.environment.model import SECTIONS
from headwater.lake_folder import EXAMPLE, LakeFolder
from rig.commands import demo
from rig.demo.sources import DemoPlan, Pace
from tests.lake_folders import lake_folder


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[DemoPlan]:
    """The plans that the command has run."""
    asked: list[DemoPlan] = []

    def run(folder: LakeFolder, plan: DemoPlan, *_: object) -> list[object]:
        asked.append(plan)
        return []

    monkeypatch.setattr("headwater.packaging.artifacts.build", lambda announce: None)
    monkeypatch.setattr(demo, "run", run)
    return asked


def test_the_demo_waits_as_the_file_of_an_environment_says(plans: list[DemoPlan]) -> None:
    assert CliRunner().invoke(app, ["demo", "--like", "prod"]).exit_code == 0
    assert CliRunner().invoke(app, ["demo"]).exit_code == 0
    assert [plan.pace for plan in plans] == [
        Pace(flush_ms=1000, idle_seconds_max=5, window_seconds=15),
        Pace(flush_ms=1000, idle_seconds_max=0.5, window_seconds=1),
    ]


def test_the_demo_waits_as_usual_where_a_file_lacks_a_source(plans: list[DemoPlan], tmp_path: Path) -> None:
    settings = yaml.safe_load((EXAMPLE.config / "prod.yaml").read_text())
    settings |= dict.fromkeys(SECTIONS[POSTGRESQL])
    folder = lake_folder(tmp_path / "lake", config=tmp_path)
    (folder.config / "prod.yaml").write_text(yaml.safe_dump(settings))
    done = CliRunner().invoke(app, ["demo", "--like", "prod", "--folder", str(folder.root)], catch_exceptions=False)
    assert done.exit_code == 0
    assert [plan.pace for plan in plans] == [replace(Pace(), window_seconds=15)]


def test_a_deployed_demo_waits_as_its_own_environment_says(plans: list[DemoPlan]) -> None:
    done = CliRunner().invoke(app, ["demo", "--like", "prod", "--deployed"])
    assert done.exit_code != 0
    assert plans == []
