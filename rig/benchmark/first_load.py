"""How fast the existing rows of a PostgreSQL table reach the lake, while others write to the table.

Two ways are measured: the shipped ``headwater backfill``, and Debezium's snapshot through Kafka, the sink and the
writer.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headwater.console import Announce
from headwater.contract.reading import read_contracts
from headwater.definitions import connectors
from headwater.errors import UserError
from headwater.folder_lock import claimed_empty
from headwater.lake_folder import EXAMPLE, LakeFolder
from headwater.waiting import wait_until
from rig.benchmark import change_log
from rig.demo.memory import MemoryWatch
from rig.local.pipeline import DATABASE, LAKE, Pipeline

ROWS = 5_000_000
PEERS_ROWS = 500_000
"""The rows of the table for Debezium, whose rate does not depend on the table's size."""
_TABLE = "shop.payments"
_BUCKETS = 8
_MEMORY = "3g"
_SAMPLE_SECONDS = 2.0
_CHANGES_A_SECOND = 50
_SQL = f"""
CREATE SCHEMA shop;
CREATE TABLE {_TABLE} (id bigint PRIMARY KEY, account_id bigint, region text, status text, amount numeric(12, 2),
    placed_at timestamptz, updated_at timestamptz, version bigint, note text);
"""
# Rows of some 300 bytes; the notes are as hard to compress as natural language.
_FILL = f"""
INSERT INTO {_TABLE} SELECT number, number * 31 % 100003, 'region-' || lpad((number % 32)::text, 2, '0'), 'new',
    (number::bigint * 7919 % 100000000) / 100.0, now() - number * interval '1 second', now(), 0,
    (SELECT string_agg(substr('of the and to in is was for on are as with they at be this have from or had by hot but '
        'some what there we can out other were all your when up use word how said an each she', 1
        + ((number * 2654435761 + place * 40503) % 140)::int, 12), ' ') FROM generate_series(1, 14) AS place)
FROM generate_series(1::bigint, {{rows}}) AS number
"""


@dataclass(frozen=True)
class FirstLoad:
    """The figures of one table's first load."""

    rows: int
    """The table's rows."""
    seconds: float
    """The seconds until all rows were in the lake."""
    reading_seconds: float
    """The part of ``seconds`` for reading the source."""
    peak_memory_bytes: int
    """The sum of the parts' peaks."""
    differences: int
    """The rows that differ between source and lake at the end."""

    @property
    def rows_a_second(self) -> float:
        """The mean rate."""
        return self.rows / self.seconds


def run(announce: Announce, rows: int = ROWS, folder: Path = EXAMPLE.run / "bench-first-load") -> FirstLoad:
    """Measure ``headwater backfill``, from the start of the command, with a writer that has just started."""
    with _started(announce, folder, rows, connectors.NO_DATA) as pipeline:
        # The connector reads nothing. It is ready once its slot exists.
        wait_until("the source connector's slot", lambda: _has_slot(pipeline))
        with (
            announce(f"Loading {rows:,} rows by headwater backfill, with {_CHANGES_A_SECOND} changes a second"),
            MemoryWatch(pipeline.memory_bytes, _SAMPLE_SECONDS) as memory,
            _changing(pipeline, rows),
        ):
            began = time.monotonic()
            read_at = _backfill(pipeline, folder)
            ended = time.monotonic()
        return _measured(announce, pipeline, rows, ended - began, read_at - began, memory)


def run_peer(announce: Announce, rows: int = PEERS_ROWS, folder: Path = EXAMPLE.run / "bench-first-load") -> FirstLoad:
    """Measure Debezium's own snapshot, from the start of the connectors on."""
    with _started(announce, folder, rows, connectors.CaptureSettings.snapshot_mode) as pipeline:
        with (
            announce(f"Loading {rows:,} rows by Debezium's snapshot"),
            MemoryWatch(pipeline.memory_bytes, _SAMPLE_SECONDS) as memory,
        ):
            began = time.monotonic()
            committed = partial(_committed, pipeline)
            wait_until("the rows to be in the lake", lambda: committed() >= rows, committed, poll=0.25)
            seconds = time.monotonic() - began
        return _measured(announce, pipeline, rows, seconds, seconds, memory)


@contextmanager
def _started(announce: Announce, folder: Path, rows: int, snapshot_mode: str) -> Iterator[Pipeline]:
    """A pipeline over a table with this many rows, whose connectors have just started."""
    with claimed_empty(folder, "the benchmark of the first load"):
        described = LakeFolder.make(folder / "lake", "first-load").contracts
        (described / f"{change_log.TABLE}.yaml").write_text(change_log.contract_text(_BUCKETS))
        contracts = read_contracts(described)
        with Pipeline(folder, contracts, sql=_SQL, snapshot_mode=snapshot_mode) as pipeline:
            with announce(f"Creating a table of {rows:,} rows"):
                pipeline.start_source()
                with pipeline.postgres.connect(DATABASE) as owner:
                    owner.execute(_FILL.format(rows=rows).encode())
                    owner.execute(f"VACUUM ANALYZE {_TABLE}".encode())
            with announce("Starting Kafka, the writer and the connectors"):
                pipeline.start_stream()
                pipeline.start_writer(memory=_MEMORY, optimized=True)
                wait_until("the writer to poll", lambda: bool(pipeline.events.update()))
                pipeline.start_connect()
            yield pipeline


def _measured(
    announce: Announce, pipeline: Pipeline, rows: int, seconds: float, reading: float, memory: MemoryWatch
) -> FirstLoad:
    with announce("Comparing the lake with the source"):
        pipeline.drain()
        (compared,) = pipeline.verify()
    differences = compared.missing + compared.extra + compared.different
    return FirstLoad(rows, seconds, reading, sum(memory.peak.values()), differences)


def _has_slot(pipeline: Pipeline) -> bool:
    pipeline.check()
    with pipeline.source() as source:
        query = "SELECT FROM pg_replication_slots WHERE slot_name = %s AND active"
        return source.execute(query, (connectors.SLOT,)).fetchone() is not None


def _committed(pipeline: Pipeline) -> int:
    pipeline.writer.check()
    return sum(commit["changes"] for commit in pipeline.commits())


def _backfill(pipeline: Pipeline, folder: Path) -> float:
    """Run the shipped command, and return when it has read the table."""
    server = pipeline.postgres
    options = {
        "--table": change_log.TABLE,
        "--lake": LAKE,
        "--endpoint": pipeline.aws.s3_endpoint,
        "--folder": str(folder / "lake"),
        "--host": server.host,
        "--port": str(server.port),
        "--user": server.superuser,
        "--database": DATABASE,
    }
    command = [sys.executable, "-m", "headwater.cli", "backfill", *(part for pair in options.items() for part in pair)]
    # The user's libpq variables are meant for another server.
    others = {name: value for name, value in pipeline.aws.environment().items() if not name.startswith("PG")}
    environment = {**others, "HEADWATER_DB_PASSWORD": server.password}
    read_at = 0.0
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as running:
        for line in running.stdout or ():
            if line.startswith("Requested"):
                read_at = time.monotonic()
    if running.returncode:
        raise UserError(f"headwater backfill ended with {running.returncode}")
    return read_at


@contextmanager
def _changing(pipeline: Pipeline, rows: int) -> Iterator[None]:
    """Change rows during the measurement: updates, inserts and deletes."""
    ends = threading.Event()
    drawn = random.Random(7)  # noqa: S311 - can be repeated, not secret

    def change() -> None:
        with pipeline.postgres.connect(DATABASE) as owner:
            made = rows
            while not ends.wait(1 / _CHANGES_A_SECOND):
                kind, key = drawn.random(), drawn.randint(1, made)
                if kind < 0.1:
                    made += 1
                    owner.execute(
                        f"INSERT INTO {_TABLE} (id, status, version) VALUES (%s, 'late', 0)".encode(), (made,)
                    )
                elif kind < 0.2:
                    owner.execute(f"DELETE FROM {_TABLE} WHERE id = %s".encode(), (key,))
                else:
                    owner.execute(f"UPDATE {_TABLE} SET version = version + 1 WHERE id = %s".encode(), (key,))

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()
