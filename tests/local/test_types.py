"""Every PostgreSQL type that contracts may name, from a real PostgreSQL through Debezium, Kafka, S3 and Spark."""

from __future__ import annotations

import base64
import gzip
import hmac
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import psycopg
import pyarrow.parquet as pq
import pytest
from psycopg import sql

from headwater.contract.reading import read_contracts
from headwater.errors import UserError
from headwater.lake.decoding.debezium_decoder import PostgresDecoder, order
from headwater.postgresql import absence
from headwater.postgresql.row_images import SESSION, row_images
from rig.local.pipeline import DATABASE, LAKE, LAKE_BUCKET, LANDING_BUCKET, Pipeline
from tests import programs
from tests.lake_folders import lake_folder
from tests.stores import Trace, traces

CONTRACTS = Path(__file__).parent / "types"
TABLE = """
CREATE SCHEMA shop;
CREATE TYPE shop.mood AS ENUM ('sad', 'ok');
CREATE TABLE shop.things (
    id integer PRIMARY KEY, c_smallint smallint, c_bigint bigint, c_bigint_text bigint, c_numeric numeric(38,10),
    c_numeric_free numeric, c_real real, c_double double precision, c_boolean boolean, c_char character(5),
    c_varchar varchar(20), c_text text, c_date date, c_date_text date, c_time time, c_timestamp timestamp,
    c_timestamp3 timestamp(3), c_timestamp_text timestamp, c_timestamptz timestamptz, c_timestamptz_text timestamptz,
    c_interval interval, c_uuid uuid, c_json json, c_jsonb jsonb, c_bytea bytea, c_ints integer[],
    c_numerics numeric(10,2)[], c_texts text[], c_doubles double precision[], c_booleans boolean[], c_uuids uuid[],
    c_dates date[], c_timestamptzs timestamptz[], c_enum shop.mood, c_int4range int4range, c_int8range int8range,
    c_numrange numrange, c_tsrange tsrange, c_tstzrange tstzrange, c_daterange daterange,
    c_inet inet, c_cidr cidr, c_macaddr macaddr, c_macaddr8 macaddr8, c_jsons json[], c_jsonbs jsonb[],
    t_month date, t_day timestamp, t_hour timestamptz, t_seconds integer, t_millis bigint, t_text uuid,
    c_masked text NOT NULL DEFAULT 'swordfish', c_nulled integer NOT NULL DEFAULT 271828182,
    password_hash text DEFAULT 'hunter2', pin text DEFAULT 'hunter2'
);
"""
UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
# Column and values, as PostgreSQL reads them, that the lake's type can hold exactly.
EXACT: dict[str, list[str]] = {
    "c_smallint": ["-32768", "32767", "0"],
    "c_bigint": ["-9223372036854775808", "9223372036854775807"],
    "c_bigint_text": ["-9223372036854775808", "9007199254740993"],
    "c_numeric": ["1234567890123456789012345678.0123456789", "-0.0000000001", "1.50", "0"],
    "c_numeric_free": ["NaN", "Infinity", "-Infinity", "1e-50", "1e40", "1.500", "-0.0"],
    "c_real": ["1.1", "NaN", "Infinity", "-Infinity", "-0", "3.4028235e38", "1e-45", "16777217"],
    "c_double": ["0.1", "NaN", "-Infinity", "-0", "1.7976931348623157e308", "5e-324", "1e21", "123456789.123456789"],
    "c_boolean": ["true", "false"],
    "c_char": ["ab", ""],
    "c_varchar": ["", "zürich", " x "],
    "c_text": ["", 'a\nb\t"c"\\', "😀 \u2028", "__debezium_unavailable_value", "null"],
    "c_date": ["2024-02-29", "1970-01-01", "1582-10-26", "9999-12-31"],
    "c_date_text": ["2024-02-29", "1582-10-26", "9999-12-31"],
    "c_time": ["24:00", "00:00", "23:59:59.999999", "12:05:11.5"],
    "c_timestamp": ["2024-01-01 00:00:00.123456", "1969-12-31 23:59:59.999999", "9999-12-31 23:59:59.999999"],
    "c_timestamp3": ["2024-01-01 00:00:00.123", "1969-12-31 23:59:59.999"],
    "c_timestamp_text": ["2024-01-01 00:00:00.100000", "2024-01-01 10:20:00"],
    "c_timestamptz": ["2024-03-31 02:30:00+02", "1600-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00"],
    "c_timestamptz_text": ["infinity", "-infinity", "2024-01-01 00:00:00.5+05:30"],
    "c_interval": ["1 year 2 mons 3 days 04:05:06.789", "-1 days +02:00", "-0.5 sec", "178000000 years", "0"],
    "c_uuid": [UUID],
    "c_json": ['{"a": 1.10, "a":2}', "null", '"x"'],
    "c_jsonb": ['{"a": 1.10, "b": ["x", null]}', "null", "{}"],
    "c_bytea": ["\\x00ff10", "\\x"],
    "c_ints": ["{1,NULL,-2147483648}", "{}"],
    "c_numerics": ["{1.50,NULL,-99999999.99}", "{}"],
    "c_texts": ['{a,NULL,"","x,y"}', "{}", '{"{{a}}",NaN}'],
    "c_doubles": ["{1.5,NaN,-Infinity}"],
    "c_booleans": ["{t,f,NULL}"],
    "c_uuids": [f"{{{UUID}}}"],
    "c_dates": ["{2024-02-29,NULL}"],
    "c_timestamptzs": ["{2024-01-01 00:00:00+02,infinity,NULL}"],
    "c_enum": ["sad", "ok"],
    "c_int4range": ["[1,5)", "empty", "(,)"],
    "c_int8range": ["[1,9223372036854775806)"],
    "c_numrange": ["[1.5,2)", "(,2]"],
    "c_tsrange": ["[2024-01-01,2024-01-02)", "empty"],
    "c_tstzrange": ["[2024-01-01 00:00:00+02,)"],
    "c_daterange": ["[2024-01-01,2024-01-05)"],
    "c_inet": ["10.1.2.3", "10.1.2.3/8", "::1", "2001:db8::/32"],
    "c_cidr": ["10.0.0.0/8", "10.1.2.3/32"],
    "c_macaddr": ["08:00:2b:01:02:03"],
    "c_macaddr8": ["08:00:2b:01:02:03:04:05"],
    "c_jsons": ['{"{\\"a\\": 1.10}",NULL,"null"}', "{}"],
    "c_jsonbs": ['{"{\\"a\\": 1.10}",NULL,"null"}', "{}"],
    "t_month": ["2024-02-29", "1582-10-26", "9999-12-31"],
    "t_day": ["2024-02-29 23:59:59.999999", "1969-12-31 23:59:59.999999", "9999-12-31 23:59:59.999999"],
    "t_hour": ["2024-03-31 02:30:00+02", "1969-12-31 23:59:59.999999+00"],
    "t_seconds": ["-1", "1709251199", "-2147483648"],
    "t_millis": ["1709251199999", "-62135596800000", "253402300799999"],
    "t_text": [UUID],
}
# Values that the lake's type cannot hold, or that Debezium does not carry: null, and kept as they came, never changed.
UNFIT: dict[str, list[str]] = {
    "c_numeric": ["NaN"],
    "c_date": ["infinity", "-infinity", "0044-03-15 BC", "10000-01-01", "5874897-12-31"],
    "c_date_text": ["infinity", "-infinity"],
    "c_timestamp": ["infinity", "-infinity", "0044-03-15 BC", "10000-01-01", "294276-12-31 23:59:59.999999"],
    "c_timestamp3": ["infinity", "10000-01-01"],
    "c_timestamp_text": ["-infinity"],
    "c_timestamptz": ["infinity", "-infinity", "0044-03-15 BC", "294276-12-31"],
    "t_month": ["infinity", "0044-03-15 BC", "10000-01-01"],
    "t_day": ["-infinity", "0044-03-15 10:00:00 BC", "294276-12-31 23:59:59.999999"],
    "t_hour": ["infinity", "0044-03-15 10:00:00 BC", "294276-12-31"],
    "t_millis": ["253402300800000", "-62135596800001", "9223372036854775807"],
    "c_jsonb": ['{"a": 1.00001}', "[1]", '{"b": [5]}'],
    "c_dates": ["{infinity}", "{0044-03-15 BC}"],
    "c_ints": ["{{1,2},{3,4}}", "[2:3][0:1]={{1,2},{3,4}}"],
    "c_numerics": ["{NaN,1.50}", "{{1.50}}"],
    "c_texts": ["{{a,b}}"],
}
# Right in a streamed change, refused in a snapshot.
EARLY: dict[str, list[str]] = {
    "c_date": ["1582-10-10", "1582-10-15", "0001-01-01"],
    "c_timestamp": ["1500-02-28 12:00:00"],
    "t_month": ["1582-10-15", "0001-01-01"],
    "c_timestamptz": ["1500-02-28 12:00:00+00"],
}


def insert(connection: psycopg.Connection, first: int, values: dict[str, list[str]]) -> set[int]:
    """One row per value, with all other columns null; returns their ids."""
    rows = [(column, value) for column, listed in values.items() for value in listed]
    for number, (column, value) in enumerate(rows, first):
        connection.execute(f"INSERT INTO shop.things (id, {column}) VALUES ({number}, %s)".encode(), (value,))
    return set(range(first, first + len(rows)))


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """A pipeline that has drained all values, as rows of a snapshot and as changes."""

    def load(owner: psycopg.Connection) -> None:
        insert(owner, 1, EXACT)
        insert(owner, 1001, UNFIT)
        insert(owner, 1501, EARLY)

    folder = tmp_path_factory.mktemp("types")
    with Pipeline(folder, read_contracts(CONTRACTS), lake_folder(folder / "lake", CONTRACTS), sql=TABLE) as pipeline:
        # Most rows are here to be unfit.
        pipeline.start(lambda text: nullcontext(), load, "--max-unfit-share", "1")
        pipeline.drain()
        with pipeline.postgres.connect(DATABASE) as owner:
            insert(owner, 2001, EXACT)
            insert(owner, 3001, UNFIT)
            insert(owner, 3501, EARLY)
        pipeline.drain()
        yield pipeline


@pytest.fixture(scope="module", autouse=True)
def reported_unfit(pipeline: Pipeline) -> int:
    """How many rows with a value that does not fit the writer has reported before any test."""
    return sum(event["unfit"] for event in pipeline.commits())


def test_every_value_arrives_exactly_or_is_kept_beside_its_row(pipeline: Pipeline, reported_unfit: int) -> None:
    (compared,) = pipeline.verify()
    unfit, early = (sum(map(len, values.values())) for values in (UNFIT, EARLY))
    assert (compared.missing, compared.extra, compared.different) == (0, 0, 0), compared.examples
    assert compared.unfit == 2 * unfit + early, compared.examples
    assert reported_unfit == compared.unfit
    # The contract excludes one column of the source, and drops the other because it does not name it.
    landed = list(landed_values(pipeline))
    assert len(landed) > len(EXACT)
    assert not [value for value in landed if b"hunter2" in value or b"password_hash" in value or b'"pin"' in value]


def test_a_copy_shows_rows_as_debeziums_snapshot_does(pipeline: Pipeline) -> None:
    """The values agree, and so do the kept unfit ones, except for dates that Debezium shifts and counts."""
    (contract,) = pipeline.contracts
    with pipeline.postgres.connect(DATABASE) as owner:
        for name, value in SESSION.items():
            owner.execute("SELECT set_config(%s, %s, false)", (name, value))
        images = row_images(owner, contract)
        assert images.left_out == []
        statement = images.copied(sql.Identifier("shop", "things"), sql.SQL("id < 2000"))
        with owner.cursor().copy(statement) as copied:
            ours = {image["id"]: image for image in (json.loads(bytes(line)) for line in copied)}
    events = [json.loads(value) for value in landed_values(pipeline)]
    theirs = {event["after"]["id"]: event for event in events if event["op"] == "r"}
    assert theirs.keys() == ours.keys()
    decoder = PostgresDecoder(contract)
    names = [name for name, _ in contract.lake_columns()]
    for id_, event in theirs.items():
        # What is masked by hmac the command masks.
        image = {**ours[id_], "c_masked": event["after"]["c_masked"]}
        assert image.keys() == event["after"].keys()
        (mine,), (its,) = (
            decoder.decode(json.dumps(each).encode(), "").rows for each in ({**event, "after": image}, event)
        )
        for name, one, other in zip(names, mine, its, strict=True):
            if name == "_rest" and id_ > 1000:
                one, other = (json.loads(rest).keys() if rest else None for rest in (one, other))
            assert repr(one) == repr(other), (id_, name)


def test_what_is_masked_is_nowhere_behind_the_source_connector(pipeline: Pipeline) -> None:
    with pipeline.postgres.connect(DATABASE) as owner:
        insert(owner, 4001, {"c_varchar": ["before"], "c_numeric": ["NaN"]})
        owner.execute("UPDATE shop.things SET c_varchar = 'after' WHERE id = 4001")
        owner.execute("DELETE FROM shop.things WHERE id = 4002")
    pipeline.drain()
    (compared,) = pipeline.verify()
    assert (compared.missing, compared.extra, compared.different) == (0, 0, 0), compared.examples
    mask = hmac.new(pipeline.mask_key, b"swordfish", "sha256").hexdigest().encode()
    landed = list(landed_values(pipeline))
    events = [json.loads(value) for value in landed]
    masks = {row["c_masked"] for event in events for row in (event.get("before"), event.get("after")) if row}
    nulls = {row["c_nulled"] for event in events for row in (event.get("before"), event.get("after")) if row}
    assert (masks, nulls) == ({mask.decode()}, {None})
    assert {event["op"] for event in events} >= {"r", "c", "u", "d"}
    # Topics' records are not compressed.
    topics = [path.read_bytes() for path in (pipeline.folder / "kafka").rglob("*.log") if path.is_file()]
    for stored in (landed, topics, list(lake_contents(pipeline))):
        assert any(mask in content for content in stored)
        for clear in (b"swordfish", b"271828182", pipeline.mask_key):
            assert not any(clear in content for content in stored)
    logs = [path.read_bytes() for path in (pipeline.folder / "connect").rglob("*.log")]
    assert logs
    assert not any(clear in log for log in logs for clear in (b"swordfish", pipeline.mask_key))


def test_what_a_row_was_before_the_source_is_asked_has_a_lower_order_than_another_row_of_its_key(
    pipeline: Pipeline,
) -> None:
    keys = [{"id": ("integer", str(id_))} for id_ in (6001, 6002)]
    with pipeline.postgres.connect(DATABASE) as owner:
        for id_ in (6001, 6002):
            insert(owner, id_, {"c_text": ["old"]})
        assert absence.absent_until(owner, "shop.things", keys[0]) is None
        owner.execute("DELETE FROM shop.things WHERE id IN (6001, 6002)")
        position = absence.absent_until(owner, "shop.things", keys[0])
        insert(owner, 6001, {"c_text": ["new"]})
    assert position is not None
    pipeline.drain()
    (contract,) = pipeline.contracts
    rows = [row for batch in pipeline.lake().table(contract) for row in batch.to_pylist()]
    orders = {row["id"]: row["_order"] for row in rows if row["id"] in (6001, 6002)}
    assert orders[6002] < order(1, position, position, snapshot=False) < orders[6001]


def test_a_person_is_forgotten_by_the_command_while_changes_are_on_their_way_and_a_new_one_may_come(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    def lived(owner: psycopg.Connection) -> None:
        insert(owner, 771177, {"c_text": ["Zebedee"]})
        owner.execute("UPDATE shop.things SET c_text = 'Zachariah' WHERE id = 771177")

    markers = ["771177", "Zebedee", "Zachariah"]

    def found() -> list[Trace]:
        s3 = pipeline.aws.client("s3")
        return [trace for bucket in (LAKE_BUCKET, LANDING_BUCKET) for trace in traces(s3, bucket, "", markers)]

    def forget() -> subprocess.CompletedProcess[str]:
        server = pipeline.postgres
        options = {
            "--lake": LAKE,
            "--endpoint": pipeline.aws.s3_endpoint,
            "--host": server.host,
            "--port": str(server.port),
            "--user": server.superuser,
            "--database": DATABASE,
            "--folder": str(pipeline.lake_folder.root),
            "--receipt": str(tmp_path / "receipt.json"),
        }
        listed = [part for pair in options.items() for part in pair]
        environment = {**pipeline.aws.environment(), "HEADWATER_DB_PASSWORD": server.password}
        command = [sys.executable, "-m", "headwater.cli", "forget", "things", "771177", *listed]
        return programs.run(command, env=environment)

    with pipeline.postgres.connect(DATABASE) as owner:
        key = {
            "a": ("character(5)", "ab"),
            "b": ("integer", "007"),
            "c": ("uuid", UUID.upper()),
            "d": ("date", "2024-2-9"),
        }
        assert absence.spelled(owner, key) == ["ab   ", "7", UUID, "2024-02-09"]
        for type_, text in (("character varying(2)", "abc"), ("integer", "x")):
            with pytest.raises(UserError, match=f"expected a {type_.partition('(')[0]}"):
                absence.spelled(owner, {"a": (type_, text)})
        lived(owner)
        pipeline.drain()
        assert found() != []
        refused = forget()
        assert refused.returncode == 2
        assert "shop.things: found the row, expected none" in refused.stderr

        for _ in range(20):
            owner.execute("UPDATE shop.things SET c_text = 'Zebedee' WHERE id = 771177")
        owner.execute("DELETE FROM shop.things WHERE id = 771177")
        done = forget()
        assert done.returncode == 0, done.stderr
        receipt = json.loads((tmp_path / "receipt.json").read_text())
        assert receipt["searched"]["things"]["rows"] == 1
        assert "771177" not in done.stdout + json.dumps(receipt)
        pipeline.drain()
        assert found() == []
        insert(owner, 771177, {"c_text": ["Yolanda"]})
    pipeline.drain()
    (compared,) = pipeline.verify()
    assert (compared.missing, compared.extra, compared.different) == (0, 0, 0), compared.examples
    assert {marker for trace in found() for marker in trace.told} == {"771177"}


def lake_contents(pipeline: Pipeline) -> Iterator[bytes]:
    """All objects of the lake's bucket, quarantine among them, Parquet as its rows' text."""
    s3 = pipeline.aws.client("s3")
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=LAKE_BUCKET):
        for entry in page.get("Contents", ()):
            body = s3.get_object(Bucket=LAKE_BUCKET, Key=entry["Key"])["Body"].read()
            yield gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body
            if entry["Key"].endswith(".parquet"):
                yield repr(pq.read_table(io.BytesIO(body)).to_pylist()).encode()


def landed_values(pipeline: Pipeline) -> Iterator[bytes]:
    """The events that left the source connector, as Debezium's JSON, but for those that gave way to a forgotten key."""
    s3 = pipeline.aws.client("s3")
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=LANDING_BUCKET):
        for entry in page.get("Contents", ()):
            body = s3.get_object(Bucket=LANDING_BUCKET, Key=entry["Key"])["Body"].read()
            values = [json.loads(line)["value"] for line in gzip.decompress(body).splitlines()]
            yield from (base64.b64decode(value) for value in values if value is not None)
