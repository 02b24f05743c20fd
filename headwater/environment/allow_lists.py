"""The releases, versions, instance types and worker types of AWS that an environment may name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from headwater.contract.model import POSTGRESQL
from headwater.environment.model import Aurora, Environment, Rule
from headwater.yaml_files import either, read_yaml

FILE = Path(__file__).with_name("allow_lists.yaml")
_OF_EMR = "which EMR offers and which encrypt the traffic between instances"
_OF_AURORA = "database.engine_version"
_LISTS = {
    _OF_AURORA: "aurora_postgresql",
    "stream.kafka_version": "msk_versions",
    "stream.broker_type": "msk_broker_types",
    "connect.kafka_connect_version": "msk_connect_versions",
    "emr.release": "emr_releases",
    "glue.version": "glue_versions",
    "glue.worker_type": "glue_worker_types",
}
"""The list of allowed values for each field, if the list does not depend on other fields."""
RUNTIMES = {"emr.release": "emr_runtimes", "glue.version": "glue_runtimes"}
"""By field, the table with the software that each version brings."""


def rules(environment: Environment) -> Iterator[Rule]:
    """Yield a rule for each field that has a list of AWS's offers.

    An unknown value gives a warning. A value that is known not to work is refused.
    """
    regions, region = _lists()["regions"]["values"], environment.region
    known = f"{either(regions)}, for which {FILE.name} has the lists"
    yield Rule("region", region in regions, known, only_warns=True)
    # Zones must be two or three different ones of the region. Unknown zones of a known region give a warning.
    zones, offered = environment.availability_zones, regions.get(region)
    different = 2 <= len(set(zones)) == len(zones) <= 3 and all(zone.startswith(region) for zone in zones)
    yield Rule(
        "availability_zones",
        different,
        f"two or three different zones of {', '.join(offered) if offered else region}",
    )
    if offered:
        expected = f"two or three different zones of {', '.join(offered)}"
        yield Rule("availability_zones", set(zones) <= set(offered), expected, only_warns=True)
    for field, name in _LISTS.items():
        if getattr(environment, field.partition(".")[0]) is not None and (
            field != _OF_AURORA or isinstance(environment.database, Aurora)
        ):
            yield _listed(environment, field, name)
    if environment.describes(POSTGRESQL):
        yield from _host_rules(environment)


def _host_rules(environment: Environment) -> Iterator[Rule]:
    """Yield rules for the types of the NAT instance and of EMR's nodes."""
    if environment.postgresql.network.nat_instance_type is not None:
        yield _listed(environment, "network.nat_instance_type", "nat_instance_types")
    for field in ("emr.primary_type", "emr.core_type"):
        yield _instance_rule(environment, field)
    primary = environment.postgresql.emr.primary_type
    yield Rule(
        "emr.core_type",
        platform(environment.postgresql.emr.core_type) == platform(primary),
        f"a type with the same processors as emr.primary_type ({primary}: {platform(primary)}), because all nodes get "
        "one archive",
    )


def emr_instance_types() -> list[str]:
    """Return the instance types that EMR offers, in the file's order."""
    families = _lists()["emr_releases"]["instance_types"]
    return [f"{family}.{size}" for family, sizes in families.items() for size in sizes]


def platform(instance_type: str) -> str:
    """Return the platform of an instance type's processors as wheels name it: ``aarch64`` or ``x86_64``."""
    # A g after the generation is Graviton: https://docs.aws.amazon.com/ec2/latest/instancetypes/instance-type-names.html
    return "aarch64" if re.match(r"[a-z]+\d+g", instance_type) else "x86_64"


def memory_mib(instance_type: str) -> int:
    """Return the memory of an EMR instance type in MiB, or a little less.

    Families have 2 (c), 4 (m) or 8 (r) GiB per vCPU, and an xlarge has four vCPUs.
    """
    family, _, size = instance_type.partition(".")
    vcpus = 4 * int(size.removesuffix("xlarge") or 1)
    return {"c": 2, "m": 4, "r": 8}[family[0]] * vcpus * 1024


def shortfall(runtimes: str, version: str) -> str | None:
    """Return a sentence about software that our code needs and a version lacks; None if the version lacks nothing.

    ``runtimes`` is the name of a table in the lists, as in ``RUNTIMES``.
    """
    for part, brought in _lists()[runtimes]["values"][version].items():
        need = _lists()["needs"]["values"][part]
        if "at_least" in need:
            met, wanted = _number(brought) >= _number(need["at_least"]), f"{need['at_least']} or later"
        elif "series" in need:
            met, wanted = f"{brought}.".startswith(f"{need['series']}."), need["series"]
        else:
            met, wanted = brought == need["exactly"], need["exactly"]
        if not met:
            return f"{version} has {part} {brought}, but our code needs {wanted}: {need['why']}"
    return None


def _instance_rule(environment: Environment, field: str) -> Rule:
    type_ = attrgetter(field)(environment)
    offered = emr_instance_types()
    same_family = [candidate for candidate in offered if _family(candidate) == _family(type_)]
    families = sorted({_family(candidate) for candidate in offered})
    expected = either(same_family) if same_family else f"a type of the families {either(families)}"
    # The writer's settings need the memory per vCPU, which is known for families of these letters.
    sized = re.fullmatch(r"[cmr]\d+[a-z-]*\.\d*xlarge", type_) is not None
    may_be_new = sized and _family(type_) not in _lists()["emr_releases"]["unencrypted"]
    return Rule(
        field,
        type_ in offered,
        f"{expected}, {_OF_EMR} ({_origin('emr_releases')})",
        only_warns=may_be_new,
    )


def _family(instance_type: str) -> str:
    return instance_type.partition(".")[0]


def _listed(environment: Environment, field: str, name: str) -> Rule:
    values, value = _lists()[name]["values"], attrgetter(field)(environment)
    why = _why_refused(field, name, value)
    expected = f"{either(values)} ({_origin(name)})" + (f": {why}" if why else "")
    return Rule(field, value in values and why is None, expected, only_warns=why is None and value != "")


def _why_refused(field: str, name: str, value: str) -> str | None:
    """Return why a value does not work; None if no reason is known."""
    runtimes = RUNTIMES.get(field)
    if runtimes is not None and value in _lists()[runtimes]["values"]:
        return shortfall(runtimes, value)
    required: dict[str, str] | None = _lists()[name].get("required")
    return None if required is None or re.fullmatch(required["pattern"], value) else required["why"]


def _origin(name: str) -> str:
    return f"{FILE.name}, {name}, as of {_lists()[name]['date']}"


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


@cache
def _lists() -> dict[str, Any]:
    lists: dict[str, Any] = read_yaml(FILE)
    return lists
