"""What the JVM makes of usual changes of items is what ``dynamodb_decoder`` makes of them; all else it leaves."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater.contract.model import QUARANTINE, Column, Contract, History, Mask, change_history
from headwater.contract.reading import parse_contract, read_contract
from headwater.contract.types import Type
from headwater.lake.decoding.batches import IS_LEFT, HeldBatch, SpreadBatch
from headwater.lake.decoding.decoded_frame import decoded_frame, spread
from headwater.lake.decoding.dynamodb_decoder import DynamoDecoder, decode_records
from headwater.lake.decoding.late_changes import latest
from headwater.lake.decoding.usual_items import StreamedRecord, UsualItems
from headwater.lake_folder import EXAMPLE
from rig.local.relay import kinesis_data
from rig.samples.items import ItemMaker
from tests.lake.frames import texts

TABLE = "shop-things"
WIDE = parse_contract(
    """
table: things
description: Columns of all kinds.
source: {database: dynamodb, table: shop-things}
key: [id, number]
partition_by: [month]
buckets: 1
columns:
  - {name: id, type: string, source_type: S}
  - {name: number, type: string, source_type: N}
  - {name: region, type: string, source_type: S}
  - {name: day, type: date, source_type: S, from: since}
  - {name: month, type: string, source_type: S, from: since, transform: month}
  - {name: seen, type: timestamp, source_type: S}
  - {name: seen_day, type: string, source_type: S, from: seen, transform: day}
  - {name: seen_hour, type: string, source_type: S, from: seen, transform: hour}
  - {name: count_day, type: string, source_type: N, from: count, transform: day(seconds)}
  - {name: id_bucket, type: int, source_type: S, from: id, transform: bucket(5)}
  - {name: number_bucket, type: int, source_type: N, from: number, transform: bucket(16)}
  - {name: count, type: int, source_type: N}
  - {name: big, type: bigint, source_type: N}
  - {name: amount, type: "decimal(12,2)", source_type: N}
  - {name: amount_text, type: string, source_type: N, from: amount}
  - {name: wide, type: "decimal(38,9)", source_type: N}
  - {name: whole, type: "decimal(5,0)", source_type: N}
  - {name: share, type: "decimal(4,4)", source_type: N}
  - {name: is_open, type: boolean, source_type: BOOL}
  - {name: raw, type: binary, source_type: B}
  - {name: tags, type: array<string>, source_type: SS}
  - {name: sizes, type: array<int>, source_type: NS}
  - {name: sums, type: "array<decimal(10,2)>", source_type: NS}
  - {name: digits, type: array<string>, source_type: NS}
  - {name: blobs, type: array<binary>, source_type: BS}
  - {name: address, type: "struct<city:string,floor:int,of:struct<a:bigint,b:boolean>>", source_type: M}
  - {name: lines, type: "array<struct<price:decimal(12,4),note:string,at:date,parts:array<int>>>", source_type: L}
  - {name: names, type: array<string>, source_type: L}
  - {name: grid, type: array<array<int>>, source_type: L}
  - {name: document, type: string, source_type: M}
  - {name: list_text, type: string, source_type: L}
  - {name: locale, type: string, source_type: S, from: settings.locale}
  - {name: theme, type: int, source_type: N, from: settings.view.theme}
  - {name: box, type: "struct<w:int,of:struct<h:int>>", source_type: M, from: settings.box}
  - {name: naive, type: string, source_type: S, from: 'na"ïve'}
""",
    "things.yaml",
)
NARROW = parse_contract(
    """
table: things
description: A key of other kinds, and what is left out.
source: {database: dynamodb, table: shop-things}
key: [raw, amount, count]
partition_by: []
buckets: 1
exclude: [region]
unnamed: drop
columns:
  - {name: raw, type: binary, source_type: B}
  - {name: amount, type: "decimal(12,2)", source_type: N}
  - {name: count, type: int, source_type: N}
  - {name: locale, type: string, source_type: S, from: settings.locale}
  - {name: address, type: string, source_type: M}
""",
    "things.yaml",
)
OVERLAPPING = replace(NARROW, columns=(*NARROW.columns, Column("city", Type("string"), "S", ("address", "city"))))


def _history(contract: Contract) -> Contract:
    history = change_history(replace(contract, history=History(keep_days=1)))
    assert history is not None
    return history


CONTRACTS = {
    "wide": WIDE,
    "strict": replace(WIDE, on_unfit=QUARANTINE),
    "by the key": replace(WIDE, partition_by=("id",)),
    "by a text": replace(WIDE, partition_by=("region",)),
    "by a date": replace(WIDE, key=("day",), partition_by=("day",)),
    "by numbers": replace(WIDE, key=("big", "wide"), partition_by=("count",)),
    "by a bucket of the key": replace(WIDE, partition_by=("number_bucket",)),
    "by an hour": replace(WIDE, partition_by=("seen_hour",)),
    "history": _history(WIDE),
    "by a day of a number": replace(WIDE, partition_by=("count_day",)),
    "narrow": NARROW,
    "overlapping": OVERLAPPING,
    "masked": replace(WIDE, masks=(Mask(("region",), None),)),
    "hidden inside": replace(WIDE, exclude=(("settings", "pin"), ("names", "pin"))),
}
# Typed values as JSON, the usual ones first.
USUAL: dict[str, list[str]] = {
    "id": ['{"S":"a"}', '{"S":"urn:x:y"}', '{"S":"ü \\" \\\\ /😀"}'],
    "number": ['{"N":"1"}', '{"N":"-12.5"}', '{"N":"12345678901234567890123456789012345678"}'],
    "region": ['{"S":"eu"}', '{"S":"ü:ß/a=b"}'],
    "since": ['{"S":"2024-02-29"}', '{"S":"0001-01-01"}'],
    "seen": ['{"S":"2024-02-29T12:30:45Z"}', '{"S":"1969-12-31T23:59:59.123456Z"}', '{"NULL":true}'],
    "count": ['{"N":"7"}', '{"N":"-999999999"}', '{"N":"0"}'],
    "big": ['{"N":"123456789012345678"}', '{"N":"-5"}'],
    "amount": ['{"N":"1.50"}', '{"N":"-9999999999.99"}', '{"N":"0"}', '{"N":"12"}', '{"N":"0.1"}'],
    "wide": ['{"N":"12345678901234567890123456789.012345678"}', '{"N":"-0.000000001"}'],
    "whole": ['{"N":"12345"}', '{"N":"-1"}'],
    "share": ['{"N":"0.1234"}', '{"N":"-0.5"}', '{"N":"0"}'],
    "is_open": ['{"BOOL":true}', '{"BOOL":false}'],
    "raw": ['{"B":"AP8="}', '{"B":""}', '{"B":"YWJj"}'],
    "tags": ['{"SS":["a","ü\\n"]}', '{"SS":[""]}'],
    "sizes": ['{"NS":["1","-5"]}'],
    "sums": ['{"NS":["1.50","7"]}'],
    "digits": ['{"NS":["1.50","-7"]}'],
    "blobs": ['{"BS":["AP8=",""]}'],
    "address": [
        '{"M":{"city":{"S":"Köln"},"floor":{"N":"3"},"of":{"M":{"a":{"N":"1"},"b":{"BOOL":true}}}}}',
        '{"M":{"of":{"M":{}}}}',
        '{"M":{}}',
    ],
    "lines": [
        '{"L":[{"M":{"price":{"N":"12.5"},"note":{"S":"a"},"at":{"S":"2024-01-01"},"parts":{"L":[{"N":"1"}]}}}]}',
        '{"L":[]}',
    ],
    "names": ['{"L":[{"S":"a"},{"NULL":true}]}', '{"L":[]}'],
    "grid": ['{"L":[{"L":[{"N":"1"},{"NULL":true}]},{"L":[]}]}'],
    "document": ['{"M":{"x":{"N":"1.10"},"y":{"L":[{"S":"a b \\" \\\\"},{"NULL":true}]}}}', '{"M":{}}'],
    "list_text": ['{"L":[{"S":"a  b"},{"M":{"x":{"B":"AP8="}}}]}'],
    "settings": [
        '{"M":{"locale":{"S":"de"},"view":{"M":{"theme":{"N":"2"},"size":{"N":"1.0"}}},"more":{"SS":["a"]}}}',
        '{"M":{"box":{"M":{"w":{"N":"1"},"x":{"S":"ü"},"of":{"M":{"h":{"N":"2"},"i":{"L":[]}}}}}}}',
        '{"M":{"locale":{"NULL":true},"unnamed":{"M":{}}}}',
        '{"NULL":true}',
    ],
    "unnamed": ['{"S":"x"}', '{"M":{"a":{"L":[]},"b":{"N":"1e5"}}}', '{"NULL":true}', '{"S":"ü \\" \\\\ \\n\\u0001"}'],
    "other.name": ['{"N":"1"}'],
    'na\\"ïve': ['{"S":"x"}', '{"NULL":true}'],
}
ODD: dict[str, list[str]] = {
    "id": ['{"\\u0053":"b"}',
           '{"S":""}', '{"N":"1"}', '{"NULL":true}', '{"S":"a","N":"1"}', '{"S":null}', '{"S":"_a"}', '"a"'],
    "number": ['{"N":"1.50"}', '{"N":"1E2"}', '{"N":"-0"}', '{"N":"007"}', '{"N":"+1"}', '{"N":1}', '{"N":"x"}'],
    "region": ['{"S":""}', '{"S":"\\u0001"}', '{"S":"__HIVE_DEFAULT_PARTITION__"}', '{"NULL":true}',
               f'{{"S":"{"x" * 201}"}}'],
    "since": ['{"S":"2023-02-29"}', '{"S":"2024-02-29T10:00:00Z"}', '{"S":"2024-02-29 x"}', '{"S":"2024-02"}',
              '{"S":"2024-02-29x"}', '{"NULL":true}', '{"S":"10000-01-01"}'],
    "seen": ['{"S":"2024-02-29T12:30:45+01:00"}', '{"S":"2024-02-29 12:30:45Z"}', '{"S":"2024-02-29T12"}',
             '{"S":"2024-02-29T24:00:00Z"}', '{"S":"2024-02-29T123"}', '{"S":"2024-02-29T1"}',
             '{"S":"2024-02-29"}', '{"S":"x"}', '{"S":""}'],
    "count": ['{"N":"2147483648"}', '{"N":"1.0"}', '{"N":"1.5"}', '{"N":"1e2"}', '{"N":""}', '{"N":"0012"}',
              '{"S":"1"}'],
    "big": ['{"N":"9223372036854775807"}', '{"N":"9223372036854775808"}', '{"N":"1E3"}', '{"N":"-0"}'],
    "amount": ['{"N":"1.505"}', '{"N":"99999999999"}', '{"N":"1E1"}', '{"N":"-0"}', '{"N":"01.5"}', '{"N":"1."}',
               '{"N":".5"}', '{"N":"1.500"}', '{"N":"NaN"}', '{"N":"1.5","x":1}'],
    "wide": ['{"N":"1E-9"}', '{"N":"123456789012345678901234567890"}', '{"N":"-0.0"}'],
    "whole": ['{"N":"1.0"}', '{"N":"123456"}'],
    "share": ['{"N":"1"}', '{"N":"0.12345"}', '{"N":"00.1"}'],
    "is_open": ['{"BOOL":"true"}', '{"BOOL":1}', '{"BOOL":null}', '{"NULL":false}', '{"NULL":true,"BOOL":true}'],
    "raw": ['{"B":"AP8"}', '{"B":"A P8="}', '{"B":"AP9="}', '{"B":"!"}', '{"B":"_w=="}', '{"B":"QR=="}'],
    "tags": ['{"SS":"a"}', '{"SS":[1]}', '{"SS":[null]}', '{"L":[{"S":"a"}]}', '{"SS":[]}'],
    "sizes": ['{"NS":["1.5"]}', '{"NS":[1]}', '{"NS":["99999999999"]}'],
    "blobs": ['{"BS":["x"]}'],
    "address": [
        '{"M":{"city":{"NULL":true}}}', '{"M":{"more":{"S":"x"}}}', '{"M":{"floor":{"S":"3"}}}', '{"M":[]}',
        '{"M":{"city":{"S":"a"},"city":{"S":"b"}}}', '{"M":{"of":{"M":{"c":{"L":[]}}}}}', '{"NULL":true}',
        '{ "M" : {} }',
    ],
    "lines": [
        '{"L":[{"NULL":true}]}', '{"L":[{"M":{"more":{"N":"1"}}}]}', '{"L":[{"M":{"price":{"NULL":true}}}]}',
        '{"L":[{"S":"a"}]}', '{"L":{}}', '{"L":[{"M":{"parts":{"L":[{"NULL":true}]}}}]}',
    ],
    "names": ['{"L":[{"NULL":false}]}', '{"L":[{"N":"1"}]}', '{"L":["a"]}', '{"L":[{}]}'],
    "grid": ['{"L":[{"NULL":true}]}', '{"L":[{"L":[{"S":"a"}]}]}'],
    "document": ['{"\\u004d":{"x":{"N":"1"}}}',
                 '{"M": {"x":{"N":"1"}}}', '{"M":{"x":{"S":" "} }}', '{"M":[]}', '{"L":[]}', '{"M":{"a":1,"b":null}}'],
    "list_text": ['{"L":{}}', '{"L":[ ]}', '{"L":[1.50,"x"]}'],
    "settings": [
        '{"M":{}}', '{"S":"x"}', '{"M":{"locale":{"N":"1"}}}', '{"M":{"a.b":{"S":"x"}}}',
        '{"M":{"view":{"NULL":true}}}',
        '{"M":{"view":{"M":{}}}}', '{"M":{"view":{"S":"x"}}}', '{"M":{"locale":{"S":"a"},"locale":{"S":"b"}}}',
        '{"M":{"more":{"S":"a"},"more":{"S":"b"}}}', '{"M":{"more":1}}', '{"M":{"\\"":{"S":"x"}}}',
    ],
    "unnamed": ['1', '"x"', 'null', '{ "S" : "x" }', '{}', '[]', '{"S":"\\ud83d\\ude00"}', '{"S":"\\ud83d"}'],
    "settings.x": ['{"S":"x"}'],
    "address.x": ['{"S":"x"}'],
    '\\"x': ['{"S":"x"}'],
}  # fmt: skip


OF_KEYS = ("id", "number", "raw", "amount", "count", "since", "big", "wide")


class Records:
    """Records as DynamoDB writes them; the share ``odd`` of them is unusual."""

    def __init__(self, seed: int, odd: float) -> None:
        self._rng = Random(seed)  # can be repeated, not secret
        self._odd = odd

    def record(self, number: int) -> StreamedRecord:
        sequence: str | None = f"4959{number:020d}"
        data: bytes | None = self._mutilated(self._change().encode("utf-8", "surrogatepass"))
        if self._is_odd(0.02):
            sequence = self._rng.choice([None, "", "x", "1" * 57, "٣"])
        if self._is_odd(0.01):
            data = None
        return data, sequence, "" if self._is_odd(0.01) else f"s/{number}"

    def _is_odd(self, share: float) -> bool:
        return self._rng.random() < self._odd * share

    def _image(self) -> dict[str, str]:
        rng = self._rng
        image = {name: rng.choice(values) for name, values in USUAL.items() if rng.random() < 0.9}
        image |= {name: rng.choice(USUAL[name]) for name in OF_KEYS}
        for _ in range(2):
            if self._is_odd(0.5):
                name = rng.choice(list(ODD))
                image[name] = rng.choice(ODD[name])
        if self._is_odd(0.1):
            del image[rng.choice(list(image))]
        return image

    def _change(self) -> str:
        rng = self._rng
        event = rng.choice(["INSERT", "MODIFY", "MODIFY", "MODIFY", "REMOVE"])
        new, old = self._image(), self._image()
        if not self._is_odd(0.2):
            fixed = (*OF_KEYS, "region")
            for name in fixed:
                old.pop(name, None)
                if name in new:
                    old[name] = new[name]
        keys: dict[str, str] = {name: old[name] for name in OF_KEYS if name in old}
        change = {
            "ApproximateCreationDateTime": str(1_700_000_000_000_000 + rng.randrange(10**6)),
            "Keys": _object(keys),
            "NewImage": _object(new, twice=self._is_odd(0.05)),
            "OldImage": _object(old, twice=self._is_odd(0.05)),
            "SizeBytes": "98",
            "ApproximateCreationDateTimePrecision": '"MICROSECOND"',
        }
        for image in {"INSERT": ["OldImage"], "MODIFY": [], "REMOVE": ["NewImage"]}[event]:
            del change[image]
        odd = {
            "ApproximateCreationDateTime": ["null", "-1", "1.5", '"1"', "99999999999999999999", "-0"],
            "ApproximateCreationDateTimePrecision": ["null", '"MILLISECOND"', '"SECOND"', "1"],
            "Keys": ["null", "[]", "{}", '{"id":1}'],
            "NewImage": ["null", "[]", "{}", "1"],
            "OldImage": ["null", "[]", "{}", "1"],
        }
        if self._is_odd(0.2):
            name = rng.choice(list(odd))
            change[name] = rng.choice(odd[name])
        if self._is_odd(0.05):
            del change[rng.choice(list(change))]
        identities = [
            "null",
            '{"principalId":"dynamodb.amazonaws.com","type":"Service"}',
            '{"type":"Service"}',
            '{"principalId":"dynamodb.amazonaws.com","type":"AssumedRole"}',
        ]
        odd_identities = [
            "5",
            '{"type":"Service","principalId":{"x":"dynamodb.amazonaws.com"}}',
            '["dynamodb.amazonaws.com"]',
            '{"x":1e999}',
            '{"type":"Service","x":1}',
        ]
        record = {
            "awsRegion": '"eu-west-1"',
            "eventID": '"b6a1c1e8"',
            "eventName": f'"{event}"',
            "userIdentity": rng.choice(odd_identities if self._is_odd(0.1) else identities),
            "recordFormat": '"application/json"',
            "tableName": f'"{TABLE}"',
            "dynamodb": _object(change),
            "eventSource": '"aws:dynamodb"',
        }
        if self._is_odd(0.1):
            wrong = {
                "eventName": '"CHANGE"',
                "tableName": '"other"',
                "dynamodb": "null",
                "eventID": rng.choice(["null", "5", "1e999", "{}"]),
            }
            name = rng.choice(list(wrong))
            record[name] = wrong[name]
        if self._is_odd(0.05):
            del record[rng.choice(list(record))]
        members = list(record.items())
        if self._is_odd(0.1):
            rng.shuffle(members)
        if self._is_odd(0.03):
            members.append(rng.choice(members))
        return "{" + ",".join(f'"{name}":{value}' for name, value in members) + "}"

    def _mutilated(self, value: bytes) -> bytes:
        if not self._is_odd(0.05):
            return value
        at = self._rng.randrange(len(value))
        return self._rng.choice(
            [value[:at], value + b" x", b" " + value, b"\xef\xbb\xbf" + value, value[:at] + b"\xff" + value[at:], b"",
             b"{}", b"null", b"[]", value.replace(b"a", b"\xed\xa0\x80", 1), json.dumps(json.loads(value)).encode(),
             json.dumps(json.loads(value), ensure_ascii=False, separators=(" , ", " : ")).encode()]
            if _is_json(value) else [value[:at]]
        )  # fmt: skip


def _is_json(value: bytes) -> bool:
    try:
        json.loads(value)
    except ValueError:
        return False
    return True


def _object(members: Mapping[str, str], *, twice: bool = False) -> str:
    texts_ = [f'"{name}":{value}' for name, value in members.items()]
    return "{" + ",".join([*texts_, *([texts_[0], '"seen":{"NULL":true}'] if twice else [])]) + "}"


EPOCH = 2


def _by_jvm(
    spark: SparkSession, contract: Contract, records: Sequence[StreamedRecord], purged: str
) -> tuple[list[str], list[dict[str, Any]]]:
    """The rows that the JVM makes of records, and the records that it leaves, as they are kept."""
    usual = UsualItems(spark, contract, EPOCH, purged, TABLE, None)
    held = HeldBatch(spark, contract)
    usual.hold(records, held)
    in_spark = usual.frame(spread(spark, records, 2)).cache()
    rows = texts(in_spark.where("_order IS NOT NULL"))
    is_left = in_spark.where(IS_LEFT)
    left = [row["_raw"] for row in is_left.select("_raw").collect()]
    whole = in_spark.where(f"NOT ({IS_LEFT})").unionByName(usual.careful_frame(is_left))
    expected = decode_records(iter(records), DynamoDecoder(contract, EPOCH, TABLE), purged)
    careful = decoded_frame(spark, contract, spark.sparkContext.parallelize(list(expected), 1))
    assert sorted(texts(whole)) == sorted(texts(careful)), "a record is lost, or another one, between the decoders"
    written = [latest(batch.where("_order IS NOT NULL"), contract) for batch in (held.frame(), whole)]
    by_driver, by_tasks = (sorted(texts(batch)) for batch in written)
    assert by_driver == by_tasks, "the driver does not write the rows that Spark writes"
    counts = SpreadBatch(whole).counts(purged, "")
    assert held.counts(purged, "") == replace(counts, careful=len(left))
    assert sorted(held.bad()) == sorted(SpreadBatch(whole).bad())
    assert (counts.left_out > 0) == bool(contract.hidden_inside)
    if not contract.masks and not contract.hidden_inside:
        assert len(rows) + len(left) == len(records)
    in_spark.unpersist()
    return rows, [json.loads(raw) for raw in left]


@pytest.mark.parametrize(
    ("name", "odd"),
    [*((name, 0.5) for name in CONTRACTS), *((name, 0.0) for name in ("wide", "narrow", "overlapping"))],
)
def test_the_jvm_decodes_as_the_careful_decoder_or_leaves_it(spark: SparkSession, name: str, odd: float) -> None:
    contract = CONTRACTS[name]
    # Some of the records are older.
    purged = f"{EPOCH:04d}{1_700_000_000_100_000:020d}" if odd else ""
    drawn = Records(25, odd)
    records = [drawn.record(number) for number in range(1000 if odd else 200)]
    rows, left = _by_jvm(spark, contract, records, purged)
    ops = Counter(json.loads(row)["_op"] for row in rows)
    if name in ("masked", "hidden inside"):
        assert left == []
    elif name == "overlapping":
        assert left
        assert rows
    elif odd:
        assert min(ops[op] for op in "cud") > 20
        assert len(left) > 100
    else:
        assert left == []


def test_none_of_the_samples_usual_changes_is_left(spark: SparkSession) -> None:
    contract = read_contract(EXAMPLE.contracts / "accounts.yaml")
    rng = Random(7)  # can be repeated, not secret
    maker = ItemMaker(contract, rng)
    records: list[StreamedRecord] = []
    for number in range(500):
        key = maker.key(number)
        image = {"Keys": key, "NewImage": maker.item(key), "SizeBytes": 1}
        change = {"eventID": f"{number}", "eventName": "INSERT", "dynamodb": image}
        records.append((kinesis_data(change, TABLE, 1_700_000_000_000).encode(), f"{number}", f"s/{number}"))
    left = UsualItems(spark, contract, EPOCH, "", TABLE, None).frame(spread(spark, records, 1)).where(IS_LEFT)
    assert left.count() < 25
