"""The model of a network, from small templates: what lets a flow through, and what stops it."""

from typing import Any

import pytest

from headwater.errors import UserError
from headwater.review.reachability import (
    HTTPS,
    Declarations,
    Declared,
    Flow,
    Network,
    Ports,
    declarations,
    findings,
)
from headwater.review.templates import Deployment

Resources = dict[str, dict[str, Any]]
ANYWHERE = {"CidrIp": "0.0.0.0/0", "IpProtocol": "-1"}


def tcp(port: int, **peer: Any) -> dict[str, Any]:
    return {"IpProtocol": "tcp", "FromPort": port, "ToPort": port, **peer}


def group(ingress: Any = (), egress: Any = ()) -> dict[str, Any]:
    rules = {"SecurityGroupIngress": list(ingress), "SecurityGroupEgress": list(egress)}
    return {"Type": "AWS::EC2::SecurityGroup", "Properties": rules}


def instance(name: str, subnet: str, **more: Any) -> dict[str, Any]:
    place = {"SubnetId": {"Ref": subnet}, "GroupSet": [{"Fn::GetAtt": [name, "GroupId"]}], **more}
    return {"Type": "AWS::EC2::Instance", "Properties": {"NetworkInterfaces": [place]}}


def subnet(cidr: str) -> dict[str, Any]:
    return {"Type": "AWS::EC2::Subnet", "Properties": {"CidrBlock": cidr}}


def network(**more: dict[str, Any]) -> Network:
    """Two instances, ``client`` in subnet ``Work`` and ``server`` in ``Data``, with a group each."""
    resources: Resources = {
        "Work": subnet("10.0.0.0/24"),
        "Data": subnet("10.0.1.0/24"),
        "ClientGroup": group(egress=[tcp(5432, DestinationSecurityGroupId={"Fn::GetAtt": ["ServerGroup", "GroupId"]})]),
        "ServerGroup": group([tcp(5432, SourceSecurityGroupId={"Fn::GetAtt": ["ClientGroup", "GroupId"]})]),
        "Client": instance("ClientGroup", "Work"),
        "Server": instance("ServerGroup", "Data"),
        **more,
    }
    deployment = Deployment({"headwater-dev-net": {"Resources": resources}}, "eu-central-1")
    return Network(deployment, {"net:Client": "client", "net:Server": "server"})


def ports(net: Network, source: str = "client", destination: str = "server") -> str:
    flows = {(flow.source, flow.destination): flow for flow in net.flows()}
    flow = flows.get((source, destination))
    return str(flow.ports) if flow is not None else "closed"


def routed(**route: Any) -> Resources:
    """The client's subnet with a default route, by default to an internet gateway."""
    target = route or {"GatewayId": {"Ref": "Gateway"}}
    return {
        "Gateway": {"Type": "AWS::EC2::InternetGateway"},
        "Table": {"Type": "AWS::EC2::RouteTable"},
        "Join": {
            "Type": "AWS::EC2::SubnetRouteTableAssociation",
            "Properties": {"SubnetId": {"Ref": "Work"}, "RouteTableId": {"Ref": "Table"}},
        },
        "Route": {
            "Type": "AWS::EC2::Route",
            "Properties": {"RouteTableId": {"Ref": "Table"}, "DestinationCidrBlock": "0.0.0.0/0", **target},
        },
    }


def test_a_flow_needs_a_rule_at_both_ends() -> None:
    assert ports(network()) == "tcp 5432"
    assert ports(network(ServerGroup=group())) == "closed"
    assert ports(network(ClientGroup=group(egress=[tcp(22, CidrIp="10.0.1.0/24")]))) == "closed"
    assert ports(network(), "server", "client") == "closed"


@pytest.mark.parametrize(("cidr", "expected"), [("10.0.0.0/16", "tcp 5432"), ("10.0.2.0/24", "closed")])
def test_a_network_lets_in_what_lies_in_it(cidr: str, expected: str) -> None:
    assert ports(network(ServerGroup=group([tcp(5432, CidrIp=cidr)]))) == expected


def test_rules_of_their_own_add_to_a_groups() -> None:
    to = {"GroupId": {"Fn::GetAtt": ["ServerGroup", "GroupId"]}}
    rule = {"Type": "AWS::EC2::SecurityGroupIngress", "Properties": {**tcp(22, CidrIp="10.0.0.0/24"), **to}}
    assert ports(network(Rule=rule, ClientGroup=group(egress=[ANYWHERE]))) == "tcp 22, tcp 5432"


def test_a_group_without_a_rule_for_what_leaves_it_lets_all_out() -> None:
    bare = {"Type": "AWS::EC2::SecurityGroup", "Properties": {}}
    assert ports(network(ClientGroup=bare)) == "tcp 5432"


def test_the_first_rule_of_its_own_takes_the_rule_for_all_away() -> None:
    out = {"GroupId": {"Fn::GetAtt": ["ClientGroup", "GroupId"]}, **tcp(22, CidrIp="10.0.1.0/24")}
    rule = {"Type": "AWS::EC2::SecurityGroupEgress", "Properties": out}
    for own in (group(egress=[ANYWHERE]), {"Type": "AWS::EC2::SecurityGroup", "Properties": {}}):
        assert ports(network(ClientGroup=own, Rule=rule)) == "closed"


def test_the_internet_is_reached_by_a_route_only_and_from_a_public_address() -> None:
    open_ = group(egress=[tcp(443, CidrIp="0.0.0.0/0")])
    assert ports(network(ClientGroup=open_), "client", "internet") == "closed"
    assert ports(network(ClientGroup=open_, **routed()), "client", "internet") == "closed"
    public = instance("ClientGroup", "Work", AssociatePublicIpAddress=True)
    assert ports(network(ClientGroup=open_, Client=public, **routed()), "client", "internet") == "tcp 443"
    gateway = routed(NatGatewayId={"Ref": "Gateway"})
    assert ports(network(ClientGroup=open_, **gateway), "client", "internet") == "tcp 443"


def test_a_private_network_is_not_the_internet() -> None:
    inside = group(egress=[tcp(443, CidrIp="10.0.0.0/8")])
    gateway = routed(NatGatewayId={"Ref": "Gateway"})
    assert ports(network(ClientGroup=inside, **gateway), "client", "internet") == "closed"


def test_a_nat_instance_passes_on_what_its_own_rules_let_through() -> None:
    open_ = group(egress=[ANYWHERE])
    through = routed(InstanceId={"Ref": "Nat"})
    nat = {"Nat": instance("NatGroup", "Data", AssociatePublicIpAddress=True)}
    closed = network(ClientGroup=open_, NatGroup=group(egress=[ANYWHERE]), **nat, **through)
    assert ports(closed, "client", "internet") == "closed"
    own = group([tcp(443, CidrIp="10.0.0.0/24")], [ANYWHERE])
    assert ports(network(ClientGroup=open_, NatGroup=own, **nat, **through), "client", "internet") == "tcp 443"


def test_the_world_comes_in_where_a_public_address_and_a_rule_let_it() -> None:
    public = instance("ClientGroup", "Work", AssociatePublicIpAddress=True)
    open_ = group([tcp(22, CidrIp="0.0.0.0/0")])
    net = network(ClientGroup=open_, Client=public, **routed())
    assert ports(net, "internet", "client") == "tcp 22"
    assert ports(network(ClientGroup=open_, **routed()), "internet", "client") == "closed"


def endpoint(**more: Any) -> dict[str, Any]:
    properties = {
        "ServiceName": "com.amazonaws.eu-central-1.glue",
        "VpcEndpointType": "Interface",
        "PrivateDnsEnabled": True,
        "SubnetIds": [{"Ref": "Work"}],
        "SecurityGroupIds": [{"Fn::GetAtt": ["EndpointGroup", "GroupId"]}],
        **more,
    }
    return {"Type": "AWS::EC2::VPCEndpoint", "Properties": properties}


@pytest.mark.parametrize(
    ("dns", "ingress", "expected"),
    [
        (True, [tcp(443, CidrIp="10.0.0.0/16")], "tcp 443"),
        # Its private name leads to the endpoint, whether that lets in or not.
        (True, [], "none"),
        (False, [], "all"),
    ],
)
def test_a_service_is_reached_by_its_endpoint_where_that_takes_its_name(dns: bool, ingress: Any, expected: str) -> None:
    net = network(
        ClientGroup=group(egress=[ANYWHERE]),
        EndpointGroup=group(ingress),
        Endpoint=endpoint(PrivateDnsEnabled=dns),
        **routed(NatGatewayId={"Ref": "Gateway"}),
    )
    assert str(net.to_service("client", "glue").ports) == expected


def test_a_gateway_endpoint_is_reached_from_the_route_tables_that_have_it() -> None:
    gateway = {"ServiceName": "com.amazonaws.eu-central-1.s3", "VpcEndpointType": "Gateway"}
    for tables, expected in (([{"Ref": "Table"}], "tcp 443"), ([], "none")):
        s3 = {"Type": "AWS::EC2::VPCEndpoint", "Properties": {**gateway, "RouteTableIds": tables}}
        net = network(ClientGroup=group(egress=[ANYWHERE]), S3=s3, **routed())
        assert str(net.to_service("client", "s3").ports) == expected


@pytest.mark.parametrize(
    ("resources", "problem"),
    [
        ({"Odd": group()}, "net:Odd: a security group that no component is in"),
        (
            {"ServerGroup": group([tcp(1, CidrIpv6="::/0")])},
            "net:ServerGroup: a rule whose peer the model does not know",
        ),
        ({"ClientGroup": group(egress=[tcp(1, DestinationPrefixListId="pl")])}, "net:ClientGroup: a rule whose peer"),
        ({"Acl": {"Type": "AWS::EC2::NetworkAcl"}}, "net:Acl: AWS::EC2::NetworkAcl is not part of the model"),
        (
            {
                "Job": {
                    "Type": "Custom::Job",
                    "Properties": {"Groups": [{"Fn::GetAtt": ["ServerGroup", "GroupId"]}]},
                }
            },
            "net:Job: has a security group but no subnet",
        ),
        (
            routed(VpcPeeringConnectionId={"Ref": "Gateway"}, GatewayId="x"),
            "net:Route: a route that the model does not",
        ),
    ],
)
def test_what_the_model_does_not_know_is_a_finding(resources: Resources, problem: str) -> None:
    reported = findings(network(**resources), Declarations({}, [], []))
    assert [finding for finding in reported if finding.startswith(problem)]


def test_declared_flows_are_all_that_may_be_open() -> None:
    flow = Declared("client", "server", "to", Ports.parse("tcp 5432"), "because")
    assert findings(network(), Declarations({}, [flow], [])) == []
    assert findings(network(), Declarations({}, [], [flow])) == []
    assert findings(network(), Declarations({}, [], [])) == [
        "open but not declared: client → server, tcp 5432, within the VPC"
    ]
    more = Declared("client", "server", "to", Ports.parse("tcp 5432, tcp 22"), "because")
    assert findings(network(), Declarations({}, [more], [])) == [
        "closed: client → server, tcp 22, needed: because",
        "open but not declared: client → server, tcp 5432, within the VPC",
    ]


def test_a_star_stands_for_anything() -> None:
    flow = Flow("client", "glue endpoint", HTTPS, HTTPS, "within the VPC")
    assert Declared("*", "* endpoint", "to", HTTPS, "").fits(flow)
    assert not Declared("*", "*gateway", "to", HTTPS, "").fits(flow)


def test_the_declared_flows_are_read_with_their_reasons(tmp_path: Any) -> None:
    assert all(flow.reason for flow in (*declarations().needed, *declarations().tolerated))
    path = tmp_path / "flows.yaml"
    path.write_text("components: {}\nneeded: [{from: a, to: b, reason: c}]\ntolerated: []\n")
    with pytest.raises(
        UserError, match=r"needed: found an entry with from, reason, to, expected from, ports, reason, to"
    ):
        declarations(path)
