"""Environments of releases 0.1.0 and 0.2.0, in which every field was mandatory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from functools import reduce
from typing import Any

import yaml

from headwater.environment.defaults import SIZES, complete, leaves, value_at, words
from headwater.environment.model import Environment
from headwater.environment.rules import from_document
from headwater.errors import UserError
from headwater.yaml_files import load_yaml, refusal, remove_value, set_value

_ALWAYS_STATED = ("availability_zones", "log_days", "data.retain", "lake.query_result_days", "monitoring.wal_mib")
"""Fields that both releases required in every file. Neither release had ``lake.format``, which is required now."""
_COMMENTS = {
    r"Fields: docs/reference/stacks\.md\.": "`./headwater environment show --env {name}` prints every field.",
    r"`make\sdeploy\sENV=local`": "`./headwater deploy --env local`",
}
"""The first lines of the former releases' files, as patterns, and their replacements in a lake folder's file."""
_NAME, _EXISTING = "database.name", "existing"
_FORMER: Mapping[str, Any] = {
    "deployment.poll_seconds": 30,
    "deployment.settled_seconds": 90,
    # Every deploy took the newest image.
    "network.image_generation": 1,
    "network.endpoint_zones": "all",
    "lake.format": 1,
    "lake.query_principals": [],
    # Replaced files stayed for half a minute if their table was busy.
    "lake.file_version_hours": 1,
    # Landing objects and tombstones never expired.
    "lake.landing_days": 36500,
    "lake.tombstone_days": 36500,
    "lake.max_quarantined_share": 0.01,
    # Rows with unfit values were quarantined, and counted as quarantined records.
    "lake.max_unfit_share": 0.01,
    _NAME: "northwind",
    "database.root_certificate": None,
    "connect.sink_tasks": 1,
    # The sink skipped records that Kafka had removed.
    "connect.missing_offsets": "accept",
    "connect.snapshot_mode": "initial",
    "connect.epoch": 1,
    "emr.market": "on-demand",
    # The pause was half a second.
    "emr.idle_seconds_max": 1,
    # 0.1.0 had Hue and Livy. Anyone with a session on the bastion could read and change all data through them.
    "emr.web_interfaces": False,
    "emr.generation": 1,
    # Each table had a job.
    "glue.jobs": "per-table",
    "monitoring.runbooks": None,
    "monitoring.unfit_values": 0,
    "monitoring.comparison_minutes": None,
    "bi.refresh": None,
}
"""For each field that the former files may lack, the value nearest to the former behaviour."""


def is_former(document: Any) -> bool:
    """Whether an environment's document has the form of release 0.1.0 or 0.2.0."""
    stated = dict(leaves(document)) if isinstance(document, Mapping) else {}
    return "lake.format" not in stated and all(field in stated for field in _ALWAYS_STATED)


def is_of_first_release(document: Any) -> bool:
    """Whether an environment's document has the form of release 0.1.0."""
    return is_former(document) and value_at(document, "emr.epoch") is not None


def convert_environment(text: str, name: str, where: str) -> str:
    """Return an environment's file in the form of this release; the same text if it has this form already.

    Each field keeps its value, or gets the value nearest to the former behaviour. The file states a field only if its
    value is not the default. The comments of these fields stay. Raises UserError if this release refuses a value, or if
    the file's YAML cannot be edited.
    """
    document = load_yaml(text, where)
    if not is_former(document):
        return text
    carried = _carried_on(document, where)
    kept = min((_shortest({"size": size, **carried}, name) for size in SIZES), key=len)
    wanted = {**carried, "size": kept["size"]}
    from_document(wanted, name, where)
    try:
        text = _edited(text, dict(leaves(document)), kept)
        converted = _values(load_yaml(text, where), name)
    except (KeyError, UserError, yaml.YAMLError):
        converted = {}
    if converted != _values(wanted, name):
        raise UserError(
            f"{where}: found YAML that the upgrade cannot edit, such as an anchor, expected each field with its "
            "own value. Rewrite the file, then run the command again."
        )
    for former, now in _COMMENTS.items():
        text = re.sub(former, now.format(name=name), text)
    return text


def _carried_on(document: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The document, with values for the fields that the former releases' files lack."""
    carried: dict[str, Any] = deepcopy(dict(document))
    if is_of_first_release(document):
        # Kafka's topics are new, so all rows are read again in a raised epoch. Rows of DynamoDB have another order now.
        epoch = _epoch(document, "emr.epoch", where)
        del carried["emr"]["epoch"]
        carried["connect"] = {**(carried.get("connect") or {}), "epoch": epoch + 1}
        carried["glue"] = {**(carried.get("glue") or {}), "epoch": _epoch(document, "glue.epoch", where) + 1}
    carried.setdefault("deployment", {})
    for field, value in _FORMER.items():
        section, _, name = field.partition(".")
        if isinstance(carried.get(section), dict) and not (
            field == _NAME and carried[section].get("kind") == _EXISTING
        ):
            carried[section].setdefault(name, value)
    return carried


def _epoch(document: Mapping[str, Any], field: str, where: str) -> int:
    value = value_at(document, field)
    if type(value) is not int:
        raise refusal(where, field, value, "a whole number, 1 or more")
    return value


def _shortest(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The smallest set of fields that gives an environment all values of the document, its size included."""
    kept = dict(leaves(document))
    wanted = _values(document, name)
    for field in reversed(list(kept)):
        fewer = {other: value for other, value in kept.items() if other != field}
        if field != "size" and _values(_nested(fewer), name) == wanted:
            kept = fewer
    return kept


def _nested(stated: Mapping[str, Any]) -> dict[str, Any]:
    """The document that states these fields."""
    document: dict[str, Any] = {}
    for field, value in stated.items():
        *above, last = field.split(".")
        reduce(lambda section, part: section.setdefault(part, {}), above, document)[last] = value
    return document


def _values(document: Any, name: str) -> dict[str, str]:
    """All values of an environment, its defaults among them."""
    whole, _ = complete(document, Environment, name=name)
    return {field: words(value) for field, value in leaves(whole)}


def _edited(text: str, stated: Mapping[str, Any], kept: Mapping[str, Any]) -> str:
    """The text with the ``stated`` fields in place of its own ones."""
    for field, value in kept.items():
        if field not in stated or stated[field] != value:
            text = set_value(text, field.split("."), words(value), behind="region" if field == "size" else "")
    for field in stated:
        if field not in kept:
            text = remove_value(text, field.split("."))
    return re.sub(r"\n{3,}", "\n\n", text)
