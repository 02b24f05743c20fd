"""What AWS offers: releases, versions, instance and worker types that an environment may name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.yaml_files import load_yaml

if TYPE_CHECKING:
    from headwater.deployment.environment import Environment

_OF_EMR = "which the release offers and which encrypt what goes between instances"
FILE = Path(__file__).with_name("allow_lists.yaml")


def rules(environment: Environment) -> Iterable[tuple[str, object, bool, str]]:
    """Each field that a list speaks of, its value, whether AWS offers it, and what AWS offers."""
    lists = _lists()
    one = environment
    regions = lists["regions"]["values"]
    yield "region", one.region, one.region in regions, f"{_either(list(regions))}, for which {FILE.name} has the lists"
    zones, offered = one.availability_zones, regions.get(one.region, [])
    good_zones = 2 <= len(set(zones)) == len(zones) <= 3 and set(zones) <= set(offered)
    yield "availability_zones", list(zones), good_zones, f"two or three different ones of {', '.join(offered)}"
    if one.network.nat_instance_type is not None:
        yield _rule("network.nat_instance_type", one.network.nat_instance_type, "nat_instance_types")
    yield _rule("database.engine_version", one.database.engine_version, "aurora_postgresql")
    yield _rule("stream.kafka_version", one.stream.kafka_version, "msk_versions")
    yield _rule("stream.broker_type", one.stream.broker_type, "msk_broker_types")
    yield _rule("connect.kafka_connect_version", one.connect.kafka_connect_version, "msk_connect_versions")
    yield _rule("emr.release", one.emr.release, "emr_releases")
    for field, found in (("emr.primary_type", one.emr.primary_type), ("emr.core_type", one.emr.core_type)):
        offered = emr_instance_types(one.emr.release)
        family = found.partition(".")[0]
        near = [type_ for type_ in offered if type_.partition(".")[0] == family]
        families = sorted({type_.partition(".")[0] for type_ in offered})
        expected = _either(near) if near else f"a type of the families {_either(families)}"
        yield field, found, found in offered, f"{expected}, {_OF_EMR} ({_origin('emr_releases')})"
    yield _rule("glue.version", one.glue.version, "glue_versions")
    yield _rule("glue.worker_type", one.glue.worker_type, "glue_worker_types")


def emr_instance_types(release: str) -> list[str]:
    """The instance types that a release of EMR offers, in the file's order."""
    return [
        f"{family}.{size}"
        for family, offer in _lists()["emr_releases"]["instance_types"].items()
        if _number(release) >= _number(offer.get("since", "emr-0"))
        for size in offer["sizes"]
    ]


def _rule(field: str, found: str, name: str) -> tuple[str, object, bool, str]:
    values = _lists()[name]["values"]
    return field, found, found in values, f"{_either(values)} ({_origin(name)})"


def _origin(name: str) -> str:
    return f"{FILE.name}, {name}, as of {_lists()[name]['date']}"


def _either(values: Sequence[str]) -> str:
    return " or ".join([", ".join(values[:-1]), values[-1]]) if len(values) > 1 else values[0]


def _number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.removeprefix("emr-").split("."))


@cache
def _lists() -> dict[str, Any]:
    lists: dict[str, Any] = load_yaml(FILE.read_text(encoding="utf-8"), str(FILE))
    return lists
