"""A release, version or type that AWS does not offer is refused when the environment is read."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from moto.utilities.utils import load_resource

from headwater.environment import allow_lists, node_memory
from headwater.environment.rules import read_environment
from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE
from headwater.packaging import jars, wheels
from headwater.paths import ROOT
from tests.unit.test_environment import changed


@pytest.fixture(scope="module")
def instance_types() -> Mapping[str, Any]:
    """Every instance type as EC2 describes it, by moto's copy. The module of moto that has it reads the offers of all
    regions too, which takes seconds."""
    described: dict[str, Any] = load_resource("ec2/resources/instance_types.json")
    return described


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("database.engine_version", "15.4", "16.1, 16.2, 16.3"),
        ("stream.broker_type", "kafka.t3.small", "kafka.m5.large"),
        ("stream.broker_type", "express.m7g.large", "kafka.m5.large"),
        ("connect.kafka_connect_version", "2.7.1", "3.7.x (allow_lists.yaml, msk_connect_versions, as of 2025-10)"),
        ("emr.release", "emr-6.15.0", "emr-7.10.0, emr-7.11.0"),
        (
            "emr.release",
            "emr-7.0.0",
            "emr-7.10.0, emr-7.11.0, emr-7.12.0 or emr-7.13.0 (allow_lists.yaml, emr_releases, as of 2026-11): "
            "emr-7.0.0 has python 3.9, but our code needs 3.11 or later",
        ),
        ("emr.core_type", "m7g.large", "m7g.xlarge, m7g.2xlarge"),
        ("emr.primary_type", "t3.xlarge", "a type of the families c5a, c5ad"),
        ("emr.primary_type", "m6g.xlarge", "a type of the families c5a, c5ad"),
        ("stream.kafka_version", "3.7.x", "3.7.x.kraft, 3.8.x.kraft"),
        ("database.engine_version", "17.4", "16.1, 16.2, 16.3"),
        ("emr.core_type", "m7i.xlarge", "a type with the same processors as emr.primary_type (r7g.xlarge: aarch64)"),
        ("emr.primary_type", "m7g.xlarge", "a type with more memory: it has 16384 MiB, and needs 20480 MiB"),
        ("glue.version", "4.0", "5.1 (allow_lists.yaml, glue_versions, as of 2026-11)"),
        (
            "glue.version",
            "5.0",
            "5.1 (allow_lists.yaml, glue_versions, as of 2026-11): 5.0 has botocore 1.34.131, but our code needs "
            "1.35.69 or later: the lease is taken and renewed by PutObject with IfNoneMatch and IfMatch",
        ),
        ("glue.worker_type", "Z.2X", "G.025X, G.1X"),
    ],
)
def test_what_cannot_work_is_refused_with_what_can(tmp_path: Path, field: str, value: Any, expected: str) -> None:
    pattern = rf"dev\.yaml: {re.escape(field)}: found '{re.escape(value)}', expected {re.escape(expected)}"
    with pytest.raises(UserError, match=pattern):
        read_environment("dev", changed(tmp_path, field, value))


@pytest.mark.parametrize(("node", "needed"), [("primary_type", "needs 11776 MiB"), ("core_type", "needs 9728 MiB")])
def test_nodes_with_too_little_memory_are_refused_where_the_primary_node_is_not_alone(node: str, needed: str) -> None:
    stage = read_environment("stage", EXAMPLE.config)
    small = msgspec.structs.replace(stage, emr=msgspec.structs.replace(stage.postgresql.emr, **{node: "c7g.xlarge"}))
    refused = {rule.field: rule.expected for rule in node_memory.rules(small) if not rule.holds}
    assert refused.keys() == {f"emr.{node}"}
    assert needed in refused[f"emr.{node}"]


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("network.nat_instance_type", "t4g.giant", "t3.nano, t3.micro, t3.small"),
        ("database.engine_version", "16.99", "16.1, 16.2, 16.3"),
        ("stream.kafka_version", "4.9.x.kraft", "3.7.x.kraft, 3.8.x.kraft"),
        ("emr.release", "emr-7.99.0", "emr-7.10.0, emr-7.11.0"),
        ("emr.core_type", "r9g.xlarge", "a type of the families c5a, c5ad"),
        ("glue.version", "5.9", "5.1 (allow_lists.yaml, glue_versions"),
        ("availability_zones", ["eu-central-1a", "eu-central-1f"], "two or three different zones of eu-central-1a"),
    ],
)
def test_what_the_lists_do_not_know_gives_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], field: str, value: Any, expected: str
) -> None:
    read_environment("dev", changed(tmp_path, field, value))
    warned = capsys.readouterr().err
    assert re.search(rf"warning: .*dev\.yaml: {re.escape(field)}: found .*, expected {re.escape(expected)}", warned)


def test_every_instance_type_of_emr_encrypts_what_leaves_it(instance_types: Mapping[str, Any]) -> None:
    for type_ in allow_lists.emr_instance_types():
        assert instance_types[type_]["NetworkInfo"]["EncryptionInTransitSupported"], type_


def test_the_families_that_do_not_encrypt_are_those_of_aws(instance_types: Mapping[str, Any]) -> None:
    types = [(type_, described["NetworkInfo"]) for type_, described in instance_types.items()]
    families = {type_.partition(".")[0] for type_, network in types if not network["EncryptionInTransitSupported"]}
    listed = yaml.safe_load(allow_lists.FILE.read_text())["emr_releases"]["unencrypted"]
    assert sorted(family for family in families if re.fullmatch(r"[cmr]\d+[a-z-]*", family)) == sorted(listed)


def test_the_platform_of_every_instance_type_of_emr_is_that_of_its_processors(
    instance_types: Mapping[str, Any],
) -> None:
    names = {"arm64": "aarch64", "x86_64": "x86_64"}
    for type_ in allow_lists.emr_instance_types():
        (architecture,) = instance_types[type_]["ProcessorInfo"]["SupportedArchitectures"]
        assert allow_lists.platform(type_) == names[architecture], type_


def test_the_memory_of_every_instance_type_of_emr_is_no_more_than_it_has(instance_types: Mapping[str, Any]) -> None:
    for type_ in allow_lists.emr_instance_types():
        memory = instance_types[type_]["MemoryInfo"]["SizeInMiB"]
        assert memory * 0.7 < allow_lists.memory_mib(type_) <= memory, type_


@pytest.mark.parametrize(
    ("offered", "runtimes", "parts"),
    [
        ("glue_versions", "glue_runtimes", {"python", "botocore", "spark", "s3_client"}),
        ("emr_releases", "emr_runtimes", {"python", "spark", "s3_client"}),
    ],
)
def test_every_version_of_a_list_brings_what_our_code_needs(offered: str, runtimes: str, parts: set[str]) -> None:
    lists = _lists()
    versions = lists[offered]["values"]
    assert [lacking for version in versions if (lacking := allow_lists.shortfall(runtimes, version))] == []
    assert {version: lists[runtimes]["values"][version].keys() for version in versions} == dict.fromkeys(
        versions, parts
    )


def test_the_functions_of_the_custom_resources_run_on_a_python_that_fits() -> None:
    runtimes = set(re.findall(r"Runtime\.PYTHON_(\d+_\d+)", (ROOT / "stacks" / "polled.py").read_text()))
    assert {f"python{runtime.replace('_', '.')}" for runtime in runtimes} == set(_lists()["lambda_runtimes"]["values"])
    for runtime in _lists()["lambda_runtimes"]["values"]:
        assert allow_lists.shortfall("lambda_runtimes", runtime) is None


def test_the_needs_are_those_of_what_ships() -> None:
    needs = _lists()["needs"]["values"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["requires-python"].startswith(f">={needs['python']['at_least']},")
    # Ruff refuses newer syntax in what ships, and mypy what only newer standard libraries have.
    assert f"py{needs['python']['at_least'].replace('.', '')}" == project["tool"]["ruff"]["target-version"]
    assert needs["python"]["at_least"] == project["tool"]["mypy"]["python_version"] == wheels.PYTHON
    locked = dict(re.findall(r"^(pyspark|botocore)==(\S+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE))
    assert locked["pyspark"].rpartition(".")[0] == needs["spark"]["series"]
    assert jars.HUDI.startswith(f"hudi-spark{needs['spark']['series']}-bundle")
    # What EMR's writer brings along.
    assert _number(locked["botocore"]) >= _number(needs["botocore"]["at_least"])


def test_conditional_writes_are_those_that_the_need_of_botocore_speaks_of() -> None:
    shipped = [
        path for folder in ("headwater/lake", "emr_steps", "glue_scripts") for path in (ROOT / folder).rglob("*.py")
    ]
    headers = {header for path in shipped for header in re.findall(r'"(If[A-Z]\w+)"', path.read_text())}
    assert headers == set(re.findall(r"If[A-Z]\w+", _lists()["needs"]["values"]["botocore"]["why"]))


def test_a_region_without_lists_gives_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = yaml.safe_load((EXAMPLE.config / "dev.yaml").read_text())
    document |= {"region": "eu-west-1", "availability_zones": ["eu-west-1a", "eu-west-1b"]}
    (tmp_path / "dev.yaml").write_text(yaml.safe_dump(document))
    assert read_environment("dev", tmp_path).region == "eu-west-1"
    assert "region: found 'eu-west-1', expected eu-central-1, for which" in capsys.readouterr().err


def test_every_list_says_where_it_is_from_and_when() -> None:
    for name, listed in _lists().items():
        assert listed["source"], name
        assert re.fullmatch(r"20\d\d-[01]\d", str(listed["date"])), name
        assert len(set(listed["values"])) == len(listed["values"]) > 0, name


def _lists() -> dict[str, Any]:
    lists: dict[str, Any] = yaml.safe_load(allow_lists.FILE.read_text())
    return lists


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
