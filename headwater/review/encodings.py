"""Encoded properties, each with the encoding and the form that its service reads.

CloudFormation passes an encoded text on without reading it, so a wrong form fails only while the resource is created.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from headwater.review.templates import Deployment

# A text of at least this length that is Base64 of readable text is not Base64 by accident.
_LONG = 20
_BASE64 = re.compile(rf"(?<![\w+/=-])[A-Za-z0-9+/]{{{_LONG},}}={{0,2}}(?![\w+/=-])")
_PROPERTY_LINE = re.compile(r"[\w.-]+\s*=.*")
_PRESTO_VIEW = re.compile(r"/\* Presto View: (\S+) \*/")
# The fields that Athena needs in the text of a view.
_VIEW_FIELDS = {"originalSql", "catalog", "schema", "columns"}
# Names of https://kafka.apache.org/39/documentation.html#topicconfigs.
_TOPIC_CONFIGS = """
    cleanup.policy compression.gzip.level compression.lz4.level compression.type compression.zstd.level
    delete.retention.ms file.delete.delay.ms flush.messages flush.ms follower.replication.throttled.replicas
    index.interval.bytes leader.replication.throttled.replicas local.retention.bytes local.retention.ms
    max.compaction.lag.ms max.message.bytes message.downconversion.enable message.format.version
    message.timestamp.after.max.ms message.timestamp.before.max.ms message.timestamp.difference.max.ms
    message.timestamp.type min.cleanable.dirty.ratio min.compaction.lag.ms min.insync.replicas preallocate
    remote.log.copy.disable remote.log.delete.on.disable remote.storage.enable retention.bytes retention.ms
    segment.bytes segment.index.bytes segment.jitter.ms segment.ms unclean.leader.election.enable
"""


class _WrongForm(Exception):
    """The service cannot read the text. The message names the form that it expects."""


class Encoding(NamedTuple):
    """The encoding of a property."""

    type: str
    """CloudFormation's type of the resource."""
    property: str
    """The property's dotted path."""
    read: Callable[[str], None]
    """Reads the text as the service does. Raises ``_WrongForm``."""


def problems(deployment: Deployment) -> list[str]:
    """The properties in a wrong form, and the Base64 texts that no row of ``ENCODINGS`` knows."""
    wrong = []
    for resource in deployment.resources():
        own = {row.property: row.read for row in ENCODINGS if row.type == resource.type}
        for path, text in _texts(resource.properties):
            if path in own:
                try:
                    own[path](text)
                except _WrongForm as error:
                    wrong.append(f"{resource.place}: {path}: found {_shown(text)}, expected {error}")
            elif any(map(_readable, _BASE64.findall(text))):
                wrong.append(
                    f"{resource.place}: {path}: found Base64 {_shown(text)}, expected a property that "
                    f"headwater/review/encodings.py knows: add {resource.type} and the form that its service reads"
                )
    return wrong


def _texts(value: Any, path: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """The texts below a value with their dotted paths."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner, [*path, key])
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, path)
    elif isinstance(value, str):
        yield ".".join(path), value


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except ValueError:
        raise _WrongForm("Base64 of text") from None


def _readable(text: str) -> bool:
    """Whether a text is Base64 of readable text: an identifier that happens to fit decodes to other bytes."""
    try:
        return all(character.isprintable() or character.isspace() for character in _decoded(text))
    except _WrongForm:
        return False


def _json_object(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise _WrongForm("Base64 of a JSON object")
    return value


def _topic_configs(text: str) -> None:
    configs = _json_object(_decoded(text))
    unknown = sorted(set(configs) - set(_TOPIC_CONFIGS.split()))
    if unknown:
        raise _WrongForm(f"names of Kafka's topic configurations, not {', '.join(unknown)}")
    if not all(isinstance(value, str) for value in configs.values()):
        raise _WrongForm("a text as the value of each topic configuration")


def _properties(text: str) -> None:
    if not all(_PROPERTY_LINE.fullmatch(line) for line in text.splitlines() if line.strip()):
        raise _WrongForm("lines of key=value")


def _encoded_properties(text: str) -> None:
    _properties(_decoded(text))


def _presto_view(text: str) -> None:
    match = _PRESTO_VIEW.fullmatch(text)
    if match is None:
        raise _WrongForm("/* Presto View: <Base64> */")
    if missing := _VIEW_FIELDS - set(_json_object(_decoded(match.group(1)))):
        raise _WrongForm(f"Base64 of a JSON object with {', '.join(sorted(missing))}")


def _script(text: str) -> None:
    if not _decoded(text).startswith("#!"):
        raise _WrongForm("Base64 of a script that begins with #!")


ENCODINGS = (
    # JSON, not lines: docs/decisions/topic-configs.md.
    Encoding("AWS::MSK::Topic", "Configs", _topic_configs),
    # Plain text: the CloudFormation page says that SDKs encode it, and CloudFormation calls MSK through an SDK.
    # https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/aws-resource-msk-configuration.html
    Encoding("AWS::MSK::Configuration", "ServerProperties", _properties),
    # https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/aws-resource-kafkaconnect-workerconfiguration.html
    Encoding("AWS::KafkaConnect::WorkerConfiguration", "PropertiesFileContent", _encoded_properties),
    Encoding("AWS::Glue::Table", "TableInput.ViewOriginalText", _presto_view),
    # https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/user-data.html
    Encoding("AWS::EC2::Instance", "UserData", _script),
)
"""How services read the properties that hold an encoded text, or a text that looks as if it should be encoded."""


def _shown(text: str) -> str:
    readable = _BASE64.sub(lambda match: repr(_decoded(match[0])) if _readable(match[0]) else match[0], text)
    return readable if len(readable) <= 100 else readable[:99] + "…"
