"""How long a commit takes: the shipped writer beside others, on one change log, and whether each ends in its rows.

All run by ``spark-submit`` on this machine's object store, one after another. Each system first loads the table's rows.
Then it commits one landing object after another without a pause, with its own maintenance. A commit's time runs from
the end of the commit before it to its own end, so that nothing is left out. The first ``WARMING`` commits do not count.
The shipped writer is also measured at a steady pace: a batch lands every few seconds.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.console import Announce
from headwater.contract.model import Contract
from headwater.definitions import spark_settings, writers
from headwater.definitions.glue_table import table_input
from headwater.definitions.writers import LakePlace
from headwater.folder_lock import claimed_empty
from headwater.lake.base.idle_pause import FIRST_PAUSE_SECONDS
from headwater.lake_folder import EXAMPLE
from headwater.packaging import jars
from headwater.paths import ROOT
from headwater.review import cost
from headwater.review.prices import read_prices
from headwater.verify import read_lake
from headwater.waiting import wait_until
from rig.benchmark import change_log, peers
from rig.benchmark.change_log import TABLE, TOPIC, ChangeLog, LandingBody
from rig.demo.memory import MemoryWatch
from rig.local import spark
from rig.local.aws import REGION, AwsApi
from rig.local.pipeline import FORGET_SECRET, EventLog, bytes_of_part, local_environment, local_lake
from rig.local.spark import SparkJob

WARMING = 3
_BUCKET = "headwater-bench"
_LANDING = "landing"
_MEMORY = "3g"
_SAMPLE_SECONDS = 1.0
_COUNT_SECONDS = 0.1
# The subset of Headwater's Spark settings that all systems get, and the settings that Hudi's own writers need.
_OF_ALL = ("spark.sql.session.timeZone", "spark.hadoop.fs.s3a.directory.marker.retention")
_OF_HUDI = (
    "spark.serializer",
    "spark.kryo.registrator",
    "spark.sql.extensions",
    "spark.sql.catalog.spark_catalog",
)


@dataclass(frozen=True)
class Scale:
    """The size of a measurement."""

    rows: int
    """The table's rows."""
    buckets: int
    """The buckets of Headwater's table."""
    changes: int
    """The changes in each commit."""
    commits: int
    """The measured commits; the warm-up commits are added to these."""


QUICK = Scale(rows=20_000, buckets=4, changes=1_000, commits=20)
FULL = (
    Scale(rows=200_000, buckets=4, changes=5_000, commits=60),
    Scale(rows=2_000_000, buckets=16, changes=5_000, commits=60),
)
LARGEST = Scale(rows=10_000_000, buckets=64, changes=5_000, commits=60)
PACED = (
    Scale(rows=200_000, buckets=4, changes=5_000, commits=200),
    Scale(rows=2_000_000, buckets=16, changes=5_000, commits=200),
)
PACE_SECONDS = 3.0
# Replaced files accumulate, since an environment keeps them for hours.
MANY = Scale(rows=200_000, buckets=4, changes=500, commits=3_000)


@dataclass(frozen=True)
class BacklogScale:
    """A table, and the changes that land for it while no writer runs."""

    rows: int
    """The table's rows."""
    buckets: int
    """The table's buckets."""
    objects: int
    """The number of landing objects."""
    changes: int
    """The changes in each object."""

    @property
    def landed(self) -> int:
        """The changes of all objects."""
        return self.objects * self.changes


# Large enough for a compaction to fall due.
BACKLOG = BacklogScale(rows=1_000_000, buckets=16, objects=300, changes=20_000)
_COMPARED = 20
# After this many commits a timeline has reached its largest length.
FILLING = 100
# The fastest writer makes some commits between two polls.
_AHEAD = 10
# While replaced files stay, a poll sees all log files that have existed since the poll before.
_COMMITS_A_LOOK = 10
_OBJECT_A_COMMIT = ("--batch-bytes", "1")
# Old files are deleted within the run, as by Hudi's own writers.
_KEPT_FOR_A_MINUTE = ("--file-version-hours", "0.02")


@dataclass(frozen=True)
class Measured:
    """The figures of one system at one scale."""

    system: str
    """The system's name in the report."""
    scale: Scale
    load_seconds: float
    """The seconds for loading the first rows."""
    commit_seconds: tuple[float, ...]
    """The seconds of each commit."""
    settling_seconds: float
    """The seconds of maintenance after the last commit."""
    peak_memory_bytes: int
    reads: float
    """The GET and HEAD requests to S3 per commit."""
    writes: float
    """The PUT and LIST requests to S3 per commit."""
    differences: int | None
    """The rows that the table lacks, has twice or has in another version; None for a limit, which keeps no table."""

    @property
    def median(self) -> float:
        """The median of the commits' seconds."""
        return statistics.median(self.commit_seconds)

    @property
    def p99(self) -> float:
        """The smallest time that 99 % of the commits did not exceed."""
        return p99(self.commit_seconds)

    @property
    def changes_per_second(self) -> float:
        """The rate of back-to-back commits, maintenance included."""
        return self.scale.changes * len(self.commit_seconds) / (sum(self.commit_seconds) + self.settling_seconds)

    @property
    def requests_dollars(self) -> float:
        """The cost of these requests per month, if commits come as often as ``headwater cost`` assumes."""
        prices = read_prices().prices
        a_million = sum(
            number * prices[name].price
            for number, name in ((self.reads, "s3_million_reads"), (self.writes, "s3_million_writes"))
        )
        return a_million * commits_a_month() / 1e6

    def document(self) -> dict[str, Any]:
        """The figures for a report."""
        return {
            "system": self.system,
            "rows": self.scale.rows,
            "changes": self.scale.changes,
            "commits": len(self.commit_seconds),
            "median_seconds": round(self.median, 3),
            "p99_seconds": round(self.p99, 3),
            "changes_per_second": round(self.changes_per_second),
            "load_seconds": round(self.load_seconds, 1),
            "settling_seconds": round(self.settling_seconds, 1),
            "peak_memory_bytes": self.peak_memory_bytes,
            "s3_reads_a_commit": round(self.reads, 1),
            "s3_writes_a_commit": round(self.writes, 1),
            "s3_requests_dollars_a_month": round(self.requests_dollars, 2),
            "differences": self.differences,
            "commit_seconds": [round(seconds, 3) for seconds in self.commit_seconds],
        }


def p99(seconds: Sequence[float]) -> float:
    """The smallest of these times that 99 % of them do not exceed."""
    ranked = sorted(seconds)
    return ranked[math.ceil(0.99 * len(ranked)) - 1]


@dataclass(frozen=True)
class Paced:
    """The writer's figures while a batch lands every ``PACE_SECONDS``."""

    scale: Scale
    commit_seconds: tuple[float, ...]
    """The seconds of each commit."""
    fresh_seconds: tuple[float, ...]
    """The seconds from the landing of each batch to the end of its commit."""
    depth: int
    """The largest number of log files that a file slice ever had."""
    differences: int
    """Counted as in ``Measured``."""

    def document(self) -> dict[str, Any]:
        """The figures for a report."""
        return {
            "rows": self.scale.rows,
            "changes": self.scale.changes,
            "pace_seconds": PACE_SECONDS,
            "commit_seconds": [round(seconds, 3) for seconds in self.commit_seconds],
            "fresh_seconds": [round(seconds, 3) for seconds in self.fresh_seconds],
            "depth": self.depth,
            "differences": self.differences,
        }


@dataclass(frozen=True)
class Followed:
    """The figures of a writer for which new changes land as fast as it commits."""

    commit_seconds: tuple[float, ...]
    """The seconds between the ends of successive commits."""
    peak_memory_bytes: int
    differences: int
    """Counted as in ``Measured``."""

    def document(self) -> dict[str, Any]:
        """The figures for a report."""
        return {**asdict(self), "commit_seconds": [round(seconds, 3) for seconds in self.commit_seconds]}


@dataclass(frozen=True)
class Many:
    """The commits of one process, and the commits of a new process before and after them.

    The timeline is full from the start. Java has compiled no more in ``old`` than in ``young``, so a difference between
    them comes from the table's age.
    """

    scale: Scale
    young: Followed
    """The commits of a new process, before ``commits``."""
    commits: Followed
    """The commits of one process."""
    old: Followed
    """The commits of a new process, after ``commits``."""

    @property
    def growth(self) -> float:
        """The old process's median commit, as a multiple of the young one's.

        Both medians are over the twenty commits around the twentieth.
        """
        young, old = (_around_twentieth(each.commit_seconds) for each in (self.young, self.old))
        return statistics.median(old) / statistics.median(young)


def growth(seconds: Sequence[float], until: int | None = None) -> float:
    """The median of the last twenty commits, divided by the median of the twenty commits around the twentieth.

    ``until`` is the number of the commit that counts as the last one.
    """
    return statistics.median(seconds[:until][-_COMPARED:]) / statistics.median(_around_twentieth(seconds))


def _around_twentieth(seconds: Sequence[float]) -> Sequence[float]:
    return seconds[_COMPARED // 2 : _COMPARED // 2 + _COMPARED]


@dataclass(frozen=True)
class Backlog:
    """How a new writer drains all landed objects. The start of Java and Spark does not count."""

    scale: BacklogScale
    commits: tuple[tuple[int, float], ...]
    """The changes and the seconds of each commit."""
    seconds: float
    """The seconds from the start of the first commit to the writer's end."""
    peak_memory_bytes: int
    differences: int
    """Counted as in ``Measured``."""

    @property
    def changes_per_second(self) -> float:
        """The mean rate, with Java's compilation and all maintenance."""
        return self.scale.landed / self.seconds

    @property
    def median_changes_per_second(self) -> float:
        """The median of the commits' rates."""
        return statistics.median(changes / seconds for changes, seconds in self.commits)


def commits_a_month() -> float:
    """The commits per month of a table, by the assumptions of ``headwater cost``."""
    return cost.assumed("change_hours") * 3600 / cost.assumed("commit_seconds")


@dataclass(frozen=True)
class Variant:
    """One of Headwater's tables."""

    system: str
    """The table's name in the report."""
    partitioned: bool


OURS = (
    Variant("Headwater", partitioned=False),
    Variant(f"Headwater, {change_log.REGIONS} partitions", partitioned=True),
)
PEERS: Mapping[str, str] = {
    "iceberg": "Iceberg, merge-on-read",
    "delta": "Delta, deletion vectors",
    "hudi": "Hudi, its defaults",
    "bucket": "Hudi's writer, Headwater's settings",
    "posts": "Hudi as in 2021's posts",
    "parquet": "limit: bare Parquet files",
    "read": "limit: reading the log",
}
"""The names of the other systems' classes in ``peers``, and their names in the report."""


def run(
    scale: Scale,
    announce: Announce,
    variants: Sequence[Variant] = OURS,
    names: Sequence[str] = tuple(PEERS),
    folder: Path = EXAMPLE.run / "bench-commits",
) -> Iterator[Measured]:
    """Measure Headwater's tables and the named other systems at one scale, one after the other."""
    jars.fetch(announce, sets=jars.PEERS)
    with claimed_empty(folder, "the benchmark of commits"), AwsApi(folder / "aws") as api:
        bench = _Bench(scale, folder, api)
        with announce(f"Landing {scale.rows:,} rows"):
            bench.land_snapshot()
        loads = {}
        for variant in variants:
            with announce(f"{variant.system}: taking {scale.rows:,} rows"):
                loads[variant] = bench.load(variant)
        with announce(f"Landing {bench.commits} batches of {scale.changes:,} changes"):
            bench.land_changes()
        for variant in variants:
            with announce(f"{variant.system}: {bench.commits} commits"):
                yield bench.write(variant, loads[variant], *_KEPT_FOR_A_MINUTE)
        for name in names:
            with announce(f"{PEERS[name]}: {scale.rows:,} rows and {bench.commits} commits"):
                yield bench.peer(name)


def paced(scale: Scale, announce: Announce, folder: Path = EXAMPLE.run / "bench-commits") -> Paced:
    """Measure Headwater at one scale and a steady pace."""
    with (
        _loaded(scale, announce, folder) as (bench, _),
        announce(f"Headwater: {bench.commits} commits, one every {PACE_SECONDS:g} s"),
    ):
        return bench.pace(OURS[0])


def many(scale: Scale, announce: Announce, folder: Path = EXAMPLE.run / "bench-commits") -> Many:
    """Measure Headwater's back-to-back commits, with replaced files kept as long as in an environment."""
    some = WARMING + 2 * _COMPARED
    with _loaded(scale, announce, folder) as (bench, _):
        done = []
        # The first commits fill the timeline.
        for commits in (FILLING, some, bench.commits, some):
            with announce(f"Headwater: {commits:,} commits by a new process"):
                done.append(bench.follow(OURS[0], commits))
        return Many(scale, *done[1:])


def backlog(scale: BacklogScale, announce: Announce, folder: Path = EXAMPLE.run / "bench-commits") -> Backlog:
    """Measure how fast Headwater drains objects that have landed while no writer ran."""
    with _loaded(Scale(scale.rows, scale.buckets, scale.changes, scale.objects), announce, folder) as (bench, _):
        with announce(f"Landing {scale.landed:,} changes"):
            bench.land_backlog(scale.objects)
        with announce(f"Headwater: taking {scale.landed:,} changes"):
            return bench.drain(OURS[0], scale)


@contextmanager
def _loaded(scale: Scale, announce: Announce, folder: Path) -> Iterator[tuple[_Bench, _Load]]:
    """A change log in an object store, and Headwater's table with its first rows."""
    with claimed_empty(folder, "the benchmark of commits"), AwsApi(folder / "aws") as api:
        bench = _Bench(scale, folder, api)
        with announce(f"Landing {scale.rows:,} rows"):
            bench.land_snapshot()
        with announce(f"Headwater: taking {scale.rows:,} rows"):
            load = bench.load(OURS[0])
        yield bench, load


@dataclass(frozen=True)
class _Load:
    """The cost of loading a table's first rows."""

    seconds: float
    peak_memory_bytes: int


@dataclass(frozen=True)
class _Done:
    """A job that has ended."""

    log: EventLog
    """The events that the job reported."""
    peak_memory_bytes: int
    a_commit: Mapping[str, float]
    """The job's requests to S3 per commit, by kind."""

    @property
    def committing_seconds(self) -> float:
        """The seconds from the start of the first commit to the end of the last one."""
        commits = self.log.commits()
        first, last = commits[0], commits[-1]
        return float(last["completed_at"] - first["completed_at"] + first["seconds"])

    @property
    def settling_seconds(self) -> float:
        """The seconds from the last commit to the job's end, if the job reports its end."""
        stopped = [float(event["at"]) for event in self.log.events if event["event"] == "stopped"]
        return stopped[-1] - float(self.log.commits()[-1]["completed_at"]) if stopped else 0.0


class _Bench:
    """The change log in an object store, and the systems that apply it."""

    def __init__(self, scale: Scale, folder: Path, api: AwsApi) -> None:
        self.commits = WARMING + scale.commits
        self._scale = scale
        self._jobs = count()
        self._folder = folder
        self._api = api
        self._s3 = api.client("s3")
        self._s3.create_bucket(Bucket=_BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        self._log = ChangeLog(scale.rows)
        self._snapshot: list[str] = []
        self._batches: list[str] = []

    def land_snapshot(self) -> None:
        """Land the table's rows."""
        self._snapshot = [self._land(body) for body in self._log.snapshot()]

    def land_changes(self) -> None:
        """Land one object per commit."""
        self._batches = [self._land(self._log.batch(self._scale.changes)) for _ in range(self.commits)]

    def land_backlog(self, objects: int) -> None:
        """Land all objects of a backlog at once."""
        for _ in range(objects):
            self._land(self._log.batch(self._scale.changes))

    def _land(self, body: LandingBody) -> str:
        key = f"{_LANDING}/{TOPIC}/{body.key}"
        self._s3.put_object(Bucket=_BUCKET, Key=key, Body=body.body, Metadata={"next-offset": str(body.next)})
        return f"s3a://{_BUCKET}/{key}"

    def load(self, variant: Variant) -> _Load:
        """Let the writer load the table's rows."""
        # A partition of some thousand rows needs one bucket.
        buckets = 1 if variant.partitioned else self._scale.buckets
        contract = change_log.contract(buckets, partitioned=variant.partitioned)
        self._create(contract, variant)
        done = self._submit_writer(variant)
        return _Load(done.committing_seconds, done.peak_memory_bytes)

    def write(self, variant: Variant, load: _Load, *more: str) -> Measured:
        """Let the writer commit one object at a time; ``more`` are further options."""
        done = self._submit_writer(variant, *_OBJECT_A_COMMIT, *more)
        return self._measured(variant.system, load, done, self._alive(variant))

    def drain(self, variant: Variant, scale: BacklogScale) -> Backlog:
        """Let a new writer commit all landed objects in batches of its choice."""
        done = self._submit(self._writer_job(variant, "--once"), self._folder / "backlog")
        commits = [(int(commit["changes"]), float(commit["seconds"])) for commit in done.log.commits()]
        found = sum(changes for changes, _ in commits)
        if found != scale.landed:
            raise AssertionError(f"{found} changes, expected {scale.landed}")
        return Backlog(
            scale,
            tuple(commits),
            done.committing_seconds + done.settling_seconds,
            done.peak_memory_bytes,
            change_log.differences(self._log.expected(), self._alive(variant)),
        )

    def follow(self, variant: Variant, commits: int) -> Followed:
        """Run a writer with a short backlog.

        The writer lists the waiting objects before each commit, so their number is kept small.
        """
        folder = self._folder / f"follow-{next(self._jobs)}"
        log = EventLog(folder / "events.jsonl")
        with spark.submit(self._writer_job(variant, *_OBJECT_A_COMMIT), folder, self._api) as writer:
            with MemoryWatch(lambda: {"all": bytes_of_part(writer.pid)}, _SAMPLE_SECONDS) as memory:
                landed = done = 0
                while done < commits:
                    if not writer.running:
                        writer.check()
                    # Land only this many objects more than the writer has committed.
                    done = len(log.commits())
                    for _ in range(min(commits, done + _AHEAD) - landed):
                        self._land(self._log.batch(self._scale.changes))
                        landed += 1
                    time.sleep(_COUNT_SECONDS)
            ends = [float(commit["completed_at"]) for commit in log.commits()]
        self._submit_writer(variant)
        return Followed(
            tuple(later - earlier for earlier, later in pairwise(ends[WARMING - 1 :])),
            memory.peak_of_all,
            change_log.differences(self._log.expected(), self._alive(variant)),
        )

    def pace(self, variant: Variant) -> Paced:
        """Let a writer run while one object after the other lands."""
        bodies = [self._log.batch(self._scale.changes) for _ in range(self.commits)]
        folder = self._folder / "paced"
        log = EventLog(folder / "events.jsonl")
        landed = []
        with spark.submit(
            self._writer_job(variant, *_OBJECT_A_COMMIT, *_KEPT_FOR_A_MINUTE), folder, self._api
        ) as writer:

            def reached(offset: int) -> bool:
                if not writer.running:
                    writer.check()
                return max(log.cursor().values(), default=0) >= offset

            # The writer resumes after the table's first rows.
            wait_until("the writer to poll for changes", lambda: reached(bodies[0].first))
            began = time.monotonic()
            depth = 0
            for number, body in enumerate(bodies):
                time.sleep(max(0.0, began + number * PACE_SECONDS - time.monotonic()))
                self._land(body)
                landed.append(time.time())
                if number % _COMMITS_A_LOOK == 0:
                    depth = max(depth, self._depth(variant))
            wait_until("the writer to commit all that has landed", lambda: reached(bodies[-1].next), log.progress)
            depth = max(depth, self._depth(variant))
        commits = log.commits()
        if len(commits) != self.commits:
            raise AssertionError(f"{len(commits)} commits, expected {self.commits}")
        # For some readers, a compaction that is unfinished when the writer ends makes the table unreadable.
        self._submit_writer(variant)
        counted = list(zip(commits, landed, strict=True))[WARMING:]
        return Paced(
            self._scale,
            tuple(float(commit["seconds"]) for commit, _ in counted),
            tuple(float(commit["completed_at"]) - at for commit, at in counted),
            depth,
            change_log.differences(self._log.expected(), self._alive(variant)),
        )

    def _depth(self, variant: Variant) -> int:
        """The largest number of log files of one file slice.

        Files that compaction has replaced count too, as long as they exist.
        """
        prefix = f"{_database(variant)}/{TABLE}/"
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=_BUCKET, Prefix=prefix)
        names = (entry["Key"].rpartition("/")[2] for page in pages for entry in page.get("Contents", ()))
        slices = Counter(name.partition(".log.")[0] for name in names if ".log." in name)
        return max(slices.values(), default=0)

    def _alive(self, variant: Variant) -> pa.Table:
        """``id`` and ``version`` of the existing rows."""
        storage = local_lake(self._api).storage
        stored = pa.Table.from_batches(
            batch.select(["id", "version", "_deleted"]) for batch in read_lake(f"{_lake(variant)}/{TABLE}", storage)
        )
        return stored.filter(pc.invert(stored["_deleted"])).select(["id", "version"])

    def peer(self, name: str) -> Measured:
        """Let another system load the rows and commit the changes."""
        folder = self._folder / name
        folder.mkdir()
        log, result = folder / "log.json", folder / "result"
        log.write_text(json.dumps([self._snapshot, *([object_] for object_ in self._batches)]))
        location = f"s3a://{_BUCKET}/{name}"
        table, shared, class_path = _peer(name, location)
        arguments = ["--system", name, "--log", str(log), "--table", table, "--result", result.as_uri()]
        arguments += ["--buckets", str(self._scale.buckets)]
        script = Path(peers.__file__)
        job = SparkJob(
            script,
            arguments,
            PEERS[name],
            _MEMORY,
            optimized=True,
            shared={**_shared(_OF_ALL), **shared},
            jars=class_path,
        )
        done = self._submit(job, folder)
        found = None if name == "read" else pq.read_table(result)
        (seconds,) = (event["seconds"] for event in done.log.update() if event["event"] == "created")
        return self._measured(PEERS[name], _Load(seconds, done.peak_memory_bytes), done, found)

    def _measured(self, system: str, load: _Load, done: _Done, found: pa.Table | None) -> Measured:
        ends = [float(commit["completed_at"]) for commit in done.log.commits()]
        if len(ends) != self.commits:
            raise AssertionError(f"{system}: {len(ends)} commits, expected {self.commits}")
        seconds = tuple(later - earlier for earlier, later in pairwise(ends[WARMING - 1 :]))
        return Measured(
            system,
            self._scale,
            load.seconds,
            seconds,
            done.settling_seconds,
            max(load.peak_memory_bytes, done.peak_memory_bytes),
            reads=done.a_commit["GET"],
            writes=done.a_commit["PUT"] + done.a_commit["LIST"],
            differences=None if found is None else change_log.differences(self._log.expected(), found),
        )

    def _create(self, contract: Contract, variant: Variant) -> None:
        glue = self._api.client("glue")
        glue.create_database(DatabaseInput={"Name": _database(variant)})
        definition = table_input(contract, f"{_lake(variant)}/{TABLE}")
        glue.create_table(DatabaseName=_database(variant), TableInput=definition)
        self._s3.put_object(Bucket=_BUCKET, Key=f"{_database(variant)}.json", Body=contract.to_json().encode())

    def _submit_writer(self, variant: Variant, *more: str) -> _Done:
        job = self._writer_job(variant, "--once", *more)
        return self._submit(job, self._folder / f"{_database(variant)}-{next(self._jobs)}")

    def _writer_job(self, variant: Variant, *more: str) -> SparkJob:
        arguments = writers.step_arguments(
            [f"s3://{_BUCKET}/{_database(variant)}.json"],
            LakePlace(_lake(variant), _database(variant), FORGET_SECRET),
            local_environment(EXAMPLE).lake,
            landing=f"s3://{_BUCKET}/{_LANDING}",
            idle_seconds_max=FIRST_PAUSE_SECONDS,
            awaits_backfill=False,
        )
        script = ROOT / "emr_steps" / "write_hudi.py"
        return SparkJob(script, [*arguments, *more], variant.system, _MEMORY, optimized=True)

    def _submit(self, job: SparkJob, folder: Path) -> _Done:
        process = spark.submit(job, folder, self._api)
        log = EventLog(folder / "events.jsonl")
        counted: list[tuple[int, Counter[str]]] = []
        with process:
            with MemoryWatch(lambda: {"all": bytes_of_part(process.pid)}, _SAMPLE_SECONDS) as memory:
                while process.running:
                    commits = len(log.commits())
                    # From the first measured commit to the last one, without the work before and after.
                    if commits >= WARMING and (not counted or commits > counted[-1][0]):
                        counted = [*counted[:1], (commits, self._api.store.requests())]
                    time.sleep(_COUNT_SECONDS)
            if process.wait() != 0:
                process.check()
        return _Done(log, memory.peak_of_all, _a_commit(counted))


def _a_commit(counted: Sequence[tuple[int, Counter[str]]]) -> Mapping[str, float]:
    """The mean number of requests per commit, by kind.

    ``counted`` holds the numbers of commits and requests so far.
    """
    if len(counted) < 2:
        return defaultdict(float)
    (before, few), (after, more) = counted
    return defaultdict(float, {kind: (more[kind] - few[kind]) / (after - before) for kind in more})


def _database(variant: Variant) -> str:
    return "partitioned" if variant.partitioned else "plain"


def _lake(variant: Variant) -> str:
    return f"s3://{_BUCKET}/{_database(variant)}"


def _peer(name: str, location: str) -> tuple[str, dict[str, str], list[Path]]:
    """A system's table, its settings and its jars."""
    if name == "iceberg":
        catalog = {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalog.peer": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.peer.type": "hadoop",
            "spark.sql.catalog.peer.warehouse": location,
        }
        return f"peer.db.{TABLE}", catalog, jars.class_path("iceberg")
    if name == "delta":
        catalog = {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }
        return f"delta.`{location}`", catalog, jars.class_path("delta")
    return location, _shared(_OF_HUDI), spark.hudi_jars()


def _shared(names: Sequence[str]) -> dict[str, str]:
    shared = spark_settings.shared()
    return {name: shared[name] for name in names}


def ratio(one: Measured, measured: Sequence[Measured]) -> float:
    """A median as a multiple of Headwater's at that scale."""
    (ours,) = (each for each in measured if each.scale == one.scale and each.system == OURS[0].system)
    return one.median / ours.median
