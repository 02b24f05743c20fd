"""A lake of one source has what its contracts need, in every environment, and nothing of the other source."""

import dataclasses
import json
from collections.abc import Callable
from itertools import product

import aws_cdk as cdk
import msgspec
import pytest

from headwater.contract.model import DYNAMODB, POSTGRESQL, Contract, of_database
from headwater.environment import model as environment
from headwater.environment.model import SECTIONS, Environment
from headwater.environment.rules import read_environment
from headwater.environment.source_stacks import SHARED, SOURCES_OUTPUT, STACKS, WITH_DATA
from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE
from headwater.review import baselines, cost, policies, reachability, removed_sources, replacements, rights
from stacks import application
from stacks.assets import Assets
from tests.synth.conftest import Synthesized
from tests.synth.deployed import deployment, templates
from tests.synth.example import example_content
from tests.synth.test_nag import acknowledged_in_vain, violations
from tests.synth.test_synthesis import lint
from tests.synth.updates import refusals

NAMES = environment.on_aws(EXAMPLE.config)
SOURCES = (POSTGRESQL, DYNAMODB)
OTHER = {POSTGRESQL: DYNAMODB, DYNAMODB: POSTGRESQL}
ALARMS = {
    POSTGRESQL: (
        "consumer-lag-",
        "failed-",
        "running-",
        "slot-lag",
        "wal",
        "lost-slot",
        "step-failed",
        "cluster-failed",
    ),
    DYNAMODB: ("iterator-age-", "replication-age-", "replication-failed-", "job-failed"),
}

Alone = Callable[[str, str], Synthesized]


def without(settings: Environment, source: str) -> Environment:
    """The environment without the sections that only a source needs."""
    return msgspec.structs.replace(settings, **dict.fromkeys(SECTIONS[source]))


@pytest.fixture(scope="module")
def alone(contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App]) -> Alone:
    """Synthesizes a lake of one source, whose environment lacks the other source's sections, once each."""
    done: dict[tuple[str, str], Synthesized] = {}

    def synthesized(name: str, source: str) -> Synthesized:
        if (name, source) not in done:
            settings = without(read_environment(name, EXAMPLE.config), OTHER[source])
            done[name, source] = Synthesized(new_app(), settings, of_database(contracts, source), assets)
        return done[name, source]

    return synthesized


@pytest.fixture(scope="module", params=list(product(NAMES, SOURCES)), ids="-".join)
def each(request: pytest.FixtureRequest, alone: Alone) -> Synthesized:
    """Each environment with each source alone."""
    return alone(*request.param)


def source_of(synthesized: Synthesized) -> str:
    (source,) = {contract.source.database for contract in synthesized.contracts}
    return source


def parts_of(synthesized: Synthesized) -> set[str]:
    return {part.replace("_", "-") for part in synthesized.parts()}


# What is made


def test_it_has_the_stacks_of_its_source_alone(each: Synthesized) -> None:
    # Aurora is in the files; a peering takes its place beside an existing database.
    expected = {*STACKS[source_of(each)], *SHARED} - {"database-peering", "bi"}
    assert parts_of(each) == expected


def test_both_sources_together_have_the_stacks_of_both(dev: Synthesized) -> None:
    assert parts_of(dev) == {*STACKS[POSTGRESQL], *STACKS[DYNAMODB], *SHARED} - {"database-peering", "bi"}


def test_every_stack_of_the_app_is_a_sources_or_shared() -> None:
    parts = {field.name.replace("_", "-") for field in dataclasses.fields(application.Application)}
    assert parts == {*STACKS[POSTGRESQL], *STACKS[DYNAMODB], *SHARED}


def test_the_lake_names_the_sources_that_it_is_deployed_for(each: Synthesized, dev: Synthesized) -> None:
    for synthesized, expected in ((each, source_of(each)), (dev, "dynamodb,postgresql")):
        assert synthesized.template("lake")["Outputs"][SOURCES_OUTPUT]["Value"] == expected


def test_no_reference_dangles_in_it(each: Synthesized) -> None:
    deployed = deployment(each)
    assert [resource.properties for resource in deployed.resources()]
    # A first deploy finds each export that it imports.
    assert refusals({}, templates(each)) == []


def test_no_rule_finds_anything_in_it(each: Synthesized) -> None:
    assert violations(each.assembly) == []
    assert acknowledged_in_vain(each.assembly) == []


def test_nothing_warns_in_its_synthesis(each: Synthesized) -> None:
    assert [message.id for stack in each.app.synth().stacks for message in stack.messages] == []


@pytest.mark.parametrize("source", SOURCES)
def test_cfn_lint_finds_nothing_in_it(alone: Alone, source: str) -> None:
    stage = alone("stage", source)
    done = lint(stage.environment.region, *sorted(stage.assembly.glob("*.template.json")))
    assert done.returncode == 0, done.stdout


def test_it_watches_its_own_source_alone(each: Synthesized) -> None:
    source = source_of(each)
    prefix = f"headwater-{each.environment.name}-"
    names = [
        alarm["Properties"]["AlarmName"].removeprefix(prefix)
        for alarm in each.resources("AWS::CloudWatch::Alarm").values()
    ]
    assert [start for start in ALARMS[source] if not any(name.startswith(start) for name in names)] == []
    assert [name for name in names if name.startswith(ALARMS[OTHER[source]])] == []
    (dashboard,) = each.resources("AWS::CloudWatch::Dashboard").values()
    drawn = json.dumps(dashboard["Properties"])
    of_others = {POSTGRESQL: ("Kinesis",), DYNAMODB: ("AWS/Kafka", "AWS/RDS")}
    assert [text for text in of_others[source] if text in drawn] == []
    # CloudWatch refuses a dashboard that has a graph without metrics.
    body = dashboard["Properties"]["DashboardBody"]
    text = body if isinstance(body, str) else "".join(p if isinstance(p, str) else "x" for p in body["Fn::Join"][1])
    graphs = [widget["properties"] for widget in json.loads(text)["widgets"] if widget["type"] == "metric"]
    assert len(graphs) > 3
    assert [graph["title"] for graph in graphs if not graph.get("metrics")] == []


# What is checked


def test_no_right_of_its_principals_is_missing(each: Synthesized) -> None:
    deployed = deployment(each)
    granted = policies.read(deployed)
    needed = policies.needed_by(deployed, rights.read_principals())
    assert {principal.role.partition(":")[0] for principal in needed} <= set(STACKS[source_of(each)])
    assert needed
    assert [text for every in needed for text in policies.judge(deployed, granted, every).missing] == []


def test_no_policy_in_it_names_the_other_source(each: Synthesized) -> None:
    services = {POSTGRESQL: ("dynamodb:", "kinesis:"), DYNAMODB: ("kafka", "rds-data:", "landing", "ec2:")}
    found = [
        (place, text)
        for place, policy in {**each.resources("AWS::IAM::Policy"), **each.resources("AWS::IAM::ManagedPolicy")}.items()
        for text in services[source_of(each)]
        if text in json.dumps(policy["Properties"]["PolicyDocument"]).lower()
    ]
    assert found == []


def test_its_flows_are_those_that_are_needed(each: Synthesized) -> None:
    declared = reachability.declarations()
    network = reachability.Network(deployment(each), declared.names)
    assert reachability.findings(network, declared) == []
    assert bool(network.components) == (source_of(each) == POSTGRESQL)


# What it costs


def test_nobody_pays_for_the_other_source(each: Synthesized, synthesize: Callable[[str], Synthesized]) -> None:
    name = each.environment.name
    estimate = cost.estimate(deployment(each), name)
    assert estimate.unknown == {}
    assert {place.partition(":")[0] for place in estimate.by_resource()} <= parts_of(each)
    assert ("lake:Landing" in estimate.by_resource()) == (source_of(each) == POSTGRESQL)
    assert estimate.total < cost.estimate(deployment(synthesize(name)), name).total


def test_dev_of_dynamodb_alone_costs_less_than_300_dollars(alone: Alone) -> None:
    assert cost.estimate(deployment(alone("dev", DYNAMODB)), "dev").total < 300


# What comes and goes


@pytest.mark.parametrize(("name", "source"), list(product(NAMES, SOURCES)))
def test_the_other_source_can_come_and_go(
    name: str, source: str, alone: Alone, synthesize: Callable[[str], Synthesized]
) -> None:
    both, one = templates(synthesize(name)), templates(alone(name, source))
    assert refusals(both, one) == []
    assert refusals(one, both) == []


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_that_keeps_its_data_can_go_too(
    source: str, alone: Alone, synthesize: Callable[[str], Synthesized]
) -> None:
    """The stacks that stay need nothing of the deleted ones, and are updated when the source comes back."""
    both, one = templates(synthesize("prod")), templates(alone("prod", OTHER[source]))
    kept = {f"headwater-prod-{part}" for part in STACKS[source] if part in WITH_DATA}
    after = {stack: one.get(stack) or both[stack] for stack in both if stack in one or stack in kept}
    assert refusals(both, after) == []
    assert refusals(after, both) == []


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", NAMES)
def test_the_gate_names_what_goes_and_what_stays(
    name: str, source: str, alone: Alone, synthesize: Callable[[str], Synthesized]
) -> None:
    before = baselines.from_assembly(synthesize(name).assembly)
    after = baselines.from_assembly(alone(name, OTHER[source]).assembly)
    said = "\n".join(removed_sources.warnings(name, before, after, replacements.Specification()))
    gone = [part for part in STACKS[source] if part in before]
    assert f"so its stacks leave the app: {', '.join(reversed(gone))}." in said
    assert f"`headwater destroy --env {name} --source {source}`" in said
    held = {POSTGRESQL: ("AWS::RDS::DBCluster", "AWS::MSK::Cluster"), DYNAMODB: ("GlobalTable", "AWS::Kinesis::Stream")}
    for text in (*held[source], "AWS::KMS::Key"):
        assert (text in said) == (name != "dev"), text
    assert ("the stack stays" in said) == (name != "dev")
    # The bucket of what has landed stays in the lake's stack.
    assert "Landing" not in said


def test_the_gate_says_nothing_while_a_contract_is_left(dev: Synthesized) -> None:
    stacks = baselines.from_assembly(dev.assembly)
    assert list(removed_sources.warnings("dev", stacks, stacks, replacements.Specification())) == []


# What the environment's file must have


@pytest.mark.parametrize("source", SOURCES)
def test_a_section_that_a_contract_needs_is_named(
    source: str, contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App]
) -> None:
    settings = without(read_environment("dev", EXAMPLE.config), source)
    section = SECTIONS[source][0]
    with pytest.raises(
        UserError, match=rf"^config/dev\.yaml: {section}: found None, expected a mapping, because there"
    ):
        application.build(new_app(), settings, contracts, example_content(contracts), assets)


@pytest.mark.parametrize("source", SOURCES)
def test_sections_of_a_source_without_a_contract_change_nothing(
    source: str, alone: Alone, contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App]
) -> None:
    whole = Synthesized(new_app(), read_environment("dev", EXAMPLE.config), of_database(contracts, source), assets)
    assert templates(whole) == templates(alone("dev", source))
