"""Reads an environment, and checks its fields against each other and against AWS's offers.

``model`` says which values each field takes by itself.
"""

from __future__ import annotations

import ipaddress
import math
import sys
from collections.abc import Iterable, Iterator
from operator import attrgetter
from pathlib import Path

import msgspec

from headwater.contract.model import DYNAMODB, POSTGRESQL
from headwater.environment import allow_lists, lake_format, node_memory
from headwater.environment.defaults import Origin, complete
from headwater.environment.model import (
    INTERFACE_ENDPOINTS,
    NEEDED_ENDPOINTS,
    SECTIONS,
    SOURCE_NAMES,
    Aurora,
    Environment,
    ExistingDatabase,
    ExistingTables,
    Network,
    PostgresqlSections,
    Rule,
    names,
)
from headwater.errors import UserError
from headwater.yaml_files import convert, read_yaml, refusal

_MINUTE = 60
_DAY_HOURS = 24
# The private networks of RFC 1918, without 192.168.0.0/16, which MSK Connect does not reach.
_PRIVATE = tuple(map(ipaddress.IPv4Network, ("10.0.0.0/8", "172.16.0.0/12")))
# Networks that MSK Connect does not reach: https://docs.aws.amazon.com/msk/latest/developerguide/
# msk-connect-from-connectors.html
_OF_MSK_CONNECT = tuple(map(ipaddress.IPv4Network, ("10.99.0.0/16", "172.21.0.0/16", "192.168.0.0/16")))


def read_environment(name: str, folder: Path) -> Environment:
    """Read ``<folder>/<name>.yaml``, with defaults for missing fields.

    Raises UserError, which names file, field, found and expected. A value that is missing from a list of AWS's offers
    only gives a warning on standard error, because AWS may offer it by now.
    """
    return read_with_origins(name, folder)[0]


def read_with_origins(name: str, folder: Path) -> tuple[Environment, dict[str, Origin]]:
    """Return an environment, and the origin of each value by its dotted path. Raises as ``read_environment`` does."""
    known = names(folder)
    if name not in known:
        expected = f"one of {', '.join(known)}, a file in {folder}" if known else f"a file {name}.yaml in {folder}"
        raise UserError(f"environment: found {name!r}, expected {expected}")
    path = folder / f"{name}.yaml"
    return from_document(read_yaml(path), name, str(path))


def from_document(document: object, name: str, where: str) -> tuple[Environment, dict[str, Origin]]:
    """Return the environment that a document describes, and the origin of each value by its dotted path.

    - ``name``: the file's name without its ending.
    - ``where``: the file's path, for errors.

    Raises as ``read_environment`` does.
    """
    whole, origins = complete(document, Environment, name=name)
    environment = convert(whole, Environment, where)
    # Raise the first rule that does not hold, unless it only warns.
    for field, holds, expected, only_warns in _rules(environment, name):
        if holds:
            continue
        value = msgspec.to_builtins(attrgetter(field)(environment))
        found = list(value) if isinstance(value, tuple) else value
        problem = refusal(where, field, found, expected, origins[field].note)
        if not only_warns:
            raise problem
        sys.stderr.write(f"warning: {problem}; if AWS offers this value by now, go on\n")
    return environment, origins


def _rules(environment: Environment, stem: str) -> Iterator[Rule]:
    """Yield all rules. ``stem`` is the file's name without its ending."""
    yield Rule("name", environment.name == stem, f"{stem}, the name of the file")
    yield from _section_rules(environment)
    yield from _data_rules(environment)
    if environment.describes(POSTGRESQL):
        yield from _network_rules(environment.postgresql.network)
        yield from _database_rules(environment)
        yield from _sink_rules(environment.postgresql)
    if environment.describes(DYNAMODB):
        yield from _key_value_rules(environment)
    yield from lake_format.rules(environment)
    principals = environment.lake.query_principals
    yield Rule("lake.query_principals", len(set(principals)) == len(principals), "different ARNs")
    yield from _retention_rules(environment)
    yield from allow_lists.rules(environment)
    yield from node_memory.rules(environment)
    yield from _monitoring_rules(environment)
    yield from _bi_rules(environment)


def _section_rules(environment: Environment) -> Iterator[Rule]:
    for source, sections in SECTIONS.items():
        named = [section for section in sections if getattr(environment, section) is not None]
        for section in sections:
            yield Rule(
                section,
                not named or section in named,
                f"a mapping beside {', '.join(named)}; or null for all of {', '.join(sections)}, if no contract is of "
                f"{SOURCE_NAMES[source]}",
            )


def _data_rules(environment: Environment) -> Iterator[Rule]:
    data, name = environment.data, environment.name
    confirmed = data.delete_with_stacks_of
    yield Rule(
        "data.delete_with_stacks_of",
        confirmed is None or (confirmed == name and not data.retain),
        "null if data.retain is true" if data.retain else f"{name}, or null",
    )
    yield Rule(
        "account",
        environment.account is not None or not data.retain,
        "12 digits in quotes if data.retain is true, so that credentials of other accounts are refused",
    )
    yield Rule("data.retain", data.retain or name != "prod", "true in prod")
    # Settings that save money but cause interruptions are only for environments that may also lose their data.
    careful_values = (("emr.market", "on-demand"), ("network.endpoint_zones", "all"))
    for field, careful in careful_values if environment.describes(POSTGRESQL) else ():
        holds = not data.retain or attrgetter(field)(environment) == careful
        yield Rule(field, holds, f"{careful} if data.retain is true")


def _network_rules(network: Network) -> Iterator[Rule]:
    cidr = _network(network.cidr)
    yield Rule(
        "network.cidr",
        cidr is not None
        and 16 <= cidr.prefixlen <= 18
        and any(map(cidr.subnet_of, _PRIVATE))
        and not any(map(cidr.overlaps, _OF_MSK_CONNECT)),
        f"an IPv4 network of /16 to /18, such as 10.40.0.0/16, within {_listed(_PRIVATE)}, and apart from "
        f"{_listed(_OF_MSK_CONNECT)}, which MSK Connect does not reach",
    )
    wants_instance = network.nat == "instance"
    yield Rule(
        "network.nat_instance_type",
        (network.nat_instance_type is not None) == wants_instance,
        "an instance type such as t4g.nano" if wants_instance else "null beside network.nat: gateway",
    )
    endpoints = network.interface_endpoints
    spare = [endpoint for endpoint in INTERFACE_ENDPOINTS if endpoint not in NEEDED_ENDPOINTS]
    yield Rule(
        "network.interface_endpoints",
        len(set(endpoints)) == len(endpoints) and set(NEEDED_ENDPOINTS) <= set(endpoints),
        f"{', '.join(NEEDED_ENDPOINTS)}, and any of {', '.join(spare)}, each once",
    )


def _network(text: str) -> ipaddress.IPv4Network | None:
    """Return the network of a text such as ``10.40.0.0/16``; None for any other spelling, which templates refuse."""
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError:
        return None
    return network if str(network) == text else None


def _listed(networks: Iterable[ipaddress.IPv4Network]) -> str:
    return ", ".join(map(str, networks))


def _database_rules(environment: Environment) -> Iterator[Rule]:
    database = environment.postgresql.database
    if isinstance(database, Aurora):
        least, most = database.capacity_min, database.capacity_max
        yield Rule("database.capacity_max", most >= least, f"capacity_min ({least}) or more")
    else:
        yield from _existing_database_rules(environment, database)


def _existing_database_rules(environment: Environment, database: ExistingDatabase) -> Iterator[Rule]:
    own = ipaddress.IPv4Network(environment.postgresql.network.cidr)
    cidr = _network(database.cidr)
    yield Rule(
        "database.cidr",
        cidr is not None and not any(map(cidr.overlaps, (own, *_OF_MSK_CONNECT))),
        f"an IPv4 network such as 10.60.0.0/16, apart from network.cidr ({own}), and from {_listed(_OF_MSK_CONNECT)}, "
        "which MSK Connect does not reach",
    )
    if database.peering is not None:
        tables = database.peering.route_tables
        yield Rule("database.peering.route_tables", len(set(tables)) == len(tables), "different route tables")
    yield Rule("database.secret_key", *_of_region(environment, database.secret_key))


def _key_value_rules(environment: Environment) -> Iterator[Rule]:
    key_value = environment.dynamodb.key_value
    if not isinstance(key_value, ExistingTables):
        return
    for part in ("contract", "table", "stream"):
        values = [getattr(table, part) for table in key_value.tables]
        yield Rule("key_value.tables", len(set(values)) == len(values), f"each {part} once")
    for table in key_value.tables:
        holds, expected = _of_region(environment, table.stream_key)
        yield Rule("key_value.tables", holds, f"{expected} as stream_key of {table.contract}")


def _of_region(environment: Environment, key: str | None) -> tuple[bool, str]:
    """Return whether a key is in the environment's region, and the words for the expected key."""
    return key is None or key.split(":")[3] == environment.region, f"a key of {environment.region}"


def _sink_rules(sections: PostgresqlSections) -> Iterator[Rule]:
    partitions, tasks = sections.stream.partitions, sections.connect.sink_tasks
    # If a topic has fewer partitions than there are tasks, Kafka's range assignor gives the last tasks no partition.
    yield Rule("connect.sink_tasks", tasks <= partitions, f"at most stream.partitions ({partitions})")
    yield Rule("connect.sink_workers", sections.connect.sink_workers <= tasks, f"at most sink_tasks ({tasks})")


def _retention_rules(environment: Environment) -> Iterator[Rule]:
    lake = environment.lake
    streams = {}
    if environment.describes(POSTGRESQL):
        streams["stream.retention_hours"] = environment.postgresql.stream.retention_hours
    if environment.describes(DYNAMODB):
        streams["key_value.stream_retention_hours"] = environment.dynamodb.key_value.stream_retention_hours
    # Tombstones must outlast the records in streams and the landing objects, because these can be read again.
    for name, hours in streams.items():
        holds = lake.tombstone_days * _DAY_HOURS > hours
        yield Rule("lake.tombstone_days", holds, f"more than {name} ({hours} hours)")
    # A table that is set back to an earlier version must still find the landing objects after that version.
    hours = lake.landing_days * _DAY_HOURS
    yield Rule("lake.file_version_hours", lake.file_version_hours <= hours, f"at most landing_days ({hours} hours)")
    yield Rule(
        "lake.tombstone_days", lake.tombstone_days >= lake.landing_days, f"landing_days ({lake.landing_days}) or more"
    )


def _monitoring_rules(environment: Environment) -> Iterator[Rule]:
    settings = environment.monitoring
    emails = settings.emails
    yield Rule("monitoring.emails", len(set(emails)) == len(emails), "different addresses")
    yield Rule("monitoring.emails", bool(emails) or not environment.data.retain, "an address if data.retain is true")
    # A change waits for the commit, and before that for the Glue job's window, or for the sink and the writer's poll.
    waits = {}
    if environment.describes(DYNAMODB):
        waits["glue.window_seconds"] = window = environment.dynamodb.glue.window_seconds
        # The freshness alarm needs a figure in three of five minutes.
        yield Rule("glue.window_seconds", window <= _MINUTE, f"1 to {_MINUTE}")
    if environment.describes(POSTGRESQL):
        idle = environment.postgresql.emr.idle_seconds_max
        waits["connect.flush_ms and emr.idle_seconds_max together"] = until_found = (
            math.ceil(environment.postgresql.connect.flush_ms / 1000) + idle
        )
        yield Rule(
            "connect.flush_ms",
            until_found <= _MINUTE,
            f"at most {_MINUTE} seconds together with emr.idle_seconds_max ({idle})",
        )
    least = 2 * max(waits.values(), default=0)
    twice = ", and ".join(f"twice {setting}" for setting in waits)
    yield Rule("monitoring.freshness_seconds", settings.freshness_seconds >= least, f"{least} or more: {twice}")
    # The WAL that a slot holds back is a part of the whole WAL.
    yield Rule(
        "monitoring.slot_lag_mib", settings.slot_lag_mib <= settings.wal_mib, f"at most wal_mib ({settings.wal_mib})"
    )
    if environment.describes(DYNAMODB):
        kept = environment.dynamodb.key_value.stream_retention_hours * 3600
        yield Rule(
            "monitoring.iterator_age_seconds",
            settings.iterator_age_seconds < kept,
            f"less than key_value.stream_retention_hours ({kept} seconds): older records are lost",
        )


def _bi_rules(environment: Environment) -> Iterator[Rule]:
    if environment.bi is not None and environment.account is not None:
        account = environment.bi.principal.split(":")[4]
        yield Rule(
            "bi.principal",
            account == environment.account,
            f"the ARN of a QuickSight user or group of this account ({environment.account})",
        )
