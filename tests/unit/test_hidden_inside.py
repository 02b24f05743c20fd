"""An attribute of DynamoDB is stored nowhere if no maps lead to what a contract excludes or masks inside it."""

import base64
import json
import re
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from botocore.exceptions import BotoCoreError

from headwater.commands.resync import ItemReader
from headwater.contract.model import Contract, History, change_history
from headwater.contract.reading import parse_contract
from headwater.errors import UserError
from headwater.lake.decoding.changes import columns_tagged
from headwater.lake.decoding.dynamodb_decoder import DynamoDecoder, decode_item, decode_records, kept_decoder, rest_form
from headwater.lake.decoding.rest_values import Filler, RowRest
from headwater.lake.sources import scanned_export
from headwater.verify.dynamodb_source import DynamoDbTable

SECRET = "hunter2"
KEY = b"0123456789abcdef0123456789abcdef"
PEOPLE = """
table: people
description: x
source: {database: dynamodb, table: shop-people}
key: [id]
partition_by: [month]
buckets: 1
columns:
  - {name: id, type: string, source_type: S}
  - {name: month, type: string, source_type: S, from: born, transform: month}
  - {name: born, type: date, source_type: S}
"""
NAMED = "  - {name: name, type: string, source_type: S, from: users.name}\n"
HIDDEN = {
    "excluded": "exclude: [users.ssn]\n",
    "masked as null": "mask: {users.ssn: null}\n",
    "masked by hmac": "mask: {users.ssn: hmac}\n",
    "both": "exclude: [users.ssn]\nmask: {users.old.ssn: hmac}\n",
    "unnamed dropped": "exclude: [users.ssn]\nunnamed: drop\n",
    "strict": "exclude: [users.ssn]\non_unfit: quarantine\n",
}
DEEP = "exclude: [users.home.door.code]\n"
ONE = {"M": {"name": {"S": "Ann"}, "ssn": {"S": SECRET}}}
TEXT = json.dumps({"ssn": SECRET})
OTHERS: dict[str, Any] = {
    "a list of maps": {"L": [ONE]},
    "a list of lists": {"L": [{"L": [ONE]}]},
    "an empty list": {"L": []},
    "JSON in a text": {"S": TEXT},
    "a set of texts": {"SS": [SECRET]},
    "bytes": {"B": base64.b64encode(SECRET.encode()).decode()},
    "a set of bytes": {"BS": [base64.b64encode(SECRET.encode()).decode()]},
    "a number": {"N": "4711"},
    "a set of numbers": {"NS": ["4711"]},
    "a boolean": {"BOOL": True},
}
BROKEN: dict[str, Any] = {
    "a plain text": SECRET,
    "a plain list": [SECRET],
    "a list in place of a map": {"M": [ONE]},
    "a map beside a text": {"M": {}, "S": SECRET},
    "an unknown type": {"X": SECRET},
    "no null": {"NULL": SECRET},
}
HARMLESS: dict[str, Any] = {"absent": None, "null": {"NULL": True}, "empty": {"M": {}}, "of others": {"M": {"x": ONE}}}
TRACES = (SECRET, base64.b64encode(SECRET.encode()).decode(), "4711")


def people(setting: str, columns: str = NAMED) -> Contract:
    return parse_contract(PEOPLE + columns + setting, "people.yaml")


def item(users: Any, **more: Any) -> dict[str, Any]:
    there = {} if users is None else {"users": users}
    return {"id": {"S": "1"}, "born": {"S": "1970-01-02"}, "note": {"S": "n"}, **there, **more}


def change(new: Any, old: Any = None, **fields: Any) -> str:
    images = {name: image for name, image in (("NewImage", new), ("OldImage", old)) if image is not None}
    event = "INSERT" if old is None else "REMOVE" if new is None else "MODIFY"
    record = {"ApproximateCreationDateTime": 1, "Keys": {"id": {"S": "1"}}, **images}
    return json.dumps({"eventID": "1", "eventName": event, "tableName": "shop-people", "dynamodb": record} | fields)


def from_stream(contract: Contract, *records: Any) -> list[dict[str, Any]]:
    """The rows of records, by the names of their columns."""
    decoder = DynamoDecoder(contract, mask_key=KEY)
    return named(contract, decode_records(iter([(data, "1", "p") for data in records]), decoder))


def named(contract: Contract, rows: Iterable[tuple[Any, ...]]) -> list[dict[str, Any]]:
    names = [name for name, _ in columns_tagged(contract)]
    return [dict(zip(names, row, strict=True)) for row in rows]


def replayed(contract: Contract, raw: str) -> dict[str, Any]:
    (row,) = named(contract, kept_decoder(contract, "shop-people", KEY, 1)(json.loads(raw), "batch"))
    return row


def shows(stored: Any) -> bool:
    return any(trace in repr(stored) for trace in TRACES)


def rest_of(row: dict[str, Any]) -> Any:
    return None if row["_rest"] is None else json.loads(row["_rest"])


def verified(contract: Contract, image: dict[str, Any], row: dict[str, Any]) -> bool:
    """Whether verify's forms of an item equal the forms of a lake row, in all columns that fit."""
    table = DynamoDbTable(contract, None, "people", KEY)
    unfit = frozenset(row["_unfit"] or ())
    types = {"born": pa.date32()}
    return all(
        field.compared(form, unfit)
        == field.compared(field.lake_forms(pa.array([row[field.name]], types.get(field.name, pa.string())))[0], unfit)
        for field, form in zip(table.fields, table.row(image), strict=True)
    )


def of_client(value: Any) -> Any:
    """A value as boto3's client gives it, bytes as such."""
    if isinstance(value, dict):
        return {
            name: base64.b64decode(inner)
            if name == "B"
            else [base64.b64decode(one) for one in inner]
            if name == "BS"
            else of_client(inner)
            for name, inner in value.items()
        }
    return [of_client(one) for one in value] if isinstance(value, list) else value


# --- What is stored ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("users", [*OTHERS.values(), *BROKEN.values()], ids=[*OTHERS, *BROKEN])
@pytest.mark.parametrize("hidden", HIDDEN)
def test_an_attribute_without_maps_to_what_is_hidden_is_lost(hidden: str, users: Any) -> None:
    contract = people(HIDDEN[hidden])
    stored = from_stream(
        contract, change(item(users)), change(item(users), item(ONE)), change(item(ONE), item(users)),
        change(None, item(users)),
    )  # fmt: skip
    line = json.dumps({"Item": item(users)})
    stored += named(contract, decode_item(line, (10**9, 10**9), "e/0/0", DynamoDecoder(contract, mask_key=KEY)))
    assert not shows(stored)
    if hidden == "strict":
        # An update that is put aside leaves a tombstone.
        assert [row["_reason"] is None for row in stored] == [False, True, False, True, True, False]
        return
    assert [row["_left_out"] for row in stored] == [1, 1, None, None, 1]
    for row in (stored[0], stored[1], stored[4]):
        # No row says that the item has no name.
        assert (row["name"], row["_unfit"], row["born"].day) == (None, ["name"], 2)
        assert rest_of(row) == (None if "drop" in hidden else {"note": {"S": "n"}})


@pytest.mark.parametrize("users", HARMLESS.values(), ids=HARMLESS)
@pytest.mark.parametrize("hidden", HIDDEN)
def test_where_nothing_can_be_hidden_the_attribute_stays(hidden: str, users: Any) -> None:
    (row,) = from_stream(people(HIDDEN[hidden]), change(item(users)))
    assert (row["_left_out"], row["_unfit"], row["name"], row["_reason"]) == (None, None, None, None)
    inside = users == HARMLESS["of others"]
    expected = {} if users is None else {"users.x": users["M"]["x"]} if inside else {"users": users}
    assert rest_of(row) == (None if "drop" in hidden else {"note": {"S": "n"}} | expected)


@pytest.mark.parametrize(
    "users",
    [
        {"M": {"home": {"L": [{"M": {"door": {"M": {"code": {"S": SECRET}}}}}]}}},
        {"M": {"home": {"M": {"door": {"L": [{"M": {"code": {"S": SECRET}}}]}}}}},
        {"M": {"home": {"M": {"door": {"S": SECRET}}}}},
        {"M": {"home": {"S": json.dumps({"door": SECRET})}, "name": {"S": "Ann"}}},
    ],
)
def test_a_list_anywhere_on_the_way_loses_the_whole_attribute(users: Any) -> None:
    (row,) = from_stream(people(DEEP), change(item(users)))
    assert (row["_left_out"], row["name"], row["_unfit"], rest_of(row)) == (1, None, ["name"], {"note": {"S": "n"}})


def test_of_two_paths_each_counts_and_other_attributes_stay() -> None:
    hidden = 'exclude: [users.ssn, ["pass.port", "no"]]\nmask: {users.old.ssn: hmac, settings.pin: null, card: hmac}\n'
    settings = {"M": {"pin": {"S": SECRET}, "locale": {"S": "de"}}}
    image = item({"L": [ONE]}, **{"pass.port": {"L": [ONE]}, "card": {"L": [ONE]}, "settings": settings})
    (row,) = from_stream(people(hidden), change(image))
    assert (row["_left_out"], row["_unfit"], shows(row)) == (2, ["name"], False)
    assert rest_of(row) == {
        "note": {"S": "n"},
        "card": {"NULL": True},
        "settings": {"M": {"pin": {"NULL": True}, "locale": {"S": "de"}}},
    }


def test_a_name_that_a_map_has_twice_is_hidden_twice() -> None:
    twice = '{"M":{"name":{"S":"Ann"},"ssn":{"S":"hunter2"},"ssn":{"S":"hunter2"}}}'
    other = '{"M":{"ssn":{"S":"hunter2"}},"M":{"name":{"S":"Ann"}}}'
    contract = people(HIDDEN["excluded"])
    record = change(item("HERE"))
    rows = from_stream(contract, record.replace('"HERE"', twice), record.replace('"HERE"', other))
    assert [(row["name"], shows(row)) for row in rows] == [("Ann", False)] * 2


def test_capitals_of_a_path_count() -> None:
    (row,) = from_stream(people(HIDDEN["excluded"], ""), change(item(None, Users={"L": [{"S": "x"}]})))
    assert (row["_left_out"], rest_of(row)["Users"]) == (None, {"L": [{"S": "x"}]})


def test_what_unnamed_drops_anyway_is_not_counted() -> None:
    (row,) = from_stream(people(HIDDEN["unnamed dropped"], ""), change(item({"L": [ONE]})))
    assert (row["_left_out"], row["_unfit"], row["_rest"]) == (None, None, None)


def test_a_change_history_stores_the_attribute_as_little() -> None:
    text = PEOPLE + NAMED + HIDDEN["masked by hmac"] + "history: {keep_days: 30}\n"
    history = change_history(parse_contract(text, "people.yaml"))
    assert history is not None
    assert history.history == History(30)
    rows = from_stream(history, change(item({"L": [ONE]})), change(None, item({"L": [ONE]})))
    assert [row["_left_out"] for row in rows] == [1, None]
    assert not shows(rows)


def test_an_item_that_moves_is_counted_once() -> None:
    before = item({"L": [ONE]}) | {"born": {"S": "1970-02-01"}}
    rows = from_stream(people(HIDDEN["excluded"]), change(item({"L": [ONE]}), before))
    assert [(row["_deleted"], row["_left_out"]) for row in rows] == [(False, 1), (True, None)]
    assert not shows(rows)


# --- Quarantine -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("users", [*OTHERS.values(), *BROKEN.values()], ids=[*OTHERS, *BROKEN])
@pytest.mark.parametrize("hidden", HIDDEN)
def test_quarantine_and_replay_have_no_trace_of_it(hidden: str, users: Any) -> None:
    bad = {**item(users), "id": {"N": "1"}}
    contract = people(HIDDEN[hidden])
    quarantined = from_stream(
        contract, change(bad), change(bad, bad, tableName="x"), change(item(users), item(users), eventName="X")
    )
    assert all(row["_reason"] for row in quarantined)
    assert not shows(quarantined)
    assert json.loads(json.loads(quarantined[0]["_raw"])["data"])["dynamodb"]["NewImage"]["users"] == {"LEFT_OUT": True}
    # What was mended in the meantime is replayed as it would have been stored, and counted then.
    raw = quarantined[0]["_raw"].replace('{\\"N\\": \\"1\\"}', '{\\"S\\": \\"1\\"}')
    row = replayed(contract, raw)
    (first,) = from_stream(contract, change(item(users)))
    again = {name: (row[name], first[name]) for name in row if name not in ("_raw",)}
    assert all(one == other for one, other in again.values()), again


def test_the_reason_says_why_and_not_what() -> None:
    (row,) = from_stream(people(HIDDEN["strict"]), change(item({"L": [ONE]})))
    assert row["_reason"] == (
        "name: found users without a map on the way to what the contract excludes or masks in it, expected maps"
    )


@pytest.mark.parametrize(
    "record",
    [
        {"Records": [{"dynamodb": {"NewImage": item({"L": [ONE]})}}]},
        {"dynamodb": {"NewImage": [item({"L": [ONE]})]}},
        {"dynamodb": {"New": item({"L": [ONE]}), "Keys": {"id": {"S": "1"}}}},
        {"dynamodb": json.dumps(item({"L": [ONE]}))},
        {"dynamodb": [item({"L": [ONE]})]},
        {"Item": [item({"L": [ONE]})]},
        {"item": item({"L": [ONE]})},
        [item({"L": [ONE]})],
        SECRET,
        None,
    ],
)
def test_quarantine_has_nothing_of_a_record_of_another_form(record: Any) -> None:
    (row,) = from_stream(people(HIDDEN["excluded"]), json.dumps(record))
    assert row["_reason"]
    assert not shows(row)
    assert not shows(DynamoDecoder(people(HIDDEN["excluded"])).kept(json.dumps(record)))


# --- Exports, fill and verify -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("users", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("hidden", HIDDEN)
def test_what_is_read_again_has_the_attribute_nowhere(hidden: str, users: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    contract = people(HIDDEN[hidden])
    stored: list[Any] = []

    def export_table(dynamodb: Any, s3: Any, table: str, target: str, report: Any, clean: Any) -> str:
        stored.append(clean(of_client(item(users))))
        raise BotoCoreError

    monkeypatch.setattr(scanned_export, "export_table", export_table)
    with pytest.raises(UserError, match="reading the DynamoDB table"):
        ItemReader(None, None, "s3://lake-bucket/lake/").read(contract, "shop-people")
    assert stored[0]["users"] == {"LEFT_OUT": True}
    if hidden != "strict":
        row = DynamoDecoder(contract, mask_key=KEY).item(json.dumps({"Item": stored[0]}), 10**9, "e/0/0")
        (streamed,) = from_stream(contract, change(item(users)))
        assert row.left_out == streamed["_left_out"] == 1
        values = dict(zip(streamed, row.rows[0], strict=False))
        assert (values["_rest"], values["_unfit"]) == (streamed["_rest"], streamed["_unfit"])


@pytest.mark.parametrize("users", [*OTHERS.values(), *HARMLESS.values(), ONE], ids=[*OTHERS, *HARMLESS, "maps"])
@pytest.mark.parametrize("hidden", [name for name in HIDDEN if name != "strict"])
def test_verify_finds_lake_and_source_equal_then(hidden: str, users: Any) -> None:
    contract = people(HIDDEN[hidden])
    (row,) = from_stream(contract, change(item(users)))
    image = of_client(item(users))
    assert verified(contract, image, row)
    forms = DynamoDbTable(contract, None, "people", KEY).row(image)
    assert not shows(forms) or users == HARMLESS["of others"]
    assert not verified(contract, {**image, "note": {"S": "other"}}, row) or "drop" in hidden


def test_fill_takes_nothing_out_of_what_was_stored_in_clear_before() -> None:
    rest = RowRest(json.dumps({"users": {"L": [ONE]}}), [], "u", ["name", "whole"])
    whole = "  - {name: whole, type: string, source_type: M, from: users}\n"
    contract = people("mask: {users.ssn: null}\n", NAMED + whole)
    filled = Filler(contract, rest_form(contract)).fill(rest)
    assert filled is None or not filled.values


# --- Contracts --------------------------------------------------------------------------------------------------------

LIST = '  - {name: users, type: "array<struct<name:string>>", source_type: L}\n'
STRUCT = '  - {name: users, type: "struct<homes:array<struct<city:string>>,pin:string>", source_type: M}\n'


@pytest.mark.parametrize(
    ("columns", "setting", "message"),
    [
        (
            LIST,
            "exclude: [users.ssn]\n",
            "people.yaml: exclude: found 'users.ssn', which leads into users, of type L (array<struct<name:string>>) "
            "by the column users. Expected a path only through maps: exclude users as a whole, without the column",
        ),
        (
            LIST,
            "mask: {users.ssn: null}\n",
            "people.yaml: mask: found 'users.ssn', which leads into users, of type L (array<struct<name:string>>) by "
            "the column users. Expected a path only through maps: mask users as a whole",
        ),
        (LIST, "mask: {users.home.ssn: hmac}\n", "mask: found 'users.home.ssn', which leads into users"),
        (LIST, 'exclude: [["users", "s.sn"]]\n', "exclude: found 'users.s.sn', which leads into users"),
        (STRUCT, "exclude: [users.homes.ssn]\n", "leads into users.homes, of type array<struct<city:string>> by the"),
        (STRUCT, "exclude: [users.pin.x]\n", "leads into users.pin, of type string by the column users"),
        ("", "exclude: [id.x]\n", "leads into id, of type S (string) by the column id"),
        ("", "mask: {born.x: null}\n", "leads into born, of type S (string) by the column month"),
        (
            "  - {name: all, type: string, source_type: L, from: users.homes}\n",
            "exclude: [users.homes.a.b]\n",
            "leads into users.homes, of type L (string) by the column all",
        ),
        ("  - {name: tags, type: array<string>, source_type: SS}\n", "mask: {tags.x: null}\n", "leads into tags"),
    ],
)
def test_a_path_into_what_the_contract_calls_no_map_is_refused(columns: str, setting: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        people(setting, columns)


@pytest.mark.parametrize(
    ("columns", "setting"),
    [
        (STRUCT, "exclude: [users.ssn, users.more.ssn]\n"),
        (STRUCT, "mask: {users.homes: null}\n"),
        (LIST, "mask: {users: null}\n"),
        (LIST, "exclude: [Users.ssn, other.users.ssn]\n"),
        ("  - {name: users, type: string, source_type: M}\n", "exclude: [users.a.b.c]\n"),
    ],
)
def test_a_path_that_may_lead_through_maps_is_taken(columns: str, setting: str) -> None:
    people(setting, columns)
