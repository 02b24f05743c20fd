"""No template holds an encoded property in a form that its service does not read."""

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from headwater.review.encodings import ENCODINGS, problems
from tests.synth.deployed import deployment, resource, templates

if TYPE_CHECKING:
    from tests.synth.conftest import Synthesized


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_every_encoded_property_has_the_form_that_its_service_reads(every_stack: "Synthesized") -> None:
    assert problems(deployment(every_stack)) == []


def test_every_row_is_met(every: "Synthesized") -> None:
    met = {(resource.type, name) for resource in deployment(every).resources() for name in resource.properties}
    unmet = [row for row in ENCODINGS if (row.type, row.property.partition(".")[0]) not in met]
    assert [row.type for row in unmet] == []


@pytest.mark.parametrize(
    ("type_", "path", "value", "expected"),
    [
        ("AWS::MSK::Topic", ["Configs"], encoded("cleanup.policy=delete\n"), "expected Base64 of a JSON object"),
        ("AWS::MSK::Topic", ["Configs"], '{"cleanup.policy": "delete"}', "expected Base64 of text"),
        ("AWS::MSK::Topic", ["Configs"], encoded('{"log.retention.ms": "1"}'), "not log.retention.ms"),
        ("AWS::MSK::Topic", ["Configs"], encoded('{"retention.ms": 1}'), "expected a text as the value"),
        ("AWS::MSK::Configuration", ["ServerProperties"], encoded("a=b\n" * 9), "expected lines of key=value"),
        ("AWS::KafkaConnect::WorkerConfiguration", ["PropertiesFileContent"], "a=b\n", "expected Base64 of text"),
        ("AWS::KafkaConnect::WorkerConfiguration", ["PropertiesFileContent"], encoded('{"a": 1}'), "key=value"),
        ("AWS::Glue::Table", ["TableInput", "ViewOriginalText"], encoded("{}"), "expected /* Presto View:"),
        (
            "AWS::Glue::Table",
            ["TableInput", "ViewOriginalText"],
            f"/* Presto View: {encoded(json.dumps({'originalSql': 'SELECT 1'}))} */",
            "with catalog, columns, schema",
        ),
        ("AWS::EC2::Instance", ["UserData"], "#!/bin/bash\ntrue\n", "expected Base64 of text"),
        ("AWS::EC2::Instance", ["UserData"], {"Fn::Base64": "yum update\n"}, "begins with #!"),
        (
            "AWS::MSK::Cluster",
            ["ClusterName"],
            encoded("a text that nobody expects here"),
            "found Base64 'a text that nobody expects here', expected a property that",
        ),
    ],
)
def test_a_wrong_form_is_found(dev: "Synthesized", type_: str, path: list[str], value: Any, expected: str) -> None:
    changed = templates(dev)
    start = "View" if type_ == "AWS::Glue::Table" else "Bastion" if type_ == "AWS::EC2::Instance" else ""
    (name, *_) = [
        name
        for template in changed.values()
        for name, raw in template["Resources"].items()
        if raw["Type"] == type_ and name.startswith(start)
    ]
    owner = resource(changed, type_, name)["Properties"]
    for step in path[:-1]:
        owner = owner[step]
    owner[path[-1]] = value
    found = [problem for problem in problems(deployment(dev, changed)) if expected in problem]
    assert found, problems(deployment(dev, changed))
