"""The CDK app of one environment: its stacks, and what each stack gets from the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from constructs import Construct

from headwater.contract.model import DYNAMODB, POSTGRESQL, Contract, of_database
from headwater.definitions import connectors
from headwater.definitions.connectors import CaptureSettings, verified_by
from headwater.definitions.lake_content import LakeContent
from headwater.environment import rds_authority
from headwater.environment.account import LAKE_TAG
from headwater.environment.key_value_names import key_value_names
from headwater.environment.model import Aurora, CreatedTables, Environment
from headwater.lake_folder import LakeFolder
from stacks import nag
from stacks.assets import Assets
from stacks.aurora import AuroraSource
from stacks.bi import BiStack
from stacks.connect import ConnectStack
from stacks.database import DatabaseStack
from stacks.database_content import DatabaseContentStack
from stacks.database_peering import DatabasePeeringStack
from stacks.emr import EmrStack
from stacks.emr_writer import EmrWriterStack
from stacks.existing_database import ExistingSource
from stacks.function_logs import keep_function_logs
from stacks.glue_job import GlueJobStack
from stacks.key_value import KeyValueStack
from stacks.key_value_sources import KeyValueSources
from stacks.lake import LANDING_PREFIX, LakeStack
from stacks.monitoring import MonitoringStack, WatchedKeyValue, WatchedRelational
from stacks.network import NetworkStack
from stacks.relational_source import Address, RelationalSource
from stacks.stream import StreamStack
from stacks.stream_topics import StreamTopicsStack


@dataclass(frozen=True)
class Application:
    """The stacks, in the order of their deployment.

    A stack that neither the contracts nor the environment need is None.
    """

    network: NetworkStack | None
    lake: LakeStack
    database: DatabaseStack | None
    database_content: DatabaseContentStack | None
    database_peering: DatabasePeeringStack | None
    stream: StreamStack | None
    stream_topics: StreamTopicsStack | None
    connect: ConnectStack | None
    emr: EmrStack | None
    emr_writer: EmrWriterStack | None
    key_value: KeyValueStack | None
    glue_job: GlueJobStack | None
    monitoring: MonitoringStack
    bi: BiStack | None


def build(
    scope: Construct, environment: Environment, contracts: Sequence[Contract], content: LakeContent, assets: Assets
) -> Application:
    """Make the stacks that the contracts need in an environment, and check them against the security rules.

    Raises UserError if an asset is missing, or if the environment's file lacks a section that a contract needs.
    """
    nag.check(scope)
    scope.node.set_context(LAKE_TAG, assets.lake.settings.name)
    # Only a PostgreSQL pipeline needs a network. The lake comes before the pipelines that write to it.
    network = None
    if of_database(contracts, POSTGRESQL):
        network = NetworkStack(scope, environment=environment)
    lake = LakeStack(scope, environment=environment, contracts=contracts, queries=content.queries)
    relational = key_value = None
    if network is not None:
        relational = _relational(scope, environment, network, lake, contracts, content, assets)
    if of_database(contracts, DYNAMODB):
        key_value = _key_value(scope, environment, lake, contracts, assets)
    monitoring = MonitoringStack(
        scope,
        environment=environment,
        lake=lake,
        contracts=contracts,
        relational=relational and relational.watched,
        key_value=key_value and key_value.watched,
    )
    bi = None
    if environment.bi is not None:
        bi = BiStack(
            scope, environment=environment, lake=lake, contracts=contracts, content=content, settings=environment.bi
        )
    # Give the functions that CDK adds by itself log groups that expire.
    for stack in (network, lake):
        if stack is not None:
            keep_function_logs(stack)
    return Application(
        network=network,
        lake=lake,
        database=relational and relational.database.aurora,
        database_content=relational and relational.database.content,
        database_peering=relational and relational.database.peering,
        stream=relational and relational.watched.stream,
        stream_topics=relational and relational.stream_topics,
        connect=relational and relational.watched.connect,
        emr=relational and relational.watched.emr,
        emr_writer=relational and relational.watched.emr_writer,
        key_value=key_value and key_value.tables,
        glue_job=key_value and key_value.watched.glue_job,
        monitoring=monitoring,
        bi=bi,
    )


@final
@dataclass(frozen=True)
class _Relational:
    """The stacks that only PostgreSQL contracts need, without their network."""

    database: _Database
    stream_topics: StreamTopicsStack
    watched: WatchedRelational


def _relational(
    scope: Construct,
    environment: Environment,
    network: NetworkStack,
    lake: LakeStack,
    contracts: Sequence[Contract],
    content: LakeContent,
    assets: Assets,
) -> _Relational:
    database = _database(scope, environment, network, lake, content, assets)
    capture = capture_settings(environment, lake, database.source.address, assets.lake)
    stream = StreamStack(scope, environment=environment, network=network)
    topics = connectors.topics(contracts, capture)
    stream_topics = StreamTopicsStack(scope, environment=environment, stream=stream, topics=topics)
    connect = ConnectStack(
        scope,
        environment=environment,
        network=network,
        lake=lake,
        database=database.source,
        stream=stream,
        stream_topics=stream_topics,
        contracts=contracts,
        capture=capture,
        assets=assets,
    )
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
    watched = WatchedRelational(
        capture=capture, source=database.source, stream=stream, connect=connect, emr=emr, emr_writer=emr_writer
    )
    return _Relational(database, stream_topics, watched)


@final
@dataclass(frozen=True)
class _KeyValue:
    """The stacks that only DynamoDB contracts need. ``tables`` is None if the tables exist already."""

    tables: KeyValueStack | None
    watched: WatchedKeyValue


def _key_value(
    scope: Construct, environment: Environment, lake: LakeStack, contracts: Sequence[Contract], assets: Assets
) -> _KeyValue:
    settings = environment.dynamodb.key_value
    tables = None
    if isinstance(settings, CreatedTables):
        tables = KeyValueStack(scope, environment=environment, settings=settings, contracts=contracts)
        sources = tables.sources
    else:
        sources = KeyValueSources(lake, key_value_names(environment, contracts))
    job = GlueJobStack(scope, environment=environment, lake=lake, key_value=sources, contracts=contracts, assets=assets)
    return _KeyValue(tables, WatchedKeyValue(sources, job))


@dataclass(frozen=True)
class _Database:
    """The source of the relational pipeline, and the stacks that this kind of source needs."""

    source: RelationalSource
    aurora: DatabaseStack | None = None
    content: DatabaseContentStack | None = None
    peering: DatabasePeeringStack | None = None


def _database(
    scope: Construct,
    environment: Environment,
    network: NetworkStack,
    lake: LakeStack,
    content: LakeContent,
    assets: Assets,
) -> _Database:
    settings = environment.postgresql.database
    if isinstance(settings, Aurora):
        aurora = DatabaseStack(scope, environment=environment, settings=settings, network=network)
        filled = DatabaseContentStack(
            scope,
            environment=environment,
            network=network,
            database=aurora,
            files=content.files,
            connector=connectors.source_name(capture_settings(environment, lake, aurora.address, assets.lake)),
            assets=assets,
        )
        return _Database(AuroraSource.of(aurora, filled), aurora, filled)
    peering = None
    if settings.peering is not None:
        peering = DatabasePeeringStack(
            scope, environment=environment, settings=settings.peering, cidr=settings.cidr, network=network
        )
    return _Database(ExistingSource.of(settings, peering), peering=peering)


def capture_settings(
    environment: Environment, lake: LakeStack, address: Address, folder: LakeFolder
) -> CaptureSettings:
    """The connectors' settings for this environment. CloudFormation fills in the addresses."""
    return CaptureSettings(
        environment=environment.name,
        region=environment.region,
        database_host=address.host,
        database_port=address.port,
        database_name=address.name,
        database_secret=address.secret,
        database_tls=verified_by(rds_authority.trusted(environment, folder.root)),
        landing_bucket=lake.landing.bucket_name,
        landing_prefix=LANDING_PREFIX,
        flush_ms=environment.postgresql.connect.flush_ms,
        topic_partitions=environment.postgresql.stream.partitions,
        sink_tasks=environment.postgresql.connect.sink_tasks,
        missing_offsets=environment.postgresql.connect.missing_offsets,
        snapshot_mode=environment.postgresql.connect.snapshot_mode,
        epoch=environment.postgresql.connect.epoch,
        mask_secret=lake.mask_secret,
    )
