"""Requests are translated into the rights that AWS would check, and handlers ask for declared rights only."""

import ast
import json
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore import xform_name

from headwater.errors import UserError
from headwater.paths import ROOT
from headwater.review.rights import Right, read_principals
from tests import kafka_rights
from tests.aws_recorder import Request
from tests.aws_rights import Names, rights, write_recorded

NAMES = Names(
    buckets={"local": "{lake}"},
    resources={"local_db": "{database}", "local-stream": "{stream}", "local/secret": "headwater/{environment}/cdc"},
    keys=(("local", r"lake/_leases/.*", r"arn:aws:s3:::{lake}/\g<0>"),),
)


def asked(request: Request) -> list[str]:
    return sorted(map(str, rights([request], NAMES)))


def s3(method: str, path: str, query: str = "", status: int = 200, body: bytes = b"", **headers: str) -> Request:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Request("s3", method, path, query, named, body, status)


def call(service: str, target: str, **body: Any) -> Request:
    return Request(service, "POST", "/", "", {"x-amz-target": target}, json.dumps(body).encode(), 200)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (s3("GET", "/local/lake/orders/a/b"), ["s3:GetObject arn:aws:s3:::{lake}/lake/orders/*"]),
        (s3("HEAD", "/local/lake/orders"), ["s3:GetObject arn:aws:s3:::{lake}/lake/orders"]),
        (s3("GET", "/local/lake/_leases/a.json"), ["s3:GetObject arn:aws:s3:::{lake}/lake/_leases/a.json"]),
        (
            s3("HEAD", "/local/lake/orders/x", status=404),
            ["s3:GetObject arn:aws:s3:::{lake}/lake/orders/*", "s3:ListBucket arn:aws:s3:::{lake}"],
        ),
        (
            s3("GET", "/local", "list-type=2&prefix=lake/orders/.hoodie/"),
            ["s3:ListBucket arn:aws:s3:::{lake} s3:prefix=lake/orders/*"],
        ),
        (s3("GET", "/local", "location="), ["s3:GetBucketLocation arn:aws:s3:::{lake}"]),
        (s3("HEAD", "/local"), ["s3:ListBucket arn:aws:s3:::{lake}"]),
        (s3("PUT", "/local/lake/orders/a"), ["s3:PutObject arn:aws:s3:::{lake}/lake/orders/*"]),
        (
            s3("PUT", "/local/lake/orders/a", if_match="etag"),
            ["s3:GetObject arn:aws:s3:::{lake}/lake/orders/*", "s3:PutObject arn:aws:s3:::{lake}/lake/orders/*"],
        ),
        (
            s3("PUT", "/local/lake/orders/a", x_amz_copy_source="/local/lake/other/b"),
            ["s3:GetObject arn:aws:s3:::{lake}/lake/other/*", "s3:PutObject arn:aws:s3:::{lake}/lake/orders/*"],
        ),
        (s3("POST", "/local/lake/orders/a", "uploads"), ["s3:PutObject arn:aws:s3:::{lake}/lake/orders/*"]),
        (
            s3("DELETE", "/local/lake/orders/a", "uploadId=1"),
            ["s3:AbortMultipartUpload arn:aws:s3:::{lake}/lake/orders/*"],
        ),
        (s3("DELETE", "/local/lake/orders/a"), ["s3:DeleteObject arn:aws:s3:::{lake}/lake/orders/*"]),
        (
            s3("POST", "/local", "delete", body=b'<D xmlns="x"><Object><Key>lake/orders/a</Key></Object></D>'),
            ["s3:DeleteObject arn:aws:s3:::{lake}/lake/orders/*"],
        ),
        (
            call("glue", "AWSGlue.GetTable", DatabaseName="local_db", Name="orders"),
            [
                "glue:GetTable arn:aws:glue:{region}:{account}:catalog",
                "glue:GetTable arn:aws:glue:{region}:{account}:database/{database}",
                "glue:GetTable arn:aws:glue:{region}:{account}:table/{database}/orders",
            ],
        ),
        (
            call("secretsmanager", "secretsmanager.GetSecretValue", SecretId="local/secret"),
            [
                "secretsmanager:GetSecretValue "
                "arn:aws:secretsmanager:{region}:{account}:secret:headwater/{environment}/cdc-XXXXXX"
            ],
        ),
        (
            call("kinesis", "Kinesis_20131202.GetRecords", StreamARN="arn:aws:kinesis:x:1:stream/local-stream"),
            ["kinesis:GetRecords arn:aws:kinesis:{region}:{account}:stream/{stream}"],
        ),
        (
            Request("monitoring", "POST", "/", "", {}, b"Action=PutMetricData&Namespace=Headwater", 200),
            ["cloudwatch:PutMetricData * cloudwatch:namespace=Headwater"],
        ),
        (
            call("monitoring", "GraniteServiceVersion20100801.PutMetricData", Namespace="Headwater"),
            ["cloudwatch:PutMetricData * cloudwatch:namespace=Headwater"],
        ),
    ],
)
def test_a_request_asks_for_rights(request_: Request, expected: list[str]) -> None:
    assert asked(request_) == expected


@pytest.mark.parametrize(
    "request_",
    [
        s3("GET", "/unknown/key"),
        s3("GET", "/local", "acl"),
        s3("PATCH", "/local/key"),
        call("sqs", ""),
        call("athena", "AmazonAthena.GetWorkGroup"),
        call("kinesis", "Kinesis_20131202.GetRecords", ShardIterator="opaque"),
    ],
)
def test_a_request_that_is_not_known_is_refused(request_: Request) -> None:
    with pytest.raises(UserError, match=r"request"):
        asked(request_)


def test_what_brokers_log_becomes_msks_actions() -> None:
    log = [
        "Principal = User:ANONYMOUS is Allowed operation = WRITE from host = 127.0.0.1 on resource = "
        "Topic:LITERAL:headwater.orders for request = Produce with resourceRefCount = 1 based on rule SuperUser",
        "Principal = User:ANONYMOUS is Allowed operation = IDEMPOTENT_WRITE from host = 127.0.0.1 on resource = "
        "Cluster:LITERAL:kafka-cluster for request = InitProducerId",
        "Principal = User:ANONYMOUS is Denied operation = READ from host = h on resource = Topic:LITERAL:other for x",
        "INFO nothing of interest",
    ]
    operations = kafka_rights.asked(log)
    assert sorted(map(str, set(kafka_rights.rights(operations, {"headwater.orders": "renamed"})))) == [
        "kafka-cluster:Connect arn:aws:kafka:{region}:{account}:cluster/{kafka}",
        "kafka-cluster:WriteData arn:aws:kafka:{region}:{account}:topic/{kafka}/renamed",
        "kafka-cluster:WriteDataIdempotently arn:aws:kafka:{region}:{account}:cluster/{kafka}",
    ]


def test_rights_are_written_as_they_are_read_and_the_rest_of_the_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "some_writer.yaml"
    path.write_text("# Why.\nrole: a:B\nrecorded:\n  - s3:Old x\ndeclared:\n  - {right: s3:B y, reason: because}\n")
    written = {Right("s3:Put", "z", (("s3:prefix", "a/*"),)), Right("s3:Get", "z")}
    write_recorded(path, written)
    (principal,) = read_principals(tmp_path)
    assert (principal.name, principal.role, principal.recorded) == ("some writer", "a:B", frozenset(written))
    assert principal.declared == {Right("s3:B", "y"): "because"}
    assert path.read_text().startswith("# Why.\n")
    write_recorded(path, set())
    assert read_principals(tmp_path)[0].recorded == frozenset()


def test_what_only_one_kind_of_database_needs_is_told_apart(tmp_path: Path) -> None:
    of_kinds = ", ".join(
        f"{{right: {right}, reason: call, only_with: {kind}}}"
        for right, kind in (("rds:C z", "aurora"), ("ssm:D z", "existing"))
    )
    declared = f"declared: [{{right: s3:B y, reason: because}}, {of_kinds}]\n"
    (tmp_path / "both.yaml").write_text(f"role: a\nrecorded: []\n{declared}")
    (tmp_path / "one.yaml").write_text("only_with: aurora\nrole: a\nrecorded: []\ndeclared: []\n")
    both, one = read_principals(tmp_path)
    assert both.rights == [Right("rds:C", "z"), Right("s3:B", "y"), Right("ssm:D", "z")]
    assert both.with_database("aurora").rights == [Right("rds:C", "z"), Right("s3:B", "y")]
    assert both.with_database("existing").rights == [Right("s3:B", "y"), Right("ssm:D", "z")]
    assert (both.only_with_aurora, one.only_with_aurora) == (False, True)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("role: a\n", "recorded: found nothing, expected a list of texts"),
        (
            "role: a\nrecorded: []\ndeclared: []\nrights: []\n",
            "rights: found an unknown field, expected role, recorded",
        ),
        ("role: a\nrecorded: []\ndeclared: [{right: b c}]\n", r"declared\[0\]\.reason: found nothing, expected a text"),
    ],
)
def test_a_file_with_other_fields_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(UserError, match=rf"x\.yaml: {problem}"):
        read_principals(tmp_path)


# IAM's name of a service where it differs from boto3's.
IAM = {"emr": "elasticmapreduce"}
# The principals that run each set of modules of custom_resources/.
HANDLERS = {
    ("connector", "data_api"): ("connector handler",),
    ("database_bootstrap", "data_api"): ("database handler", "publication handler"),
    ("emr_step",): ("step handler",),
    ("glue_run",): ("glue run handler",),
    ("rotation", "data_api"): ("rotation handler",),
}


def called(modules: tuple[str, ...]) -> dict[str, set[str]]:
    """The IAM actions that each call of an AWS operation in the modules may mean: two services may have an operation of
    the same name."""
    trees = [ast.parse((ROOT / "custom_resources" / f"{name}.py").read_text()) for name in modules]
    calls = [
        node
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    methods = {node.func.attr for node in calls if isinstance(node.func, ast.Attribute)}
    services = {
        str(node.args[0].value)
        for node in calls
        if isinstance(node.func, ast.Attribute)
        and node.func.attr == "client"
        and isinstance(node.args[0], ast.Constant)
    }
    actions: dict[str, set[str]] = {}
    for service in services:
        for operation in botocore.session.get_session().get_service_model(service).operation_names:
            if xform_name(operation) in methods:
                actions.setdefault(xform_name(operation), set()).add(f"{IAM.get(service, service)}:{operation}")
    return actions


@pytest.mark.parametrize("modules", HANDLERS, ids="-".join)
def test_every_call_of_a_handler_is_declared_and_every_declared_call_is_made(modules: tuple[str, ...]) -> None:
    declared = {
        right.action
        for principal in read_principals()
        if principal.name in HANDLERS[modules]
        for right, reason in principal.declared.items()
        if reason == "call"
    }
    calls = called(modules)
    assert calls
    assert {method for method, actions in calls.items() if not actions & declared} == set()
    assert declared <= set().union(*calls.values())
