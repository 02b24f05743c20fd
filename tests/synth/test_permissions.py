"""The policies give what the local run asks for, and a missing right is named."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from headwater.review import policies, rights
from tests.synth.deployed import Templates, deployment, resource, templates

if TYPE_CHECKING:
    from tests.synth.conftest import Synthesized

PRINCIPALS = rights.read_principals()
WHO_LANDS = ("sink connector", "emr writer")
"""The writer rewrites landing objects without the forgotten rows."""


def missing(synthesized: "Synthesized", changed: Templates) -> list[str]:
    deployed = deployment(synthesized, changed)
    granted = policies.read(deployed)
    needed = policies.needed_by(deployed, PRINCIPALS)
    return [text for principal in needed for text in policies.judge(deployed, granted, principal).missing]


def test_no_right_is_missing_that_the_local_run_asks_for(every: "Synthesized") -> None:
    assert missing(every, templates(every)) == []


def test_each_principal_that_is_recorded_asked_for_something() -> None:
    for principal in PRINCIPALS:
        assert principal.rights, principal.name
    assert {principal.name for principal in PRINCIPALS if principal.recorded} >= {
        "emr writer",
        "sink connector",
        "source connector",
    }


def without(changed: Templates, policy: str, part: str, text: str) -> None:
    """Take every action out of a policy that begins with a text."""
    document = resource(changed, "AWS::IAM::Policy", policy, part)["Properties"]["PolicyDocument"]
    kept: list[dict[str, Any]] = []
    for statement in document["Statement"]:
        actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        left = [action for action in actions if not action.startswith(text)]
        if left:
            kept.append({**statement, "Action": left})
    assert json.dumps(kept) != json.dumps(document["Statement"])
    document["Statement"] = kept


def no_puts(changed: Templates) -> None:
    without(changed, "SinkRole", "connect", "s3:PutObject")


def no_data_keys(changed: Templates) -> None:
    without(changed, "NodeRole", "emr", "kms:GenerateDataKey")


def no_secret(changed: Templates) -> None:
    without(changed, "SourceRole", "connect", "secretsmanager:GetSecretValue")


def no_key_of_the_secret(changed: Templates) -> None:
    without(changed, "SourceRole", "connect", "kms:Decrypt")


def no_topic(changed: Templates) -> None:
    without(changed, "SourceRole", "connect", "kafka-cluster:WriteData")


def no_partitions(changed: Templates) -> None:
    without(changed, "NodeRole", "emr", "glue:BatchCreatePartition")


def other_prefix(changed: Templates) -> None:
    policy = resource(changed, "AWS::IAM::Policy", "SinkRole", "connect")
    text = json.dumps(policy["Properties"]["PolicyDocument"])
    assert '"/landing/*"' in text
    policy["Properties"]["PolicyDocument"] = json.loads(text.replace('"/landing/*"', '"/other/*"'))


def denied_by_the_bucket(changed: Templates) -> None:
    statements = resource(changed, "AWS::S3::BucketPolicy", "LandingPolicy", "lake")["Properties"]["PolicyDocument"][
        "Statement"
    ]
    resources = statements[0]["Resource"]
    statements.append({"Effect": "Deny", "Action": "s3:PutObject", "Principal": "*", "Resource": resources})


@pytest.mark.parametrize(
    ("change", "principal", "right", "why"),
    [
        (no_puts, "sink connector (connect:SinkRole)", "s3:PutObject arn:aws:s3:::", "no statement allows it"),
        (other_prefix, "sink connector (connect:SinkRole)", "s3:PutObject arn:aws:s3:::", "no statement allows it"),
        (denied_by_the_bucket, WHO_LANDS, "s3:PutObject arn:aws:s3:::", "denied by lake:LandingPolicy"),
        (no_data_keys, "emr writer (emr:NodeRole)", "kms:GenerateDataKey arn:aws:kms:", "no statement allows it"),
        (no_partitions, "emr writer (emr:NodeRole)", "glue:BatchCreatePartition arn:aws:glue:", "no statement"),
        (no_secret, "source connector (connect:SourceRole)", "secretsmanager:GetSecretValue arn:aws:", "no statement"),
        (no_key_of_the_secret, "source connector", "kms:Decrypt arn:aws:kms:", "no statement allows it"),
        (no_topic, "source connector", "kafka-cluster:WriteData arn:aws:kafka:", "no statement allows it"),
    ],
)
def test_a_missing_right_is_named(
    dev: "Synthesized", change: Callable[[Templates], None], principal: str | tuple[str, ...], right: str, why: str
) -> None:
    changed = templates(dev)
    change(changed)
    reported = missing(dev, changed)
    assert [text for text in reported if text.startswith(principal) and f"needs {right}" in text and why in text]
    assert all(text.startswith(principal) for text in reported)
