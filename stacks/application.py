"""The app of one environment: which stacks there are and what each is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from constructs import Construct

from headwater.contract.model import Contract
from headwater.definitions import connectors
from headwater.definitions.connectors import CaptureSettings
from headwater.deployment import rds_authority
from headwater.deployment.environment import Environment
from headwater.errors import UserError
from headwater.paths import ROOT
from stacks import nag
from stacks.assets import Assets
from stacks.bi import BiStack
from stacks.connect import ConnectStack
from stacks.database import DATABASE_NAME, DatabaseStack
from stacks.database_content import DatabaseContentStack
from stacks.emr import EmrStack
from stacks.emr_writer import EmrWriterStack
from stacks.function_logs import keep_function_logs
from stacks.glue_job import GlueJobStack
from stacks.key_value import KeyValueStack
from stacks.lake import LANDING_PREFIX, LakeStack
from stacks.monitoring import MonitoringStack, Watched
from stacks.network import NetworkStack
from stacks.stream import StreamStack
from stacks.stream_topics import StreamTopicsStack

_CERTIFICATE = "-----BEGIN CERTIFICATE-----"


@dataclass(frozen=True)
class Application:
    """The stacks, in the order of their deployment. ``bi`` is None where the environment does not ask for it."""

    network: NetworkStack
    lake: LakeStack
    database: DatabaseStack
    database_content: DatabaseContentStack
    stream: StreamStack
    stream_topics: StreamTopicsStack
    connect: ConnectStack
    emr: EmrStack
    emr_writer: EmrWriterStack
    key_value: KeyValueStack
    glue_job: GlueJobStack
    monitoring: MonitoringStack
    bi: BiStack | None


def build(scope: Construct, environment: Environment, contracts: Sequence[Contract], assets: Assets) -> Application:
    """Make all stacks of an environment, held to the security rules. Raises UserError where an asset is missing."""
    nag.check(scope)
    network = NetworkStack(scope, environment=environment)
    lake = LakeStack(scope, environment=environment, contracts=contracts)
    database = DatabaseStack(scope, environment=environment, network=network)
    capture = capture_settings(environment, lake, database)
    content = DatabaseContentStack(
        scope,
        environment=environment,
        network=network,
        database=database,
        connector=connectors.source_name(capture),
        assets=assets,
    )
    stream = StreamStack(scope, environment=environment, network=network)
    topics = connectors.topics(contracts, capture)
    stream_topics = StreamTopicsStack(scope, environment=environment, stream=stream, topics=topics)
    connect = ConnectStack(
        scope,
        environment=environment,
        network=network,
        lake=lake,
        database=database,
        stream=stream,
        stream_topics=stream_topics,
        contracts=contracts,
        capture=capture,
        assets=assets,
    )
    # The connector logs in as a role that the content creates.
    connect.add_stack_dependency(content)
    emr = EmrStack(
        scope,
        environment=environment,
        network=network,
        lake=lake,
        contracts=contracts,
        capture=capture,
        assets=assets,
    )
    emr_writer = EmrWriterStack(scope, environment=environment, lake=lake, emr=emr, contracts=contracts, assets=assets)
    key_value = KeyValueStack(scope, environment=environment, contracts=contracts)
    glue_job = GlueJobStack(
        scope, environment=environment, lake=lake, key_value=key_value, contracts=contracts, assets=assets
    )
    watched = Watched(
        contracts=contracts,
        capture=capture,
        lake=lake,
        database=database,
        database_content=content,
        stream=stream,
        connect=connect,
        emr=emr,
        emr_writer=emr_writer,
        key_value=key_value,
        glue_job=glue_job,
    )
    monitoring = MonitoringStack(scope, environment=environment, watched=watched)
    # What is watched is there before its alarms are.
    for source in (connect, emr, emr_writer, glue_job):
        monitoring.add_stack_dependency(source)
    bi = None
    if environment.bi is not None:
        bi = BiStack(scope, environment=environment, lake=lake, contracts=contracts, settings=environment.bi)
    for stack in (network, lake):
        keep_function_logs(stack)
    return Application(
        network,
        lake,
        database,
        content,
        stream,
        stream_topics,
        connect,
        emr,
        emr_writer,
        key_value,
        glue_job,
        monitoring,
        bi,
    )


def capture_settings(environment: Environment, lake: LakeStack, database: DatabaseStack) -> CaptureSettings:
    """What the connectors are told about this environment. CloudFormation fills in the addresses."""
    return CaptureSettings(
        environment=environment.name,
        region=environment.region,
        database_host=database.host,
        database_port=database.port,
        database_name=DATABASE_NAME,
        database_secret=database.secret_name("cdc"),
        database_root=_database_root(environment),
        landing_bucket=lake.landing.bucket_name,
        landing_prefix=LANDING_PREFIX,
        flush_ms=environment.connect.flush_ms,
        topic_partitions=environment.stream.partitions,
        sink_tasks=environment.connect.sink_tasks,
        missing_offsets=environment.connect.missing_offsets,
        epoch=environment.connect.epoch,
        mask_secret=lake.mask_secret,
    )


def _database_root(environment: Environment) -> str:
    file = environment.database.root_certificate
    if file is None:
        return rds_authority.root(environment.region)
    path = ROOT / file
    text = path.read_text() if path.exists() else None
    if text is None or _CERTIFICATE not in text:
        found = "which is missing" if text is None else "without one"
        raise UserError(f"database.root_certificate: found {file}, {found}, expected a certificate as PEM")
    return text
