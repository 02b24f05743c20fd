"""A release, version or type that AWS does not offer is refused when the environment is read."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from moto.ec2.models.instance_types import INSTANCE_TYPES

from headwater.deployment import allow_lists
from headwater.deployment.environment_rules import read_environment
from headwater.errors import UserError
from headwater.paths import CONFIG
from tests.unit.test_environment import changed


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("database.engine_version", "15.4", "16.1, 16.2, 16.3"),
        ("stream.broker_type", "kafka.t3.small", "kafka.m5.large"),
        ("stream.broker_type", "express.m7g.large", "kafka.m5.large"),
        ("connect.kafka_connect_version", "2.7.1", "3.7.x (allow_lists.yaml, msk_connect_versions, as of 2025-10)"),
        ("emr.release", "emr-6.15.0", "emr-7.0.0, emr-7.1.0"),
        ("glue.version", "4.0", "5.0 or 5.1"),
        ("glue.worker_type", "Z.2X", "G.025X, G.1X"),
    ],
)
def test_what_cannot_work_is_refused_with_what_can(tmp_path: Path, field: str, value: Any, expected: str) -> None:
    pattern = rf"dev\.yaml: {re.escape(field)}: found '{re.escape(value)}', expected {re.escape(expected)}"
    with pytest.raises(UserError, match=pattern):
        read_environment("dev", changed(tmp_path, field, value))


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("network.nat_instance_type", "t4g.giant", "t3.nano, t3.micro, t3.small"),
        ("database.engine_version", "16.99", "16.1, 16.2, 16.3"),
        ("stream.kafka_version", "4.9.x.kraft", "3.7.x.kraft, 3.8.x.kraft"),
        ("emr.release", "emr-7.99.0", "emr-7.0.0, emr-7.1.0"),
        ("emr.core_type", "m7g.large", "m7g.xlarge, m7g.2xlarge"),
        ("emr.primary_type", "t3.xlarge", "a type of the families c5a, c5ad"),
        ("availability_zones", ["eu-central-1a", "eu-central-1f"], "two or three different ones of eu-central-1a"),
    ],
)
def test_what_the_lists_do_not_know_gives_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], field: str, value: Any, expected: str
) -> None:
    read_environment("dev", changed(tmp_path, field, value))
    warned = capsys.readouterr().err
    assert re.search(rf"warning: .*dev\.yaml: {re.escape(field)}: found .*, expected {re.escape(expected)}", warned)


def test_an_instance_type_is_offered_from_the_release_that_brought_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = changed(tmp_path, "emr.core_type", "r8i.xlarge")
    assert read_environment("dev", folder).emr.core_type == "r8i.xlarge"
    document = yaml.safe_load((folder / "dev.yaml").read_text())
    document["emr"]["release"] = "emr-7.8.0"
    (folder / "dev.yaml").write_text(yaml.safe_dump(document))
    capsys.readouterr()
    read_environment("dev", folder)
    assert re.search(r"emr\.core_type: found 'r8i\.xlarge', expected .*r8i-flex", capsys.readouterr().err)


def test_every_instance_type_of_emr_encrypts_what_leaves_it() -> None:
    newest = yaml.safe_load(allow_lists.FILE.read_text())["emr_releases"]["values"][-1]
    for type_ in allow_lists.emr_instance_types(newest):
        assert INSTANCE_TYPES[type_]["NetworkInfo"]["EncryptionInTransitSupported"], type_


def test_a_region_without_lists_gives_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = yaml.safe_load((CONFIG / "dev.yaml").read_text())
    document |= {"region": "eu-west-1", "availability_zones": ["eu-west-1a", "eu-west-1b"]}
    (tmp_path / "dev.yaml").write_text(yaml.safe_dump(document))
    assert read_environment("dev", tmp_path).region == "eu-west-1"
    assert "region: found 'eu-west-1', expected eu-central-1, for which" in capsys.readouterr().err


def test_every_list_says_where_it_is_from_and_when() -> None:
    lists = yaml.safe_load(allow_lists.FILE.read_text())
    for name, listed in lists.items():
        assert listed["source"], name
        assert re.fullmatch(r"20\d\d-[01]\d", str(listed["date"])), name
        assert len(set(listed["values"])) == len(listed["values"]) > 0, name
