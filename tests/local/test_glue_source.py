"""The Glue job's script as Glue runs it: Glue's source, Structured Streaming, a checkpoint, and what ends a run."""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.contract.reading import parse_contract
from headwater.paths import ROOT
from headwater.verify import read_lake
from headwater.waiting import wait_until
from rig.local import spark
from rig.local.aws import AwsApi
from rig.local.pipeline import GLUE_DATABASE, LAKE, LAKE_BUCKET, EventLog, create_lake, local_lake
from rig.local.processes import Process
from rig.local.spark import SparkJob
from tests.lake.accounts import CONTRACT, SOURCE, change, item

STAND_IN = Path(__file__).with_name("glue_stand_in")
STREAM = f"arn:aws:kinesis:eu-central-1:123456789012:stream/{SOURCE}"
START = 1_769_860_800_000_000


class GlueRuns:
    """The runs of a job over one stream, whose records arrive as files."""

    def __init__(self, folder: Path, aws_api: AwsApi) -> None:
        self.streams = folder / "streams"
        self.events = EventLog(folder / "run" / "events.jsonl")
        self._folder = folder
        self._aws = aws_api
        (self.streams / SOURCE).mkdir(parents=True)

    def arrive(self, file: str, *changes: str) -> None:
        """Let changes arrive, which a batch takes together."""
        (self.streams / SOURCE / file).write_text("".join(line + "\n" for line in changes))

    def start(self) -> Process:
        """Start a run with the arguments that the template gives it."""
        options = {
            "--contract": f"s3://{LAKE_BUCKET}/contracts/accounts.json",
            "--stream-arn": f"accounts={STREAM}",
            "--source-table": f"accounts={SOURCE}",
            "--lake": LAKE,
            "--database": GLUE_DATABASE,
            "--checkpoint": f"accounts={(self._folder / 'checkpoint').as_uri()}",
            "--window-seconds": "1.5",
            "--lease-seconds": "6",
        }
        arguments = [part for pair in options.items() for part in pair]
        job = SparkJob(ROOT / "glue_scripts" / "write_hudi.py", arguments, "the Glue job's script", "1g")
        run = spark.submit(job, self._folder / "run", self._aws)
        run.start()
        return run

    def options(self) -> dict[str, str]:
        """The options that the last run gave to Glue's source."""
        given: dict[str, str] = json.loads((self.streams / f"{SOURCE}.options.json").read_text())
        return given

    def await_commits(self, count: int) -> None:
        """Wait until the runs so far have made so many commits."""
        wait_until(f"commit {count}", lambda: len(self.events.commits()) >= count, poll=0.05)

    def forget_last_batch(self) -> None:
        """Leave the checkpoint as a kill leaves it that comes after the commit of the last batch."""
        noted = self._folder / "checkpoint" / "commits"
        last = max((path for path in noted.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)

    def alive(self) -> list[tuple[str, str, str]]:
        """Id, month and name of the rows that are not tombstones."""
        lake = local_lake(self._aws)
        rows = pa.Table.from_batches(list(read_lake(f"{LAKE}/accounts", lake.storage))).to_pylist()
        return sorted((row["id"], row["month"], row["name"]) for row in rows if not row["_deleted"])


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GlueRuns]:
    monkeypatch.setenv("PYTHONPATH", str(STAND_IN))
    with AwsApi(tmp_path / "aws") as aws_api:
        create_lake(aws_api, [parse_contract(CONTRACT, "accounts.yaml")])
        runs = GlueRuns(tmp_path, aws_api)
        monkeypatch.setenv("HEADWATER_TEST_STREAMS", str(runs.streams))
        yield runs


def test_a_run_that_is_killed_between_commit_and_checkpoint_loses_and_doubles_nothing(runs: GlueRuns) -> None:
    first, second = item("1"), item("2", name="Bob")
    moved = item("1", "2024-06-30", name="Bea")
    runs.arrive("1.txt", change(START, None, first), change(START + 1, None, second))
    killed = runs.start()
    try:
        runs.await_commits(1)
        runs.arrive("2.txt", change(START + 2, first, moved), change(START + 3, second, None), "no JSON")
        runs.await_commits(2)
    finally:
        killed.kill()
    runs.forget_last_batch()
    runs.arrive("3.txt", change(START + 4, None, item("3", name="Cem")))
    run = runs.start()
    try:
        # The batch is repeated, and then comes the next.
        runs.await_commits(4)
    finally:
        run.stop()
    assert runs.alive() == [("1", "2024-06", "Bea"), ("3", "2024-01", "Cem")]
    quarantined = [event["object"] for event in runs.events.update() if event["event"] == "quarantine"]
    assert len(quarantined) == 2
    assert len(set(quarantined)) == 1
    options = runs.options()
    # A shard may be read for as long as a window lasts.
    assert options["maxFetchTimeInMs"] == "1500"
    assert options["avoidEmptyBatches"] == "true"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maxFetchTimeInMS", "1500"),
        ("maxFetchTimeInMs", "1500.0"),
        ("maxFetchTimeInMs", 1500),
        ("avoidEmptyBatches", "yes"),
        ("startingPosition", "oldest"),
        ("schema", "id string"),
        ("inferSchema", "false"),
    ],
)
def test_the_stand_in_refuses_options_that_the_documentation_does_not_allow(name: str, value: object) -> None:
    check = runpy.run_path(str(STAND_IN / "awsglue" / "context.py"))["check"]
    given = {"typeOfData": "kinesis", "streamARN": STREAM, "classification": "json", "inferSchema": "true"}
    check(given)
    with pytest.raises(ValueError, match=f"^{name}: "):
        check({**given, name: value})
