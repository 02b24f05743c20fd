"""The connectors' configuration, rendered by the same functions for MSK Connect and for the local Kafka Connect.

The documentation of each system explains its options: Debezium's PostgreSQL connector 3.6, Kafka Connect 3.7, and
``docs/reference/connect.md`` for the S3 sink.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headwater.contract.masks import KEY_FIELD
from headwater.contract.model import DROP, POSTGRESQL, Contract, of_database

SLOT = "headwater"
PUBLICATION = "headwater"
HEARTBEAT_TABLE = "capture.heartbeat"
SIGNAL_TABLE = "capture.signal"
NO_DATA = "no_data"
"""Debezium's ``snapshot.mode`` where the source connector reads no rows that a table has."""
OFFSET_TOPIC = "headwater-connect-offsets"
LOST_SLOT = "Changes of the source are lost"
"""The beginning of the connector's error if the slot no longer has all changes since the last one that was read."""
UNREAD_TABLE = "A table was not read to its end"
"""The beginning of the connector's log line about a new or repeated snapshot of a table that failed."""
UNCONFIRMED_COLUMN = "A column is not confirmed"
"""The beginning of the connector's log line about a column that it removes from a record. PostgreSQL's catalogue has no
column of that name, and the table's contract hides columns."""
GONE_TABLE = "A captured table is gone"
"""The beginning of the connector's log line, every 30 s, about a table that was dropped, renamed or unpublished."""

_MIB = 1 << 20
# A pattern that no column matches.
_NO_COLUMN = "no[.]such[.]column"
# The largest record, as Debezium's JSON. The source connector refuses a larger one, naming its row, and goes on.
LARGEST_RECORD = 16 * _MIB
# The largest batch of records in Kafka: one such record with its key, its headers and Kafka's own bytes.
LARGEST_BATCH = LARGEST_RECORD + _MIB

_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
_JSON = "org.apache.kafka.connect.json.JsonConverter"
_BOUNDED_JSON = "io.headwater.connect.json.BoundedJsonConverter"


@dataclass(frozen=True)
class CaptureSettings:
    """The settings of the connectors that differ between environments."""

    environment: str
    """The environment's name."""
    region: str
    database_host: str
    database_port: str
    database_name: str
    database_secret: str
    """The name of a secret with the JSON fields ``username`` and ``password``. An ARN cannot stand here, because
    Kafka's placeholders hold no colons."""
    database_tls: Mapping[str, str]
    """The source connector's options for the certificate that it trusts, as ``verified_by`` returns them."""
    landing_bucket: str
    landing_prefix: str = "landing"
    aws_endpoint: str | None = None
    """None on AWS."""
    s3_endpoint: str | None = None
    """None on AWS."""
    topic_prefix: str = "headwater"
    """The first part of all topics' names."""
    flush_ms: int = 1000
    """How often the sink stores records, in milliseconds."""
    topic_partitions: int = 1
    """The number of partitions of each table's topic."""
    sink_tasks: int = 1
    """The number of the sink's tasks, which share the partitions."""
    missing_offsets: str = "fail"
    """What the sink does if Kafka no longer has the next record: ``fail`` or ``accept``."""
    snapshot_mode: str = "initial"
    """Debezium's option: ``initial``, or ``no_data`` if ``headwater backfill`` loads the rows that a table already has.
    """
    epoch: int = 1
    """A number that is raised when the source's history was cut. The connector then begins anew."""
    mask_secret: str | None = None
    """The name of the secret with the key of masks, in the JSON field ``key``; None if no contract needs it."""


def verified_by(root: str) -> dict[str, str]:
    """The source connector's options by which the server has to show a certificate of one authority, with the host's
    name. ``root`` is the authority's certificate, as PEM."""
    return {
        # The PEM stands here, because MSK Connect gives a worker no files. Debezium hands both prefixes to the driver
        # for every connection.
        "database.sslmode": "verify-full",
        "database.sslfactory": "org.postgresql.ssl.SingleCertValidatingFactory",
        "driver.sslfactoryarg": root,
    }


def source_name(settings: CaptureSettings) -> str:
    """The name of the Debezium connector, on which its offsets hang. Connectors of all environments in one account and
    region share their names' room."""
    return f"headwater-{settings.environment}-postgres"


def sink_name(settings: CaptureSettings) -> str:
    """The name of the S3 sink."""
    return f"headwater-{settings.environment}-landing"


def sink_group(settings: CaptureSettings) -> str:
    """The sink's consumer group, on which its offsets hang, as Kafka Connect names it."""
    return f"connect-{sink_name(settings)}"


def topic(contract: Contract, prefix: str = CaptureSettings.topic_prefix) -> str:
    """The name of the topic that carries a contract's source table."""
    return f"{prefix}.{contract.source.table}"


def heartbeat_topic(settings: CaptureSettings) -> str:
    """The name of the topic that carries Debezium's heartbeat."""
    return f"__debezium-heartbeat.{settings.topic_prefix}"


def table_topics(contracts: Iterable[Contract], settings: CaptureSettings) -> list[str]:
    """The names of the topics that carry the PostgreSQL tables among the contracts' sources, sorted."""
    return sorted(topic(contract, settings.topic_prefix) for contract in of_database(contracts, POSTGRESQL))


def topics(contracts: Iterable[Contract], settings: CaptureSettings) -> dict[str, int]:
    """The number of partitions of every topic that the source connector writes, by topic."""
    tables = dict.fromkeys(table_topics(contracts, settings), settings.topic_partitions)
    capture = {f"{settings.topic_prefix}.{table}": 1 for table in (HEARTBEAT_TABLE, SIGNAL_TABLE)}
    return {**tables, **capture, heartbeat_topic(settings): 1}


def topic_config() -> dict[str, str]:
    """The configuration of each of these topics, beside how long it keeps its records."""
    return {"max.message.bytes": str(LARGEST_BATCH)}


def broker_config() -> dict[str, str]:
    """What the brokers need for these topics: followers fetch a batch as large as producers may send."""
    return {"message.max.bytes": str(LARGEST_BATCH), "replica.fetch.max.bytes": str(LARGEST_BATCH)}


def source_connector(contracts: Iterable[Contract], settings: CaptureSettings) -> tuple[str, dict[str, str]]:
    """Name and configuration of the Debezium connector."""
    contracts = of_database(contracts, POSTGRESQL)
    tables = sorted(contract.source.table for contract in contracts)
    secret = settings.database_secret
    left_out = [pattern for contract in contracts for pattern in _left_out(contract)]
    return source_name(settings), {
        # Debezium's, which goes on at the start of the transaction in which it was stopped, and knows epochs.
        "connector.class": "io.headwater.connect.postgresql.HeadwaterPostgresConnector",
        "headwater.epoch": str(settings.epoch),
        "tasks.max": "1",
        "database.hostname": settings.database_host,
        "database.port": settings.database_port,
        "database.user": f"${{secretsmanager:{secret}:username}}",
        "database.password": f"${{secretsmanager:{secret}:password}}",
        "database.dbname": settings.database_name,
        **settings.database_tls,
        "topic.prefix": settings.topic_prefix,
        "table.include.list": ",".join([*tables, HEARTBEAT_TABLE, SIGNAL_TABLE]),
        # Any login may write messages into the log (pg_logical_emit_message). Debezium would send them to a topic that
        # does not exist, and wait for it for good. A prefix may hold line breaks: (?s) lets the dot match them too.
        "message.prefix.exclude.list": "(?s).*",
        "plugin.name": "pgoutput",
        "slot.name": SLOT,
        "publication.name": PUBLICATION,
        "publication.autocreate.mode": "disabled",
        "snapshot.mode": settings.snapshot_mode,
        "signal.data.collection": SIGNAL_TABLE,
        # Of these notices the connector makes records of the tables' own topics. Nothing is sent to this one.
        "incremental.snapshot.watermarking.strategy": "insert_delete",
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": f"{settings.topic_prefix}.capture.notices",
        "heartbeat.interval.ms": "10000",
        "heartbeat.action.query": f"UPDATE {HEARTBEAT_TABLE} SET beat_at = clock_timestamp() WHERE id = 1",
        # The full envelope: a flattened stream loses TRUNCATE and the before image.
        "tombstones.on.delete": "false",
        "skipped.operations": "none",
        # Exact values: no doubles for numerics, no ISO text for times (24:00 would become 00:00), no base64 (it turns a
        # TOAST placeholder into null), and no null in place of what cannot be converted. Debezium's PostgreSQL
        # connector does not heed the last one: docs/decisions/exact-values.md, Limits.
        "event.converting.failure.handling.mode": "fail",
        "decimal.handling.mode": "string",
        "time.precision.mode": "adaptive_time_microseconds",
        "interval.handling.mode": "string",
        "binary.handling.mode": "hex",
        "hstore.handling.mode": "json",
        "provide.transaction.metadata": "false",
        "poll.interval.ms": "100",
        # What large rows take of the worker's memory: Debezium's queue, the rows that a snapshot reads at once, and
        # what the producer holds. Records are not compressed in Kafka: a fetch is as large in memory as it says.
        "max.queue.size.in.bytes": str(32 * _MIB),
        "snapshot.fetch.size": "8",
        "incremental.snapshot.chunk.size": "16",
        "producer.override.max.request.size": str(LARGEST_BATCH),
        "producer.override.buffer.memory": str(2 * LARGEST_BATCH),
        "key.converter": _JSON,
        "key.converter.schemas.enable": "false",
        "key.converter.replace.null.with.default": "false",
        "value.converter": _BOUNDED_JSON,
        "value.converter.max.bytes": str(LARGEST_RECORD),
        "header.converter": _JSON,
        "header.converter.schemas.enable": "false",
        "errors.max.retries": "-1",
        # With a list, Debezium reads each table by its columns' names. Without one, its incremental snapshot fails at a
        # generated column, and the task fails after its next restart (dbz#2020).
        "column.exclude.list": ",".join(left_out or [_NO_COLUMN]),
        **_hidden(contracts),
        **_masks(contracts, settings),
    }


def _hidden(contracts: Sequence[Contract]) -> dict[str, str]:
    """The columns that the connector removes and those that are the only ones it keeps, by table."""
    excluded = {contract.source.table: [name for (name,) in contract.exclude] for contract in contracts}
    included = {
        contract.source.table: sorted({column.path[0] for column in contract.columns})
        for contract in contracts
        if contract.unnamed == DROP
    }
    settings = {
        "headwater.exclude.columns": {table: names for table, names in excluded.items() if names},
        "headwater.include.columns": included,
    }
    return {name: _json(columns) for name, columns in settings.items() if columns}


def _json(columns: Mapping[str, object]) -> str:
    return json.dumps(columns, sort_keys=True, separators=(",", ":"))


def _masks(contracts: Sequence[Contract], settings: CaptureSettings) -> dict[str, str]:
    """What the connector masks, by table and column, and the key. Raises ValueError if that has no secret."""
    columns = {
        contract.source.table: {name: mask.how for mask in contract.masks for name in mask.path}
        for contract in contracts
        if contract.masks
    }
    if not columns:
        return {}
    config = {"headwater.mask.columns": _json(columns)}
    if any(contract.needs_mask_key for contract in contracts):
        if settings.mask_secret is None:
            raise ValueError("contracts mask by hmac: the settings need mask_secret")
        config["headwater.mask.secret"] = f"${{secretsmanager:{settings.mask_secret}:{KEY_FIELD}}}"
    return config


def _left_out(contract: Contract) -> list[str]:
    """Regular expressions of the columns that do not leave the connector; Debezium matches them with the whole
    ``schema.table.column``, without regard to capitals. docs/decisions/left-out.md."""
    table = _pattern(contract.source.schema) + "[.]" + _pattern(contract.source.name)
    patterns = [f"{table}[.]{_pattern(name)}" for (name,) in contract.exclude]
    if contract.unnamed == DROP:
        named = sorted({_pattern(column.path[0]) for column in contract.columns})
        patterns.append(f"{table}[.](?s:(?!(?:{'|'.join(named)})(?!.)).*)")
    return patterns


def _pattern(name: str) -> str:
    """Return a regular expression that matches a name.

    Special characters of ASCII stand as their codes, because Debezium splits a list of expressions at commas and trims
    each.
    """
    return re.sub(r"[^\w\u0080-\U0010ffff]", lambda letter: rf"\x{ord(letter[0]):02x}", name, flags=re.ASCII)


def sink_connector(contracts: Iterable[Contract], settings: CaptureSettings) -> tuple[str, dict[str, str]]:
    """Name and configuration of the S3 sink."""
    config = {
        "connector.class": "io.headwater.connect.s3.S3SinkConnector",
        "tasks.max": str(settings.sink_tasks),
        "topics": ",".join(table_topics(contracts, settings)),
        "s3.bucket": settings.landing_bucket,
        "s3.prefix": settings.landing_prefix,
        "s3.region": settings.region,
        "flush.interval.ms": str(settings.flush_ms),
        "missing.offsets": settings.missing_offsets,
        "key.converter": _BYTES,
        "value.converter": _BYTES,
        "header.converter": _BYTES,
        "errors.tolerance": "none",
        "consumer.override.session.timeout.ms": "6000",
        "consumer.override.heartbeat.interval.ms": "2000",
        "consumer.override.auto.offset.reset": "earliest",
        "consumer.override.isolation.level": "read_committed",
        # A fetch brings at most this much, and a first batch that is larger.
        "consumer.override.fetch.max.bytes": str(LARGEST_BATCH),
    }
    if settings.s3_endpoint is not None:
        config["s3.endpoint"] = settings.s3_endpoint
    return sink_name(settings), config


def worker_properties(settings: CaptureSettings) -> dict[str, str]:
    """The part of the worker's configuration that MSK Connect's users may set; the rest MSK Connect sets itself."""
    properties = {
        "key.converter": _BYTES,
        "value.converter": _BYTES,
        "offset.storage.topic": OFFSET_TOPIC,
        "offset.flush.interval.ms": "1000",
        "config.providers": "secretsmanager",
        "config.providers.secretsmanager.class": "io.headwater.connect.secrets.SecretsManagerConfigProvider",
        "config.providers.secretsmanager.param.region": settings.region,
        # Connect asks when a connector or a task starts. One that is restarted after a rotation needs the new password.
        "config.providers.secretsmanager.param.cache.ms": "0",
    }
    if settings.aws_endpoint is not None:
        properties["config.providers.secretsmanager.param.endpoint"] = settings.aws_endpoint
    return properties
