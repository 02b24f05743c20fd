"""Translates requests into rights: the IAM actions and resources that AWS would have checked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote
from xml.etree import ElementTree

from headwater.errors import UserError
from headwater.review.rights import Right
from tests.aws_recorder import Request

# Services whose requests name their operation in a header, as PREFIX.Operation.
_TARGETS = {
    "AWSGlue": "glue",
    "DynamoDB_20120810": "dynamodb",
    "Kinesis_20131202": "kinesis",
    "secretsmanager": "secretsmanager",
    "GraniteServiceVersion20100801": "cloudwatch",
}
_NAMESPACE = re.compile(rb"Namespace(?:\x22:\s*\x22|=|[\x60-\x77]|\x78.)([A-Za-z0-9_./-]+)", re.DOTALL)


@dataclass(frozen=True)
class Names:
    """The names on AWS, often in braces, of resources that have other names in the local run."""

    buckets: Mapping[str, str]
    """The names of buckets, by local name."""
    resources: Mapping[str, str] = field(default_factory=dict)
    """The names of databases, streams, tables and secrets, by local name."""
    keys: Sequence[tuple[str, str, str]] = ()
    """A bucket, a pattern of object keys, and the ARN for matching keys. In the ARN, ``\\g<0>`` is the match."""
    stream: str | None = None
    """The stream of requests that name none."""

    def object(self, bucket: str, key: str) -> str:
        """The ARN that stands for an object and its neighbours."""
        for pattern_bucket, pattern, arn in self.keys:
            match = re.match(pattern, key) if pattern_bucket == bucket else None
            if match is not None:
                return match.expand(arn)
        # Two levels distinguish tables and topics. One ARN stands for everything below them.
        parts = key.split("/")
        return f"arn:aws:s3:::{self.buckets[bucket]}/" + "/".join(parts if len(parts) < 3 else [*parts[:2], "*"])

    def resource(self, name: str) -> str:
        """The name on AWS of a database, stream, table or secret with this local name or ARN."""
        local = name.rpartition(":")[2].rpartition("/")[2] if name.startswith("arn:") else name
        return self.resources.get(local, local)


def rights(requests: Iterable[Request], names: Names) -> set[Right]:
    """The rights that requests need. Raises UserError on a request that this module does not know."""
    return {right for request in requests for right in _rights(request, names)}


def _rights(request: Request, names: Names) -> Iterator[Right]:
    prefix, _, operation = request.headers.get("x-amz-target", "").partition(".")
    service = _TARGETS.get(prefix, request.service)
    if service == "s3":
        yield from _s3(request, names)
    elif service == "monitoring" or service == "cloudwatch":
        namespace = _NAMESPACE.search(request.body)
        if b"PutMetricData" not in request.body + request.path.encode() + operation.encode() or namespace is None:
            raise _unknown(request)
        context = (("cloudwatch:namespace", namespace.group(1).decode()),)
        yield Right("cloudwatch:PutMetricData", "*", context)
    elif operation:
        for resource in _resources(service, json.loads(request.body or b"{}"), names):
            yield Right(f"{service}:{operation}", resource)
    else:
        raise _unknown(request)


def _resources(service: str, body: Mapping[str, Any], names: Names) -> Iterator[str]:
    """The resources of a request whose body is JSON."""
    prefix = f"arn:aws:{service}:{{region}}:{{account}}"
    if service == "glue":
        database = names.resource(str(body.get("DatabaseName") or body.get("Name")))
        table = body.get("TableName") or (body.get("Name") if "DatabaseName" in body else None)
        yield f"{prefix}:catalog"
        yield f"{prefix}:database/{database}"
        if table is not None:
            yield f"{prefix}:table/{database}/{table}"
    elif service == "secretsmanager":
        yield f"{prefix}:secret:{names.resource(str(body['SecretId']))}-XXXXXX"
    elif service == "kinesis":
        stream = body.get("StreamName") or body.get("StreamARN")
        if stream is None and names.stream is None:
            raise UserError("a request to kinesis that names no stream: expected its name, or one in Names.stream")
        # A shard iterator and a page token name their stream in a form that only Kinesis reads.
        yield f"{prefix}:stream/{names.resource(str(stream)) if stream else names.stream}"
    elif service == "dynamodb":
        yield f"{prefix}:table/{names.resource(str(body['TableName']))}"
    else:
        raise UserError(f"a request to {service}: expected one to a service that tests/aws_rights.py knows")


def _s3(request: Request, names: Names) -> Iterator[Right]:
    bucket, _, key = unquote(request.path).lstrip("/").partition("/")
    query = parse_qs(request.query, keep_blank_values=True)
    if bucket not in names.buckets:
        raise _unknown(request)
    whole = f"arn:aws:s3:::{names.buckets[bucket]}"
    if not key:
        yield from _s3_bucket(request, names, bucket, whole, query)
        return
    resource = names.object(bucket, key)
    if request.method in ("GET", "HEAD"):
        if "uploadId" in query:
            yield Right("s3:ListMultipartUploadParts", resource)
            return
        yield Right("s3:GetObject", resource)
        if request.status == 404:
            # For a missing object, S3 answers 404 only to those who may list the bucket, else 403.
            yield Right("s3:ListBucket", whole)
    elif request.method == "DELETE":
        yield Right("s3:AbortMultipartUpload" if "uploadId" in query else "s3:DeleteObject", resource)
    elif request.method in ("PUT", "POST"):
        yield Right("s3:PutObject", resource)
        if "if-match" in request.headers:
            yield Right("s3:GetObject", resource)
        source = unquote(request.headers.get("x-amz-copy-source", "")).lstrip("/")
        if source:
            yield Right("s3:GetObject", names.object(*source.split("/", 1)))
        if "x-amz-tagging" in request.headers:
            yield Right("s3:PutObjectTagging", resource)
    else:
        raise _unknown(request)


def _s3_bucket(
    request: Request, names: Names, bucket: str, whole: str, query: Mapping[str, list[str]]
) -> Iterator[Right]:
    if request.method == "POST" and "delete" in query:
        for element in ElementTree.fromstring(request.body).iter():  # noqa: S314  # our own clients wrote this XML
            if element.tag.endswith("Object"):
                told = {inner.tag.rpartition("}")[2]: inner.text or "" for inner in element}
                action = "s3:DeleteObjectVersion" if "VersionId" in told else "s3:DeleteObject"
                yield Right(action, names.object(bucket, told["Key"]))
    elif request.method == "GET" and "versions" in query:
        yield Right("s3:ListBucketVersions", whole)
    elif request.method == "HEAD":
        yield Right("s3:ListBucket", whole)
    elif request.method == "GET" and "location" in query:
        yield Right("s3:GetBucketLocation", whole)
    elif request.method == "GET" and "uploads" in query:
        yield Right("s3:ListBucketMultipartUploads", whole)
    elif request.method == "GET" and not set(query) & {"acl", "policy", "versioning", "versions", "tagging"}:
        prefix = query.get("prefix", [""])[0]
        path = names.object(bucket, f"{prefix}x").partition("/")[2].removesuffix("x")
        yield Right("s3:ListBucket", whole, (("s3:prefix", path),) if path else ())
    else:
        raise _unknown(request)


def _unknown(request: Request) -> UserError:
    return UserError(
        f"{request.service}: {request.method} {request.path}?{request.query}: found a request that "
        "tests/aws_rights.py cannot translate into rights: add it there"
    )


def write_recorded(path: Path, recorded: Iterable[Right]) -> None:
    """Replace the recorded rights in a principal's file, and leave the rest of the file as it is."""
    text = path.read_text(encoding="utf-8")
    before, _, rest = text.partition("recorded:")
    lines = "".join(f"\n  - {right}" for right in sorted(recorded)) or " []"
    # The list ends where the next field begins.
    following = re.search(r"^(declared:|role:|#)", rest, re.MULTILINE)
    after = rest[following.start() :] if following is not None else ""
    path.write_text(f"{before}recorded:{lines}\n{after}", encoding="utf-8")
