"""An environment can be updated from what it is to what it becomes: no stack needs what an earlier one gives up."""

import json
from collections.abc import Callable
from dataclasses import replace

import aws_cdk as cdk
import msgspec
import pytest

from headwater.contract.model import DYNAMODB, POSTGRESQL, Contract, of_database
from headwater.environment.rules import read_environment
from headwater.lake_folder import EXAMPLE
from stacks.assets import Assets
from tests.synth.changed_settings import changed_environment
from tests.synth.conftest import Synthesized
from tests.synth.deployed import Templates, templates
from tests.synth.updates import refusals


@pytest.fixture(scope="module")
def more(contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App]) -> Templates:
    """dev with one more contract of each source."""
    added = [_copy(of_database(contracts, database)[-1]) for database in (DYNAMODB, POSTGRESQL)]
    settings = read_environment("dev", EXAMPLE.config)
    return templates(Synthesized(new_app(), settings, [*contracts, *added], assets))


def _copy(contract: Contract) -> Contract:
    source = replace(contract.source, table=f"{contract.source.table}2")
    return replace(contract, table=f"{contract.table}2", source=source)


def test_a_contract_of_each_source_can_be_added(dev: Synthesized, more: Templates) -> None:
    assert refusals(templates(dev), more) == []


def test_a_contract_of_each_source_can_be_removed(dev: Synthesized, more: Templates) -> None:
    assert refusals(more, templates(dev)) == []


def test_the_last_contract_of_dynamodb_can_be_removed_and_added_again(
    dev: Synthesized, contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App]
) -> None:
    relational = of_database(contracts, POSTGRESQL)
    without = templates(Synthesized(new_app(), read_environment("dev", EXAMPLE.config), relational, assets))
    assert refusals(templates(dev), without) == []
    assert refusals(without, templates(dev)) == []
    (dashboard,) = [
        resource["Properties"]["DashboardBody"]
        for template in without.values()
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::CloudWatch::Dashboard"
    ]
    # CloudWatch refuses a dashboard that has a graph without metrics.
    body = "".join(part if isinstance(part, str) else "x" for part in dashboard["Fn::Join"][1])
    graphs = [widget["properties"] for widget in json.loads(body)["widgets"] if widget["type"] == "metric"]
    assert len(graphs) > 3
    assert [graph["title"] for graph in graphs if not graph.get("metrics")] == []


def test_settings_can_be_changed_and_changed_back(
    dev: Synthesized, contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App]
) -> None:
    changed = templates(
        Synthesized(new_app(), changed_environment(read_environment("dev", EXAMPLE.config)), contracts, assets)
    )
    assert refusals(templates(dev), changed) == []
    assert refusals(changed, templates(dev)) == []


def test_the_web_interfaces_can_be_closed_again(
    existing: Synthesized, contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App]
) -> None:
    """No other stack imports the bastion's group there."""
    settings = existing.environment
    open_ = msgspec.structs.replace(settings, emr=msgspec.structs.replace(settings.postgresql.emr, web_interfaces=True))
    assert refusals(templates(Synthesized(new_app(), open_, contracts, assets)), templates(existing)) == []


def test_an_export_that_goes_while_it_is_imported_is_found() -> None:
    exporting = {"Outputs": {"A": {"Value": {"Ref": "Topic"}, "Export": {"Name": "topic"}}}}
    importing = {"Resources": {"Policy": {"Properties": {"Resource": {"Fn::ImportValue": "topic"}}}}}
    before: Templates = {"stream": exporting, "connect": importing}
    assert refusals(before, {"stream": {"Outputs": {}}, "connect": {}}) == [
        "stream: found no export topic any more, which connect imports"
    ]
    other = {"Outputs": {"A": {"Value": {"Ref": "Other"}, "Export": {"Name": "topic"}}}}
    assert refusals(before, {"stream": other, "connect": importing}) == [
        "stream: found another value of topic, which connect imports"
    ]
    assert refusals({}, {"connect": importing, "stream": exporting}) == [
        "connect: found an import of topic, which no stack exports by then"
    ]
    assert refusals(before, {"stream": exporting}) == []
    assert refusals(before, {}) == []
