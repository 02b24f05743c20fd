"""Who can reach whom, from the templates alone.

The model knows subnets with their routes, NAT, gateway and interface endpoints, and security groups with inline rules
and rules of their own. Everything that names a security group is a component. A flow is open where the source's groups
let it out, the destination's let it in, and, beyond the VPC, a route leads there. What the model does not know (network
ACLs, IPv6, peering) is a finding, never passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from headwater.deployment.templates import Deployment, Resource
from headwater.errors import UserError
from headwater.yaml_files import load_yaml

FLOWS = Path(__file__).with_name("flows.yaml")
INTERNET = "internet"

_WORLD = IPv4Network("0.0.0.0/0")
_NOWHERE = IPv4Network("255.255.255.255/32")
_SERVICE_KINDS = ("service", "endpoint")
_REFERENCE = re.compile(r"\$\{([^.{}]+)\.([^.{}]+)(?:\.[^{}]*)?\}")
_RULES = ("AWS::EC2::SecurityGroupIngress", "AWS::EC2::SecurityGroupEgress")
# These name groups and subnets without being in them.
_NOT_PLACED = (
    *_RULES,
    "AWS::EC2::SecurityGroup",
    "AWS::EC2::Route",
    "AWS::EC2::SubnetRouteTableAssociation",
    "AWS::EC2::NatGateway",
    "AWS::RDS::DBSubnetGroup",
)
_UNKNOWN_TYPES = (
    "AWS::EC2::NetworkAcl",
    "AWS::EC2::VPCPeeringConnection",
    "AWS::EC2::TransitGatewayAttachment",
    "AWS::EC2::VPCCidrBlock",
    "AWS::EC2::EgressOnlyInternetGateway",
)
_EMR_GROUPS = {
    "primary": "EmrManagedMasterSecurityGroup",
    "core": "EmrManagedSlaveSecurityGroup",
    "service": "ServiceAccessSecurityGroup",
}


@dataclass(frozen=True)
class Ports:
    """A set of ports: ranges of (protocol, first, last), ``all`` being every protocol and port."""

    ranges: frozenset[tuple[str, int, int]] = frozenset()

    @classmethod
    def of(cls, protocol: str, first: int = 0, last: int = 65535) -> Ports:
        """One range. Protocols but TCP and UDP have no ports."""
        ported = protocol in ("tcp", "udp")
        return cls(frozenset({(protocol, first, last) if ported else (protocol, 0, 65535)}))

    @classmethod
    def parse(cls, text: str) -> Ports:
        """Read ``tcp 443``, ``tcp 8000-9000``, ``udp any``, ``icmp``, ``all``, or several of them between commas.
        Raises UserError."""
        ranges: set[tuple[str, int, int]] = set()
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
        found = set()
        for one, first, last in self.ranges:
            for two, low, high in other.ranges:
                protocol = two if one == "all" else one
                if two in ("all", protocol) and max(first, low) <= min(last, high):
                    found.add((protocol, max(first, low), min(last, high)))
        return Ports(frozenset(found)).simplified()

    def __or__(self, other: Ports) -> Ports:
        return Ports(self.ranges | other.ranges).simplified()

    def __sub__(self, other: Ports) -> Ports:
        """Those ranges that no single range of the other covers."""
        return Ports(frozenset(one for one in self.ranges if not any(_covers(two, one) for two in other.ranges)))

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __str__(self) -> str:
        return ", ".join(self._words(*one) for one in sorted(self.ranges)) or "none"

    def simplified(self) -> Ports:
        """The same without ranges that another covers."""
        kept = [one for one in self.ranges if not any(_covers(two, one) and two != one for two in self.ranges)]
        return Ports(frozenset(kept))

    @staticmethod
    def _words(protocol: str, first: int, last: int) -> str:
        if protocol not in ("tcp", "udp"):
            return protocol
        if (first, last) == (0, 65535):
            return f"{protocol} any"
        return f"{protocol} {first}" if first == last else f"{protocol} {first}-{last}"


def _covers(one: tuple[str, int, int], other: tuple[str, int, int]) -> bool:
    return one[0] in ("all", other[0]) and one[1] <= other[1] and other[2] <= one[2]


ALL_PORTS = Ports.of("all")
HTTPS = Ports.of("tcp", 443, 443)


@dataclass(frozen=True)
class Rule:
    """A security group's rule: a peer, which is a group's placeholder or a network, and the ports."""

    peer: str | IPv4Network
    ports: Ports


@dataclass(frozen=True)
class Component:
    """Something with an address in the VPC. ``place`` is where its resource stands, ``groups`` and ``subnets`` are keys
    of resources."""

    name: str
    place: str
    groups: tuple[str, ...]
    subnets: tuple[str, ...]
    public: bool = False


@dataclass(frozen=True)
class Flow:
    """An open way. ``ports`` are open between some of the subnets, ``surely`` between all of them."""

    source: str
    destination: str
    ports: Ports
    surely: Ports
    way: str


@dataclass(frozen=True)
class Declared:
    """A flow as ``flows.yaml`` declares it. Its destination is a component (``to``), or an AWS service by whichever way
    there is (``service``) or by its endpoint only (``endpoint``)."""

    source: str
    destination: str
    kind: str
    ports: Ports
    reason: str

    def fits(self, flow: Flow) -> bool:
        """Whether the declaration speaks of this flow; ``*`` in a name stands for anything."""
        return _like(self.source, flow.source) and _like(self.destination, flow.destination)


@dataclass(frozen=True)
class Declarations:
    """``flows.yaml``: names of components by place, flows that must be open, and flows that may be."""

    names: Mapping[str, str]
    needed: Sequence[Declared]
    tolerated: Sequence[Declared]


def declarations(path: Path = FLOWS) -> Declarations:
    """Read the declared flows. Raises UserError naming file, field, found and expected."""
    document = load_yaml(path.read_text(encoding="utf-8"), str(path))
    return Declarations(
        document["components"],
        [_declared(path, "needed", one) for one in document["needed"]],
        [_declared(path, "tolerated", one) for one in document["tolerated"]],
    )


def _declared(path: Path, part: str, entry: Mapping[str, str]) -> Declared:
    kind = next((one for one in _SERVICE_KINDS if one in entry), "to")
    wanted = {"from", kind, "reason"} | ({"ports"} if kind == "to" else set())
    if set(entry) != wanted:
        found, expected = ", ".join(sorted(entry)), ", ".join(sorted(wanted))
        raise UserError(f"{path}: {part}: found an entry with {found}, expected {expected}")
    ports = Ports.parse(entry["ports"]) if kind == "to" else HTTPS
    return Declared(entry["from"], entry[kind], kind, ports, entry["reason"])


@dataclass
class Network:
    """The network of a deployment. ``names`` are those of components by place."""

    deployment: Deployment
    names: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.problems = list(self._unknown())
        self._subnets = {one.key: one for one in self.deployment.resources("AWS::EC2::Subnet")}
        self._groups = {one.key: one for one in self.deployment.resources("AWS::EC2::SecurityGroup")}
        self._routes = self._read_routes()
        self._tables = {
            _key(one.properties["SubnetId"]): _key(one.properties["RouteTableId"])
            for one in self.deployment.resources("AWS::EC2::SubnetRouteTableAssociation")
        }
        self._ingress, self._egress = self._read_rules()
        self._endpoints = {_service(one): one for one in self.deployment.resources("AWS::EC2::VPCEndpoint")}
        self.components = self._read_components()

    def flows(self) -> list[Flow]:
        """All open flows, by source and destination."""
        found = []
        for source in self.components:
            if not source.place.startswith("endpoint:"):
                found += [self._between(source, other) for other in self.components]
                found += [self._to_gateway(source, service) for service in sorted(self._gateways())]
                found.append(self._to_internet(source))
        found += [self._from_internet(component) for component in self.components]
        return sorted((flow for flow in found if flow.ports), key=lambda flow: (flow.source, flow.destination))

    def to_service(self, source: str, service: str) -> Flow:
        """The way from a component to an AWS service: through its endpoint where one takes over its name, else by
        the internet. Its ports are empty where it is closed."""
        (component,) = [one for one in self.components if one.name == source]
        endpoint = self._endpoints.get(service)
        if endpoint is not None and endpoint.properties.get("PrivateDnsEnabled"):
            (other,) = [one for one in self.components if one.place == f"endpoint:{service}"]
            return self._between(component, other)
        if endpoint is not None and service in self._gateways():
            flow = self._to_gateway(component, service)
            if flow.surely:
                return flow
        return self._to_internet(component)

    # What there is

    def _unknown(self) -> Iterator[str]:
        for resource in self.deployment.resources(*_UNKNOWN_TYPES):
            yield f"{resource.place}: {resource.type} is not part of the model of reachability"

    def _read_components(self) -> list[Component]:
        found: list[Component] = []
        for resource in self.deployment.resources():
            if resource.type not in _NOT_PLACED and not resource.type.startswith("AWS::IAM::"):
                found += self._components_of(resource)
        unused = set(self._groups) - {group for component in found for group in component.groups}
        self.problems += [f"{self._groups[one].place}: a security group that no component is in" for one in unused]
        return sorted(found, key=lambda component: component.name)

    def _components_of(self, resource: Resource) -> Iterator[Component]:
        if resource.type == "AWS::EMR::Cluster":
            instances = resource.properties["Instances"]
            for part, property_ in _EMR_GROUPS.items():
                yield self._component(resource, f"/{part}", [instances[property_]], [instances["Ec2SubnetId"]])
            return
        mentioned = list(_mentions(resource.properties))
        groups = [one for one in mentioned if one in self._groups]
        if resource.type == "AWS::EC2::Instance" or groups:
            yield self._component(resource, "", [resource.properties], [resource.properties])

    def _component(self, resource: Resource, part: str, groups: Any, subnets: Any) -> Component:
        place = f"{resource.place}{part}"
        default = place
        if resource.type == "AWS::EC2::VPCEndpoint":
            place = f"endpoint:{_service(resource)}"
            default = f"{_service(resource)} endpoint"
        own = list(_mentions(subnets))
        for group in self.deployment.resources("AWS::RDS::DBSubnetGroup"):
            if group.key in own:
                own += _mentions(group.properties)
        placed = tuple(sorted({one for one in own if one in self._subnets}))
        if not placed:
            self.problems.append(f"{resource.place}: has a security group but no subnet that the model can see")
        interfaces = resource.properties.get("NetworkInterfaces", [])
        return Component(
            self.names.get(place, default),
            place,
            tuple(sorted({one for one in _mentions(groups) if one in self._groups})),
            placed,
            any(one.get("AssociatePublicIpAddress") for one in interfaces)
            or any(self._subnets[one].properties.get("MapPublicIpOnLaunch") for one in placed),
        )

    def _read_routes(self) -> dict[str, tuple[str, str]]:
        """Where a route table's default route leads: kind and key."""
        found = {}
        for route in self.deployment.resources("AWS::EC2::Route"):
            targets = {name: route.properties[name] for name in route.properties if name.endswith("Id")}
            table = _key(targets.pop("RouteTableId"))
            if route.properties.get("DestinationCidrBlock") != str(_WORLD) or len(targets) != 1:
                self.problems.append(f"{route.place}: a route that the model does not know")
                continue
            ((kind, target),) = targets.items()
            found[table] = (kind, _key(target))
        return found

    def _read_rules(self) -> tuple[dict[str, list[Rule]], dict[str, list[Rule]]]:
        ingress: dict[str, list[Rule]] = {}
        egress: dict[str, list[Rule]] = {}
        apart = {type_: list(self.deployment.resources(type_)) for type_ in _RULES}
        for key, group in self._groups.items():
            own = [one for one in apart[_RULES[0]] if _key(one.properties["GroupId"]) == key]
            inline = group.properties.get("SecurityGroupIngress", [])
            ingress[key] = list(self._rules(group, [*inline, *(one.properties for one in own)], "Source"))
            own = [one for one in apart[_RULES[1]] if _key(one.properties["GroupId"]) == key]
            # EC2 gives a new group a rule that lets everything out, unless the template states one of its own.
            inline = group.properties.get("SecurityGroupEgress", [{"CidrIp": str(_WORLD), "IpProtocol": "-1"}])
            if own:
                # CloudFormation takes such a rule away before it adds the first rule that is a resource.
                inline = [one for one in inline if (one.get("CidrIp"), one["IpProtocol"]) != (str(_WORLD), "-1")]
            egress[key] = list(self._rules(group, [*inline, *(one.properties for one in own)], "Destination"))
        return ingress, egress

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
        return [name for name, one in self._endpoints.items() if one.properties["VpcEndpointType"] == "Gateway"]

    # What is open

    def _network(self, subnet: str) -> IPv4Network:
        return IPv4Network(self._subnets[subnet].properties["CidrBlock"])

    def _let(self, rules: Mapping[str, list[Rule]], component: Component, other: Component, subnet: str) -> Ports:
        """The ports that a component's rules let pass to or from another, seen at one subnet of the other."""
        ports = Ports()
        for group in component.groups:
            for rule in rules[group]:
                network = isinstance(rule.peer, IPv4Network) and rule.peer.overlaps(self._network(subnet))
                if network or rule.peer in other.groups:
                    ports |= rule.ports
        return ports

    def _let_out(self, component: Component) -> Ports:
        """The ports that a component's rules let out to addresses beyond the VPC."""
        ports = Ports()
        for group in component.groups:
            for rule in self._egress[group]:
                if isinstance(rule.peer, IPv4Network) and not rule.peer.is_private:
                    ports |= rule.ports
        return ports

    def _between(self, source: Component, other: Component) -> Flow:
        pairs = [
            self._let(self._egress, source, other, there) & self._let(self._ingress, other, source, here)
            for here in source.subnets
            for there in other.subnets
        ]
        return _flow(source.name, other.name, pairs, "within the VPC")

    def _to_gateway(self, source: Component, service: str) -> Flow:
        tables = {_key(one) for one in self._endpoints[service].properties["RouteTableIds"]}
        out = self._let_out(source) & HTTPS
        pairs = [out if self._tables.get(subnet) in tables else Ports() for subnet in source.subnets]
        return _flow(source.name, service, pairs, "gateway endpoint")

    def _to_internet(self, source: Component) -> Flow:
        ways = {subnet: self._way_out(source, subnet) for subnet in source.subnets}
        kinds = sorted({kind for kind, _ in ways.values() if kind})
        pairs = [ports & self._let_out(source) for _, ports in ways.values()]
        return _flow(source.name, INTERNET, pairs, " or ".join(kinds))

    def _way_out(self, source: Component, subnet: str) -> tuple[str, Ports]:
        """How a subnet reaches the internet, and which ports get through."""
        kind, target = self._routes.get(self._tables.get(subnet, ""), ("", ""))
        if kind == "GatewayId":
            return "internet gateway", ALL_PORTS if source.public else Ports()
        if kind == "NatGatewayId":
            return "NAT gateway", ALL_PORTS
        if kind == "InstanceId":
            (nat,) = [one for one in self.components if self._is_at(one, target)]
            let_in = self._let(self._ingress, nat, source, subnet)
            return "NAT instance", let_in & self._let_out(nat)
        return "", Ports()

    def _is_at(self, component: Component, key: str) -> bool:
        stack, _, name = key.partition(".")
        return component.place == self.deployment.resource(stack, name).place

    def _from_internet(self, component: Component) -> Flow:
        pairs = []
        for subnet in component.subnets:
            kind, _ = self._routes.get(self._tables.get(subnet, ""), ("", ""))
            ports = Ports()
            if kind == "GatewayId" and component.public:
                for group in component.groups:
                    for rule in self._ingress[group]:
                        if isinstance(rule.peer, IPv4Network) and not rule.peer.is_private:
                            ports |= rule.ports
            pairs.append(ports)
        return _flow(INTERNET, component.name, pairs, "internet gateway")


def findings(network: Network, declared: Declarations) -> list[str]:
    """What is wrong: needed flows that are closed, open flows that nobody declared, and what the model does not know.
    Each names source, destination and ports."""
    found = list(network.problems)
    names = {component.name for component in network.components}
    flows = network.flows()
    by_ends = {(flow.source, flow.destination): flow for flow in flows}
    allowed: dict[tuple[str, str], Ports] = {}
    for one in declared.needed:
        if one.source not in names or (one.kind == "to" and one.destination not in {*names, INTERNET}):
            found.append(f"needed flow {one.source} → {one.destination}: a component of this name is not there")
            continue
        flow = (
            network.to_service(one.source, one.destination)
            if one.kind in _SERVICE_KINDS
            else by_ends.get((one.source, one.destination))
        )
        open_ports = flow.surely if flow is not None else Ports()
        if missing := one.ports - open_ports:
            found.append(f"closed: {one.source} → {one.destination}, {missing}, needed: {one.reason}")
        elif flow is not None and one.kind == "endpoint" and flow.destination == INTERNET:
            found.append(f"by {flow.way}, not by an endpoint: {one.source} → {one.destination}, needed: {one.reason}")
        elif flow is not None:
            ends = (flow.source, flow.destination)
            allowed[ends] = allowed.get(ends, Ports()) | one.ports
    for flow in flows:
        ports = allowed.get((flow.source, flow.destination), Ports())
        for one in declared.tolerated:
            if one.fits(flow):
                ports |= one.ports
        if extra := flow.ports - ports:
            found.append(f"open but not declared: {flow.source} → {flow.destination}, {extra}, {flow.way}")
    return found


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


def _flow(source: str, destination: str, pairs: Sequence[Ports], way: str) -> Flow:
    some, every = Ports(), pairs[0] if pairs else Ports()
    for ports in pairs:
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
