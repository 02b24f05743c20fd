"""What a contract excludes or drops is in no row, in no quarantine, and does not leave the source connector."""

import base64
import gzip
import json
import re
from typing import Any

import pytest

from headwater.contract.model import Contract, from_json
from headwater.contract.reading import parse_contract
from headwater.definitions import connectors
from headwater.definitions.connectors import CaptureSettings
from headwater.errors import UserError
from headwater.lake.decoding.debezium_decoder import PostgresDecoder, decode_lines
from headwater.lake.decoding.dynamodb_decoder import DynamoDecoder, decode_records
from headwater.lake.sources.data_files import DataFile
from headwater.lake.sources.dynamodb_export import Export, decode_items
from headwater.verify.dynamodb_source import DynamoDbTable

PEOPLE = """
table: people
description: x
source: {database: postgresql, table: shop.people}
key: [id]
partition_by: []
buckets: 1
columns:
  - {name: id, type: int, source_type: integer}
  - {name: born, type: date, source_type: date}
  - {name: city, type: string, from: about.city}
  - {name: home, type: "struct<zip:int>", from: about.home}
"""
ITEMS = """
table: people
description: x
source: {database: dynamodb, table: shop-people}
key: [id]
partition_by: []
buckets: 1
columns:
  - {name: id, type: string, source_type: S}
  - {name: born, type: date, source_type: S}
  - {name: locale, type: string, source_type: S, from: settings.locale}
  - {name: settings, type: string, source_type: M}
"""
SECRET = "hunter2"
EXCLUDED = "exclude: [password_hash]\n"
EXCLUDED_ITEMS = 'exclude: [passwordHash, settings.pin, settings.deep.pin, ["card.no"]]\n'
ROW = {
    "id": 1,
    "born": 1,
    "password_hash": SECRET,
    "about": '{"city": "Bonn", "home": {"zip": 1, "floor": 2}}',
    "note": "n",
}
ITEM: dict[str, Any] = {
    "id": {"S": "1"},
    "born": {"S": "1970-01-02"},
    "passwordHash": {"S": SECRET},
    "card.no": {"S": SECRET},
    "note": {"S": "n"},
    "nothing": {"NULL": True},
    "settings": {
        "M": {"locale": {"S": "de"}, "pin": {"S": SECRET}, "deep": {"M": {"pin": {"S": SECRET}, "x": {"N": "1.50"}}}}
    },
}


def event(op: str, before: Any, after: Any) -> bytes:
    source = {"schema": "shop", "table": "people", "lsn": 7, "ts_us": 1, "snapshot": "false"}
    return json.dumps({"op": op, "before": before, "after": after, "source": source}).encode()


def from_lines(contract: Contract, *values: bytes) -> list[tuple[Any, ...]]:
    lines = [json.dumps({"offset": 0, "key": None, "value": base64.b64encode(value).decode()}) for value in values]
    return list(decode_lines(iter([("t/0", line) for line in lines]), PostgresDecoder(contract)))


def change(new: Any = None, old: Any = None, **fields: Any) -> str:
    images = {name: image for name, image in (("NewImage", new), ("OldImage", old)) if image is not None}
    document = {
        "eventID": "1",
        "eventName": "INSERT" if old is None else "REMOVE" if new is None else "MODIFY",
        "tableName": "shop-people",
        "dynamodb": {"ApproximateCreationDateTime": 1, "Keys": {"id": {"S": "1"}}, **images},
    }
    return json.dumps(document | fields)


def from_stream(contract: Contract, *records: str | bytes) -> list[tuple[Any, ...]]:
    return list(decode_records(iter([(data, "1", "p") for data in records]), DynamoDecoder(contract)))


def column(contract: Contract, row: tuple[Any, ...], name: str) -> Any:
    return row[[known for known, _ in contract.lake_columns()].index(name)]


def shown(rows: list[tuple[Any, ...]]) -> str:
    """All that is in rows, what quarantine keeps of a record in plain form."""
    raw = [row[-1] for row in rows if row[-1] is not None]
    values = [json.loads(text).get("value") for text in raw]
    return repr(rows) + "".join(base64.b64decode(value).decode() for value in values if value is not None)


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


def test_a_column_that_the_contract_excludes_is_in_no_row() -> None:
    contract = parse_contract(PEOPLE + EXCLUDED, "people.yaml")
    rows = from_lines(contract, event("c", None, ROW), event("u", ROW, {**ROW, "id": 2}), event("d", ROW, None))
    assert len(rows) == 4
    assert SECRET not in shown(rows)
    assert json.loads(column(contract, rows[0], "_rest")) == {"about.home.floor": 2, "note": "n"}
    kept = from_lines(parse_contract(PEOPLE, "people.yaml"), event("c", None, ROW))
    assert SECRET in shown(kept)


def test_a_dropped_rest_has_only_what_does_not_fit() -> None:
    contract = parse_contract(PEOPLE + "unnamed: drop\n", "people.yaml")
    (row,) = from_lines(contract, event("c", None, ROW))
    assert column(contract, row, "_rest") is None
    assert (column(contract, row, "city"), column(contract, row, "home")) == ("Bonn", (1,))
    home = {"zip": "x"}
    (row,) = from_lines(contract, event("c", None, {**ROW, "about": json.dumps({"more": 1, "home": home})}))
    assert json.loads(column(contract, row, "_rest")) == {"about.home": home}
    assert column(contract, row, "_unfit") == ["home"]


@pytest.mark.parametrize("setting", [EXCLUDED, "unnamed: drop\n"])
def test_quarantine_keeps_a_record_without_what_the_contract_leaves_out(setting: str) -> None:
    contract = parse_contract(PEOPLE + setting, "people.yaml")
    rows = from_lines(contract, event("c", None, {**ROW, "id": "x"}), event("u", None, None), b'{"a": "hunter2"')
    assert [bool(row[-2]) for row in rows] == [True, True, True]
    assert SECRET not in shown(rows)
    kept = json.loads(base64.b64decode(json.loads(rows[0][-1])["value"]))
    assert kept["after"]["id"] == "x"
    assert json.loads(rows[2][-1]) == {"offset": 0, "key": None, "value": None, "source": "t/0"}
    whole = from_lines(parse_contract(PEOPLE, "people.yaml"), event("c", None, {**ROW, "id": "x"}))
    assert SECRET in shown(whole)


SETTINGS = CaptureSettings("dev", "eu-west-1", "db", "5432", "shop", "secret", {}, "landing")


def leaves(contract: Contract, name: str) -> bool:
    """Whether Debezium lets a column through, by its own way to match."""
    listed = connectors.source_connector([contract], SETTINGS)[1].get("column.exclude.list", "").split(",")
    return not any(re.fullmatch(pattern, name, re.IGNORECASE) for pattern in listed)


def test_the_source_connector_leaves_excluded_columns_behind() -> None:
    contract = parse_contract(PEOPLE + 'exclude: [password_hash, "a.b", "c,d", " e ", Straße, 🔑]\n', "people.yaml")
    for name in ("password_hash", "a.b", "c,d", " e ", "Straße", "🔑"):
        assert not leaves(contract, f"shop.people.{name}")
    for name in ("id", "password_hashes", "axb", "note", "e", "Strasse"):
        assert leaves(contract, f"shop.people.{name}")
    assert leaves(contract, "shop.others.password_hash")


def test_the_source_connector_leaves_behind_what_is_not_named_where_that_is_dropped() -> None:
    contract = parse_contract(PEOPLE + "unnamed: drop\n", "people.yaml")
    for name in ("id", "born", "about"):
        assert leaves(contract, f"shop.people.{name}")
    for name in ("note", "ids", "i", "born_at", "id\n"):
        assert not leaves(contract, f"shop.people.{name}")
    assert leaves(contract, "shop.people_2.note")
    without = connectors.source_connector([parse_contract(PEOPLE, "people.yaml")], SETTINGS)[1]
    assert without["column.exclude.list"] == "no[.]such[.]column"


# --- DynamoDB ---------------------------------------------------------------------------------------------------------


def test_attributes_that_the_contract_excludes_are_in_no_row() -> None:
    contract = parse_contract(ITEMS + EXCLUDED_ITEMS, "people.yaml")
    rows = from_stream(contract, change(ITEM), change(ITEM, ITEM), change(None, ITEM))
    exported = DynamoDecoder(contract).item(json.dumps({"Item": ITEM}), 10**9, "e/0/0").rows
    assert len(rows) == 3
    assert SECRET not in shown(rows) + repr(exported)
    for row in (rows[0][:-3], *exported):
        assert json.loads(row[[name for name, _ in contract.lake_columns()].index("settings")]) == {
            "M": {"locale": {"S": "de"}, "deep": {"M": {"x": {"N": "1.50"}}}}
        }
        assert json.loads(column(contract, row, "_rest")) == {"note": {"S": "n"}, "nothing": {"NULL": True}}
    assert SECRET in shown(from_stream(parse_contract(ITEMS, "people.yaml"), change(ITEM)))


def test_a_dropped_rest_of_an_item_has_only_what_does_not_fit() -> None:
    contract = parse_contract(ITEMS + "unnamed: drop\n", "people.yaml")
    (row,) = from_stream(contract, change(ITEM))
    assert column(contract, row, "_rest") is None
    (row,) = from_stream(contract, change({**ITEM, "born": {"S": "soon"}}))
    assert json.loads(column(contract, row, "_rest")) == {"born": {"S": "soon"}}


@pytest.mark.parametrize("setting", [EXCLUDED_ITEMS, "unnamed: drop\nexclude: [settings.pin, settings.deep]\n"])
def test_quarantine_keeps_an_item_without_what_the_contract_leaves_out(setting: str) -> None:
    contract = parse_contract(f"{ITEMS}{setting}on_unfit: quarantine\n", "people.yaml")
    bad = {**ITEM, "born": {"S": "soon"}}
    rows = from_stream(
        contract, change(bad), change(ITEM, ITEM, tableName="x"), b'{"a": "hunter2"', b"\xff" + b"hunter2"
    )
    assert all(row[-2] for row in rows)
    assert SECRET not in shown(rows)
    assert json.loads(json.loads(rows[0][-1])["data"])["dynamodb"]["NewImage"]["born"] == {"S": "soon"}
    assert json.loads(rows[2][-1])["data"] is None
    (exported,) = in_export(contract, {"Item": bad})
    assert SECRET not in repr(exported)
    assert json.loads(json.loads(exported[-1])["item"])["Item"]["born"] == {"S": "soon"}
    strict = parse_contract(f"{ITEMS}on_unfit: quarantine\n", "people.yaml")
    assert SECRET in shown(from_stream(strict, change(bad)))


def in_export(contract: Contract, document: dict[str, Any]) -> list[tuple[Any, ...]]:
    body = gzip.compress(json.dumps(document).encode() + b"\n")

    class S3:
        def download_fileobj(self, bucket: str, key: str, target: Any) -> None:
            target.write(body)

    file = DataFile("bucket", "export/data/a.json.gz", 1, "", len(body))
    export = Export("s3://bucket/export", "e", "people", 10**9, 10**9, (file,))
    return list(decode_items(export.files, DynamoDecoder(contract), export, S3()))


def test_verify_compares_items_without_what_the_contract_leaves_out() -> None:
    def forms(setting: str) -> Any:
        return DynamoDbTable(parse_contract(ITEMS + setting, "people.yaml"), None, "people").row(ITEM)

    assert SECRET in repr(forms(""))
    excluded = forms(EXCLUDED_ITEMS)
    assert SECRET not in repr(excluded)
    assert "note" in repr(excluded[-1])
    assert forms("unnamed: drop\n")[-1] is None


# --- Contracts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [PEOPLE + EXCLUDED, ITEMS + EXCLUDED_ITEMS + "unnamed: drop\n", PEOPLE])
def test_what_is_left_out_reaches_the_cluster(text: str) -> None:
    contract = parse_contract(text, "people.yaml")
    assert from_json(contract.to_json(), "people.json") == contract
    assert ("exclude" in contract.to_json()) == ("exclude" in text)
    assert ("unnamed" in contract.to_json()) == ("unnamed" in text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PEOPLE + "exclude: [about]\n", "exclude: found 'about', which the column city holds"),
        (PEOPLE + "exclude: [ID]\n", "exclude: found 'ID', which the column id holds"),
        (PEOPLE + "exclude: [a, a]\n", "exclude: found 'a' twice"),
        (PEOPLE + "exclude: secret\n", "exclude: found 'secret', expected a list of the source's columns"),
        (PEOPLE + "unnamed: quarantine\n", "unnamed: found 'quarantine', expected drop or keep"),
        (ITEMS + "exclude: [settings]\n", "exclude: found 'settings', which the column locale holds"),
        (ITEMS + "exclude: [settings.locale]\n", "exclude: found 'settings.locale', which the column locale holds"),
    ],
)
def test_what_a_column_holds_cannot_be_left_out(text: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        parse_contract(text, "people.yaml")
