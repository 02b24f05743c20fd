"""The demo as its user lives it, who also ends it before its time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from headwater.lake_folder import EXAMPLE
from headwater.paths import BUILD, ROOT
from headwater.waiting import wait_until

pytestmark = pytest.mark.drill

# By what it has said last, how somebody ends it: while it deploys, while it waits for rows, while it deploys an update.
ENDED = {
    "Starting a local AWS … done": signal.SIGINT,
    "Loading the order database and DynamoDB … done": signal.SIGTERM,
    "Deploying an update under load": signal.SIGKILL,
}


@contextmanager
def demo(*options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "headwater.cli", "demo", "--deployed", *options]
    path = f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    # Of a shell's job in the background it would inherit that Ctrl-C is ignored.
    ignored = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, ignored)
    with process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    return iter(process.stdout)


def left() -> list[str]:
    """The programs of the demo that still run."""
    found = []
    for program in psutil.process_iter(["cmdline", "cwd"]):
        told = f"{program.info['cwd']} {' '.join(program.info['cmdline'] or [])}"
        if str(EXAMPLE.run / "demo") in told:
            found.append(told)
    return found


@pytest.mark.parametrize("moment", ENDED)
def test_a_demo_that_is_ended_leaves_nothing_that_runs(moment: str) -> None:
    with demo() as process:
        assert any(moment in line for line in said(process))
        time.sleep(15)
        assert left()
        process.send_signal(ENDED[moment])
        wait_until("the demo to end", lambda: process.poll() is not None)
    wait_until("nothing to run", lambda: not left())


def test_the_lake_equals_its_sources_after_an_update_under_load() -> None:
    with demo("--seconds", "20", "--scale", "0.2") as process:
        lines = [line.strip() for line in said(process)]
        assert process.wait() == 0, "\n".join(lines)
    assert lines[-1] == "The lake equals its sources."
    assert left() == []
    report = json.loads((BUILD / "demo" / "report.json").read_text())
    assert {table["name"] for table in report["tables"]} == {"accounts", "customers", "orders", "products"}
    assert all(table["source_rows"] == table["lake_rows"] > 0 for table in report["tables"])
    # What was written when connectors and writers were replaced waited for it.
    assert report["update_under_load"]["worst_freshness"] > 5
    assert report["workloads"]["relational"]["seconds"] > report["update_under_load"]["seconds"]
    assert set(report["memory_bytes"]) >= {"PostgreSQL", "Kafka", "Kafka Connect", "S3", "DynamoDB"}
