"""The change log that the benchmark applies, what it compares a table with, and its report."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.lake.decoding.changes import Decoded
from headwater.lake.decoding.debezium_decoder import PostgresDecoder
from rig.benchmark import change_log, commits, report
from rig.benchmark.change_log import ChangeLog, LandingBody, differences
from rig.benchmark.commits import Backlog, BacklogScale, Followed, Many, Measured, Scale
from rig.benchmark.decoding import DecoderFigures

CONTRACT = change_log.contract(4)
COLUMNS = [name for name, _ in CONTRACT.lake_columns()]


def landed(log: ChangeLog) -> list[LandingBody]:
    return [*log.snapshot(per_object=300), *(log.batch(200) for _ in range(5))]


def decoded(bodies: list[LandingBody]) -> list[Decoded]:
    decoder = PostgresDecoder(CONTRACT)
    found = []
    for body in bodies:
        for line in gzip.decompress(body.body).decode().splitlines():
            record = json.loads(line)
            value, key = (base64.b64decode(record[name]) for name in ("value", "key"))
            found.append(decoder.decode(value, f"{change_log.TOPIC}/0/{record['offset']}", key=key))
    return found


def test_a_log_ends_in_what_the_shipped_decoder_makes_of_it() -> None:
    log = ChangeLog(rows=1_000)
    newest: dict[int, dict[str, object]] = {}
    ops = set()
    for change in decoded(landed(log)):
        (values,) = change.rows
        row = dict(zip(COLUMNS, values, strict=True))
        assert not row["_unfit"]
        ops.add(row["_op"])
        assert row["_order"] > newest.get(row["id"], {"_order": ""})["_order"]
        newest[row["id"]] = row
    assert ops == {"c", "u", "d"}
    alive = [row for row in newest.values() if not row["_deleted"]]
    table = pa.table({name: pa.array([row[name] for row in alive], pa.int64()) for name in ("id", "version")})
    assert 1_000 < len(alive) < len(newest)
    assert differences(log.expected(), table) == 0


def test_objects_follow_each_other_and_are_the_same_each_time() -> None:
    one, other = (landed(ChangeLog(rows=1_000)) for _ in range(2))
    assert [(body.first, body.next) for body in one] == [(body.first, body.next) for body in other]
    assert [gzip.decompress(body.body) for body in one] == [gzip.decompress(body.body) for body in other]
    assert [body.first for body in one[1:]] == [body.next for body in one[:-1]]
    assert one[1].key == "0/00000000000000000300.jsonl.gz"


@pytest.mark.parametrize(
    ("found", "differ"),
    [
        ([(1, 5), (2, 6), (3, 7)], 0),
        ([(3, 7), (1, 5), (2, 6)], 0),
        ([(1, 5), (2, 6)], 1),
        ([(1, 5), (2, 6), (3, 7), (3, 7)], 1),
        ([(1, 5), (2, 6), (3, 7), (4, 8)], 1),
        ([(1, 5), (2, 9), (3, 7)], 1),
        ([], 3),
    ],
)
def test_a_row_that_is_missing_twice_or_another_differs(found: list[tuple[int, int]], differ: int) -> None:
    def table(rows: list[tuple[int, int]]) -> pa.Table:
        return pa.table(
            {name: pa.array([row[at] for row in rows], pa.int64()) for at, name in enumerate(("id", "version"))}
        )

    assert differences(table([(1, 5), (2, 6), (3, 7)]), table(found)) == differ


SCALE = Scale(rows=20_000, buckets=4, changes=1_000, commits=4)


def test_later_commits_are_held_to_those_around_the_twentieth() -> None:
    seconds = (9.0,) * 10 + (2.0,) * 20 + (9.0,) * 10 + (3.0,) * 20
    assert (commits.growth(seconds, 30), commits.growth(seconds)) == (1.0, 1.5)
    young, old = (Followed(each, peak_memory_bytes=1, differences=0) for each in (seconds, (9.0,) * 10 + (5.0,) * 20))
    assert Many(SCALE, young, young, old).growth == 2.5


def test_a_backlog_counts_until_the_writer_is_done() -> None:
    scale = BacklogScale(rows=100, buckets=1, objects=4, changes=300)
    drained = Backlog(scale, ((300, 3.0), (300, 1.0), (600, 1.0)), seconds=6.0, peak_memory_bytes=1, differences=0)
    assert (drained.changes_per_second, drained.median_changes_per_second) == (200, 300)


def measured(system: str, *seconds: float, differ: int | None = 0) -> Measured:
    return Measured(system, SCALE, 9.5, seconds, 0.5, 512 * 2**20, reads=20, writes=10, differences=differ)


def test_a_report_tells_each_median_as_a_multiple_of_ours(tmp_path: Path) -> None:
    ours, theirs = measured(commits.OURS[0].system, 0.5, 0.4, 0.6, 2.0), measured("Iceberg", 1.0, 1.2, 1.0, 9.0)
    assert (ours.median, ours.p99) == (0.55, 2.0)
    assert ours.changes_per_second == pytest.approx(4_000 / 4.0)
    decoder = DecoderFigures(
        0, record_bytes=1_000, decoder_per_second=40, deserializer_per_second=10, one_image_per_second=20
    )
    report.build(tmp_path, report.Run([ours, theirs], [decoder], None, 0.75))
    document = json.loads((tmp_path / "report.json").read_text())
    assert [each["times_headwater"] for each in document["commits"]] == [1.0, 2.0]
    assert document["commits"][1]["commit_seconds"] == [1.0, 1.2, 1.0, 9.0]
    # 250 hours a month with a commit every ten seconds, at $0.43 and $5.40 a million.
    bill = 90_000 * (20 * 0.43 + 10 * 5.4) / 1e6
    assert document["commits"][0]["s3_requests_dollars_a_month"] == pytest.approx(bill, abs=0.01)
    page = (tmp_path / "report.html").read_text()
    assert "Every table ended in the rows of the log" in page
    assert "20,000 rows, 1,000 changes per commit" in page


def test_a_report_names_the_system_whose_rows_differ(tmp_path: Path) -> None:
    ours, theirs = measured(commits.OURS[0].system, 0.5), measured("Iceberg", 1.0, differ=3)
    report.build(tmp_path, report.Run([ours, theirs, measured("a limit", 0.1, differ=None)], [], None, 0.75))
    page = (tmp_path / "report.html").read_text()
    assert "✗ Iceberg: not the rows of the log" in page
    assert "Every table" not in page
