"""A table's change history gives the table as of any instant, as its source was then, and each version of its rows."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from random import Random
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from headwater.contract.model import EXPIRED, ROW_OPS, Contract, History, change_history, lake_tables
from headwater.lake.requests.expired_history import ExpiredHistory
from headwater.lake.requests.protocol import DONE
from headwater.lake.sources.table_copy import TableCopy
from headwater.lake.table.writer import WriterSettings
from headwater.verify import read_lake
from tests.history_analyst import DATABASE, Analyst
from tests.lake.pipeline import BUCKET, Landed, Leases, Pipeline, account, event, in_epoch
from tests.lake.readers import Hudi015, comparable, read_by_writer
from tests.lake.test_copy_backfill import Copies
from tests.lake.test_replay import drain, relational, step_options, step_work

INSTANTS = 1000
MILLISECOND = dt.timedelta(milliseconds=1)
State = dict[int, tuple[str, str]]
"""Month and name of each row, by its id."""


@dataclass
class Source:
    """A PostgreSQL table: what happens to it, the records of it, and what it held at each instant.

    Its clock goes on by leaps of up to some hours from thirty days ago on; now and then it stands still or goes back.
    """

    random: Random
    records: list[Landed] = field(default_factory=list)
    state: State = field(default_factory=dict)
    commits: list[tuple[dt.datetime, Callable[[State], None]]] = field(default_factory=list)
    lsn: int = 1000
    epoch: int = 1
    now: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC).replace(microsecond=0) - dt.timedelta(30))
    begins: dt.datetime | None = None

    def as_of(self, instant: dt.datetime) -> State:
        """The table at an instant: all that was committed by then, in the order of the log."""
        state: State = {}
        for at, change in self.commits:
            if at <= instant:
                change(state)
        return state

    def snapshot(self) -> None:
        """Read the table, as a new connector does, and tell its end."""
        for id_ in sorted(self.state):
            self._record("r", after=self._image(id_), snapshot="true")
        self._record("t", snapshot="last")
        self._hold_just_these()

    def copy(self, copies: Copies, at: dt.datetime) -> TableCopy:
        """Copy the table as of that time, which is later than all that has happened, into three files."""
        assert at > max(when for when, _ in self.commits)
        self.now = at
        self._hold_just_these()
        rows = [self._image(id_) for id_ in sorted(self.state)]
        return copies.make(*(rows[first::3] for first in range(3)), lsn=self.lsn, epoch=self.epoch, at=at)

    def _hold_just_these(self) -> None:
        """Note that what no longer is in the source is known to be gone by now."""
        there = dict(self.state)

        def known(state: State) -> None:
            state.clear()
            state.update(there)

        self._commit(known)
        self.begins = self.begins or self.now

    def read_again(self) -> None:
        """Read the table beside its changes, as a signal asks for, and tell its end, as the connector does."""
        self.now += dt.timedelta(hours=1)
        before, self.lsn = self.lsn, self.lsn + 8
        for id_ in sorted(self.state):
            self._record("r", after=self._image(id_), snapshot="incremental")
            row = self.records[-1].value["source"]
            row["sequence"] = json.dumps([None, str(self.lsn)])
        self._record("t", snapshot="incremental")
        self.records[-1].value["source"]["lsn"] = before + 4

    def happens(self, times: int = 1, leap: dt.timedelta = dt.timedelta(hours=3)) -> None:
        """Commit transactions of one to three changes, mostly one to three leaps after one another."""
        for _ in range(times):
            self.now += self.random.choice(
                [dt.timedelta(), MILLISECOND, dt.timedelta(minutes=-3), *[leap] * 9]
            ) * self.random.randint(1, 3)
            for _ in range(self.random.randint(1, 3)):
                self._change()

    def _change(self) -> None:
        kind = self.random.choices(["put", "move", "rekey", "delete", "truncate"], [12, 4, 1, 4, 0.1])[0]
        id_ = self.random.randint(1, 12)
        if kind == "truncate":
            self._record("t")
            self.state.clear()
            self._commit(State.clear)
        elif id_ not in self.state:
            self._put("c", id_, ("2024-01", self._name()))
        elif kind == "delete":
            self._record("d", before=self._image(id_))
            self._gone(id_)
        elif kind == "rekey":
            self._rekey(id_, id_ + 100)
        else:
            month = self.random.choice(["2024-01", "2024-02"]) if kind == "move" else self.state[id_][0]
            self._put("u", id_, (month, self._name()))

    def _rekey(self, id_: int, other: int) -> None:
        """Change a row's primary key: Debezium makes a delete and an insert of it."""
        if other in self.state:
            return
        values = self.state[id_]
        there = base64.b64encode(b"{}").decode()
        self._record("d", before=self._image(id_), headers=(("__debezium.newkey", there),))
        self._gone(id_)
        self.lsn -= 8
        self._put("c", other, values, headers=(("__debezium.oldkey", there),))

    def _put(self, op: str, id_: int, values: tuple[str, str], headers: tuple[tuple[str, str], ...] = ()) -> None:
        before = self._image(id_) if op == "u" else None
        self.state[id_] = values
        self._record(op, before, self._image(id_), headers=headers)
        self._commit(lambda state: state.update({id_: values}))

    def _gone(self, id_: int) -> None:
        del self.state[id_]
        self._commit(lambda state: state.pop(id_, None))

    def _commit(self, change: Callable[[State], Any]) -> None:
        self.commits.append((self.now, change))

    def _record(
        self,
        op: str,
        before: dict[str, Any] | None = None,
        after: dict[str, Any] | None = None,
        snapshot: str = "false",
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.lsn += 8 if snapshot == "false" else 0
        made = event(op, self.lsn, before, after, snapshot)
        made["source"]["ts_us"] = round(self.now.timestamp() * 1_000_000)
        self.records.append(Landed(made, headers=(*headers, *in_epoch(self.epoch))))

    def _image(self, id_: int) -> dict[str, Any]:
        month, name = self.state[id_]
        return account(id_, name, month)

    def _name(self) -> str:
        return f"name {self.random.randint(1, 10**6)}"


def with_history(pipeline: Pipeline, keep_days: int) -> Contract:
    """The contract of a table with a history, which the pipeline writes from now on."""
    table = replace(pipeline.contract, history=History(keep_days))
    history = change_history(table)
    assert history is not None
    pipeline.contract = history
    pipeline.glue.create_table(
        DatabaseName=pipeline.database,
        TableInput={
            "Name": history.table,
            "PartitionKeys": [{"Name": name, "Type": "string"} for name in history.partitions],
            "StorageDescriptor": {"Location": f"{pipeline.lake}/{history.table}", "Columns": []},
        },
    )
    return table


def read_history(pipeline: Pipeline) -> pa.Table:
    """All rows of the history, read by hudi-rs."""
    return pa.Table.from_batches(list(read_lake(f"{pipeline.lake}/{pipeline.contract.table}", pipeline.storage)))


def asked(pipeline: Pipeline, contract: Contract) -> Analyst:
    """An analyst of the lake's present contents."""
    return Analyst(contract, read_history(pipeline))


def as_of(analyst: Analyst, instant: dt.datetime) -> State:
    """The table at an instant."""
    return state_of(analyst.as_of(instant))


def state_of(rows: list[dict[str, Any]]) -> State:
    return {row["id"]: (row["month"], row["name"]) for row in rows}


def assert_as_of(analyst: Analyst, source: Source, begins: dt.datetime) -> None:
    """The table is as its source was at instants at random."""
    asked_for = list(instants(source, begins))
    for instant, rows in zip(asked_for, analyst.as_of_each(asked_for), strict=True):
        assert state_of(rows) == source.as_of(instant), instant
    assert as_of(analyst, asked_for[0]) == source.as_of(asked_for[0])


def instants(source: Source, begins: dt.datetime) -> Iterator[dt.datetime]:
    """Instants at random; half of them are instants of changes."""
    times = [at for at, _ in source.commits if at >= begins]
    for _ in range(INSTANTS // 2):
        yield source.random.choice(times)
        yield begins + MILLISECOND * source.random.randint(0, (max(times) - begins) // MILLISECOND)


def lived(seed: int) -> Source:
    """A source with its history: rows, a first snapshot, changes, an epoch that begins anew, changes."""
    source = Source(Random(seed))
    source.happens(5)
    source.records.clear()
    source.snapshot()
    source.happens(60)
    # The slot is lost: what happens until the next snapshot is told by that alone.
    told, commits = len(source.records), len(source.commits)
    source.happens()
    del source.records[told:], source.commits[commits:]
    source.epoch, source.lsn = 2, 50
    source.now += dt.timedelta(hours=1)
    source.snapshot()
    source.happens(60)
    return source


def land(pipeline: Pipeline, source: Source) -> None:
    """Land a source's records in objects of any size; some come twice."""
    at = 0
    while at < len(source.records):
        until = at + source.random.randint(1, 40)
        pipeline.land_records(source.records[at:until], 0)
        at = until if source.random.random() < 0.7 else max(until - 10, at + 1)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_table_as_of_any_instant_is_as_its_source_was(pipeline: Pipeline, seed: int) -> None:
    contract = with_history(pipeline, keep_days=60)
    source = lived(seed)
    land(pipeline, source)
    pipeline.drain()
    analyst = asked(pipeline, contract)
    begins, until = analyst.span()
    assert begins == source.begins
    assert until == max(at for at, _ in source.commits)
    assert_as_of(analyst, source, begins)
    # All that came twice is there once.
    pipeline.land_records(source.records, 0)
    pipeline.drain()
    assert asked(pipeline, contract).rows == analyst.rows


@pytest.mark.parametrize(("seed", "is_truncated"), [(12, False), (13, True)])
def test_a_history_that_begins_with_a_copy_is_as_its_source_was(
    pipeline: Pipeline, seed: int, is_truncated: bool
) -> None:
    """The slot is made before the copy, so the changes before the copy wait for it. It is lost once, and another copy,
    of a raised epoch, brings what happened meanwhile."""
    contract = with_history(pipeline, keep_days=60)
    copies = Copies(pipeline, pipeline.contract.table)
    source = Source(Random(seed))
    today = source.now + dt.timedelta(29)
    source.happens(25)
    source.records.clear()
    source.happens(25)
    truncated = [record.value["source"]["ts_us"] for record in source.records if record.value["op"] == "t"]
    assert bool(truncated) == is_truncated
    land(pipeline, source)
    drain(relational(pipeline, await_backfill=True))
    assert copies.commits() == 0
    first = source.copy(copies, today + dt.timedelta(hours=4))
    source.records.clear()
    source.happens(3, dt.timedelta(minutes=20))
    land(pipeline, source)
    assert copies.load(first, await_backfill=True).state == DONE
    begins, _ = asked(pipeline, contract).span()
    # Behind a TRUNCATE nothing is left of before the slot.
    assert begins == min([first.time, *(dt.datetime.fromtimestamp(micros / 10**6, dt.UTC) for micros in truncated)])
    # The slot is lost.
    commits = len(source.commits)
    source.happens(8, dt.timedelta(minutes=20))
    del source.commits[commits:]
    source.epoch, source.lsn = 2, 50
    source.records.clear()
    source.happens(3, dt.timedelta(minutes=20))
    land(pipeline, source)
    drain(relational(pipeline, await_backfill=True))
    second = source.copy(copies, today + dt.timedelta(hours=23))
    source.records.clear()
    source.happens(25, dt.timedelta(minutes=1))
    land(pipeline, source)
    # The rows come in parts, with changes between them.
    assert copies.load(second, await_backfill=True, batch_bytes=1).state == DONE
    analyst = asked(pipeline, contract)
    assert analyst.span() == (begins, max(at for at, _ in source.commits))
    assert_as_of(analyst, source, begins)
    before, then = second.time - MILLISECOND, second.time
    assert source.as_of(before) != source.as_of(then)
    for instant in (before, then):
        assert as_of(analyst, instant) == source.as_of(instant)


def test_what_has_expired_goes_and_what_is_known_since_stays(pipeline: Pipeline) -> None:
    contract = with_history(pipeline, keep_days=20)
    source = lived(4)
    land(pipeline, source)
    changes = pipeline.writer()
    while changes.commit_next():
        pass
    changes.writer.settle()
    before = asked(pipeline, contract)
    keep = dt.timedelta(20)
    ExpiredHistory(changes.writer, keep, tombstones=None).do_next()
    with_deletes = asked(pipeline, contract)
    ExpiredHistory(changes.writer, keep, tombstones=dt.timedelta(1)).do_next()
    after = asked(pipeline, contract)
    assert before.rows > with_deletes.rows > after.rows
    horizon = dt.datetime.now(dt.UTC) - keep
    old = f"SELECT id, _op FROM {DATABASE}.accounts_changes WHERE _source_ts <= ?"
    left = after.connection.execute(old, [horizon.replace(tzinfo=None)]).fetchall()
    assert sorted(id_ for id_, op in left if op in ROW_OPS) == sorted(source.as_of(horizon))
    assert sorted(op for _, op in left if op not in ROW_OPS) == [EXPIRED, EXPIRED, "t"]
    # What has gone is not asked for where more days are to be kept later.
    longer, _ = Analyst(replace(contract, history=History(60)), read_history(pipeline)).span()
    assert dt.timedelta() <= longer - horizon + dt.timedelta(minutes=5) < dt.timedelta(minutes=6)
    begins, _ = after.span()
    assert_as_of(after, source, begins)
    cursor = changes.writer.progress.cursor
    assert pipeline.writer().writer.progress.cursor == cursor


def test_a_delete_stays_while_an_earlier_change_has_a_later_time(pipeline: Pipeline) -> None:
    contract = with_history(pipeline, keep_days=20)
    source = Source(Random(7))
    source.snapshot()
    source.now += dt.timedelta(days=11)
    source._put("c", 7, ("2024-02", "Ann"))
    # The clock goes back, over the horizon.
    source.now -= dt.timedelta(days=2)
    source._record("d", before=source._image(7))
    source._gone(7)
    pipeline.land_records(source.records, 0)
    pipeline.drain()
    writer = pipeline.writer().writer
    ExpiredHistory(writer, dt.timedelta(20), tombstones=dt.timedelta(1)).do_next()
    analyst = asked(pipeline, contract)
    assert as_of(analyst, dt.datetime.now(dt.UTC)) == {}
    assert sorted(row["_op"] for row in read_history(pipeline).to_pylist()) == ["c", "d", "t"]


def test_a_late_change_brings_no_row_back_whose_delete_has_expired(pipeline: Pipeline) -> None:
    contract = with_history(pipeline, keep_days=20)
    source = Source(Random(10))
    source.snapshot()
    for id_ in (7, 8):
        source._put("c", id_, ("2024-02", "Ann"))
    at = len(source.records)
    for id_ in (7, 8):
        source._put("u", id_, ("2024-02", "late"))
    withheld = source.records[at:]
    del source.records[at:]
    source._record("d", before=source._image(7))
    source._gone(7)
    source._put("u", 8, ("2024-02", "Bea"))
    pipeline.land_records(source.records, 0)
    pipeline.drain()
    ExpiredHistory(pipeline.writer().writer, dt.timedelta(20), tombstones=dt.timedelta(1)).do_next()
    pipeline.land_records(withheld, 0)
    pipeline.drain(max_bad_share=1.0)
    assert as_of(asked(pipeline, contract), dt.datetime.now(dt.UTC)) == source.state == {8: ("2024-02", "Bea")}
    assert [event["records"] for event in pipeline.events if event["event"] == "quarantine"] == [1]


@pytest.mark.parametrize("held_bytes", [0, WriterSettings.held_bytes])
def test_a_history_that_begins_late_is_whole_when_all_rows_were_read_again(pipeline: Pipeline, held_bytes: int) -> None:
    contract = with_history(pipeline, keep_days=60)
    source = Source(Random(8))
    source.state = dict.fromkeys(range(1, 6), ("2024-01", "Ann"))
    source.snapshot()
    # Of the snapshot, which was long ago, only the last rows and its end are still landed.
    pipeline.next_offset(3)
    pipeline.land_records(source.records[3:], 0)
    pipeline.drain(held_bytes=held_bytes)
    with pytest.raises(duckdb.ConversionException, match="expected an instant from the end of a first snapshot"):
        as_of(asked(pipeline, contract), dt.datetime.now(dt.UTC))
    source.records.clear()
    source.read_again()
    pipeline.land_records(source.records, 0)
    pipeline.drain(held_bytes=held_bytes)
    analyst = asked(pipeline, contract)
    assert analyst.span()[0] == source.now
    assert as_of(analyst, source.now) == source.state
    assert [event["event"] for event in pipeline.events].count("begins late") == 1


def test_what_was_read_again_before_a_late_beginning_is_seen_counts(pipeline: Pipeline) -> None:
    contract = with_history(pipeline, keep_days=60)
    source = Source(Random(9))
    source.state = dict.fromkeys(range(1, 6), ("2024-01", "Ann"))
    source.snapshot()
    source.happens(3)
    source.read_again()
    pipeline.next_offset(3)
    pipeline.land_records(source.records[3:], 0)
    pipeline.drain()
    analyst = asked(pipeline, contract)
    assert analyst.span()[0] == source.now
    assert as_of(analyst, source.now) == source.state


def test_an_instant_before_the_history_is_refused(pipeline: Pipeline) -> None:
    contract = with_history(pipeline, keep_days=60)
    source = lived(4)
    # Without its first record the snapshot has not ended in the history's sight.
    first = [record for record in source.records[:30] if record.value["op"] != "t"]
    pipeline.land_records(first, 0)
    pipeline.drain()
    with pytest.raises(duckdb.ConversionException, match="expected an instant from the end of a first snapshot"):
        as_of(asked(pipeline, contract), source.now)
    pipeline.land_records(source.records[len(first) :], 0)
    pipeline.drain()
    analyst = asked(pipeline, contract)
    begins, _ = analyst.span()
    as_of(analyst, begins)
    with pytest.raises(duckdb.ConversionException, match=f"expected an instant from {begins:%Y-%m-%d %H:%M:%S}"):
        as_of(analyst, begins - MILLISECOND)
    with pytest.raises(duckdb.ConversionException, match="expected an instant from"):
        analyst.asks("accounts_changes_between", begins - MILLISECOND, begins)


def test_changes_between_two_instants_and_versions_of_a_row(pipeline: Pipeline) -> None:
    contract = with_history(pipeline, keep_days=60)
    source = Source(Random(5))
    source.snapshot()
    times = []
    for op, name in [("c", "Ann"), ("u", "Bea"), ("u", "Cleo")]:
        source.now += dt.timedelta(hours=1)
        times.append(source.now)
        source._put(op, 7, ("2024-02", name))
    # Two changes of one instant: the order decides, and nobody could see the first.
    source._put("u", 7, ("2024-02", "Dora"))
    source.now += dt.timedelta(hours=1)
    source._record("d", before=source._image(7))
    source._gone(7)
    pipeline.land_records(source.records, 0)
    pipeline.drain()
    analyst = asked(pipeline, contract)
    between = analyst.asks("accounts_changes_between", times[0], times[2])
    found = [(row["_op"], row["_deleted"], row["name"]) for row in between]
    assert found == [("u", False, "Bea"), ("u", False, "Cleo"), ("u", False, "Dora")]
    versions = f"SELECT name, valid_from, valid_to FROM {DATABASE}.accounts_versions ORDER BY valid_from"
    naive = [time.replace(tzinfo=None) for time in (*times, source.now)]
    assert analyst.connection.execute(versions).fetchall() == [
        ("Ann", naive[0], naive[1]),
        ("Bea", naive[1], naive[2]),
        ("Dora", naive[2], naive[3]),
    ]


def test_every_reader_sees_the_same_history(pipeline: Pipeline, hudi_015: Hudi015) -> None:
    with_history(pipeline, keep_days=60)
    land(pipeline, lived(6))
    pipeline.drain()
    uri = f"{pipeline.lake}/accounts_changes"
    by_writer, (by_015,) = read_by_writer(pipeline.spark, uri), hudi_015.read([uri])
    by_order = partial(sorted, key=itemgetter("_key"))
    assert by_order(by_writer) == by_order(by_015)
    assert by_order(by_writer) == by_order([comparable(row) for row in read_history(pipeline).to_pylist()])


def test_spark_reads_what_hudi_keeps_of_a_table(pipeline: Pipeline) -> None:
    pipeline.land(event("c", 10, after=account(1)), event("c", 11, after=account(2)))
    pipeline.drain()
    first = pipeline.events[-1]["instant"]
    pipeline.land(event("u", 20, account(1), account(1, "Bea")))
    pipeline.drain()
    second = pipeline.events[-1]["instant"]

    def names(**options: str) -> list[tuple[int, str]]:
        written = {name.replace("__", "."): value for name, value in options.items()}
        read = pipeline.spark.read.format("hudi").options(**written).load(f"{pipeline.lake}/accounts")
        return [tuple(row) for row in read.select("id", "name").orderBy("id").collect()]

    assert names() == [(1, "Bea"), (2, "Ann")]
    assert names(as__of__instant=first) == [(1, "Ann"), (2, "Ann")]
    incremental = {"hoodie__datasource__query__type": "incremental"}
    assert names(**incremental, hoodie__datasource__read__begin__instanttime=first) == [(1, "Bea")]
    assert names(**incremental, hoodie__datasource__read__begin__instanttime=second) == []


def test_what_has_landed_stays_until_the_table_and_its_history_have_it(pipeline: Pipeline) -> None:
    table = pipeline.contract
    contract = with_history(pipeline, keep_days=60)
    for id_ in (1, 2, 3):
        pipeline.land(event("c", 10 + id_, after=account(id_)))
    tables = lake_tables([contract])
    leases = {each.table: Leases(pipeline.s3, f"{pipeline.lake}/_leases/{each.table}.json") for each in tables}
    taken: Any = SimpleNamespace(take=lambda name: leases[name].take())
    job = replace(pipeline.job(step_options(pipeline, landing_days=0)), contracts=tables, leases=taken)

    def landed() -> int:
        folder = f"{pipeline.prefix}/landing/"
        return int(pipeline.s3.list_objects_v2(Bucket=BUCKET, Prefix=folder)["KeyCount"])

    of_table = step_work(job, tables[0])
    drain(of_table)
    of_history = step_work(job, tables[1])
    drain(of_table)
    assert landed() == 3
    drain(of_history)
    assert landed() == 1
    assert read_history(pipeline).num_rows == 3
    pipeline.contract = table
    assert len(pipeline.alive()) == 3
