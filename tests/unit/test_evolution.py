"""What a changed contract means, by the rules of the writer."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headwater.cli import app
from headwater.contract import evolution
from headwater.contract.evolution import FILL, NARROWER, OTHER, REFUSED, SAFE, SAME, WIDER, changes, type_change
from headwater.contract.reading import parse_contract
from headwater.contract.types import parse_type
from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE, FILE
from tests.lake_folders import lake_folder

TEXT = """
table: parcels
description: x
source: {database: postgresql, table: shop.parcels}
key: [id]
partition_by: [month]
buckets: 2
columns:
  - {name: id, type: int, source_type: integer}
  - {name: month, type: string, source_type: text}
  - {name: weight, type: "decimal(10,2)", source_type: "numeric(10,2)"}
  - {name: sender, type: "struct<name:string,zip:string>", from: about.sender}
  - {name: note, type: string, source_type: text}
"""
ITEMS = """
table: parcels
description: x
source: {database: dynamodb, table: headwater-parcels}
key: [id]
partition_by: [month]
buckets: 2
columns:
  - {name: id, type: string, source_type: S}
  - {name: month, type: string, source_type: S, from: sentAt, transform: month}
  - {name: sent_at, type: string, source_type: S, from: sentAt}
"""
WEIGHT = '{name: weight, type: "decimal(10,2)", source_type: "numeric(10,2)"}'
NOTE = "  - {name: note, type: string, source_type: text}\n"


def verdicts(old: str, new: str) -> list[tuple[str, str]]:
    found = changes([parse_contract(old, "old.yaml")], [parse_contract(new, "new.yaml")])
    assert all(change.table == "parcels" and change.change and change.meaning for change in found)
    assert all(change.action for change in found if change.verdict != SAFE)
    return [(change.subject, change.verdict) for change in found]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("x", "x", []),
        (NOTE, NOTE + "  - {name: colour, type: string, source_type: text}\n", [("columns.colour", FILL)]),
        (NOTE, "", [("columns.note", SAFE)]),
        (
            NOTE,
            "  - {name: remark, type: string, source_type: text, from: note}\n",
            [("columns.note", SAFE), ("columns.remark", FILL)],
        ),
        (NOTE, NOTE.replace("source_type: text", "source_type: text, from: remark"), [("columns.note", FILL)]),
        ('decimal(10,2)", source', 'decimal(12,2)", source', [("columns.weight", SAFE)]),
        (
            WEIGHT,
            '{name: weight, type: "decimal(8,2)", source_type: "numeric(8,2)"}',
            [("columns.weight", SAFE), ("columns.weight", SAFE)],
        ),
        ('decimal(10,2)", source', 'decimal(12,4)", source', [("columns.weight", REFUSED)]),
        (WEIGHT, WEIGHT.replace('"decimal(10,2)"', "string"), [("columns.weight", REFUSED)]),
        ("{name: id, type: int,", "{name: id, type: bigint,", [("columns.id", REFUSED)]),
        ("zip:string>", "zip:string,city:string>", [("columns.sender", REFUSED)]),
        ("name:string,zip:string", "zip:string,name:string", [("columns.sender", REFUSED)]),
        ("key: [id]", "key: [id, month]", [("key", REFUSED)]),
        ("partition_by: [month]", "partition_by: []", [("partition_by", REFUSED)]),
        ("buckets: 2", "buckets: 4", [("buckets", REFUSED)]),
        ("shop.parcels", "shop.shipments", [("source.table", REFUSED)]),
        ("shop.parcels", "shop.parcels, replica_identity: full", []),
        ("shop.parcels", "shop.parcels, replica_identity: default", [("source.replica_identity", SAFE)]),
        ("buckets: 2", "buckets: 2\non_unfit: quarantine", [("on_unfit", SAFE)]),
        ("buckets: 2", "buckets: 2\nverify_with: parcels.sql", [("verify_with", SAFE)]),
        ("description: x", "description: y", [("description", SAFE)]),
        ("source_type: integer}", "source_type: integer, description: Its number}", [("columns.id", SAFE)]),
        ("buckets: 2", "buckets: 2\nexclude: [pin]", [("exclude", FILL)]),
        ("buckets: 2", "buckets: 2\nunnamed: drop", [("unnamed", FILL)]),
        ("buckets: 2", "buckets: 2\nhistory: {keep_days: 3}", [("history", FILL)]),
        ("source_type: text}\n  - {name: weight", "source_type: uuid}\n  - {name: weight", [("columns.month", SAFE)]),
    ],
)
def test_a_change_of_a_postgresql_contract(before: str, after: str, expected: list[tuple[str, str]]) -> None:
    assert before == "x" or before in TEXT
    assert verdicts(TEXT, TEXT.replace(before, after)) == expected


def test_a_change_of_a_history() -> None:
    kept = TEXT.replace("buckets: 2", "buckets: 2\nhistory: {keep_days: 3}")
    assert verdicts(kept, kept.replace("keep_days: 3", "keep_days: 3, buckets: 1")) == []
    assert verdicts(kept, kept.replace("3}", "4}")) == [("history.keep_days", SAFE)]
    assert verdicts(kept, kept.replace("3}", "3, buckets: 2}")) == [("history.buckets", REFUSED)]
    assert verdicts(kept, TEXT) == [("history", SAFE)]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("headwater-parcels}", "headwater-parcels, time_to_live: gone}", [("source.time_to_live", SAFE)]),
        (", transform: month", "", [("columns.month", REFUSED)]),
        ("from: sentAt}", "from: sentAt, transform: month}", [("columns.sent_at", FILL)]),
        ("{name: sent_at, type: string,", "{name: sent_at, type: date,", [("columns.sent_at", REFUSED)]),
    ],
)
def test_a_change_of_a_dynamodb_contract(before: str, after: str, expected: list[tuple[str, str]]) -> None:
    assert before in ITEMS
    assert verdicts(ITEMS, ITEMS.replace(before, after)) == expected


def test_what_is_no_longer_left_out_is_safe_and_was_not_kept() -> None:
    closed = TEXT.replace("buckets: 2", "buckets: 2\nexclude: [pin]\nunnamed: drop")
    assert verdicts(closed, TEXT) == [("exclude", SAFE), ("unnamed", SAFE)]
    named = TEXT.replace(NOTE, NOTE + "  - {name: pin, type: string, source_type: text}\n")
    (added, *_) = changes([parse_contract(closed, "old.yaml")], [parse_contract(named, "new.yaml")])
    assert (added.subject, added.verdict) == ("columns.pin", FILL)
    assert "headwater fill" not in added.action
    assert "UPDATE" in added.action


def test_another_order_of_columns_is_safe() -> None:
    contract = parse_contract(TEXT, "parcels.yaml")
    turned = replace(contract, columns=contract.columns[::-1])
    assert [(change.subject, change.verdict) for change in changes([contract], [turned])] == [("columns", SAFE)]


def test_a_table_that_comes_needs_its_history_and_one_that_goes_is_refused() -> None:
    parcels, items = parse_contract(TEXT, "p.yaml"), parse_contract(ITEMS, "i.yaml")
    (added,) = changes([], [items])
    assert (added.subject, added.verdict) == ("table", FILL)
    assert "headwater backfill" in added.action
    (gone,) = changes([parcels], [])
    assert (gone.subject, gone.verdict, gone.resources) == ("table", REFUSED, True)


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("string", "string", SAME),
        ("decimal(10,2)", "decimal(11,2)", WIDER),
        ("decimal(11,2)", "decimal(10,2)", NARROWER),
        ("decimal(10,2)", "decimal(11,3)", OTHER),
        ("int", "bigint", OTHER),
        ("array<decimal(10,2)>", "array<decimal(11,2)>", OTHER),
        ("struct<a:int>", "struct<a:int,b:int>", OTHER),
    ],
)
def test_only_a_decimals_digits_before_the_point_may_change(before: str, after: str, kind: str) -> None:
    assert type_change(parse_type(before), parse_type(after)) == kind


def diff(folder: Path, new: str, *more: str) -> Result:
    (folder / "old.yaml").write_text(TEXT)
    (folder / "new.yaml").write_text(new)
    arguments = ["contract", "diff", str(folder / "old.yaml"), str(folder / "new.yaml"), *more]
    return CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_the_status_tells_the_worst_verdict(tmp_path: Path) -> None:
    assert diff(tmp_path, TEXT).exit_code == 0
    assert diff(tmp_path, TEXT.replace(NOTE, "")).exit_code == 0
    remark = TEXT.replace(NOTE, "  - {name: remark, type: string, source_type: text, from: note}\n")
    result = diff(tmp_path, remark, "--json")
    assert result.exit_code == 3
    document = json.loads(result.stdout)
    assert document["verdict"] == FILL
    assert document["changes"][1]["action"].startswith("change the rows in the source (PostgreSQL: UPDATE … SET c = c)")
    added = TEXT.rstrip("\n") + "\n  - {name: remark, type: string, source_type: text}\n"
    (change,) = json.loads(diff(tmp_path, added, "--json").stdout)["changes"]
    assert change["action"] == "after the deployment run `headwater fill parcels`"
    assert diff(tmp_path, remark.replace("buckets: 2", "buckets: 3")).exit_code == 1


def test_the_baselines_of_contracts_are_compared_with_their_files() -> None:
    result = CliRunner().invoke(app, ["contract", "diff", "reviewed/contracts", "contracts"])
    assert (result.exit_code, result.stdout) == (0, "No difference\n")


def test_a_revision_is_compared_with_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    contracts = tmp_path / "contracts"
    contracts.mkdir()
    (contracts / "parcels.yaml").write_text(TEXT)
    (tmp_path / FILE).touch()
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "before"]):
        subprocess.run([*git, *arguments], check=True)
    (contracts / "parcels.yaml").write_text(TEXT.replace("buckets: 2", "buckets: 3"))
    result = CliRunner().invoke(app, ["contract", "diff", "HEAD:contracts", "--json"])
    assert (result.exit_code, json.loads(result.stdout)["changes"][0]["change"]) == (1, "2 becomes 3")
    unknown = CliRunner().invoke(app, ["contract", "diff", "HEAD:elsewhere"])
    assert isinstance(unknown.exception, UserError)
    assert "HEAD:elsewhere: found neither a file nor a folder" in str(unknown.exception)


def test_what_the_writer_calls_the_layout_is_what_cannot_change() -> None:
    contract = parse_contract(TEXT, "parcels.yaml")
    assert evolution.layout(contract) == '{"buckets": 2, "key": ["id"], "partition_by": ["month"]}'
    items = parse_contract(ITEMS, "parcels.yaml")
    by_day = parse_contract(ITEMS.replace("transform: month", "transform: day"), "parcels.yaml")
    assert evolution.is_layout(evolution.layout(items), items)
    assert not evolution.is_layout(evolution.layout(items), by_day)
    assert not evolution.is_layout(evolution.layout(items), contract)
    # A table of before this release says nothing of its transform.
    assert evolution.is_layout('{"buckets": 2, "key": ["id"], "partition_by": ["month"]}', items)


PARTED = TEXT.replace("source_type: text}", "source_type: timestamp, from: at, transform: day}", 1)


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ("source_type: timestamp,", "source_type: timestamptz,", REFUSED),
        ("source_type: timestamp,", "source_type: timestamp(3),", SAFE),
        ("transform: day", "transform: hour", REFUSED),
        ("from: at,", "from: seen,", FILL),
    ],
)
def test_a_change_of_what_partitions_by_a_part_of_a_time(before: str, after: str, verdict: str) -> None:
    assert before in PARTED
    assert verdicts(PARTED, PARTED.replace(before, after)) == [("columns.month", verdict)]


def test_the_gate_warns_of_a_source_that_goes(tmp_path: Path) -> None:
    for folder, parts in (("before", ("lake", "key-value", "glue-job")), ("after", ("lake",))):
        (tmp_path / folder / "prod").mkdir(parents=True)
        for part in parts:
            shutil.copy(EXAMPLE.baselines / "prod" / f"{part}.yaml", tmp_path / folder / "prod")
    lake = lake_folder(tmp_path / "lake")
    lake.reviewed.mkdir()
    lake.baselines.symlink_to(tmp_path / "after")
    lake.acknowledged.write_text("")
    folders = ["--before", str(tmp_path / "before"), "--folder", str(lake.root)]
    result = CliRunner().invoke(app, ["dev", "review", "gate", "--env", "prod", *folders], catch_exceptions=False)
    assert result.exit_code == 1
    assert "warning: prod: no contract of DynamoDB is left" in result.stdout
    assert "`headwater destroy --env prod --source dynamodb`, which deletes glue-job" in result.stdout
    (kept,) = [
        line for line in result.stdout.splitlines() if line.startswith("warning: prod/key-value: the stack stays")
    ]
    for type_ in ("AWS::DynamoDB::GlobalTable", "AWS::Kinesis::Stream", "AWS::KMS::Key"):
        assert type_ in kept
    assert result.stdout.count("resource: '*'") == 2


def test_the_gate_refuses_what_the_writer_would_refuse(tmp_path: Path) -> None:
    for name, text in (("before", TEXT), ("after", TEXT.replace("buckets: 2", "buckets: 3"))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "parcels.yaml").write_text(text)
    # One stack will do: nothing is changed in any.
    (tmp_path / "baselines" / "dev").mkdir(parents=True)
    shutil.copy(EXAMPLE.baselines / "dev" / "lake.yaml", tmp_path / "baselines" / "dev")

    def gate(before: str, after: str) -> Result:
        lake = lake_folder(tmp_path / f"of {after}", tmp_path / after)
        lake.reviewed.mkdir(exist_ok=True)
        shutil.copytree(tmp_path / "baselines", lake.baselines, dirs_exist_ok=True)
        lake.acknowledged.write_text("")
        folders = ["--contracts-before", str(tmp_path / before), "--folder", str(lake.root)]
        arguments = ["dev", "review", "gate", "--env", "dev", "--before", str(tmp_path / "baselines"), *folders]
        return CliRunner().invoke(app, arguments, catch_exceptions=False)

    assert gate("before", "before").exit_code == 0
    # A base branch may have no contracts.
    assert gate("nowhere", "after").exit_code == 0
    result = gate("before", "after")
    assert result.exit_code == 1
    assert "refused: parcels: buckets: 2 becomes 3: " in result.stdout
