"""A run of tests that starts more than its suite may start fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.paths import ROOT
from tests.heavy_starts import KINDS

TESTS = """
import sys
import pytest
from rig.local.processes import Process, Program


@pytest.mark.parametrize("number", range(4))
def test_one(number, tmp_path):
    with Process(Program("PostgreSQL", [sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "log")):
        pass
"""


@pytest.mark.parametrize("most", [4, 3])
def test_a_suite_fails_that_starts_more_than_it_may(tmp_path: Path, most: int) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "most.toml").write_text(f"[quick]\nPostgreSQL = {most}\n")
    # As tests/conftest.py does, with another list.
    (tmp_path / "conftest.py").write_text(
        "from pathlib import Path\nfrom tests import heavy_starts\n"
        "heavy_starts._MOST = Path(__file__).with_name('most.toml')\npytest_plugins = ['tests.heavy_starts']\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--most-starts", "quick", "-p", "no:cacheprovider", "."]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "PostgreSQL 4" in run.stdout, run.stdout + run.stderr
    assert ("PostgreSQL: 4 starts, at most 3" in run.stdout) == (most == 3)
    assert run.returncode == (1 if most == 3 else 0)


def test_each_counted_process_has_the_name_that_it_is_counted_by() -> None:
    code = "".join(path.read_text() for path in (ROOT / "rig" / "local").glob("*.py"))
    assert [name for name in KINDS if f'"{name}"' not in code] == []
