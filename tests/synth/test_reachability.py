"""What can reach what: all that the pipeline needs, and nothing that nobody declared."""

from collections.abc import Callable
from typing import Any

import aws_cdk as cdk
import msgspec
import pytest

from headwater.contract.model import Contract
from headwater.environment.model import NEEDED_ENDPOINTS, WEB_APPLICATIONS
from headwater.environment.rules import read_environment
from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE
from headwater.review.reachability import Network, Ports, declarations, findings
from stacks.assets import Assets
from tests.synth.conftest import Synthesized
from tests.synth.deployed import Templates, deployment, remove, resource, templates

DECLARED = declarations()
INSTANCE = "AWS::EC2::Instance"
INGRESS, EGRESS = "AWS::EC2::SecurityGroupIngress", "AWS::EC2::SecurityGroupEgress"


@pytest.fixture(scope="module")
def with_web_interfaces(contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App]) -> Synthesized:
    """dev with the web interfaces of EMR open."""
    dev = read_environment("dev", EXAMPLE.config)
    settings = msgspec.structs.replace(dev, emr=msgspec.structs.replace(dev.postgresql.emr, web_interfaces=True))
    return Synthesized(new_app(), settings, contracts, assets)


def from_the_bastion_to_emr(synthesized: Synthesized) -> dict[str, str]:
    """The ports of EMR that the bastion reaches, by the part of the cluster."""
    flows = Network(deployment(synthesized), DECLARED.names).flows()
    return {
        flow.destination: str(flow.ports)
        for flow in flows
        if flow.source == "bastion" and flow.destination.startswith("EMR")
    }


def applications(synthesized: Synthesized) -> set[str]:
    return {each["Name"] for each in synthesized.only("AWS::EMR::Cluster")["Applications"]}


def findings_of(synthesized: Synthesized, changed: Templates) -> list[str]:
    return findings(Network(deployment(synthesized, changed), DECLARED.names), DECLARED)


def test_what_is_needed_is_open_and_nothing_else_is(every: Synthesized) -> None:
    assert findings_of(every, templates(every)) == []


def test_by_default_the_bastion_reaches_nothing_of_emr(every_stack: Synthesized) -> None:
    assert from_the_bastion_to_emr(every_stack) == {}
    assert applications(every_stack) == {"Hadoop", "Hive", "Spark", "Trino"}


def test_a_setting_opens_the_web_interfaces(dev: Synthesized, with_web_interfaces: Synthesized) -> None:
    assert applications(with_web_interfaces) - applications(dev) == {"Hue", "Livy"}
    assert from_the_bastion_to_emr(with_web_interfaces) == {
        "EMR primary": "tcp 8088, tcp 8888, tcp 8889, tcp 8998, tcp 9870, tcp 18080"
    }
    assert findings_of(with_web_interfaces, templates(with_web_interfaces)) == []


def test_a_web_interface_that_is_closed_is_named(with_web_interfaces: Synthesized) -> None:
    changed = templates(with_web_interfaces)
    remove(changed, INGRESS, "PrimarySecurityGroupfromheadwaterdevnetworkBastionSecurityGroupC6E44AB28998")
    named = "closed: bastion → EMR primary, tcp 8998, needed: the web interfaces"
    assert [finding for finding in findings_of(with_web_interfaces, changed) if finding.startswith(named)]


def test_an_open_web_interface_without_the_setting_is_named(with_web_interfaces: Synthesized) -> None:
    changed = templates(with_web_interfaces)
    cluster = resource(changed, "AWS::EMR::Cluster", "Cluster")["Properties"]
    cluster["Applications"] = [each for each in cluster["Applications"] if each["Name"] not in WEB_APPLICATIONS]
    named = "open but not declared: bastion → EMR primary, tcp 8088, tcp 8888,"
    assert [finding for finding in findings_of(with_web_interfaces, changed) if finding.startswith(named)]


def test_configuration_asks_for_the_endpoints_that_flows_need() -> None:
    needed = {flow.destination for flow in DECLARED.needed if flow.kind == "endpoint"}
    assert needed == {*NEEDED_ENDPOINTS, "s3"}  # S3's is a gateway, which every environment has


def test_every_tolerated_flow_is_open_somewhere(synthesize: Callable[[str], Synthesized]) -> None:
    flows = [flow for name in ("dev", "prod") for flow in Network(deployment(synthesize(name)), DECLARED.names).flows()]
    unused = [tolerated for tolerated in DECLARED.tolerated if not any(tolerated.fits(flow) for flow in flows)]
    assert unused == []


def no_ingress(changed: Templates) -> None:
    remove(changed, INGRESS, "SourceSecurityGroupheadwaterdevdatabase")


def no_egress(changed: Templates) -> None:
    remove(changed, EGRESS, "SinkSecurityGrouptoheadwaterdevstream")


def another_port(changed: Templates) -> None:
    rule = resource(changed, INGRESS, "SecurityGroupfromheadwaterdevnetworkBastion", "database")
    rule["Properties"]["FromPort"] = rule["Properties"]["ToPort"] = 5433


def no_default_route(changed: Templates) -> None:
    for number in (1, 2):
        remove(changed, "AWS::EC2::Route", f"VpcworkSubnet{number}DefaultRoute")


def place_of_the_source(changed: Templates) -> dict[str, Any]:
    """The path to the subnets and groups of the source connector."""
    properties = resource(changed, "Custom::HeadwaterConnector", "SourceConnector")["Properties"]
    vpc: dict[str, Any] = properties["Connector"]["kafkaCluster"]["apacheKafkaCluster"]["vpc"]
    return vpc


def connector_in_data_subnets(changed: Templates) -> None:
    database = resource(changed, "AWS::RDS::DBSubnetGroup", "ClusterSubnets")
    place_of_the_source(changed)["subnets"] = database["Properties"]["SubnetIds"]


def endpoint_without_its_rule(changed: Templates) -> None:
    group = resource(changed, "AWS::EC2::SecurityGroup", "EndpointSecurityGroup")
    del group["Properties"]["SecurityGroupIngress"]


def s3_endpoint_off_the_internet_too(changed: Templates) -> None:
    endpoint = resource(changed, "AWS::EC2::VPCEndpoint", "VpcS3Endpoint")
    endpoint["Properties"]["RouteTableIds"] = []
    no_default_route(changed)


def emr_agents_kept_from_their_service(changed: Templates) -> None:
    remove(changed, EGRESS, "PrimarySecurityGrouptoheadwaterdevemrServiceSecurityGroup")


def emr_nodes_kept_from_each_other(changed: Templates) -> None:
    remove(changed, EGRESS, "CoreSecurityGrouptoheadwaterdevemrPrimarySecurityGroup54964D47ALLPORTS")


def emr_kept_from_aws(changed: Templates) -> None:
    group = resource(changed, "AWS::EC2::SecurityGroup", "CoreSecurityGroup", "emr")
    del group["Properties"]["SecurityGroupEgress"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (emr_agents_kept_from_their_service, "closed: EMR primary → EMR service, tcp 9443, needed: EMR's agents"),
        (emr_nodes_kept_from_each_other, "closed: EMR core → EMR primary, tcp any, needed: Hadoop, Spark and Trino"),
        (emr_kept_from_aws, "closed: EMR core → elasticmapreduce, tcp 443, needed: EMR's agents"),
        (no_ingress, "closed: source connector → Aurora, tcp 5432, needed: Debezium reads the log"),
        (no_egress, "closed: sink connector → MSK, tcp 9098, needed: the sink reads changes"),
        (another_port, "closed: bastion → Aurora, tcp 5432, needed: operators' SQL"),
        (no_default_route, "closed: EMR primary → kms, tcp 443, needed: encrypted volumes and objects"),
        (endpoint_without_its_rule, "closed: source connector → secretsmanager, tcp 443, needed: the config provider"),
        (s3_endpoint_off_the_internet_too, "closed: sink connector → s3, tcp 443, needed: the sink lands changes"),
    ],
)
def test_a_closed_flow_is_named(dev: Synthesized, change: Callable[[Templates], None], named: str) -> None:
    changed = templates(dev)
    change(changed)
    assert [finding for finding in findings_of(dev, changed) if finding.startswith(named)]


@pytest.mark.parametrize(
    ("endpoint", "named"),
    [
        ("VpcS3Endpoint", "sink connector → s3, needed: the sink lands changes"),
        ("VpcGlueEndpoint", "EMR core → glue, needed: the catalog"),
        ("VpcMonitoringEndpoint", "EMR primary → monitoring, needed: the writer's metrics"),
        ("VpcSecretsmanagerEndpoint", "source connector → secretsmanager, needed: the config provider"),
    ],
)
def test_the_internet_does_not_stand_in_for_an_endpoint(dev: Synthesized, endpoint: str, named: str) -> None:
    changed = templates(dev)
    remove(changed, "AWS::EC2::VPCEndpoint", endpoint)
    assert [
        finding
        for finding in findings_of(dev, changed)
        if finding.startswith(f"by NAT instance, not by an endpoint: {named}")
    ]


def test_a_connector_without_a_way_out_is_named_where_it_needs_one(synthesize: Callable[[str], Synthesized]) -> None:
    stage = synthesize("stage")
    changed = templates(stage)
    connector_in_data_subnets(changed)
    assert (
        findings_of(stage, changed) == []
    )  # its one service, Secrets Manager, has an endpoint that data subnets reach
    remove(changed, "AWS::EC2::VPCEndpoint", "VpcSecretsmanagerEndpoint")
    assert [
        finding
        for finding in findings_of(stage, changed)
        if finding.startswith("closed: source connector → secretsmanager")
    ]


def world_into_aurora(changed: Templates) -> None:
    group = resource(changed, "AWS::EC2::SecurityGroup", "SecurityGroup", "database")
    group["Properties"]["SecurityGroupIngress"] = [
        {"CidrIp": "0.0.0.0/0", "IpProtocol": "tcp", "FromPort": 5432, "ToPort": 5432}
    ]


def more_ports_from_the_bastion(changed: Templates) -> None:
    rule = resource(changed, INGRESS, "SecurityGroupfromheadwaterdevnetworkBastion", "database")
    out = resource(changed, EGRESS, "SecurityGroupheadwaterdevnetworkBastion", "database")
    for end in (rule, out):
        end["Properties"]["FromPort"] = 22


def emr_lets_everything_out(changed: Templates) -> None:
    group = resource(changed, "AWS::EC2::SecurityGroup", "PrimarySecurityGroup", "emr")
    group["Properties"]["SecurityGroupEgress"].append({"CidrIp": "0.0.0.0/0", "IpProtocol": "-1"})


def emr_reaches_port_80(changed: Templates) -> None:
    rule = {"CidrIp": "0.0.0.0/0", "IpProtocol": "tcp", "FromPort": 80, "ToPort": 80}
    resource(changed, "AWS::EC2::SecurityGroup", "CoreSecurityGroup", "emr")["Properties"]["SecurityGroupEgress"] += [
        rule
    ]


def any_port_of_the_brokers(changed: Templates) -> None:
    for type_, start in ((INGRESS, "SinkSecurityGroupheadwater"), (EGRESS, "SinkSecurityGroupto")):
        resource(changed, type_, start)["Properties"] |= {"FromPort": 0, "ToPort": 65535}


def brokers_reach_out(changed: Templates) -> None:
    group = resource(changed, "AWS::EC2::SecurityGroup", "SecurityGroup", "stream")
    group["Properties"]["SecurityGroupEgress"] = [{"CidrIp": "0.0.0.0/0", "IpProtocol": "-1"}]
    stream = resource(changed, "AWS::MSK::Cluster", "Cluster")
    stream["Properties"]["BrokerNodeGroupInfo"]["ClientSubnets"] = place_of_the_source(changed)["subnets"]


def core_without_a_rule_of_its_own_for_what_leaves(changed: Templates) -> None:
    group = resource(changed, "AWS::EC2::SecurityGroup", "SinkSecurityGroup")
    del group["Properties"]["SecurityGroupEgress"]
    remove(changed, EGRESS, "SinkSecurityGroupto")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (world_into_aurora, "open but not declared: NAT instance → Aurora, tcp 5432, within the VPC"),
        (more_ports_from_the_bastion, "open but not declared: bastion → Aurora, tcp 22-5432, within the VPC"),
        (emr_lets_everything_out, "emr:PrimarySecurityGroup: lets everything out"),
        (emr_reaches_port_80, "open but not declared: EMR core → internet, tcp 80, NAT instance"),
        (any_port_of_the_brokers, "open but not declared: sink connector → MSK, tcp any, within the VPC"),
        (brokers_reach_out, "open but not declared: MSK → internet, all, NAT instance"),
        # EC2 lets everything out of a group for which no rule says what may leave.
        (core_without_a_rule_of_its_own_for_what_leaves, "open but not declared: sink connector → internet, all"),
    ],
)
def test_a_flow_that_nobody_declared_is_named(
    dev: Synthesized, change: Callable[[Templates], None], named: str
) -> None:
    changed = templates(dev)
    change(changed)
    assert [finding for finding in findings_of(dev, changed) if finding.startswith(named)]


def test_a_component_that_is_gone_or_new_is_named(dev: Synthesized) -> None:
    changed = templates(dev)
    network = changed["headwater-dev-network"]["Resources"]
    (bastion,) = [name for name in network if name.startswith("Bastion") and network[name]["Type"] == INSTANCE]
    network["Jump"] = network.pop(bastion)
    for output in changed["headwater-dev-network"]["Outputs"].values():
        if "Export" not in output:
            output["Value"] = "unknown"
    names = findings_of(dev, changed)
    assert "needed flow bastion → Aurora: a component of this name is not there" in names
    assert "open but not declared: network:Jump → Aurora, tcp 5432, within the VPC" in names


def test_a_group_that_nothing_uses_and_a_rule_that_is_not_understood_are_named(dev: Synthesized) -> None:
    changed = templates(dev)
    network = changed["headwater-dev-network"]["Resources"]
    rules = [{"CidrIpv6": "::/0", "IpProtocol": "-1"}]
    group = {"Type": "AWS::EC2::SecurityGroup", "Properties": {"SecurityGroupIngress": rules}}
    network["Odd"] = group
    network["Acl"] = {"Type": "AWS::EC2::NetworkAcl"}
    names = findings_of(dev, changed)
    assert "network:Odd: a security group that no component is in" in names
    assert "network:Acl: AWS::EC2::NetworkAcl is not part of the model of reachability" in names
    assert [name for name in names if name.startswith("network:Odd: a rule whose peer")]


@pytest.mark.parametrize("text", ["tcp", "tcp 443,udp any", "icmp", "all", "tcp 80-90"])
def test_ports_are_read_as_they_are_written(text: str) -> None:
    assert Ports.parse(text) == Ports.parse(str(Ports.parse(text)))


def test_wrong_ports_are_refused() -> None:
    with pytest.raises(UserError, match=r"flows\.yaml: ports: found 'https', expected such as tcp 443"):
        Ports.parse("https")


def test_everything_covers_every_range_and_ranges_meet_in_what_they_share() -> None:
    assert not Ports.parse("tcp 443, udp 53") - Ports.parse("all")
    assert Ports.parse("tcp 80-443") & Ports.parse("tcp 443-500, udp 443") == Ports.parse("tcp 443")
    assert Ports.parse("all") & Ports.parse("tcp 22") == Ports.parse("tcp 22")
    assert Ports.parse("tcp 80-90") - Ports.parse("tcp 80-85") == Ports.parse("tcp 80-90")
