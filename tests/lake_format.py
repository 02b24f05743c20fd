"""The form of stored objects, and the form that reviewers have agreed on for the lake's format."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import yaml

from headwater.environment.model import LAKE_FORMAT
from headwater.paths import ROOT

GATE = "Put the new form behind lake.format: docs/decisions/lake-format.md says how"
_REVIEWED = ROOT / "reviewed" / "lake_format.yaml"
# Files that Hudi itself writes beside a commit: rows and markers.
_OF_HUDI = re.compile(r"/lake/accounts/(?!\.hoodie/[^/]*commit$|\.hoodie/hoodie\.properties$)")
_ID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b([0-9a-f]{8}|[0-9a-f]{12,16}|[0-9a-f]{26,})\b")
_NUMBER = re.compile(r"\b\d+\b")
_NOTHING = "nothing"


def reviewed(part: str) -> Any:
    """The agreed form of one part of the stored objects, in this release's format."""
    formats = yaml.safe_load(_REVIEWED.read_text())
    assert list(formats) == list(range(1, LAKE_FORMAT + 1)), "each format has its form, also that of earlier ones"
    return formats[LAKE_FORMAT][part]


def form(value: Any) -> Any:
    """The form of a JSON value: the names of its fields, and the kind of each of their values."""
    if isinstance(value, dict):
        forms: dict[str, Any] = {}
        for name, inner in value.items():
            one, known = form(inner), general(name)
            forms[known] = merged(forms[known], one) if known in forms else one
        return forms or _NOTHING
    if isinstance(value, list):
        return _different(map(form, value))
    if isinstance(value, str):
        # Orders are texts of digits: their length is part of the form.
        return f"{len(value)} digits" if re.fullmatch(r"\d{46}|\d{81}", value) else "text"
    return "null" if value is None else {bool: "boolean", int: "number", float: "number"}[type(value)]


def general(name: str) -> str:
    """A name without the parts that differ each time: numbers are N, and ids ID."""
    return _NUMBER.sub("N", _ID.sub(lambda found: "N" if len(found[0]) == 14 else "ID", name))


def merged(left: Any, right: Any) -> Any:
    """Merge two forms. A field that only some objects have is in the result too."""
    if isinstance(left, dict) and isinstance(right, dict):
        return {key: merged(left.get(key, right.get(key)), right.get(key, left.get(key))) for key in {**left, **right}}
    if left == right or right == _NOTHING:
        return left
    if isinstance(left, list) and isinstance(right, list):
        return _different([*left, *right])
    if left == _NOTHING:
        return right
    return " or ".join(sorted({*left.split(" or "), *right.split(" or ")}))


def _different(forms: Iterable[Any]) -> list[Any]:
    known = {json.dumps(each, sort_keys=True): each for each in forms}
    return [known[text] for text in sorted(known)]


def collected(s3: Any, bucket: str, prefix: str) -> dict[str, Any]:
    """The forms of the objects below a prefix, by the general forms of their names."""
    forms: dict[str, Any] = {}
    for name, one in _stored(s3, bucket, prefix):
        forms[name] = merged(forms[name], one) if name in forms else one
    return forms


def _stored(s3: Any, bucket: str, prefix: str) -> Iterator[tuple[str, Any]]:
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/"):
        for entry in page.get("Contents", ()):
            if _OF_HUDI.search(entry["Key"]):
                continue
            answer = s3.get_object(Bucket=bucket, Key=entry["Key"])
            body, name = answer["Body"].read(), general(entry["Key"].removeprefix(f"{prefix}/"))
            if answer["Metadata"]:
                yield f"{name}, metadata", form(answer["Metadata"])
            if "/.hoodie/" in name:
                yield from _of_timeline(name.rpartition(".")[2], body)
            elif ".json" in name:
                for line in (gzip.decompress(body) if name.endswith(".gz") else body).splitlines():
                    yield name, form(json.loads(line))
            else:
                yield name, "text" if body else _NOTHING


def _of_timeline(kind: str, body: bytes) -> Iterator[tuple[str, Any]]:
    """The parts of a commit, or of the table's properties, that Headwater decides."""
    if kind == "properties":
        lines = [line.split("=", 1) for line in body.decode().splitlines() if not line.startswith("#")]
        yield "hoodie.properties", {name: value for name, value in lines if name != "hoodie.table.checksum"}
        return
    metadata = json.loads(body)["extraMetadata"]
    if schema := metadata.get("schema"):
        yield "schema", {field["name"]: field["type"] for field in json.loads(schema)["fields"]}
    if progress := metadata.get("headwater.progress"):
        yield "headwater.progress", form(json.loads(progress))
    yield kind, form(metadata)
