"""``docs/reference/environment.md``: each field of an environment, with its default and the reason."""

from collections.abc import Iterator

from msgspec import Struct

from headwater.environment.defaults import Field, fields
from headwater.environment.model import Environment
from headwater.paths import ROOT

PAGE = ROOT / "docs" / "reference" / "environment.md"

_INTRODUCTION = """# The fields of an environment
An environment is a file `config/ENV.yaml`. It states what differs from the defaults below, and always `region` and
`lake.format`. [`size`](../decisions/defaults.md) decides the defaults in which a trial differs from production.
`headwater environment show --env ENV` prints every field, its value, and where the value comes from.

An unknown field is refused, with the nearest name. A value is refused that is wrong by itself or beside another. The
error names the file, the field, its value and the expected one. The sections `network`, `database`, `stream`, `connect`
and `emr` make nothing without a contract of PostgreSQL, and may then be null. So may `key_value` and `glue` without a
contract of DynamoDB. `make reference` writes this page.
"""
_MORE = {
    "data.retain": "../decisions/first-deploy.md",
    "lake.query_principals": "../how-to/query.md#who-may-query",
    "lake.file_version_hours": "../decisions/retention.md",
    "lake.landing_days": "../decisions/retention.md#landing-objects",
    "lake.tombstone_days": "../decisions/retention.md",
    "lake.max_unfit_share": "contracts.md#values-that-do-not-fit",
    "database.kind": "../how-to/existing-sources.md",
    "database.root_certificate": "../decisions/database-certificate.md",
    "stream.partitions": "../scaling.md#a-topics-partitions",
    "connect.snapshot_mode": "../how-to/backfill.md",
    "connect.epoch": "../runbooks/lost-slot.md",
    "emr.primary_type": "../decisions/emr-memory.md",
    "emr.core_type": "stacks.md#what-the-emr-step-brings-along",
    "emr.market": "stacks.md#a-cluster-that-is-gone",
    "emr.idle_seconds_max": "../decisions/cost.md",
    "emr.web_interfaces": "stacks.md#the-clusters-web-interfaces",
    "emr.generation": "stacks.md#a-cluster-that-is-gone",
    "key_value.kind": "../how-to/existing-sources.md",
    "glue.jobs": "stacks.md#one-job-for-all-tables-or-one-per-table",
    "monitoring.runbooks": "../runbooks/README.md",
    "monitoring.freshness_seconds": "stacks.md#what-is-watched",
    "monitoring.comparison_minutes": "../how-to/verify.md#while-all-writes-go-on",
    "bi": "../how-to/query.md#a-dashboard",
}
"""The page with more about a field, by the field's name."""
_HEAD = "| field | meaning | default | why |\n|---|---|---|---|\n"


def page() -> str:
    """Return the page, from the fields' types and annotations."""
    own = {name: field for name, field in fields(Environment).items() if not _is_section(field)}
    texts = [_INTRODUCTION, "## The environment itself", _HEAD + "".join(_rows(own, "", ""))]
    for name, field in fields(Environment).items():
        if _is_section(field):
            texts += [f"## {name}", f"{field.description}\n", _HEAD + "".join(_section(field, f"{name}."))]
    return "\n".join(texts)


def _is_section(field: Field) -> bool:
    return bool(field.structs) and field.default is None


def _section(field: Field, above: str) -> Iterator[str]:
    """A section's rows: the kinds of the section, and the fields of each kind."""
    if field.default_kind is not None:
        kinds = ", ".join(f"`{_kind(struct)}`" for struct in field.structs)
        default = field.default_kind
        yield _row(f"{above}kind", "", f"{kinds}. Chosen for good.", default.kind, default.reason)
    for struct in field.structs:
        yield from _rows(fields(struct), above, f" ({_kind(struct)})" if field.default_kind else "")


def _rows(known: dict[str, Field], above: str, note: str) -> Iterator[str]:
    for name, field in known.items():
        default, reason = (field.default.words, field.default.reason) if field.default else ("none: write it", "")
        yield _row(f"{above}{name}", note, field.description, default, reason)
        for struct in field.structs:
            yield from _rows(fields(struct), f"{above}{name}{'[]' if field.is_list else ''}.", note)


def _row(field: str, note: str, meaning: str, default: str, reason: str) -> str:
    more = f" [More]({_MORE[field]})" if field in _MORE else ""
    return f"| `{field}`{note} | {meaning}{more} | {default} | {reason} |\n"


def _kind(struct: type[Struct]) -> str:
    return str(struct.__struct_config__.tag)
