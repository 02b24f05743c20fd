"""An operator deploys the templates of stage and prod to a local AWS without programs of the data plane, and cannot
destroy them."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.environment.rules import read_environment
from headwater.lake_folder import EXAMPLE
from rig.local_aws.account import LocalAccount
from tests.checkout import Checkout, succeeded

pytestmark = pytest.mark.drill

PARTS = 12


@pytest.mark.parametrize("name", ["stage", "prod"])
def test_all_stacks_are_made_then_protected_and_are_not_destroyed(name: str, tmp_path: Path) -> None:
    environment = read_environment(name, EXAMPLE.config)
    assert environment.account is not None
    checkout = Checkout(tmp_path / "checkout")
    checkout.synthesize(name)
    with LocalAccount(tmp_path / "account", account=environment.account, idle=True) as account:
        account.start()
        variables = account.environment()
        succeeded(checkout.run_cdk(name, "bootstrap", f"aws://{environment.account}/{environment.region}", **variables))
        status, said = checkout.confirm("deploy", "--env", name, **variables)
        assert status == 0, said[-3000:]
        listed = account.client("cloudformation").describe_stacks()["Stacks"]
        stacks = {stack["StackName"]: stack for stack in listed if stack["StackName"] != "CDKToolkit"}
        assert len(stacks) == PARTS
        assert {stack["StackStatus"] for stack in stacks.values()} <= {"CREATE_COMPLETE", "UPDATE_COMPLETE"}
        assert all(stack["EnableTerminationProtection"] for stack in stacks.values())

        status, said = checkout.confirm("destroy", "--env", name, **variables)
        assert status == 1
        assert "TerminationProtection is enabled" in said
        listed = account.client("cloudformation").describe_stacks()["Stacks"]
        assert {stack["StackName"] for stack in listed} >= stacks.keys()
