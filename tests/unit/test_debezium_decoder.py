from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
import re
import uuid
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from headwater.contract.model import QUARANTINE, Contract
from headwater.contract.reading import parse_contract
from headwater.lake.decoding.changes import BadRecord, Decoded, order_version, record_key
from headwater.lake.decoding.debezium_decoder import PostgresDecoder, decode_lines, kept_decoder, order
from headwater.lake.decoding.exact_values import TOAST_PLACEHOLDER

CONTRACT = parse_contract(
    """
table: things
description: One column of each kind.
source: {database: postgresql, table: shop.things}
key: [id]
partition_by: [month]
buckets: 1
columns:
  - {name: id, type: bigint, source_type: bigint}
  - {name: month, type: string, source_type: text}
  - {name: amount, type: "decimal(38,10)", source_type: "numeric(38,10)"}
  - {name: free, type: string, source_type: numeric}
  - {name: ratio, type: double, source_type: double precision}
  - {name: day, type: date, source_type: date}
  - {name: at, type: timestamp, source_type: timestamptz}
  - {name: hour, type: string, source_type: time without time zone}
  - {name: raw, type: binary, source_type: bytea}
  - {name: tags, type: array<string>, source_type: "text[]"}
  - {name: city, type: string, from: payload.address.city}
  - {name: lines, type: "array<struct<price:decimal(12,4)>>", from: payload.lines}
""",
    "things.yaml",
)
STRICT = replace(CONTRACT, on_unfit=QUARANTINE)
REKEYED = [("__debezium.newkey", None)]
NAMES = [name for name, _ in CONTRACT.lake_columns()]
ROW: dict[str, Any] = {
    "id": 1, "month": "2024-01", "amount": "1234567890123456789012345678.0123456789", "free": "NAN", "ratio": 0.1,
    "day": 19782, "at": "2024-01-01T00:30:00.123456+02:00", "hour": 43511500000, "raw": "00ff",
    "tags": ["a", None], "payload": '{"address":{"city":"Köln"},"lines":[{"price":12.5}]}',
}  # fmt: skip


def envelope(
    op: str, before: Any = None, after: Any = None, lsn: int = 7, snapshot: str = "false", **fields: Any
) -> bytes:
    source = {"schema": "shop", "table": "things", "lsn": lsn, "ts_us": 1_700_000_000_123_456, "snapshot": snapshot}
    source |= fields
    return json.dumps({"op": op, "before": before, "after": after, "source": source}).encode()


def decode(value: bytes | None, contract: Contract = CONTRACT, **of_record: Any) -> Decoded:
    return PostgresDecoder(contract).decode(value, "t/0/5", **of_record)


def named(row: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(NAMES, row, strict=True))


def only(decoded: Decoded) -> dict[str, Any]:
    (row,) = decoded.rows
    return named(row)


def places(rows: tuple[tuple[Any, ...], ...]) -> list[tuple[Any, ...]]:
    """Key, partition and whether it is a tombstone, of each row."""
    return [(row["_key"], row["month"], row["_deleted"]) for row in map(named, rows)]


def test_every_kind_of_value_arrives_exactly() -> None:
    row = only(decode(envelope("c", after=ROW)))
    assert row["amount"] == Decimal("1234567890123456789012345678.0123456789")
    assert row["free"] == "NaN"
    assert row["ratio"] == 0.1
    assert row["day"] == dt.date(2024, 2, 29)
    assert row["at"] == dt.datetime(2023, 12, 31, 22, 30, 0, 123456, dt.UTC)
    assert row["hour"] == "12:05:11.5"
    assert row["raw"] == b"\x00\xff"
    assert row["tags"] == ["a", None]
    assert row["city"] == "Köln"
    assert row["lines"] == [(Decimal("12.5"),)]
    assert row["_source_ts"] == dt.datetime(2023, 11, 14, 22, 13, 20, 123456, dt.UTC)
    assert (row["_key"], row["_op"], row["_deleted"], row["_position"]) == ("[1]", "c", False, "t/0/5")
    assert row["_rest"] is None


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("amount", "NAN", "amount: found"),
        ("amount", "0.12345678901", "fits decimal"),
        ("amount", "1e40", "fits decimal"),
        ("amount", 1.5, "fits decimal"),
        ("day", -2147472692, "a date from 0001"),
        ("day", "2024-02-29Z", "a date from 0001"),
        ("hour", 86400000001, "microseconds of a day"),
        ("at", "infinity", "a timestamp from 0001"),
        ("at", "2024-01-01T00:00:00.1234567Z", "at most microseconds"),
        ("raw", "xyz", "hexadecimal"),
        ("tags", "a", "an array"),
        ("payload", "{", "JSON"),
        ("payload", '{"lines":[{"price":0.00001}]}', "lines: found"),
        ("payload", '{"address":{"city":5}}', "city: found 5, expected a text"),
    ],
)
def test_a_value_without_an_exact_counterpart_costs_itself_or_its_record(column: str, value: Any, reason: str) -> None:
    changed = envelope("c", after={**ROW, column: value})
    with pytest.raises(BadRecord, match=reason):
        decode(changed, STRICT)
    kept, sound = only(decode(changed)), only(decode(envelope("c", after=ROW)))
    assert column == "payload" or json.loads(kept["_rest"]) == {column: value}
    assert kept["_unfit"]
    assert all(kept[name] is None for name in kept["_unfit"])
    if column != "payload":
        assert kept["_unfit"] == [column]
        assert {name for name in NAMES if kept[name] != sound[name]} == {column, "_rest", "_unfit"}


@pytest.mark.parametrize(("value", "reason"), [(None, "key: found null"), (2**63, "64 bits"), (True, "64 bits")])
def test_a_row_without_its_key_is_refused_always(value: Any, reason: str) -> None:
    with pytest.raises(BadRecord, match=reason):
        decode(envelope("c", after={**ROW, "id": value}))


@pytest.mark.parametrize(
    ("payload", "unfit", "rest"),
    [
        ("{", ["city", "lines"], {"payload": "{"}),
        ('{"address":[1],"lines":5}', ["city", "lines"], {"payload.address": [1], "payload.lines": 5}),
        ('{"address":[1],"x":1}', ["city"], {"payload.address": [1], "payload.x": 1}),
        ('{"lines":[{"price":0.00001,"vat":1}]}', ["lines"], {"payload.lines": [{"price": 0.00001, "vat": 1}]}),
    ],
)  # fmt: skip
def test_what_does_not_fit_inside_a_document_is_kept_by_its_path(payload: str, unfit: list[str], rest: Any) -> None:
    row = only(decode(envelope("c", after={**ROW, "payload": payload})))
    assert (row["_unfit"], json.loads(row["_rest"])) == (unfit, rest)


def test_half_a_surrogate_pair_in_json_does_not_fit_and_keeps_its_escape() -> None:
    payload = r'{"address":{"city":"\ud800x","more":["\uDC00"]},"lines":[],"\ud83d\ude00":1}'
    row = only(decode(envelope("c", after={**ROW, "payload": payload})))
    assert (row["city"], row["_unfit"]) == (None, ["city"])
    assert row["_rest"].encode() == (
        r'{"payload.address.city":"\ud800x","payload.address.more":["\udc00"],"payload.😀":1}'.encode()
    )


def test_midnight_at_the_days_end_is_not_its_beginning() -> None:
    assert only(decode(envelope("c", after={**ROW, "hour": 86_400_000_000})))["hour"] == "24:00:00"
    assert only(decode(envelope("c", after={**ROW, "hour": 0})))["hour"] == "00:00:00"


@pytest.mark.parametrize(("column", "value"), [("day", -141428), ("at", "1500-03-09T12:00:00.000000Z")])
def test_a_date_before_the_gregorian_calendar_is_taken_from_a_change_but_not_from_a_snapshot(
    column: str, value: Any
) -> None:
    assert only(decode(envelope("c", after={**ROW, column: value})))[column].year < 1583
    read = envelope("r", after={**ROW, column: value}, snapshot="true")
    assert only(decode(read))["_unfit"] == [column]
    with pytest.raises(BadRecord, match="1582-10-26"):
        decode(read, STRICT)


def read_again(sequence: Any) -> bytes:
    return envelope("r", after=ROW, lsn=None, snapshot="incremental", sequence=sequence)  # type: ignore[arg-type]


def test_a_row_that_is_read_again_is_ordered_as_of_its_reading() -> None:
    read = only(decode(read_again('["70","75"]')))["_order"]
    assert read == order(1, 70, 75, snapshot=False)
    assert only(decode(read_again('[null,"75"]')))["_order"] == order(1, 75, 75, snapshot=False)
    before, after = ('["60","90"]', 90), ('["75","80"]', 80)
    orders = [
        only(decode(envelope("u", before=ROW, after=ROW, lsn=lsn, sequence=sequence)))["_order"]
        for sequence, lsn in (before, after)
    ]
    assert order(1, 2**63, 2**63, snapshot=True) < orders[0] < read < orders[1]


@pytest.mark.parametrize("sequence", [None, 7, "[]", '["70"]', '["70",null]', '["70",75]', '["70","7x"]', "{}"])
def test_a_row_that_is_read_again_without_saying_when_is_refused(sequence: Any) -> None:
    with pytest.raises(BadRecord, match=r"source\.lsn: found None, expected a number"):
        decode(read_again(sequence))


def test_what_no_contract_names_is_kept_with_its_digits() -> None:
    payload = '{"address":{"city":"Bonn","zip":53111},"lines":[{"price":1,"vat":0.1900}],"note":null}'
    row = only(decode(envelope("c", after={**ROW, "payload": payload, "colour": "red"})))
    assert row["_rest"] == (
        '{"colour":"red","payload.address.zip":53111,"payload.lines.0.vat":0.1900,"payload.note":null}'
    )


NESTED = parse_contract(
    """
table: things
description: Columns from inside a document, and around one another.
source: {database: postgresql, table: shop.things}
key: [id]
partition_by: []
buckets: 1
columns:
  - {name: id, type: bigint, source_type: bigint}
  - {name: product, type: "struct<name:string,maker:string>", from: payload.product}
  - {name: box, type: "struct<size:int,colour:string,lid:struct<name:string,width:int>>", from: payload.box}
  - {name: colour, type: string, from: payload.box.colour}
  - {name: street, type: string, from: payload.order.to.street}
""",
    "things.yaml",
)


def nested(payload: Any, contract: Contract = NESTED) -> dict[str, Any]:
    image = {"id": 1, "payload": json.dumps(payload)}
    (row,) = PostgresDecoder(contract).decode(envelope("c", after=image), "t/0/5").rows
    return dict(zip([name for name, _ in contract.lake_columns()], row, strict=True))


@pytest.mark.parametrize(
    ("payload", "column", "value", "rest"),
    [
        ({"product": {"maker": "B", "name": "A"}}, "product", ("A", "B"), None),
        ({"product": {"name": None, "maker": "B"}}, "product", (None, "B"), None),
        ({"product": {"maker": "B"}}, "product", (None, "B"), None),
        ({"product": {"maker": "B", "more": 1}}, "product", (None, "B"), '{"payload.product.more":1}'),
        ({"product": {"name": "A", "maker": "B", "more": 1}}, "product", ("A", "B"), '{"payload.product.more":1}'),
        ({"product": {}}, "product", (None, None), None),
        ({"product": None}, "product", None, None),
        ({"box": {"size": 1, "colour": "red", "lid": {"name": "L", "width": 2}}}, "box", (1, "red", ("L", 2)), None),
        ({"box": {"size": 1, "colour": "red", "lid": None}}, "colour", "red", None),
        ({"box": {"colour": "red", "more": 1}}, "colour", "red", '{"payload.box.more":1}'),
        ({"box": {"lid": {"x": 0.10}}}, "box", (None, None, (None, None)), '{"payload.box.lid.x":0.1}'),
        ({"order": {"to": {"street": "S"}}}, "street", "S", None),
        ({"order": {"to": {"street": "S", "no": 1}}}, "street", "S", '{"payload.order.to.no":1}'),
        ({"order": {"to": {"street": "S"}, "at": 2}}, "street", "S", '{"payload.order.at":2}'),
        ({"order": {"to": None}}, "street", None, '{"payload.order.to":null}'),
        ({"order": None}, "street", None, '{"payload.order":null}'),
        ({"order": {}}, "street", None, None),
        ({}, "street", None, None),
        ({"other": [1]}, "street", None, '{"payload.other":[1]}'),
    ],
)  # fmt: skip
def test_columns_come_from_inside_a_document_and_what_is_left_is_kept(
    payload: dict[str, Any], column: str, value: Any, rest: str | None
) -> None:
    row = nested(payload)
    assert (row[column], row["_rest"], row["_unfit"]) == (value, rest, None)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({"product": {"name": 1, "maker": "B"}}, "product: found 1, expected a text"),
        ({"product": {"maker": True}}, "product: found true, expected a text"),
        ({"product": "A"}, 'product: found "A", expected an object'),
        ({"box": {"size": 1, "colour": {"a": 1}, "lid": None}}, 'box: found {"a": 1}, expected a text'),
        ({"box": {"size": "1"}}, 'box: found "1", expected an integer of 32 bits'),
        ({"box": {"lid": {"width": 2**31}}}, "box: found 2147483648, expected an integer of 32 bits"),
        ({"order": 1}, "payload.order: found a value, expected an object around to"),
        ({"order": {"to": ["S"]}}, "payload.order.to: found a value, expected an object around street"),
        ({"order": {"to": {"street": 5}}}, "street: found 5, expected a text"),
    ],
)
def test_a_document_of_another_form_is_refused(payload: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRecord, match=re.escape(reason)):
        nested(payload, replace(NESTED, on_unfit=QUARANTINE))
    assert nested(payload)["_unfit"]


SHARED = parse_contract(
    """
table: things
description: Columns that share a document.
source: {database: postgresql, table: shop.things}
key: [id]
partition_by: []
buckets: 1
columns:
  - {name: id, type: bigint, source_type: bigint}
  - {name: size, type: "struct<size:int,lid:struct<name:string>>", from: payload.box}
  - {name: colour, type: "struct<colour:string>", from: payload.box}
  - {name: width, type: int, from: payload.box.lid.width}
  - {name: note, type: string, from: payload.box.note}
""",
    "things.yaml",
)


@pytest.mark.parametrize(
    ("box", "rest"),
    [
        ({"size": 1, "colour": "red", "lid": {"name": "L", "width": 2}, "note": "n"}, None),
        ({"lid": {"width": 2, "more": 3}, "x": 4}, {"payload.box.lid.more": 3, "payload.box.x": 4}),
        ({"size": "1", "x": 4}, {"payload.box": {"size": "1", "x": 4}}),
        ({"note": 5, "x": 4}, {"payload.box.note": 5, "payload.box.x": 4}),
    ],
)
def test_what_one_of_several_columns_takes_is_not_left_over(box: Any, rest: Any) -> None:
    kept = nested({"box": box}, SHARED)["_rest"]
    assert (kept and json.loads(kept)) == rest


def test_a_delete_is_a_tombstone_of_key_and_partition() -> None:
    row = only(decode(envelope("d", before=ROW)))
    assert row["_deleted"] is True
    assert {name for name in NAMES if row[name] is not None} == {
        "id", "month", "_key", "_op", "_order", "_source_ts", "_position", "_deleted",
    }  # fmt: skip


def test_a_row_that_leaves_its_partition_leaves_a_tombstone_there() -> None:
    moved = decode(envelope("u", before=ROW, after={**ROW, "month": "2024-02"}))
    seen = {(row[1], row[NAMES.index("_deleted")]) for row in moved.rows}
    assert seen == {("2024-02", False), ("2024-01", True)}
    assert len({row[NAMES.index("_order")] for row in moved.rows}) == 1


def test_an_untouched_toasted_value_is_that_of_the_before_image() -> None:
    toasted = {**ROW, "month": TOAST_PLACEHOLDER}
    assert only(decode(envelope("u", before=ROW, after=toasted)))["month"] == "2024-01"


_LETTERS = [ord(letter) for letter in TOAST_PLACEHOLDER]
_IN_HEX = TOAST_PLACEHOLDER.encode().hex()
_MD5 = hashlib.md5(TOAST_PLACEHOLDER.encode(), usedforsecurity=False).digest()
_AS_UUID = str(uuid.UUID(bytes=_MD5, version=3))  # as Java makes it
PLACEHOLDERS = [
    TOAST_PLACEHOLDER,
    _IN_HEX,
    [TOAST_PLACEHOLDER],
    [_IN_HEX],
    [_AS_UUID],
    _LETTERS,
    [float(letter) for letter in _LETTERS],
    {TOAST_PLACEHOLDER: TOAST_PLACEHOLDER},
    {TOAST_PLACEHOLDER: None},
    json.dumps({TOAST_PLACEHOLDER: TOAST_PLACEHOLDER}, separators=(",", ":")),
]


@pytest.mark.parametrize("placeholder", PLACEHOLDERS)
@pytest.mark.parametrize("column", ["unnamed", "tags", "payload"])
def test_every_spelling_of_the_placeholder_is_known_in_every_column(column: str, placeholder: Any) -> None:
    old = {"unnamed": ["a"], "tags": ["b"], "payload": '{"address":{"city":"Bonn"}}'}[column]
    kept = only(decode(envelope("u", before={**ROW, column: old}, after={**ROW, column: placeholder})))
    assert kept == only(decode(envelope("u", before=ROW, after={**ROW, column: old})))
    for before in (None, placeholder):
        changed = envelope("u", before={**ROW, column: before}, after={**ROW, column: placeholder})
        row = only(decode(changed))
        assert (row["_unfit"], row["_rest"]) == ({"payload": ["city", "lines"]}.get(column, [column]), None)
    inserted = envelope("c", after={**ROW, column: placeholder})
    if column == "unnamed":
        assert json.loads(only(decode(inserted))["_rest"]) == {"unnamed": placeholder}
        assert only(decode(inserted, headers=REKEYED))["_unfit"] == ["unnamed"]


@pytest.mark.parametrize(
    "value", [[], {}, "", 0, False, [0], [TOAST_PLACEHOLDER, "a"], {"a": TOAST_PLACEHOLDER}, f"{TOAST_PLACEHOLDER} "]
)
def test_what_is_only_like_the_placeholder_is_a_value(value: Any) -> None:
    row = only(decode(envelope("u", before={**ROW, "unnamed": "a"}, after={**ROW, "unnamed": value})))
    assert (row["_unfit"], json.loads(row["_rest"])) == (None, {"unnamed": value})


@pytest.mark.parametrize(
    ("column", "placeholder", "unfit"),
    [
        ("raw", TOAST_PLACEHOLDER.encode().hex(), ["raw"]),
        ("payload", TOAST_PLACEHOLDER, ["city", "lines"]),
        ("tags", [TOAST_PLACEHOLDER], ["tags"]),
        ("unnamed", TOAST_PLACEHOLDER, ["unnamed"]),
    ],
)
def test_an_untouched_toasted_value_that_nobody_tells_marks_its_row(
    column: str, placeholder: Any, unfit: list[str]
) -> None:
    changed = envelope("u", before={**ROW, column: None}, after={**ROW, column: placeholder})
    row = only(decode(changed))
    assert (row["_unfit"], row["_rest"], row["amount"]) == (unfit, None, Decimal(ROW["amount"]))
    with pytest.raises(BadRecord, match=f"{column}: PostgreSQL did not log its TOASTed value"):
        decode(changed, STRICT)


TOASTABLE = parse_contract(
    """
table: things
description: One column of each type that can be TOASTed.
source: {database: postgresql, table: shop.things}
key: [id]
partition_by: []
buckets: 1
columns:
  - {name: id, type: bigint, source_type: bigint}
  - {name: text, type: string, source_type: text}
  - {name: number, type: string, source_type: numeric}
  - {name: raw, type: binary, source_type: bytea}
  - {name: texts, type: array<string>, source_type: "text[]"}
  - {name: small, type: array<int>, source_type: "integer[]"}
  - {name: large, type: array<bigint>, source_type: "bigint[]"}
  - {name: ratios, type: array<double>, source_type: "double precision[]"}
  - {name: days, type: array<date>, source_type: "date[]"}
""",
    "things.yaml",
)


@pytest.mark.parametrize(
    ("column", "placeholder", "old", "value"),
    [
        ("text", TOAST_PLACEHOLDER, "a", "a"),
        ("number", TOAST_PLACEHOLDER, "1.50", "1.50"),
        ("raw", TOAST_PLACEHOLDER.encode().hex(), "00ff", b"\x00\xff"),
        ("raw", TOAST_PLACEHOLDER, "00ff", b"\x00\xff"),
        ("texts", [TOAST_PLACEHOLDER], ["a", None], ["a", None]),
        ("small", _LETTERS, [1, None], [1, None]),
        ("large", _LETTERS, [2**40], [2**40]),
        ("ratios", [float(letter) for letter in _LETTERS], [0.5], [0.5]),
        ("days", _LETTERS, [19782], [dt.date(2024, 2, 29)]),
        ("texts", TOAST_PLACEHOLDER, ["a"], ["a"]),
    ],
)
def test_each_types_placeholder_is_known_and_stands_for_the_value_before(
    column: str, placeholder: Any, old: Any, value: Any
) -> None:
    names = [name for name, _ in TOASTABLE.lake_columns()]

    def updated(before: Any) -> dict[str, Any]:
        changed = envelope("u", before={"id": 1, column: before}, after={"id": 1, column: placeholder})
        (row,) = decode(changed, TOASTABLE).rows
        return dict(zip(names, row, strict=True))

    kept = updated(old)
    assert (kept[column], kept["_unfit"], kept["_rest"]) == (value, None, None)
    for nobody_tells in (None, placeholder):
        lost = updated(nobody_tells)
        assert (lost[column], lost["_unfit"], lost["_rest"]) == (None, [column], None)


def test_a_partition_that_nobody_tells_is_bad() -> None:
    with pytest.raises(BadRecord, match="without its before image"):
        decode(envelope("u", before=None, after={**ROW, "month": TOAST_PLACEHOLDER}))


def test_a_toast_placeholder_beside_a_changed_primary_key_is_never_stored() -> None:
    inserted = envelope("c", after={**ROW, "tags": [TOAST_PLACEHOLDER]})
    row = only(decode(inserted, headers=REKEYED))
    assert (row["tags"], row["_unfit"]) == (None, ["tags"])
    landed = {
        "offset": 0,
        "value": base64.b64encode(inserted).decode(),
        "headers": [["__debezium.oldkey", base64.b64encode(b'{"id":7}').decode()]],
    }
    (line,) = decode_lines(iter([("t/0", json.dumps(landed))]), PostgresDecoder(CONTRACT))
    assert line[NAMES.index("_unfit")] == ["tags"]


def test_a_row_from_before_what_is_purged_takes_its_record_along() -> None:
    line = json.dumps({"offset": 0, "value": base64.b64encode(envelope("c", after=ROW)).decode()})
    (row,) = decode_lines(iter([("t/0", line)]), PostgresDecoder(CONTRACT))
    order = row[NAMES.index("_order")]
    assert row[-3:] == (None, None, None)
    assert list(decode_lines(iter([("t/0", line)]), PostgresDecoder(CONTRACT), order)) == [row]
    (late,) = decode_lines(iter([("t/0", line)]), PostgresDecoder(CONTRACT), order + "0")
    assert late[:-1] == row[:-1]
    assert list(kept_decoder(CONTRACT, 1)(json.loads(late[-1]), "any")) == [row]


def test_a_genuine_text_like_the_placeholder_can_be_inserted() -> None:
    assert only(decode(envelope("c", after={**ROW, "month": TOAST_PLACEHOLDER})))["month"] == TOAST_PLACEHOLDER


def test_truncate_and_the_end_of_a_snapshot_set_the_floor_below_what_comes_with_them() -> None:
    truncated = decode(envelope("t", lsn=9))
    assert truncated.rows == ()
    assert truncated.floor is not None
    assert order(1, 8, 8, snapshot=False) < truncated.floor < order(1, 10, 10, snapshot=False)
    last = decode(envelope("r", after=ROW, lsn=9, snapshot="last"))
    assert last.floor is not None
    assert order(1, 8, 8, snapshot=True) < last.floor < order(1, 9, 9, snapshot=True) < order(1, 1, 1, snapshot=False)
    # A snapshot of several tables names the last row of each.
    assert decode(envelope("r", after=ROW, lsn=9, snapshot="last_in_data_collection")).floor == last.floor
    # A record behind the last row does it, too; behind the rows that were read again it is as a TRUNCATE.
    assert decode(envelope("t", lsn=9, snapshot="last_in_data_collection")) == Decoded(floor=last.floor)
    assert decode(envelope("t", lsn=9, snapshot="incremental")) == truncated
    for position in ("true", "first", "first_in_data_collection", "false", None):
        assert decode(envelope("r", after=ROW, lsn=9, snapshot=position)).floor is None  # type: ignore[arg-type]
    for op in ("c", "u"):
        assert decode(envelope(op, before=ROW, after=ROW, lsn=9, snapshot="last")).floor is None


def test_another_layout_of_the_order_needs_another_version() -> None:
    """Whoever changes the digits raises the version, so that no table mixes both."""
    assert order_version(CONTRACT) == 1
    assert order(3, 1_000, 7, snapshot=False) == f"00031{1_000:020d}{7:020d}1"


def test_orders_compare_epoch_then_kind_then_commit_then_lsn() -> None:
    orders = [
        order(1, 900, 900, True),
        order(1, 5, 7, False),
        order(1, 6, 3, False),
        order(1, 6, 4, False),
        order(1, 2**63, 2**63, False),
        order(2, 3, 3, True),
        order(2, 1, 1, False),
    ]
    assert orders == sorted(orders)
    assert {len(text) for text in orders} == {46}


def in_epoch(number: str) -> list[tuple[str, str | None]]:
    """Headers as the source connector writes them and the sink lands them."""
    return [*REKEYED, ("headwater.epoch", base64.b64encode(number.encode()).decode())]


def test_a_record_is_of_the_epoch_that_it_says_and_else_of_the_decoders() -> None:
    changed, read = envelope("c", after=ROW), envelope("r", after=ROW, snapshot="last")
    for decoder, headers, epoch in (
        (PostgresDecoder(CONTRACT), [], 1),
        (PostgresDecoder(CONTRACT, 2), [], 2),
        (PostgresDecoder(CONTRACT), in_epoch("12"), 12),
        (PostgresDecoder(CONTRACT, 2), in_epoch("1"), 1),
    ):
        row = only(decoder.decode(changed, "t/0/5", headers=headers))
        assert row["_order"] == order(epoch, 7, 7, snapshot=False)
        decoded = decoder.decode(read, "t/0/5", headers=headers)
        assert decoded.floor == order(epoch, 7, 7, snapshot=True)[:-1] + "0"
    with pytest.raises(BadRecord) as bad:
        decode(envelope("r", after={**ROW, "id": None}, snapshot="last"), headers=in_epoch("3"))
    assert bad.value.floor == order(3, 7, 7, snapshot=True)[:-1] + "0"


@pytest.mark.parametrize("content", [None, "", "Mg", base64.b64encode(b"two").decode(), in_epoch("10000")[1][1]])
def test_an_epoch_that_is_no_number_is_refused(content: str | None) -> None:
    with pytest.raises(BadRecord, match=r"header headwater\.epoch: found .*, expected a number in base64"):
        decode(envelope("c", after=ROW), headers=[("headwater.epoch", content)])


def test_the_key_is_read_though_the_partition_before_it_is_null_or_does_not_fit() -> None:
    first, second, *others = CONTRACT.columns
    turned = replace(CONTRACT, columns=(second, first, *others))
    for month in (None, 5):
        (tombstone,) = decode(envelope("d", before={**ROW, "month": month}), turned).rows
        values = dict(zip([name for name, _ in turned.lake_columns()], tombstone, strict=True))
        assert (values["_key"], values["month"], values["_rest"]) == ("[1]", None, None)


def test_an_update_without_what_it_needs_is_refused_by_what_is_missing() -> None:
    flat = replace(CONTRACT, partition_by=())
    keyed = replace(flat, key=("id", "month"))
    for contract, event, key, reason in (
        (
            CONTRACT, envelope("u", after=ROW), b'{"id":1}',
            "an update of a partitioned table without its before image: REPLICA IDENTITY FULL expected",
        ),
        (flat, envelope("u"), b'{"id":1}', "op u without its images"),
        (
            keyed, envelope("u", after=ROW), b'{"pk":1}',
            "key: id, month is not in the source's primary key, and the record lacks the before image "
            "with its old value: REPLICA IDENTITY FULL expected",
        ),
    ):  # fmt: skip
        with pytest.raises(BadRecord) as bad:
            decode(event, contract, key=key)
        assert str(bad.value) == reason
    # The primary key is as it was, and with it whatever it has.
    placed = b'{"id":1,"month":"2024-01"}'
    assert places(decode(envelope("u", after=ROW), key=placed).rows) == [("[1]", "2024-01", False)]
    assert len(decode(envelope("u", after=ROW), keyed, key=placed).rows) == 1
    # A table without a primary key has no key to change.
    assert places(decode(envelope("u", after=ROW), flat).rows) == [("[1]", "2024-01", False)]


UNPLACED = ["a" * 201, "ü" * 101, "a\nb", "\x7f", "__HIVE_DEFAULT_PARTITION__"]


@pytest.mark.parametrize("month", UNPLACED)
def test_a_partition_that_no_store_takes_is_unfit_and_refused_in_a_key(month: str) -> None:
    row = only(decode(envelope("u", before=ROW, after={**ROW, "month": month}), replace(CONTRACT, partition_by=())))
    assert (row["month"], row["_unfit"]) == (month, None)
    row = only(decode(envelope("c", after={**ROW, "month": month})))
    assert (row["month"], row["_unfit"], json.loads(row["_rest"])) == (None, ["month"], {"month": month})
    keyed = replace(CONTRACT, key=("id", *CONTRACT.partition_by))
    with pytest.raises(BadRecord, match=r"month, of the key: found .* as partition"):
        decode(envelope("c", after={**ROW, "month": month}), keyed)
    with pytest.raises(BadRecord, match="key: found null"):
        decode(envelope("d", before={**ROW, "month": month}), keyed)


def test_a_row_whose_partition_does_not_fit_stands_where_one_without_it_does() -> None:
    for month in (5, "", None, *UNPLACED):
        unplaced = {**ROW, "month": month}
        assert places(decode(envelope("c", after=unplaced)).rows) == [("[1]", None, False)]
        assert places(decode(envelope("d", before=unplaced)).rows) == [("[1]", None, True)]
        mended = decode(envelope("u", before=unplaced, after=ROW))
        assert places(mended.rows) == [("[1]", "2024-01", False), ("[1]", None, True)]
    row = only(decode(envelope("c", after={**ROW, "month": ""})))
    assert (row["_unfit"], row["_rest"]) == (["month"], '{"month":""}')
    assert only(decode(envelope("c", after={**ROW, "month": None})))["_unfit"] is None
    with pytest.raises(BadRecord, match="month: found ''"):
        decode(envelope("c", after={**ROW, "month": ""}), STRICT)


@pytest.mark.parametrize("after", [{**ROW, "amount": "NAN", "month": "2024-02"}, {**ROW, "amount": "NAN"}, None])
def test_an_update_that_is_refused_buries_what_stood_before_it(after: Any) -> None:
    with pytest.raises(BadRecord) as bad:
        decode(envelope("u", before=ROW, after=after), STRICT)
    assert places(bad.value.buried) == [("[1]", "2024-01", True)]
    sound = decode(envelope("u", before=ROW, after=ROW)).rows[0]
    assert named(bad.value.buried[0])["_order"] == named(sound)["_order"]


def test_an_update_whose_new_key_is_refused_buries_the_old_one() -> None:
    with pytest.raises(BadRecord, match="id: found") as bad:
        decode(envelope("u", before=ROW, after={**ROW, "id": 2**63}))
    assert places(bad.value.buried) == [("[1]", "2024-01", True)]


def test_a_changed_key_that_is_not_the_primary_key_buries_the_old_one() -> None:
    changed = decode(envelope("u", before={**ROW, "id": 7}, after=ROW), key=b'{"pk":3}')
    assert places(changed.rows) == [("[1]", "2024-01", False), ("[7]", "2024-01", True)]


def test_a_row_whose_primary_key_alone_changes_is_not_lost_to_the_delete_that_stands_for_it() -> None:
    deleted = only(decode(envelope("d", before=ROW), headers=REKEYED))
    inserted = only(decode(envelope("c", after=ROW), headers=REKEYED))
    earlier = only(decode(envelope("u", before=ROW, after=ROW, lsn=6)))
    assert deleted["_key"] == inserted["_key"]
    assert earlier["_order"] < deleted["_order"] < inserted["_order"]


def test_changes_of_a_row_that_an_index_identifies_are_refused() -> None:
    by_index = [("headwater.identity", base64.b64encode(b"index").decode())]
    for event in (envelope("u", before=ROW, after=ROW), envelope("d", before=ROW), envelope("c", after=ROW)):
        with pytest.raises(BadRecord, match=r"op [udc]: found REPLICA IDENTITY USING INDEX"):
            decode(event, headers=by_index)
    assert decode(envelope("t"), headers=by_index).floor is not None


@pytest.mark.parametrize("unusable", [None, 2**63])
def test_a_row_that_gets_a_usable_key_is_taken_and_buries_nothing(unusable: Any) -> None:
    changed = decode(envelope("u", before={**ROW, "id": unusable, "pk": 3}, after=ROW), key=b'{"pk":3}')
    assert places(changed.rows) == [("[1]", "2024-01", False)]
    with pytest.raises(BadRecord, match="key: found null"):
        decode(envelope("d", before={**ROW, "id": unusable}))
    with pytest.raises(BadRecord, match="without its before image"):
        decode(envelope("u", before=dict.fromkeys([*ROW, "pk"]), after=ROW), key=b'{"pk":3}')


def test_a_key_that_is_not_the_primary_key_is_refused_without_the_before_image() -> None:
    contract = replace(CONTRACT, partition_by=())
    update = envelope("u", before=None, after=ROW)
    assert len(decode(update, contract, key=b'{"id":1}').rows) == 1
    with pytest.raises(BadRecord, match=r"key: id is not in the source's primary key.*REPLICA IDENTITY FULL"):
        decode(update, contract, key=b'{"pk":3}')


def test_a_delete_whose_key_tells_the_partition_is_good_whatever_else_the_row_held() -> None:
    contract = replace(CONTRACT, key=("id", *CONTRACT.partition_by))
    before = {name: value if name in ("id", "month") else None for name, value in ROW.items()}
    assert len(decode(envelope("d", before=before), contract).rows) == 1


def test_a_delete_needs_no_more_of_the_row_than_a_primary_key_that_has_its_partition() -> None:
    before = {**dict.fromkeys(ROW), "id": 1, "month": ""}
    deleted = envelope("d", before=before)
    assert places(decode(deleted, key=b'{"id":1,"month":""}').rows) == [("[1]", None, True)]
    for key in (b'{"id":1}', b"Struct{id=1}"):
        with pytest.raises(BadRecord, match="whose before image has its key alone") as bad:
            decode(deleted, key=key)
        assert places(bad.value.buried) == [("[1]", None, True)]


@pytest.mark.parametrize(
    ("transform", "source_type", "value", "part"),
    [
        ("month", "date", 19782, "2024-02"),
        ("day", "timestamp without time zone", -1, "1969-12-31"),
        ("hour", "timestamp(3) without time zone", 1_709_211_599_999, "2024-02-29-12"),
        ("hour", "timestamp with time zone", "2024-02-29T23:59:59.5Z", "2024-02-29-23"),
        ("day(seconds)", "bigint", -62_135_596_800, "0001-01-01"),
        ("hour(microseconds)", "bigint", 253_402_300_799_999_999, "9999-12-31-23"),
        ("bucket(16)", "integer", 1, 7),
        ("bucket(16)", "text", "späß", 15),
        ("bucket(16)", "text", None, None),
        ("day", "date", None, None),
    ],
)
def test_a_transform_makes_the_partition_before_and_after_a_change(
    transform: str, source_type: str, value: object, part: str | int | None
) -> None:
    contract = partitioned(transform, source_type)
    change = decode(envelope("u", before={"id": 1, "at": value}, after={"id": 1, "at": value}), contract)
    assert [row[1] for row in change.rows] == [part]
    deleted = decode(envelope("d", before={"id": 1, "at": value, "more": 1}), contract)
    assert [row[1] for row in deleted.rows] == [part]


@pytest.mark.parametrize(
    ("transform", "source_type", "value", "expected"),
    [
        ("month", "date", 2_147_483_647, "the days from 1970-01-01"),
        ("day", "timestamp with time zone", "infinity", "a timestamp"),
        ("day(seconds)", "bigint", 253_402_300_800, "seconds from 1970-01-01 to a time from 0001-01-01 to 9999-12-31"),
        ("day(seconds)", "bigint", -(2**63), "seconds from 1970-01-01"),
        ("bucket(16)", "text", 5, "a text"),
    ],
)
def test_what_has_no_part_lies_where_null_does_and_is_kept(
    transform: str, source_type: str, value: object, expected: str
) -> None:
    contract = partitioned(transform, source_type)
    (row,) = decode(envelope("c", after={"id": 1, "at": value}), contract).rows
    assert row[1] is None
    assert (json.loads(row[-2]), row[-1]) == ({"at": value}, ["part"])
    with pytest.raises(BadRecord, match=expected):
        decode(envelope("c", after={"id": 1, "at": value}), replace(contract, on_unfit=QUARANTINE))


def test_a_row_stays_where_its_snapshot_has_put_it() -> None:
    contract = partitioned("month", "timestamp without time zone")
    early, note = {"id": 1, "at": -62_135_596_800_000_000}, {"note": "new"}
    read = decode(envelope("r", after=early), contract)
    changed = decode(envelope("u", before=early, after={**early, **note}), contract)
    moved = decode(envelope("u", before=early, after={"id": 1, "at": 0}), contract)
    deleted = decode(envelope("d", before={**early, **note}), contract)
    at = [name for name, _ in contract.lake_columns()].index("_deleted")
    rows = [[(row[1], row[at]) for row in change.rows] for change in (read, changed, moved, deleted)]
    assert rows == [[(None, False)], [(None, False)], [("1970-01", False), (None, True)], [(None, True)]]


def partitioned(transform: str, source_type: str) -> Contract:
    type_ = "int" if transform.startswith("bucket") else "string"
    return parse_contract(
        "{table: things, description: A table of the tests., source: {database: postgresql, table: shop.things},"
        f" key: [id], partition_by: [part], buckets: 1, columns: [{{name: id, type: int, source_type: integer}},"
        f" {{name: part, type: {type_}, source_type: {source_type}, from: at, transform: {transform}}}]}}",
        "things.yaml",
    )


def test_an_update_whose_key_is_unreadable_is_put_aside() -> None:
    with pytest.raises(BadRecord):
        decode(envelope("u", before=None, after=ROW), replace(CONTRACT, partition_by=()), key=b"Struct{id=1}")


def test_a_delete_that_tells_its_key_alone_is_taken_and_put_aside() -> None:
    with pytest.raises(BadRecord, match="has its key alone") as bad:
        decode(envelope("d", before={**dict.fromkeys(ROW), "id": 1}))
    assert places(bad.value.buried) == [("[1]", None, True)]
    by_hour = partitioned("hour", "timestamp with time zone")
    with pytest.raises(BadRecord, match="has its key alone"):
        decode(envelope("d", before={"id": 1, "at": "1970-01-01T00:00:00Z", "note": ""}), by_hour)


def test_a_column_that_the_source_lacks_is_null_but_for_key_and_partition() -> None:
    old = {name: value for name, value in ROW.items() if name not in ("amount", "payload")}
    row = only(decode(envelope("u", before=old, after=old)))
    assert (row["amount"], row["city"], row["lines"], row["_unfit"], row["_rest"]) == (None,) * 5
    for name in ("id", "month"):
        lacking = {column: value for column, value in ROW.items() if column != name}
        for changed in (envelope("c", after=lacking), envelope("d", before=lacking)):
            with pytest.raises(BadRecord, match=f"{name}: .* has no column {name}"):
                decode(changed)


def test_what_was_committed_last_is_newest_though_it_was_logged_first() -> None:
    deleted = only(decode(envelope("d", before=ROW, lsn=40, sequence='["10","40"]')))
    inserted = only(decode(envelope("c", after=ROW, lsn=30, sequence='["50","30"]')))
    assert deleted["_order"] < inserted["_order"]


def test_before_debezium_has_seen_a_commit_a_changes_own_lsn_stands_in() -> None:
    orders = [
        only(decode(envelope("c", after=ROW, lsn=30, **fields)))["_order"]
        for fields in ({}, {"sequence": None}, {"sequence": '[null,"30"]'}, {"sequence": '["30","30"]'})
    ]
    assert set(orders) == {order(1, 30, 30, snapshot=False)}
    later = only(decode(envelope("u", before=ROW, after=ROW, lsn=41, sequence='["40","41"]')))
    assert orders[0] < later["_order"]


@pytest.mark.parametrize(
    "sequence",
    ["?", "[]", "{}", '["x","1"]', 7, '["-5","40"]', '"123"', "[true,true]", '["1_0","2"]', f'["{10**20}","1"]'],
)
def test_a_sequence_that_is_none_is_bad(sequence: Any) -> None:
    with pytest.raises(BadRecord):
        decode(envelope("c", after=ROW, sequence=sequence))


def test_the_last_row_of_a_snapshot_ends_it_even_if_it_is_unfit() -> None:
    last = envelope("r", after={**ROW, "amount": "NAN"}, lsn=9, snapshot="last")
    with pytest.raises(BadRecord) as bad:
        decode(last, STRICT)
    floor = decode(envelope("r", after=ROW, lsn=9, snapshot="last")).floor
    assert bad.value.floor == decode(last).floor == floor


def test_names_with_dots_keep_apart_in_the_rest() -> None:
    payload = '{"address":{"city":"Bonn","a.b":1,"a":{"b":2}},"lines":null}'
    assert only(decode(envelope("c", after={**ROW, "payload": payload})))["_rest"] == (
        '{"payload.address.\\"a.b\\"":1,"payload.address.a":{"b":2}}'
    )


@pytest.mark.parametrize(
    "value",
    [b"", b"[]", b"{}", b'{"op":"c"}', envelope("x", after=ROW), envelope("c"), envelope("d"), envelope("u", ROW)],
)
def test_a_record_that_is_no_change_of_the_table_is_bad(value: bytes) -> None:
    with pytest.raises(BadRecord):
        decode(value)


def test_a_record_of_another_table_is_bad() -> None:
    with pytest.raises(BadRecord, match=r"expected shop\.things"):
        decode(envelope("c", after=ROW).replace(b'"things"', b'"thongs"'))


def test_a_kafka_tombstone_says_nothing() -> None:
    assert decode(None) == Decoded()


def test_no_two_different_keys_share_a_record_key() -> None:
    keys = [("a,b", "c"), ("a", "b,c"), ("a", "b", "c"), ('a","b', "c"), (1,), ("1",), ("",)]
    assert len({record_key(key) for key in keys}) == len(keys)


def test_a_bad_line_is_kept_whole_beside_the_good_ones() -> None:
    lines = [
        json.dumps({"offset": offset, "value": base64.b64encode(value).decode()})
        for offset, value in enumerate([envelope("c", after=ROW), b"?", envelope("t")])
    ]
    good, bad, truncated = decode_lines(iter([("t/0", line) for line in lines]), PostgresDecoder(CONTRACT))
    assert good[NAMES.index("_position")] == "t/0/0"
    assert json.loads(bad[-1]) == {**json.loads(lines[1]), "source": "t/0"}
    assert bad[-2].startswith("not JSON")
    assert truncated[-3] is not None


def test_a_refused_line_buries_what_stood_before_it() -> None:
    line = {"offset": 0, "value": base64.b64encode(envelope("u", ROW, {**ROW, "amount": "NAN"})).decode()}
    buried, bad = decode_lines(iter([("t/0", json.dumps(line))]), PostgresDecoder(STRICT))
    assert (buried[NAMES.index("_deleted")], buried[-2]) == (True, None)
    assert bad[-2].startswith("amount: found")


@pytest.mark.parametrize("levels", [101, 400, 2_000, 50_000])
def test_a_document_that_is_too_deep_costs_its_columns_and_is_kept_whole(levels: int) -> None:
    deep = '{"address":{"city":"Bonn"},"more":' + "[" * levels + "]" * levels + "}"
    row = only(decode(envelope("u", before=ROW, after={**ROW, "payload": deep})))
    assert (row["city"], row["lines"], row["_unfit"]) == (None, None, ["city", "lines"])
    assert json.loads(row["_rest"]) == {"payload": deep}
    # A document that no column names is a text from the beginning.
    row = only(decode(envelope("u", before=ROW, after={**ROW, "unnamed": deep})))
    assert (row["city"], row["_unfit"], json.loads(row["_rest"])) == ("Köln", None, {"unnamed": deep})


def test_an_integer_longer_than_python_reads_costs_nothing_beside_it() -> None:
    digits = "7" * 5_000
    payload = f'{{"address":{{"city":"Bonn"}},"lines":[{{"price":{digits}}}],"more":{digits}}}'
    row = only(decode(envelope("u", before=ROW, after={**ROW, "payload": payload})))
    assert (row["city"], row["lines"], row["_unfit"]) == ("Bonn", None, ["lines"])
    assert row["_rest"] == f'{{"payload.lines":[{{"price":{digits}}}],"payload.more":{digits}}}'
