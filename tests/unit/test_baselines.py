"""Baselines say what the template says, in a form that people can review."""

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headwater.cli import app
from headwater.errors import UserError
from headwater.review import baselines
from tests.lake_folders import lake_folder

DIGEST = "0123456789abcdef" * 4
VIEW = {"originalSql": 'SELECT "a" FROM t\nWHERE NOT _deleted', "columns": [{"name": "a", "type": "varchar"}]}


def test_what_was_rendered_reads_back_as_it_was() -> None:
    encoded = base64.b64encode(json.dumps(VIEW).encode()).decode()
    template: dict[str, Any] = {
        "Description": "Headwater: a stack",
        "Resources": {
            "Zone": {
                "Type": "AWS::S3::Bucket",
                "Properties": {
                    "Name": {
                        "Fn::Join": ["", ["${literal}-$", {"Ref": "AWS::AccountId"}, {"Fn::GetAtt": ["A", "B.C"]}]]
                    },
                    "Imported": {"Fn::Join": ["", [{"Fn::ImportValue": "other:ExportX"}, "/landing/*"]]},
                    "Parts": {"Fn::Join": ["/", ["a", "b"]]},
                    "Deep": {"Fn::Join": ["", ["a", {"Fn::Select": [1, {"Fn::Split": ["/", {"Ref": "X"}]}]}]]},
                    "Sub": {"Fn::Sub": "${AWS::Partition}-x"},
                    "List": [{"Fn::ImportValue": "other:ExportY"}, 1, True, None, "yes", "1.2", "a: b"],
                    "Lines": "one\n  two\nthree\n",
                    "Settings": base64.b64encode(b"retention.ms=1\ncleanup.policy=compact\n").decode(),
                    "View": f"/* Presto View: {encoded} */",
                    "NotText": base64.b64encode(bytes(range(200, 230))).decode(),
                    "LooksEncoded": "AWSServiceRoleForSomething",
                },
                "DependsOn": ["B", "A"],
            }
        },
    }
    text = baselines.render(template)
    assert baselines.parse(text, Path("zone.yaml")) == template


def test_intrinsic_functions_and_encoded_texts_are_written_plainly() -> None:
    encoded = base64.b64encode(json.dumps(VIEW).encode()).decode()
    text = baselines.render(
        {
            "Resources": {
                "B": {
                    "Type": "T",
                    "Properties": {
                        "Arn": {"Fn::Join": ["", ["arn:", {"Ref": "AWS::Partition"}, ":x"]]},
                        "Configs": base64.b64encode(b"cleanup.policy=compact\n").decode(),
                        "View": f"/* Presto View: {encoded} */",
                    },
                },
            }
        }
    )
    assert "Arn: !Join 'arn:${AWS::Partition}:x'" in text
    assert "Configs: !Base64 |\n" in text
    assert "cleanup.policy=compact\n" in text
    assert "WHERE NOT _deleted\n" in text


def test_the_order_of_a_templates_mappings_does_not_matter_and_that_of_its_lists_does() -> None:
    template = {"Resources": {"A": {"Type": "T", "Properties": {"X": 1, "Y": [1, 2]}}, "B": {"Type": "T"}}}
    reordered = {"Resources": {"B": {"Type": "T"}, "A": {"Properties": {"Y": [1, 2], "X": 1}, "Type": "T"}}}
    assert baselines.render(template) == baselines.render(reordered)
    reordered["Resources"]["A"]["Properties"]["Y"].reverse()  # type: ignore[index]
    assert baselines.render(template) != baselines.render(reordered)


def test_assets_stand_with_their_names_whatever_their_content(tmp_path: Path) -> None:
    texts = []
    for digest in (DIGEST, DIGEST[::-1]):
        _assembly(tmp_path, digest)
        templates = baselines.from_assembly(tmp_path)
        assert sorted(templates) == ["lake", "network"]
        texts.append(baselines.render(templates["lake"]))
    assert texts[0] == texts[1]
    assert "Key: <Jar>.zip" in texts[0]
    assert "Name: plugin-<Jar>" in texts[0]
    assert "Definition: <digest>" in texts[0]


def test_protection_and_dependencies_are_in_the_baseline_and_the_bootstrap_check_is_not(tmp_path: Path) -> None:
    _assembly(tmp_path, DIGEST)
    template = baselines.from_assembly(tmp_path)["lake"]
    assert template["Metadata"]["Stack"] == {
        "TerminationProtection": True,
        "Tags": {"project": "headwater"},
        "DependsOn": ["network"],
    }
    assert "Parameters" not in template
    assert "Rules" not in template


def test_baselines_of_stacks_gone_are_removed(tmp_path: Path) -> None:
    template = {"Resources": {"A": {"Type": "T", "Properties": {}}}}
    fields = {"name": "dev", "emr": {"market": "spot", "release": "emr-7.13.0"}, "bi": None, "zones": ["a", "b"]}
    baselines.write(tmp_path / "dev", {"lake": template, "bi": template}, fields)
    baselines.write(tmp_path / "dev", {"lake": template}, fields)
    assert baselines.read(tmp_path / "dev") == {"lake": template}
    assert baselines.read_fields(tmp_path / "dev") == fields
    assert baselines.read(tmp_path / "absent") == baselines.read_fields(tmp_path / "absent") == {}


def test_a_field_with_another_value_is_named_with_both() -> None:
    before = {"name": "dev", "emr": {"market": "spot", "core_nodes": 0}, "bi": None}
    after = {"name": "dev", "size": "small", "emr": {"market": "on-demand", "core_nodes": 0}, "bi": None}
    text = baselines.difference_of_fields(before, after)
    assert text.splitlines()[1:] == ["emr.market: spot -> on-demand", "size: nothing -> small"]
    assert baselines.difference_of_fields(after, after) == ""


def test_the_difference_of_two_checkouts_names_the_fields(tmp_path: Path) -> None:
    folder = lake_folder(tmp_path / "lake")
    for place, market in ((tmp_path / "before", "spot"), (folder.baselines, "on-demand")):
        baselines.write(place / "dev", {}, {"name": "dev", "emr": {"market": market}})
    folders = ("--before", str(tmp_path / "before"), "--folder", str(folder.root))
    done = CliRunner().invoke(app, ["dev", "review", "diff", "--env", "dev", *folders], catch_exceptions=False)
    assert done.output == "The environment changes\nemr.market: spot -> on-demand\n\n"


@pytest.mark.parametrize("text", ["a: [", "- 1", "a: !Ref [b]", "a: !Unknown b"])
def test_a_broken_baseline_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "lake.yaml").write_text(text)
    with pytest.raises(UserError, match=r"(?s)lake\.yaml.*headwater baselines"):
        baselines.read(tmp_path)


def _assembly(folder: Path, digest: str) -> None:
    """A cloud assembly as CDK writes one: the stack lake with an asset, and the stack network that it needs."""
    artifacts: dict[str, Any] = {"headwater-dev-lake.assets": {"type": "cdk:asset-manifest"}}
    for name, dependencies in (("headwater-dev-network", []), ("headwater-dev-lake", ["headwater-dev-network"])):
        artifacts[name] = {
            "type": "aws:cloudformation:stack",
            "properties": {
                "templateFile": f"{name}.json",
                "terminationProtection": True,
                "tags": {"project": "headwater"},
            },
            "dependencies": [*dependencies, f"{name}.assets"],
        }
        template = {
            "Parameters": {"BootstrapVersion": {"Type": "String"}},
            "Rules": {"CheckBootstrapVersion": {}},
            "Resources": {
                "A": {
                    "Type": "T",
                    "Metadata": {"aws:cdk:path": "p", "aws:asset:path": f"asset.{digest}"},
                    "Properties": {
                        "Key": f"{digest}.zip",
                        "Name": f"plugin-{digest[:12]}",
                        "Definition": hashlib.sha256(digest.encode()).hexdigest(),
                    },
                }
            },
        }
        (folder / f"{name}.json").write_text(json.dumps(template))
        (folder / f"{name}.assets.json").write_text(json.dumps({"files": {digest: {"displayName": f"{name}/Jar"}}}))
    (folder / "manifest.json").write_text(json.dumps({"artifacts": artifacts}))


COMPARISONS = {
    "cost": ["cost", "--baselines"],
    "diff": ["dev", "review", "diff", "--before"],
    "gate": ["dev", "review", "gate", "--before"],
}


def compare(command: list[str], given: Path, lake: Path) -> Result:
    """Compare a small baseline of dev, in a lake folder, with the folder ``given``."""
    folder = lake_folder(lake)
    baselines.write(folder.baselines / "dev", {"lake": {"Resources": {"A": {"Type": "T", "Properties": {}}}}}, {})
    return CliRunner().invoke(app, [*command, str(given), "--env", "dev", "--folder", str(folder.root)])


@pytest.mark.parametrize("command", COMPARISONS.values(), ids=COMPARISONS)
@pytest.mark.parametrize("wrong", ["absent", "reviewed", "reviewed/baselines/dev"])
def test_a_folder_without_baselines_is_not_compared(command: list[str], wrong: str, tmp_path: Path) -> None:
    done = compare(command, tmp_path / wrong, tmp_path)
    assert isinstance(done.exception, UserError)
    assert f"{command[-1]}: found {tmp_path / wrong}, expected a folder of baselines" in str(done.exception)


@pytest.mark.parametrize("command", COMPARISONS.values(), ids=COMPARISONS)
@pytest.mark.parametrize("kept", [(), ("stage",)])
def test_an_environment_without_baselines_is_new(command: list[str], kept: tuple[str, ...], tmp_path: Path) -> None:
    before = tmp_path / "before"
    before.mkdir()
    for name in kept:
        baselines.write(before / name, {"lake": {"Resources": {}}}, {})
    done = compare(command, before, tmp_path / "now")
    assert done.exit_code == 0
    assert re.search("Stack lake is new|all .* 0.00|no stateful resource is lost", done.output)
