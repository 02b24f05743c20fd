"""A database and DynamoDB tables that exist already: the templates make none in their place. Flows and rights are as
narrow as the pipelines allow."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import msgspec
import pytest
from typer.testing import CliRunner

from headwater.cli import app
from headwater.commands import synthesis
from headwater.contract.model import Contract
from headwater.definitions.connectors import SLOT
from headwater.definitions.left_slot import parameter
from headwater.environment import rds_authority
from headwater.environment.model import Data, Environment, ExistingTable, Monitored
from headwater.environment.rules import read_environment
from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE
from headwater.packaging import shipped
from headwater.review import cost, policies, rights
from headwater.review.reachability import Network, declarations, findings
from stacks import application
from stacks.assets import Assets
from tests.lake_folders import lake_folder
from tests.synth.conftest import Synthesized
from tests.synth.deployed import Templates, deployment, made, remove, resource, templates
from tests.synth.example import example_content
from tests.synth.existing import ACCOUNTS, DATABASE, PEERING, SECRET_KEY, STREAM_KEY, with_existing

DECLARED = declarations()
INGRESS = "AWS::EC2::SecurityGroupIngress"
ORDERS = ExistingTable(contract="orders", table="Orders", stream="order-changes", stream_key=None)

Build = Callable[[Environment], Synthesized]


@pytest.fixture(scope="module")
def settings() -> Environment:
    return read_environment("dev", EXAMPLE.config)


@pytest.fixture(scope="module")
def build(contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App]) -> Build:
    return lambda settings: Synthesized(new_app(), settings, contracts, assets)


@pytest.fixture(scope="module")
def on_its_owners_way(settings: Environment, build: Build) -> Synthesized:
    """A server that is not RDS's, in a network to which its owner makes the way, with the account's default keys."""
    tables = msgspec.structs.replace(ACCOUNTS, stream_key=None)
    server = {"peering": None, "cidr": "172.31.7.0/24", "monitored": None, "secret_key": None}
    return build(with_existing(settings, tables, **server))


def source_config(synthesized: Synthesized) -> dict[str, str]:
    for connector in synthesized.resources("Custom::HeadwaterConnector").values():
        config: dict[str, str] = connector["Properties"]["Connector"]["connectorConfiguration"]
        if "database.hostname" in config:
            return config
    raise AssertionError("found no source connector")


def granted(synthesized: Synthesized, role: str) -> Iterator[tuple[str, str, Any]]:
    """Each action, resource and condition that a role is granted."""
    for statement in policies.read(deployment(synthesized)).by_role[role]:
        for action in statement.actions:
            for arn in statement.resources:
                yield action, arn, statement.conditions


def alarms(synthesized: Synthesized) -> dict[str, dict[str, Any]]:
    found = synthesized.resources("AWS::CloudWatch::Alarm").values()
    return {each["Properties"]["AlarmName"].removeprefix("headwater-dev-"): each["Properties"] for each in found}


def findings_of(synthesized: Synthesized, changed: Templates | None = None) -> list[str]:
    return findings(Network(deployment(synthesized, changed), DECLARED.names), DECLARED)


# What is made


def test_no_database_table_stream_or_password_is_made(existing: Synthesized, on_its_owners_way: Synthesized) -> None:
    for synthesized in (existing, on_its_owners_way):
        made = {
            each["Type"]
            for part in synthesized.parts()
            for name, each in synthesized.template(part)["Resources"].items()
            if not name.startswith("ForgetKey")  # the lake's, and no password
        }
        assert not [type_ for type_ in made if type_.split("::")[1] in ("RDS", "DynamoDB", "Kinesis", "SecretsManager")]
        assert not made & {"Custom::HeadwaterDatabase", "Custom::HeadwaterPublication", "AWS::Serverless::Application"}


def test_no_stack_stands_for_what_is_there(existing: Synthesized, on_its_owners_way: Synthesized) -> None:
    assert not {"database", "database_content", "key_value"} & set(existing.parts())
    assert "database_peering" in existing.parts()
    assert "database_peering" not in on_its_owners_way.parts()


@pytest.mark.parametrize("kept", ["database", "key_value"])
def test_one_source_may_exist_and_the_other_be_made(settings: Environment, build: Build, kept: str) -> None:
    one = msgspec.structs.replace(with_existing(settings), **{kept: getattr(settings, kept)})
    synthesized = build(one)
    assert (kept == "database") == bool(synthesized.resources("AWS::RDS::DBCluster"))
    assert (kept == "key_value") == bool(synthesized.resources("AWS::DynamoDB::GlobalTable"))
    assert findings_of(synthesized) == []


def test_nothing_of_the_deployment_asks_the_database_for_its_slot_or_its_publication(existing: Synthesized) -> None:
    source = existing.only("Custom::HeadwaterConnector", of="Source")
    assert "Slot" not in source
    assert "rds-data" not in json.dumps([existing.template(part) for part in existing.parts()])


def test_the_source_connector_drops_the_slot_where_the_data_goes(
    existing: Synthesized, settings: Environment, build: Build
) -> None:
    keeps = Data(retain=False, delete_with_stacks_of=None)
    for synthesized, drops in (
        (existing, "true"),
        (build(msgspec.structs.replace(with_existing(settings), data=keeps)), "false"),
    ):
        source = synthesized.only("Custom::HeadwaterConnector", of="Source")
        assert source["Release"] == {"Slot": SLOT, "Parameter": parameter("dev"), "Drop": drops}


# How it is reached


def test_the_source_connector_is_told_where_the_database_is_and_whose_secret_to_take(existing: Synthesized) -> None:
    config = source_config(existing)
    assert config["database.hostname"] == DATABASE.host
    assert (config["database.port"], config["database.dbname"]) == ("5433", "rental")
    assert config["database.user"] == "${secretsmanager:rental/headwater-cdc:username}"
    assert config["database.password"] == "${secretsmanager:rental/headwater-cdc:password}"


def test_it_trusts_rds_or_the_authority_of_a_file(
    existing: Synthesized, dev: Synthesized, settings: Environment, build: Build
) -> None:
    assert source_config(existing)["database.sslmode"] == "verify-full"
    assert source_config(existing)["driver.sslfactoryarg"] == source_config(dev)["driver.sslfactoryarg"]
    own = build(with_existing(settings, root_certificate=str(rds_authority.FILE)))
    assert source_config(own)["driver.sslfactoryarg"] != source_config(dev)["driver.sslfactoryarg"]


def test_a_peering_leads_from_the_connectors_subnets_to_the_database_and_back(existing: Synthesized) -> None:
    deployed = deployment(existing)
    (peering,) = deployed.resources("AWS::EC2::VPCPeeringConnection")
    (vpc,) = deployed.resources("AWS::EC2::VPC")
    assert (peering.properties["VpcId"], peering.properties["PeerVpcId"]) == (vpc.reference, PEERING.vpc)
    routes = {
        (route.properties["RouteTableId"], route.properties["DestinationCidrBlock"])
        for route in deployed.resources("AWS::EC2::Route")
        if route.properties.get("VpcPeeringConnectionId", "").startswith(peering.reference[:-1])
    }
    tables = {
        association.properties["SubnetId"]: association.properties["RouteTableId"]
        for association in deployed.resources("AWS::EC2::SubnetRouteTableAssociation")
    }
    (source,) = [each for each in deployed.resources("Custom::HeadwaterConnector") if "Source" in each.id]
    subnets = source.properties["Connector"]["kafkaCluster"]["apacheKafkaCluster"]["vpc"]["subnets"]
    assert len(subnets) == len(existing.environment.availability_zones)
    there = {(tables[subnet], "10.60.0.0/16") for subnet in subnets}
    back = {(table, existing.environment.postgresql.network.cidr) for table in PEERING.route_tables}
    assert routes == there | back


def test_what_the_network_exports_does_not_depend_on_the_kinds(
    dev: Synthesized, existing: Synthesized, on_its_owners_way: Synthesized
) -> None:
    """CloudFormation refuses to take away an export that another stack imports: a stack of another kind, say."""
    for other in (existing, on_its_owners_way):
        assert other.template("network")["Outputs"] == dev.template("network")["Outputs"]


def test_a_route_table_that_leaves_the_list_takes_its_own_route_along(
    existing: Synthesized, settings: Environment, build: Build
) -> None:
    """CloudFormation makes a route before it deletes another one, and a table has one route to a network."""
    peering = msgspec.structs.replace(PEERING, route_tables=PEERING.route_tables[1:])
    before, after = (
        {
            name: route["Properties"]["RouteTableId"]
            for name, route in each.resources("AWS::EC2::Route", "database_peering").items()
        }
        for each in (existing, build(with_existing(settings, peering=peering)))
    )
    assert len(after) == len(before) - 1
    assert after.items() < before.items()


def test_the_databases_own_group_lets_in_the_source_connector_on_its_port_alone(existing: Synthesized) -> None:
    deployed = deployment(existing)
    (source,) = [each for each in deployed.resources("Custom::HeadwaterConnector") if "Source" in each.id]
    (group,) = source.properties["Connector"]["kafkaCluster"]["apacheKafkaCluster"]["vpc"]["securityGroups"]
    (rule,) = [
        each.properties for each in deployed.resources(INGRESS) if each.properties["GroupId"] == PEERING.security_group
    ]
    assert rule["SourceSecurityGroupId"] == group
    assert (rule["IpProtocol"], rule["FromPort"], rule["ToPort"]) == ("tcp", 5433, 5433)
    assert "CidrIp" not in rule


def test_the_connector_starts_when_the_way_is_there(existing: Synthesized) -> None:
    assert existing.stacks.database_peering in made(existing.stacks.connect).dependencies


def test_what_is_needed_is_open_and_nothing_else_is(existing: Synthesized, on_its_owners_way: Synthesized) -> None:
    for synthesized in (existing, on_its_owners_way):
        assert findings_of(synthesized) == []
        flows = Network(deployment(synthesized), DECLARED.names).flows()
        beyond = [(flow.source, str(flow.surely)) for flow in flows if flow.destination == "beyond the VPC"]
        assert beyond == [("source connector", "tcp 5433")]
        assert not [flow for flow in flows if flow.source == "beyond the VPC"]


def test_a_public_address_is_not_taken_for_the_whole_internet(settings: Environment, build: Build) -> None:
    public = build(with_existing(settings, peering=None, cidr="52.58.1.2/32"))
    assert findings_of(public) == []
    assert {"CidrIp": "52.58.1.2/32", "FromPort": 5433, "ToPort": 5433} in [
        {key: rule.get(key) for key in ("CidrIp", "FromPort", "ToPort")}
        for group in public.resources("AWS::EC2::SecurityGroup", "connect").values()
        for rule in group["Properties"]["SecurityGroupEgress"]
    ]


def no_route(changed: Templates) -> None:
    remove(changed, "AWS::EC2::Route", "Route1", "database-peering")


def no_route_back(changed: Templates) -> None:
    for table in PEERING.route_tables:
        remove(changed, "AWS::EC2::Route", f"RouteBack{table.replace('-', '')}", "database-peering")


def a_route_back_to_some_subnets(changed: Templates) -> None:
    route = resource(changed, "AWS::EC2::Route", "RouteBackrtb0da7aba2", "database-peering")
    route["Properties"]["DestinationCidrBlock"] = "10.40.8.0/21"


def no_ingress(changed: Templates) -> None:
    remove(changed, INGRESS, "SourceSecurityGroupIntoDatabase", "connect")


def another_port(changed: Templates) -> None:
    rule = resource(changed, INGRESS, "SourceSecurityGroupIntoDatabase", "connect")
    rule["Properties"] |= {"FromPort": 5432, "ToPort": 5432}


def no_egress(changed: Templates) -> None:
    resource(changed, "AWS::EC2::SecurityGroup", "SourceSecurityGroup", "connect")["Properties"][
        "SecurityGroupEgress"
    ].pop()


@pytest.mark.parametrize(
    "change", [no_route, no_route_back, a_route_back_to_some_subnets, no_ingress, another_port, no_egress]
)
def test_a_way_that_is_closed_is_named(existing: Synthesized, change: Callable[[Templates], None]) -> None:
    changed = templates(existing)
    change(changed)
    assert "closed: source connector → beyond the VPC, tcp 5433, needed: Debezium reads the log" in findings_of(
        existing, changed
    )


def every_port(changed: Templates) -> None:
    group = resource(changed, "AWS::EC2::SecurityGroup", "SourceSecurityGroup", "connect")["Properties"]
    into = resource(changed, INGRESS, "SourceSecurityGroupIntoDatabase", "connect")["Properties"]
    for rule in (group["SecurityGroupEgress"][-1], into):
        rule |= {"FromPort": 0, "ToPort": 65535}


def the_whole_network(changed: Templates) -> None:
    rule = resource(changed, INGRESS, "SourceSecurityGroupIntoDatabase", "connect")["Properties"]
    del rule["SourceSecurityGroupId"]
    rule["CidrIp"] = "10.40.0.0/16"
    sink = resource(changed, "AWS::EC2::SecurityGroup", "SinkSecurityGroup", "connect")
    sink["Properties"]["SecurityGroupEgress"].append(
        {"CidrIp": "10.60.0.0/16", "IpProtocol": "tcp", "FromPort": 5433, "ToPort": 5433}
    )


def the_databases_network_into_endpoints(changed: Templates) -> None:
    group = resource(changed, "AWS::EC2::SecurityGroup", "EndpointSecurityGroup")
    group["Properties"]["SecurityGroupIngress"].append(
        {"CidrIp": "10.60.0.0/16", "IpProtocol": "tcp", "FromPort": 443, "ToPort": 443}
    )


def the_databases_group_into_the_sink(changed: Templates) -> None:
    group = resource(changed, "AWS::EC2::SecurityGroup", "SinkSecurityGroup", "connect")
    group["Properties"]["SecurityGroupIngress"] = [
        {"SourceSecurityGroupId": PEERING.security_group, "IpProtocol": "tcp", "FromPort": 8083, "ToPort": 8083}
    ]


def the_sink_out(changed: Templates) -> None:
    group = resource(changed, "AWS::EC2::SecurityGroup", "SinkSecurityGroup", "connect")
    group["Properties"]["SecurityGroupEgress"].append(
        {"CidrIp": "172.16.0.0/16", "IpProtocol": "tcp", "FromPort": 5433, "ToPort": 5433}
    )


def the_sink_out_to_more_than_is_peered(changed: Templates) -> None:
    group = resource(changed, "AWS::EC2::SecurityGroup", "SinkSecurityGroup", "connect")
    group["Properties"]["SecurityGroupEgress"].append(
        {"CidrIp": "10.60.0.0/15", "IpProtocol": "tcp", "FromPort": 5433, "ToPort": 5433}
    )


def test_a_database_whose_port_no_connector_is_told_is_named(existing: Synthesized) -> None:
    changed = templates(existing)
    for template in changed.values():
        for each in template["Resources"].values():
            if each["Type"] == "Custom::HeadwaterConnector":
                each["Properties"]["Connector"]["connectorConfiguration"].pop("database.port", None)
    named = "needed flow source connector → beyond the VPC: no connector's configuration names database.port"
    assert named in findings_of(existing, changed)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (every_port, "open but not declared: source connector → beyond the VPC, tcp any, peering"),
        (the_whole_network, "open but not declared: sink connector → beyond the VPC, tcp 5433, peering"),
        (
            the_databases_network_into_endpoints,
            "open but not declared: beyond the VPC → glue endpoint, tcp 443, peering",
        ),
        (
            the_databases_group_into_the_sink,
            "open but not declared: beyond the VPC → sink connector, tcp 8083, peering",
        ),
        (
            the_sink_out_to_more_than_is_peered,
            "open but not declared: sink connector → beyond the VPC, tcp 5433, its owner's way",
        ),
        (the_sink_out, "open but not declared: sink connector → beyond the VPC, tcp 5433, its owner's way"),
    ],
)
def test_what_is_opened_besides_is_named(
    existing: Synthesized, change: Callable[[Templates], None], named: str
) -> None:
    changed = templates(existing)
    change(changed)
    assert named in findings_of(existing, changed)


# Who may do what


def test_the_source_connector_may_read_that_secret_alone(existing: Synthesized, on_its_owners_way: Synthesized) -> None:
    secret = (
        "secretsmanager:GetSecretValue",
        "arn:aws:secretsmanager:eu-central-1:123456789012:secret:rental/headwater-cdc-??????",
    )
    key = ("kms:Decrypt", SECRET_KEY)
    for synthesized, expected in ((existing, [key, secret]), (on_its_owners_way, [secret])):
        found = [grant for grant in granted(synthesized, "connect:SourceRole") if not grant[0].startswith("kafka")]
        assert sorted((action, arn) for action, arn, _ in found) == expected
        conditions = {action: condition for action, _, condition in found}
        via = {"StringEquals": {"kms:ViaService": "secretsmanager.eu-central-1.amazonaws.com"}}
        assert conditions.get("kms:Decrypt", via) == via


def test_the_job_may_read_the_stream_of_its_table_alone(existing: Synthesized, on_its_owners_way: Synthesized) -> None:
    arn = "arn:aws:kinesis:eu-central-1:123456789012:stream/account-changes"
    for synthesized, keys in ((existing, {STREAM_KEY}), (on_its_owners_way, set())):
        found = list(granted(synthesized, "glue-job:Rolekeyvalue"))
        assert {resource for action, resource, _ in found if action.startswith("kinesis:")} == {arn}
        via = {"StringEquals": {"kms:ViaService": "kinesis.eu-central-1.amazonaws.com"}}
        assert {resource for action, resource, condition in found if condition == via} == keys
        assert not [action for action, _, _ in found if action.startswith("dynamodb:")]


def test_nobody_else_may_use_the_owners_keys_and_secrets(existing: Synthesized) -> None:
    for part in existing.parts():
        for name, each in existing.template(part)["Resources"].items():
            text = json.dumps(each.get("Properties", {}).get("PolicyDocument", {}))
            assert (SECRET_KEY in text or "rental/" in text) <= name.startswith("SourceRole"), name
            assert (STREAM_KEY in text or "account-changes" in text) <= name.startswith("Rolekeyvalue"), name


def test_no_needed_right_is_missing(existing: Synthesized, on_its_owners_way: Synthesized) -> None:
    for synthesized in (existing, on_its_owners_way):
        deployed = deployment(synthesized)
        allowed = policies.read(deployed)
        principals = policies.needed_by(deployed, rights.read_principals())
        assert [text for each in principals for text in policies.judge(deployed, allowed, each).missing] == []
        assert {"source connector", "connector handler", "glue writer"} <= {each.name for each in principals}


def test_a_missing_right_to_the_secret_and_to_the_stream_is_named(existing: Synthesized) -> None:
    changed = templates(existing)
    for role, part, name in (("SourceRole", "connect", "rental/"), ("Rolekeyvalue", "glue-job", "account-changes")):
        policy = resource(changed, "AWS::IAM::Policy", role, part)["Properties"]
        policy["PolicyDocument"] = json.loads(json.dumps(policy["PolicyDocument"]).replace(name, "other"))
    deployed = deployment(existing, changed)
    allowed = policies.read(deployed)
    principals = policies.needed_by(deployed, rights.read_principals())
    missing = [text for each in principals for text in policies.judge(deployed, allowed, each).missing]
    assert any("source connector" in text and "secret:rental/headwater-cdc" in text for text in missing)
    assert any("glue writer" in text and "stream/account-changes" in text for text in missing)


def test_make_check_lets_it_through(existing: Synthesized, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The assets of these stacks are placeholders.
    monkeypatch.setattr(shipped, "unexplained", lambda *_: [])
    monkeypatch.setattr(synthesis, "synthesize", lambda folder, name: None)
    folder = lake_folder(tmp_path / "lake")
    folder.synthesized.symlink_to(existing.assembly)
    arguments = ["check", "--env", "dev", "--folder", str(folder.root)]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.stdout
    assert "| source connector | beyond the VPC | tcp 5433 | peering | dev |" in result.stdout


def test_it_has_an_estimate_without_what_is_there(existing: Synthesized, dev: Synthesized) -> None:
    estimate = cost.estimate(deployment(existing), "dev")
    assert estimate.unknown == {}
    assert not [name for name in estimate.by_resource() if name.startswith(("database:", "key-value:"))]
    assert estimate.total < cost.estimate(deployment(dev), "dev").total


# What is read and watched


def test_the_job_reads_the_named_stream_as_the_named_table(existing: Synthesized) -> None:
    arguments = existing.only("AWS::Glue::Job")["DefaultArguments"]
    assert arguments["--source-table"] == "accounts=Accounts"
    assert json.dumps(arguments["--stream-arn"]).count("stream/account-changes") == 1


def test_alarms_watch_the_named_stream_and_table(existing: Synthesized) -> None:
    age = alarms(existing)["iterator-age-accounts"]
    assert age["Dimensions"] == [{"Name": "StreamName", "Value": "account-changes"}]
    for name in ("replication-age-accounts", "replication-failed-accounts"):
        (query,) = alarms(existing)[name]["Metrics"]
        assert query["Expression"].endswith("WHERE TableName = 'Accounts'")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("cluster", {"DBClusterIdentifier": "rental", "Role": "WRITER"}),
        ("instance", {"DBInstanceIdentifier": "rental"}),
    ],
)
def test_slot_and_log_of_a_monitored_server_are_watched(
    settings: Environment, build: Build, kind: Any, expected: dict[str, str]
) -> None:
    watched = build(with_existing(settings, monitored=Monitored(kind=kind, identifier="rental")))
    read = [query["MetricStat"]["Metric"] for query in alarms(watched)["slot-lag"]["Metrics"] if "MetricStat" in query]
    for metric in (*read, alarms(watched)["wal"]):
        assert {each["Name"]: each["Value"] for each in metric["Dimensions"]} == expected
    assert alarms(watched)["wal"]["TreatMissingData"] == "breaching"
    assert alarms(watched)["slot-lag"]["AlarmDescription"].startswith(
        "The source connector does not keep up, so RDS retains WAL for it"
    )


def test_other_servers_have_all_alarms_but_those_of_the_log(
    dev: Synthesized, existing: Synthesized, on_its_owners_way: Synthesized
) -> None:
    assert set(alarms(dev)) - set(alarms(existing)) == {"rotation-failed"}
    assert set(alarms(dev)) - set(alarms(on_its_owners_way)) == {"rotation-failed", "slot-lag", "wal"}
    assert set(alarms(on_its_owners_way)) < set(alarms(dev))


@pytest.mark.parametrize(
    ("tables", "found"),
    [
        ((ORDERS,), r"found \['orders'\]"),
        ((ACCOUNTS, ORDERS), r"found \['accounts', 'orders'\]"),
    ],
)
def test_a_table_is_named_for_each_contract_and_for_no_other(
    settings: Environment,
    contracts: list[Contract],
    assets: Assets,
    new_app: Callable[[], cdk.App],
    tables: tuple[ExistingTable, ...],
    found: str,
) -> None:
    with pytest.raises(
        UserError, match=rf"environment dev: key_value\.tables: {found}, expected \['accounts'\]: a table for each"
    ):
        application.build(new_app(), with_existing(settings, *tables), contracts, example_content(contracts), assets)
