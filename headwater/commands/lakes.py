"""The lakes that commands read, with the addresses of their sources and objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from headwater.commands import accounts, environments, sources
from headwater.commands.endless_comparison import Kept
from headwater.commands.environment_database import EnvironmentDatabase
from headwater.commands.writer_requests import s3_client
from headwater.contract.masks import read_key
from headwater.contract.model import DYNAMODB, Contract, of_database
from headwater.definitions.connectors import CaptureSettings, topic
from headwater.errors import UserError
from headwater.lake.base.s3_uri import key_below, object_uri, split_uri
from headwater.lake.sources.landing import Landing
from headwater.lake_folder import LakeFolder
from headwater.operations.connectors import lags
from headwater.operations.database import Query
from headwater.operations.deployed import Deployed
from headwater.operations.key_value import replication_ages
from headwater.operations.positions import (
    SINK_SECONDS,
    LandedPosition,
    SinkLag,
    SinkTime,
    StreamedPosition,
    UnreadRecords,
)
from headwater.operations.timeline import last_commit
from headwater.verify import Lake, s3_options
from headwater.verify.watch import Reached


def lake_at(lake: str, endpoint: str, region: str) -> Lake:
    """Return the lake at an address, which is ``s3://bucket/prefix`` or a folder. Raises UserError."""
    if "://" not in lake:
        return Lake(Path(lake).resolve().as_uri(), {})
    return Lake(lake, {} if lake.startswith("file:") else _storage(sources.session(), endpoint, region))


def _storage(session: boto3.Session, endpoint: str, region: str) -> dict[str, str]:
    # boto3 finds credentials that hudi-rs does not find: profiles, SSO, and their region.
    credentials = session.get_credentials()
    keys = credentials.get_frozen_credentials() if credentials is not None else None
    return s3_options(
        region or session.region_name or sources.DEFAULT_REGION,
        endpoint or None,
        keys.access_key if keys else None,
        keys.secret_key if keys else None,
        keys.token if keys else None,
    )


@dataclass(frozen=True)
class NamedLake:
    """A lake that options name, with its DynamoDB tables."""

    uri: str
    """The lake's address: ``s3://bucket/prefix`` or a folder."""
    endpoint: str
    """The address of the S3 API; "" for AWS."""
    region: str
    """The AWS region; "" for the AWS configuration's."""
    tables: Mapping[str, str]
    """By contract, the DynamoDB tables whose names differ from their contracts' ``source.table``."""
    dynamodb_endpoint: str
    """The address of the DynamoDB API; "" for AWS."""
    landing: str
    """The address of the landing objects. Only positions of PostgreSQL's tables need it; otherwise it may be ""."""
    mask_secret: str
    """The secret with the key of masks; "" if there is none."""
    sink_seconds: float
    """Within how many seconds the sink stores the records that Kafka has."""

    def lake(self) -> Lake:
        """Return the lake for reading, with the current credentials. Raises UserError."""
        return lake_at(self.uri, self.endpoint, self.region)

    @cached_property
    def s3(self) -> Any:
        """boto3's client for S3. Raises ValueError."""
        return s3_client(self.endpoint, self.region)

    @cached_property
    def dynamodb(self) -> Any:
        """boto3's client for DynamoDB. Raises UserError."""
        return sources.dynamodb_client(self.dynamodb_endpoint, self.region, sources.session())

    @cached_property
    def mask_key(self) -> bytes | None:
        """The key of masks, if there is one. Raises UserError."""
        return sources.mask_key(self.mask_secret, self.region)

    @property
    def database(self) -> None:
        """None, because without an environment no PostgreSQL database is known."""
        return None

    @property
    def epoch(self) -> int:
        """The default epoch of a source connector. Only an environment's file can raise it."""
        return CaptureSettings.epoch

    def kept(self) -> Kept:
        """Return the lake in which a comparison keeps its results."""
        return Kept(self.s3, self.uri)

    def position(self, contract: Contract, query: Query) -> Callable[[], Reached]:
        """Return a function that takes the position of a contract's source. Raises UserError if options are missing."""
        if contract.source.database == DYNAMODB:
            raise UserError(
                f"--watch: found the table {contract.table} of DynamoDB, expected --env: the position is in the "
                "environment's stream"
            )
        if not self.landing:
            raise UserError(f"--watch: found no --landing for {contract.table}, expected --landing or --env")
        landing = Landing(self.s3, self.landing, topic(contract))
        cursor = partial(_cursor, self.s3, self.uri, contract)
        return LandedPosition(query, SinkTime(lambda: landing.waiting(cursor()).ends, self.sink_seconds), cursor)


class DeployedLake:
    """The lake of an environment."""

    def __init__(self, deployed: Deployed, folder: LakeFolder) -> None:
        self._deployed = deployed
        self._folder = folder
        self.tables = {table: names.table for table, names in deployed.key_value_names.items()}

    @property
    def database(self) -> EnvironmentDatabase:
        """The PostgreSQL database of the environment."""
        return EnvironmentDatabase(self._deployed, self._folder)

    @property
    def uri(self) -> str:
        """The lake's address, as s3://bucket/prefix."""
        return self._deployed.lake

    def lake(self) -> Lake:
        """Return the lake for reading, with the current credentials. Raises UserError."""
        session, endpoint = accounts.of(self._deployed.environment, self._folder).session()
        return Lake(self.uri, _storage(session, endpoint, self._deployed.environment.region))

    @property
    def s3(self) -> Any:
        """boto3's client for S3."""
        return self._deployed.client("s3")

    @property
    def dynamodb(self) -> Any:
        """boto3's client for DynamoDB."""
        return self._deployed.client("dynamodb")

    @cached_property
    def mask_key(self) -> bytes | None:
        """The key of masks, if a contract needs it. Raises UserError."""
        if not any(contract.needs_mask_key for contract in self._deployed.contracts):
            return None
        secret = f"headwater/{self._deployed.environment.name}/mask"
        try:
            return read_key(self._deployed.client("secretsmanager"), secret)
        except (BotoCoreError, ClientError) as error:
            raise UserError(
                f"The secret {secret}, the key of masks, cannot be read: {error}. It needs "
                "secretsmanager:GetSecretValue and kms:Decrypt."
            ) from None

    @property
    def epoch(self) -> int:
        """The source connector's epoch."""
        return self._deployed.capture.epoch

    def kept(self) -> Kept:
        """Return the lake and the metrics in which a comparison keeps its results."""
        return Kept(self.s3, self.uri, self._deployed.client("cloudwatch"), self._deployed.glue_database)

    def position(self, contract: Contract, query: Query) -> Callable[[], Reached]:
        """Return a function that takes the position of a contract's source.

        Each call reads the environment anew, because a deploy may change it during an endless comparison.
        """
        of_dynamodb = contract.source.database == DYNAMODB
        take = partial(_streamed, UnreadRecords()) if of_dynamodb else partial(_landed, query)
        return lambda: take(environments.as_now(self._deployed, self._folder), contract)()


def _streamed(unread: UnreadRecords, deployed: Deployed, contract: Contract) -> StreamedPosition:
    kinesis, stream = deployed.client("kinesis"), deployed.key_value_names[contract.table].stream
    cursor = partial(_cursor, deployed.client("s3"), deployed.lake, contract)
    return StreamedPosition(
        partial(replication_ages, deployed, contract),
        lambda: unread.oldest(kinesis, stream, cursor()),
        deployed.now,
    )


def _landed(query: Query, deployed: Deployed, contract: Contract) -> LandedPosition:
    s3, name = deployed.client("s3"), topic(contract, deployed.capture.topic_prefix)
    landing = Landing(s3, deployed.landing, name)
    cursor = partial(_cursor, s3, deployed.lake, contract)
    lag = SinkLag(
        [f"{name}/{number}" for number in range(deployed.capture.topic_partitions)],
        lambda: landing.waiting(cursor()).ends,
        partial(lags, deployed, name),
        deployed.now,
    )
    return LandedPosition(query, lag, cursor)


def _cursor(s3: Any, lake: str, contract: Contract) -> Mapping[str, int]:
    last = last_commit(s3, f"{lake.rstrip('/')}/{contract.table}")
    return last.progress.cursor if last else {}


AnyLake = NamedLake | DeployedLake


def beside(uri: str, folder: str) -> str:
    """Return the address of a folder beside a lake's own folder, in the same bucket. Raises ValueError."""
    bucket, prefix = split_uri(uri)
    return object_uri(bucket, key_below(prefix.rpartition("/")[0], folder))


def of_option(
    environment: str,
    folder: LakeFolder,
    uri: str,
    endpoint: str,
    region: str,
    *,
    described: Sequence[Contract] = (),
    dynamodb_table: Sequence[str] = (),
    dynamodb_endpoint: str = "",
    landing: str = "",
    mask_secret: str = "",
    sink_seconds: float | None = None,
) -> AnyLake:
    """Return the lake of the environment that --env names, or the lake that options name.

    ``described`` has the contracts whose tables ``dynamodb_table`` may name. Raises UserError, also if the credentials
    are of another account than the environment's.
    """
    options = {
        "--lake": uri,
        "--landing": landing,
        "--dynamodb-table": dynamodb_table,
        "--endpoint": endpoint,
        "--dynamodb-endpoint": dynamodb_endpoint,
        "--region": region,
        "--mask-secret": mask_secret,
        "--sink-seconds": sink_seconds is not None,
    }
    if environment:
        given = next((name for name, value in options.items() if value), None)
        if given is not None:
            raise UserError(f"--env: found {given}, too, expected one of them: the environment already sets {given}")
        deployed = environments.deployed(environment, folder, described)
        # Find it now: another account may have an environment of the same name.
        deployed.find()
        return DeployedLake(deployed, folder)
    if not uri:
        raise UserError("--env: found neither an environment nor --lake, expected one of them")
    tables = sources.renamed_tables(dynamodb_table, of_database(described, DYNAMODB))
    seconds = SINK_SECONDS if sink_seconds is None else sink_seconds
    return NamedLake(uri, endpoint, region, tables, dynamodb_endpoint, landing, mask_secret, seconds)
