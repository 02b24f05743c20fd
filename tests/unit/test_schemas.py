"""Editors complete and check contracts and environments as the commands read them."""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from headwater.contract.reading import from_document
from headwater.environment import schemas
from headwater.environment.rules import read_environment
from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE
from tests.unit.test_contract import GOOD, KEY_VALUE

FILES = {
    **dict.fromkeys(sorted(EXAMPLE.contracts.glob("*.yaml")), schemas.CONTRACT),
    **dict.fromkeys(sorted(EXAMPLE.config.glob("*.yaml")), schemas.ENVIRONMENT),
}


@functools.cache
def validator(path: Path) -> Draft202012Validator:
    schema = yaml.safe_load(path.read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.mark.parametrize("path", schemas.files(), ids=lambda path: path.name)
def test_a_schema_is_up_to_date(path: Path) -> None:
    assert path.read_text() == schemas.files()[path], f"{path} is stale: run `make reference`"


@pytest.mark.parametrize(("path", "schema"), FILES.items(), ids=lambda path: path.name)
def test_a_file_names_its_schema_and_fits_it(path: Path, schema: Path) -> None:
    text = path.read_text()
    # A contract of the reader's own may come without this line; a line that names another schema misleads an editor.
    named = re.search(r"^# yaml-language-server: \$schema=(.*)$", text, re.MULTILINE)
    assert named[1] == f"../schemas/{schema.name}" if named else path.parent == EXAMPLE.contracts
    assert list(validator(schema).iter_errors(yaml.safe_load(text))) == []


@pytest.mark.parametrize("path", schemas.files(), ids=lambda path: path.name)
def test_every_field_is_described(path: Path) -> None:
    document = yaml.safe_load(path.read_text())
    fields = dict(described(document["$defs"]))
    assert len(fields) > 20
    assert [name for name, text in fields.items() if not text or "\n" in text or "``" in text] == []


def described(parts: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Each field with its description. A mapping's description stands at its definition."""
    for part, schema in parts.items():
        for name, field in schema["properties"].items():
            target = parts[field["$ref"].rpartition("/")[2]] if "$ref" in field else field
            yield f"{part}.{name}", target.get("description")


def changed(document: Any, field: str, value: Any) -> Any:
    """The document with one field (``part.0.field``) changed, or without it if the value is ``...``."""
    document = copy.deepcopy(document)
    *parts, last = (int(part) if part.isdigit() else part for part in field.split("."))
    target = document
    for part in parts:
        target = target.setdefault(part, {}) if isinstance(target, dict) else target[part]
    if value is ...:
        del target[last]
    else:
        target[last] = value
    return document


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sizee", 1),
        ("emr.cores", 1),
        ("emr", "big"),
        ("emr.core_nodes", -1),
        ("emr.core_nodes", "1"),
        ("account", 123456789012),
        ("account", "1234"),
        ("region", "Frankfurt"),
        ("log_days", 8),
        ("data.retain", 1),
        ("network.nat", "none"),
        ("network.interface_endpoints", ["glue", "s3"]),
        ("network.interface_endpoints", ["glue", "glue"]),
        ("database.engine_version", 16.9),
        ("database.capacity_min", 0),
        ("database.capacity_max", 8.3),
        ("connect.source_units", 3),
        ("connect.sink_workers", 0),
        ("key_value.stream_shards", 0),
        ("glue.maintenance_window", "Sun:24"),
        ("monitoring.emails", ["me"]),
        ("monitoring.runbooks", "docs"),
        ("bi", {"principal": "me"}),
        ("size", "huge"),
        ("region", ...),
        ("lake", ...),
        ("lake.format", ...),
        ("lake.format", 2),
        ("database", {"kind": "existing"}),
    ],
)
def test_the_schema_of_environments_refuses_what_reading_refuses(tmp_path: Path, field: str, value: Any) -> None:
    document = changed(yaml.safe_load((EXAMPLE.config / "dev.yaml").read_text()), field, value)
    (tmp_path / "dev.yaml").write_text(yaml.safe_dump(document))
    assert not validator(schemas.ENVIRONMENT).is_valid(document)
    with pytest.raises(UserError):
        read_environment("dev", tmp_path)


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        (GOOD, "bucket", 4),
        (GOOD, "buckets", 0),
        (GOOD, "key", []),
        (GOOD, "table", "Orders"),
        (GOOD, "description", " "),
        (GOOD, "partition_by", ["id", "month"]),
        (GOOD, "source.database", "oracle"),
        (GOOD, "source.table", "orders"),
        (GOOD, "columns.1.transform", "day(weeks)"),
        (GOOD, "columns.2.from", ["payload", "items"]),
        (GOOD, "columns.0.type", ...),
        (KEY_VALUE, "source.table", "no table"),
        (KEY_VALUE, "verify_with", "a.sql"),
        (KEY_VALUE, "columns.0.source_type", "bytea"),
        (KEY_VALUE, "columns.0.source_type", ...),
        (KEY_VALUE, "columns.2.transform", "year"),
        (KEY_VALUE, "columns.5.from", []),
        (KEY_VALUE, "columns.4.from", "address..city"),
    ],
)
def test_the_schema_of_contracts_refuses_what_reading_refuses(text: str, field: str, value: Any) -> None:
    document = yaml.safe_load(text)
    assert validator(schemas.CONTRACT).is_valid(document)
    wrong = changed(document, field, value)
    assert not validator(schemas.CONTRACT).is_valid(wrong)
    with pytest.raises(UserError):
        from_document(wrong, "x.yaml")
