"""Policies are judged as IAM judges them; what cannot be judged is reported as unproven."""

from typing import Any

import pytest

from headwater.review import policies
from headwater.review.policies import Judgement
from headwater.review.rights import Principal, Right
from headwater.review.templates import Deployment

PUT = Right("s3:PutObject", "arn:aws:s3:::{lake}/lake/orders/*")
KEY = "arn:aws:kms:eu-central-1:123456789012:key/${headwater-dev-lake.Key}"


def statement(actions: Any, resources: Any, effect: str = "Allow", **more: Any) -> dict[str, Any]:
    return {"Effect": effect, "Action": actions, "Resource": resources, **more}


def deployment(*statements: dict[str, Any], bucket: Any = (), encrypted: bool = False, key: Any = None) -> Deployment:
    """A role with a policy, a bucket with one, and a key."""
    rule = {"ServerSideEncryptionByDefault": {"KMSMasterKeyID": {"Fn::GetAtt": ["Key", "Arn"]}}}
    encryption = {"BucketEncryption": {"ServerSideEncryptionConfiguration": [rule] if encrypted else []}}
    root = {"Effect": "Allow", "Action": "kms:*", "Resource": "*", "Principal": {"AWS": "root"}}
    resources = {
        "Writer": {"Type": "AWS::IAM::Role", "Properties": {}},
        "Policy": {
            "Type": "AWS::IAM::Policy",
            "Properties": {"PolicyDocument": {"Statement": list(statements)}, "Roles": [{"Ref": "Writer"}]},
        },
        "Lake": {"Type": "AWS::S3::Bucket", "Properties": encryption},
        "LakePolicy": {
            "Type": "AWS::S3::BucketPolicy",
            "Properties": {"Bucket": {"Ref": "Lake"}, "PolicyDocument": {"Statement": list(bucket)}},
        },
        "Key": {"Type": "AWS::KMS::Key", "Properties": {"KeyPolicy": {"Statement": [key or root]}}},
        "Names": {"Type": "AWS::Glue::Database", "Properties": {"DatabaseInput": {"Name": "headwater_dev"}}},
    }
    return Deployment({"headwater-dev-lake": {"Resources": resources}}, "eu-central-1")


def judged(deployed: Deployment, *rights: Right) -> Judgement:
    principal = Principal("the writer", "lake:Writer", frozenset(rights or (PUT,)), {})
    return policies.judge(deployed, policies.read(deployed), principal)


LAKE = {"Fn::Join": ["", [{"Fn::GetAtt": ["Lake", "Arn"]}, "/lake/*"]]}


@pytest.mark.parametrize(
    "granted",
    [
        statement("s3:PutObject", LAKE),
        statement(["s3:Get*", "s3:P*"], [LAKE]),
        statement("S3:putobject", LAKE),
        statement("*", "*"),
        {"Effect": "Allow", "NotAction": "s3:Get*", "Resource": "*"},
        {"Effect": "Allow", "Action": "s3:*", "NotResource": "arn:aws:s3:::other/*"},
    ],
)
def test_a_granted_right_is_there(granted: dict[str, Any]) -> None:
    assert judged(deployment(granted)).missing == []


@pytest.mark.parametrize(
    ("granted", "why"),
    [
        (statement("s3:GetObject", LAKE), "no statement allows it"),
        (statement("s3:PutObject", {"Fn::GetAtt": ["Lake", "Arn"]}), "no statement allows it"),
        # One object is less than all objects of the table.
        (
            statement("s3:PutObject", {"Fn::Join": ["", [{"Fn::GetAtt": ["Lake", "Arn"]}, "/lake/orders/one"]]}),
            "no statement allows it",
        ),
        ({"Effect": "Allow", "NotAction": "s3:*", "Resource": "*"}, "no statement allows it"),
        (
            statement("s3:PutObject", LAKE, Condition={"StringEquals": {"aws:SourceAccount": "1"}}),
            "lake:Policy allows it only where aws:SourceAccount StringEquals 1",
        ),
    ],
)
def test_a_missing_right_is_named_with_principal_action_resource_and_reason(granted: dict[str, Any], why: str) -> None:
    (missing,) = judged(deployment(granted)).missing
    right = "s3:PutObject arn:aws:s3:::${headwater-dev-lake.Lake}/lake/orders/*"
    assert missing == f"the writer (lake:Writer): needs {right}: {why}"


def test_a_denial_wins_over_a_grant() -> None:
    deployed = deployment(statement("s3:*", "*"), statement("s3:Put*", LAKE, "Deny"))
    assert judged(deployed).missing[0].endswith("denied by lake:Policy")
    bucket = [statement("s3:*", "*", "Deny", Principal="*")]
    assert judged(deployment(statement("s3:*", "*"), bucket=bucket)).missing[0].endswith("denied by lake:LakePolicy")


def test_a_secrets_policy_speaks_of_that_secret_only() -> None:
    deployed = deployment(statement("secretsmanager:*", "*"))
    denial = {"Statement": [statement("secretsmanager:*", "*", "Deny", Principal="*")]}
    resources = deployed._templates["headwater-dev-lake"]["Resources"] | {
        "Own": {"Type": "AWS::SecretsManager::Secret", "Properties": {"Name": "own"}},
        "OwnPolicy": {
            "Type": "AWS::SecretsManager::ResourcePolicy",
            "Properties": {"SecretId": {"Ref": "Own"}, "ResourcePolicy": denial},
        },
    }
    deployed = Deployment({"headwater-dev-lake": {"Resources": resources}}, "eu-central-1")
    prefix = "arn:aws:secretsmanager:{region}:{account}:secret:"
    rights = [Right("secretsmanager:GetSecretValue", f"{prefix}{name}-XXXXXX") for name in ("own", "other")]
    (missing,) = judged(deployed, *rights).missing
    assert "secret:own-XXXXXX: denied by lake:OwnPolicy" in missing


def test_a_denial_of_what_our_clients_never_do_is_none() -> None:
    insecure = statement("s3:*", "*", "Deny", Condition={"Bool": {"aws:SecureTransport": "false"}})
    old = statement("s3:*", "*", "Deny", Condition={"NumericLessThan": {"s3:TlsVersion": "1.2"}})
    assert judged(deployment(statement("s3:*", "*"), bucket=[insecure, old])).missing == []


def test_conditions_that_are_not_known_are_unproven() -> None:
    vpc = {"StringEquals": {"aws:SourceVpc": "vpc-1"}}
    allowed = judged(deployment(statement("s3:*", "*", Condition=vpc)))
    assert (allowed.missing, len(allowed.unproven)) == ([], 1)
    assert allowed.unproven[0].endswith("allowed by lake:Policy where aws:SourceVpc StringEquals vpc-1")
    denied = judged(deployment(statement("s3:*", "*"), statement("s3:*", "*", "Deny", Condition=vpc)))
    assert denied.unproven[0].endswith("lake:Policy denies it where aws:SourceVpc StringEquals vpc-1")


def test_a_listing_is_held_to_its_prefix() -> None:
    prefixed = statement("s3:ListBucket", "*", Condition={"StringLike": {"s3:prefix": "lake/*"}})
    bucket = "arn:aws:s3:::{lake}"
    assert judged(deployment(prefixed), Right("s3:ListBucket", bucket, (("s3:prefix", "lake/orders/*"),))).missing == []
    assert judged(deployment(prefixed), Right("s3:ListBucket", bucket, (("s3:prefix", "other/"),))).missing


def test_what_is_encrypted_needs_its_key_too() -> None:
    deployed = deployment(
        statement("s3:*", "*"), statement("kms:Decrypt", {"Fn::GetAtt": ["Key", "Arn"]}), encrypted=True
    )
    (missing,) = judged(deployed).missing
    assert missing.startswith(f"the writer (lake:Writer): needs kms:GenerateDataKey {KEY}")
    through = {"StringEquals": {"kms:ViaService": "s3.eu-central-1.amazonaws.com"}}
    whole = statement(["kms:Decrypt", "kms:GenerateDataKey*"], {"Fn::GetAtt": ["Key", "Arn"]}, Condition=through)
    assert judged(deployment(statement("s3:*", "*"), whole, encrypted=True)).missing == []
    elsewhere = {"StringEquals": {"kms:ViaService": "glue.eu-central-1.amazonaws.com"}}
    wrong = {**whole, "Condition": elsewhere}
    assert len(judged(deployment(statement("s3:*", "*"), wrong, encrypted=True)).missing) == 2


def test_a_key_whose_policy_does_not_leave_it_to_iam_is_named() -> None:
    someone = {"Effect": "Allow", "Action": "kms:Decrypt", "Resource": "*", "Principal": {"AWS": "someone"}}
    deployed = deployment(statement("s3:*", "*"), statement("kms:*", "*"), encrypted=True, key=someone)
    assert judged(deployed).missing[0].endswith("the key's own policy does not leave it to IAM")


def test_what_nobody_asked_for_is_told() -> None:
    deployed = deployment(statement(["s3:Put*", "s3:DeleteObject"], [LAKE, "arn:aws:s3:::other/*"]))
    lake = "arn:aws:s3:::${headwater-dev-lake.Lake}/lake/*"
    assert judged(deployed).unused == [
        ("s3:DeleteObject", lake),
        ("s3:DeleteObject", "arn:aws:s3:::other/*"),
        ("s3:Put*", "arn:aws:s3:::other/*"),
    ]


def test_a_role_that_is_not_there_is_named() -> None:
    deployed = deployment()
    principal = Principal("the reader", "lake:Reader", frozenset(), {})
    (missing,) = policies.judge(deployed, policies.read(deployed), principal).missing
    assert missing == "the reader (lake:Reader): found no role of this place, expected one of lake:Writer"


def test_roles_without_records_and_policies_of_aws_are_listed() -> None:
    template = deployment()._templates["headwater-dev-lake"]
    arn = "arn:aws:iam::aws:policy/service-role/AmazonEMRServicePolicy_v2"
    template["Resources"]["Writer"]["Properties"] = {"ManagedPolicyArns": [arn]}
    read = policies.read(Deployment({"headwater-dev-lake": template}, "eu-central-1"))
    assert policies.unjudged(read, []) == [
        "lake:Writer: no local run records its requests",
        "lake:Writer: what AWS's policy AmazonEMRServicePolicy_v2 allows",
    ]
