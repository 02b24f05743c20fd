"""The cost of an environment per month, resource by resource.

It is computed from the environment's templates, one region's prices (``prices.yaml``), and assumptions on use
(``cost_assumptions.yaml``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from headwater.errors import UserError
from headwater.lake.base.idle_pause import FIRST_PAUSE_SECONDS, IdlePause
from headwater.lake.base.lease import LEASE_SECONDS
from headwater.review import prices
from headwater.review.prices import Prices, read_prices
from headwater.review.templates import Deployment, Resource
from headwater.yaml_files import read_yaml

ASSUMPTIONS = Path(__file__).with_name("cost_assumptions.yaml")
HOURS = 730

# AWS charges nothing for these types, or they stay within its free tier: names, rights, rules, and functions that run
# only during a deployment or an event.
FREE = (
    "AWS::Athena::NamedQuery",
    "AWS::Athena::PreparedStatement",
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
    # Peering is free within a zone. Traffic between zones is paid by the gigabyte, as within a VPC.
    "AWS::EC2::VPCPeeringConnection",
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
    # QuickSight charges per user.
    "AWS::QuickSight::Analysis",
    "AWS::QuickSight::Dashboard",
    "AWS::QuickSight::DataSet",
    "AWS::QuickSight::DataSource",
    "AWS::QuickSight::RefreshSchedule",
    "AWS::RDS::DBClusterParameterGroup",
    "AWS::RDS::DBSubnetGroup",
    "AWS::S3::BucketPolicy",
    "AWS::SNS::Subscription",
    "AWS::SNS::Topic",
    "AWS::SNS::TopicPolicy",
    # Standard parameters.
    "AWS::SSM::Parameter",
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
"""An item of the bill, its amount per month, and the name of its price."""
Properties = Mapping[str, Any]
Use = Callable[[str], float]
"""An assumption's value in the environment."""


@dataclass(frozen=True)
class Line:
    """One item of one resource."""

    resource: str
    """The resource's place."""
    item: str
    """The item of the bill, such as broker hours."""
    quantity: float
    """How many units are used per month."""
    unit: str
    """The unit of ``quantity``."""
    price_name: str
    """The name of the price in the file of prices."""
    price: float | None
    """Dollars for each unit, or None if the file of prices lacks ``price_name``."""
    estimate: bool = False
    """True if nobody has read the price at its source."""

    @property
    def cost(self) -> float:
        """Dollars per month, 0 without a price."""
        return self.quantity * (self.price or 0)


@dataclass(frozen=True)
class Estimate:
    """The cost of one environment per month."""

    environment: str
    """The environment's name."""
    region: str
    """The environment's region."""
    lines: Sequence[Line]
    """The items of all resources."""
    prices: Prices
    """The prices that the estimate takes, which may be another region's."""

    @property
    def unknown(self) -> dict[str, Line]:
        """The missing prices, each with the first line that needs it. The total does not contain these lines."""
        unknown: dict[str, Line] = {}
        for line in self.lines:
            if line.price is None:
                unknown.setdefault(line.price_name, line)
        return unknown

    @property
    def prices_of(self) -> str:
        """The date of the prices used, or the first and the last date; empty if no price is used."""
        names = {line.price_name for line in self.lines if line.price is not None}
        dates = sorted({self.prices.prices[name].date for name in names})
        return " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else ""

    @property
    def total(self) -> float:
        """Dollars per month."""
        return sum(line.cost for line in self.lines)

    def by_resource(self) -> dict[str, float]:
        """Dollars per month by resource, the dearest first."""
        costs: dict[str, float] = {}
        for line in self.lines:
            costs[line.resource] = costs.get(line.resource, 0.0) + line.cost
        return dict(sorted(costs.items(), key=lambda entry: (-entry[1], entry[0])))

    def document(self) -> dict[str, Any]:
        """The estimate as JSON, which ``--json`` prints and ``--against`` reads."""
        return {
            "environment": self.environment,
            "region": self.region,
            "prices_region": self.prices.region,
            "prices_of": self.prices_of,
            "total": round(self.total, 2),
            "unknown": sorted(self.unknown),
            "resources": {name: round(cost, 2) for name, cost in self.by_resource().items()},
        }


def estimate(deployment: Deployment, environment: str, file: Path = prices.FILE) -> Estimate:
    """Estimate a deployment by the prices in ``file``, even if they are another region's.

    Raises UserError naming every resource type that is neither priced nor free.
    """
    priced = (*_FLAT, *_BY_RESOURCE, *_BY_DEPLOYMENT)
    unpriced_types = sorted({resource.type for resource in deployment.resources()} - {*FREE, *priced})
    if unpriced_types:
        raise UserError(
            f"headwater/review/cost.py: found {', '.join(unpriced_types)}, expected types with a price: "
            "price each of them, or add it to FREE"
        )
    known = read_prices(file)
    use = partial(assumed, environment=environment)
    lines = [
        _line(known, resource.place, amount)
        for resource in deployment.resources(*priced)
        for amount in _amounts(deployment, resource, use)
        if amount[1]
    ]
    return Estimate(environment, deployment.region, lines, known)


def _line(known: Prices, resource: str, amount: Amount) -> Line:
    item, quantity, name = amount
    if name not in known.prices:
        # Only the types of instances and brokers have a dot in their names.
        return Line(resource, item, quantity, "hour" if "." in name else "unknown unit", name, None)
    price = known.prices[name]
    return Line(resource, item, quantity, price.unit, name, price.price, price.estimate)


def differences(before: Mapping[str, float], after: Mapping[str, float]) -> list[tuple[str, float, float]]:
    """The resources whose cost differs, with both costs, the greatest difference first; a missing resource costs 0."""
    names = {**before, **after}
    # Compare to the cent, because a stored estimate has cents.
    pairs = [(name, round(before.get(name, 0.0), 2), round(after.get(name, 0.0), 2)) for name in names]
    return sorted((pair for pair in pairs if pair[1] != pair[2]), key=lambda pair: (-abs(pair[2] - pair[1]), pair[0]))


@cache
def assumptions() -> dict[str, Any]:
    """The content of ``cost_assumptions.yaml``: assumptions, and the costs that the estimate leaves out."""
    document: dict[str, Any] = read_yaml(ASSUMPTIONS)
    return document


def assumed(name: str, environment: str | None = None) -> float:
    """An assumption's value, in an environment that may have its own."""
    assumption = assumptions()["assumptions"][name]
    return float(assumption.get(environment, assumption["value"]))


def _amounts(deployment: Deployment, resource: Resource, use: Use) -> Iterator[Amount]:
    """The amounts that one resource uses per month."""
    if resource.type in _FLAT:
        for item, quantity, price in _FLAT[resource.type]:
            yield item, use(quantity) if isinstance(quantity, str) else quantity, price
    elif resource.type in _BY_RESOURCE:
        yield from _BY_RESOURCE[resource.type](resource, use)
    else:
        yield from _BY_DEPLOYMENT[resource.type](resource, use, deployment)


def _instance(instance: Resource, use: Use) -> Iterator[Amount]:
    properties = instance.properties
    yield "hours", HOURS, str(properties["InstanceType"])
    volumes = [mapping["Ebs"] for mapping in properties.get("BlockDeviceMappings", []) if "Ebs" in mapping]
    sizes = [float(volume.get("VolumeSize", use("ebs_root_gb"))) for volume in volumes]
    yield "volumes", sum(sizes or [use("ebs_root_gb")]), "ebs_gb_month"
    interfaces = properties.get("NetworkInterfaces", [])
    addresses = sum(1 for interface in interfaces if interface.get("AssociatePublicIpAddress"))
    yield "public address", HOURS * addresses, "public_address_hour"


def _endpoint(endpoint: Resource, use: Use) -> Iterator[Amount]:
    is_interface = endpoint.properties["VpcEndpointType"] == "Interface"
    zones = len(endpoint.properties.get("SubnetIds", [])) if is_interface else 0
    yield "hours", HOURS * zones, "endpoint_hour"
    yield "traffic", use("endpoint_gb") * zones, "endpoint_gb"


def _database_cluster(cluster: Resource, use: Use, deployment: Deployment) -> Iterator[Amount]:
    scaling = cluster.properties["ServerlessV2ScalingConfiguration"]
    least, most = float(scaling["MinCapacity"]), float(scaling["MaxCapacity"])
    instances = _count("AWS::RDS::DBInstance", cluster.stack, deployment)
    busy = use("aurora_busy_hours")
    yield "capacity", instances * (least * (HOURS - busy) + most * busy), "acu_hour"
    yield "storage", use("aurora_gb"), "aurora_gb_month"
    yield "requests", use("aurora_million_io"), "aurora_million_io"


def _database_instance(instance: Resource, use: Use) -> Iterator[Amount]:
    if instance.properties["DBInstanceClass"] != "db.serverless":
        yield "hours", HOURS, str(instance.properties["DBInstanceClass"])


def _kafka(cluster: Resource, use: Use, deployment: Deployment) -> Iterator[Amount]:
    nodes = cluster.properties["BrokerNodeGroupInfo"]
    brokers = int(cluster.properties["NumberOfBrokerNodes"])
    volume = float(nodes["StorageInfo"]["EBSStorageInfo"]["VolumeSize"])
    yield "brokers", HOURS * brokers, str(nodes["InstanceType"])
    yield "volumes", volume * brokers, "msk_gb_month"
    if cluster.properties.get("EnhancedMonitoring") in ("PER_TOPIC_PER_BROKER", "PER_TOPIC_PER_PARTITION"):
        topics = _count("AWS::MSK::Topic", cluster.stack, deployment)
        yield "metrics", topics * brokers * use("metrics_per_topic"), "metric_month"


def _count(type_: str, stack: str, deployment: Deployment) -> int:
    return sum(1 for resource in deployment.resources(type_) if resource.stack == stack)


def _connector(connector: Resource, use: Use) -> Iterator[Amount]:
    properties = connector.properties.get("Connector", connector.properties)
    capacity = _either(_either(properties, "capacity"), "provisionedCapacity")
    units = int(_either(capacity, "mcuCount")) * int(_either(capacity, "workerCount"))
    yield "capacity units", HOURS * units, "mcu_hour"


def _either(mapping: Properties, name: str) -> Any:
    """A property of a mapping, under the name of AWS's API or of CloudFormation."""
    return mapping[name] if name in mapping else mapping[name[0].upper() + name[1:]]


def _emr_cluster(cluster: Resource, use: Use) -> Iterator[Amount]:
    instances = cluster.properties["Instances"]
    if "TaskInstanceGroups" in instances:
        raise UserError(f"{cluster.place}: found task nodes, which headwater/review/cost.py does not price yet")
    for name, group in (("primary", "MasterInstanceGroup"), ("core", "CoreInstanceGroup")):
        if group in instances:
            yield from _emr_nodes(name, instances[group], use)


def _emr_nodes(name: str, nodes: Properties, use: Use) -> Iterator[Amount]:
    count = int(nodes["InstanceCount"])
    devices = nodes.get("EbsConfiguration", {}).get("EbsBlockDeviceConfigs", [])
    sizes = [
        float(device["VolumeSpecification"]["SizeInGB"]) * int(device.get("VolumesPerInstance", 1))
        for device in devices
    ]
    yield f"{name} nodes", HOURS * count, str(nodes["InstanceType"])
    if nodes.get("Market") == "SPOT":
        # The assumed discount of the Spot market, in a line of its own. EMR's surcharge and volumes are paid in full.
        yield f"{name} nodes, Spot discount", -HOURS * count * use("spot_discount"), str(nodes["InstanceType"])
    yield f"{name} nodes, EMR", HOURS * count, f"emr {nodes['InstanceType']}"
    yield f"{name} volumes", count * (sum(sizes) + use("ebs_root_gb")), "ebs_gb_month"


def _step(step: Resource, use: Use, deployment: Deployment) -> Iterator[Amount]:
    arguments = [str(argument) for argument in step.properties["Args"]]
    tables = arguments.count("--contract")
    pause = IdlePause(FIRST_PAUSE_SECONDS, float(arguments[arguments.index("--idle-seconds-max") + 1]))
    connectors = [
        connector.properties["Connector"]["connectorConfiguration"]
        for connector in deployment.resources("Custom::HeadwaterConnector")
    ]
    flushed = [float(settings.get("flush.interval.ms", 0)) / 1000 for settings in connectors]
    landed = {topic for settings in connectors for topic in settings.get("topics", "").split(",")}
    topics = [topic.properties for topic in deployment.resources("AWS::MSK::Topic")]
    partitions = [int(topic["PartitionCount"]) for topic in topics if topic["TopicName"] in landed]
    gap = max([use("commit_seconds"), *flushed])
    # A poll of a topic with one partition is one listing. Otherwise it lists the partitions, then the objects of each.
    most = max(partitions, default=1)
    listings = tables * _looks(pause, gap, use) * (1 if most == 1 else 1 + most)
    yield "looks for landing objects", listings / 1e6, "s3_million_writes"
    yield "looks for requests", _each(pause.longest, tables), "s3_million_writes"
    yield "leases", _each(LEASE_SECONDS / 2, tables), "s3_million_writes"
    yield "metrics", tables * use("metrics_per_table"), "metric_month"
    yield from _commits(tables, gap, use)


def _looks(pause: IdlePause, gap: float, use: Use) -> float:
    """The number of a writer's polls for changes of one table per month.

    In the busy hours there is a commit every ``gap`` seconds, with polls between the commits. In all other hours the
    writer polls at the longest pause.
    """
    commits = use("change_hours") * 3600 / gap
    looks, waited = 1, 0.0
    while (waited := waited + pause.after(looks)) < gap:
        looks += 1
    return commits * looks + (HOURS * 3600 - commits * gap) / pause.longest


def _job(job: Resource, use: Use) -> Iterator[Amount]:
    worker = str(job.properties["WorkerType"])
    if worker not in _DPUS:
        raise UserError(f"{job.place}: found worker type {worker}, expected one of {', '.join(_DPUS)}")
    yield "workers", HOURS * _DPUS[worker] * int(job.properties["NumberOfWorkers"]), "dpu_hour"
    tables = len(str(job.properties["DefaultArguments"]["--source-table"]).split(","))
    yield "metrics", tables * use("metrics_per_table"), "metric_month"
    window = float(job.properties["DefaultArguments"]["--window-seconds"])
    yield "polls for requests", _each(window, tables), "s3_million_writes"
    yield "leases", _each(LEASE_SECONDS / 2, tables), "s3_million_writes"
    yield from _commits(tables, max(use("commit_seconds"), window), use)


def _each(seconds: float, tables: int) -> float:
    """Millions of requests per month, with one request every ``seconds`` for each table."""
    return tables * HOURS * 3600 / seconds / 1e6


def _commits(tables: int, gap: float, use: Use) -> Iterator[Amount]:
    commits = tables * use("change_hours") * 3600 / gap
    yield "commits, writing", commits * use("commit_writes") / 1e6, "s3_million_writes"
    yield "commits, reading", commits * use("commit_reads") / 1e6, "s3_million_reads"


def _stream(stream: Resource, use: Use) -> Iterator[Amount]:
    shards = stream.properties.get("ShardCount")
    hours = int(stream.properties.get("RetentionPeriodHours", 24))
    if shards is None:
        yield "stream", HOURS, "kinesis_demand_hour"
        yield "written", use("kinesis_gb"), "kinesis_demand_gb_in"
        yield "read", use("kinesis_gb") * use("kinesis_readers"), "kinesis_demand_gb_out"
    else:
        yield "shards", HOURS * int(shards), "kinesis_shard_hour"
        yield "records", use("kinesis_million_puts"), "kinesis_million_puts"
        yield "retention", HOURS * int(shards) if hours > 24 else 0, "kinesis_retention_shard_hour"


def _table(table: Resource, use: Use) -> Iterator[Amount]:
    yield "writes", use("dynamodb_million_writes"), "dynamodb_million_writes"
    yield "reads", use("dynamodb_million_reads"), "dynamodb_million_reads"
    yield "storage", use("dynamodb_gb"), "dynamodb_gb_month"
    replicas = table.properties.get("Replicas", [table.properties])
    streamed = sum(1 for replica in replicas if "KinesisStreamSpecification" in replica)
    yield "changes to Kinesis", streamed * use("dynamodb_million_writes"), "dynamodb_million_cdc"
    recoverable = sum(
        1
        for replica in replicas
        if replica.get("PointInTimeRecoverySpecification", {}).get("PointInTimeRecoveryEnabled") is True
    )
    yield "point-in-time recovery", recoverable * use("dynamodb_gb"), "dynamodb_pitr_gb_month"


def _bucket(bucket: Resource, use: Use, deployment: Deployment) -> Iterator[Amount]:
    name = bucket.place.rpartition(":")[2].lower()
    if name == "landing" and not any(True for _ in deployment.resources("Custom::HeadwaterConnector")):
        # Without a connector, no objects land.
        return
    stored = f"{name}_gb" if f"{name}_gb" in assumptions()["assumptions"] else "other_bucket_gb"
    yield "storage", use(stored), "s3_gb_month"
    if name == "landing":
        yield "landing objects", use("landing_objects") / 1e6, "s3_million_writes"


def _alarm(alarm: Resource, use: Use) -> Iterator[Amount]:
    # An alarm on an expression pays for each metric that the expression reads.
    metrics = sum(1 for metric in alarm.properties.get("Metrics", []) if "MetricStat" in metric)
    yield "metrics", max(1, metrics), "alarm_month"
    if alarm.properties.get("MetricName") == "Comparisons":
        # If a table has to be compared, the comparison sends this metric and others.
        yield "metrics of the comparison", use("metrics_per_comparison"), "metric_month"


# Every resource of these types costs the same. A quantity that is a text names an assumption.
_FLAT: Mapping[str, Sequence[tuple[str, float | str, str]]] = {
    "AWS::Athena::WorkGroup": [("read by queries", "athena_tb", "athena_tb")],
    "AWS::CloudWatch::Dashboard": [("dashboard", 1, "dashboard_month")],
    "AWS::EC2::EIP": [("public address", HOURS, "public_address_hour")],
    "AWS::EC2::NatGateway": [("hours", HOURS, "nat_hour"), ("traffic", "nat_gb", "nat_gb")],
    "AWS::KMS::Key": [("key", 1, "key_month"), ("requests", "key_million_requests", "key_million_requests")],
    "AWS::Logs::LogGroup": [("written", "log_gb", "logs_gb")],
    "AWS::Logs::MetricFilter": [("metric", 1, "metric_month")],
    "AWS::SecretsManager::Secret": [("secret", 1, "secret_month")],
}
# Costs that depend on the resource's own properties.
_BY_RESOURCE: Mapping[str, Callable[[Resource, Use], Iterator[Amount]]] = {
    "AWS::CloudWatch::Alarm": _alarm,
    "AWS::DynamoDB::GlobalTable": _table,
    "AWS::DynamoDB::Table": _table,
    "AWS::EC2::Instance": _instance,
    "AWS::EC2::VPCEndpoint": _endpoint,
    "AWS::EMR::Cluster": _emr_cluster,
    "AWS::Glue::Job": _job,
    "AWS::KafkaConnect::Connector": _connector,
    "AWS::Kinesis::Stream": _stream,
    "AWS::RDS::DBInstance": _database_instance,
    "Custom::HeadwaterConnector": _connector,
}
# Costs that also depend on other resources of the deployment.
_BY_DEPLOYMENT: Mapping[str, Callable[[Resource, Use, Deployment], Iterator[Amount]]] = {
    "AWS::MSK::Cluster": _kafka,
    "AWS::RDS::DBCluster": _database_cluster,
    "AWS::S3::Bucket": _bucket,
    "Custom::HeadwaterStep": _step,
}
