"""Contracts that are inferred for DynamoDB tables; tests/local/test_own_database.py infers some for a real
PostgreSQL."""

from __future__ import annotations

import re
from typing import Any

import pytest

from headwater.contract.inference import from_dynamodb, from_postgresql
from headwater.errors import UserError

TABLE = {
    "TableName": "Shop-Carts.v2",
    "ItemCount": 1_200_000,
    "KeySchema": [{"AttributeName": "userId", "KeyType": "HASH"}, {"AttributeName": "at", "KeyType": "RANGE"}],
    "AttributeDefinitions": [
        {"AttributeName": "userId", "AttributeType": "S"},
        {"AttributeName": "at", "AttributeType": "N"},
        {"AttributeName": "of an index", "AttributeType": "S"},
    ],
}
ITEMS: list[dict[str, Any]] = [
    {
        "userId": {"S": "u1"}, "at": {"N": "1"}, "total": {"N": "12.50"}, "count": {"N": "3"},
        "day": {"S": "2024-02-29"},
        "tags": {"SS": ["a"]}, "sizes": {"NS": ["1.5", "2"]}, "open": {"BOOL": True}, "raw": {"B": b"x"},
        "raws": {"BS": [b"x"]}, "deep": {"M": {"a": {"S": "b"}}}, "list": {"L": []}, "nick.name": {"S": "n"},
        "odd": {"S": "text"}, "nothing": {"NULL": True}, "User_Id": {"S": "again"}, "ß": {"S": "no name"},
    },
    {"userId": {"S": "u2"}, "at": {"N": "2"}, "total": {"N": "1E+3"}, "count": {"N": "4"}, "odd": {"N": "1"}},
]  # fmt: skip


def test_a_dynamodb_tables_contract_takes_what_its_items_agree_on_and_marks_the_rest() -> None:
    made = from_dynamodb(TABLE, "expiresAt", ITEMS)
    contract = made.contract
    assert (contract.table, contract.source.table) == ("shop_carts_v2", "Shop-Carts.v2")
    assert contract.source.time_to_live == "expiresAt"
    assert (contract.key, contract.buckets) == (("user_id", "at"), 3)
    assert {column.name: (column.type.ddl(), column.path) for column in contract.columns} == {
        "user_id": ("string", ("userId",)),
        "at": ("string", ("at",)),
        "total": ("decimal(38,2)", ("total",)),
        "count": ("bigint", ("count",)),
        "day": ("string", ("day",)),
        "tags": ("array<string>", ("tags",)),
        "sizes": ("array<decimal(38,2)>", ("sizes",)),
        "open": ("boolean", ("open",)),
        "raw": ("binary", ("raw",)),
        "raws": ("array<binary>", ("raws",)),
        "deep": ("string", ("deep",)),
        "list": ("string", ("list",)),
        "nick_name": ("string", ("nick.name",)),
    }
    comments = [line for line in made.text.splitlines() if "# guessed: " in line]
    assert len(comments) == made.guesses
    (odd,) = (line for line in comments if "odd" in line)
    assert "several types (S, N): see _rest" in odd
    assert any("no column for User_Id" in line for line in comments)
    assert any("no column for ß" in line for line in comments)
    (day,) = (line for line in comments if "name: day" in line)
    assert day.endswith("a date or a timestamp, if all values are one; seen in 1 of 2 items")
    (count,) = (line for line in comments if "name: count" in line)
    assert count.endswith("seen in 2 of 2 items")
    unmarked = [
        column.name for column in contract.columns if not any(f"name: {column.name}," in line for line in comments)
    ]
    assert unmarked == ["user_id"]
    assert "name: nothing" not in made.text


def test_a_table_without_items_has_its_key() -> None:
    contract = from_dynamodb({**TABLE, "ItemCount": 0}, None, []).contract
    assert [column.name for column in contract.columns] == ["user_id", "at"]
    assert (contract.buckets, contract.source.time_to_live) == (1, None)


def test_what_cannot_be_changed_later_is_marked() -> None:
    (made,) = from_postgresql(
        "public", lambda query: [("on", 1, True, None, "full", ["id"], True, columns(("id", "integer")))]
    )
    for text in (made.text, from_dynamodb(TABLE, None, ITEMS).text):
        assert "partition_by: []  # guessed: no partitions; it cannot be changed later" in text
        assert re.search("^buckets: .*# guessed: .*it cannot be changed later$", text, re.MULTILINE)


def columns(*given: tuple[str, str]) -> list[list[str]]:
    return [[name, type_, "", ""] for name, type_ in given]


def test_types_of_postgresql_have_lake_types_or_are_left_to_rest() -> None:
    rows = [
        (
            "things", 10_000_000, True, "What\nis said.", "full", ["id", "made"], True,
            columns(
                ("id", "uuid"), ("made", "timestamp with time zone"), ("price", "numeric(10,2)"), ("free", "numeric"),
                ("wide", "numeric(50,2)"), ("small", "numeric(3,5)"), ("list", "integer[]"),
                ("free_list", "numeric[]"), ("doc", "jsonb"),
                ("span", "int4range"), ("spot", "point"), ("mood", "enum"), ("long ago", "date"), ("a.b", "text"),
                ("code", "character(5)"), ("time", "time with time zone"),
            ),
        )
    ]  # fmt: skip
    (made,) = from_postgresql("public", lambda query: rows)
    contract = made.contract
    assert (contract.description, contract.buckets) == ("What is said.", 20)
    assert {column.name: column.type.ddl() for column in contract.columns} == {
        "id": "string",
        "made": "string",
        "price": "decimal(10,2)",
        "free": "string",
        "wide": "string",
        "small": "string",
        "list": "array<int>",
        "free_list": "array<string>",
        "doc": "string",
        "span": "string",
        "mood": "string",
        "long_ago": "date",
        "code": "string",
    }
    assert made.text.count("# guessed: no column for ") == 3


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (("Things", 1, True, None, "full", ["id"], True, columns(("id", "integer"))), "capitals"),
        (("things", 1, False, None, "full", ["id"], True, columns(("id", "integer"))), "unlogged or temporary"),
        (
            ("things", 1, True, None, "full", None, None, columns(("id", "integer"))),
            "neither a primary key nor a unique index",
        ),
        (
            ("things", 1, True, None, "full", ["id"], True, columns(("id", "double precision"))),
            r"id \(double precision\)",
        ),
        (("things", 1, True, None, "full", ["id"], True, columns(("id", "boolean"))), r"id \(boolean\)"),
    ],
)
def test_a_table_that_no_contract_can_name_is_told_why(row: tuple[Any, ...], why: str) -> None:
    (made,) = from_postgresql("public", lambda query: [row])
    with pytest.raises(UserError, match=f"public\\..*{why}"):
        _ = made.contract
    assert made.text == ""


def test_a_schema_without_tables_is_refused() -> None:
    with pytest.raises(UserError, match="found no table in 'publik', expected a schema with tables"):
        from_postgresql("publik", lambda query: [])


def test_a_keys_column_has_its_name_and_others_give_way() -> None:
    given = columns(("userId", "text"), ("user_id", "integer"))
    (made,) = from_postgresql(
        "public", lambda query: [("on", 0, True, "rings\x07twice", "full", ["user_id"], True, given)]
    )
    contract = made.contract
    assert (contract.table, contract.description) == ("on", "rings twice")
    assert [(column.name, column.type.kind) for column in contract.columns] == [("user_id", "int")]
    assert "no column for userId" in made.text


def test_a_number_keeps_all_its_digits() -> None:
    items = [{"userId": {"S": "u"}, "at": {"N": "1"}, "n": {"N": "1000000000000000000.00000000001"}}]
    assert from_dynamodb(TABLE, None, items).contract.column("n").type.ddl() == "decimal(38,11)"
