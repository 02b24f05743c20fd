"""The quarantine of bad records, and how many of them a batch may have."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from typing import Any

import pytest

from headwater.errors import UserError
from headwater.lake.base import quarantine
from headwater.lake.base.quarantine import BadEntry, Quarantine, batch_of, is_chosen
from tests.unit.conftest import BUCKET

URI = f"s3://{BUCKET}/lake/_quarantine"


def records(s3: Any, address: str) -> list[Any]:
    body = s3.get_object(Bucket=BUCKET, Key=address.removeprefix(f"s3://{BUCKET}/"))["Body"].read()
    return [json.loads(line) for line in gzip.decompress(body).decode().splitlines()]


def store(s3: Any, uri: str, table: str, batch: str, pairs: Iterable[tuple[str, str]]) -> str:
    """Store reasons with records, and return the object's address."""
    aside = Quarantine(s3, uri, table)
    return aside.address(aside.store(batch, [BadEntry(reason, json.loads(line)) for reason, line in pairs]))


@pytest.mark.parametrize(
    ("bad", "of", "most", "refused"),
    [
        (0, 0, 0.0, False),
        (10, 10, 0.01, False),
        (11, 11, 0.01, True),
        (11, 1100, 0.01, False),
        (11, 1099, 0.01, True),
        (12, 1100, 0.01, True),
        (11, 10**9, 0.0, True),
        (1000, 1000, 1.0, False),
    ],
)
def test_ten_bad_records_are_always_accepted_and_more_up_to_their_share(
    bad: int, of: int, most: float, refused: bool
) -> None:
    assert quarantine.exceeds(bad, of, most) is refused


def test_a_refusal_says_how_many_were_accepted_where_they_are_and_what_to_do() -> None:
    assert str(quarantine.refusal("orders", 20, 21, 0.015, "s3://b/sample")) == (
        "orders: 20 of 21 records cannot be decoded, at most 1.5% are accepted. Nothing of this batch was committed. "
        "Read the reasons in s3://b/sample (headwater quarantine show orders --env ENV), correct the contract or the "
        "source, and start again."
    )


def test_records_are_kept_whole_with_their_reasons_in_one_order(s3: Any) -> None:
    pairs = [("no JSON", '{"offset": 2, "value": "Köln"}'), ("key: found null", '{"offset": 1}')]
    address = store(s3, URI, "orders", "t.orders-0-0007", pairs)
    assert records(s3, address) == [
        {"reason": "key: found null", "record": {"offset": 1}},
        {"reason": "no JSON", "record": {"offset": 2, "value": "Köln"}},
    ]
    prefix, _, name = address.rpartition("/")
    assert prefix == f"{URI}/orders"
    assert name.startswith("t.orders-0-0007-")
    assert name.endswith(".jsonl.gz")


def test_a_repeated_batch_writes_the_same_object_and_another_one_of_its_name_leaves_it_alone(s3: Any) -> None:
    pairs = [("a", '{"offset": 1}'), ("b", '{"offset": 2}')]
    first = store(s3, URI, "accounts", "batch-0", pairs)
    body = s3.get_object(Bucket=BUCKET, Key=first.removeprefix(f"s3://{BUCKET}/"))["Body"].read()
    assert body[4:8] == bytes(4), "gzip's time would make each try another object"
    assert store(s3, URI, "accounts", "batch-0", reversed(pairs)) == first
    assert s3.get_object(Bucket=BUCKET, Key=first.removeprefix(f"s3://{BUCKET}/"))["Body"].read() == body
    other = store(s3, URI, "accounts", "batch-0", pairs[:1])
    assert other != first
    assert len(records(s3, first)) == 2
    names = {store(s3, URI, "accounts", name, pairs).rpartition("/")[2] for name in ("batch-0", "batch-1")}
    assert {name.rpartition("-")[0] for name in names} == {"batch-0", "batch-1"}


def test_quarantine_may_be_a_bucket_of_its_own(s3: Any) -> None:
    address = store(s3, f"s3://{BUCKET}", "products", "batch", [("a", "{}")])
    assert address.startswith(f"s3://{BUCKET}/products/batch-")
    assert records(s3, address) == [{"reason": "a", "record": {}}]


def test_objects_are_listed_with_their_batches_and_read_back_until_they_are_deleted(s3: Any) -> None:
    aside = Quarantine(s3, URI, "listed")
    entries = [BadEntry("a", {"offset": 1}, epoch=3, order_version=2), BadEntry("b", {"offset": 2})]
    name = aside.store("t-0-0007", entries)
    sample = aside.store("t-0-0008", entries, refused=True)
    aside.store("t-0-0008-refusedly", entries)
    listed = {object_.name: object_.is_sample for object_ in aside.listed()}
    assert sorted(listed.values()) == [False, False, True]
    assert listed[sample]
    assert not listed[name]
    assert (batch_of(name), batch_of(sample)) == ("t-0-0007", "t-0-0008-refused")
    assert aside.read(name) == entries
    aside.delete(name)
    aside.delete(name)
    assert aside.read(name) is None
    assert Quarantine(s3, URI, "list").listed() == []


@pytest.mark.parametrize(
    "body",
    [b"no gzip", gzip.compress(b"no JSON"), gzip.compress(b'{"unknown": 1}')],
    ids=["no gzip", "no JSON", "another document"],
)
def test_an_object_that_no_writer_stored_is_refused_by_its_address(s3: Any, body: bytes) -> None:
    s3.put_object(Bucket=BUCKET, Key="lake/_quarantine/odd/x.jsonl.gz", Body=body)
    expected = r"expected records that a writer put into quarantine\. Move the object away\.$"
    with pytest.raises(UserError, match=rf"{URI}/odd/x\.jsonl\.gz: found .*{expected}"):
        Quarantine(s3, URI, "odd").read("x.jsonl.gz")


def test_records_are_chosen_by_a_part_of_their_reason_with_or_without_what_was_found() -> None:
    entry = BadEntry("price: found 'NaN, or so', expected decimal(12,2)", {})
    assert quarantine.kind_of(entry.reason) == "price: found …, expected decimal(12,2)"
    assert quarantine.kind_of("a: found 'x\ny', expected b") == "a: found …, expected b"
    chosen = [reason for reason in ("", "price", "NaN", "found …, expected", "prices") if is_chosen(entry, reason)]
    assert chosen == ["", "price", "NaN", "found …, expected"]
