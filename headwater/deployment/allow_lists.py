"""What AWS offers: releases, versions, instance and worker types that an environment may name."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from headwater.deployment.environment import Environment, Rule
from headwater.yaml_files import either, read_yaml

FILE = Path(__file__).with_name("allow_lists.yaml")
_OF_EMR = "which the release offers and which encrypt what goes between instances"
_LISTS = {
    "database.engine_version": "aurora_postgresql",
    "stream.kafka_version": "msk_versions",
    "stream.broker_type": "msk_broker_types",
    "connect.kafka_connect_version": "msk_connect_versions",
    "emr.release": "emr_releases",
    "glue.version": "glue_versions",
    "glue.worker_type": "glue_worker_types",
}
"""The list of each field that takes only what AWS offers, whatever the other fields are."""


def rules(environment: Environment) -> Iterator[Rule]:
    """A rule for each field of which the lists know what AWS offers. What they do not know gives a warning; what they
    know not to work is refused."""
    regions, region = _lists()["regions"]["values"], environment.region
    known = f"{either(regions)}, for which {FILE.name} has the lists"
    yield Rule("region", region in regions, known, only_warns=True)
    zones, offered = environment.availability_zones, regions.get(region)
    different = 2 <= len(set(zones)) == len(zones) <= 3 and all(zone.startswith(region) for zone in zones)
    yield Rule(
        "availability_zones",
        different,
        f"two or three different ones of {', '.join(offered) if offered else region}",
    )
    if offered:
        expected = f"two or three different ones of {', '.join(offered)}"
        yield Rule("availability_zones", set(zones) <= set(offered), expected, only_warns=True)
    if environment.network.nat_instance_type is not None:
        yield _listed(environment, "network.nat_instance_type", "nat_instance_types")
    for field, name in _LISTS.items():
        yield _listed(environment, field, name)
    for field in ("emr.primary_type", "emr.core_type"):
        yield _instance_rule(environment, field)


def emr_instance_types(release: str) -> list[str]:
    """The instance types that a release of EMR offers, in the file's order."""
    return [
        f"{family}.{size}"
        for family, offer in _lists()["emr_releases"]["instance_types"].items()
        if _number(release) >= _number(offer.get("since", "emr-0"))
        for size in offer["sizes"]
    ]


def _instance_rule(environment: Environment, field: str) -> Rule:
    type_ = attrgetter(field)(environment)
    offered = emr_instance_types(environment.emr.release)
    same_family = [candidate for candidate in offered if _family(candidate) == _family(type_)]
    families = sorted({_family(candidate) for candidate in offered})
    expected = either(same_family) if same_family else f"a type of the families {either(families)}"
    return Rule(field, type_ in offered, f"{expected}, {_OF_EMR} ({_origin('emr_releases')})", only_warns=type_ != "")


def _family(instance_type: str) -> str:
    return instance_type.partition(".")[0]


def _listed(environment: Environment, field: str, name: str) -> Rule:
    values, value = _lists()[name]["values"], attrgetter(field)(environment)
    refused = next((why for start, why in _lists()[name].get("refused", {}).items() if value.startswith(start)), None)
    expected = f"{either(values)} ({_origin(name)})" + (f": {refused}" if refused else "")
    return Rule(field, value in values, expected, only_warns=refused is None and value != "")


def _origin(name: str) -> str:
    return f"{FILE.name}, {name}, as of {_lists()[name]['date']}"


def _number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.removeprefix("emr-").split("."))


@cache
def _lists() -> dict[str, Any]:
    lists: dict[str, Any] = read_yaml(FILE)
    return lists
