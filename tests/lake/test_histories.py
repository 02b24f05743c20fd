"""Whatever happens to a source, however it arrives and wherever the writer dies, the lake equals the source.

Hypothesis draws what happens; all keys of one table share its commits. ``--key-histories`` and ``--seed`` choose how
many and which, ``--turns`` how often something happens to a table; each test's name has its seed. ``make soak`` runs
ten thousand.
"""

from __future__ import annotations

import datetime as dt
import itertools
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Generic, TypeVar

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis.strategies import SearchStrategy
from pyspark.sql import SparkSession

from headwater.console import say
from headwater.contract.model import Column
from headwater.contract.reading import parse_contract
from headwater.contract.types import Type, parse_type
from headwater.lake.base.quarantine import Quarantine
from headwater.lake.base.s3_uri import split_uri
from headwater.lake.job.landed_changes import LandedChanges
from headwater.lake.requests.protocol import DONE
from headwater.lake.table import hudi_table as table
from headwater.lake.table.catalog import Catalog
from headwater.lake.table.purge import Purge
from headwater.lake.table.replaced_files import ReplacedFiles
from headwater.lake.table.writer import TableWriter, WriterSettings
from rig.local.aws import REGION, AwsApi
from tests.lake import item_histories, row_histories
from tests.lake.accounts import Accounts
from tests.lake.pipeline import Landed, Pipeline
from tests.lake.readers import Hudi015, comparable, read_by_writer
from tests.s3_cut import S3Cut

BUCKET = "headwater-histories"
KEYS_PER_TABLE = 1000
HOUR = 3600 * 10**6
# What the shipped settings do once in twenty commits happens all the time in half of the tables.
HASTY = {
    "hoodie.compact.inline.max.delta.commits": "3",
    "hoodie.compaction.logfile.num.threshold": "2",
    "hoodie.keep.min.commits": "5",
    "hoodie.keep.max.commits": "8",
}
# Where tests are spread by group, each kind of source has a process of its own.
ROWS, ITEMS = pytest.mark.xdist_group("rows"), pytest.mark.xdist_group("items")
Value = TypeVar("Value")
Key = TypeVar("Key", int, str)
Image = TypeVar("Image")
Writer = TypeVar("Writer")


class Killed(Exception):
    """The writer's death, raised in the writer itself."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" not in metafunc.fixturenames:
        return
    histories, first = metafunc.config.getoption("--key-histories"), metafunc.config.getoption("--seed")
    keys = min(histories, KEYS_PER_TABLE)
    tables = -(-histories // (2 * keys))
    metafunc.parametrize(
        ("seed", "keys"), [(first + number, keys) for number in range(tables)], ids=lambda value: f"{value}"
    )


@pytest.fixture(scope="module")
def cut(spark: SparkSession, endpoint: str, aws_api: AwsApi) -> Iterator[S3Cut]:
    aws_api.client("s3").create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
    with S3Cut(endpoint) as proxy:
        jsc: Any = spark.sparkContext._jsc
        setting = f"fs.s3a.bucket.{BUCKET}.endpoint"
        jsc.hadoopConfiguration().set(setting, proxy.endpoint)
        yield proxy
        jsc.hadoopConfiguration().unset(setting)


def drawn(strategy: SearchStrategy[Value], count: int, seed: int) -> list[Value]:
    """So many values of a strategy."""
    values: list[Value] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(strategy)
    def collect(value: Value) -> None:
        values.append(value)

    collect()
    return values[:count]


class Writers(Generic[Writer]):
    """One writer after another, each until it dies; ``start`` makes one from the lake's present state."""

    def __init__(self, random: Random, cut: S3Cut, start: Callable[[], Writer]) -> None:
        self.deaths = 0
        self._random = random
        self._cut = cut
        self._start = start
        self._writer: Writer | None = None

    def restart(self) -> None:
        """Let the next work be done by a new writer."""
        self._writer = None

    def work(self, do: Callable[[Writer], object]) -> None:
        """Let it be done, by as many writers as it takes."""
        while True:
            try:
                if self._writer is None:
                    self._writer = self._start()
                with self._danger():
                    do(self._writer)
            except Exception as error:
                if not self._cut.happened and not isinstance(error, Killed):
                    raise
            else:
                if not self._cut.happened:
                    return
            self._cut.mend()
            self._cut.happened = False
            self._writer = None
            self.deaths += 1

    def end(self, do: Callable[[Writer], object]) -> None:
        """Let the last writer do it, if it lives, without any danger."""
        if self._writer is not None:
            do(self._writer)

    @contextmanager
    def _danger(self) -> Iterator[None]:
        danger = self._random.random()
        if danger < 0.15:
            self._cut.after(self._random.randint(0, 50))
            yield
        elif danger < 0.2:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Catalog, "register", _die)
                yield
        else:
            yield
        self._cut.mend()


def _die(*_: object) -> None:
    raise Killed


@pytest.fixture(scope="module")
def most_turns(pytestconfig: pytest.Config) -> int:
    """How many of the turns that are drawn for a table take place."""
    most: int = pytestconfig.getoption("--turns")
    return most


@pytest.fixture
def settings(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 2:
        monkeypatch.setattr(table, "_OPTIONS", {**table._OPTIONS, **HASTY})


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


class Topic:
    """A topic whose records are repeated, put in another order, and cut into objects on their way."""

    def __init__(self, random: Random, pipeline: Pipeline) -> None:
        self._random = random
        self._pipeline = pipeline
        self._landed: list[Landed] = []

    def land(self, records: Sequence[Landed]) -> Iterator[None]:
        """Land records, and some that have landed before, object by object."""
        self._landed += records
        again = self._random.sample(self._landed, self._random.randint(0, len(self._landed) // 4))
        objects = []
        for partition in (0, 1):
            mine = [record for record in disordered(self._random, [*records, *again]) if record.partition == partition]
            objects += [(partition, part) for part in pieces(self._random, mine)]
        for partition, part in interleaved(self._random, objects):
            self._pipeline.land_records(part, partition)
            yield

    def land_again(self) -> Iterator[None]:
        """Land all that has landed."""
        yield from self.land(self._landed.copy())


def disordered(random: Random, values: Sequence[Value]) -> list[Value]:
    """The values in an order that is disturbed within windows: of one value, of some, or of all."""
    window = random.choice([1, 5, 50, len(values) + 1])
    mixed = list(values)
    for start in range(0, len(mixed), window):
        part = mixed[start : start + window]
        random.shuffle(part)
        mixed[start : start + window] = part
    return mixed


def pieces(random: Random, values: Sequence[Value]) -> list[Sequence[Value]]:
    """The values cut into one piece or some, none of them empty."""
    places = sorted({0, len(values), *(random.randint(0, len(values)) for _ in range(random.randint(0, 1)))})
    return [values[start:end] for start, end in itertools.pairwise(places)]


def interleaved(random: Random, objects: Sequence[tuple[int, Value]]) -> list[tuple[int, Value]]:
    """The objects of both partitions mixed, each partition's own in order."""
    waiting = {partition: [entry for entry in objects if entry[0] == partition] for partition in (0, 1)}
    order = [entry[0] for entry in objects]
    random.shuffle(order)
    return [waiting[partition].pop(0) for partition in order]


@ROWS
def test_rows_equal_their_source(
    spark: SparkSession,
    aws_api: AwsApi,
    cut: S3Cut,
    seed: int,
    keys: int,
    most_turns: int,
    hudi_015: Hudi015,
    settings: None,
) -> None:
    random = Random(seed)
    histories = drawn(row_histories.histories, keys, seed)
    turns = drawn(row_histories.turns, 20, seed)[-1][1:][:most_turns]  # the first ones that Hypothesis draws are simple
    pipeline = Pipeline(spark, aws_api, f"r-{uuid.uuid4().hex[:8]}", BUCKET)
    pipeline.contract = parse_contract(row_histories.CONTRACT, "accounts.yaml")
    source = row_histories.Source(random)
    topic = Topic(random, pipeline)
    batch_bytes = random.choice([1, 10_000_000])

    def make() -> LandedChanges:
        held_bytes = random.choice((0, WriterSettings.held_bytes))
        return pipeline.writer(batch_bytes=batch_bytes, max_bad_share=1.0, held_bytes=held_bytes)

    writers = Writers(random, cut, make)

    def deliver(arrivals: Iterator[None]) -> None:
        for _ in arrivals:
            if random.random() < 0.5:
                writers.work(commit_all)
        writers.work(commit_all)
        if random.random() < 0.5:
            writers.work(lambda changes: keep_up(changes.writer))

    def snapshot(unseen: int) -> None:
        if random.random() < 0.5:
            source.snapshot(interrupted=True)
            taken.extend(source.take())
        source.run_unseen([history[unseen] for history in histories])
        source.snapshot()

    taken: list[Landed] = []
    source.run_unseen([history[0] for history in histories])
    snapshot(1)
    deliver(topic.land([*taken, *source.take()]))
    for phase, turn in enumerate(turns, 2):
        taken.clear()
        if turn == "truncate":
            source.truncate()
        elif turn == "identity":
            source.change_identity()
        elif turn == "lost slot":
            source.lose_slot()
            snapshot(phase)
        elif turn == "lost changes":
            source.run_unseen([history[phase] for history in histories])
            source.read_again()
        else:
            alter(source, pipeline, turn)
        writers.restart()
        if not turn.startswith("lost"):
            source.run([history[phase] for history in histories])
        deliver(topic.land([*taken, *source.take()]))
    deliver(topic.land_again())
    # To hudi-rs a table cannot be read whose last commit has begun a compaction.
    writers.end(lambda changes: changes.writer.settle())
    uri = f"{pipeline.lake}/accounts"
    logged = "whole rows logged at the end" if source.logs_all else "keys logged at the end"
    made = commits(pipeline.events, aws_api, uri)
    say(f"seed {seed}: {keys} rows, {turns}, {logged}, {made}, {writers.deaths} deaths")
    rows = rows_as_in(pipeline, source.images, row_histories.differences)
    assert read_by_writer(spark, uri) == rows
    assert hudi_015.read([uri]) == [rows]


def rows_as_in(
    lake: Pipeline | Accounts, images: Mapping[Key, Image], differences: Callable[[Image, Mapping[str, Any]], list[str]]
) -> list[dict[str, Any]]:
    """All rows of the table. Checks that the living rows are as the source's last images.

    Quarantine may only hold deletes that nobody can tell from defective records, and records that were repeated after a
    purge.
    """
    aside = Quarantine(lake.s3, f"{lake.lake}/_quarantine", "accounts")
    reasons = {entry.reason for object_ in aside.listed() for entry in aside.read(object_.name) or []}
    usual = ("a delete in a partitioned table whose", "_order: found")
    assert {reason for reason in reasons if not reason.startswith(usual)} == set()
    rows = lake.stored()
    alive = [row for row in rows if not row["_deleted"]]
    ids = [row["id"] for row in alive]
    found = [f"{id_}: {ids.count(id_)} rows" for id_ in sorted(set(ids)) if ids.count(id_) > 1]
    found += [f"{id_}: should not be there" for id_ in sorted(set(ids) - images.keys())]
    found += [f"{id_}: is missing" for id_ in sorted(images.keys() - set(ids))]
    for row in alive:
        if row["id"] in images:
            found += [f"{row['id']}: {text}" for text in differences(images[row["id"]], row)]
    assert found == []
    return [comparable(row) for row in rows]


def commits(events: Sequence[dict[str, Any]], aws_api: AwsApi, uri: str) -> str:
    """How many commits were made, and how many compactions are on the timeline of the table at ``uri``."""
    made = len([event for event in events if event["event"] == "commit"])
    bucket, folder = split_uri(f"{uri}/.hoodie/")
    timeline = aws_api.client("s3").list_objects_v2(Bucket=bucket, Prefix=f"{folder}/")["Contents"]
    compactions = len([entry for entry in timeline if entry["Key"].endswith(".commit")])
    return f"{made} commits, {compactions} compactions"


def commit_all(changes: LandedChanges) -> None:
    while changes.commit_next():
        pass


def keep_up(writer: TableWriter) -> None:
    """Delete all replaced files, and purge all tombstones: apart from repeated changes, changes on their way are no
    older."""
    ReplacedFiles(writer.services.s3, writer.table).delete(dt.datetime.now(dt.UTC))
    purge = Purge(writer, dt.timedelta(0))
    while purge.do_next():
        pass


def alter(source: row_histories.Source, pipeline: Pipeline, turn: str) -> None:
    """Change the table's columns, and the contract along."""
    columns = pipeline.contract.columns
    if turn == "add note" and "note" not in source.columns:
        source.columns.append("note")
        columns = (*columns, Column("note", Type("string"), "text", ("note",)))
    elif turn == "drop note" and "note" in source.columns:
        source.columns.remove("note")
        columns = tuple(column for column in columns if column.name != "note")
    elif turn == "widen":
        wide = {"balance": parse_type("decimal(20,2)")}
        columns = tuple(replace(column, type=wide.get(column.name, column.type)) for column in columns)
    pipeline.contract = replace(pipeline.contract, columns=columns)


# --- DynamoDB ---------------------------------------------------------------------------------------------------------


class Job:
    """The job of one table: the changes from its stream, and the requests to load exports meanwhile."""

    def __init__(self, random: Random, accounts: Accounts, writers: Writers[Accounts]) -> None:
        self._random = random
        self._accounts = accounts
        self._writers = writers
        self._came: list[item_histories.Change] = []
        self._exports: list[str] = []

    def export(self, source: item_histories.Source) -> None:
        """Export the table, and ask for that."""
        items = source.items()
        self._random.shuffle(items)
        files = [items[start::3] for start in range(3)]
        self._exports.append(self._accounts.ask(self._accounts.export(source.now, *files)))

    def stream(self, changes: Sequence[item_histories.Change]) -> None:
        """Hand on these changes and some earlier ones, in batches, and do requested work between them."""
        self._came += changes
        again = self._random.sample(self._came, self._random.randint(0, len(self._came) // 4))
        for batch in pieces(self._random, disordered(self._random, [*changes, *again])):
            if self._random.random() < 0.7:
                self._writers.work(Accounts.commit_next)
            by_executors = self._random.random() < 0.5
            self._writers.work(partial(Accounts.commit, records=batch, by_executors=by_executors))
        self._writers.work(Accounts.drain)
        for export in self._exports:
            assert self._accounts.status(export).state == DONE
        if self._random.random() < 0.5:
            self._writers.work(lambda accounts: keep_up(accounts.writer))

    def stream_again(self) -> None:
        """Hand on all that came."""
        self.stream(self._came.copy())

    def forget(self) -> None:
        """Hand on nothing again of what came."""
        self._came.clear()
        self._exports.clear()


@ITEMS
def test_items_equal_their_source(
    spark: SparkSession,
    aws_api: AwsApi,
    cut: S3Cut,
    seed: int,
    keys: int,
    most_turns: int,
    hudi_015: Hudi015,
    settings: None,
) -> None:
    random = Random(seed)
    histories = drawn(item_histories.histories, keys, seed)
    turns = drawn(item_histories.turns, 20, seed)[-1][:most_turns]
    accounts = Accounts(spark, aws_api, f"i-{uuid.uuid4().hex[:8]}", item_histories.CONTRACT)
    # Streaming begins when the job starts: nothing that happens in the table may be older.
    source = item_histories.Source(random, time.time_ns() // 1000 + HOUR)

    def start() -> Accounts:
        accounts.start(source.epoch, is_streaming=True, max_bad_share=1.0)
        return accounts

    writers = Writers(random, cut, start)
    job = Job(random, accounts, writers)
    source.run([history[0] for history in histories])
    job.stream(source.take())
    for phase, turn in enumerate(turns, 1):
        writers.restart()
        if turn == "export":
            job.export(source)
        source.run([history[phase] for history in histories])
        changes = source.take()
        if turn == "lost records":
            changes = random.sample(changes, len(changes) * 3 // 4)
        elif turn == "lost stream":
            changes = []
            source.lose_stream()
            job.forget()
        if turn.startswith("lost"):
            source.wait()
            job.export(source)
        job.stream(changes)
    job.stream_again()
    uri = f"{accounts.lake}/accounts"
    say(f"seed {seed}: {keys} items, {turns}, {commits(accounts.events, aws_api, uri)}, {writers.deaths} deaths")
    rows = rows_as_in(accounts, source.images, item_histories.differences)
    assert read_by_writer(spark, uri) == rows
    assert hudi_015.read([uri]) == [rows]
