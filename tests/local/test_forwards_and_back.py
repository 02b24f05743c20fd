"""A lake goes from the release before to this one and back under load, and no row is lost.

The release before runs from a checkout of its own, as its user has it. The local AWS stands in for AWS: one serves both
releases, and is that of this checkout.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headwater.contract.model import DYNAMODB, Contract, of_database
from headwater.contract.reading import read_contracts
from headwater.lake_folder import EXAMPLE
from headwater.paths import ROOT
from headwater.waiting import cpu_seconds, wait_until
from rig.demo import workloads
from rig.demo.workloads import SEED, LiveWorkload
from rig.local_aws import authority, logins
from rig.local_aws.daemon import Running
from rig.samples import dynamodb_tables
from rig.samples.loading import load_generated
from tests import deployment, programs
from tests.background import going_on
from tests.checkout import succeeded
from tests.local.test_lake_folder import git

BEFORE = "f9d066ceb959f0998e5eaf74962bd3e1673c9502"
"""The release before: the last commit of 0.2.0."""
PATIENCE_SECONDS = 1800
DATABASE = deployment.ORDERS_DATABASE
SCALE = 0.2
ROUND_SECONDS = 20.0
CHANGES_PER_SECOND = 10.0
LEFT = ("DELETE_FAILED", "ROLLBACK")


class Release:
    """A release's commands, run in a folder, and the local AWS ``aws`` to which it deploys the environment local."""

    def __init__(self, folder: Path, aws: Path) -> None:
        self.folder = folder
        self.account = aws / "account"

    def link(self) -> None:
        """Have the folder find the local AWS where its own would be."""
        (self.folder / "build").mkdir(exist_ok=True)
        (self.folder / "build" / "local_aws").symlink_to(self.account.parent)

    def run(self, *command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        known = {**programs.without_environment(), **variables}
        return programs.run(command, patience=PATIENCE_SECONDS, cwd=self.folder, env=known)

    def deploy(self) -> None:
        """Deploy the environment local."""
        raise NotImplementedError

    def verify(self) -> subprocess.CompletedProcess[str]:
        """Compare every row of the sources with the lake."""
        raise NotImplementedError


class Former(Release):
    """The release before, in a clone at its commit."""

    def deploy(self) -> None:
        said = succeeded(self.run("make", "deploy", "ENV=local"))
        assert not any(word in said for word in LEFT), said[-3000:]

    def verify(self) -> subprocess.CompletedProcess[str]:
        running = running_below(self.account)
        reader = logins.login(running.client, "reader")
        exports = running.client("cloudformation").list_exports()["Exports"]
        prefix = "headwater-local-lake:ExportsOutputRefLake"
        (bucket,) = [export["Value"] for export in exports if export["Name"].startswith(prefix)]
        return self.run(
            ".venv/bin/headwater",
            "verify",
            "--json",
            *("--lake", f"s3://{bucket}/lake"),
            *("--host", reader["host"], "--port", str(reader["port"]), "--user", reader["username"]),
            *("--dynamodb-table", "accounts=headwater-local-accounts"),
            *("--endpoint", running.environment["AWS_ENDPOINT_URL"]),
            **running.environment,
            HEADWATER_DB_PASSWORD=reader["password"],
        )


class Present(Release):
    """This checkout, with a lake folder."""

    def headwater(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = (sys.executable, "-m", "headwater.cli", *arguments)
        return self.run(*command, PYTHONPATH=str(ROOT))

    def deploy(self) -> None:
        said = succeeded(self.headwater("deploy", "--env", "local"))
        assert not any(word in said for word in LEFT), said[-3000:]
        assert "lake.format" not in said

    def verify(self) -> subprocess.CompletedProcess[str]:
        return self.headwater("verify", "--env", "local", "--json")


def running_below(account: Path) -> Running:
    running = Running.find(account)
    assert running is not None
    return running


@pytest.fixture
def aws(tmp_path: Path) -> Iterator[Path]:
    """The folder of a local AWS that runs."""
    folder = tmp_path / "aws"
    authority.of(folder / "account")
    running = Running.start(folder / "account")
    yield folder
    running.stop(folder / "account")


@pytest.fixture
def former(tmp_path: Path, aws: Path) -> Iterator[Former]:
    """The release before, set up as its README says."""
    release = Former(tmp_path / "before", aws)
    git(tmp_path, "clone", "--quiet", "--no-checkout", str(ROOT), str(release.folder))
    git(release.folder, "checkout", "--quiet", "--detach", BEFORE)
    release.link()
    succeeded(release.run("make", "assets"))
    yield release
    # With all that its set-up fetches, also if the test fails.
    shutil.rmtree(release.folder)


def items() -> list[Contract]:
    """The contracts of DynamoDB, with the tables that are deployed."""
    return [
        replace(contract, source=replace(contract.source, table=f"headwater-local-{contract.table}"))
        for contract in of_database(read_contracts(EXAMPLE.contracts), DYNAMODB)
    ]


def fill(aws: Path) -> None:
    """Load both sources."""
    running = running_below(aws / "account")
    with logins.connect(running.client, aws / "account", "owner", DATABASE) as owner:
        load_generated(owner, SCALE, SEED)
    for contract in items():
        dynamodb_tables.fill(running.client("dynamodb"), contract, SCALE, SEED)


@contextmanager
def load(aws: Path) -> Iterator[None]:
    """Change both sources until the block ends. The block ends only after each source has changed."""
    running = running_below(aws / "account")
    connect = partial(logins.connect, running.client, aws / "account", "app", DATABASE)
    live = [workloads.of_orders(connect), workloads.of_items(partial(running.client, "dynamodb"), items())]

    def change(workload: LiveWorkload[Any], stop: threading.Event) -> int:
        made = rounds = 0
        while not stop.is_set():
            plan = workload.plan(ROUND_SECONDS, CHANGES_PER_SECOND, SEED + rounds)
            made += workload.run(plan, lambda _: None, stop).counted()[0]
            rounds += 1
        return made

    def work(stop: threading.Event) -> None:
        with ThreadPoolExecutor(len(live)) as pool:
            made = list(pool.map(partial(change, stop=stop), live))
        assert min(made) > 0

    with going_on(work):
        yield


def await_every_row(release: Release) -> dict[str, int]:
    """Wait until the lake has every row of its sources as it is there, and return the number of each table's rows."""
    told: dict[str, Any] = {}

    def equal() -> bool:
        nonlocal told
        done = release.verify()
        assert done.returncode in (0, 1), done.stderr
        told = json.loads(done.stdout)
        return done.returncode == 0

    running = running_below(release.account)
    wait_until("the lake to equal its sources", equal, lambda: told, poll=2, work=partial(cpu_seconds, running.pid))
    return {table["name"]: table["source_rows"] for table in told["tables"]}


@pytest.mark.drill
def test_every_row_is_there_after_an_upgrade_and_the_way_back(tmp_path: Path, aws: Path, former: Former) -> None:
    former.deploy()
    fill(aws)
    first = await_every_row(former)
    assert all(first.values())

    present = Present(tmp_path / "lake", aws)
    with load(aws):
        own = Present(tmp_path, aws)
        succeeded(own.headwater("init", str(present.folder), "--from-checkout", str(former.folder)))
        present.link()
        present.deploy()
    upgraded = await_every_row(present)
    assert upgraded.keys() == first.keys()
    assert upgraded != first

    with load(aws):
        former.deploy()
    back = await_every_row(former)
    assert back.keys() == first.keys()
    log = (aws / "account" / "emulator" / "emulator.log").read_text()
    assert [line for line in log.splitlines() if "Refused: " in line] == []
    # The way there is open again.
    with load(aws):
        present.deploy()
    assert await_every_row(present).keys() == first.keys()
