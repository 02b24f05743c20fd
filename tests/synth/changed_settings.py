"""An environment with every setting changed to another allowed value, as its file might say next."""

from __future__ import annotations

import copy
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from headwater.environment import rds_authority
from headwater.environment.model import SECTIONS, Environment

_OF_A_SOURCE = [section for sections in SECTIONS.values() for section in sections]
# Fields that identify the environment: with another value it is another deployment. So far there is one format.
_IDENTITY = ("name", "account", "region", "lake.format")
# A change would replace the whole network, or a cluster that the deployment made. The gate before lost data refuses it.
_FOR_GOOD = ("availability_zones", "network.cidr")
_FOR_GOOD_IN_AURORA = ("database.name",)
# The values that no rule below finds: texts, and what has to fit other fields.
_OTHER = {
    "bi": {"principal": "arn:aws:quicksight:eu-central-1:123456789012:group/default/analysts", "refresh": "daily"},
    "connect.kafka_connect_version": "2.7.1",
    "data.delete_with_stacks_of": None,
    "database.cidr": "10.61.0.0/16",
    "database.engine_version": "16.8",
    "database.host": "orders.cluster-1a2b.eu-central-1.rds.amazonaws.com",
    "database.monitored": {"kind": "instance", "identifier": "orders"},
    "database.name": "orders",
    "database.peering": {"vpc": "vpc-07de7507", "route_tables": ["rtb-07de7507"], "security_group": "sg-07de7507"},
    # It holds certificates.
    "database.root_certificate": str(rds_authority.FILE),
    "database.secret": "orders/headwater-cdc",
    "database.secret_key": "arn:aws:kms:eu-central-1:123456789012:key/07de7",
    "emr.core_type": "r7g.2xlarge",
    "emr.idle_seconds_max": 20,
    "emr.primary_type": "r7g.2xlarge",
    "emr.release": "emr-7.14.0",
    "glue.maintenance_window": "Mon:4",
    "glue.version": "5.0",
    "glue.worker_type": "G.1X",
    "key_value.tables": [{"contract": "accounts", "table": "Users", "stream": "user-changes", "stream_key": None}],
    "lake.landing_days": 2,
    "lake.max_quarantined_share": 0.5,
    "lake.max_unfit_share": 0.25,
    "lake.query_principals": ["arn:aws:iam::123456789012:role/analysts"],
    "monitoring.comparison_minutes": 30,
    "monitoring.emails": ["oncall@example.com"],
    "monitoring.runbooks": "https://git.example.com/headwater/blob/main/",
    "network.interface_endpoints": ["glue", "kms", "monitoring", "secretsmanager"],
    "network.nat": "gateway",
    "network.nat_instance_type": None,
    "stream.broker_type": "kafka.m7g.xlarge",
    "stream.kafka_version": "3.8.x.kraft",
}


def changed_environment(settings: Environment) -> Environment:
    """The environment with every setting changed that can be. Fails if a setting has no other value here."""
    before = msgspec.json.decode(msgspec.json.encode(settings))
    after = copy.deepcopy(before)
    for_good = (*_IDENTITY, *_FOR_GOOD, *(_FOR_GOOD_IN_AURORA if before["database"]["kind"] == "aurora" else ()))
    for path, type_ in _settings(Environment, before):
        if path in for_good:
            continue
        *parents, last = path.split(".")
        old, new = before, after
        for parent in parents:
            old, new = old[parent], new[parent]
        new[last] = _OTHER[path] if path in _OTHER else _another(path, type_, old[last])
        assert new[last] != old[last], f"{path}: found {old[last]!r} as the other value too: change it in _OTHER"
    # The lists of AWS's offers are not applied, because most changes are to a version that they lack.
    return msgspec.convert(after, Environment)


def _settings(struct: type, values: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted path and the type of each setting; an optional group of settings counts as one. A group
    that can have several kinds has the kind in ``values``, which never changes."""
    for name, type_ in get_type_hints(struct, include_extras=False).items():
        forms = [form for form in get_args(type_) or (type_,) if _is_struct(form)]
        tagged = [form for form in forms if form.__struct_config__.tag_field is not None]
        if tagged:
            kind = values[name][tagged[0].__struct_config__.tag_field]
            (form,) = [form for form in tagged if form.__struct_config__.tag == kind]
            yield from _settings(form, values[name], f"{prefix}{name}.")
        elif forms == [type_] or (not prefix and name in _OF_A_SOURCE):
            yield from _settings(forms[0], values[name], f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", type_


def _is_struct(type_: Any) -> bool:
    return isinstance(type_, type) and issubclass(type_, msgspec.Struct)


def _another(path: str, type_: Any, value: Any) -> Any:
    if get_origin(type_) is Annotated:
        return _another(path, get_args(type_)[0], value)
    if get_origin(type_) in (types.UnionType, Union):
        return _another(path, next(part for part in get_args(type_) if part is not type(None)), value)
    if get_origin(type_) is Literal:
        return next(choice for choice in get_args(type_) if choice != value)
    if type_ is bool:
        return not value
    if type_ in (int, float):
        return (value or 0) + 1
    raise AssertionError(f"{path}: found no other allowed value, expected one in tests/synth/changed_settings.py")
