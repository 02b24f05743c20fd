"""Environments: the typed form of ``config/<name>.yaml``.

Each field declares its meaning, its values and its default. Editors read these in ``schemas/environment.schema.json``,
and people in ``docs/reference/environment.md``. ``rules.read_environment`` reads a file, and also checks its fields
against each other and against AWS's offers.
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
# The endpoints for the pipeline's secrets, catalog and metrics (headwater/review/flows.yaml).
NEEDED_ENDPOINTS = ("glue", "monitoring", "secretsmanager")
# The endpoints that the nodes, the job and Session Manager call all day.
_ENDPOINTS_IN_USE = ("glue", "kms", "logs", "monitoring", "secretsmanager", "ssm", "ssmmessages", "sts")
# The retentions that CloudWatch Logs offers, in days.
LogDays = Literal[
    1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653
]  # fmt: skip
LOG_DAYS: tuple[int, ...] = get_args(LogDays)
LOCAL_ACCOUNT = "111111111111"
"""The account of the local AWS. An environment with this account is deployed there."""
KIND = "kind"
"""The field that names the kind of a mapping with several kinds."""
MAX_EPOCH = 9999  # the order of changes has four digits for it
LAKE_FORMAT = 1
"""The newest format of commits, positions, requests and landing objects that this release knows."""
WEB_APPLICATIONS = ("Hue", "Livy")
"""The EMR applications that ``emr.web_interfaces`` adds. Both run any code that a caller sends."""


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
    """A mapping that refuses undeclared fields. ``defaults.complete`` adds the fields that a file lacks."""


class Data(_Part, frozen=True, kw_only=True):
    """Data after the deletion of its stack: it stays, unless both fields say that it is deleted."""

    retain: Annotated[
        bool,
        Meta(
            description="true: stacks are protected from deletion, and data stays when its stack is deleted. Must be "
            "true in prod."
        ),
        always(True, "deleted data does not come back, and data that stays can be deleted later"),
    ]
    delete_with_stacks_of: Annotated[
        str | None,
        Meta(
            description="The environment's name: data is deleted with its stack if also retain is false. "
            "null: data stays, whatever retain says."
        ),
        always(None, "nobody has said yet that the data may be deleted"),
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
        always("10.40.0.0/16", "separate networks may be equal; give each its own addresses if you peer them"),
    ]
    nat: Annotated[
        Literal["instance", "gateway"],
        Meta(description="How the work subnets reach the internet: by one small instance, or one gateway per zone."),
        by_size("instance", "gateway", "gateway", "a gateway survives the loss of a host, but costs many times more"),
    ]
    nat_instance_type: Annotated[
        str | None,
        Meta(
            description="The instance's type if nat is instance; null if nat is gateway.",
            examples=["t4g.nano"],
        ),
        derived(
            _nat_instance_type,
            "t4g.nano if nat is instance, or else null",
            "the cheapest type is enough, because traffic to S3 and DynamoDB bypasses the instance",
        ),
    ]
    image_generation: Annotated[
        int,
        Meta(
            ge=1,
            description="Raise it to replace bastion and NAT instance by new ones with the newest Amazon Linux 2023.",
        ),
        always(1, "a new image replaces bastion and NAT instance, so it comes only on request"),
    ]
    endpoint_zones: Annotated[
        Literal["all", "first"],
        Meta(
            description="The zones with interface endpoints: all, or only the first, whose endpoints then serve the "
            "other zones too. If data.retain is true, it must be all."
        ),
        derived(
            _endpoint_zones,
            "first if data.retain is false, or else all",
            "each zone costs money; with all, the loss of a zone stops nothing",
        ),
    ]
    interface_endpoints: Annotated[
        tuple[InterfaceEndpoint, ...],
        Meta(
            description="The AWS services with an interface endpoint, which are reached without NAT: at least "
            f"{', '.join(NEEDED_ENDPOINTS)}.",
            extra_json_schema=DIFFERENT,
        ),
        by_size(
            NEEDED_ENDPOINTS,
            _ENDPOINTS_IN_USE,
            _ENDPOINTS_IN_USE,
            "each endpoint costs money by the hour; a service without one is reached through NAT",
        ),
    ]


class Lake(_Part, frozen=True, kw_only=True):
    """The lake's format, the limits of its queries, its retention times, and the limits that stop the writers."""

    format: Annotated[
        int,
        Meta(
            ge=1,
            description="The format of commits, positions, requests and landing objects. Raise it when you will not go "
            "back to a release that knows only the former format. It is never lowered. It has no default, so that no "
            "release changes it.",
            # ``lake_format`` checks the upper limit.
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
        by_size(10, 100, 1024, "a limit bounds the cost of a query that reads too much"),
    ]
    query_result_days: Annotated[
        int,
        Meta(ge=1, description="How long Athena's results stay, in days."),
        by_size(7, 14, 30, "a result is a copy of rows, and its query can run again"),
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
            description="The ARNs of existing IAM roles and users, which may assume a role that only queries the lake. "
            "[] makes no such role.",
            # A role's trust policy has room for 2,048 characters.
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
            description="How many hours replaced files stay after a compaction, for queries that began before. Each "
            "hour of a busy table adds thousands of files, which all commits and queries list.",
        ),
        always(1, "Athena ends a query after 30 minutes"),
    ]
    landing_days: Annotated[
        int,
        Meta(
            ge=1,
            description="How many days landing objects stay after a table has read them. The newest object of each "
            "partition always stays, because the sink goes on from there.",
        ),
        by_size(3, 14, 30, "a table that is set back reads them again: as far as a weekend, two weeks, or a month ago"),
    ]
    tombstone_days: Annotated[
        int,
        Meta(
            ge=1,
            description="How many days the tombstone of a deleted row stays, so that a late-arriving change does not "
            "bring the row back. More than stream.retention_hours and key_value.stream_retention_hours, and at least "
            "landing_days.",
        ),
        by_size(7, 30, 90, "much longer than the streams keep records, so that late changes still find the tombstone"),
    ]
    max_quarantined_share: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="The largest share of a batch's records that may go into quarantine, from 0 to 1. If more of "
            "them would, the table stops. Ten records are always allowed.",
        ),
        always(0.01, "single bad records must not stop a table; many bad records mean a wrong contract"),
    ]
    max_unfit_share: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="The largest share of a batch's rows with a value that does not fit its column, from 0 to 1. "
            "If more rows have one, the table stops. Ten rows are always allowed; with 1 the table never stops.",
        ),
        always(0.5, "an unfit value does not harm its row; if half of the rows have one, the contract is wrong"),
    ]


_ID = "([0-9a-f]{8}|[0-9a-f]{17})"  # the id of an EC2 resource, without its prefix
_RootCertificate = Annotated[
    Annotated[str, Meta(min_length=1)] | None,
    Meta(
        description="A file with the PEM certificate of the authority that signs the database's certificate. null: "
        "RDS's authority.",
        extra={"expected": "the name of a file, or null"},
    ),
    always(None, "RDS's authority signs the database's certificate"),
]
_KeyArn = Annotated[
    Annotated[str, Meta(pattern=rf"^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{{12}}:key/[A-Za-z0-9-]+{END}")] | None,
    Meta(extra={"expected": "the ARN of a KMS key, or null"}),
]


class Aurora(_Part, frozen=True, kw_only=True, tag_field=KIND, tag="aurora"):
    """Aurora PostgreSQL Serverless v2, which the deployment makes. A unit of capacity has 2 GiB of memory."""

    name: Annotated[
        str,
        Meta(
            pattern=rf"^[a-z][a-z0-9_]{{0,62}}{END}",
            description="The database's name. It is final after the first deploy, because CloudFormation refuses "
            "another name.",
            examples=["shop"],
            extra={"expected": "a name of 1 to 63 lower-case letters, digits and underscores"},
        ),
        always("lake", "a neutral name, because the lake folder decides the tables"),
    ]
    engine_version: Annotated[
        str,
        Meta(description="Aurora PostgreSQL's version, in quotes.", examples=["16.9"]),
        always("16.9", "the tests capture PostgreSQL 16"),
    ]
    # Logical replication keeps the cluster awake, so it would never pause at a minimum of 0 (auto-pause).
    capacity_min: Annotated[
        float,
        Meta(
            ge=0.5,
            le=256,
            multiple_of=0.5,
            description="The least capacity. 0 is refused, because logical replication prevents the pause at 0.",
        ),
        by_size(0.5, 0.5, 2, "the least for Aurora with logical replication; production starts with a warm cache"),
    ]
    capacity_max: Annotated[
        float,
        Meta(ge=1, le=256, multiple_of=0.5, description="The greatest capacity: capacity_min or more."),
        by_size(2, 16, 64, "a limit bounds the cost of an unexpected load"),
    ]
    readers: Annotated[
        int,
        Meta(ge=0, le=15, description="Reader instances beside the writer."),
        by_size(0, 1, 1, "a reader takes over when the writer fails"),
    ]
    backup_days: Annotated[
        int,
        Meta(ge=1, le=35, description="How long automatic backups stay, in days."),
        by_size(1, 7, 35, "Aurora's least time, a week, and Aurora's longest time"),
    ]
    root_certificate: _RootCertificate


class Peering(_Part, frozen=True, kw_only=True):
    """A VPC peering in this account and region, with routes both ways and a rule that lets the source connector in."""

    vpc: Annotated[
        str,
        Meta(
            pattern=f"^vpc-{_ID}{END}",
            description="The database's VPC. Its network is database.cidr.",
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
            description="The route tables of the database's subnets. Each gets a route to the environment's VPC.",
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
    """The RDS cluster or instance whose metrics report the replication slot's lag and the kept WAL."""

    kind: Annotated[
        Literal["cluster", "instance"],
        Meta(description="cluster: an Aurora cluster. instance: a DB instance of RDS."),
    ]
    identifier: Annotated[
        str,
        Meta(
            min_length=1,
            description="The identifier of the cluster or instance.",
            extra={"expected": "an identifier"},
        ),
    ]


class ExistingDatabase(_Part, frozen=True, kw_only=True, tag_field=KIND, tag="existing"):
    """An existing PostgreSQL database. `headwater db capture` prepares it; a deployment changes nothing in it."""

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
            description="The name, not the ARN, of a secret in Secrets Manager of this account and region. Its JSON "
            "fields username and password are the login of the role that `headwater db capture` makes.",
            extra={"expected": "the name of a secret, not its ARN"},
        ),
    ]
    secret_key: Annotated[
        _KeyArn,
        Meta(description="The ARN of the secret's KMS key; null for the account's aws/secretsmanager."),
        always(None, "Secrets Manager uses the account's key unless you name another"),
    ]
    root_certificate: _RootCertificate
    cidr: Annotated[
        str,
        Meta(
            description="The IPv4 network of the server's addresses, which must not overlap network.cidr. The source "
            "connector may reach this network on the server's port. With a peering it is the whole network of the "
            "database's VPC.",
            examples=["10.60.0.0/16"],
        ),
    ]
    peering: Annotated[
        Peering | None,
        Meta(description="The peering that the deployment makes; null if you make the way to cidr yourself."),
        always(None, "the deployment does not touch a VPC that the file does not name"),
    ]
    monitored: Annotated[
        Monitored | None,
        Meta(
            description="The RDS cluster or instance that the alarms slot-lag and wal watch. null: a server outside of "
            "RDS, without these alarms."
        ),
        always(None, "only RDS reports these metrics"),
    ]


class Stream(_Part, frozen=True, kw_only=True):
    """The Kafka cluster in MSK."""

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
        int, Meta(ge=1, description="Brokers per availability zone."), always(1, "the least that MSK accepts")
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
    """The connectors in MSK Connect. A unit has 1 vCPU and 4 GiB of memory."""

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
        Meta(ge=1, description="Workers of the sink connector, which run its tasks: at most sink_tasks."),
        always(1, "one task needs one worker"),
    ]
    sink_tasks: Annotated[
        int,
        Meta(
            ge=1,
            description="Tasks of the sink connector, which share each topic's partitions: at most stream.partitions.",
        ),
        always(1, "one partition needs one task"),
    ]
    flush_ms: Annotated[
        int,
        Meta(ge=100, description="The longest time until a record lands, in milliseconds."),
        by_size(30000, 1000, 1000, "each landing object costs money; small environments may wait"),
    ]
    missing_offsets: Annotated[
        Literal["fail", "accept"],
        Meta(
            description="If Kafka's retention has deleted records that have not landed, the sink stops (fail) or goes "
            "on without them (accept). Set accept only until the sink has passed the loss."
        ),
        always("fail", "somebody should know of a loss before the sink goes on"),
    ]
    snapshot_mode: Annotated[
        Literal["initial", "no_data"],
        Meta(
            description="initial: the source connector reads a table's existing rows before its changes, also after a "
            "raised epoch and for an added table. no_data: `headwater backfill` reads existing rows, in parallel."
        ),
        always("initial", "rows arrive without a further command"),
    ]
    epoch: Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_EPOCH,
            description="Raise it (headwater epoch) after changes of the database were lost, such as by a lost slot or "
            "a restored cluster. The source connector then reads all rows again, unless snapshot_mode is no_data.",
        ),
        always(1, "no change was lost yet"),
    ]


class Emr(_Part, frozen=True, kw_only=True):
    """The writer's EMR cluster."""

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
            "a single node needs memory for the writer and Trino; core nodes share that work",
        ),
    ]
    core_type: Annotated[
        str,
        Meta(description="The core nodes' instance type.", examples=["m7g.xlarge"]),
        derived(
            _primary_type,
            "the value of emr.primary_type",
            "all nodes get one archive, for one kind of processor",
        ),
    ]
    core_nodes: Annotated[
        int,
        Meta(
            ge=0,
            description="Core nodes. With 0, the cluster has only its primary node, which also does their work.",
        ),
        by_size(0, 2, 3, "one node costs least; with core nodes, queries and the writer do not wait for each other"),
    ]
    market: Annotated[
        Literal["on-demand", "spot"],
        Meta(
            description="How the nodes are bought. EC2 may end Spot nodes at any time. If the primary node ends, the "
            "cluster ends, and a raised generation makes a new one. If data.retain is true, it must be on-demand."
        ),
        always("on-demand", "EC2 ends no On-Demand node; the loss of a Spot node can end the cluster"),
    ]
    volume_gib: Annotated[
        int,
        Meta(ge=32, le=16384, description="Storage per node, in GiB."),
        by_size(32, 64, 64, "the least that EMR accepts; core nodes sort larger tables on disk"),
    ]
    # The writers' alarm needs a report in at least one of ten minutes, and an idle writer reports after each poll.
    idle_seconds_max: Annotated[
        int,
        Meta(
            ge=1,
            le=30,
            description="The longest pause between two polls for landing objects of a table, in seconds. After work "
            "the pause is half a second, and it doubles with each empty poll.",
        ),
        by_size(30, 10, 5, "each poll costs money, and a longer pause delays the first change after it"),
    ]
    web_interfaces: Annotated[
        bool,
        Meta(
            description="true: the cluster has Hue and Livy, and the bastion reaches them and the interfaces of YARN, "
            "HDFS, Spark and Trino. None of these needs a login. So a session on the bastion can act as the nodes' "
            "role, and read and change every table. false: no Hue, no Livy, no open port. A change makes a new "
            "cluster."
        ),
        always(False, "whoever reaches these interfaces can read and change every table"),
    ]
    generation: Annotated[
        int,
        Meta(ge=1, description="Raise it to make a new cluster after the present one has ended."),
        always(1, "no cluster was replaced yet"),
    ]


# Kinesis keeps records for a day to a year.
_RetentionHours = Annotated[
    int,
    Meta(ge=24, le=8760, description="How long streams keep records: the time in which a stopped job can catch up."),
    by_size(24, 72, 168, "a day is the least for Kinesis; otherwise a job may stop for three days, or for a week"),
]


class CreatedTables(_Part, frozen=True, kw_only=True, tag_field=KIND, tag="created"):
    """DynamoDB tables and Kinesis streams that the deployment makes."""

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
    """An existing DynamoDB table, and the stream with its changes."""

    contract: Annotated[str, Meta(min_length=1, description="The contract's table, which is also its file's name.")]
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
            description="The name of a Kinesis stream in this account and region. It gets only this table's changes, "
            "with times in microseconds.",
            extra={"expected": "the name of a Kinesis stream, not its ARN"},
        ),
    ]
    stream_key: Annotated[
        _KeyArn,
        Meta(description="The ARN of the stream's KMS key; null if it has none, or the account's aws/kinesis."),
        always(None, "no key, or the account's aws/kinesis, needs no right"),
    ]


class ExistingTables(_Part, frozen=True, kw_only=True, tag_field=KIND, tag="existing"):
    """Existing DynamoDB tables and Kinesis streams. A deployment does not change them."""

    stream_retention_hours: Annotated[
        _RetentionHours,
        Meta(
            description="The least time for which each stream keeps records, in which a stopped job can catch up. "
            "Every stream must keep records for less than lake.tombstone_days."
        ),
        always(24, "every Kinesis stream keeps records for at least a day"),
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
        always("5.1", "the only release with the software that the job needs"),
    ]
    jobs: Annotated[
        Literal["shared", "per-table"],
        Meta(
            description="shared: one job writes all tables, which share its workers; if one table fails, the others go "
            "on. per-table: each table has a job with workers of its own."
        ),
        always("shared", "one job costs least, and if one table fails, the others go on"),
    ]
    worker_type: Annotated[
        str,
        Meta(description="The workers' type.", examples=["G.025X"]),
        by_size("G.025X", "G.1X", "G.1X", "the smallest worker, or four times its memory for larger batches"),
    ]
    # One worker runs the driver, so a job of one worker would have no executor.
    workers: Annotated[
        int,
        Meta(ge=2, description="Workers per job. One of them runs the driver."),
        by_size(2, 2, 4, "the least number with which a job works; more workers write more buckets at once"),
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
        always("Sun:3", "at this time few people wait for data"),
    ]
    epoch: Annotated[
        int,
        Meta(ge=1, le=MAX_EPOCH, description="Raise it (headwater epoch) after changes of the stream were lost."),
        always(1, "no change was lost yet"),
    ]


class Monitoring(_Part, frozen=True, kw_only=True):
    """The addresses that get notifications, and the thresholds of the alarms."""

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
            description="The addresses that get notifications. Each has to confirm. If data.retain is true, at least "
            "one.",
            extra_json_schema=DIFFERENT,
        ),
        always((), "only you know them"),
    ]
    runbooks: Annotated[
        Annotated[
            str,
            Meta(
                # EventBridge puts the address into a text unchanged, and CloudWatch takes 1,024 characters.
                pattern=rf'^https://[^\s"\\<>]{{1,500}}/{END}',
                extra={"expected": "an address that begins with https:// and ends with /"},
            ),
        ]
        | None,
        Meta(
            description="The address at which the repository's files are shown, such as "
            "https://github.com/OWNER/NAME/blob/main/. Alarms put it before the path of a runbook. null: alarms have "
            "only the path."
        ),
        always(None, "only you know this address"),
    ]
    monthly_budget_usd: Annotated[
        int,
        Meta(ge=1, description="The budget for the account per month, in US dollars."),
        by_size(1500, 3500, 6000, "above the estimate of `headwater cost` for the shipped environment of this size"),
    ]
    freshness_seconds: Annotated[
        int,
        Meta(
            ge=1,
            description="The alarm's limit for the age of a change at its commit, in seconds. At least twice "
            "glue.window_seconds, and twice the sum of connect.flush_ms and emr.idle_seconds_max.",
        ),
        by_size(
            300, 120, 60, "at least twice the longest wait before a commit, so that one slow commit rings no alarm"
        ),
    ]
    consumer_lag_records: Annotated[
        int,
        Meta(ge=1, description="The alarm's limit for the records that the sink is behind."),
        by_size(10000, 10000, 50000, "more than a sink of this size is behind in usual work"),
    ]
    slot_lag_mib: Annotated[
        int,
        Meta(ge=1, description="The alarm's limit for the WAL that the slot holds back, in MiB: at most wal_mib."),
        by_size(1024, 2048, 8192, "a part of wal_mib, so that a stopped source connector is noticed in time"),
    ]
    wal_mib: Annotated[
        int,
        Meta(ge=1, description="The alarm's limit for the whole WAL, in MiB."),
        by_size(4096, 8192, 32768, "more than in usual work, and less than hurts the database"),
    ]
    iterator_age_seconds: Annotated[
        int,
        Meta(
            ge=1,
            description="The alarm's limit for the seconds that a job is behind: less than "
            "key_value.stream_retention_hours.",
        ),
        by_size(600, 300, 300, "many windows of the job, and a small part of the stream's retention"),
    ]
    replication_age_seconds: Annotated[
        int,
        Meta(ge=1, description="The alarm's limit for the seconds that DynamoDB is behind with its stream."),
        by_size(120, 60, 60, "DynamoDB is usually behind by less than a second"),
    ]
    quarantined_records: Annotated[
        int,
        Meta(ge=0, description="The alarm's limit for records that go into quarantine in five minutes."),
        always(0, "somebody should look at each record"),
    ]
    unfit_values: Annotated[
        int,
        Meta(ge=0, description="The alarm's limit for unfit values in five minutes."),
        always(0, "somebody should look at each value"),
    ]
    comparison_minutes: Annotated[
        Annotated[int, Meta(ge=5, le=1440)] | None,
        Meta(
            description="The alarm's limit for the minutes in which headwater verify --watch reports nothing about a "
            "table. null: nobody has to run it."
        ),
        always(None, "nobody has to run a comparison"),
    ]


class Bi(_Part, frozen=True, kw_only=True):
    """QuickSight's data sets, analysis and dashboard."""

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
        Meta(description="How often QuickSight imports the data. null: each view of a chart queries the lake."),
        always(None, "a query for each view shows the lake's current rows"),
    ]


class Deployment(_Part, frozen=True, kw_only=True):
    """The times for which a deployment waits."""

    # CDK's framework wants a divisor of the total time for which it waits.
    poll_seconds: Annotated[
        Literal[1, 5, 10, 30, 60],
        Meta(description="The seconds between two polls of a custom resource."),
        always(30, "custom resources take minutes, and each poll calls a function"),
    ]
    settled_seconds: Annotated[
        int,
        Meta(
            ge=1,
            description="The seconds for which the writer's step must have run before its deployment is done.",
        ),
        always(90, "a driver with a wrong argument has failed by then"),
    ]


class PostgresqlSections(NamedTuple):
    """The sections that only contracts of PostgreSQL need."""

    network: Network
    """The VPC."""
    database: Aurora | ExistingDatabase
    """The source database."""
    stream: Stream
    """The Kafka cluster."""
    connect: Connect
    """The connectors."""
    emr: Emr
    """The writer's cluster."""


class DynamodbSections(NamedTuple):
    """The sections that only contracts of DynamoDB need."""

    key_value: CreatedTables | ExistingTables
    """The DynamoDB tables and their streams."""
    glue: Glue
    """The streaming jobs."""


SECTIONS = {POSTGRESQL: PostgresqlSections._fields, DYNAMODB: DynamodbSections._fields}
"""By source, the names of the sections that only this source needs. Either all of them are null, or none is."""
SOURCE_NAMES = {POSTGRESQL: "PostgreSQL", DYNAMODB: "DynamoDB"}
"""The names of the sources in messages."""


class Environment(_Part, frozen=True, kw_only=True):
    """One environment. A section that only one source needs may be null if no contract is of that source."""

    name: Annotated[
        str,
        Meta(description="The environment's name, which must be the file's name."),
        derived(_name, "the file's name", "a name should be written in one place"),
    ]
    size: Annotated[
        Size,
        Meta(
            description="The size of the environment, which decides the defaults of sizes, zones, retentions and "
            "alarms' thresholds. small: to try all parts. medium: the parts of large, with less capacity. large: "
            "production."
        ),
        always("small", "it costs least"),
    ]
    account: Annotated[
        Annotated[str, Meta(pattern=f"^[0-9]{{12}}{END}")] | None,
        Meta(
            description="The account's 12 digits in quotes. null deploys to the account of the current credentials. "
            "It is refused if data.retain is true.",
            extra={"expected": "12 digits in quotes, or null"},
        ),
        always(None, "only you know the account; data may be retained only in an account that the file names"),
    ]
    region: Annotated[
        str,
        Meta(
            pattern=f"^[a-z]{{2}}(-[a-z]+)+-[0-9]{END}",
            description="The region to which the environment is deployed.",
            examples=["eu-central-1"],
            extra={"expected": "a region such as eu-central-1"},
        ),
    ]
    availability_zones: Annotated[
        tuple[str, ...],
        Meta(
            description="Two or three zones of the region. The file names them, because a look-up needs credentials.",
            extra_json_schema={"minItems": 2, "maxItems": 3, **DIFFERENT},
        ),
        derived(
            _zones,
            "the region's zones a and b for small, or else a, b and c",
            "MSK and Aurora need at least two zones, and with three one may be lost",
        ),
    ]
    log_days: Annotated[
        LogDays,
        Meta(description="How long log groups and the log bucket keep logs, in days."),
        by_size(14, 30, 365, "long enough to find the cause of a failure; in production, long enough to audit a year"),
    ]
    deployment: Deployment
    data: Data
    network: Annotated[Network | None, Meta(description="The VPC; null if no contract is of PostgreSQL.")]
    lake: Lake
    database: Annotated[
        Aurora | ExistingDatabase | None,
        Meta(
            description="The PostgreSQL database: Aurora, which the deployment makes, or an existing one; null if no "
            "contract is of PostgreSQL."
        ),
        DefaultKind("aurora", "without the address of a database, the deployment makes one"),
    ]
    stream: Annotated[
        Stream | None, Meta(description="The Kafka cluster in MSK; null if no contract is of PostgreSQL.")
    ]
    connect: Annotated[
        Connect | None, Meta(description="The connectors in MSK Connect; null if no contract is of PostgreSQL.")
    ]
    emr: Annotated[Emr | None, Meta(description="The writer's EMR cluster; null if no contract is of PostgreSQL.")]
    key_value: Annotated[
        CreatedTables | ExistingTables | None,
        Meta(
            description="The DynamoDB tables, which the deployment makes, or existing ones; null if no contract is of "
            "DynamoDB."
        ),
        DefaultKind("created", "without the names of tables, the deployment makes them"),
    ]
    glue: Annotated[Glue | None, Meta(description="The streaming jobs; null if no contract is of DynamoDB.")]
    monitoring: Monitoring
    bi: Annotated[
        Bi | None,
        Meta(description="QuickSight, which must already be set up in the account; null for no charts."),
        always(None, "QuickSight has to be set up in the account before"),
    ]

    def document(self) -> dict[str, Any]:
        """Return all fields in the form of a file that states each of them."""
        whole: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return whole

    @property
    def prefix(self) -> str:
        """The prefix of the names of the environment's stacks and resources. Some names are only the prefix."""
        return f"headwater-{self.name}"

    @property
    def is_local(self) -> bool:
        """Whether the environment is deployed to the local AWS."""
        return self.account == LOCAL_ACCOUNT

    @property
    def deletes_data(self) -> bool:
        """Whether data is deleted with its stack, because both settings say so."""
        return not self.data.retain and self.data.delete_with_stacks_of == self.name

    def describes(self, source: str) -> bool:
        """Return whether the file has the sections that only contracts of ``source`` need."""
        return all(getattr(self, section) is not None for section in SECTIONS[source])

    @property
    def postgresql(self) -> PostgresqlSections:
        """The sections that contracts of PostgreSQL need. Raises UserError for the first section that is null."""
        return PostgresqlSections(*self._needed(POSTGRESQL))

    @property
    def dynamodb(self) -> DynamodbSections:
        """The sections that contracts of DynamoDB need. Raises UserError for the first section that is null."""
        return DynamodbSections(*self._needed(DYNAMODB))

    def _needed(self, source: str) -> Iterator[Any]:
        for section in SECTIONS[source]:
            value = getattr(self, section)
            if value is None:
                raise refusal(
                    f"config/{self.name}.yaml",
                    section,
                    None,
                    f"a mapping, because there are contracts of {SOURCE_NAMES[source]}: remove the null, so that the "
                    "section gets its defaults, or remove these contracts",
                )
            yield value


class Rule(NamedTuple):
    """A rule for a field of an environment, and its result."""

    field: str
    """The field's dotted path."""
    holds: bool
    """Whether the field's value fits the rule."""
    expected: str
    """The expected value, in words."""
    only_warns: bool = False
    """Whether a misfit only gives a warning, because the rule's list may be older than AWS's offers."""


def names(folder: Path) -> list[str]:
    """Return the names of the environments in a folder, sorted. Raises UserError if it has a ``.yml`` file."""
    return sorted(path.stem for path in yaml_paths(folder))


def on_aws(folder: Path) -> list[str]:
    """Return the names of the environments that are deployed to AWS, and not to the local AWS."""
    return [name for name in names(folder) if read_yaml(folder / f"{name}.yaml").get("account") != LOCAL_ACCOUNT]
