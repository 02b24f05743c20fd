"""A simulation of the relational pipeline: how fresh the lake is, and whether its writer keeps up.

Changes pass one source task, wait until their landing object is due, until the writer looks and until the commit
before is done, and are readable when their own commit is. Commits and compactions share the writer's cores. Time goes
in steps of ``STEP`` seconds. What the work takes is measured elsewhere (``unit_costs.yaml``). ``docs/scaling.md`` holds
the simulation against measured runs.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from headwater.lake.idle_pause import IdlePause

STEP = 0.01
"""Seconds."""

# The sink's (PartitionWriter), the writer's (WriterSettings) and SmallUpserts' own, by docs/decisions/hudi-settings.md.
# That one table at a time decodes ahead, and holds more, is left out.
_GATHERING_PART = 10
_HELD_BYTES = 16 * 2**20
_COMMITS_TO_COMPACTION = 20
_LOG_FILES_TO_COMPACT = 10
_LOG_FILES_BEHIND = 30
_LOG_FILES_TO_WAIT = 90
_PLANNED_MIB = 64
_THREADS_BEHIND = 16
# The programs beside the writer work in pieces of so many seconds.
_OTHERS_JOB = 0.05

Arrivals = Sequence[tuple[float, int]]
"""When changes are committed in the source, in seconds, and how many; in the order of time."""


@dataclass(frozen=True)
class Costs:
    """What the work takes whatever the changes are, in seconds. ``transport`` is the way from the source's commit into
    Kafka and ``landing`` that of an object into S3. A ``commit`` costs something by itself, and each ``file_group``
    that it touches more. A compaction takes ``log_file`` for each log file that it merges and ``row`` for each row that
    it writes anew."""

    transport: float
    landing: float
    commit: float
    file_group: float
    log_file: float
    row: float


@dataclass(frozen=True)
class Change:
    """A table's changes: KiB of each as Debezium's JSON, and the seconds that it takes of the source's one task
    (``capture``) and of its commit (``decoding``)."""

    kib: float
    capture: float
    decoding: float


@dataclass(frozen=True)
class Table:
    """A table: its changes, and the file groups (buckets of all partitions that change) and rows over which they are
    spread evenly; ``row_bytes`` are those of a row in a base file."""

    arrivals: Arrivals
    change: Change
    file_groups: int
    rows: int
    row_bytes: int = 100

    @property
    def most_changes(self) -> int:
        """How many changes the driver commits at once."""
        return max(int(_HELD_BYTES / (self.change.kib * 1024)), 1)

    def touched(self, changes: int) -> float:
        """How many file groups that many changes fall into on average."""
        return self.file_groups * (1 - (1 - 1 / self.file_groups) ** changes)

    @property
    def planned(self) -> int:
        """How many file groups one plan of a compaction takes: until they are so large, where each counts for a MiB at
        least."""
        mib = max(self.rows * self.row_bytes / self.file_groups / 2**20, 1.0)
        return max(int(_PLANNED_MIB / mib), 1)


@dataclass(frozen=True)
class Setting:
    """What the pipeline runs with: the sink's flush interval in seconds, the writer's pause, and the ``cores`` of the
    machine of its driver. Other programs there take ``others`` of them on average, in short jobs that come by chance;
    where there are any, the way to S3 is theirs, and takes longer where cores are wanting. Readers look every ``look``
    seconds whether there is something new; 0 for at once."""

    flush: float
    pause: IdlePause
    cores: float
    others: float = 0.0
    look: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """What came of it. ``freshness`` are seconds with their number of changes, sorted; ``backlog`` are the changes that
    were not readable in the end; ``source_busy`` is the share of a core that the source's one task took,
    ``busy`` the share of the time in which the busiest table's writer committed, and ``cores_used`` the share of all
    cores that was taken; ``commits`` are those of all tables."""

    freshness: tuple[tuple[float, int], ...]
    backlog: int
    source_busy: float
    busy: float
    cores_used: float
    commits: int

    def percentile(self, percent: float) -> float:
        """The smallest freshness that at least ``percent`` of the readable changes do not exceed; infinite where a
        backlog makes that unknown."""
        wanted = percent / 100 * (self.backlog + sum(changes for _, changes in self.freshness))
        reached = 0
        for seconds, changes in self.freshness:
            reached += changes
            if reached >= wanted:
                return seconds
        return math.inf


def evenly(changes_per_second: float, seconds: float, seed: int = 0) -> Arrivals:
    """Changes that come one by one, independently of each other (a Poisson process), in bins of ``STEP``."""
    rng = random.Random(seed)  # noqa: S311 - can be repeated, not secret
    mean = changes_per_second * STEP
    bins = ((number * STEP, _poisson(rng, mean)) for number in range(round(seconds / STEP)))
    return [(at, changes) for at, changes in bins if changes]


def _poisson(rng: random.Random, mean: float) -> int:
    if mean > 30:  # the normal distribution is as good
        return max(round(rng.gauss(mean, math.sqrt(mean))), 0)
    limit, count, product = math.exp(-mean), 0, rng.random()
    while product > limit:
        count += 1
        product *= rng.random()
    return count


@dataclass
class _Job:
    """Work for the cores: the seconds that are left of it, and on how many cores it can be done."""

    left: float
    width: float = 1.0


_Waiting = deque[tuple[float, float, int]]
"""When changes can go on, when they were made, and how many. What is on its way to S3 goes by the time of the programs
there, which stands still where they have no cores."""


@dataclass
class _Writer:
    """A table on its way: what is captured, landed and being committed."""

    table: Table
    costs: Costs
    setting: Setting
    captured: _Waiting = field(default_factory=deque)
    open: list[tuple[float, int]] = field(default_factory=list)
    opened_at: float = 0.0
    sealed_at: float = -math.inf
    landed: _Waiting = field(default_factory=deque)
    batch: list[tuple[float, int]] = field(default_factory=list)
    commit: _Job | None = None
    compaction: _Job | None = None
    next_look: float = 0.0
    idle_looks: int = 0
    commits: int = 0
    since_compaction: int = 0
    compacted: int = 0
    left_over: bool = False
    log_files: list[float] = field(default_factory=list)
    busy: float = 0.0

    def __post_init__(self) -> None:
        self.log_files = [0.0] * self.table.file_groups

    def land(self, now: float, theirs: float) -> None:
        """Gather what is captured in an object, and land that when it is due. ``theirs`` is the time of the programs on
        the way to S3."""
        while self.captured and self.captured[0][0] <= theirs:
            _, made, changes = self.captured.popleft()
            if not self.open:
                self.opened_at = now
            self.open.append((made, changes))
        flush = self.setting.flush
        gathered = max(self.opened_at + flush / _GATHERING_PART, self.sealed_at + flush)
        if self.open and now >= min(gathered, self.opened_at + flush):
            self.landed += [(theirs + self.costs.landing, made, changes) for made, changes in self.open]
            self.open, self.sealed_at = [], now

    def look(self, now: float, theirs: float) -> None:
        """Begin a commit of what has landed, or wait longer."""
        waits = self.compaction is not None and max(self.log_files) >= _LOG_FILES_TO_WAIT
        if self.commit is not None or now < self.next_look or waits:
            return
        changes = 0
        while self.landed and self.landed[0][0] <= theirs and changes < self.table.most_changes:
            _, made, several = self.landed.popleft()
            taken = min(several, self.table.most_changes - changes)
            self.batch.append((made, taken))
            changes += taken
            if taken < several:
                self.landed.appendleft((theirs, made, several - taken))
        if not changes:
            self.idle_looks += 1
            self.next_look = now + self.setting.pause.after(self.idle_looks)
            return
        self.idle_looks = 0
        touched, costs = self.table.touched(changes), self.costs
        self.commit = _Job(costs.commit + costs.file_group * touched + self.table.change.decoding * changes)
        self.log_files = [depth + touched / self.table.file_groups for depth in self.log_files]

    def complete(self) -> list[tuple[float, int]]:
        """End the commit, and return what is readable now."""
        readable, self.batch, self.commit = self.batch, [], None
        self.commits += 1
        self.since_compaction += 1
        return readable

    def plan_compaction(self) -> None:
        """Begin to merge the deepest file groups, where it is time and some are deep enough."""
        due = self.since_compaction >= _COMMITS_TO_COMPACTION or self.left_over
        if self.compaction is not None or not due:
            return
        deepest = sorted(range(self.table.file_groups), key=lambda group: -self.log_files[group])
        deep = [group for group in deepest if self.log_files[group] >= _LOG_FILES_TO_COMPACT]
        chosen = deep[: self.table.planned]
        # It follows at once.
        self.left_over = len(deep) > len(chosen)
        if chosen:
            merged = sum(self.log_files[group] for group in chosen)
            rows = self.table.rows * len(chosen) / self.table.file_groups
            self.compaction = _Job(self.costs.log_file * merged + self.costs.row * rows)
            self.compacted, self.since_compaction = len(chosen), 0
            for group in chosen:
                self.log_files[group] = 0.0

    def compact_on(self, cores: float) -> None:
        """Let the compaction have so many cores, or as many threads as there are where it has fallen behind."""
        if self.compaction is not None:
            most = _THREADS_BEHIND if max(self.log_files) >= _LOG_FILES_BEHIND else cores
            self.compaction.width = min(most, self.compacted)

    @property
    def left(self) -> int:
        """The changes that are not readable."""
        waiting = sum(changes for *_, changes in (*self.captured, *self.landed))
        return waiting + sum(changes for _, changes in (*self.open, *self.batch))


def simulate(tables: Sequence[Table], costs: Costs, setting: Setting, seconds: float, drain: float = 0.0) -> Outcome:
    """Let the tables' changes arrive for so many ``seconds``, and what has arrived go on for ``drain`` more, in which
    nothing but freshness is counted."""
    writers = [_Writer(table, costs, setting) for table in tables]
    arriving = deque(_made_by_table(writers))
    theirs = free = 0.0
    others = deque(evenly(setting.others / _OTHERS_JOB, seconds, len(tables)))
    jobs_of_others: list[_Job] = []
    freshness: list[tuple[float, int]] = []
    used = 0.0
    for step in range(round((seconds + drain) / STEP)):
        now = step * STEP
        while arriving and arriving[0][0] <= now:
            made, changes, writer = arriving.popleft()
            # The source has one task for all tables.
            free = max(free, theirs + made - now) + writer.table.change.capture * changes
            writer.captured.append((free + costs.transport, made, changes))
        for writer in writers:
            writer.land(now, theirs)
            # First a commit that has waited for a compaction to end.
            writer.look(now, theirs)
            writer.plan_compaction()
        while others and others[0][0] <= now:
            jobs_of_others += [_Job(_OTHERS_JOB) for _ in range(others.popleft()[1])]
        worked, share = _work(writers, jobs_of_others, setting.cores)
        theirs += STEP * (share if setting.others else 1.0)
        if now < seconds:
            used += worked
            for writer in writers:
                writer.busy += STEP if writer.commit is not None else 0.0
        jobs_of_others = [job for job in jobs_of_others if job.left > 0]
        for writer in writers:
            if writer.commit is not None and writer.commit.left <= 0:
                seen = math.ceil((now + STEP) / setting.look) * setting.look if setting.look else now + STEP
                freshness += [(seen - made, changes) for made, changes in writer.complete()]
            if writer.compaction is not None and writer.compaction.left <= 0:
                writer.compaction = None
    return Outcome(
        freshness=tuple(sorted(freshness)),
        backlog=sum(writer.left for writer in writers) + sum(changes for _, changes, _ in arriving),
        source_busy=min(sum(table.change.capture * _made(table.arrivals) for table in tables) / seconds, 1.0),
        busy=max(writer.busy for writer in writers) / seconds,
        cores_used=used / (setting.cores * seconds),
        commits=sum(writer.commits for writer in writers),
    )


def _made(arrivals: Arrivals) -> int:
    return sum(changes for _, changes in arrivals)


def _made_by_table(writers: Sequence[_Writer]) -> Iterator[tuple[float, int, _Writer]]:
    """When changes are made, how many, and whose, in the order of time."""
    merged = heapq.merge(
        *([(at, number, changes) for at, changes in writer.table.arrivals] for number, writer in enumerate(writers))
    )
    return ((made, changes, writers[number]) for made, number, changes in merged)


def _work(writers: Sequence[_Writer], others: Sequence[_Job], cores: float) -> tuple[float, float]:
    """Do a step of all jobs, which share the cores evenly, each up to its width; return the seconds of cores that it
    took, and the share of the time that each job had of a core."""
    compacting = sum(writer.compaction is not None for writer in writers)
    for writer in writers:
        # Together they have half of the cores.
        writer.compact_on(max(cores / 2, 1.0) / max(compacting, 1))
    jobs = [job for writer in writers for job in (writer.commit, writer.compaction) if job is not None]
    jobs += others
    wanted = sum(job.width for job in jobs)
    share = min(cores / wanted, 1.0) if wanted else 1.0
    used = 0.0
    for job in jobs:
        used += min(job.width * STEP * share, job.left)
        job.left -= job.width * STEP * share
    return used, share
