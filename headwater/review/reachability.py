"""Finds which components of a deployment can reach each other, from the templates alone.

The model knows subnets with their routes, NAT, gateway and interface endpoints, peerings, and security groups. It reads
the rules in the groups and the rules that are resources. Every resource that names a security group is a component. A
flow is open if the source's groups let it out and the destination's groups let it in. Beyond the VPC, a route must lead
there too.

In another VPC's groups the model knows only the rules that the templates add. For a network without a route in the
templates, it knows only whether the source's groups let a flow out. Anything else (network ACLs, IPv6) becomes a
finding.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, NamedTuple

from headwater.environment.model import WEB_APPLICATIONS
from headwater.errors import UserError
from headwater.review.templates import Deployment, Resource
from headwater.yaml_files import load_yaml

FLOWS = Path(__file__).with_name("flows.yaml")
INTERNET = "internet"
BEYOND = "beyond the VPC"
"""Another VPC behind a peering, and networks outside the VPC that rules name."""

_WORLD = IPv4Network("0.0.0.0/0")
_NOWHERE = IPv4Network("255.255.255.255/32")
_SERVICE_KINDS = ("service", "endpoint")
_AURORA = "Aurora"
_REFERENCE = re.compile(r"\$\{([^.{}]+)\.([^.{}]+)(?:\.[^{}]*)?\}")
_INGRESS, _EGRESS = "AWS::EC2::SecurityGroupIngress", "AWS::EC2::SecurityGroupEgress"
# Resources of these types name groups and subnets, but are not in them.
_NOT_PLACED = (
    _INGRESS,
    _EGRESS,
    "AWS::EC2::SecurityGroup",
    "AWS::EC2::Route",
    "AWS::EC2::SubnetRouteTableAssociation",
    "AWS::EC2::NatGateway",
    "AWS::RDS::DBSubnetGroup",
)
_UNKNOWN_TYPES = (
    "AWS::EC2::NetworkAcl",
    "AWS::EC2::TransitGatewayAttachment",
    "AWS::EC2::VPCCidrBlock",
    "AWS::EC2::EgressOnlyInternetGateway",
)
_EMR_GROUPS = {
    "primary": "EmrManagedMasterSecurityGroup",
    "core": "EmrManagedSlaveSecurityGroup",
    "service": "ServiceAccessSecurityGroup",
}


class PortRange(NamedTuple):
    """A range of ports."""

    protocol: str
    """The protocol: ``tcp``, ``udp``, another name, or ``all`` for every protocol."""
    first: int
    """The first port."""
    last: int
    """The last port."""

    def covers(self, inner: PortRange) -> bool:
        """Whether all ports of another range are among these."""
        return self.protocol in ("all", inner.protocol) and self.first <= inner.first and inner.last <= self.last

    def shared(self, other: PortRange) -> PortRange | None:
        """The ports that are in both ranges; None if there are none."""
        protocol = other.protocol if self.protocol == "all" else self.protocol
        first, last = max(self.first, other.first), min(self.last, other.last)
        meets = other.protocol in ("all", protocol) and first <= last
        return PortRange(protocol, first, last) if meets else None

    def __str__(self) -> str:
        if self.protocol not in ("tcp", "udp"):
            return self.protocol
        if (self.first, self.last) == (0, 65535):
            return f"{self.protocol} any"
        ports = str(self.first) if self.first == self.last else f"{self.first}-{self.last}"
        return f"{self.protocol} {ports}"


@dataclass(frozen=True)
class Ports:
    """A set of ports."""

    ranges: frozenset[PortRange] = frozenset()
    """The ranges of the set. They may overlap."""

    @classmethod
    def of(cls, protocol: str, first: int = 0, last: int = 65535) -> Ports:
        """A set of one range. Only TCP and UDP have ports; any other protocol is open as a whole."""
        has_ports = protocol in ("tcp", "udp")
        return cls(frozenset({PortRange(protocol, first, last) if has_ports else PortRange(protocol, 0, 65535)}))

    @classmethod
    def parse(cls, text: str) -> Ports:
        """Read ports, such as ``tcp 443``, ``tcp 8000-9000``, ``udp any`` or ``all``, with commas between several.

        Raises UserError.
        """
        ranges: set[PortRange] = set()
        for part in text.split(","):
            match = re.fullmatch(r"\s*(all|icmp|tcp|udp)(?: (any|\d+)(?:-(\d+))?)?\s*", part)
            if match is None:
                raise UserError(
                    f"{FLOWS}: ports: found {part!r}, expected such as tcp 443, tcp 8000-9000, udp any, all"
                )
            protocol, first, last = match.groups()
            if first in (None, "any"):
                ranges |= cls.of(protocol).ranges
            else:
                ranges |= cls.of(protocol, int(first), int(last or first)).ranges
        return cls(frozenset(ranges))

    def __and__(self, other: Ports) -> Ports:
        shared = {ours.shared(theirs) for ours in self.ranges for theirs in other.ranges}
        return Ports(frozenset(range_ for range_ in shared if range_ is not None)).simplified()

    def __or__(self, other: Ports) -> Ports:
        return Ports(self.ranges | other.ranges).simplified()

    def __sub__(self, other: Ports) -> Ports:
        """The ranges that no single range of the other covers."""
        return Ports(frozenset(ours for ours in self.ranges if not any(theirs.covers(ours) for theirs in other.ranges)))

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __str__(self) -> str:
        return ", ".join(map(str, sorted(self.ranges))) or "none"

    def simplified(self) -> Ports:
        """The same ports without the ranges that another range covers."""
        return Ports(
            frozenset(
                range_
                for range_ in self.ranges
                if not any(wider.covers(range_) and wider != range_ for wider in self.ranges)
            )
        )


ALL_PORTS = Ports.of("all")
HTTPS = Ports.of("tcp", 443, 443)


@dataclass(frozen=True)
class Rule:
    """A rule of a security group."""

    peer: str | IPv4Network
    """The other side: a network, or the key of another security group."""
    ports: Ports
    """The ports that the rule opens."""


@dataclass(frozen=True)
class Component:
    """A component: a resource with an address in the VPC."""

    name: str
    """The component's name in ``flows.yaml``."""
    place: str
    """The place of its resource."""
    groups: tuple[str, ...]
    """The keys of its security groups."""
    subnets: tuple[str, ...]
    """The keys of its subnets."""
    public: bool = False
    """Whether it has a public IP address."""


@dataclass(frozen=True)
class Flow:
    """A connection that routes, endpoints and security groups let through."""

    source: str
    """The name of the source."""
    destination: str
    """The name of the destination."""
    ports: Ports
    """The ports that are open between at least one pair of subnets."""
    surely: Ports
    """The ports that are open between all pairs of subnets."""
    way: str
    """The way of the flow, such as an endpoint or the internet."""


@dataclass(frozen=True)
class Declared:
    """A flow as ``flows.yaml`` declares it."""

    source: str
    """The name of the source; ``*`` stands for any text."""
    destination: str
    """The name of the destination; ``*`` stands for any text."""
    kind: str
    """The kind of the destination:

    - ``to``: a component.
    - ``service``: an AWS service, by its endpoint or the internet.
    - ``endpoint``: an AWS service, by its endpoint only.
    - ``database``: the port of an existing database; the declaration has no ports of its own.
    """
    ports: Ports
    """The declared ports."""
    reason: str
    """Why the flow is needed or tolerated."""

    def fits(self, flow: Flow) -> bool:
        """Whether the declaration is about this flow.

        ``*`` in a name stands for any text. As a source it does not stand for networks outside the VPC.
        """
        comes_from_outside = flow.source in (INTERNET, BEYOND) and flow.source != self.source
        return not comes_from_outside and _like(self.source, flow.source) and _like(self.destination, flow.destination)


@dataclass(frozen=True)
class Declarations:
    """The content of ``flows.yaml``."""

    names: Mapping[str, str]
    """Names of components by place."""
    needed: Sequence[Declared]
    """Flows that must be open."""
    tolerated: Sequence[Declared]
    """Flows that may be open."""
    databases: Mapping[str, Sequence[Declared]] = field(default_factory=dict)
    """Further flows that must be open, by the kind of the database."""
    web_interfaces: Sequence[Declared] = ()
    """Further flows that must be open if the EMR cluster has web interfaces. Without them they must be closed."""

    def needed_by(self, network: Network) -> list[Declared]:
        """The flows that must be open in a network; none if it has no components, as in a lake without PostgreSQL."""
        if not network.components:
            return []
        has_aurora = any(component.name == _AURORA for component in network.components)
        needed = [*self.needed, *self.databases.get("aurora" if has_aurora else "existing", ())]
        return [*needed, *self.web_interfaces] if network.has_web_interfaces else needed


def declarations(path: Path = FLOWS) -> Declarations:
    """Read the declared flows. Raises UserError naming file, field, found and expected."""
    document = load_yaml(path.read_text(encoding="utf-8"), str(path))
    return Declarations(
        document["components"],
        [_declared(path, "needed", entry) for entry in document["needed"]],
        [_declared(path, "tolerated", entry) for entry in document["tolerated"]],
        {
            kind: [_declared(path, f"databases.{kind}", entry) for entry in entries]
            for kind, entries in document["databases"].items()
        },
        [_declared(path, "web_interfaces", entry) for entry in document["web_interfaces"]],
    )


def _declared(path: Path, part: str, entry: Mapping[str, str]) -> Declared:
    kind = next((kind for kind in (*_SERVICE_KINDS, "database") if kind in entry), "to")
    fields = {"from", kind, "reason"} | ({"ports"} if kind == "to" else set())
    if set(entry) != fields:
        found, expected = ", ".join(sorted(entry)), ", ".join(sorted(fields))
        raise UserError(f"{path}: {part}: found an entry with {found}, expected {expected}")
    ports = Ports.parse(entry["ports"]) if kind == "to" else Ports() if kind == "database" else HTTPS
    return Declared(entry["from"], entry[kind], kind, ports, entry["reason"])


@dataclass
class Network:
    """The network of a deployment."""

    deployment: Deployment
    """The deployment."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Names for components, by their place."""

    def __post_init__(self) -> None:
        self.problems = list(self._unknown())
        self._subnets = {subnet.key: subnet for subnet in self.deployment.resources("AWS::EC2::Subnet")}
        self._groups = {group.key: group for group in self.deployment.resources("AWS::EC2::SecurityGroup")}
        self._peered: dict[str, list[tuple[IPv4Network, str]]] = {}
        self._routes = self._read_routes()
        self._tables = {
            _key(association.properties["SubnetId"]): _key(association.properties["RouteTableId"])
            for association in self.deployment.resources("AWS::EC2::SubnetRouteTableAssociation")
        }
        self._ingress, self._egress = self._read_rules()
        self._foreign = self._read_foreign_groups()
        endpoints = self.deployment.resources("AWS::EC2::VPCEndpoint")
        self._endpoints = {_service(endpoint): endpoint for endpoint in endpoints}
        self.components = self._read_components()

    def flows(self) -> list[Flow]:
        """All open flows, by source and destination."""
        flows = []
        for source in self.components:
            if not source.place.startswith("endpoint:"):
                flows += [self._between(source, destination) for destination in self.components]
                flows += [self._to_gateway(source, service) for service in sorted(self._gateways())]
                flows += [self._to_internet(source), self._to_beyond(source)]
        for component in self.components:
            flows += [self._from_internet(component), self._from_beyond(component)]
        return sorted((flow for flow in flows if flow.ports), key=lambda flow: (flow.source, flow.destination))

    @property
    def has_web_interfaces(self) -> bool:
        """Whether an EMR cluster has an application that ``emr.web_interfaces`` adds."""
        applications = [
            application["Name"]
            for cluster in self.deployment.resources("AWS::EMR::Cluster")
            for application in cluster.properties.get("Applications", ())
        ]
        return any(name in WEB_APPLICATIONS for name in applications)

    @property
    def database_port(self) -> Ports:
        """The database's port in the source connector's configuration."""
        configurations = [
            connector.properties["Connector"]["connectorConfiguration"]
            for connector in self.deployment.resources("Custom::HeadwaterConnector")
        ]
        numbers = [int(each["database.port"]) for each in configurations if "database.port" in each]
        return Ports(frozenset(PortRange("tcp", number, number) for number in numbers))

    def to_service(self, source: str, service: str) -> Flow:
        """Return the flow from a component to an AWS service. A closed flow has no ports.

        The flow goes through the endpoint that takes over the service's name, else through a gateway endpoint, else by
        the internet.
        """
        (component,) = [component for component in self.components if component.name == source]
        endpoint = self._endpoints.get(service)
        if endpoint is not None and endpoint.properties.get("PrivateDnsEnabled"):
            place = f"endpoint:{service}"
            (destination,) = [component for component in self.components if component.place == place]
            return self._between(component, destination)
        if endpoint is not None and service in self._gateways():
            flow = self._to_gateway(component, service)
            if flow.surely:
                return flow
        return self._to_internet(component)

    # The parts of the network

    def _unknown(self) -> Iterator[str]:
        for resource in self.deployment.resources(*_UNKNOWN_TYPES):
            yield f"{resource.place}: {resource.type} is not part of the model of reachability"

    def _read_components(self) -> list[Component]:
        components: list[Component] = []
        for resource in self.deployment.resources():
            if resource.type not in _NOT_PLACED and not resource.type.startswith("AWS::IAM::"):
                components += self._components_of(resource)
        unused = set(self._groups) - {group for component in components for group in component.groups}
        self.problems += [f"{self._groups[key].place}: a security group that no component is in" for key in unused]
        return sorted(components, key=lambda component: component.name)

    def _components_of(self, resource: Resource) -> Iterator[Component]:
        if resource.type == "AWS::EMR::Cluster":
            instances = resource.properties["Instances"]
            for part, property_ in _EMR_GROUPS.items():
                yield self._component(resource, f"/{part}", [instances[property_]], [instances["Ec2SubnetId"]])
            return
        names_a_group = any(key in self._groups for key in _mentions(resource.properties))
        if resource.type == "AWS::EC2::Instance" or names_a_group:
            yield self._component(resource, "", [resource.properties], [resource.properties])

    def _component(self, resource: Resource, part: str, groups: Any, subnets: Any) -> Component:
        if resource.type == "AWS::EC2::VPCEndpoint":
            place, default_name = f"endpoint:{_service(resource)}", f"{_service(resource)} endpoint"
        else:
            place = default_name = f"{resource.place}{part}"
        mentioned = list(_mentions(subnets))
        for group in self.deployment.resources("AWS::RDS::DBSubnetGroup"):
            if group.key in mentioned:
                mentioned += _mentions(group.properties)
        placed = tuple(sorted({key for key in mentioned if key in self._subnets}))
        if not placed:
            self.problems.append(f"{resource.place}: has a security group but no subnet that the model can see")
        interfaces = resource.properties.get("NetworkInterfaces", [])
        return Component(
            self.names.get(place, default_name),
            place,
            tuple(sorted({key for key in _mentions(groups) if key in self._groups})),
            placed,
            any(interface.get("AssociatePublicIpAddress") for interface in interfaces)
            or any(self._subnets[key].properties.get("MapPublicIpOnLaunch") for key in placed),
        )

    def _read_routes(self) -> dict[str, tuple[str, str]]:
        """Return the target of each route table's default route, as kind and key, by the table's key.

        It stores routes to a peering separately, also those in another VPC's tables.
        """
        routes = {}
        for route in self.deployment.resources("AWS::EC2::Route"):
            targets = {name: route.properties[name] for name in route.properties if name.endswith("Id")}
            table = _key(targets.pop("RouteTableId"))
            if list(targets) == ["VpcPeeringConnectionId"]:
                destination = IPv4Network(route.properties["DestinationCidrBlock"])
                self._peered.setdefault(table, []).append((destination, _key(targets["VpcPeeringConnectionId"])))
                continue
            if route.properties.get("DestinationCidrBlock") != str(_WORLD) or len(targets) != 1:
                self.problems.append(f"{route.place}: a route that the model does not know")
                continue
            ((kind, target),) = targets.items()
            routes[table] = (kind, _key(target))
        return routes

    def _read_rules(self) -> tuple[dict[str, list[Rule]], dict[str, list[Rule]]]:
        ingress: dict[str, list[Rule]] = {}
        egress: dict[str, list[Rule]] = {}
        for key, group in self._groups.items():
            inline = group.properties.get("SecurityGroupIngress", [])
            ingress[key] = list(self._rules(group, [*inline, *self._rule_resources(_INGRESS, key)], "Source"))
            # EC2 gives a new group a rule that lets everything out, unless the template states one of its own.
            inline = group.properties.get("SecurityGroupEgress", [{"CidrIp": str(_WORLD), "IpProtocol": "-1"}])
            resources = self._rule_resources(_EGRESS, key)
            if resources:
                # CloudFormation takes such a rule away before it adds the first rule that is a resource.
                narrow = [rule for rule in inline if (rule.get("CidrIp"), rule["IpProtocol"]) != (str(_WORLD), "-1")]
                if narrow != inline and "SecurityGroupEgress" in group.properties:
                    self.problems.append(
                        f"{group.place}: lets everything out, until CloudFormation adds a rule that is a resource"
                    )
                inline = narrow
            egress[key] = list(self._rules(group, [*inline, *resources], "Destination"))
        return ingress, egress

    def _read_foreign_groups(self) -> dict[str, list[Rule]]:
        """The rules that the templates add to another VPC's groups, by the group's id."""
        foreign: dict[str, list[Rule]] = {}
        for type_, side in ((_INGRESS, "Source"), (_EGRESS, "Destination")):
            for rule in self.deployment.resources(type_):
                group = _key(rule.properties["GroupId"])
                if group in self._groups:
                    continue
                if type_ == _EGRESS:
                    self.problems.append(f"{rule.place}: a rule of another VPC's group that the model does not know")
                foreign.setdefault(group, []).extend(self._rules(rule, [rule.properties], side))
        return foreign

    def _rule_resources(self, type_: str, group: str) -> list[Mapping[str, Any]]:
        """The properties of a group's rules that are resources."""
        rules = self.deployment.resources(type_)
        return [rule.properties for rule in rules if _key(rule.properties["GroupId"]) == group]

    def _rules(self, group: Resource, rules: Iterable[Mapping[str, Any]], side: str) -> Iterator[Rule]:
        for rule in rules:
            protocol = {"-1": "all", "1": "icmp", "6": "tcp", "17": "udp"}.get(
                str(rule["IpProtocol"]), str(rule["IpProtocol"])
            )
            first, last = int(rule.get("FromPort", 0)), int(rule.get("ToPort", 65535))
            ports = Ports.of(protocol, max(first, 0), last)
            if f"{side}SecurityGroupId" in rule:
                yield Rule(_key(rule[f"{side}SecurityGroupId"]), ports)
            elif "CidrIp" in rule:
                if (network := IPv4Network(rule["CidrIp"])) != _NOWHERE:
                    yield Rule(network, ports)
            else:
                self.problems.append(f"{group.place}: a rule whose peer the model does not know: {dict(rule)}")

    def _gateways(self) -> list[str]:
        return [
            service
            for service, endpoint in self._endpoints.items()
            if endpoint.properties["VpcEndpointType"] == "Gateway"
        ]

    # The open flows

    def _network(self, subnet: str) -> IPv4Network:
        return IPv4Network(self._subnets[subnet].properties["CidrBlock"])

    def _let(self, rules: Mapping[str, list[Rule]], component: Component, peer: Component, subnet: str) -> Ports:
        """The ports that a component's rules let pass to or from a peer in one of the peer's subnets."""
        ports = Ports()
        for group in component.groups:
            for rule in rules[group]:
                network = isinstance(rule.peer, IPv4Network) and rule.peer.overlaps(self._network(subnet))
                if network or rule.peer in peer.groups:
                    ports |= rule.ports
        return ports

    def _let_out(self, component: Component) -> Ports:
        """The ports that a component's rules let out to addresses beyond the VPC."""
        ports = Ports()
        for group in component.groups:
            for rule in self._egress[group]:
                if isinstance(rule.peer, IPv4Network) and not rule.peer.is_private and not self._is_beyond(rule.peer):
                    ports |= rule.ports
        return ports

    def _is_beyond(self, network: IPv4Network) -> bool:
        """Whether no address of a network is in the VPC's subnets."""
        return not any(network.overlaps(self._network(subnet)) for subnet in self._subnets)

    def _between(self, source: Component, destination: Component) -> Flow:
        ports_by_pair = [
            self._let(self._egress, source, destination, there) & self._let(self._ingress, destination, source, here)
            for here in source.subnets
            for there in destination.subnets
        ]
        return _flow(source.name, destination.name, ports_by_pair, "within the VPC")

    def _to_beyond(self, source: Component) -> Flow:
        """The flow from the source to another VPC's groups by a peering, and to networks that its rules name."""
        rules = [rule for group in source.groups for rule in self._egress[group]]
        peered = [network for routes in self._peered.values() for network, _ in routes]
        named = Ports()
        for rule in rules:
            if isinstance(rule.peer, IPv4Network) and self._is_beyond(rule.peer):
                named |= Ports() if any(map(rule.peer.subnet_of, peered)) else rule.ports
        ports_by_subnet = [named | self._to_peered(source, rules, subnet) for subnet in source.subnets]
        return _flow(source.name, BEYOND, ports_by_subnet, "its owner's way" if named else "peering")

    def _to_peered(self, source: Component, rules: Sequence[Rule], subnet: str) -> Ports:
        """The ports of another VPC's groups that the source's rules reach from one of its subnets."""
        ports = Ports()
        for network, peering in self._peered.get(self._tables.get(subnet, ""), []):
            if not self._leads_back(peering, subnet):
                continue
            for group, let_in in self._foreign.items():
                out, into = Ports(), Ports()
                for rule in rules:
                    named = isinstance(rule.peer, IPv4Network) and rule.peer.overlaps(network)
                    out |= rule.ports if named or rule.peer == group else Ports()
                for rule in let_in:
                    named = isinstance(rule.peer, IPv4Network) and rule.peer.overlaps(self._network(subnet))
                    into |= rule.ports if named or rule.peer in source.groups else Ports()
                ports |= out & into
        return ports

    def _leads_back(self, peering: str, subnet: str) -> bool:
        """Whether each route table of another VPC that has a route to the peering has one back to the subnet."""
        tables = [
            [network for network, way in routes if way == peering]
            for table, routes in self._peered.items()
            if table not in self._tables.values()
        ]
        back = [any(map(self._network(subnet).subnet_of, networks)) for networks in tables if networks]
        return bool(back) and all(back)

    def _from_beyond(self, component: Component) -> Flow:
        """The flow to a component from another VPC by a peering, and from networks that its rules name."""
        ports_by_subnet = []
        for subnet in component.subnets:
            peered = [network for network, _ in self._peered.get(self._tables.get(subnet, ""), [])]
            ports = Ports()
            for rule in (rule for group in component.groups for rule in self._ingress[group]):
                if isinstance(rule.peer, IPv4Network):
                    comes = self._is_beyond(rule.peer) or any(map(rule.peer.overlaps, peered))
                else:
                    comes = rule.peer not in self._groups
                ports |= rule.ports if comes else Ports()
            ports_by_subnet.append(ports)
        return _flow(BEYOND, component.name, ports_by_subnet, "peering" if self._peered else "its owner's way")

    def _to_gateway(self, source: Component, service: str) -> Flow:
        tables = {_key(table) for table in self._endpoints[service].properties["RouteTableIds"]}
        out = self._let_out(source) & HTTPS
        ports_by_subnet = [out if self._tables.get(subnet) in tables else Ports() for subnet in source.subnets]
        return _flow(source.name, service, ports_by_subnet, "gateway endpoint")

    def _to_internet(self, source: Component) -> Flow:
        ways = {subnet: self._way_out(source, subnet) for subnet in source.subnets}
        kinds = sorted({kind for kind, _ in ways.values() if kind})
        ports_by_subnet = [ports & self._let_out(source) for _, ports in ways.values()]
        return _flow(source.name, INTERNET, ports_by_subnet, " or ".join(kinds))

    def _way_out(self, source: Component, subnet: str) -> tuple[str, Ports]:
        """The way on which a subnet reaches the internet, and the ports that get through."""
        kind, target = self._routes.get(self._tables.get(subnet, ""), ("", ""))
        if kind == "GatewayId":
            return "internet gateway", ALL_PORTS if source.public else Ports()
        if kind == "NatGatewayId":
            return "NAT gateway", ALL_PORTS
        if kind == "InstanceId":
            (nat,) = [component for component in self.components if self._is_at(component, target)]
            let_in = self._let(self._ingress, nat, source, subnet)
            return "NAT instance", let_in & self._let_out(nat)
        return "", Ports()

    def _is_at(self, component: Component, key: str) -> bool:
        stack, _, name = key.partition(".")
        return component.place == self.deployment.resource(stack, name).place

    def _from_internet(self, component: Component) -> Flow:
        ports_by_subnet = []
        for subnet in component.subnets:
            kind, _ = self._routes.get(self._tables.get(subnet, ""), ("", ""))
            ports = Ports()
            if kind == "GatewayId" and component.public:
                for group in component.groups:
                    for rule in self._ingress[group]:
                        if isinstance(rule.peer, IPv4Network) and not rule.peer.is_private:
                            ports |= rule.ports
            ports_by_subnet.append(ports)
        return _flow(INTERNET, component.name, ports_by_subnet, "internet gateway")


def findings(network: Network, declared: Declarations) -> list[str]:
    """Return the findings: closed flows that are needed, open flows that nobody declared, and gaps of the model.

    A finding about a flow names source, destination and ports.
    """
    problems = list(network.problems)
    names = {component.name for component in network.components}
    flows = network.flows()
    by_ends = {(flow.source, flow.destination): flow for flow in flows}
    allowed: dict[tuple[str, str], Ports] = {}
    # Needed flows must be open on all needed ports, by the declared way.
    for needed in declared.needed_by(network):
        needed_ports = network.database_port if needed.kind == "database" else needed.ports
        ends = f"{needed.source} → {needed.destination}"
        if needed.source not in names or (needed.kind == "to" and needed.destination not in {*names, INTERNET}):
            problems.append(f"needed flow {ends}: a component of this name is not there")
            continue
        if not needed_ports:
            problems.append(f"needed flow {ends}: no connector's configuration names database.port")
            continue
        flow = (
            network.to_service(needed.source, needed.destination)
            if needed.kind in _SERVICE_KINDS
            else by_ends.get((needed.source, needed.destination))
        )
        open_ports = flow.surely if flow is not None else Ports()
        if missing := needed_ports - open_ports:
            problems.append(f"closed: {ends}, {missing}, needed: {needed.reason}")
        elif flow is not None and needed.kind == "endpoint" and flow.destination == INTERNET:
            problems.append(f"by {flow.way}, not by an endpoint: {ends}, needed: {needed.reason}")
        elif flow is not None:
            taken = (flow.source, flow.destination)
            allowed[taken] = allowed.get(taken, Ports()) | needed_ports
    # Open ports must be needed or tolerated.
    for flow in flows:
        ports = allowed.get((flow.source, flow.destination), Ports())
        for tolerated in declared.tolerated:
            if tolerated.fits(flow):
                ports |= tolerated.ports
        if extra := flow.ports - ports:
            problems.append(f"open but not declared: {flow.source} → {flow.destination}, {extra}, {flow.way}")
    return problems


def table(networks: Mapping[str, Network]) -> str:
    """All allowed flows of the environments as a Markdown table."""
    rows: dict[tuple[str, str, str, str], list[str]] = {}
    for environment, network in sorted(networks.items()):
        for flow in network.flows():
            ports = str(flow.ports) if flow.ports == flow.surely else f"{flow.ports} (some subnets only)"
            rows.setdefault((flow.source, flow.destination, ports, flow.way), []).append(environment)
    lines = ["| from | to | ports | by way of | environments |", "|---|---|---|---|---|"]
    for (source, destination, ports, way), where in sorted(rows.items()):
        lines.append(f"| {source} | {destination} | {ports} | {way} | {', '.join(where)} |")
    return "\n".join(lines) + "\n"


def _flow(source: str, destination: str, open_ports: Sequence[Ports], way: str) -> Flow:
    """Return one flow for several subnets, or pairs of subnets, that each let some ports through."""
    some, every = Ports(), open_ports[0] if open_ports else Ports()
    for ports in open_ports:
        some |= ports
        every &= ports
    return Flow(source, destination, some, every, way)


def _mentions(value: Any) -> Iterator[str]:
    """The keys of all resources that a resolved value refers to."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _mentions(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _mentions(item)
    elif isinstance(value, str):
        for stack, name in _REFERENCE.findall(value):
            yield f"{stack}.{name}"


def _key(reference: str) -> str:
    """The key of the resource that a placeholder stands for."""
    match = _REFERENCE.fullmatch(reference)
    return f"{match.group(1)}.{match.group(2)}" if match is not None else reference


def _service(endpoint: Resource) -> str:
    return str(endpoint.properties["ServiceName"]).rpartition(".")[2]


def _like(pattern: str, name: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), name) is not None
