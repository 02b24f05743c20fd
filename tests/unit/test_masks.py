"""What a contract masks is in no row and in no quarantine, and equal texts have equal masks in both pipelines."""

import hashlib
import hmac
import json
import re
from typing import Any

import pyarrow as pa
import pytest
from botocore.exceptions import BotoCoreError

from headwater.commands.resync import ItemReader
from headwater.contract import evolution
from headwater.contract.masks import masked, read_key
from headwater.contract.model import Contract, from_json
from headwater.contract.reading import parse_contract
from headwater.definitions import connectors
from headwater.errors import UserError
from headwater.lake.decoding import debezium_decoder
from headwater.lake.decoding.dynamodb_decoder import DynamoDecoder, decode_records, kept_decoder
from headwater.lake.decoding.rest_values import Filler, RowRest
from headwater.lake.sources import scanned_export
from headwater.verify.compare import spelled_columns
from headwater.verify.dynamodb_source import DynamoDbTable
from headwater.verify.postgresql_source import PostgresqlTable
from headwater.verify.spelling import spelled_hidden
from tests.unit.test_left_out import (
    EXCLUDED_ITEMS,
    ITEM,
    ITEMS,
    PEOPLE,
    ROW,
    SECRET,
    SETTINGS,
    change,
    column,
    event,
    from_lines,
    shown,
)

KEY = b"0123456789abcdef0123456789abcdef"
MASK = "3920d54ec70f500ee54e1da041d2364a8e57dd252f7a81ed8acd58ad6cf3b6d0"  # as in MasksTest.java
MASKED = "mask: {password_hash: hmac, note: null}\n"
PERSON = {name: value for name, value in ITEM.items() if name != "card.no"}  # no path leads to a name with a dot
MASKED_ITEMS = "mask: {passwordHash: hmac, settings.pin: hmac, settings.deep.pin: null, card.no: hmac, note: null}\n"


def test_a_mask_is_the_hmac_of_the_text() -> None:
    assert masked(SECRET, KEY) == hmac.new(KEY, SECRET.encode(), "sha256").hexdigest() == MASK
    assert masked("zürich", KEY) == hmac.new(KEY, "zürich".encode(), "sha256").hexdigest()
    assert len(masked("\ud800", KEY)) == 64


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


def test_the_source_connector_masks_by_the_key_in_its_secret() -> None:
    contract = parse_contract(PEOPLE + MASKED, "people.yaml")
    settings = SETTINGS.__class__(**{**SETTINGS.__dict__, "mask_secret": "headwater/dev/mask"})
    config = connectors.source_connector([contract], settings)[1]
    assert json.loads(config["headwater.mask.columns"]) == {"shop.people": {"password_hash": "hmac", "note": None}}
    assert config["headwater.mask.secret"] == "${secretsmanager:headwater/dev/mask:key}"
    nulls = parse_contract(PEOPLE + "mask: {note: null}\n", "people.yaml")
    assert "headwater.mask.secret" not in connectors.source_connector([nulls], SETTINGS)[1]
    plain = connectors.source_connector([parse_contract(PEOPLE, "people.yaml")], settings)[1]
    assert not [name for name in plain if "mask" in name]
    with pytest.raises(ValueError, match="mask_secret"):
        connectors.source_connector([contract], SETTINGS)


def test_masks_of_the_connector_are_stored_and_what_landed_in_clear_is_not() -> None:
    contract = parse_contract(PEOPLE + MASKED, "people.yaml")
    rows = from_lines(contract, event("c", None, {**ROW, "password_hash": MASK, "note": None}))
    assert json.loads(column(contract, rows[0], "_rest"))["password_hash"] == MASK
    clear = {**ROW, "note": SECRET}
    rows = from_lines(
        contract, event("u", clear, {**clear, "id": 2}), event("c", None, {**clear, "id": "x"}), b'{"a": "hunter2"'
    )
    assert SECRET not in shown(rows)
    assert json.loads(column(contract, rows[0], "_rest"))["password_hash"] is None
    refused = json.loads(event("u", None, None)) | {"refused": {"row": clear}}
    assert SECRET not in shown(from_lines(contract, json.dumps(refused).encode()))


def test_a_value_that_did_not_come_along_is_not_masked() -> None:
    contract = parse_contract(PEOPLE + MASKED, "people.yaml")
    old = {**ROW, "password_hash": MASK}
    (row,) = from_lines(contract, event("u", old, {**old, "password_hash": "__debezium_unavailable_value"}))
    assert json.loads(column(contract, row, "_rest"))["password_hash"] == MASK


def test_verify_compares_the_masks_of_rows() -> None:
    text = PEOPLE + "  - {name: email, type: string, source_type: text}\nmask: {email: hmac, born: null}\n"
    contract = parse_contract(text, "people.yaml")
    table = PostgresqlTable(contract, None, None, KEY)  # type: ignore[arg-type]
    assert table.row(["1", "2024-01-01", "{}", SECRET])[-1] == MASK
    assert table.row(["1", "2024-01-01", "{}", None])[1] is None
    assert table.row(["1", "2024-01-01", "{}", None])[-1] is None
    with pytest.raises(UserError, match="--mask-secret"):
        PostgresqlTable(contract, None, None)  # type: ignore[arg-type]


def test_a_masked_column_is_not_filled_from_what_rest_has_in_clear() -> None:
    column_text = "  - {name: email, type: string, source_type: text}\n"
    rest = RowRest(json.dumps({"email": SECRET}), [], "u", ["email"])
    for masks, filled in (("", {"email": SECRET}), ("mask: {Email: hmac}\n", None)):
        contract = parse_contract(PEOPLE + column_text + masks, "people.yaml")
        got = Filler(contract, debezium_decoder.rest_form(contract)).fill(rest)
        assert (got and dict(got.values)) == filled


# --- DynamoDB ---------------------------------------------------------------------------------------------------------


def from_stream(contract: Contract, *records: str | bytes) -> list[tuple[Any, ...]]:
    decoder = DynamoDecoder(contract, mask_key=KEY)
    return list(decode_records(iter([(data, "1", "p") for data in records]), decoder))


def test_attributes_that_the_contract_masks_are_in_no_row() -> None:
    contract = parse_contract(ITEMS + MASKED_ITEMS, "people.yaml")
    item = {**PERSON, "note": {"S": SECRET}, "card": {"M": {"no": {"S": SECRET}}}}
    rows = from_stream(contract, change(item), change(item, item), change(None, item))
    exported = DynamoDecoder(contract, mask_key=KEY).item(json.dumps({"Item": item}), 10**9, "e/0/0").rows
    assert len(rows) == 3
    assert SECRET not in shown(rows) + repr(exported)
    for row in (rows[0][:-3], *exported):
        settings = json.loads(row[[name for name, _ in contract.lake_columns()].index("settings")])["M"]
        assert settings["pin"] == {"S": MASK}
        assert settings["deep"]["M"]["pin"] == {"NULL": True}
        rest = json.loads(column(contract, row, "_rest"))
        assert rest["passwordHash"] == {"S": MASK}
        assert rest["note"] == {"NULL": True}
        assert rest["card"] == {"M": {"no": {"S": MASK}}}


@pytest.mark.parametrize("value", [{"N": "4711"}, {"NULL": True}, {"M": {"a": {"S": SECRET}}}, {"SS": [SECRET]}])
def test_what_is_no_text_becomes_null(value: Any) -> None:
    contract = parse_contract(ITEMS + "mask: {passwordHash: hmac}\n", "people.yaml")
    item = {"id": {"S": "1"}, "passwordHash": value}
    (row,) = from_stream(contract, change(item))
    assert json.loads(column(contract, row, "_rest")) == {"passwordHash": {"NULL": True}}


def test_quarantine_keeps_masks_and_a_replay_does_not_mask_them_again() -> None:
    strict = parse_contract(f"{ITEMS}{MASKED_ITEMS}on_unfit: quarantine\n", "people.yaml")
    bad = {**PERSON, "born": {"S": "soon"}}
    rows = from_stream(strict, change(bad), change(bad, tableName="x"), b'{"a": "hunter2"', b"\xff" + b"hunter2")
    assert all(row[-2] for row in rows)
    assert SECRET not in shown(rows)
    kept = json.loads(rows[0][-1])
    kind = parse_contract(ITEMS + MASKED_ITEMS, "people.yaml")
    (replayed,) = kept_decoder(kind, "shop-people", KEY, 1)(kept, "batch")
    (plain,) = from_stream(kind, change(bad))
    assert column(kind, replayed, "_rest") == column(kind, plain, "_rest")
    assert column(kind, replayed, "settings") == column(kind, plain, "settings")
    (again,) = kept_decoder(strict, "shop-people", KEY, 1)(kept, "batch")
    assert json.loads(again[-1])["data"] == kept["data"]


def test_verify_compares_the_masks_of_items() -> None:
    contract = parse_contract(ITEMS + MASKED_ITEMS, "people.yaml")
    forms = repr(DynamoDbTable(contract, None, "people", KEY).row(PERSON))
    assert SECRET not in forms
    assert MASK in forms
    with pytest.raises(UserError, match="--mask-secret"):
        DynamoDbTable(contract, None, "people")


@pytest.mark.parametrize(("hiding", "item"), [(MASKED_ITEMS, PERSON), (EXCLUDED_ITEMS, ITEM)], ids=["mask", "exclude"])
def test_verify_shows_nothing_that_is_hidden_by_now(hiding: str, item: dict[str, Any]) -> None:
    before = DynamoDbTable(parse_contract(ITEMS, "people.yaml"), None, "people")
    now = DynamoDbTable(parse_contract(ITEMS + hiding, "people.yaml"), None, "people", KEY)
    names = {field.name for field in now.fields}
    in_lake = before.row(item)
    assert SECRET in str(spelled_columns(before, in_lake, in_lake, names))
    columns = spelled_columns(now, now.row(item), in_lake, names)
    assert columns.keys() == names
    assert SECRET not in str(columns)
    assert "(hidden)" in columns["_rest"][1]
    assert columns["locale"] == ("de", "de")


def spelled_rest(hiding: str, rest: dict[str, Any]) -> str:
    """The ``_rest`` of a row of the lake, as the comparison shows it."""
    field = DynamoDbTable(parse_contract(ITEMS + hiding, "people.yaml"), None, "people", KEY).fields[-1]
    (form,) = field.lake_forms(pa.array([json.dumps(rest)]))
    return field.spell(form)


@pytest.mark.parametrize("hiding", ["mask: {passwordHash: null}\n", "mask: {passwordHash: hmac}\n", EXCLUDED_ITEMS])
def test_verify_shows_no_hash_that_looks_like_a_mask(hiding: str) -> None:
    of_password = hashlib.sha256(SECRET.encode()).hexdigest()
    assert of_password not in spelled_rest(hiding, {"passwordHash": {"S": of_password}})
    assert spelled_hidden(of_password) == "(hidden)"


@pytest.mark.parametrize("name", ["profile.pin", 'profile."pin"', "profile"])
def test_verify_hides_values_of_columns_that_are_gone(name: str) -> None:
    shown = spelled_rest("exclude: [profile.pin]\n", {name: {"S": SECRET}, "note": {"S": "n"}})
    assert SECRET not in shown
    assert '{"S": "n"}' in shown


def test_a_decoder_without_the_key_is_refused() -> None:
    with pytest.raises(UserError, match="people: found hmac masks and no key"):
        DynamoDecoder(parse_contract(ITEMS + MASKED_ITEMS, "people.yaml"))
    DynamoDecoder(parse_contract(ITEMS + "mask: {note: null}\n", "people.yaml"))


@pytest.mark.parametrize("text", ["x", "[]", "{}", '{"key": 1}', '{"key": "short"}'])
def test_a_secret_without_a_key_is_refused(text: str) -> None:
    class Secrets:
        def get_secret_value(self, **_: str) -> Any:
            return {"SecretString": text}

    with pytest.raises(UserError, match="secret s: found no key"):
        read_key(Secrets(), "s")


# --- Contracts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [PEOPLE + MASKED, ITEMS + MASKED_ITEMS, PEOPLE])
def test_masks_reach_the_cluster(text: str) -> None:
    contract = parse_contract(text, "people.yaml")
    assert from_json(contract.to_json(), "people.json") == contract
    assert ("mask" in contract.to_json()) == ("mask" in text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PEOPLE + "mask: {id: hmac}\n", "mask: id: found the column id of key"),
        (PEOPLE + "mask: {ID: null}\n", "mask: ID: found the column id of key"),
        (PEOPLE.replace("[]", "[born]") + "mask: {born: null}\n", "mask: born: found the column born of partition_by"),
        (PEOPLE + "mask: {born: hmac}\n", "mask: born: found hmac on date from date"),
        (PEOPLE + "mask: {about: null}\n", "mask: about: found the column city, which holds a part"),
        (PEOPLE + "mask: {a: hmac, A: null}\n", "mask: found 'A', which overlaps another path of mask or exclude"),
        (PEOPLE + "exclude: [a]\nmask: {a: hmac}\n", "mask: found 'a', which overlaps another path of mask or exclude"),
        (PEOPLE + "mask: {a: sha}\n", "expected a mapping of the source's columns to hmac or null"),
        (ITEMS + "mask: {id: null}\n", "mask: id: found the column id of key"),
        (ITEMS + "mask: {born: hmac}\n", "mask: born: found hmac on date from S"),
        (ITEMS + "mask: {settings: null}\n", "mask: settings: found the column locale, which holds a part"),
        (ITEMS + "mask: {a..b: null}\n", "mask: found 'a..b', expected an attribute"),
        (ITEMS + "mask: {a.b: null, a: hmac}\n", "mask: found 'a', which overlaps another path of mask or exclude"),
    ],
)
def test_what_cannot_be_masked_is_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        parse_contract(text, "people.yaml")


def test_a_change_of_masks_is_named_with_what_to_do() -> None:
    old, new = (parse_contract(PEOPLE + text, "x") for text in ("mask: {a: hmac}\n", "mask: {a: null, b: hmac}\n"))
    found = [(change.change, change.verdict) for change in evolution.changes([old], [new])]
    assert found == [("a hmac becomes null", evolution.FILL), ("b in clear becomes hmac", evolution.FILL)]
    (gone,) = evolution.changes([old], [parse_contract(PEOPLE, "x")])
    assert gone.change == "a hmac becomes in clear"
    assert gone.meaning == (
        "rows that were written before keep their masks; a value that arrives unmasked while the writer's "
        "contract has the mask becomes null"
    )
    assert "headwater resync" in gone.action


def test_what_is_read_again_is_stored_without_what_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    contract = parse_contract(
        ITEMS + "mask: {note: null, settings.pin: null}\nexclude: [passwordHash, settings.deep]\n", "p.yaml"
    )
    stored: list[tuple[str, Any]] = []

    def export_table(dynamodb: Any, s3: Any, table: str, target: str, report: Any, clean: Any) -> str:
        stored.append((target, clean({**PERSON, "note": {"S": SECRET}, "raw": {"B": b"1"}})))
        raise BotoCoreError

    monkeypatch.setattr(scanned_export, "export_table", export_table)
    with pytest.raises(UserError, match="reading the DynamoDB table"):
        ItemReader(None, None, "s3://lake-bucket/lake/").read(contract, "shop-people")
    ((target, item),) = stored
    assert target == f"s3://lake-bucket/exports/_resync/{contract.table}"
    assert SECRET not in repr(item)
    assert (item["note"], item["raw"], PERSON["passwordHash"]) == ({"NULL": True}, {"B": b"1"}, {"S": SECRET})
