"""Environments: the typed form of ``config/<name>.yaml``.

An unknown, missing, mistyped or contradictory value is refused with file, field, found and expected. Every field is
explained in ``docs/reference/stacks.md``.
"""

from __future__ import annotations

import ipaddress
import re
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from headwater.deployment import allow_lists
from headwater.errors import UserError
from headwater.yaml_files import load_yaml

INTERFACE_ENDPOINTS = (
    "ec2messages",
    "glue",
    "kms",
    "logs",
    "monitoring",
    "secretsmanager",
    "ssm",
    "ssmmessages",
    "sts",
)
# What the pipeline's secrets, catalog and metrics go through, headwater/deployment/flows.yaml.
NEEDED_ENDPOINTS = ("glue", "monitoring", "secretsmanager")
# RFC 1918.
_PRIVATE = tuple(map(ipaddress.IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))
# The retentions that CloudWatch Logs offers, in days.
LOG_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653)


@dataclass(frozen=True)
class Data:
    """What becomes of data when a stack is deleted: kept, unless ``retain`` is false *and* ``delete_with_stacks_of``
    names the environment."""

    retain: bool
    delete_with_stacks_of: str | None


@dataclass(frozen=True)
class Network:
    """The VPC. ``nat_instance_type`` belongs to ``nat: instance``; one gateway a zone comes with ``nat: gateway``."""

    cidr: str
    nat: Literal["instance", "gateway"]
    nat_instance_type: str | None
    interface_endpoints: tuple[str, ...]


@dataclass(frozen=True)
class Lake:
    """``query_scan_limit_gib`` bounds what one Athena query may read."""

    query_scan_limit_gib: int
    query_result_days: int


@dataclass(frozen=True)
class Database:
    """Aurora PostgreSQL Serverless v2; capacities in Aurora capacity units (2 GiB of memory each)."""

    engine_version: str
    capacity_min: float
    capacity_max: float
    readers: int
    backup_days: int


@dataclass(frozen=True)
class Stream:
    """MSK. ``volume_gib`` a broker; ``retention_hours`` is the time in which a stopped sink can catch up."""

    kafka_version: str
    broker_type: str
    brokers_per_zone: int
    volume_gib: int
    retention_hours: int
    partitions: int


@dataclass(frozen=True)
class Connect:
    """MSK Connect: capacity units (1 vCPU and 4 GiB each) a worker, and the greatest age of an unflushed record."""

    kafka_connect_version: str
    source_units: int
    sink_units: int
    sink_workers: int
    flush_ms: int


@dataclass(frozen=True)
class Emr:
    """The cluster of the writer. ``epoch`` is raised when the source's history was cut."""

    release: str
    primary_type: str
    core_type: str
    core_nodes: int
    volume_gib: int
    epoch: int


@dataclass(frozen=True)
class KeyValue:
    """DynamoDB's changes on Kinesis. ``stream_shards`` is None where the stream scales by itself, and
    ``stream_retention_hours`` the time in which a stopped job can catch up."""

    stream_shards: int | None
    stream_retention_hours: int


@dataclass(frozen=True)
class Glue:
    """The streaming job. ``window_seconds`` is the time that one commit gathers; Glue may restart the job within three
    hours from ``maintenance_window``, a day and hour in UTC; ``epoch`` is raised when the source's history was cut."""

    version: str
    worker_type: str
    workers: int
    window_seconds: int
    maintenance_window: str
    epoch: int


@dataclass(frozen=True)
class Monitoring:
    """Who is told, and beyond which value of what. Ages are in seconds, sizes in MiB, the budget in US dollars."""

    emails: tuple[str, ...]
    monthly_budget_usd: int
    freshness_seconds: int
    consumer_lag_records: int
    slot_lag_mib: int
    wal_mib: int
    iterator_age_seconds: int
    replication_age_seconds: int
    quarantined_records: int


@dataclass(frozen=True)
class Bi:
    """QuickSight. ``principal`` is the ARN of the QuickSight user or group that gets data source and data sets."""

    principal: str


@dataclass(frozen=True)
class Environment:
    """One environment. ``account`` is None where the credentials at hand decide, ``bi`` where none is wanted."""

    name: str
    account: str | None
    region: str
    availability_zones: tuple[str, ...]
    log_days: int
    data: Data
    network: Network
    lake: Lake
    database: Database
    stream: Stream
    connect: Connect
    emr: Emr
    key_value: KeyValue
    glue: Glue
    monitoring: Monitoring
    bi: Bi | None

    @property
    def deletes_data(self) -> bool:
        """Whether data goes when its stack goes: both settings say so."""
        return not self.data.retain and self.data.delete_with_stacks_of == self.name


def names(folder: Path) -> list[str]:
    """The names of the environments in a folder."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def load(name: str, folder: Path) -> Environment:
    """Read ``<folder>/<name>.yaml``. Raises UserError naming file, field, found and expected."""
    if name not in names(folder):
        known = ", ".join(names(folder)) or "none"
        raise UserError(f"environment: found {name!r}, expected one of {known}, a file in {folder}")
    path = folder / f"{name}.yaml"
    document = load_yaml(path.read_text(encoding="utf-8"), str(path))
    environment: Environment = _record(Environment, document, str(path), "")
    _check(environment, path)
    return environment


def _record(kind: Any, document: object, where: str, prefix: str) -> Any:
    """Build the dataclass ``kind`` from a mapping; ``prefix`` is the path of its fields within the file."""
    hints = get_type_hints(kind)
    known = [field.name for field in fields(kind)]
    if not isinstance(document, Mapping):
        raise UserError(f"{where}: {prefix or 'content'}: found {document!r}, expected {', '.join(known)}")
    for key in document:
        if key not in known:
            raise UserError(f"{where}: {_dotted(prefix, key)}: found an unknown field, expected {', '.join(known)}")
    for key in known:
        if key not in document:
            raise UserError(f"{where}: {_dotted(prefix, key)}: found nothing, expected {_describe(hints[key])}")
    return kind(**{key: _value(hints[key], document[key], where, _dotted(prefix, key)) for key in known})


def _value(kind: Any, found: object, where: str, field: str) -> Any:
    if hasattr(kind, "__dataclass_fields__"):
        return _record(kind, found, where, field)
    if get_origin(kind) is tuple:
        if isinstance(found, list) and all(isinstance(item, str) for item in found):
            return tuple(found)
    elif get_origin(kind) is Literal:
        if found in get_args(kind):
            return found
    elif get_origin(kind) in (types.UnionType, Union):
        inner = _given(kind)
        if found is None:
            return None
        if isinstance(found, Mapping) if hasattr(inner, "__dataclass_fields__") else type(found) is inner:
            return _value(inner, found, where, field)
    elif kind is float and isinstance(found, int | float) and not isinstance(found, bool):
        return float(found)
    # bool is a subclass of int, and "retain: 1" is not what was meant.
    elif type(found) is kind:
        return found
    raise UserError(f"{where}: {field}: found {found!r}, expected {_describe(kind)}")


def _given(kind: Any) -> Any:
    """The type that an optional field has where it is not null."""
    (inner,) = [one for one in get_args(kind) if one is not types.NoneType]
    return inner


def _dotted(prefix: str, key: object) -> str:
    return f"{prefix}.{key}" if prefix else str(key)


def _describe(kind: Any) -> str:
    if hasattr(kind, "__dataclass_fields__"):
        return "a mapping with " + ", ".join(field.name for field in fields(kind))
    if get_origin(kind) is tuple:
        return "a list of texts"
    if get_origin(kind) is Literal:
        return " or ".join(str(value) for value in get_args(kind))
    if get_origin(kind) in (types.UnionType, Union):
        inner = _given(kind)
        return f"{'a text in quotes' if inner is str else _describe(inner)}, or null"
    return {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}[kind]


def _check(environment: Environment, path: Path) -> None:
    """Refuse values that cannot be, alone or together."""
    for field, found, good, expected in _rules(environment, path):
        if not good:
            raise UserError(f"{path}: {field}: found {found!r}, expected {expected}")


def _rules(environment: Environment, path: Path) -> Iterable[tuple[str, object, bool, str]]:
    """Field, value, whether it is good, what is."""
    one = environment
    yield "name", one.name, one.name == path.stem, f"{path.stem}, as the file is called"
    good_account = one.account is None or re.fullmatch(r"\d{12}", one.account) is not None
    yield "account", one.account, good_account, "12 digits in quotes, or null"
    yield "region", one.region, re.fullmatch(r"[a-z]{2}(-[a-z]+)+-\d", one.region) is not None, "such as eu-central-1"
    yield "log_days", one.log_days, one.log_days in LOG_DAYS, f"one of {', '.join(map(str, LOG_DAYS))}"

    confirmed = one.data.delete_with_stacks_of
    yield (
        "data.delete_with_stacks_of",
        confirmed,
        confirmed is None or (confirmed == one.name and not one.data.retain),
        "null where data.retain is true" if one.data.retain else f"{one.name}, or null",
    )
    yield "data.retain", one.data.retain, one.data.retain or one.name != "prod", "true in prod"

    try:
        network = ipaddress.IPv4Network(one.network.cidr)
        good_cidr = 16 <= network.prefixlen <= 18 and any(network.subnet_of(private) for private in _PRIVATE)
    except ValueError:
        good_cidr = False
    private = ", ".join(map(str, _PRIVATE))
    yield "network.cidr", one.network.cidr, good_cidr, f"an IPv4 network of /16 to /18 within {private}"
    wants_instance = one.network.nat == "instance"
    yield (
        "network.nat_instance_type",
        one.network.nat_instance_type,
        (one.network.nat_instance_type is not None) == wants_instance,
        "an instance type such as t4g.nano" if wants_instance else "null beside network.nat: gateway",
    )
    endpoints = one.network.interface_endpoints
    good_endpoints = len(set(endpoints)) == len(endpoints) and set(endpoints) <= set(INTERFACE_ENDPOINTS)
    good_endpoints = good_endpoints and set(NEEDED_ENDPOINTS) <= set(endpoints)
    spare = [name for name in INTERFACE_ENDPOINTS if name not in NEEDED_ENDPOINTS]
    expected = f"{', '.join(NEEDED_ENDPOINTS)}, and any of {', '.join(spare)}"
    yield "network.interface_endpoints", list(endpoints), good_endpoints, expected

    for field, count, least in (
        ("lake.query_scan_limit_gib", one.lake.query_scan_limit_gib, 1),
        ("lake.query_result_days", one.lake.query_result_days, 1),
        ("stream.brokers_per_zone", one.stream.brokers_per_zone, 1),
        ("stream.retention_hours", one.stream.retention_hours, 1),
        ("stream.partitions", one.stream.partitions, 1),
        ("connect.flush_ms", one.connect.flush_ms, 100),
        ("emr.core_nodes", one.emr.core_nodes, 1),
        ("emr.epoch", one.emr.epoch, 1),
        # One worker drives, so that a job of one would have none to work.
        ("glue.workers", one.glue.workers, 2),
        ("glue.window_seconds", one.glue.window_seconds, 1),
        ("glue.epoch", one.glue.epoch, 1),
        ("monitoring.monthly_budget_usd", one.monitoring.monthly_budget_usd, 1),
        ("monitoring.consumer_lag_records", one.monitoring.consumer_lag_records, 1),
        ("monitoring.slot_lag_mib", one.monitoring.slot_lag_mib, 1),
        ("monitoring.wal_mib", one.monitoring.wal_mib, 1),
        ("monitoring.replication_age_seconds", one.monitoring.replication_age_seconds, 1),
        ("monitoring.quarantined_records", one.monitoring.quarantined_records, 0),
    ):
        yield field, count, count >= least, f"{least} or more"
    for field, count, least, most in (
        # The sink has one task, which one worker runs.
        ("connect.sink_workers", one.connect.sink_workers, 1, 1),
        ("database.readers", one.database.readers, 0, 15),
        ("stream.volume_gib", one.stream.volume_gib, 1, 16384),
        ("emr.volume_gib", one.emr.volume_gib, 32, 16384),
    ):
        yield field, count, least <= count <= most, f"{least} to {most}" if least < most else str(least)
    for field, units in (("source_units", one.connect.source_units), ("sink_units", one.connect.sink_units)):
        yield f"connect.{field}", units, units in (1, 2, 4, 8), "1, 2, 4 or 8"

    database = one.database
    # Logical replication keeps the cluster awake, so a minimum of 0 (auto-pause) would promise what cannot happen.
    yield "database.capacity_min", database.capacity_min, database.capacity_min >= 0.5, "0.5 or more"
    for field, units_ in (("capacity_min", database.capacity_min), ("capacity_max", database.capacity_max)):
        yield f"database.{field}", units_, units_ * 2 == int(units_ * 2), "a multiple of 0.5"
    yield (
        "database.capacity_max",
        database.capacity_max,
        max(1.0, database.capacity_min) <= database.capacity_max <= 256,
        f"at least 1 and at least capacity_min ({database.capacity_min}), at most 256",
    )
    yield "database.backup_days", database.backup_days, 1 <= database.backup_days <= 35, "1 to 35"
    yield from allow_lists.rules(one)
    yield from _key_value_rules(one)
    yield from _monitoring_rules(one)


def _key_value_rules(one: Environment) -> Iterable[tuple[str, object, bool, str]]:
    shards, hours = one.key_value.stream_shards, one.key_value.stream_retention_hours
    yield "key_value.stream_shards", shards, shards is None or shards >= 1, "1 or more, or null for a stream on demand"
    # What Kinesis offers, in hours: a day to a year.
    yield "key_value.stream_retention_hours", hours, 24 <= hours <= 8760, "24 to 8760"
    window = one.glue.maintenance_window
    good_window = re.fullmatch(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun):(1?\d|2[0-3])", window) is not None
    yield "glue.maintenance_window", window, good_window, "a day and an hour such as Sun:3"


def _monitoring_rules(one: Environment) -> Iterable[tuple[str, object, bool, str]]:
    settings = one.monitoring
    emails = settings.emails
    good_emails = len(set(emails)) == len(emails) and all(
        re.fullmatch(r"[^@\s]+@[^@\s]+\.[^@\s]+", to) for to in emails
    )
    yield "monitoring.emails", list(emails), good_emails, "different addresses"
    yield "monitoring.emails", list(emails), bool(emails) or not one.data.retain, "an address where data.retain is true"
    # A change waits for its window, and then for the commit.
    slowest = max(one.glue.window_seconds, one.connect.flush_ms // 1000)
    yield (
        "monitoring.freshness_seconds",
        settings.freshness_seconds,
        settings.freshness_seconds >= 2 * slowest,
        f"{2 * slowest} or more: twice glue.window_seconds and connect.flush_ms",
    )
    # A slot holds log back, so it is never more than all of it.
    slot = settings.slot_lag_mib
    yield "monitoring.slot_lag_mib", slot, slot <= settings.wal_mib, f"at most wal_mib ({settings.wal_mib})"
    kept = one.key_value.stream_retention_hours * 3600
    yield (
        "monitoring.iterator_age_seconds",
        settings.iterator_age_seconds,
        1 <= settings.iterator_age_seconds < kept,
        f"1 to less than key_value.stream_retention_hours ({kept} seconds): older records are lost",
    )
    if one.bi is not None:
        arn = re.fullmatch(r"arn:aws[a-z-]*:quicksight:[a-z0-9-]+:(\d{12}):(user|group)/[^/]+/.+", one.bi.principal)
        good_arn = arn is not None and one.account in (None, arn.group(1))
        yield "bi.principal", one.bi.principal, good_arn, "the ARN of a QuickSight user or group of this account"
