"""A lost resource is seen before it is lost."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from headwater.errors import UserError
from headwater.review import replacements
from headwater.review.replacements import Loss, Specification

Resources = dict[str, dict[str, Any]]

RESOURCES: Resources = {
    "Key": {"Type": "AWS::KMS::Key", "Properties": {"Description": "a key"}},
    "Alias": {"Type": "AWS::KMS::Alias", "Properties": {"AliasName": "alias/a", "TargetKeyId": {"Ref": "Key"}}},
    "Bucket": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": "a"}},
    "Subnets": {"Type": "AWS::RDS::DBSubnetGroup", "Properties": {"DBSubnetGroupName": "a", "SubnetIds": ["s-1"]}},
    "Database": {
        "Type": "AWS::RDS::DBCluster",
        "Properties": {
            "DBSubnetGroupName": {"Ref": "Subnets"},
            "KmsKeyId": {"Fn::GetAtt": ["Key", "Arn"]},
            "BackupRetentionPeriod": 1,
            "Engine": "aurora-postgresql",
        },
    },
    "Kafka": {
        "Type": "AWS::MSK::Cluster",
        "Properties": {
            "ClusterName": "a",
            "BrokerNodeGroupInfo": {"ClientSubnets": ["s-1", "s-2"], "InstanceType": "kafka.t3.small"},
            "NumberOfBrokerNodes": 2,
        },
    },
    "Topic": {
        "Type": "AWS::MSK::Topic",
        "Properties": {"ClusterArn": {"Fn::GetAtt": ["Kafka", "Arn"]}, "TopicName": "a", "PartitionCount": 1},
    },
    "Items": {
        "Type": "AWS::DynamoDB::GlobalTable",
        "Properties": {
            "TableName": "items",
            "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
            "TimeToLiveSpecification": {"Enabled": True, "AttributeName": "ttl"},
        },
    },
    "Changes": {"Type": "AWS::Kinesis::Stream", "Properties": {"RetentionPeriodHours": 24}},
    "Table": {
        "Type": "AWS::Glue::Table",
        "Properties": {"DatabaseName": "d", "TableInput": {"Name": "orders", "Description": "a"}},
    },
    "Catalog": {"Type": "AWS::Glue::Database", "Properties": {"DatabaseInput": {"Name": "d"}}},
    "Emr": {
        "Type": "AWS::EMR::Cluster",
        "Properties": {
            "Instances": {
                "Ec2SubnetId": "s-1",
                "CoreInstanceGroup": {"InstanceType": "m7g.xlarge", "InstanceCount": 1},
            },
            "StepConcurrencyLevel": 1,
        },
    },
    "Host": {"Type": "AWS::EC2::Instance", "Properties": {"ImageId": "ami-1"}},
    "Policy": {"Type": "Custom::Something", "Properties": {"ServiceToken": "t"}},
}


@pytest.fixture(scope="module")
def specification() -> Specification:
    return Specification()


def losses(specification: Specification, after: Resources) -> list[Loss]:
    return replacements.losses("dev", {"data": {"Resources": RESOURCES}}, {"data": {"Resources": after}}, specification)


def changed(path: str, value: Any) -> Resources:
    """The resources with the property at a path changed."""
    after = copy.deepcopy(RESOURCES)
    name, *steps, last = path.split("/")
    at = after[name]["Properties"]
    for step in steps:
        at = at[step]
    at[last] = value
    return after


@pytest.mark.parametrize(
    ("path", "value", "lost"),
    [
        ("Bucket/BucketName", "b", ["Bucket/BucketName"]),
        ("Database/KmsKeyId", "other", ["Database/KmsKeyId"]),
        ("Kafka/ClusterName", "b", ["Kafka/ClusterName", "Topic/Kafka.ClusterName"]),
        (
            "Kafka/BrokerNodeGroupInfo/ClientSubnets",
            ["s-1", "s-3"],
            ["Kafka/BrokerNodeGroupInfo/ClientSubnets", "Topic/Kafka.BrokerNodeGroupInfo/ClientSubnets"],
        ),
        (
            "Kafka/EncryptionInfo",
            {"EncryptionAtRest": {"DataVolumeKMSKeyId": "k"}},
            [
                "Kafka/EncryptionInfo/EncryptionAtRest/DataVolumeKMSKeyId",
                "Topic/Kafka.EncryptionInfo/EncryptionAtRest/DataVolumeKMSKeyId",
            ],
        ),
        ("Topic/TopicName", "b", ["Topic/TopicName"]),
        ("Items/KeySchema", [{"AttributeName": "sk", "KeyType": "HASH"}], ["Items/KeySchema"]),
        ("Changes/Name", "changes", ["Changes/Name"]),
        ("Table/TableInput/Name", "b", ["Table/TableInput/Name"]),
        ("Catalog/DatabaseInput/Name", "e", ["Catalog/DatabaseInput/Name"]),
        ("Emr/Instances/Ec2SubnetId", "s-2", ["Emr/Instances/Ec2SubnetId"]),
        (
            "Emr/Instances/CoreInstanceGroup/InstanceType",
            "m7g.2xlarge",
            ["Emr/Instances/CoreInstanceGroup/InstanceType"],
        ),
        # The group holds no data, but the database is bound to it.
        ("Subnets/DBSubnetGroupName", "b", ["Database/Subnets.DBSubnetGroupName"]),
    ],
)
def test_a_change_that_replaces_names_resource_and_property(
    specification: Specification, path: str, value: Any, lost: list[str]
) -> None:
    found_losses = losses(specification, changed(path, value))
    assert [f"{loss.resource}/{loss.property}" for loss in found_losses] == lost
    assert found_losses[-1].after == (
        value["EncryptionAtRest"]["DataVolumeKMSKeyId"] if isinstance(value, dict) else value
    )


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("Alias/AliasName", "alias/b"),
        ("Key/Description", "another"),
        ("Bucket/VersioningConfiguration", {"Status": "Enabled"}),
        ("Database/BackupRetentionPeriod", 7),
        ("Subnets/SubnetIds", ["s-2"]),
        ("Kafka/NumberOfBrokerNodes", 4),
        ("Kafka/BrokerNodeGroupInfo/InstanceType", "kafka.m7g.large"),
        ("Topic/PartitionCount", 2),
        ("Items/TimeToLiveSpecification/Enabled", False),
        ("Changes/RetentionPeriodHours", 48),
        ("Table/TableInput/Description", "b"),
        ("Emr/Instances/CoreInstanceGroup/InstanceCount", 3),
        ("Emr/StepConcurrencyLevel", 2),
        ("Host/ImageId", "ami-2"),
        ("Policy/ServiceToken", "u"),
    ],
)
def test_a_change_in_place_or_of_what_holds_nothing_is_let_through(
    specification: Specification, path: str, value: Any
) -> None:
    assert losses(specification, changed(path, value)) == []


def test_what_cloudformation_decides_when_it_runs_is_said_so(specification: Specification) -> None:
    (loss,) = losses(specification, changed("Database/Engine", "aurora-mysql"))
    assert not loss.certain
    assert str(loss) == (
        "dev/data: Database (AWS::RDS::DBCluster) might be replaced: Engine changes from "
        '"aurora-postgresql" to "aurora-mysql"'
    )


def test_a_deleted_resource_is_named_and_a_stateless_one_is_not(specification: Specification) -> None:
    after = {name: resource for name, resource in RESOURCES.items() if name not in ("Changes", "Host", "Alias")}
    assert list(map(str, losses(specification, after))) == ["dev/data: Changes (AWS::Kinesis::Stream) would be deleted"]


def test_a_moved_logical_id_is_a_deletion(specification: Specification) -> None:
    after = {("Moved" if name == "Bucket" else name): resource for name, resource in RESOURCES.items()}
    (loss,) = losses(specification, after)
    assert str(loss) == (
        "dev/data: Bucket (AWS::S3::Bucket) would be deleted: Moved equals it, but a resource whose logical id "
        "changes is deleted and created anew"
    )


def test_a_stack_that_is_gone_takes_what_is_in_it(specification: Specification) -> None:
    all_losses = replacements.losses("dev", {"data": {"Resources": RESOURCES}}, {}, specification)
    assert {loss.resource for loss in all_losses} == set(RESOURCES) - {"Alias", "Subnets", "Host", "Policy"}
    assert all(loss.property is None for loss in all_losses)


def test_what_stays_when_its_stack_goes_is_said_to_stay(specification: Specification) -> None:
    kept = {name: {**RESOURCES[name], "DeletionPolicy": "RetainExceptOnCreate"} for name in ("Bucket", "Alias")}
    resources = {**kept, "Items": RESOURCES["Items"]}
    lost = replacements.losses("dev", {"data": {"Resources": resources}}, {}, specification)
    assert list(map(str, lost)) == [
        "dev/data: Bucket (AWS::S3::Bucket) would leave its stack and stay",
        "dev/data: Items (AWS::DynamoDB::GlobalTable) would be deleted",
    ]


def test_one_entry_agrees_to_the_loss_of_a_whole_stack(specification: Specification, tmp_path: Path) -> None:
    before = {"key-value": {"Resources": RESOURCES}}
    lost = replacements.losses("dev", before, {}, specification)
    file = tmp_path / "acknowledged.yaml"
    file.write_text(replacements.how_to_allow(lost, file).partition("\n")[2])
    (entry,) = entries = replacements.read_acknowledged(file)
    assert (entry.stack, entry.resource) == ("key-value", "*")
    assert replacements.unacknowledged(lost, entries) == []
    assert replacements.stale(entries, {"dev": {}}) == []
    # The stack is back, and a resource of it goes.
    assert replacements.stale(entries, {"dev": before}) == entries
    less = {name: resource for name, resource in RESOURCES.items() if name != "Items"}
    alone = replacements.losses("dev", before, {"key-value": {"Resources": less}}, specification)
    assert replacements.unacknowledged(alone, entries) == alone


def test_an_acknowledgement_lets_one_change_through_and_no_other(specification: Specification, tmp_path: Path) -> None:
    agreed = losses(specification, changed("Bucket/BucketName", "b"))
    file = tmp_path / "acknowledged.yaml"
    file.write_text("".join(map(replacements.entry_for, agreed)))
    entries = replacements.read_acknowledged(file)
    assert replacements.unacknowledged(agreed, entries) == []
    for after in (changed("Bucket/BucketName", "c"), changed("Changes/Name", "b"), {}):
        not_agreed = losses(specification, after)
        assert replacements.unacknowledged(not_agreed, entries) == not_agreed


def test_an_acknowledgement_holds_until_the_template_says_something_else(
    specification: Specification, tmp_path: Path
) -> None:
    after = changed("Subnets/DBSubnetGroupName", "b")
    del after["Changes"]
    file = tmp_path / "acknowledged.yaml"
    file.write_text("".join(map(replacements.entry_for, losses(specification, after))))
    entries = replacements.read_acknowledged(file)
    assert len(entries) == 2

    def stale(resources: Resources) -> list[str]:
        templates = {"dev": {"data": {"Resources": resources}}}
        return [entry.resource for entry in replacements.stale(entries, templates)]

    assert stale(after) == []
    assert stale(RESOURCES) == ["Changes", "Database"]
    assert stale(changed("Subnets/DBSubnetGroupName", "c")) == ["Changes", "Database"]
    del after["Database"]
    assert stale(after) == ["Database"]


def test_nothing_is_acknowledged_by_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("# nothing yet\n")
    assert replacements.read_acknowledged(tmp_path / "a.yaml") == []


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ("a: [", "not YAML"),
        ("reason: because", "expected a list of entries"),
        ([{"environment": "dev", "stack": "lake", "resource": "Logs"}], "reason: found nothing, expected a text"),
        (
            [{"environment": "dev", "stack": "lake", "resource": "", "reason": "x"}],
            "resource: found '', expected a text",
        ),
        (
            [{"environment": "dev", "stack": "keyvalue", "resource": "*", "reason": "x"}],
            "entry 1: stack: found 'keyvalue', expected one of bi, connect, .*, key-value, lake",
        ),
        ([{"environment": "dev", "why": "x"}], "entry 1: why: found an unknown field, expected environment, stack"),
    ],
)
def test_a_broken_acknowledgement_is_named(tmp_path: Path, document: Any, problem: str) -> None:
    file = tmp_path / "acknowledged.yaml"
    file.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    with pytest.raises(UserError, match=rf"acknowledged\.yaml: .*{problem}"):
        replacements.read_acknowledged(file)


def test_an_absent_specification_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"db\.json\.gz: found no file.*tools/setup"):
        Specification(tmp_path / "db.json.gz")
