"""What an upgrade from releases 0.1.0 and 0.2.0 changes in the stacks: no more than the releases themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest

from headwater.commands.diff import comparison, show_difference
from headwater.contract.reading import read_contracts
from headwater.conversion.checkouts import FormerCheckout
from headwater.definitions.lake_content import read_content
from headwater.environment.rules import read_environment
from headwater.lake_folder import LakeFolder
from headwater.review import baselines, policies, reachability, replacements, rights
from headwater.review.replacements import Loss, Specification
from headwater.review.templates import Deployment
from stacks.assets import Assets
from tests.former_releases import FIRST, SECOND, former_checkout
from tests.synth.conftest import Synthesized

NEW_OUTPUTS = {"database": {"Port"}, "lake": {"LakeFormat"}}
"""By stack: the outputs that release 0.2.0 did not have."""
UPDATED_IN_PLACE = {
    ("AWS::CloudWatch::Alarm", "AlarmDescription"),
    ("AWS::CloudWatch::Dashboard", "DashboardBody"),
    ("AWS::Events::Rule", "Description"),
    ("AWS::Events::Rule", "Targets"),
    ("AWS::KMS::Key", "Description"),
    ("AWS::SecretsManager::Secret", "Description"),
    ("Custom::HeadwaterConnector", "Connector"),
}
"""Type and property of the resources that differ from release 0.2.0's. Each is updated without a replacement."""


class Upgraded:
    """dev of a former release: its baselines, and the stacks that its converted files make."""

    def __init__(self, release: str, place: Path, app: cdk.App, assets: Assets) -> None:
        checkout = FormerCheckout(former_checkout(release, place / "former"))
        self.folder = LakeFolder(place / "lake")
        for path, text in checkout.files(self.folder.root).items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        contracts = read_contracts(self.folder.contracts)
        content = read_content(self.folder.database, self.folder.queries, contracts)
        settings = read_environment("dev", self.folder.config)
        self.synthesized = Synthesized(app, settings, contracts, assets, content)
        self.assembly = self.synthesized.assembly
        self.before = baselines.read(self.folder.baselines / "dev")
        self.after = baselines.from_assembly(self.assembly)

    def losses(self) -> list[Loss]:
        return list(replacements.losses("dev", self.before, self.after, Specification()))


@pytest.fixture(scope="module")
def upgraded(
    tmp_path_factory: pytest.TempPathFactory, new_app: Callable[[], cdk.App], assets: Assets
) -> Callable[[str], Upgraded]:
    done: dict[str, Upgraded] = {}

    def upgraded(release: str) -> Upgraded:
        if release not in done:
            done[release] = Upgraded(release, tmp_path_factory.mktemp("upgraded"), new_app(), assets)
        return done[release]

    return upgraded


def _changed(before: dict[str, Any], after: dict[str, Any]) -> set[tuple[str, str]]:
    """The type and the property of each difference between the resources of two templates."""
    assert {name: each["Type"] for name, each in after.items()} == {name: each["Type"] for name, each in before.items()}
    return {
        (each["Type"], name)
        for resource, each in after.items()
        for name in each.get("Properties", {}).keys() | before[resource].get("Properties", {}).keys()
        if each.get("Properties", {}).get(name) != before[resource].get("Properties", {}).get(name)
    }


def test_after_the_second_release_no_resource_is_replaced(upgraded: Callable[[str], Upgraded]) -> None:
    dev = upgraded(SECOND)
    assert dev.losses() == []
    assert dev.before.keys() == dev.after.keys()
    found: set[tuple[str, str]] = set()
    for part, template in dev.after.items():
        before: dict[str, Any] = dev.before[part]
        found |= _changed(before["Resources"], template["Resources"])
        tags = {**before["Metadata"]["Stack"]["Tags"], "lake": "example"}
        assert template["Metadata"]["Stack"] == {**before["Metadata"]["Stack"], "Tags": tags}
        new = template.get("Outputs", {}).keys() - before.get("Outputs", {}).keys()
        assert new == NEW_OUTPUTS.get(part, set())
    assert found == UPDATED_IN_PLACE


def test_the_difference_from_former_baselines_names_no_field(
    upgraded: Callable[[str], Upgraded], capsys: pytest.CaptureFixture[str]
) -> None:
    dev = upgraded(SECOND)
    if not dev.folder.synthesized.exists():
        dev.folder.synthesized.symlink_to(dev.assembly)
    show_difference(dev.folder, dev.synthesized.environment)
    said = capsys.readouterr().out
    assert said.startswith("dev:\n  resources with data that are replaced, deleted or left behind: none\n")
    assert f"  besides: Outputs of 2 stacks, Tags of {len(dev.after)} stacks\n" in said
    assert "  its baselines have no fields to compare\n" in said
    assert "fields:" not in said
    assert "The environment changes" not in said
    assert said.count("Stack ") >= len(dev.after)
    assert "[+] Output Port" in said


def test_after_the_first_release_only_logs_topics_and_nodes_go(upgraded: Callable[[str], Upgraded]) -> None:
    lost = {(loss.stack, loss.type) for loss in upgraded(FIRST).losses()}
    logs = {(stack, "AWS::Logs::LogGroup") for stack in ("connect", "database", "emr", "stream")}
    assert lost == {*logs, ("emr", "AWS::EMR::Cluster"), ("stream", "AWS::MSK::Topic")}


@pytest.mark.parametrize("release", [FIRST, SECOND])
def test_the_summary_fits_three_times_on_a_screen(upgraded: Callable[[str], Upgraded], release: str) -> None:
    dev = upgraded(release)
    if not dev.folder.synthesized.exists():
        dev.folder.synthesized.symlink_to(dev.assembly)
    lines = comparison(dev.folder, dev.synthesized.environment).summary()
    assert len(lines) <= 16, lines
    said = "\n".join(lines)
    for loss in dev.losses():
        assert f"{loss.stack}: " in said
        assert loss.type in said


@pytest.mark.parametrize("release", [FIRST, SECOND])
def test_flows_and_rights_are_those_that_are_needed(upgraded: Callable[[str], Upgraded], release: str) -> None:
    deployment = Deployment.read(upgraded(release).assembly, "dev")
    declared = reachability.declarations()
    findings = reachability.findings(reachability.Network(deployment, declared.names), declared)
    granted = policies.read(deployment)
    for principal in policies.needed_by(deployment, rights.read_principals()):
        findings += policies.judge(deployment, granted, principal).missing
    assert findings == []
