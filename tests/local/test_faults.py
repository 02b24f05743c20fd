"""An operator with a broken part: `headwater status` names it and its runbook, alarms ring, and all is well once it is
mended. The operator does what the page says, or lets a stopped part go on, or restores a password or landing object."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.contract.model import DYNAMODB, of_database
from headwater.contract.reading import read_contracts
from headwater.lake_folder import EXAMPLE
from rig.local_aws.daemon import Running
from rig.samples import dynamodb_tables, orders
from rig.samples.loading import load_folder
from tests.checkout import Checkout, succeeded
from tests.deployment import Deployment
from tests.faults import CHANGES, CHANGES_FIRST, FAULTS, THRESHOLDS, Fault, sql

pytestmark = pytest.mark.drill

# A writer that says nothing is told of after ten minutes, and the alarm looks back for two more.
FOUND_SECONDS = 960
MENDED_SECONDS = 420
# What status tells for five minutes, though it is over.
OF_LAST_MINUTES = ("a change reached", "values of the last minutes")
# What an alarm of a period of five minutes looks back for.
SILENT_SECONDS = 1080


def state(deployment: Deployment) -> dict[str, Any]:
    """The output of status."""
    done = deployment.checkout.run_headwater("status", "--env", "local", "--json", **deployment.variables)
    assert done.returncode in (0, 1, 4), done.stdout + done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode == 0) == (said["state"] == "well")
    return said


def alarms(said: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Name, page and text of each alarm that rings."""
    return [(f"alarm {alarm['name']}", alarm["runbook"], alarm["text"]) for alarm in said["alarms"]]


def problems(said: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Part, page and text of each problem."""
    parts = [*said["parts"], *said["tables"]]
    return [(part["name"], each["runbook"], each["found"]) for part in parts for each in part["problems"]]


def present(said: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The problems without the ones that only say that rows were late or did not fit in the last minutes."""
    return [found for found in problems(said) if not any(text in found[2] for text in OF_LAST_MINUTES)]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    checkout = Checkout(tmp_path_factory.mktemp("checkout"))
    for name, value in THRESHOLDS.items():
        checkout.set_field(f"monitoring.{name}", str(value))
    try:
        succeeded(checkout.deploy())
        deployment = Deployment(checkout)
        fill(deployment, tmp_path_factory.mktemp("data"))
        yield deployment
        # Every alarm that a fault has set off is OK again.
        deployment.wait_until("no alarm to ring", lambda: state(deployment)["state"] == "well", SILENT_SECONDS)
        assert "ALARM" not in deployment.alarms().values()
    finally:
        left = Running.find(checkout.account)
        if left is not None:
            left.stop(checkout.account)


def fill(deployment: Deployment, folder: Path) -> None:
    """Load both sources."""
    orders.generate(1, 1, folder)
    with deployment.connect() as owner:
        load_folder(owner, folder, lambda *_: None)
    for contract in of_database(read_contracts(EXAMPLE.contracts), DYNAMODB):
        table = replace(contract, source=replace(contract.source, table=f"headwater-local-{contract.table}"))
        dynamodb_tables.fill(deployment.client("dynamodb"), table, 1, 1)
    deployment.await_equality()


@pytest.mark.parametrize("name", FAULTS)
def test_status_names_the_part_and_its_page_alarms_ring_and_all_is_well_again(
    deployment: Deployment, name: str
) -> None:
    fault = FAULTS[name]
    deployment.wait_until("all to be well", lambda: not present(state(deployment)), MENDED_SECONDS)
    # One that another fault has set off would not begin to ring.
    deployment.wait_until(
        "its alarms to be silent", lambda: fault.alarms.keys().isdisjoint(ringing(deployment)), SILENT_SECONDS
    )
    began = time.time()
    try:
        fault.bring(deployment)
        if name in CHANGES_FIRST:
            sql(deployment, *CHANGES)
        deployment.wait_until(f"status to tell of {fault.word}", lambda: tells_of(deployment, fault), FOUND_SECONDS)
        if fault.log is not None:
            part, text = fault.log
            deployment.wait_until(
                f"the log to tell of {text}", lambda: text in errors_of(deployment, part), FOUND_SECONDS
            )
        rang: dict[str, str] = {}
        deployment.wait_until(
            f"{', '.join(fault.alarms)} to ring, and to name the pages",
            lambda: fault.alarms.items() <= rung(deployment, fault, began, rang).items(),
            FOUND_SECONDS,
        )
    finally:
        fault.mend(deployment)
    deployment.wait_until("all to be well again", lambda: not present(state(deployment)), MENDED_SECONDS)
    # A table that failed rests before it begins anew.
    deployment.await_equality(900)


def ringing(deployment: Deployment) -> set[str]:
    """The alarms that ring now."""
    return {alarm["name"] for alarm in state(deployment)["alarms"]}


def tells_of(deployment: Deployment, fault: Fault) -> bool:
    fault.meanwhile(deployment)
    said = state(deployment)
    return any(
        (part, page) == (fault.part, fault.page) and fault.word in text
        for part, page, text in (*problems(said), *alarms(said))
    )


def rung(deployment: Deployment, fault: Fault, began: float, rang: dict[str, str]) -> dict[str, str]:
    """``rang`` with the alarms that ring and have begun to since then, each with the page that it names."""
    fault.meanwhile(deployment)
    rang |= {each["name"]: each["runbook"] for each in state(deployment)["alarms"] if each["since"] >= began}
    return rang


def errors_of(deployment: Deployment, part: str) -> str:
    """The errors of a part in `headwater logs`."""
    return succeeded(
        deployment.checkout.run_headwater("logs", part, "--env", "local", "--errors", **deployment.variables)
    )
