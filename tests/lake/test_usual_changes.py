"""What the JVM makes of usual changes is what ``debezium_decoder`` makes of them; all else it leaves."""

from __future__ import annotations

import base64
import gzip
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater.contract.model import QUARANTINE, Contract, History, change_history
from headwater.contract.reading import parse_contract
from headwater.lake.decoding.batches import IS_LEFT, Counts, HeldBatch, SpreadBatch
from headwater.lake.decoding.debezium_decoder import PostgresDecoder, decode_lines
from headwater.lake.decoding.decoded_frame import decoded_frame
from headwater.lake.decoding.late_changes import latest
from headwater.lake.decoding.usual_changes import StoredObject, UsualChanges
from headwater.lake.table.writer import WriterSettings
from tests.lake.frames import texts
from tests.lake.pipeline import Pipeline, account, event

WIDE = parse_contract(
    """
table: things
description: Columns of all kinds.
source: {database: postgresql, table: shop.things}
key: [id, code]
partition_by: [month]
buckets: 1
columns:
  - {name: id, type: bigint, source_type: bigint}
  - {name: code, type: string, source_type: text}
  - {name: month, type: string, source_type: text}
  - {name: small, type: int, source_type: smallint}
  - {name: small_text, type: string, source_type: integer, from: small}
  - {name: amount, type: "decimal(12,2)", source_type: "numeric(12,2)"}
  - {name: wide, type: "decimal(38,10)", source_type: "numeric(38,10)"}
  - {name: share, type: "decimal(4,4)", source_type: "numeric(4,4)"}
  - {name: free, type: string, source_type: numeric}
  - {name: single, type: float, source_type: real}
  - {name: ratio, type: double, source_type: double precision}
  - {name: is_open, type: boolean, source_type: boolean}
  - {name: day, type: date, source_type: date}
  - {name: day_text, type: string, source_type: date, from: day}
  - {name: hour, type: string, source_type: time without time zone}
  - {name: at, type: timestamp, source_type: timestamp}
  - {name: at_text, type: string, source_type: timestamp, from: at}
  - {name: at3, type: timestamp, source_type: timestamp(3)}
  - {name: instant, type: timestamp, source_type: timestamptz}
  - {name: instant_text, type: string, source_type: timestamptz, from: instant}
  - {name: instant_hour, type: string, source_type: timestamptz, from: instant, transform: hour}
  - {name: at_hour, type: string, source_type: timestamp, from: at, transform: hour}
  - {name: at3_day, type: string, source_type: timestamp(3), from: at3, transform: day}
  - {name: day_month, type: string, source_type: date, from: day, transform: month}
  - {name: small_day, type: string, source_type: integer, from: small, transform: day(seconds)}
  - {name: id_hour, type: string, source_type: bigint, from: id, transform: hour(milliseconds)}
  - {name: id_bucket, type: int, source_type: bigint, from: id, transform: bucket(7)}
  - {name: code_bucket, type: int, source_type: text, from: code, transform: bucket(16)}
  - {name: raw, type: binary, source_type: bytea}
  - {name: tags, type: array<string>, source_type: "text[]"}
  - {name: sizes, type: array<int>, source_type: "integer[]"}
  - {name: sums, type: "array<decimal(10,2)>", source_type: "numeric(10,2)[]"}
  - {name: days, type: array<date>, source_type: "date[]"}
  - {name: document, type: string, source_type: jsonb, from: payload}
  - {name: city, type: string, from: payload.address.city}
  - {name: floor, type: int, from: payload.address.floor}
  - {name: since, type: date, from: payload.since}
  - {name: seen, type: timestamp, from: payload.seen}
  - {name: score, type: double, from: payload.score}
  - {name: lines, type: "array<struct<price:decimal(12,4),note:string,parts:array<int>,of:struct<a:bigint,b:boolean>>>",
     from: payload.lines}
""",
    "things.yaml",
)
NARROW = parse_contract(
    """
table: things
description: A key of other kinds; masks, and what is left out.
source: {database: postgresql, table: shop.things}
key: [day, small_text]
partition_by: []
buckets: 1
exclude: [ratio]
unnamed: drop
mask: {mail: hmac, Pin: null}
columns:
  - {name: amount, type: "decimal(12,2)", source_type: "numeric(12,2)"}
  - {name: day, type: date, source_type: date}
  - {name: small_text, type: string, source_type: integer, from: small}
  - {name: mail, type: string, source_type: text}
  - {name: payload, type: "struct<since:string,score:double>", source_type: jsonb}
""",
    "things.yaml",
)


def _history(contract: Contract) -> Contract:
    history = change_history(replace(contract, history=History(keep_days=1)))
    assert history is not None
    return history


CONTRACTS = {
    "wide": WIDE,
    "strict": replace(WIDE, on_unfit=QUARANTINE),
    "by the key": replace(WIDE, partition_by=("code",)),
    "by a date": replace(WIDE, partition_by=("day",)),
    "narrow": NARROW,
    "twice in the key": replace(WIDE, key=("small", "small_text")),
    "by a bucket of the key": replace(WIDE, partition_by=("id_bucket",)),
    "by an hour": replace(WIDE, partition_by=("instant_hour",)),
    "by a day of a number": replace(WIDE, partition_by=("small_day",)),
    "history": _history(WIDE),
}
_PLACES = ("id", "code", "month", "amount", "day", "small", "instant")
MASK = "0123456789abcdef" * 4
# Values as JSON, the usual ones first.
USUAL: dict[str, list[str]] = {
    "id": ["1", "-5", "253402300799999"],
    "code": ['"a"', '"urn:x:y"', '"ü \\" \\\\ /😀"', f'"{MASK}"'],
    "month": ['"2024-01"', '"ü:ß/a=b"'],
    "small": ["7", "-32768"],
    "amount": ['"1.50"', '"-9999999999.99"', '"0.00"', '"12"', '"100"'],
    "wide": ['"1234567890123456789012345678.0123456789"', '"-0.0000000001"', "null"],
    "share": ['"0.1234"', '"-0.5"', '"0"'],
    "free": ['"1234567890123456789012345678901234567890.50"', '"-0.5"', "null"],
    "single": ["1.1", "16777217", "-0.0", "1e-45", "3.4028235E38"],
    "ratio": ["0.1", "7", "1e21", "-1.7976931348623157E308", "5E-324", "123456789.123456789"],
    "is_open": ["true", "false", "null"],
    "day": ["19782", "-1", "2932896", "-141416"],
    "hour": ["0", "86400000000", "43511500000", "1"],
    "at": ["1700000000123456", "-1", "253402300799999999"],
    "at3": ["1700000000123", "-1"],
    "instant": ['"2024-02-29T12:30:45Z"', '"1969-12-31T23:59:59.123Z"', '"9999-12-31T23:59:59.999999Z"'],
    "raw": ['"00ffAb"', '""', "null"],
    "tags": ["null", '["a",null,"ü\\n"]', "[]", '[""]'],
    "sizes": ["[1,null,-5]", "[]", "null"],
    "sums": ['["1.50",null]', '["7"]'],
    "days": ["[19782,null]", "[-1]"],
    "mail": [f'"{MASK}"', "null"],
    "pin": ["null"],
    "unnamed": [
        '"x"',
        "null",
        "5",
        "true",
        "1.5",
        "0.0001",
        "-12.0",
        '["a",1,null]',
        '{"b":[1.5],"a":"ü"}',
        '"ü \\" \\\\ \\n\\t \\u0001 \\u007f/😀"',
    ],
}
DOCUMENTS = [
    '{"address":{"city":"Köln","floor":3},"since":"2024-02-29","score":0.5,"lines":[{"price":12.5,"note":"a",'
    '"parts":[1,null],"of":{"a":1,"b":true}},null,{"price":"7","note":null}]}',
    '{"address":null,"lines":[],"x":{"b":1.10,"a":[1,"ü\\n",null]},"seen":"2024-01-01T00:00:00.500Z"}',
    '{"address":{"city":"a","zip":1},"lines":[{"price":0,"more":[1]},{"of":{"c":{}}}],"score":3}',
    '{"score":-1.25, "since":null , "lines":null}',
    "null",
    "{}",
]
ODD: dict[str, list[str]] = {
    "id": ["9223372036854775808", "9223372036854775807", "253402300800000", "-62135596800001",
           "1.0", "true", "null", '"1"', "1e3", "-0"],
    "code": ["null", "5", '"\\ud800"', '"\\ud83d\\ude00"', '"__debezium_unavailable_value"', '""', f'"{"x" * 300}"'],
    "month": ["null", "null", '""', '"__HIVE_DEFAULT_PARTITION__"', '"a\\tb"', f'"{"m" * 201}"', "5", '"_a"',
              f'"{"ü" * 26}"'],
    "small": ["null", "0", "0", "32768", "2147483648", "1.5", '"7"'],
    "amount": ['"NAN"', '"1.005"', '"1.500"', '"1e2"', "1.5", "3", '"12345678901"', '"+1"', '" 1"', '"01.5"', '""',
               '"-0"'],
    "wide": ['"12345678901234567890123456789"', '"1E-3"'],
    "share": ['"1.0"', '"00.5"', "0"],
    "free": ['"NAN"', '"POSITIVE_INFINITY"', '"1E+5"', '"-0"', '"0x1"', "1"],
    "single": ['"NaN"', "3.5e38", "1e400", "-0", "true"],
    "ratio": ['"Infinity"', "1e400", "-0", "NaN", "null", "9007199254740993"],
    "is_open": ['"true"', "1"],
    "day": ["0", "0", "2932897", "-141417", "-719163", "2147483647", '"2024-01-01"', "1.0"],
    "hour": ["86400000001", "-1", '"12:00"'],
    "at": ["253402300800000000", "-62135596800000001", "9223372036854775807", "-12219292800000000"],
    "at3": ["253402300800000", "-12219206400001", "9223372036854775"],
    "instant": ['"infinity"', '"2024-02-30T00:00:00Z"', '"1500-01-01T00:00:00Z"', '"2024-01-01T24:00:00Z"',
                '"1970-01-01T00:00:00Z"', '"1970-01-01T00:00:00Z"',
                '"2024-01-01T00:00:00.1Z"', '"2024-01-01T00:00:00+02:00"', '"0000-01-01T00:00:00Z"', "5"],
    "raw": ['"0"', '"zz"', '"00 ff"', '"5f5f646562657a69756d5f756e617661696c61626c655f76616c7565"', '"0\\u0130"'],
    "mail": ['"a@b"', f'"{MASK.upper()}"', "5"],
    "pin": ['"1234"', f'"{MASK}"', "0"],
    "tags": ["5", '["__debezium_unavailable_value"]', '[["a"]]', "[1]", "{}", '["a","\\ud800"]'],
    "sizes": [str(list(b"__debezium_unavailable_value")), "[1.0]", "[2147483648]", '["a"]', str([7] * 28)],
    "sums": ['["NAN"]', "[1.5]", str(list(b"__debezium_unavailable_value")), '["1.005"]'],
    "days": ["[2932897]", str(list(b"__debezium_unavailable_value")), "[-200000]"],
    "unnamed": ["[1e5]", '{"a":1,"a":2}', "1e5", "0.00001", "1.10", "1234567890123456.5", "-0",
                '"__debezium_unavailable_value"', '{"__debezium_unavailable_value":"x"}',
                "12345678901234567890", '"\\udc00"'],
}  # fmt: skip
ODD_DOCUMENTS = [
    "", "{", "[1]", '{"lines":5}', '{"lines":[{"price":0.00001}]}', '{"address":{"city":5}}', '{"address":[1]}',
    '{"address":{"city":"a","city":"b"}}', '{"lines":[{"note":"a","note":"b"}]}', '{"x":1,"x":2}', '{"a.b":1}',
    '{"score":0.1234567890123456789}', '{"score":1e-5}', '{"score":-0}', '{"x":1e5}', '{"x":0.0000001}',
    '{"x":-0}', '{"since":"2024-2-9"}', '{"since":"0001-01-01","seen":"0001-01-01T00:00:00Z"}', '{"seen":"2024-01-01"}',
    '{"lines":[{"of":{"a":1.0}}]}', '{"lines":[{"of":{"a":9223372036854775808}}]}', '{"lines":[{"parts":[1.5]}]}',
    '{"x":' + "[" * 120 + "]" * 120 + "}", '{"x":' + "[" * 95 + "]" * 95 + "}", '{"x":NaN}', '{} {}', '{"a\\"b":1}',
    '{"\\ud83d\\ude00":1}', '{"😀":1,"\uffff":2}', '{"address":{"floor":2147483648}}', '"text"', "5",
    "__debezium_unavailable_value", '{"lines":[{"price":1e2}]}', '{"lines":[{"price":"1e2"}]}', '{"lines":{}}',
]  # fmt: skip
PLACEHOLDERS = [
    '"__debezium_unavailable_value"',
    '"5f5f646562657a69756d5f756e617661696c61626c655f76616c7565"',
    '"{\\"__debezium_unavailable_value\\":1}"',
    '["__debezium_unavailable_value"]',
    '["5f5f646562657a69756d5f756e617661696c61626c655f76616c7565"]',
    '["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]',
    '{"__debezium_unavailable_value":"x"}',
    str(list(b"__debezium_unavailable_value")),
    str([float(letter) for letter in b"__debezium_unavailable_value"]),
]
# Some are other ones when their escapes are read.
ODD_NAMES = ["we.ird", 'quo\\"ted', "😀", "\\u0069d", "\\u0075nnamed", "\\u006donth", "MAIL", ""]
USUAL_KEYS = [
    '{"id":1,"code":"a","amount":1,"day":1,"small":1,"instant":1}',
    '{"id":1,"code":"a","amount":1,"day":1,"small":1,"month":"2024-01"}',
]
KEYS = [
    '{"id":1,"code":"a","month":"2024-01"}',
    '{"id":1}',
    '{"id":1,"code":"a"}',
    "{}",
    "{",
    "[1]",
    '"x"',
    '{"id":NaN}',
    None,
]
ODD_HEADERS: list[list[str | None]] = [
    ["__debezium.newkey", "bnVsbA=="],
    ["headwater.identity", "aW5kZXg="],
    ["headwater.epoch", "eA=="],
    ["headwater.epoch", None],
    ["headwater.epoch", ""],
    ["other", None],
]


class Records:
    """Records of a topic, drawn: usual ones, and ones in which one thing or two are odd."""

    def __init__(self, seed: int, odd: float) -> None:
        self._rng = Random(seed)
        self._odd = odd

    def line(self, offset: int) -> str:
        """A landed line."""
        value = self._mutilated(self._event().encode("utf-8", "surrogatepass"))
        record: dict[str, Any] = {
            "offset": offset,
            "timestamp": 0,
            "key": _base64(self._key()),
            "value": None if self._rng.random() < 0.02 else base64.b64encode(value).decode(),
            "headers": self._headers(),
        }
        return json.dumps(record, separators=(", ", ": ") if self._is_odd(0.02) else (",", ":"))

    def _is_odd(self, share: float) -> bool:
        return self._rng.random() < self._odd * share

    def _key(self) -> str | None:
        return self._rng.choice(KEYS if self._is_odd(0.3) else USUAL_KEYS)

    def _headers(self) -> list[list[str | None]]:
        headers: list[list[str | None]] = []
        if self._rng.random() < 0.2:
            headers.append(["headwater.epoch", base64.b64encode(b"2").decode()])
        if self._is_odd(0.2):
            headers.append(self._rng.choice(ODD_HEADERS))
        return headers

    def _image(self) -> dict[str, str]:
        image = {name: self._rng.choice(values) for name, values in USUAL.items()}
        image["payload"] = json.dumps(self._rng.choice(DOCUMENTS), ensure_ascii=False)
        for _ in range(2):
            if self._is_odd(0.4):
                name = self._rng.choice(list(ODD))
                image[name] = self._rng.choice(ODD[name])
        if self._is_odd(0.3):
            image["payload"] = json.dumps(self._rng.choice(ODD_DOCUMENTS), ensure_ascii=self._rng.random() < 0.5)
        if self._is_odd(0.05):
            names = ["code", "free", "raw", "instant", "unnamed", "unnamed", "tags"]
            image[self._rng.choice(names)] = self._rng.choice(PLACEHOLDERS)
        if self._is_odd(0.02):
            # Half a surrogate pair, written by an escape that is escaped, anywhere among eight letters.
            half = self._rng.choice([r"\u005cud800", r"\\\u0075d800", r"\\u\u0064800"])
            image["payload"] = rf'"{{\"x\":\"{"a" * self._rng.randrange(8)}{half}\"}}"'
        if self._is_odd(0.1):
            del image[self._rng.choice(list(image))]
        if self._is_odd(0.2):
            image[self._rng.choice(ODD_NAMES)] = self._rng.choice(["1", "null", '"x"'])
        return image

    def _event(self) -> str:
        rng = self._rng
        op = rng.choice("ccuuuurd")
        after, before = self._image(), self._image()
        if not self._is_odd(0.3):
            before |= {name: after.get(name, "null") for name in _PLACES}
        commit = rng.randrange(10**12)
        if op == "d" and self._is_odd(0.4):
            before = dict.fromkeys(before, "null") | {
                name: before[name] for name in ("id", "code", "day", "small", "instant") if name in before
            }
        source = {
            "schema": '"shop"',
            "table": '"things"',
            "snapshot": '"true"' if op == "r" else rng.choice(['"false"', "null"]),
            "sequence": json.dumps(json.dumps([str(commit) if rng.random() < 0.8 else None, str(commit + 500)])),
            "lsn": str(commit + 500),
            "ts_us": "1700000000123456",
            "ts_ms": "1700000000123",
        }
        if op == "r" and rng.random() < 0.3:
            source |= {"snapshot": '"incremental"', "lsn": "null"}
        odd = {
            "schema": ["null", '"other"'],
            "snapshot": ["true", "null", '"last"', '"incremental"', '"last_in_data_collection"'],
            "sequence": [
                "null",
                "5",
                '"[]"',
                '"["',
                '"[\\"x\\",null]"',
                '"[\\"1\\",\\"2\\",\\"3\\"]"',
                '"[\\"1\\",null]"',
            ],
            "lsn": ["null", "-1", "1.5", '"5"', "99999999999999999999"],
            "ts_us": ["null", "1.5", "300000000000000000", '"5"'],
        }
        if self._is_odd(0.3):
            name = rng.choice(list(odd))
            source[name] = rng.choice(odd[name])
        if self._is_odd(0.1):
            del source[rng.choice(list(source))]
        images = {"before": _object(before) if op in "ud" else "null", "after": "null" if op == "d" else _object(after)}
        if self._is_odd(0.2):
            images[rng.choice(list(images))] = rng.choice(["null", "5", "{}", "[]"])
        members = [*images.items(), ("source", _object(source)), ("transaction", "null"), ("op", json.dumps(op))]
        if self._is_odd(0.1):
            members.append(rng.choice([*members, ("op", '"t"'), ("op", '"m"'), ("refused", '{"row":{}}')]))
        if self._is_odd(0.1):
            members.pop(rng.randrange(len(members)))
        return "{" + ",".join(f'"{name}":{value}' for name, value in members) + "}"

    def _mutilated(self, value: bytes) -> bytes:
        if not self._is_odd(0.1):
            return value
        at = self._rng.randrange(len(value))
        return self._rng.choice(
            [value[:at], value + b" x", b" " + value, b"\xef\xbb\xbf" + value, value[:at] + b"\xff" + value[at:], b"",
             b"{}", b"null", value.decode("utf-8", "replace").encode("utf-16"), value.replace(b"a", b"\xed\xa0\x80", 1)]
        )  # fmt: skip


def _object(members: Mapping[str, str]) -> str:
    return "{" + ",".join(f'"{name}":{value}' for name, value in members.items()) + "}"


def _base64(text: str | None) -> str | None:
    return None if text is None else base64.b64encode(text.encode()).decode()


def _body(lines: Sequence[str]) -> bytes:
    return gzip.compress("".join(line + "\n" for line in lines).encode())


@contextmanager
def _stored(bodies: Sequence[bytes]) -> Iterator[list[StoredObject]]:
    """Landing objects of one partition with these contents."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / str(number) for number in range(len(bodies))]
        for path, body in zip(paths, bodies, strict=True):
            path.write_bytes(body)
        yield [StoredObject("t/0", path.as_uri()) for path in paths]


def _by_jvm(spark: SparkSession, contract: Contract, lines: Sequence[str], purged: str) -> tuple[list[str], set[str]]:
    """The rows that the JVM makes of lines, and the lines that it leaves."""
    usual = UsualChanges(spark, contract, 1, purged)
    held = HeldBatch(spark, contract)
    # All of an object is held, or nothing of it.
    assert not held.add_decoded(usual.decoder.decode("t/0", _body(lines)), 1000)
    assert held.counts("", "") == Counts()
    bodies = [_body(lines[: len(lines) // 2]), _body(lines[len(lines) // 2 :])]
    for body in bodies:
        assert held.add_decoded(usual.decoder.decode("t/0", body), 2**31)
    left = held.take_left()
    assert all(raw.startswith("t/0 ") for raw in left)
    with _stored(bodies) as objects:
        in_spark = usual.frame(objects, 1).cache()
        in_spark.count()
    rows = texts(in_spark.where("_order IS NOT NULL"))
    held.add(usual.careful_rows(left))
    spread = in_spark.where(f"NOT ({IS_LEFT})").unionByName(usual.careful_frame(in_spark.where(IS_LEFT)))
    written = [latest(batch.where("_order IS NOT NULL"), contract) for batch in (held.frame(), spread)]
    of_driver, of_spark = (sorted(texts(batch)) for batch in written)
    assert of_driver == of_spark, "the driver does not write the rows that Spark writes"
    for floor in ("", f"{1:04d}1{10**9:020d}"):
        counts = SpreadBatch(spread).counts(purged, floor)
        assert held.counts(purged, floor) == replace(counts, careful=len(left))
        on_its_own = SpreadBatch(held.frame()).counts(purged, floor)
        assert on_its_own.with_those(held.counts_beside()) == held.counts(purged, floor)
    in_spark.unpersist()
    return rows, {raw.removeprefix("t/0 ") for raw in left}


@pytest.mark.parametrize("name", CONTRACTS)
@pytest.mark.parametrize("odd", [0.0, 0.5])
def test_the_jvm_decodes_as_the_careful_decoder_or_leaves_it(spark: SparkSession, name: str, odd: float) -> None:
    contract = CONTRACTS[name]
    # Some of the records are older.
    purged = f"{1:04d}1{10**10:020d}" if odd else ""
    records = Records(25, odd)
    lines = [records.line(offset) for offset in range(2500 if odd else 300)]
    rows, left = _by_jvm(spark, contract, lines, purged)
    expected: dict[str, list[tuple[Any, ...]]] = {}
    nothing = set()
    for offset, line in enumerate(lines):
        if line not in left:
            made = list(decode_lines(iter([("t/0", line)]), PostgresDecoder(contract), purged))
            if made:
                expected[f"t/0/{offset}"] = made
            else:
                nothing.add(line)
    alone = [made[0] for made in expected.values() if len(made) == 1]
    careful = texts(decoded_frame(spark, contract, spark.sparkContext.parallelize(alone, 1)))
    assert len(alone) == len(expected), "the JVM decodes a record of which there are several rows"
    assert rows == careful
    assert len(rows) + len(left) + len(nothing) == len(lines)
    ops = Counter(json.loads(row)["_op"] for row in rows)
    if odd:
        assert min(ops[op] for op in "cudr") > 30
        assert len(left) > 300
    else:
        assert not left


def test_lines_of_any_length_are_read_to_the_end_of_an_object(spark: SparkSession) -> None:
    records = Records(7, 0.0)
    lines = [line for line in map(records.line, range(40)) if '"value":null' not in line]
    after = {"day": 5, "small": 7, "mail": None, "x": "x" * 200_000}
    source = {"schema": "shop", "table": "things", "lsn": 9, "ts_us": 5, "snapshot": "false"}
    value = _base64(json.dumps({"op": "c", "before": None, "after": after, "source": source}))
    large = f'{{"offset":40,"timestamp":null,"key":null,"value":"{value}","headers":[]}}'
    # Several members of gzip, and no line feed at the end.
    body = _body([*lines[:10], large]) + gzip.compress("\n".join(lines[10:]).encode())
    held = HeldBatch(spark, NARROW)
    assert held.add_decoded(UsualChanges(spark, NARROW, 1, "").decoder.decode("t/0", body), 2**31)
    assert held.counts("", "").rows == len(lines) + 1
    assert held.take_left() == []


@pytest.mark.parametrize("held_bytes", [0, WriterSettings.held_bytes])
def test_changes_that_are_not_written_count(pipeline: Pipeline, held_bytes: int) -> None:
    changes = [event("u", lsn, account(lsn % 3), account(lsn % 3, f"v{lsn}")) for lsn in range(300)]
    moved = event("u", 1000, account(1), account(1, month="2024-02"))
    pipeline.land(*changes, moved, b"{}", b"[]")
    # Of the rows that are written, the bad records would be too many.
    pipeline.drain(held_bytes=held_bytes)
    pipeline.land(*(event("u", 2000 + lsn, account(0), account(0, f"w{lsn}")) for lsn in range(300)))
    pipeline.drain(held_bytes=held_bytes)
    commits = [commit for commit in pipeline.events if commit["event"] == "commit"]
    assert [(commit["changes"], commit["careful"]) for commit in commits] == [(302, 3), (300, 0)]
    assert commits[0]["oldest_source_at"] == 1_700_000_000
    (quarantined,) = (each for each in pipeline.events if each["event"] == "quarantine")
    assert quarantined["records"] == 2
    found = {(row["id"], row["month"]): (row["name"], row["_deleted"]) for row in pipeline.stored()}
    assert found == {
        (0, "2024-01"): ("w299", False),
        (1, "2024-01"): (None, True),
        (1, "2024-02"): ("Ann", False),
        (2, "2024-01"): ("v299", False),
    }
