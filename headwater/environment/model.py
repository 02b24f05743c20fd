"""Environments: the typed form of ``config/<name>.yaml``.

Each field says here what it means and which values it takes; ``schemas/environment.schema.json`` tells editors the
same. ``rules.read_environment`` reads a file, and also checks what its fields must be beside each other and
what AWS offers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

from msgspec import Meta, Struct

from headwater.contract.model import DYNAMODB, POSTGRESQL
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
WEB_APPLICATIONS = ("Hue", "Livy")
"""The EMR applications that ``emr.web_interfaces`` adds. Both run whatever code a caller sends them."""


class _Part(Struct, frozen=True, forbid_unknown_fields=True):
    """A mapping that takes the fields it names, and all of them."""


class Data(_Part, frozen=True, kw_only=True):
    """What becomes of data when a stack is deleted: it stays, unless both fields say that it goes."""

    retain: Annotated[
        bool,
        Meta(description="true: stacks are protected from deletion, and data stays when its stack goes. True in prod."),
    ]
    delete_with_stacks_of: Annotated[
        str | None,
        Meta(
            description="The environment's name, beside retain: false: data goes with its stack. "
            "null: data stays whatever retain says."
        ),
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
    ]
    nat: Annotated[
        Literal["instance", "gateway"],
        Meta(description="How the work subnets reach the internet: one small instance, or one gateway per zone."),
    ]
    nat_instance_type: Annotated[
        str | None,
        Meta(
            description="The type of the instance beside nat: instance; null beside nat: gateway.",
            examples=["t4g.nano"],
        ),
    ]
    image_generation: Annotated[
        int,
        Meta(
            ge=1,
            description="Raise it to give bastion and NAT instance the newest Amazon Linux 2023, which replaces them.",
        ),
    ]
    endpoint_zones: Annotated[
        Literal["all", "first"],
        Meta(
            description="Where the interface endpoints are: in all zones, or in the first only, which serves the "
            "others too while it is there. all where data.retain is true."
        ),
    ]
    interface_endpoints: Annotated[
        tuple[InterfaceEndpoint, ...],
        Meta(
            description=f"The AWS services that are reached without NAT: {', '.join(NEEDED_ENDPOINTS)} at least.",
            extra_json_schema=DIFFERENT,
        ),
    ]


class Lake(_Part, frozen=True, kw_only=True):
    """Queries of the lake, how long what is replaced or read stays, and what stops the writers."""

    query_scan_limit_gib: Annotated[int, Meta(ge=1, description="The most that one Athena query may read, in GiB.")]
    query_result_days: Annotated[int, Meta(ge=1, description="How long Athena's results stay, in days.")]
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
            description="Who may take the role that queries the lake and may do nothing else: the ARNs of IAM roles "
            "and users, which must exist. [] makes no such role.",
            # A role's policy of trust has room for 2,048 characters.
            max_length=12,
            extra={"expected": "at most 12 ARNs"},
            extra_json_schema=DIFFERENT,
        ),
    ]
    file_version_hours: Annotated[
        int,
        Meta(
            ge=1,
            description="How long the files of a table stay that compaction has replaced, for queries that began "
            "before. Each hour of a busy table is thousands of files, which all commits and queries list.",
        ),
    ]
    landing_days: Annotated[
        int,
        Meta(
            ge=1,
            description="How long landing objects stay that a table has read. The newest of each partition always "
            "stays, as the sink goes on from it.",
        ),
    ]
    tombstone_days: Annotated[
        int,
        Meta(
            ge=1,
            description="How long the tombstone of a deleted row stays, so that an older change which arrives late "
            "does not bring the row back: longer than stream.retention_hours and key_value.stream_retention_hours, "
            "and landing_days at least.",
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
    ]
    max_unfit_share: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="The share of a batch's rows that may lack a value which does not fit, from 0 to 1; beyond it "
            "the table stops, as the contract must be wrong. Ten rows always may; 1 never stops.",
        ),
    ]


_ID = "([0-9a-f]{8}|[0-9a-f]{17})"  # of a resource of EC2, behind its prefix
_RootCertificate = Annotated[
    Annotated[str, Meta(min_length=1)] | None,
    Meta(
        description="A file with the certificate, as PEM, of the authority that signs the database's; null on AWS, "
        "where it is RDS's.",
        extra={"expected": "the name of a file, or null"},
    ),
]
_KeyArn = Annotated[
    Annotated[str, Meta(pattern=rf"^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{{12}}:key/[A-Za-z0-9-]+{END}")] | None,
    Meta(extra={"expected": "the ARN of a KMS key, or null"}),
]


class Aurora(_Part, frozen=True, kw_only=True, tag_field=KIND, tag="aurora"):
    """Aurora PostgreSQL Serverless v2, which the deployment makes; capacities in units of 2 GiB of memory."""

    engine_version: Annotated[str, Meta(description="Aurora PostgreSQL's version, in quotes.", examples=["16.9"])]
    # Logical replication keeps the cluster awake, so a minimum of 0 (auto-pause) would promise what cannot happen.
    capacity_min: Annotated[
        float,
        Meta(
            ge=0.5,
            le=256,
            multiple_of=0.5,
            description="The least capacity; 0 is refused, since logical replication prevents the pause at 0.",
        ),
    ]
    capacity_max: Annotated[
        float, Meta(ge=1, le=256, multiple_of=0.5, description="The greatest capacity: capacity_min or more.")
    ]
    readers: Annotated[int, Meta(ge=0, le=15, description="Reader instances beside the writer.")]
    backup_days: Annotated[int, Meta(ge=1, le=35, description="How long automatic backups stay, in days.")]
    root_certificate: _RootCertificate


class Peering(_Part, frozen=True, kw_only=True):
    """A VPC peering of this account and region, with routes both ways and a rule that lets the source connector in."""

    vpc: Annotated[
        str,
        Meta(
            pattern=f"^vpc-{_ID}{END}",
            description="The database's VPC, of which cidr is the network.",
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
    port: Annotated[int, Meta(ge=1, le=65535, description="The server's port.")]
    name: Annotated[str, Meta(min_length=1, description="The database's name.", extra={"expected": "a name"})]
    secret: Annotated[
        str,
        Meta(
            pattern=rf"^[A-Za-z0-9/_+=.@-]{{1,512}}{END}",
            description="The name, not the ARN, of the secret in Secrets Manager, of this account and region, with the "
            "JSON fields username and password: those of the role that `headwater db capture` makes.",
            extra={"expected": "the name of a secret, not its ARN"},
        ),
    ]
    secret_key: Annotated[
        _KeyArn, Meta(description="The ARN of the KMS key of the secret; null for the account's aws/secretsmanager.")
    ]
    root_certificate: _RootCertificate
    cidr: Annotated[
        str,
        Meta(
            description="The IPv4 network of the server's addresses, which the source connector may reach on the "
            "server's port; with a peering the whole network of its VPC. It is apart from network.cidr.",
            examples=["10.60.0.0/16"],
        ),
    ]
    peering: Annotated[
        Peering | None,
        Meta(description="The VPC to which the deployment makes a peering; null where you make the way to cidr."),
    ]
    monitored: Annotated[
        Monitored | None,
        Meta(
            description="What of RDS the alarms slot-lag and wal watch; null for a server that is not RDS's: no such "
            "alarms."
        ),
    ]


class Stream(_Part, frozen=True, kw_only=True):
    """MSK."""

    kafka_version: Annotated[str, Meta(description="MSK's Kafka version, with KRaft.", examples=["3.9.x.kraft"])]
    broker_type: Annotated[str, Meta(description="The brokers' type.", examples=["kafka.m7g.large"])]
    brokers_per_zone: Annotated[int, Meta(ge=1, description="Brokers per availability zone.")]
    volume_gib: Annotated[int, Meta(ge=1, le=16384, description="Storage per broker, in GiB.")]
    retention_hours: Annotated[
        int, Meta(ge=1, description="How long topics keep records: the time in which a stopped sink can catch up.")
    ]
    partitions: Annotated[int, Meta(ge=1, description="Partitions per table's topic.")]


class Connect(_Part, frozen=True, kw_only=True):
    """MSK Connect; units of 1 vCPU and 4 GiB each."""

    kafka_connect_version: Annotated[str, Meta(description="MSK Connect's version.", examples=["3.7.x"])]
    source_units: Annotated[Literal[1, 2, 4, 8], Meta(description="Units per worker of the source connector.")]
    sink_units: Annotated[Literal[1, 2, 4, 8], Meta(description="Units per worker of the sink connector.")]
    sink_workers: Annotated[
        int, Meta(ge=1, description="Workers of the sink connector, which run its tasks: sink_tasks or fewer.")
    ]
    sink_tasks: Annotated[
        int,
        Meta(
            ge=1,
            description="Tasks of the sink connector, among which each topic's partitions are shared out: "
            "stream.partitions or fewer.",
        ),
    ]
    flush_ms: Annotated[
        int, Meta(ge=100, description="The greatest age of a record that has not landed yet, in milliseconds.")
    ]
    missing_offsets: Annotated[
        Literal["fail", "accept"],
        Meta(
            description="What the sink does where Kafka's retention has removed records that have not landed: stop, or "
            "go on without them. Set accept for as long as it takes to get past a loss."
        ),
    ]
    snapshot_mode: Annotated[
        Literal["initial", "no_data"],
        Meta(
            description="Who reads the rows that tables have before their first change, also in a raised epoch and of "
            "an added table: the source connector, or with no_data headwater backfill, in parallel."
        ),
    ]
    epoch: Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_EPOCH,
            description="Raise it (headwater epoch) when the database's history was cut: a lost slot, a restored "
            "cluster. The source connector then reads all rows again, unless snapshot_mode is no_data.",
        ),
    ]


class Emr(_Part, frozen=True, kw_only=True):
    """The cluster of the writer."""

    release: Annotated[str, Meta(description="EMR's release.", examples=["emr-7.13.0"])]
    primary_type: Annotated[str, Meta(description="The primary node's instance type.", examples=["m7g.xlarge"])]
    core_type: Annotated[str, Meta(description="The core nodes' instance type.", examples=["m7g.xlarge"])]
    core_nodes: Annotated[
        int,
        Meta(
            ge=0,
            description="Core nodes; 0 for a cluster of its primary node alone, which then does their work too.",
        ),
    ]
    market: Annotated[
        Literal["on-demand", "spot"],
        Meta(
            description="How the nodes are bought. EC2 may take Spot nodes back at any time: without its primary node "
            "the cluster is gone, and a raised generation makes a new one. on-demand where data.retain is true."
        ),
    ]
    volume_gib: Annotated[int, Meta(ge=32, le=16384, description="Storage per node, in GiB.")]
    # The writers' alarm wants a report in at least one of ten minutes, and an idle writer reports when it has looked.
    idle_seconds_max: Annotated[
        int,
        Meta(
            ge=1,
            le=30,
            description="The longest pause between two looks for landing objects of a table, in seconds: it starts at "
            "half a second after work and doubles. Each look is paid for.",
        ),
    ]
    web_interfaces: Annotated[
        bool,
        Meta(
            description="true: the cluster has Hue and Livy, and the bastion reaches them and the interfaces of YARN, "
            "HDFS, Spark and Trino. None of them asks who you are: whoever may open a session on the bastion then acts "
            "as the nodes' role, and so reads and changes every table. false: no Hue, no Livy, no port. A change "
            "makes a new cluster."
        ),
    ]
    generation: Annotated[
        int,
        Meta(ge=1, description="Raise it to get a new cluster when the present one has ended."),
    ]


# What Kinesis offers: a day to a year.
_RetentionHours = Annotated[
    int,
    Meta(ge=24, le=8760, description="How long streams keep records: the time in which a stopped job can catch up."),
]


class CreatedTables(_Part, frozen=True, kw_only=True, tag_field=KIND, tag="created"):
    """DynamoDB tables, which the deployment makes, and their changes on Kinesis."""

    stream_shards: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(
            description="Shards per stream; null for a stream on demand, which scales by itself.",
            extra={"expected": "a whole number, 1 or more, or null for a stream on demand"},
        ),
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
    ]


class ExistingTables(_Part, frozen=True, kw_only=True, tag_field=KIND, tag="existing"):
    """DynamoDB tables and Kinesis streams that are there. A deployment changes nothing in them."""

    stream_retention_hours: Annotated[
        _RetentionHours,
        Meta(
            description="How long each stream keeps records at least: the time in which a stopped job can catch up. "
            "Every stream keeps them for less than lake.tombstone_days."
        ),
    ]
    tables: Annotated[
        tuple[ExistingTable, ...],
        Meta(description="A table and its stream for each DynamoDB contract.", extra_json_schema=DIFFERENT),
    ]


class Glue(_Part, frozen=True, kw_only=True):
    """The streaming jobs."""

    version: Annotated[str, Meta(description="Glue's version, in quotes.", examples=["5.1"])]
    jobs: Annotated[
        Literal["shared", "per-table"],
        Meta(
            description="shared: one job writes all tables, which share its workers; one that fails does so alone. "
            "per-table: each table has a job with workers of its own."
        ),
    ]
    worker_type: Annotated[str, Meta(description="The workers' type.", examples=["G.025X"])]
    # One worker drives, so that a job of one would have none to work.
    workers: Annotated[int, Meta(ge=2, description="Workers per job; one of them drives.")]
    window_seconds: Annotated[int, Meta(ge=1, description="The time from one commit's start to the next, in seconds.")]
    maintenance_window: Annotated[
        str,
        Meta(
            pattern=rf"^(Mon|Tue|Wed|Thu|Fri|Sat|Sun):(1?[0-9]|2[0-3]){END}",
            description="A day and an hour in UTC; Glue may restart the job within three hours from then.",
            examples=["Sun:3"],
            extra={"expected": "a day and an hour such as Sun:3"},
        ),
    ]
    epoch: Annotated[
        int, Meta(ge=1, le=MAX_EPOCH, description="Raise it when the stream's history was cut (headwater epoch).")
    ]


class Monitoring(_Part, frozen=True, kw_only=True):
    """Who is told, and beyond which value of what."""

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
            description="Who gets notifications; each has to confirm. One at least where data is kept.",
            extra_json_schema=DIFFERENT,
        ),
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
            description="Where the repository's files are shown, such as https://github.com/OWNER/NAME/blob/main/: "
            "texts of alarms have it before the path of the runbook. null for the path alone."
        ),
    ]
    monthly_budget_usd: Annotated[int, Meta(ge=1, description="The account's cost per month, in US dollars.")]
    freshness_seconds: Annotated[
        int,
        Meta(
            ge=1,
            description="The greatest age of a change when it is committed: twice glue.window_seconds, and twice "
            "connect.flush_ms and emr.idle_seconds_max together, at least.",
        ),
    ]
    consumer_lag_records: Annotated[int, Meta(ge=1, description="Records that the sink may be behind.")]
    slot_lag_mib: Annotated[int, Meta(ge=1, description="WAL that is kept for the slot, in MiB: wal_mib at most.")]
    wal_mib: Annotated[int, Meta(ge=1, description="WAL that is kept in all, in MiB.")]
    iterator_age_seconds: Annotated[
        int, Meta(ge=1, description="How far a job may be behind: less than key_value.stream_retention_hours.")
    ]
    replication_age_seconds: Annotated[int, Meta(ge=1, description="How far DynamoDB may be behind with its stream.")]
    quarantined_records: Annotated[int, Meta(ge=0, description="Records that may be put aside in five minutes.")]
    unfit_values: Annotated[int, Meta(ge=0, description="Values that may be unfit for their columns in five minutes.")]
    comparison_minutes: Annotated[
        Annotated[int, Meta(ge=5, le=1440)] | None,
        Meta(
            description="For how many minutes headwater verify --watch may say nothing of a table; null where nobody "
            "has to run it."
        ),
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
    ]


class Deployment(_Part, frozen=True, kw_only=True):
    """How long a deployment waits for what it has asked for."""

    # CDK's framework wants what divides the time for which it looks.
    poll_seconds: Annotated[
        Literal[1, 5, 10, 30, 60],
        Meta(description="The time from one look at a custom resource to the next, in seconds."),
    ]
    settled_seconds: Annotated[
        int,
        Meta(
            ge=1,
            description="How long the writer's step must have run before its deployment is done, in seconds: a driver "
            "with a wrong argument fails within 90 on AWS.",
        ),
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

    name: Annotated[str, Meta(description="The environment's name, as the file's.")]
    account: Annotated[
        Annotated[str, Meta(pattern=f"^[0-9]{{12}}{END}")] | None,
        Meta(
            description="The account's 12 digits in quotes. null, which deploys to the account of the credentials at "
            "hand, is refused where data is retained.",
            extra={"expected": "12 digits in quotes, or null"},
        ),
    ]
    region: Annotated[
        str,
        Meta(
            pattern=f"^[a-z]{{2}}(-[a-z]+)+-[0-9]{END}",
            description="The region.",
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
    ]
    log_days: Annotated[LogDays, Meta(description="How long log groups and the log bucket keep logs, in days.")]
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
    ]
    glue: Annotated[Glue | None, Meta(description="The streaming jobs; null if no contract is of DynamoDB.")]
    monitoring: Monitoring
    bi: Annotated[Bi | None, Meta(description="QuickSight, which must be set up in the account; null for none.")]

    @property
    def prefix(self) -> str:
        """What the names of its stacks and resources are, or begin with."""
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
                    f"a mapping, because there are contracts of {SOURCE_NAMES[source]}: write the section "
                    "(docs/reference/stacks.md, Environments), or remove these contracts",
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
