"""What an environment costs per month, resource by resource, from its templates and ``prices.yaml``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from headwater.deployment.templates import Deployment, Resource
from headwater.errors import UserError
from headwater.yaml_files import load_yaml

FILE = Path(__file__).with_name("prices.yaml")
HOURS = 730

# What AWS does not charge for, or what is within what it gives for free: the names of things, rights, rules, and what
# runs only while a deployment or an event lasts.
FREE = (
    "AWS::Athena::NamedQuery",
    "AWS::Budgets::Budget",
    "AWS::CDK::Metadata",
    "AWS::EC2::FlowLog",
    "AWS::EC2::InternetGateway",
    "AWS::EC2::LaunchTemplate",
    "AWS::EC2::Route",
    "AWS::EC2::RouteTable",
    "AWS::EC2::SecurityGroup",
    "AWS::EC2::SecurityGroupEgress",
    "AWS::EC2::SecurityGroupIngress",
    "AWS::EC2::Subnet",
    "AWS::EC2::SubnetRouteTableAssociation",
    "AWS::EC2::VPC",
    "AWS::EC2::VPCGatewayAttachment",
    "AWS::EMR::SecurityConfiguration",
    "AWS::Events::Rule",
    "AWS::Glue::Database",
    "AWS::Glue::SecurityConfiguration",
    "AWS::Glue::Table",
    "AWS::IAM::InstanceProfile",
    "AWS::IAM::ManagedPolicy",
    "AWS::IAM::Policy",
    "AWS::IAM::Role",
    "AWS::KMS::Alias",
    "AWS::KafkaConnect::CustomPlugin",
    "AWS::KafkaConnect::WorkerConfiguration",
    "AWS::Lambda::Function",
    "AWS::Lambda::Permission",
    "AWS::MSK::Configuration",
    "AWS::MSK::Topic",
    # QuickSight is paid for by its users.
    "AWS::QuickSight::DataSet",
    "AWS::QuickSight::DataSource",
    "AWS::RDS::DBClusterParameterGroup",
    "AWS::RDS::DBSubnetGroup",
    "AWS::S3::BucketPolicy",
    "AWS::SNS::Subscription",
    "AWS::SNS::Topic",
    "AWS::SNS::TopicPolicy",
    "AWS::SecretsManager::ResourcePolicy",
    "AWS::SecretsManager::RotationSchedule",
    "AWS::SecretsManager::SecretTargetAttachment",
    "AWS::Serverless::Application",
    "AWS::StepFunctions::StateMachine",
    "Custom::AWS",
    "Custom::DynamoDBReplica",
    "Custom::HeadwaterDatabase",
    "Custom::HeadwaterGlueRun",
    "Custom::HeadwaterPublication",
    "Custom::LogRetention",
    "Custom::S3AutoDeleteObjects",
    "Custom::VpcRestrictDefaultSG",
)
_DPUS = {"G.025X": 0.25, "G.1X": 1, "G.2X": 2, "G.4X": 4, "G.8X": 8}

Amount = tuple[str, float, str]
"""What is paid for, how much of it, and the name of its price."""


@dataclass(frozen=True)
class Line:
    """One item of one resource: ``quantity`` units of ``unit`` at ``price`` dollars each."""

    resource: str
    item: str
    quantity: float
    unit: str
    price: float
    estimate: bool

    @property
    def cost(self) -> float:
        """Dollars a month."""
        return self.quantity * self.price


@dataclass(frozen=True)
class Estimate:
    """The month of one environment."""

    environment: str
    region: str
    lines: Sequence[Line]

    @property
    def total(self) -> float:
        """Dollars a month."""
        return sum(line.cost for line in self.lines)

    def by_resource(self) -> dict[str, float]:
        """Dollars a month by resource, the dearest first."""
        costs: dict[str, float] = {}
        for line in self.lines:
            costs[line.resource] = costs.get(line.resource, 0.0) + line.cost
        return dict(sorted(costs.items(), key=lambda entry: (-entry[1], entry[0])))

    def document(self) -> dict[str, Any]:
        """The estimate as JSON: what ``--json`` prints and ``--against`` reads."""
        return {
            "environment": self.environment,
            "region": self.region,
            "prices_of": str(data()["date"]),
            "total": round(self.total, 2),
            "resources": {name: round(cost, 2) for name, cost in self.by_resource().items()},
        }


def estimate(deployment: Deployment, environment: str) -> Estimate:
    """Estimate a deployment. Raises UserError naming every resource type that has no price and is not known to be free,
    and every price that the region lacks."""
    unknown = sorted({one.type for one in deployment.resources() if one.type not in (*FREE, *_PRICED)})
    if unknown:
        raise UserError(
            f"headwater/deployment/cost.py: found {', '.join(unknown)}, expected types with a price or among the free"
        )
    lines = []
    for resource in deployment.resources(*_PRICED):
        for item, quantity, price in _PRICED[resource.type](deployment, resource):
            if quantity:
                lines.append(_line(deployment.region, resource, item, quantity, price))
    return Estimate(environment, deployment.region, lines)


def differences(before: Mapping[str, float], after: Mapping[str, float]) -> list[tuple[str, float, float]]:
    """The resources whose cost differs, with both costs, the greatest difference first; 0 where one is not there."""
    names = {**before, **after}
    # To the cent, as an estimate is kept.
    pairs = [(name, round(before.get(name, 0.0), 2), round(after.get(name, 0.0), 2)) for name in names]
    return sorted((pair for pair in pairs if pair[1] != pair[2]), key=lambda pair: (-abs(pair[2] - pair[1]), pair[0]))


@cache
def data() -> dict[str, Any]:
    """Prices and assumptions as they stand in the file."""
    found: dict[str, Any] = load_yaml(FILE.read_text(encoding="utf-8"), str(FILE))
    return found


def assumed(name: str) -> float:
    """An assumption's value."""
    return float(data()["assumptions"][name]["value"])


def _line(region: str, resource: Resource, item: str, quantity: float, name: str) -> Line:
    price = data()["prices"].get(name)
    if price is None or region not in price:
        where = "no price" if price is None else f"no price in {region}"
        raise UserError(f"{FILE}: {name}: found {where}, expected one, with unit and source, for {resource.place}")
    return Line(resource.place, item, quantity, price["unit"], float(price[region]), bool(price.get("estimate")))


def _nat_gateway(deployment: Deployment, resource: Resource) -> Iterator[Amount]:
    yield "hours", HOURS, "nat_hour"
    yield "traffic", assumed("nat_gb"), "nat_gb"


def _address(deployment: Deployment, resource: Resource) -> Iterator[Amount]:
    yield "public address", HOURS, "public_address_hour"


def _instance(deployment: Deployment, resource: Resource) -> Iterator[Amount]:
    properties = resource.properties
    yield "hours", HOURS, str(properties["InstanceType"])
    sizes = [float(one["Ebs"].get("VolumeSize", assumed("ebs_root_gb"))) for one in _volumes(properties)]
    yield "volumes", sum(sizes or [assumed("ebs_root_gb")]), "ebs_gb_month"
    addresses = [one for one in properties.get("NetworkInterfaces", []) if one.get("AssociatePublicIpAddress")]
    yield "public address", HOURS * len(addresses), "public_address_hour"


def _volumes(properties: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [one for one in properties.get("BlockDeviceMappings", []) if "Ebs" in one]


def _endpoint(deployment: Deployment, resource: Resource) -> Iterator[Amount]:
    zones = (
        len(resource.properties.get("SubnetIds", [])) if resource.properties["VpcEndpointType"] == "Interface" else 0
    )
    yield "hours", HOURS * zones, "endpoint_hour"
    yield "traffic", assumed("endpoint_gb") * zones, "endpoint_gb"


def _database_cluster(deployment: Deployment, resource: Resource) -> Iterator[Amount]:
    scaling = resource.properties["ServerlessV2ScalingConfiguration"]
    least, most = float(scaling["MinCapacity"]), float(scaling["MaxCapacity"])
    own = [one for one in deployment.resources("AWS::RDS::DBInstance") if one.stack == resource.stack]
    busy = assumed("aurora_busy_hours")
    yield "capacity", len(own) * (least * (HOURS - busy) + most * busy), "acu_hour"
    yield "storage", assumed("aurora_gb"), "aurora_gb_month"
    yield "requests", assumed("aurora_million_io"), "aurora_million_io"


def _database_instance(deployment: Deployment, resource: Resource) -> Iterator[Amount]:
    if resource.properties["DBInstanceClass"] != "db.serverless":
        yield "hours", HOURS, str(resource.properties["DBInstanceClass"])


def _kafka(deployment: Deployment, resource: Resource) -> Iterator[Amount]:
    nodes = resource.properties["BrokerNodeGroupInfo"]
    brokers = int(resource.properties["NumberOfBrokerNodes"])
    volume = float(nodes["StorageInfo"]["EBSStorageInfo"]["VolumeSize"])
    yield "brokers", HOURS * brokers, str(nodes["InstanceType"])
    yield "volumes", volume * brokers, "msk_gb_month"
    if resource.properties.get("EnhancedMonitoring") in ("PER_TOPIC_PER_BROKER", "PER_TOPIC_PER_PARTITION"):
        topics = sum(1 for one in deployment.resources("AWS::MSK::Topic") if one.stack == resource.stack)
        yield "metrics", topics * brokers * assumed("metrics_a_topic"), "metric_month"


def _connector(deployment: Deployment, resource: Resource) -> Iterator[Amount]:
    own = resource.properties.get("Connector", resource.properties)
    capacity = _either(_either(own, "capacity"), "provisionedCapacity")
    units = int(_either(capacity, "mcuCount")) * int(_either(capacity, "workerCount"))
    yield "capacity units", HOURS * units, "mcu_hour"


def _either(mapping: Mapping[str, Any], name: str) -> Any:
    """A property in the spelling of AWS's API or of CloudFormation."""
    return mapping[name] if name in mapping else mapping[name[0].upper() + name[1:]]


def _cluster(deployment: Deployment, resource: Resource) -> Iterator[Amount]:
    for group, name in (("MasterInstanceGroup", "primary"), ("CoreInstanceGroup", "core"), ("TaskInstanceGroups", "")):
        nodes = resource.properties["Instances"].get(group)
        if nodes is None:
            continue
        if not name:
            raise UserError(
                f"{resource.place}: found task nodes, which headwater/deployment/cost.py does not price yet"
            )
        count = int(nodes["InstanceCount"])
        devices = nodes.get("EbsConfiguration", {}).get("EbsBlockDeviceConfigs", [])
        sizes = [
            float(one["VolumeSpecification"]["SizeInGB"]) * int(one.get("VolumesPerInstance", 1)) for one in devices
        ]
        yield f"{name} nodes", HOURS * count, str(nodes["InstanceType"])
        yield f"{name} nodes, EMR", HOURS * count, f"emr {nodes['InstanceType']}"
        yield f"{name} volumes", count * (sum(sizes) + assumed("ebs_root_gb")), "ebs_gb_month"


def _step(deployment: Deployment, resource: Resource) -> Iterator[Amount]:
    tables = list(resource.properties["Args"]).count("--contract")
    yield "looks for landing objects", tables * HOURS * 3600 / assumed("list_seconds") / 1e6, "s3_million_writes"
    yield "metrics", tables * assumed("metrics_a_table"), "metric_month"
    yield from _commits(tables)


def _job(deployment: Deployment, resource: Resource) -> Iterator[Amount]:
    worker = str(resource.properties["WorkerType"])
    if worker not in _DPUS:
        raise UserError(f"{resource.place}: found worker type {worker}, expected one of {', '.join(_DPUS)}")
    yield "workers", HOURS * _DPUS[worker] * int(resource.properties["NumberOfWorkers"]), "dpu_hour"
    yield "metrics", assumed("metrics_a_table"), "metric_month"
    yield from _commits(1)


def _commits(tables: int) -> Iterator[Amount]:
    commits = tables * assumed("commits")
    yield "commits, writing", commits * assumed("commit_writes") / 1e6, "s3_million_writes"
    yield "commits, reading", commits * assumed("commit_reads") / 1e6, "s3_million_reads"


def _stream(deployment: Deployment, resource: Resource) -> Iterator[Amount]:
    shards = resource.properties.get("ShardCount")
    hours = int(resource.properties.get("RetentionPeriodHours", 24))
    if shards is None:
        yield "stream", HOURS, "kinesis_demand_hour"
        yield "written", assumed("kinesis_gb"), "kinesis_demand_gb_in"
        yield "read", assumed("kinesis_gb") * assumed("kinesis_readers"), "kinesis_demand_gb_out"
    else:
        yield "shards", HOURS * int(shards), "kinesis_shard_hour"
        yield "records", assumed("kinesis_million_puts"), "kinesis_million_puts"
        yield "retention", HOURS * int(shards) if hours > 24 else 0, "kinesis_retention_shard_hour"


def _table(deployment: Deployment, resource: Resource) -> Iterator[Amount]:
    properties = resource.properties
    yield "writes", assumed("dynamodb_million_writes"), "dynamodb_million_writes"
    yield "reads", assumed("dynamodb_million_reads"), "dynamodb_million_reads"
    yield "storage", assumed("dynamodb_gb"), "dynamodb_gb_month"
    replicas = properties.get("Replicas", [properties])
    streamed = [one for one in replicas if "KinesisStreamSpecification" in one]
    yield "changes to Kinesis", len(streamed) * assumed("dynamodb_million_writes"), "dynamodb_million_cdc"
    kept = [
        one
        for one in replicas
        if one.get("PointInTimeRecoverySpecification", {}).get("PointInTimeRecoveryEnabled") is True
    ]
    yield "point-in-time recovery", len(kept) * assumed("dynamodb_gb"), "dynamodb_pitr_gb_month"


def _bucket(deployment: Deployment, resource: Resource) -> Iterator[Amount]:
    name = resource.place.rpartition(":")[2].lower()
    yield (
        "storage",
        assumed(f"{name}_gb" if f"{name}_gb" in data()["assumptions"] else "other_bucket_gb"),
        "s3_gb_month",
    )
    if name == "landing":
        yield "landing objects", assumed("landing_objects") / 1e6, "s3_million_writes"


def _key(deployment: Deployment, resource: Resource) -> Iterator[Amount]:
    yield "key", 1, "key_month"
    yield "requests", assumed("key_million_requests"), "key_million_requests"


def _secret(deployment: Deployment, resource: Resource) -> Iterator[Amount]:
    yield "secret", 1, "secret_month"


def _alarm(deployment: Deployment, resource: Resource) -> Iterator[Amount]:
    # An alarm on an expression pays for each metric that the expression reads.
    metrics = [one for one in resource.properties.get("Metrics", []) if "MetricStat" in one]
    yield "metrics", max(1, len(metrics)), "alarm_month"


def _dashboard(deployment: Deployment, resource: Resource) -> Iterator[Amount]:
    yield "dashboard", 1, "dashboard_month"


def _log_group(deployment: Deployment, resource: Resource) -> Iterator[Amount]:
    yield "written", assumed("log_gb"), "logs_gb"


def _work_group(deployment: Deployment, resource: Resource) -> Iterator[Amount]:
    yield "read by queries", assumed("athena_tb"), "athena_tb"


_PRICED: Mapping[str, Callable[[Deployment, Resource], Iterator[Amount]]] = {
    "AWS::Athena::WorkGroup": _work_group,
    "AWS::CloudWatch::Alarm": _alarm,
    "AWS::CloudWatch::Dashboard": _dashboard,
    "AWS::DynamoDB::GlobalTable": _table,
    "AWS::DynamoDB::Table": _table,
    "AWS::EC2::EIP": _address,
    "AWS::EC2::Instance": _instance,
    "AWS::EC2::NatGateway": _nat_gateway,
    "AWS::EC2::VPCEndpoint": _endpoint,
    "AWS::EMR::Cluster": _cluster,
    "AWS::Glue::Job": _job,
    "AWS::KMS::Key": _key,
    "AWS::KafkaConnect::Connector": _connector,
    "AWS::Kinesis::Stream": _stream,
    "AWS::Logs::LogGroup": _log_group,
    "AWS::MSK::Cluster": _kafka,
    "AWS::RDS::DBCluster": _database_cluster,
    "AWS::RDS::DBInstance": _database_instance,
    "AWS::S3::Bucket": _bucket,
    "AWS::SecretsManager::Secret": _secret,
    "Custom::HeadwaterConnector": _connector,
    "Custom::HeadwaterStep": _step,
}
