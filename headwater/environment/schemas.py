"""The JSON Schemas of contracts and environments, by which editors complete and check the YAML that people write."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from headwater.contract.document import DynamodbContract, PostgresqlContract
from headwater.contract.model import DYNAMODB
from headwater.environment.defaults import fields
from headwater.environment.model import KIND, Environment
from headwater.paths import SCHEMAS

CONTRACT = SCHEMAS / "contract.schema.json"
ENVIRONMENT = SCHEMAS / "environment.schema.json"


def files() -> dict[Path, str]:
    """Return the files of ``schemas/`` with their texts."""
    return {CONTRACT: _text(_contract()), ENVIRONMENT: _text(_environment())}


def _environment() -> dict[str, Any]:
    """Return the schema of environments: fields without defaults are required, and descriptions name the defaults."""
    schema = msgspec.json.schema(Environment)
    for struct in _structs(Environment):
        part = schema["$defs"][struct.__name__]
        known = fields(struct)
        for name, field in known.items():
            if field.default is not None:
                default = f" Default: {field.default.words} ({field.default.reason})."
                part["properties"][name]["description"] += default
            if field.default_kind is not None:
                schema["$defs"][field.struct_of({}).__name__]["required"].remove(KIND)
        part["required"] = [name for name in part["required"] if name not in known or known[name].is_mandatory]
        # msgspec adds the field of a tag without a description.
        tag = part["properties"].get(KIND, {})
        if "description" not in tag and "enum" in tag:
            tag["description"] = part["description"]
    return schema


def _structs(struct: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    """Yield a Struct and all Structs in its fields."""
    yield struct
    for field in fields(struct).values():
        for inner in field.structs:
            yield from _structs(inner)


def _contract() -> dict[str, Any]:
    """Return the schema of contracts. The source's database decides which fields a contract and its columns have."""
    (postgresql, dynamodb), parts = msgspec.json.schema_components(
        [PostgresqlContract, DynamodbContract], ref_template="#/$defs/{name}"
    )
    of_dynamodb = {
        "properties": {"source": {"properties": {"database": {"const": DYNAMODB}}, "required": ["database"]}}
    }
    return {"if": {**of_dynamodb, "required": ["source"]}, "then": dynamodb, "else": postgresql, "$defs": parts}


def _text(schema: dict[str, Any]) -> str:
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=1) + "\n"
