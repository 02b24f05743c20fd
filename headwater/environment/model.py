"""Environments: the typed form of ``config/<name>.yaml``.

Each field says here what it means, which values it takes, and what its default is. Editors read the same in
``schemas/environment.schema.json``, people in ``docs/reference/environment.md``.
``rules.read_environment`` reads a file, and also checks what its fields must be beside each other and what AWS offers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

import msgspec
from msgspec import Meta, Struct

from headwater.contract.model import DYNAMODB, POSTGRESQL
from headwater.environment.defaults import DefaultKind, Document, Size, always, by_size, derived, value_at
from headwater.yaml_files import DIFFERENT, END, read_yaml, refusal, yaml_paths

InterfaceEndpoint = Literal[
    "ec2messages",
    "glue",
    "kms",
    "logs",
    "monitoring",
    "secretsmanager",
    "ssm",
    "ssmmessages",
    "sts",
]
INTERFACE_ENDPOINTS: tuple[str, ...] = get_args(InterfaceEndpoint)
# What the pipeline's secrets, catalog and metrics go through, headwater/review/flows.yaml.
NEEDED_ENDPOINTS = ("glue", "monitoring", "secretsmanager")
# What the nodes, the job and Session Manager call all day.
_ENDPOINTS_IN_USE = ("glue", "kms", "logs", "monitoring", "secretsmanager", "ssm", "ssmmessages", "sts")
# The retentions that CloudWatch Logs offers, in days.
LogDays = Literal[
    1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653
]  # fmt: skip
LOG_DAYS: tuple[int, ...] = get_args(LogDays)
LOCAL_ACCOUNT = "111111111111"
"""The account of the local AWS: an environment of this account is deployed there."""
KIND = "kind"
"""The field that says which of several forms a mapping has."""
MAX_EPOCH = 9999  # the order of changes has four digits for it
LAKE_FORMAT = 1
"""The newest form that this release can give to commits, positions, requests and landing objects."""
WEB_APPLICATIONS = ("Hue", "Livy")
"""The EMR applications that ``emr.web_interfaces`` adds. Both run whatever code a caller sends them."""


def _name(document: Document) -> Any:
    return document["name"]


def _zones(document: Document) -> list[str]:
    return [f"{document.get('region')}{letter}" for letter in ("ab" if document["size"] == "small" else "abc")]


def _nat_instance_type(document: Document) -> str | None:
    return "t4g.nano" if value_at(document, "network.nat") == "instance" else None


def _endpoint_zones(document: Document) -> str:
    return "first" if value_at(document, "data.retain") is False else "all"


def _primary_type(document: Document) -> Any:
    return value_at(document, "emr.primary_type")


class _Part(Struct, frozen=True, forbid_unknown_fields=True):
    """A mapping that takes the fields it names. ``defaults.complete`` adds those that a file leaves out."""


class Data(_Part, frozen=True, kw_only=True):
    """What becomes of data when a stack is deleted: it stays, unless both fields say that it goes."""

    retain: Annotated[
        bool,
        Meta(description="true: stacks are protected from deletion, and data stays when its stack goes. True in prod."),
        always(True, "deleted data does not come back, and data that stays can be deleted later"),
    ]
    delete_with_stacks_of: Annotated[
        str | None,
        Meta(
            description="The environment's name, beside retain: false: data goes with its stack. "
            "null: data stays whatever retain says."
        ),
        always(None, "nobody has said yet that the data may go"),
    ]


class Network(_Part, frozen=True, kw_only=True):
    """The VPC."""

    cidr: Annotated[
        str,
        Meta(
            description="An IPv4 network of /16 to /18 within 10.0.0.0/8 or 172.16.0.0/12, apart from 10.99.0.0/16 and "
            "172.21.0.0/16, which MSK Connect does not reach.",
            examples=["10.40.0.0/16"],
        ),
        always("10.40.0.0/16", "networks that are not connected may be equal; give each its own if you peer them"),
    ]
    nat: Annotated[
        Literal["instance", "gateway"],
        Meta(description="How the work subnets reach the internet: one small instance, or one gateway per zone."),
        by_size("instance", "gateway", "gateway", "a gateway outlives a host, and costs many times as much"),
    ]
    nat_instance_type: Annotated[
        str | None,
        Meta(
            description="The type of the instance beside nat: instance; null beside nat: gateway.",
            examples=["t4g.nano"],
        ),
        derived(
            _nat_instance_type,
            "t4g.nano beside nat: instance, or else null",
            "the cheapest type: S3 and DynamoDB are reached past it",
        ),
    ]
    image_generation: Annotated[
        int,
        Meta(
            ge=1,
            description="Raise it to give bastion and NAT instance the newest Amazon Linux 2023, which replaces them.",
        ),
        always(1, "a new image replaces bastion and NAT instance, so somebody has to ask for it"),
    ]
    endpoint_zones: Annotated[
        Literal["all", "first"],
        Meta(
            description="The zones of the interface endpoints: all, or the first only, which serves the others too "
            "while it is there. all if data.retain is true."
        ),
        derived(
            _endpoint_zones,
            "first where data.retain is false, or else all",
            "each zone is paid for; where data stays, the loss of a zone stops nothing",
        ),
    ]
    interface_endpoints: Annotated[
        tuple[InterfaceEndpoint, ...],
        Meta(
            description=f"The AWS services that are reached without NAT: {', '.join(NEEDED_ENDPOINTS)} at least.",
            extra_json_schema=DIFFERENT,
        ),
        by_size(
            NEEDED_ENDPOINTS,
            _ENDPOINTS_IN_USE,
            _ENDPOINTS_IN_USE,
            "each endpoint is paid for by the hour; without it, the service is reached through NAT",
        ),
    ]


class Lake(_Part, frozen=True, kw_only=True):
    """The lake's form, its queries, how long replaced files and landing objects stay, and what stops the writers."""

    format: Annotated[
        int,
        Meta(
            ge=1,
            description="The form of commits, positions, requests and landing objects. Raise it once no release has to "
            "read them that knows only the form before; it is never lowered. It has no default that a release may "
            "change.",
            # ``lake_format`` has the rule.
            extra={
                "expected_if_missing": "1 in a new file; for a file of release 0.1.0 or 0.2.0 run `headwater upgrade`, "
                "or `headwater init FOLDER --from-checkout DIR`"
            },
            extra_json_schema={"maximum": LAKE_FORMAT},
        ),
    ]
    query_scan_limit_gib: Annotated[
        int,
        Meta(ge=1, description="The most that one Athena query may read, in GiB."),
        by_size(10, 100, 1024, "it bounds the cost of a query that reads too much"),
    ]
    query_result_days: Annotated[
        int,
        Meta(ge=1, description="How long Athena's results stay, in days."),
        by_size(7, 14, 30, "a result is a copy of rows, and can be had again by its query"),
    ]
    query_principals: Annotated[
        tuple[
            Annotated[
                str,
                Meta(
                    pattern=rf"^arn:aws[a-z-]*:iam::[0-9]{{12}}:(role|user)/[^*\s]+{END}",
                    extra={"expected": "the ARN of an IAM role or user"},
                ),
            ],
            ...,
        ],
        Meta(
            description="The ARNs of IAM roles and users, which must exist. They may take the role that queries the "
            "lake and may do nothing else. [] makes no such role.",
            # A role's policy of trust has room for 2,048 characters.
            max_length=12,
            extra={"expected": "at most 12 ARNs"},
            extra_json_schema=DIFFERENT,
        ),
        always((), "nobody gets a right that the file does not name"),
    ]
    file_version_hours: Annotated[
        int,
        Meta(
            ge=1,
            description="How long the files of a table stay that compaction has replaced, for queries that began "
            "before. Each hour of a busy table is thousands of files, which all commits and queries list.",
        ),
        always(1, "Athena ends a query after 30 minutes"),
    ]
    landing_days: Annotated[
        int,
        Meta(
            ge=1,
            description="How long landing objects stay that a table has read. The newest of each partition always "
            "stays, as the sink goes on from it.",
        ),
        by_size(
            3, 14, 30, "a table that is set back to an earlier version reads them again: a weekend, two weeks, a month"
        ),
    ]
    tombstone_days: Annotated[
        int,
        Meta(
            ge=1,
            description="How long the tombstone of a deleted row stays, so that a late older change does not bring the "
            "row back. Longer than stream.retention_hours and key_value.stream_retention_hours, and "
            "landing_days at least.",
        ),
        by_size(
            7, 30, 90, "well over the hours for which the streams keep records, so that late changes still meet it"
        ),
    ]
    max_quarantined_share: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="The share of a batch's records that may be put aside, from 0 to 1; beyond it the table stops. "
            "Ten records always may.",
        ),
        always(0.01, "single bad records must not stop a table; more of them mean a wrong contract"),
    ]
    max_unfit_share: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="The share of a batch's rows that may lack a value which does not fit, from 0 to 1. Beyond it "
            "the table stops, as the contract must be wrong. Ten rows always may; 1 never stops.",
        ),
        always(0.5, "an unfit value costs only itself; if half of the rows have one, then the contract is wrong"),
    ]


_ID = "([0-9a-f]{8}|[0-9a-f]{17})"  # of a resource of EC2, behind its prefix
_RootCertificate = Annotated[
    Annotated[str, Meta(min_length=1)] | None,
    Meta(
        description="A file with the certificate, as PEM, of the authority that signs the database's; null on AWS, "
        "where it is RDS's.",
        extra={"expected": "the name of a file, or null"},
    ),
    always(None, "RDS's authority signs the database's certificate"),
]
_KeyArn = Annotated[
    Annotated[str, Meta(pattern=rf"^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{{12}}:key/[A-Za-z0-9-]+{END}")] | None,
    Meta(extra={"expected": "the ARN of a KMS key, or null"}),
]


class Aurora(_Part, frozen=True, kw_only=True, tag_field=KIND, tag="aurora"):
    """Aurora PostgreSQL Serverless v2, which the deployment makes; capacities in units of 2 GiB of memory."""

    name: Annotated[
        str,
        Meta(
            pattern=rf"^[a-z][a-z0-9_]{{0,62}}{END}",
            description="The database's name. It is final with the first deploy: later, CloudFormation refuses another "
            "name, and the deploy fails.",
            examples=["shop"],
            extra={"expected": "a name of 1 to 63 lower-case letters, digits and underscores"},
        ),
        always("lake", "it says nothing of the tables, which are the lake folder's"),
    ]
    engine_version: Annotated[
        str,
        Meta(description="Aurora PostgreSQL's version, in quotes.", examples=["16.9"]),
        always("16.9", "the tests capture PostgreSQL 16"),
    ]
    # Logical replication keeps the cluster awake, so a minimum of 0 (auto-pause) would promise what cannot happen.
    capacity_min: Annotated[
        float,
        Meta(
            ge=0.5,
            le=256,
            multiple_of=0.5,
            description="The least capacity; 0 is refused, since logical replication prevents the pause at 0.",
        ),
        by_size(
            0.5, 0.5, 2, "the least that Aurora takes with logical replication; production starts with a warm cache"
        ),
    ]
    capacity_max: Annotated[
        float,
        Meta(ge=1, le=256, multiple_of=0.5, description="The greatest capacity: capacity_min or more."),
        by_size(2, 16, 64, "it bounds the cost of a load that nobody expected"),
    ]
    readers: Annotated[
        int,
        Meta(ge=0, le=15, description="Reader instances beside the writer."),
        by_size(0, 1, 1, "a reader takes over when the writer fails"),
    ]
    backup_days: Annotated[
        int,
        Meta(ge=1, le=35, description="How long automatic backups stay, in days."),
        by_size(1, 7, 35, "the least that Aurora takes, a week, the most that it takes"),
    ]
    root_certificate: _RootCertificate


class Peering(_Part, frozen=True, kw_only=True):
    """A VPC peering of this account and region, with routes both ways and a rule that lets the source connector in."""

    vpc: Annotated[
        str,
        Meta(
            pattern=f"^vpc-{_ID}{END}",
            description="The database's VPC, whose network is cidr.",
            extra={"expected": "the id of a VPC"},
        ),
    ]
    route_tables: Annotated[
        tuple[
            Annotated[
                str,
                Meta(pattern=f"^rtb-{_ID}{END}", extra={"expected": "the id of a route table such as rtb-1a2b"}),
            ],
            ...,
        ],
        Meta(
            description="The route tables of the database's subnets. Each gets a route back.",
            min_length=1,
            extra={"expected": "one or more ids of route tables"},
            extra_json_schema=DIFFERENT,
        ),
    ]
    security_group: Annotated[
        str,
        Meta(
            pattern=f"^sg-{_ID}{END}",
            description="The database's security group, which gets a rule that lets the source connector in.",
            extra={"expected": "the id of a security group"},
        ),
    ]


class Monitored(_Part, frozen=True, kw_only=True):
    """The cluster or instance of RDS whose metrics tell of the replication slot and of the log that is kept."""

    kind: Annotated[
        Literal["cluster", "instance"],
        Meta(description="cluster: an Aurora cluster. instance: a DB instance of RDS."),
    ]
    identifier: Annotated[str, Meta(min_length=1, description="Its identifier.", extra={"expected": "an identifier"})]


class ExistingDatabase(_Part, frozen=True, kw_only=True, tag_field=KIND, tag="existing"):
    """A PostgreSQL database that is there. `headwater db capture` prepares it; a deployment changes nothing in it."""

    host: Annotated[
        str,
        Meta(
            pattern=rf"^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?{END}",
            description="The server's host name, as in its certificate.",
            extra={"expected": "a host name"},
        ),
    ]
    port: Annotated[int, Meta(ge=1, le=65535, description="The server's port."), always(5432, "PostgreSQL's own port")]
    name: Annotated[str, Meta(min_length=1, description="The database's name.", extra={"expected": "a name"})]
    secret: Annotated[
        str,
        Meta(
            pattern=rf"^[A-Za-z0-9/_+=.@-]{{1,512}}{END}",
            description="The name, not the ARN, of the secret in Secrets Manager, in this account and region. Its JSON "
            "fields username and password are the login of the role that `headwater db capture` makes.",
            extra={"expected": "the name of a secret, not its ARN"},
        ),
    ]
    secret_key: Annotated[
        _KeyArn,
        Meta(description="The ARN of the KMS key of the secret; null for the account's aws/secretsmanager."),
        always(None, "Secrets Manager uses the account's key unless you name another"),
    ]
    root_certificate: _RootCertificate
    cidr: Annotated[
        str,
        Meta(
            description="The IPv4 network of the server's addresses, apart from network.cidr. The source connector may "
            "reach it on the server's port. With a peering it is the whole network of the database's VPC.",
            examples=["10.60.0.0/16"],
        ),
    ]
    peering: Annotated[
        Peering | None,
        Meta(description="The VPC to which the deployment makes a peering; null where you make the way to cidr."),
        always(None, "the deployment does not touch a VPC that the file does not name"),
    ]
    monitored: Annotated[
        Monitored | None,
        Meta(
            description="What of RDS the alarms slot-lag and wal watch; null for a server that is not RDS's: no such "
            "alarms."
        ),
        always(None, "only RDS reports these metrics"),
    ]


class Stream(_Part, frozen=True, kw_only=True):
    """MSK."""

    kafka_version: Annotated[
        str,
        Meta(description="MSK's Kafka version, with KRaft.", examples=["3.9.x.kraft"]),
        always("3.9.x.kraft", "the last release of Kafka 3; MSK Connect runs Kafka Connect 3"),
    ]
    broker_type: Annotated[
        str,
        Meta(description="The brokers' type.", examples=["kafka.m7g.large"]),
        always("kafka.m7g.large", "the smallest broker of its generation"),
    ]
    brokers_per_zone: Annotated[
        int, Meta(ge=1, description="Brokers per availability zone."), always(1, "the least that MSK takes")
    ]
    volume_gib: Annotated[
        int,
        Meta(ge=1, le=16384, description="Storage per broker, in GiB."),
        by_size(20, 100, 500, "room for the records of retention_hours; a volume can grow, but not shrink"),
    ]
    retention_hours: Annotated[
        int,
        Meta(ge=1, description="How long topics keep records: the time in which a stopped sink can catch up."),
        by_size(72, 168, 168, "a sink that stops before a weekend, or for a week, misses nothing"),
    ]
    partitions: Annotated[
        int,
        Meta(ge=1, description="Partitions per table's topic."),
        always(1, "partitions can be added later, but not removed"),
    ]


class Connect(_Part, frozen=True, kw_only=True):
    """MSK Connect; units of 1 vCPU and 4 GiB each."""

    kafka_connect_version: Annotated[
        str,
        Meta(description="MSK Connect's version.", examples=["3.7.x"]),
        always("3.7.x", "the newest release that MSK Connect offers"),
    ]
    source_units: Annotated[
        Literal[1, 2, 4, 8],
        Meta(description="Units per worker of the source connector."),
        by_size(1, 1, 2, "more memory for transactions and snapshots of large tables"),
    ]
    sink_units: Annotated[
        Literal[1, 2, 4, 8],
        Meta(description="Units per worker of the sink connector."),
        by_size(1, 1, 2, "more memory for the records that wait for a flush"),
    ]
    sink_workers: Annotated[
        int,
        Meta(ge=1, description="Workers of the sink connector, which run its tasks: sink_tasks or fewer."),
        always(1, "one task needs one worker"),
    ]
    sink_tasks: Annotated[
        int,
        Meta(
            ge=1,
            description="Tasks of the sink connector, among which each topic's partitions are shared out: "
            "stream.partitions or fewer.",
        ),
        always(1, "one partition needs one task"),
    ]
    flush_ms: Annotated[
        int,
        Meta(ge=100, description="The greatest age of a record that has not landed yet, in milliseconds."),
        by_size(30000, 1000, 1000, "each object that lands is paid for; small environments may wait"),
    ]
    missing_offsets: Annotated[
        Literal["fail", "accept"],
        Meta(
            description="What the sink does where Kafka's retention has removed records that have not landed: stop, or "
            "go on without them. Set accept for as long as it takes to get past a loss."
        ),
        always("fail", "somebody should know of a loss before the sink goes on"),
    ]
    snapshot_mode: Annotated[
        Literal["initial", "no_data"],
        Meta(
            description="initial: the source connector reads the rows that tables have before their first change, also "
            "in a raised epoch and of an added table. no_data: `headwater backfill` reads them, in parallel."
        ),
        always("initial", "rows arrive without a further command"),
    ]
    epoch: Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_EPOCH,
            description="Raise it (headwater epoch) when the database's history was cut: a lost slot, a restored "
            "cluster. The source connector then reads all rows again, unless snapshot_mode is no_data.",
        ),
        always(1, "no history was cut yet"),
    ]


class Emr(_Part, frozen=True, kw_only=True):
    """The cluster of the writer."""

    release: Annotated[
        str,
        Meta(description="EMR's release.", examples=["emr-7.13.0"]),
        always("emr-7.13.0", "the newest release that the lists know"),
    ]
    primary_type: Annotated[
        str,
        Meta(description="The primary node's instance type.", examples=["m7g.xlarge"]),
        by_size(
            "r7g.xlarge",
            "m7g.xlarge",
            "m7g.2xlarge",
            "a node that is alone needs memory for the writer and Trino; core nodes share that work",
        ),
    ]
    core_type: Annotated[
        str,
        Meta(description="The core nodes' instance type.", examples=["m7g.xlarge"]),
        derived(
            _primary_type,
            "as emr.primary_type",
            "all nodes get one archive, for one kind of processor",
        ),
    ]
    core_nodes: Annotated[
        int,
        Meta(
            ge=0,
            description="Core nodes; 0 for a cluster of its primary node alone, which then does their work too.",
        ),
        by_size(0, 2, 3, "one node costs least; with core nodes, queries and the writer do not wait for each other"),
    ]
    market: Annotated[
        Literal["on-demand", "spot"],
        Meta(
            description="How the nodes are bought. EC2 may take Spot nodes back at any time: without its primary node "
            "the cluster is gone, and a raised generation makes a new one. on-demand where data.retain is true."
        ),
        always("on-demand", "EC2 takes no On-Demand node back; with a Spot node the cluster can be gone"),
    ]
    volume_gib: Annotated[
        int,
        Meta(ge=32, le=16384, description="Storage per node, in GiB."),
        by_size(32, 64, 64, "the least that EMR takes; core nodes sort larger tables on disk"),
    ]
    # The writers' alarm wants a report in at least one of ten minutes, and an idle writer reports when it has looked.
    idle_seconds_max: Annotated[
        int,
        Meta(
            ge=1,
            le=30,
            description="The longest pause between two looks for landing objects of a table, in seconds: it starts at "
            "half a second after work and doubles. Each look is paid for.",
        ),
        by_size(30, 10, 5, "each look is paid for, and a longer pause delays the first change after it"),
    ]
    web_interfaces: Annotated[
        bool,
        Meta(
            description="true: the cluster has Hue and Livy, and the bastion reaches them and the interfaces of YARN, "
            "HDFS, Spark and Trino. None of them asks for a login. A session on the bastion then acts as the "
            "nodes' role, and so reads and changes every table. false: no Hue, no Livy, no port. A change "
            "makes a new cluster."
        ),
        always(False, "whoever reaches them can read and change every table"),
    ]
    generation: Annotated[
        int,
        Meta(ge=1, description="Raise it to get a new cluster when the present one has ended."),
        always(1, "no cluster was replaced yet"),
    ]


# What Kinesis offers: a day to a year.
_RetentionHours = Annotated[
    int,
    Meta(ge=24, le=8760, description="How long streams keep records: the time in which a stopped job can catch up."),
    by_size(24, 72, 168, "a day is the least that Kinesis takes; a job may stop for three days, or for a week"),
]


class CreatedTables(_Part, frozen=True, kw_only=True, tag_field=KIND, tag="created"):
    """DynamoDB tables, which the deployment makes, and their changes on Kinesis."""

    stream_shards: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(
            description="Shards per stream; null for a stream on demand, which scales by itself.",
            extra={"expected": "a whole number, 1 or more, or null for a stream on demand"},
        ),
        by_size(1, None, None, "one shard costs least; a stream on demand follows the load"),
    ]
    stream_retention_hours: _RetentionHours


class ExistingTable(_Part, frozen=True, kw_only=True):
    """A DynamoDB table that is there, and the stream that its changes go to."""

    contract: Annotated[str, Meta(min_length=1, description="The contract's table, which is the name of its file.")]
    table: Annotated[
        str,
        Meta(
            pattern=rf"^[A-Za-z0-9_.-]{{3,255}}{END}",
            description="The DynamoDB table's name.",
            extra={"expected": "the name of a DynamoDB table, not its ARN"},
        ),
    ]
    stream: Annotated[
        str,
        Meta(
            pattern=rf"^[A-Za-z0-9_.-]{{1,128}}{END}",
            description="The name of the Kinesis stream of this account and region that the table's changes go to, and "
            "no other table's, with times in microseconds.",
            extra={"expected": "the name of a Kinesis stream, not its ARN"},
        ),
    ]
    stream_key: Annotated[
        _KeyArn,
        Meta(description="The ARN of the KMS key of the stream; null where it has none, or the account's aws/kinesis."),
        always(None, "the account's aws/kinesis, or no key, needs no right"),
    ]


class ExistingTables(_Part, frozen=True, kw_only=True, tag_field=KIND, tag="existing"):
    """DynamoDB tables and Kinesis streams that are there. A deployment changes nothing in them."""

    stream_retention_hours: Annotated[
        _RetentionHours,
        Meta(
            description="How long each stream keeps records at least: the time in which a stopped job can catch up. "
            "Every stream keeps them for less than lake.tombstone_days."
        ),
        always(24, "the least that Kinesis takes: assumed unless you say more"),
    ]
    tables: Annotated[
        tuple[ExistingTable, ...],
        Meta(description="A table and its stream for each DynamoDB contract.", extra_json_schema=DIFFERENT),
    ]


class Glue(_Part, frozen=True, kw_only=True):
    """The streaming jobs."""

    version: Annotated[
        str,
        Meta(description="Glue's version, in quotes.", examples=["5.1"]),
        always("5.1", "the only release that brings what the job needs"),
    ]
    jobs: Annotated[
        Literal["shared", "per-table"],
        Meta(
            description="shared: one job writes all tables, which share its workers; one that fails does so alone. "
            "per-table: each table has a job with workers of its own."
        ),
        always("shared", "one job costs least, and a table that fails does so alone"),
    ]
    worker_type: Annotated[
        str,
        Meta(description="The workers' type.", examples=["G.025X"]),
        by_size("G.025X", "G.1X", "G.1X", "the smallest worker, or four times its memory for larger batches"),
    ]
    # One worker drives, so that a job of one would have none to work.
    workers: Annotated[
        int,
        Meta(ge=2, description="Workers per job; one of them drives."),
        by_size(2, 2, 4, "the least that a job works with; more of them write more buckets at once"),
    ]
    window_seconds: Annotated[
        int,
        Meta(ge=1, description="The time from one commit's start to the next, in seconds."),
        by_size(30, 15, 15, "each commit costs requests; small environments may wait"),
    ]
    maintenance_window: Annotated[
        str,
        Meta(
            pattern=rf"^(Mon|Tue|Wed|Thu|Fri|Sat|Sun):(1?[0-9]|2[0-3]){END}",
            description="A day and an hour in UTC; Glue may restart the job within three hours from then.",
            examples=["Sun:3"],
            extra={"expected": "a day and an hour such as Sun:3"},
        ),
        always("Sun:3", "a time at which few wait for data"),
    ]
    epoch: Annotated[
        int,
        Meta(ge=1, le=MAX_EPOCH, description="Raise it when the stream's history was cut (headwater epoch)."),
        always(1, "no history was cut yet"),
    ]


class Monitoring(_Part, frozen=True, kw_only=True):
    """The addresses that get notifications, and the thresholds beyond which they do."""

    emails: Annotated[
        tuple[
            Annotated[
                str,
                Meta(
                    pattern=rf"^[^@\s]+@[^@\s]+\.[^@\s]+{END}",
                    extra={"expected": "an address such as oncall@example.com"},
                ),
            ],
            ...,
        ],
        Meta(
            description="The addresses that get notifications; each has to confirm. One at least if data is kept.",
            extra_json_schema=DIFFERENT,
        ),
        always((), "only you know them"),
    ]
    runbooks: Annotated[
        Annotated[
            str,
            Meta(
                # EventBridge puts it into a text as it is, and CloudWatch takes 1,024 characters.
                pattern=rf'^https://[^\s"\\<>]{{1,500}}/{END}',
                extra={"expected": "an address that begins with https:// and ends with /"},
            ),
        ]
        | None,
        Meta(
            description="The address that shows the repository's files, such as "
            "https://github.com/OWNER/NAME/blob/main/. Texts of alarms have it before the path of the runbook. "
            "null for the path alone."
        ),
        always(None, "only you know where the files are shown"),
    ]
    monthly_budget_usd: Annotated[
        int,
        Meta(ge=1, description="The account's cost per month, in US dollars."),
        by_size(1500, 3500, 6000, "above the estimate of `headwater cost` for the shipped environment of this size"),
    ]
    freshness_seconds: Annotated[
        int,
        Meta(
            ge=1,
            description="The greatest age of a change when it is committed: twice glue.window_seconds, and twice "
            "connect.flush_ms and emr.idle_seconds_max together, at least.",
        ),
        by_size(
            300, 120, 60, "at least twice the longest wait before a commit, so that a single slow commit rings nothing"
        ),
    ]
    consumer_lag_records: Annotated[
        int,
        Meta(ge=1, description="Records that the sink may be behind."),
        by_size(10000, 10000, 50000, "more than a sink of this size has open in usual work"),
    ]
    slot_lag_mib: Annotated[
        int,
        Meta(ge=1, description="WAL that is kept for the slot, in MiB: wal_mib at most."),
        by_size(1024, 2048, 8192, "a part of wal_mib, so that a stopped source is known in time"),
    ]
    wal_mib: Annotated[
        int,
        Meta(ge=1, description="WAL that is kept in all, in MiB."),
        by_size(4096, 8192, 32768, "more than usual work keeps, and less than hurts the database"),
    ]
    iterator_age_seconds: Annotated[
        int,
        Meta(ge=1, description="How far a job may be behind: less than key_value.stream_retention_hours."),
        by_size(600, 300, 300, "many windows of the job, and a small part of what the stream keeps"),
    ]
    replication_age_seconds: Annotated[
        int,
        Meta(ge=1, description="How far DynamoDB may be behind with its stream."),
        by_size(120, 60, 60, "DynamoDB is usually behind by less than a second"),
    ]
    quarantined_records: Annotated[
        int,
        Meta(ge=0, description="Records that may be put aside in five minutes."),
        always(0, "somebody should look at each"),
    ]
    unfit_values: Annotated[
        int,
        Meta(ge=0, description="Values that may be unfit for their columns in five minutes."),
        always(0, "somebody should look at each"),
    ]
    comparison_minutes: Annotated[
        Annotated[int, Meta(ge=5, le=1440)] | None,
        Meta(
            description="For how many minutes headwater verify --watch may say nothing of a table; null where nobody "
            "has to run it."
        ),
        always(None, "nobody has to run a comparison"),
    ]


class Bi(_Part, frozen=True, kw_only=True):
    """QuickSight."""

    principal: Annotated[
        str,
        Meta(
            pattern=rf"^arn:aws[a-z-]*:quicksight:[a-z0-9-]+:[0-9]{{12}}:(user|group)/[^/\n]+/.+{END}",
            description="The ARN of the QuickSight user or group that may read data, analysis and dashboard.",
            extra={"expected": "the ARN of a QuickSight user or group"},
        ),
    ]
    refresh: Annotated[
        Literal["hourly", "daily"] | None,
        Meta(
            description="How often QuickSight reads the data anew, which it then keeps itself; null for a query each "
            "time that somebody looks."
        ),
        always(None, "a query each time shows what the lake has now"),
    ]


class Deployment(_Part, frozen=True, kw_only=True):
    """How long a deployment waits for what it has asked for."""

    # CDK's framework wants what divides the time for which it looks.
    poll_seconds: Annotated[
        Literal[1, 5, 10, 30, 60],
        Meta(description="The time from one look at a custom resource to the next, in seconds."),
        always(30, "what it waits for takes minutes, and each look calls a function"),
    ]
    settled_seconds: Annotated[
        int,
        Meta(
            ge=1,
            description="How long the writer's step must have run before its deployment is done, in seconds.",
        ),
        always(90, "a driver with a wrong argument has failed by then"),
    ]


class PostgresqlSections(NamedTuple):
    """The sections that only contracts of PostgreSQL need."""

    network: Network
    database: Aurora | ExistingDatabase
    stream: Stream
    connect: Connect
    emr: Emr


class DynamodbSections(NamedTuple):
    """The sections that only contracts of DynamoDB need."""

    key_value: CreatedTables | ExistingTables
    glue: Glue


SECTIONS = {POSTGRESQL: PostgresqlSections._fields, DYNAMODB: DynamodbSections._fields}
"""The names of the sections that only one source needs, by the source. All of a source's are null, or none is."""
SOURCE_NAMES = {POSTGRESQL: "PostgreSQL", DYNAMODB: "DynamoDB"}
"""What people call the sources."""


class Environment(_Part, frozen=True, kw_only=True):
    """One environment. A section that only one source needs may be null if no contract is of that source."""

    name: Annotated[
        str,
        Meta(description="The environment's name, as the file's."),
        derived(_name, "the file's name", "a name stands in one place"),
    ]
    size: Annotated[
        Size,
        Meta(
            description="How much the environment is made for: it decides the defaults of sizes, zones, retentions and "
            "alarms' thresholds. small: to try all parts. medium: as large, with less of everything. large: production."
        ),
        always("small", "it costs least"),
    ]
    account: Annotated[
        Annotated[str, Meta(pattern=f"^[0-9]{{12}}{END}")] | None,
        Meta(
            description="The account's 12 digits in quotes. null, which deploys to the account of the credentials at "
            "hand, is refused where data is retained.",
            extra={"expected": "12 digits in quotes, or null"},
        ),
        always(None, "only you know it; data may be retained only in an account that the file names"),
    ]
    region: Annotated[
        str,
        Meta(
            pattern=f"^[a-z]{{2}}(-[a-z]+)+-[0-9]{END}",
            description="Where the environment is deployed.",
            examples=["eu-central-1"],
            extra={"expected": "a region such as eu-central-1"},
        ),
    ]
    availability_zones: Annotated[
        tuple[str, ...],
        Meta(
            description="Two or three zones of the region, named because a look-up would need credentials.",
            extra_json_schema={"minItems": 2, "maxItems": 3, **DIFFERENT},
        ),
        derived(
            _zones,
            "the region's zones a and b for small, or else a, b and c",
            "MSK and Aurora take two or more, and with three one may be lost",
        ),
    ]
    log_days: Annotated[
        LogDays,
        Meta(description="How long log groups and the log bucket keep logs, in days."),
        by_size(14, 30, 365, "long enough to find the cause of a failure; in production, to audit a year"),
    ]
    deployment: Deployment
    data: Data
    network: Annotated[Network | None, Meta(description="The VPC; null if no contract is of PostgreSQL.")]
    lake: Lake
    database: Annotated[
        Aurora | ExistingDatabase | None,
        Meta(
            description="The PostgreSQL database: Aurora, which the deployment makes, or one that is there; null if no "
            "contract is of PostgreSQL."
        ),
        DefaultKind("aurora", "without the address of a database, the deployment makes one"),
    ]
    stream: Annotated[Stream | None, Meta(description="MSK; null if no contract is of PostgreSQL.")]
    connect: Annotated[Connect | None, Meta(description="MSK Connect; null if no contract is of PostgreSQL.")]
    emr: Annotated[Emr | None, Meta(description="The cluster of the writer; null if no contract is of PostgreSQL.")]
    key_value: Annotated[
        CreatedTables | ExistingTables | None,
        Meta(
            description="The DynamoDB tables: those that the deployment makes, or ones that are there; null if no "
            "contract is of DynamoDB."
        ),
        DefaultKind("created", "without the names of tables, the deployment makes them"),
    ]
    glue: Annotated[Glue | None, Meta(description="The streaming jobs; null if no contract is of DynamoDB.")]
    monitoring: Monitoring
    bi: Annotated[
        Bi | None,
        Meta(description="QuickSight, which must be set up in the account; null for none."),
        always(None, "QuickSight has to be set up in the account before"),
    ]

    def document(self) -> dict[str, Any]:
        """Return all fields in the form of a file that states each of them."""
        whole: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return whole

    @property
    def prefix(self) -> str:
        """The prefix of the names of its stacks and resources. Some have it as their name."""
        return f"headwater-{self.name}"

    @property
    def is_local(self) -> bool:
        """Whether it is deployed to the local AWS."""
        return self.account == LOCAL_ACCOUNT

    @property
    def deletes_data(self) -> bool:
        """Whether data goes when its stack goes: both settings say so."""
        return not self.data.retain and self.data.delete_with_stacks_of == self.name

    def describes(self, source: str) -> bool:
        """Whether the file has the sections that only contracts of ``source`` need."""
        return all(getattr(self, section) is not None for section in SECTIONS[source])

    @property
    def postgresql(self) -> PostgresqlSections:
        """The sections that contracts of PostgreSQL need. Raises UserError naming the first that is null."""
        return PostgresqlSections(*self._needed(POSTGRESQL))

    @property
    def dynamodb(self) -> DynamodbSections:
        """The sections that contracts of DynamoDB need. Raises UserError naming the first that is null."""
        return DynamodbSections(*self._needed(DYNAMODB))

    def _needed(self, source: str) -> Iterator[Any]:
        for section in SECTIONS[source]:
            value = getattr(self, section)
            if value is None:
                raise refusal(
                    f"config/{self.name}.yaml",
                    section,
                    None,
                    f"a mapping, because there are contracts of {SOURCE_NAMES[source]}: remove the "
                    "null, so that the section has its defaults, or remove these contracts",
                )
            yield value


class Rule(NamedTuple):
    """What must be true of a field (its dotted path), whether it is, and which value is expected. A rule that rests on
    a list which may be older than AWS's offer only warns."""

    field: str
    holds: bool
    expected: str
    only_warns: bool = False


def names(folder: Path) -> list[str]:
    """The names of the environments in a folder. Raises UserError for a file with the ending ``.yml``."""
    return sorted(path.stem for path in yaml_paths(folder))


def on_aws(folder: Path) -> list[str]:
    """The names of the environments that are deployed to AWS, and not to the local one."""
    return [name for name in names(folder) if read_yaml(folder / f"{name}.yaml").get("account") != LOCAL_ACCOUNT]
