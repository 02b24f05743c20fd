"""The configuration of the connectors, which MSK Connect and the local Kafka Connect share.

The options are explained in the documentation of Debezium's PostgreSQL connector 3.6, of Kafka Connect 3.7, and in
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
"""Debezium's ``snapshot.mode`` by which the source connector does not read the rows that a table already has."""
OFFSET_TOPIC = "headwater-connect-offsets"
LOST_SLOT = "Changes of the source are lost"
"""The beginning of the connector's error if the slot no longer has all changes after the last one that was read."""
UNREAD_TABLE = "A table was not read to its end"
"""The beginning of the connector's log line about a table whose new or repeated snapshot failed."""
UNCONFIRMED_COLUMN = "A column is not confirmed"
"""The beginning of the connector's log line about a column that it removes from a record.

The connector does so if the table's contract hides columns, and PostgreSQL's catalogue has no column of that name.
"""
GONE_TABLE = "A captured table is gone"
"""The beginning of the connector's log line, every 30 s, about a table that was dropped, renamed or unpublished."""

_MIB = 1 << 20
VALUE_FORMS = {
    "bytea_output": "hex",
    "intervalstyle": "postgres",
    "extra_float_digits": "1",
    "standard_conforming_strings": "on",
    "quote_all_identifiers": "off",
}
"""Settings of a session by which PostgreSQL writes values in forms that Debezium understands, with all digits."""
# Settings of the sessions in which the source is read, whatever the database and the role set. The driver itself sets
# the others that matter: client_encoding, DateStyle and TimeZone.
_SESSION = {
    **VALUE_FORMS,
    # A snapshot, and a connection that waits for changes, may take any time.
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    # The heartbeat and the signals write, and the catalog is read as it is now.
    "default_transaction_read_only": "off",
    "default_transaction_isolation": r"read\ committed",
    # A table that began to hide rows is not read without them: reading it fails.
    "row_security": "off",
}
# PostgreSQL has it from version 17 on, and an older server refuses a session that asks for it.
_TRANSACTION_TIMEOUT = "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'transaction_timeout'"
# A pattern that no column matches.
_NO_COLUMN = "no[.]such[.]column"
# The largest record, as Debezium's JSON. The source connector skips a larger record, and logs its row.
LARGEST_RECORD = 16 * _MIB
# The largest batch of records in Kafka: one largest record with its key, its headers and Kafka's own bytes.
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
    """The AWS region."""
    database_host: str
    """The host of the source database."""
    database_port: str
    """The port of the source database."""
    database_name: str
    """The name of the source database."""
    database_secret: str
    """The name of a secret with the JSON fields ``username`` and ``password``.

    An ARN cannot be used, because Kafka's placeholders hold no colons.
    """
    database_tls: Mapping[str, str]
    """The source connector's options for the certificate that it trusts, as ``verified_by`` returns them."""
    landing_bucket: str
    """The bucket of the landing objects."""
    landing_prefix: str = "landing"
    """The folder of the landing objects in the bucket."""
    aws_endpoint: str | None = None
    """The address of Secrets Manager; None on AWS."""
    s3_endpoint: str | None = None
    """The address of S3; None on AWS."""
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
    """Debezium's option: ``initial``, or ``no_data`` if ``headwater backfill`` loads a table's existing rows."""
    epoch: int = 1
    """A number that somebody raises when the source has lost changes. The connector then begins anew."""
    mask_secret: str | None = None
    """The name of the secret with the key of masks, in the JSON field ``key``; None if no contract needs it."""


def verified_by(root: str) -> dict[str, str]:
    """Return the source connector's options that accept only certificates of one authority for the host's name.

    ``root`` is the authority's certificate, as PEM.
    """
    return {
        # The option holds the PEM itself, because MSK Connect gives a worker no files. Debezium passes the options of
        # both prefixes to the driver for every connection.
        "database.sslmode": "verify-full",
        "database.sslfactory": "org.postgresql.ssl.SingleCertValidatingFactory",
        "driver.sslfactoryarg": root,
    }


def source_name(settings: CaptureSettings) -> str:
    """Return the name of the Debezium connector, by which Kafka Connect stores its offsets.

    The name has the environment, because all connectors in one account and region need different names.
    """
    return f"headwater-{settings.environment}-postgres"


def sink_name(settings: CaptureSettings) -> str:
    """Return the name of the S3 sink."""
    return f"headwater-{settings.environment}-landing"


def sink_group(settings: CaptureSettings) -> str:
    """Return the sink's consumer group, which Kafka Connect names and by which Kafka stores the sink's offsets."""
    return f"connect-{sink_name(settings)}"


def topic(contract: Contract, prefix: str = CaptureSettings.topic_prefix) -> str:
    """Return the name of the topic that carries a contract's source table."""
    return f"{prefix}.{contract.source.table}"


def heartbeat_topic(settings: CaptureSettings) -> str:
    """Return the name of the topic that carries Debezium's heartbeat."""
    return f"__debezium-heartbeat.{settings.topic_prefix}"


def table_topics(contracts: Iterable[Contract], settings: CaptureSettings) -> list[str]:
    """Return the sorted names of the topics that carry the contracts' PostgreSQL tables."""
    return sorted(topic(contract, settings.topic_prefix) for contract in of_database(contracts, POSTGRESQL))


def topics(contracts: Iterable[Contract], settings: CaptureSettings) -> dict[str, int]:
    """Return the number of partitions of every topic that the source connector writes, by topic."""
    tables = dict.fromkeys(table_topics(contracts, settings), settings.topic_partitions)
    capture = {f"{settings.topic_prefix}.{table}": 1 for table in (HEARTBEAT_TABLE, SIGNAL_TABLE)}
    return {**tables, **capture, heartbeat_topic(settings): 1}


def topic_config() -> dict[str, str]:
    """Return the configuration of each topic in ``topics``, without its retention."""
    return {"max.message.bytes": str(LARGEST_BATCH)}


def broker_config() -> dict[str, str]:
    """Return the brokers' configuration by which followers fetch batches as large as producers may send."""
    return {"message.max.bytes": str(LARGEST_BATCH), "replica.fetch.max.bytes": str(LARGEST_BATCH)}


def source_connector(contracts: Iterable[Contract], settings: CaptureSettings) -> tuple[str, dict[str, str]]:
    """Return the name and the configuration of the Debezium connector."""
    contracts = of_database(contracts, POSTGRESQL)
    tables = sorted(contract.source.table for contract in contracts)
    secret = settings.database_secret
    left_out = [pattern for contract in contracts for pattern in _left_out(contract)]
    return source_name(settings), {
        # Debezium's connector with two additions: it restarts at a transaction's begin, and it knows epochs.
        "connector.class": "io.headwater.connect.postgresql.HeadwaterPostgresConnector",
        "headwater.epoch": str(settings.epoch),
        "tasks.max": "1",
        "database.hostname": settings.database_host,
        "database.port": settings.database_port,
        "database.user": f"${{secretsmanager:{secret}:username}}",
        "database.password": f"${{secretsmanager:{secret}:password}}",
        "database.dbname": settings.database_name,
        **settings.database_tls,
        "driver.options": " ".join(f"-c {name}={value}" for name, value in _SESSION.items()),
        "database.initial.statements": _TRANSACTION_TIMEOUT,
        "topic.prefix": settings.topic_prefix,
        "table.include.list": ",".join([*tables, HEARTBEAT_TABLE, SIGNAL_TABLE]),
        # Any login may write messages into the WAL (pg_logical_emit_message). Debezium would send them to a topic that
        # does not exist, and wait for this topic forever. (?s) is for prefixes with line breaks.
        "message.prefix.exclude.list": "(?s).*",
        "plugin.name": "pgoutput",
        "slot.name": SLOT,
        "publication.name": PUBLICATION,
        "publication.autocreate.mode": "disabled",
        "snapshot.mode": settings.snapshot_mode,
        "signal.data.collection": SIGNAL_TABLE,
        # The connector turns these notifications into records of the tables' own topics. It sends nothing to the topic
        # below.
        "incremental.snapshot.watermarking.strategy": "insert_delete",
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": f"{settings.topic_prefix}.capture.notices",
        "heartbeat.interval.ms": "10000",
        "heartbeat.action.query": f"UPDATE {HEARTBEAT_TABLE} SET beat_at = clock_timestamp() WHERE id = 1",
        # Keep the full envelope: a flattened stream loses TRUNCATE and the before image.
        "tombstones.on.delete": "false",
        "skipped.operations": "none",
        # Keep values exact. Numerics are not doubles. Times are not ISO text, which turns 24:00 into 00:00. Bytes are
        # not base64, which turns a TOAST placeholder into null. A failed conversion is not null; Debezium's PostgreSQL
        # connector ignores that option (docs/decisions/exact-values.md, Limits).
        "event.converting.failure.handling.mode": "fail",
        "decimal.handling.mode": "string",
        "time.precision.mode": "adaptive_time_microseconds",
        "interval.handling.mode": "string",
        "binary.handling.mode": "hex",
        "hstore.handling.mode": "json",
        # Values of all other types reach our converters, which send PostgreSQL's text.
        "include.unknown.datatypes": "true",
        "provide.transaction.metadata": "false",
        "poll.interval.ms": "100",
        # Bound the worker's memory for large rows: in Debezium's queue, in a snapshot's fetch, and in the producer.
        # Kafka's records are not compressed, so a fetch takes as much memory as its configured size.
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
        # If this option is set, Debezium selects columns by name. Otherwise its incremental snapshot fails at a
        # generated column, and the task fails after its next restart (dbz#2020).
        "column.exclude.list": ",".join(left_out or [_NO_COLUMN]),
        **_hidden(contracts),
        **_masks(contracts, settings),
    }


def _hidden(contracts: Sequence[Contract]) -> dict[str, str]:
    """Return the options that name, by table, the columns that the connector removes, or the only ones it keeps."""
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
    """Return the options for masked columns, by table, and the key. Raises ValueError if a needed key is missing."""
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
            raise ValueError("contracts have hmac masks: the settings need mask_secret")
        config["headwater.mask.secret"] = f"${{secretsmanager:{settings.mask_secret}:{KEY_FIELD}}}"
    return config


def _left_out(contract: Contract) -> list[str]:
    """Return regular expressions for the columns that do not leave the connector (docs/decisions/left-out.md).

    Debezium matches each with the whole ``schema.table.column``, and ignores capitals.
    """
    table = _pattern(contract.source.schema) + "[.]" + _pattern(contract.source.name)
    patterns = [f"{table}[.]{_pattern(name)}" for (name,) in contract.exclude]
    if contract.unnamed == DROP:
        named = sorted({_pattern(column.path[0]) for column in contract.columns})
        patterns.append(f"{table}[.](?s:(?!(?:{'|'.join(named)})(?!.)).*)")
    return patterns


def _pattern(name: str) -> str:
    """Return a regular expression that matches a name.

    It has codes in place of ASCII's special characters, because Debezium splits a list of expressions at commas and
    trims each expression.
    """
    return re.sub(r"[^\w\u0080-\U0010ffff]", lambda letter: rf"\x{ord(letter[0]):02x}", name, flags=re.ASCII)


def sink_connector(contracts: Iterable[Contract], settings: CaptureSettings) -> tuple[str, dict[str, str]]:
    """Return the name and the configuration of the S3 sink."""
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
        # The largest response to a fetch, in bytes. Only its first batch may be larger.
        "consumer.override.fetch.max.bytes": str(LARGEST_BATCH),
    }
    if settings.s3_endpoint is not None:
        config["s3.endpoint"] = settings.s3_endpoint
    return sink_name(settings), config


def worker_properties(settings: CaptureSettings) -> dict[str, str]:
    """Return the part of the worker's configuration that users of MSK Connect may set."""
    properties = {
        "key.converter": _BYTES,
        "value.converter": _BYTES,
        "offset.storage.topic": OFFSET_TOPIC,
        "offset.flush.interval.ms": "1000",
        "config.providers": "secretsmanager",
        "config.providers.secretsmanager.class": "io.headwater.connect.secrets.SecretsManagerConfigProvider",
        "config.providers.secretsmanager.param.region": settings.region,
        # Connect reads secrets when a connector or task starts. After a rotation, a restart must get the new password.
        "config.providers.secretsmanager.param.cache.ms": "0",
    }
    if settings.aws_endpoint is not None:
        properties["config.providers.secretsmanager.param.endpoint"] = settings.aws_endpoint
    return properties
