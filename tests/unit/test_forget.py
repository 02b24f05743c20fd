"""The record of forgotten keys, the parts of a record that belong to one, and a person's request to forget one."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import gzip
import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import msgspec
import psycopg
import pytest
from botocore.exceptions import ClientError

from headwater.commands import forget as command
from headwater.commands import sources
from headwater.commands.postgresql import PASSWORD_VARIABLE
from headwater.contract.model import Contract, lake_tables
from headwater.contract.reading import parse_contract, read_contract, read_contracts
from headwater.definitions.lake_content import read_content
from headwater.environment.expiries import expiries
from headwater.environment.model import Bi
from headwater.environment.rules import read_environment
from headwater.errors import UserError
from headwater.lake.base import s3_deletion, s3_versions
from headwater.lake.base.lease import LeaseLost
from headwater.lake.base.progress import Progress
from headwater.lake.base.quarantine import BadEntry, Quarantine
from headwater.lake.decoding.debezium_decoder import PostgresDecoder, decode_lines, order
from headwater.lake.decoding.dynamodb_decoder import order_at_moment
from headwater.lake.requests import forget as forget_work
from headwater.lake.requests import protocol as lake_requests
from headwater.lake.requests.forget import KeyToForget
from headwater.lake.requests.forget_requests import Forgotten, ask, key_values
from headwater.lake.requests.protocol import DONE, REFUSED, RUNNING, News, Requests, Status
from headwater.lake.requests.requested_work import RequestedWork
from headwater.lake.sources import exports_left
from headwater.lake.sources.scanned_export import write_export
from headwater.lake.table.erasure import landing_objects
from headwater.lake.table.erasure.keys import ErasedKeys, ErasedKeysMissing, ErasedStore, row_key
from headwater.lake.table.erasure.landing_objects import Searched
from headwater.lake.table.erasure.records import LandedLines, kept_records
from headwater.lake_folder import EXAMPLE
from headwater.postgresql import absence
from tests.unit.conftest import BUCKET, EXISTING, write_dev

ORDERS, ACCOUNTS, CUSTOMERS = (
    read_contract(EXAMPLE.contracts / f"{name}.yaml") for name in ("orders", "accounts", "customers")
)
HASH_KEY = b"0123456789abcdef0123456789abcdef"
PEOPLE = parse_contract(
    """
table: people
description: Keyed by what is not the primary key.
source: {database: postgresql, table: shop.people}
key: [mail]
partition_by: []
buckets: 1
columns:
  - {name: mail, type: string, source_type: text}
  - {name: name, type: string, source_type: text}
  - {name: long, type: string, source_type: text}
""",
    "people.yaml",
)
GONE, OTHER = "gone@example.com", "other@example.com"
VERSIONED = "headwater-versions"


def until(lsn: int = 1000) -> str:
    return order(1, lsn, lsn, snapshot=False)


def forgotten(order_: str = "", key: str = f'["{GONE}"]') -> ErasedKeys:
    return ErasedKeys("shop.people", {}, HASH_KEY).and_this(key, order_ or until())


def image(mail: str, **values: Any) -> dict[str, Any]:
    return {"id": 7, "mail": mail, "name": "Ann", "long": "x", **values}


def event(op: str, before: Any = None, after: Any = None, lsn: int = 10, **source: Any) -> dict[str, Any]:
    origin = {"schema": "shop", "table": "people", "lsn": lsn, "ts_ms": 1, "snapshot": "false", **source}
    return {"op": op, "before": before, "after": after, "source": origin}


def packed(document: Any) -> str | None:
    return None if document is None else base64.b64encode(json.dumps(document).encode()).decode()


def line(value: Any, key: Any = None, headers: list[list[str | None]] | None = None) -> str:
    record = {"offset": 5, "timestamp": 3, "key": packed(key), "value": packed(value), "headers": headers or []}
    return json.dumps(record, separators=(",", ":"))


def told(text: str) -> Any:
    record = json.loads(text)
    return None if record["value"] is None else json.loads(base64.b64decode(record["value"]))


def rows(text: str) -> list[tuple[str, str, bool]]:
    """Mail, operation and whether it is a tombstone, of the rows that the decoder makes of a line."""
    names = [name for name, _ in PEOPLE.lake_columns()]
    made = list(decode_lines(iter([("t/0", text)]), PostgresDecoder(PEOPLE)))
    found = [dict(zip(names, row, strict=False)) for row in made]
    return [(row["mail"], row["_op"], row["_deleted"]) for row in found if row["_order"] is not None]


BLANK = '{"offset":5,"timestamp":3,"key":null,"value":null,"headers":[]}'


# --- Forgotten keys ---------------------------------------------------------------------------------------------------


def test_a_key_is_forgotten_up_to_an_order_and_later_changes_are_not_even_hashed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = forgotten()
    assert keys.covers(f'["{GONE}"]', until())
    assert keys.covers(f'["{GONE}"]', None), "whose order nobody can tell"
    assert not keys.covers(f'["{OTHER}"]', until())
    assert keys.and_this(f'["{GONE}"]', until(5)).orders == keys.orders, "no order is lowered"
    both = forgotten(until(5)).and_this(f'["{OTHER}"]', until())
    assert [both.covers(f'["{GONE}"]', until(lsn)) for lsn in (5, 6)] == [True, False], "each up to its own order"
    (hashed,) = keys.orders
    assert (len(hashed), GONE in hashed) == (64, False)
    assert hashed not in replace(keys, source="shop.other").and_this(f'["{GONE}"]', until()).orders.keys() - {hashed}
    assert replace(keys, source="shop.other").hashed(f'["{GONE}"]') != hashed
    monkeypatch.setattr(ErasedKeys, "hashed", lambda *_: pytest.fail("hashed"))
    assert not keys.covers(f'["{GONE}"]', until(1001))


def test_times_are_forgotten_in_whatever_epoch_they_are_read_again() -> None:
    def at(epoch: int, micros: int) -> str:
        return order_at_moment(epoch, micros)

    keys = replace(ErasedKeys("shop-people", {}, HASH_KEY, is_timed=True)).and_this('["a"]', at(2, 10**15))
    assert [keys.covers('["a"]', at(epoch, 10**15)) for epoch in (1, 2, 3)] == [True] * 3
    assert [keys.may_cover(at(3, 10**15 + more)) for more in (0, 1)] == [True, False]
    assert not keys.covers('["a"]', at(1, 10**15 + 1))
    assert keys.and_this('["a"]', at(3, 10**14)).orders == keys.orders, "no time is set back"
    # A log sequence number begins anew with another database.
    assert not forgotten(until()).covers(f'["{GONE}"]', order(2, 5, 5, snapshot=False))


def test_a_history_that_is_begun_later_knows_what_its_table_has_forgotten(s3: Any) -> None:
    folder = f"s3://{BUCKET}/{uuid.uuid4().hex[:8]}/lake"
    _, history = lake_tables([CUSTOMERS])
    table, store = (ErasedStore(s3, f"{folder}/{each.table}", each) for each in (CUSTOMERS, history))
    table.write({"a": "1", "b": "5"})
    store.write({"b": "3", "c": "4"})
    assert store.read() == {"a": "1", "b": "5", "c": "4"}
    assert table.read() == {"a": "1", "b": "5"}


def test_a_row_has_one_key_in_its_table_and_in_its_history() -> None:
    assert row_key('[1,"a\\u003ab,c"]') == row_key('[1,"a:b,c","00011"]', is_history=True) == '[1,"a:b,c"]'


def test_what_is_forgotten_is_kept_beside_the_tables(s3: Any) -> None:
    folder = f"s3://{BUCKET}/{uuid.uuid4().hex[:8]}/lake"
    store = ErasedStore(s3, f"{folder}/orders", ORDERS)
    assert store.address == f"{folder}/_forgotten/orders.json"
    assert store.read() == {}
    store.write({"hash": "order"})
    assert store.read() == {"hash": "order"}
    bucket, _, key = store.address.removeprefix("s3://").partition("/")
    for damaged in (b"{}", b"no json", b'{"orders": {"hash": 1}}'):
        s3.put_object(Bucket=bucket, Key=key, Body=damaged)
        with pytest.raises(ErasedKeysMissing, match=r"orders\.json: found .*, expected the forgotten keys"):
            store.read()


def test_a_writer_writes_over_nothing_that_another_one_has_forgotten(s3: Any) -> None:
    uri = f"s3://{BUCKET}/{uuid.uuid4().hex[:8]}/lake/orders"
    stalled, next_one = ErasedStore(s3, uri, ORDERS), ErasedStore(s3, uri, ORDERS)
    assert stalled.read() == next_one.read() == {}
    for known in ({"a": "1"}, {"a": "1", "b": "1"}):
        next_one.write(known)
        with pytest.raises(
            LeaseLost, match=r"_forgotten/orders\.json: another writer has written this object meanwhile"
        ):
            stalled.write({"c": "1"})
        assert stalled.read() == known
    # An answer that is lost: the same is sent again.
    next_one.write({"a": "2"})
    stalled.write({"a": "2"})
    stalled.write({"a": "3"})
    assert stalled.read() == {"a": "3"}


def test_a_progress_names_forgotten_keys_only_where_there_are_some() -> None:
    assert "erased" not in Progress().to_json()
    assert Progress.from_json(Progress(erased=2, erased_mark="m").to_json()) == Progress(erased=2, erased_mark="m")


# --- Records ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        line(event("c", after=image(GONE))),
        line(event("r", after=image(GONE), snapshot="true")),
        line(event("u", image(GONE), image(GONE, name="Bea"))),
        line(event("d", before=image(GONE))),
        line(None, key={"mail": GONE}),
        line({**event("c"), "refused": {"row": image(GONE)}}),
        line(event("u", image(GONE), {"mail": None})),
        line({**event("c", after=image(GONE)), "source": {"schema": "shop", "table": "people"}}),
    ],
)
def test_a_record_of_a_forgotten_key_gives_way_to_one_that_gives_no_row(text: str) -> None:
    lines = LandedLines(PEOPLE, 1, forgotten())
    assert lines.is_erased(json.loads(text)) is True
    assert lines.without_erased(text) == BLANK
    assert rows(BLANK) == []
    assert lines.cleared.lines == 1
    assert lines.without_erased(BLANK) == BLANK


@pytest.mark.parametrize(
    ("text", "unreadable"),
    [
        (line(event("c", after=image(OTHER))), 0),
        (line(event("c", after=image(GONE), lsn=1001)), 0),
        (line(event("t")), 0),
        (line("no envelope"), 1),
        ("no json", 1),
    ],
)
def test_any_other_record_stays_as_it_is_letter_by_letter(text: str, unreadable: int) -> None:
    lines = LandedLines(PEOPLE, 1, forgotten())
    assert lines.without_erased(text) == text
    assert (lines.cleared.lines, lines.cleared.unreadable) == (0, unreadable)


def test_of_an_update_that_changes_the_key_the_other_rows_part_stays() -> None:
    lines = LandedLines(PEOPLE, 1, forgotten())
    placeholder = image(OTHER, long="__debezium_unavailable_value")
    left = lines.without_erased(line(event("u", image(GONE), placeholder)))
    assert GONE not in json.dumps(told(left))
    assert told(left)["after"]["long"] == "x", "what the update did not touch stands in the row before alone"
    assert rows(left) == [(OTHER, "c", False)]
    came = lines.without_erased(line(event("u", image(OTHER), image(GONE))))
    assert GONE not in json.dumps(told(came))
    assert rows(came) == [(OTHER, "d", True)]


def test_the_end_of_a_snapshot_stays_when_its_last_row_goes() -> None:
    last = line(event("r", after=image(GONE), snapshot="last"), key={"id": 7})
    cleared = LandedLines(PEOPLE, 1, forgotten()).without_erased(last)
    assert GONE not in json.dumps(told(cleared))
    floors = [
        row[-3] for text in (last, cleared) for row in decode_lines(iter([("t/0", text)]), PostgresDecoder(PEOPLE))
    ]
    assert [floor for floor in floors if floor] == [order(1, 10, 10, snapshot=True)[:-1] + "0"] * 2
    assert rows(cleared) == []


def test_a_header_does_not_tell_the_key_that_a_row_had_or_gets() -> None:
    headers = [["__debezium.newkey", packed({"mail": GONE})], ["headwater.epoch", packed(1)]]
    text = line(event("d", before=image(OTHER)), key={"mail": OTHER}, headers=headers)
    cleared = json.loads(LandedLines(PEOPLE, 1, forgotten()).without_erased(text))
    assert cleared["headers"] == [["__debezium.newkey", None], ["headwater.epoch", packed(1)]]
    assert (cleared["value"], cleared["key"]) == (json.loads(text)["value"], json.loads(text)["key"])


def test_a_quarantined_record_is_of_a_key_by_any_of_its_images_or_nobody_can_say() -> None:
    is_erased = kept_records(PEOPLE, forgotten(), 1, None)
    assert is_erased({**json.loads(line(event("u", image(OTHER), image(GONE)))), "source": "t/0"}, 1) is True
    assert is_erased(json.loads(line(event("c", after=image(GONE), lsn=1001))), None) is False
    assert is_erased(json.loads(line(event("c", after={"mail": None}))), 1) is None
    assert is_erased(["no", "record"], 1) is None


def test_a_quarantined_change_or_item_of_dynamodb_likewise() -> None:
    key = {"id": {"S": "a"}, "custName": {"S": "Ann"}}
    erased = ErasedKeys("headwater-accounts", {}, HASH_KEY).and_this('["a","Ann"]', order_at_moment(1, 10**15))
    is_erased = kept_records(ACCOUNTS, erased, 1, None)

    def change(at: int, **images: Any) -> dict[str, Any]:
        dynamodb = {"ApproximateCreationDateTime": at, "ApproximateCreationDateTimePrecision": "MICROSECOND", **images}
        return {"sequence": "1", "position": "s/1", "data": json.dumps({"dynamodb": dynamodb})}

    assert is_erased(change(10**14, Keys=key), 1) is True
    assert is_erased(change(10**14, OldImage={**key, "x": {"S": "y"}}), 1) is True
    assert is_erased(change(10**15 + 1, Keys=key), 1) is False
    assert is_erased(change(10**14, Keys={"id": {"S": "a"}}), 1) is None
    assert is_erased({"exported_at": 10**14, "position": "", "item": json.dumps({"Item": key})}, 1) is True
    assert is_erased({"sequence": "1", "position": "", "data": None}, 1) is None


# --- Requests ---------------------------------------------------------------------------------------------------------


def test_values_of_a_key_are_those_of_its_columns_types_and_no_error_repeats_them() -> None:
    assert key_values(ORDERS, {"order_id": "17"}) == {"order_id": 17}
    assert key_values(ACCOUNTS, {"cust_name": "Ann", "id": "a"}) == {"id": "a", "cust_name": "Ann"}
    with pytest.raises(UserError, match=r"order_id: found something else, expected a value of the type int") as wrong:
        key_values(ORDERS, {"order_id": "secret"})
    assert "secret" not in str(wrong.value)
    with pytest.raises(UserError, match=r"found a value for id, expected one for id, cust_name"):
        key_values(ACCOUNTS, {"id": "a"})


@pytest.fixture
def lake() -> str:
    return f"s3://{BUCKET}/{uuid.uuid4().hex[:8]}/lake"


@pytest.fixture(scope="module")
def versioned(s3: Any) -> str:
    """A bucket that keeps older versions. The one that all tests share keeps none."""
    s3.create_bucket(Bucket=VERSIONED)
    s3.put_bucket_versioning(Bucket=VERSIONED, VersioningConfiguration={"Status": "Enabled"})
    return VERSIONED


@pytest.fixture
def versioned_lake(versioned: str) -> str:
    return f"s3://{versioned}/{uuid.uuid4().hex[:8]}/lake"


@dataclass
class Work:
    """Is done at once, or refuses."""

    refuses: bool = False
    done: bool = False

    def status(self) -> Status:
        return Status("", DONE if self.done else RUNNING, told={"key": "hash"} if self.done else {})

    def commit_next(self) -> None:
        if self.refuses:
            raise UserError("no")
        self.done = True


@dataclass
class Writer:
    """Does all requested work, by the shipped loop."""

    s3: Any
    lake: str
    table: str
    events: list[dict[str, Any]] = field(default_factory=list)

    def serve(self, work: Work) -> None:
        writer: Any = SimpleNamespace(
            services=SimpleNamespace(report=self.events.append), contract=SimpleNamespace(table=self.table)
        )
        requests = Requests(self.s3, self.lake, self.table)
        served = RequestedWork(writer, requests, {"forget": lambda *_: work}, 0, removed={"forget"})
        while served.commit_next():
            pass


def versions(s3: Any, prefix: str) -> list[str]:
    listed = s3.list_object_versions(Bucket=VERSIONED, Prefix=prefix)
    return sorted(
        entry["Key"].rpartition("/")[2] for kind in ("Versions", "DeleteMarkers") for entry in listed.get(kind, ())
    )


def test_a_request_goes_with_its_versions_once_it_is_answered_even_after_a_crash(s3: Any, versioned_lake: str) -> None:
    requests = Requests(s3, versioned_lake, "orders")
    folder = f"{versioned_lake.removeprefix(f's3://{VERSIONED}/')}/_requests/"
    for work, state in ((Work(), DONE), (Work(refuses=True), REFUSED)):
        id_, _ = ask(requests, Forgotten({"order_id": "7717717717717"}, until()))
        again, token = ask(requests, Forgotten({"order_id": "7717717717717"}, until(2000)))
        assert again == id_, "one request for one key"
        assert "7717717717717" not in id_
        Writer(s3, versioned_lake, "orders").serve(work)
        assert requests.get(id_) is None
        assert not any(name.endswith(".json") and "status" not in name for name in versions(s3, folder))
        status = requests.status(id_)
        assert status is not None
        assert (status.token, status.state) == (token, state)
        if state == DONE:
            (news,) = lake_requests.follow(requests, id_, token=token)
            assert news.status == status
        else:
            with pytest.raises(UserError, match="refuses"):
                list(lake_requests.follow(requests, id_, token=token))
    id_, token = ask(requests, Forgotten({"order_id": "772"}, until()))
    requests.answer(id_, Status(token, DONE))
    Writer(s3, versioned_lake, "orders").serve(Work(refuses=True))
    assert requests.get(id_) is None, "the writer of before was killed between its answer and the request's removal"


def test_of_a_versioned_bucket_all_but_the_current_versions_go(s3: Any, versioned: str) -> None:
    folder = uuid.uuid4().hex[:8]
    for body in (b"1", b"2"):
        for name in ("kept", "gone", "beside"):
            s3.put_object(Bucket=versioned, Key=f"{folder}/{name}", Body=body)
    s3.delete_object(Bucket=versioned, Key=f"{folder}/gone")
    assert s3_versions.delete_former(s3, versioned, f"{folder}/") == 5
    assert versions(s3, folder) == ["beside", "kept"]
    s3_versions.delete_object(s3, versioned, f"{folder}/kept")
    assert versions(s3, folder) == ["beside"]


def test_the_mark_of_a_deletion_goes_when_nothing_is_left_behind_it(
    s3: Any, versioned: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = uuid.uuid4().hex[:8]
    for name in ("one", "two"):
        s3.put_object(Bucket=versioned, Key=f"{folder}/{name}", Body=b"1")
        s3.delete_object(Bucket=versioned, Key=f"{folder}/{name}")
    monkeypatch.setattr(s3_deletion, "_MOST", 1)
    real, deleted = s3.delete_objects, []

    def refuse_the_third(**request: Any) -> Any:
        deleted.append(request)
        if len(deleted) == 3:
            raise ConnectionError("cut")
        return real(**request)

    monkeypatch.setattr(s3, "delete_objects", refuse_the_third)
    with pytest.raises(ConnectionError):
        s3_versions.delete_former(s3, versioned, f"{folder}/")
    assert "Contents" not in s3.list_objects_v2(Bucket=versioned, Prefix=folder), "nothing is there again"


def test_an_object_whose_name_goes_on_stays(s3: Any) -> None:
    folder = uuid.uuid4().hex[:8]
    s3.put_object(Bucket=BUCKET, Key=f"{folder}/beside", Body=b"2")
    s3_versions.delete_object(s3, BUCKET, f"{folder}/bes")
    assert s3.get_object(Bucket=BUCKET, Key=f"{folder}/beside")["Body"].read() == b"2"


# --- Landing objects -------------------------------------------------------------------------------------------------


def test_a_landing_object_that_another_has_written_meanwhile_is_read_and_written_again(
    s3: Any, versioned_lake: str
) -> None:
    gone, other, third = (line(event("c", after=image(mail))) for mail in (GONE, OTHER, "third@example.com"))
    real = s3.put_object

    def clear(written: str | None) -> tuple[Searched, str]:
        """Clear an object over which another request puts ``written`` meanwhile. With None the answer to the clearing
        write is lost. Returns the outcome, and the object afterwards."""
        key = f"{versioned_lake.removeprefix(f's3://{VERSIONED}/')}/landing/t/0/{0:020d}.jsonl.gz"
        real(Bucket=VERSIONED, Key=key, Body=gzip.compress(f"{gone}\n{other}".encode()), Metadata={"next-offset": "2"})
        tried: list[str] = []

        def put_object(**request: Any) -> Any:
            tried.append(request["IfMatch"])
            if len(tried) == 1:
                body = request["Body"] if written is None else gzip.compress(written.encode())
                real(Bucket=VERSIONED, Key=key, Body=body, Metadata=request["Metadata"])
                status = {"HTTPStatusCode": 412}
                raise ClientError({"Error": {"Code": "PreconditionFailed"}, "ResponseMetadata": status}, "PutObject")  # type: ignore[typeddict-item]
            return real(**{name: value for name, value in request.items() if name != "IfMatch"})

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(s3, "put_object", put_object)
            searched = landing_objects._search(s3, VERSIONED, key, lambda: LandedLines(PEOPLE, 1, forgotten()))
        assert versions(s3, key) == [key.rpartition("/")[2]], "no older version tells of the row"
        stored = s3.get_object(Bucket=VERSIONED, Key=key)
        assert stored["Metadata"] == {"next-offset": "2"}
        return searched, gzip.decompress(stored["Body"].read()).decode()

    assert clear(None) == (Searched(1, 0, 0, 0), f"{BLANK}\n{other}")
    # As the writer of the history does, which has forgotten another row.
    assert clear(f"{gone}\n{third}") == (Searched(1, 1, 1, 0), f"{BLANK}\n{third}")


def test_an_object_that_is_none_of_lines_is_counted_and_one_that_is_gone_is_not(s3: Any, lake: str) -> None:
    for body in (b"no gzip", gzip.compress(b"whole")[:-9], gzip.compress(b"\xff")):
        s3.put_object(Bucket=BUCKET, Key=f"{lake}/x", Body=body)
        found = landing_objects._search(s3, BUCKET, f"{lake}/x", lambda: LandedLines(PEOPLE, 1, forgotten()))
        assert found == Searched(1, 0, 0, 1)
    assert landing_objects._search(s3, BUCKET, f"{lake}/y", lambda: LandedLines(PEOPLE, 1, forgotten())) == Searched()


# --- The work ---------------------------------------------------------------------------------------------------------


class Erasing:
    """A writer whose table has no files. ``cut`` is raised once the key is kept away, ``refused`` before."""

    def __init__(
        self, s3: Any, lake: str, *, refused: Exception | None = None, cut: Exception | None = None, ended: bool = False
    ) -> None:
        context = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: ended)))
        self.spark = SimpleNamespace(sparkContext=context)
        self.services = SimpleNamespace(s3=s3)
        self.settings = SimpleNamespace(quarantine=f"{lake}/_quarantine", mask_key=None)
        self.table = SimpleNamespace(uri=f"{lake}/people")
        self.contract, self.progress = PEOPLE, Progress()
        self.erased = ErasedKeys("shop.people", {}, HASH_KEY)
        self._refused, self._cut = refused, cut

    def erase(self, key: str, order_: str, *_: Any) -> tuple[str, int]:
        if self._refused is not None:
            raise self._refused
        self.erased = self.erased.and_this(key, order_)
        if self._cut is not None:
            raise self._cut
        return self.erased.hashed(key), 1

    def to_forget(self) -> KeyToForget:
        writer: Any = self
        return KeyToForget(writer, None, {"mail": GONE}, until())


@pytest.fixture
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let conditions of Spark's be made without a running Spark."""
    monkeypatch.setattr(forget_work, "_is_row", lambda _: None)


@pytest.mark.usefixtures("_without_spark")
def test_a_step_that_fails_is_refused_and_says_whether_the_row_stays_away(s3: Any, lake: str) -> None:
    # As of Secrets Manager, or of a worker of Spark's.
    refused = ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "GetSecretValue")
    with pytest.raises(
        UserError, match=r"AccessDeniedException.*Nothing is forgotten: correct .* and run the command again"
    ):
        Erasing(s3, lake, refused=refused).to_forget().commit_next()
    with pytest.raises(UserError, match=r"cut\. The row stays away, but not all of its past is gone: correct"):
        Erasing(s3, lake, cut=RuntimeError("cut")).to_forget().commit_next()
    # A lease that is lost or a session that has ended is the job's to see.
    with pytest.raises(LeaseLost):
        Erasing(s3, lake, cut=LeaseLost("taken")).to_forget().commit_next()
    with pytest.raises(RuntimeError, match="cut"):
        Erasing(s3, lake, cut=RuntimeError("cut"), ended=True).to_forget().commit_next()


def bad(mail: str) -> BadEntry:
    return BadEntry("unfit", json.loads(line(event("c", after=image(mail)))), 1)


@pytest.mark.usefixtures("_without_spark")
def test_of_an_object_in_quarantine_what_is_of_others_stays_unless_it_is_dropped_meanwhile(s3: Any, lake: str) -> None:
    for is_dropped in (False, True):
        writer = Erasing(s3, lake)
        quarantine = Quarantine(s3, writer.settings.quarantine, "people")
        name = quarantine.store("batch-7", [bad(GONE), bad(OTHER)])
        real = Quarantine.read

        def read(self: Quarantine, read_name: str, real: Any = real, is_dropped: bool = is_dropped) -> Any:
            found = real(self, read_name)
            if is_dropped:
                self.delete(read_name)
            return found

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Quarantine, "read", read)
            work = writer.to_forget()
            while work.status().state == RUNNING:
                work.commit_next()
        left = [entry for object_ in quarantine.listed() for entry in quarantine.read(object_.name) or []]
        assert left == ([] if is_dropped else [bad(OTHER)])
        assert not quarantine.has(name)
        assert not quarantine.has("batch")
        for object_ in quarantine.listed():
            assert quarantine.has(object_.name)
            quarantine.delete(object_.name)


# --- The command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The source's answers, one after the other: the order until which the row is absent."""
    answers: list[str | None] = []

    def answer(*_: Any) -> str | None:
        if not answers:
            raise UserError("PostgreSQL: cannot be reached.")
        return answers.pop(0)

    for kind in (command._Rows, command._Items):
        monkeypatch.setattr(kind, "absent_until", answer)
        monkeypatch.setattr(kind, "spelled", lambda _, key: dict(key))
    monkeypatch.setattr(sources, "connector", lambda *_, **__: None)
    monkeypatch.setattr(sources, "dynamodb_client", lambda *_: None)
    return answers


def test_a_row_that_the_source_has_is_not_forgotten(lake: str, source: list[str | None], s3: Any) -> None:
    source.append(None)
    with pytest.raises(UserError, match=r"northwind\.customers: found the row, expected none: delete it there first"):
        command.forget("customers", ["ALFKI"], lake=lake, folder=EXAMPLE)
    assert Requests(s3, lake, "customers").listed() == []


@pytest.mark.parametrize("last", [[None], []])
def test_the_command_asks_all_writers_and_gives_a_receipt_without_the_key(
    lake: str, source: list[str | None], s3: Any, deploy: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path, capsys: pytest.CaptureFixture[str], last: list[str | None],
) -> None:  # fmt: skip
    settings = read_environment("prod", EXAMPLE.config)
    monkeypatch.setenv("MOTO_ACCOUNT_ID", str(settings.account))
    deploy("prod", lake)
    source += [until(), *last]
    searched = {
        "rows": 1,
        "files_deleted": 3,
        "quarantine_objects": 1,
        "quarantine_records": 0,
        "quarantine_unreadable": 2,
        "landing": {"objects": 4, "rewritten": 2, "records": 5, "unreadable": 0},
        "versions_deleted": 9,
    }
    followed = []

    def follow(requests: Requests, id_: str, token: str = "") -> Iterator[News]:
        request = requests.get(id_)
        assert request is not None
        assert (request.token, request.details) == (token, {"key": {"customer_id": "ALFKI"}, "order": until()})
        followed.append(requests)
        yield News(Status(token, DONE, told={"key": "a hash", **searched}), 0)

    monkeypatch.setattr(lake_requests, "follow", follow)
    command.forget(
        "customers", ["customer_id=ALFKI"], environment="prod", receipt=tmp_path / "receipt.json", folder=EXAMPLE
    )
    written = json.loads((tmp_path / "receipt.json").read_text())
    printed = capsys.readouterr()
    assert len(followed) == 2
    assert [len(Requests(s3, lake, table.table).listed()) for table in lake_tables([CUSTOMERS])] == [1, 1]
    assert "ALFKI" not in json.dumps(written) + printed.out
    assert written["key_hash"] == "a hash"
    assert written["searched"] == {table.table: searched for table in lake_tables([CUSTOMERS])}
    assert written["not_searched"] == ["accounts", "orders", "products"]
    now = dt.datetime.fromisoformat(written["forgotten_at"])
    (undated,) = [each["place"] for each in written["elsewhere"] if each["gone_by"] is None]
    assert undated == "people's files: the demo's report, the output of verify, results of queries"
    dated = [each for each in written["elsewhere"] if each["gone_by"] is not None]
    gone_by = {each["place"]: dt.datetime.fromisoformat(each["gone_by"]) - now for each in dated}
    assert gone_by["Kafka's topic"] == dt.timedelta(hours=168, days=7)
    assert gone_by["Aurora's automatic backups"] == dt.timedelta(days=35)
    assert gone_by["Athena's query results"] == dt.timedelta(days=30)
    assert gone_by["older versions in S3, if a writer was killed before it deleted them"] == dt.timedelta(days=7)
    assert "4 records have no readable key" in printed.out
    assert written["source"] == {"asked": "northwind.customers", "row_is_back": True if last else None}
    said = "northwind.customers has a row of this key again" if last else "may have a new row of this key"
    assert said in printed.err


def test_postgresql_is_asked_over_a_connection_of_each_question_with_one_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[str] = []

    def connect(password: str, **_: Any) -> Any:
        opened.append(password)
        return contextlib.nullcontext(len(opened))

    monkeypatch.setenv(PASSWORD_VARIABLE, "once")
    monkeypatch.setattr(psycopg, "connect", connect)
    connector = sources.connector("", "host", 5432, "northwind", "postgres")
    monkeypatch.delenv(PASSWORD_VARIABLE)
    monkeypatch.setattr(absence, "absent_until", lambda connection, *_: connection)
    rows = command._Rows(CUSTOMERS, connector, 1)
    key = {"customer_id": "ALFKI"}
    assert [rows.absent_until(key), rows.absent_until(key)] == [until(1), until(2)]
    assert opened == ["once", "once"]


def test_a_request_can_be_taken_back_and_tells_its_key_nowhere_then(
    versioned_lake: str, source: list[str | None], s3: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = [each.table for each in lake_tables([CUSTOMERS])]
    for table in tables:
        for key in ("ALFKI", "OTHER"):
            ask(Requests(s3, versioned_lake, table), Forgotten({"customer_id": key}, until()))
    command.forget("customers", ["ALFKI"], lake=versioned_lake, withdraw=True, folder=EXAMPLE)
    assert "Withdrawn for customers and customers_changes" in capsys.readouterr().out
    for table in tables:
        requests = Requests(s3, versioned_lake, table)
        ((id_, _),) = requests.listed()
        other = requests.get(id_)
        assert other is not None
        assert other.details["key"] == {"customer_id": "OTHER"}
        assert len(versions(s3, f"{versioned_lake.removeprefix(f's3://{VERSIONED}/')}/_requests/{table}/")) == 1
    with pytest.raises(UserError, match="found no request to forget this key: there is nothing to withdraw"):
        command.forget("customers", ["ALFKI"], lake=versioned_lake, withdraw=True, folder=EXAMPLE)


def test_a_dry_run_asks_for_nothing(
    lake: str, source: list[str | None], s3: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    source.append(until())
    s3.put_object(Bucket=BUCKET, Key=f"{lake.removeprefix(f's3://{BUCKET}/')}/customers/file", Body=b"")
    command.forget("customers", ["ALFKI"], lake=lake, dry_run=True, folder=EXAMPLE)
    printed = capsys.readouterr().out
    assert "Nothing was done" in printed
    assert f"{lake}/customers/: 1 objects" in printed
    assert f"{lake}/_quarantine/customers_changes/: 0 objects" in printed
    assert Requests(s3, lake, "customers").listed() == []


def test_the_files_of_a_history_that_was_ended_are_to_be_deleted_first(
    s3: Any, lake: str, source: list[str | None]
) -> None:
    source.append(until())
    s3.put_object(Bucket=BUCKET, Key=f"{lake.removeprefix(f's3://{BUCKET}/')}/orders_changes/file", Body=b"")
    with pytest.raises(UserError, match=r"/orders_changes/: found files of a history that was ended, expected none"):
        command.forget("orders", ["17"], lake=lake, folder=EXAMPLE)
    assert Requests(s3, lake, "orders").listed() == []


def test_exports_beside_the_lake_are_deleted_when_the_command_is_told_so_and_not_before(
    s3: Any, versioned_lake: str, source: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    exports = versioned_lake.rpartition("/")[0] + "/exports"
    arn = "arn:aws:dynamodb:eu-central-1:123456789012:table/headwater-"
    ours, theirs = (
        write_export(s3, arn + name, [[{"id": {"S": "a"}}]], dt.datetime.now(dt.UTC), exports)
        for name in ("accounts", "others")
    )
    assert exports_left.exports_of(s3, exports, "headwater-accounts") == [ours]
    for body in (b"1", b"2"):
        s3.put_object(Bucket=VERSIONED, Key=f"{theirs.removeprefix(f's3://{VERSIONED}/')}/replaced", Body=body)
    source += [order_at_moment(1, 10**15)] * 9
    with pytest.raises(UserError, match=r"found an export or a copy, expected none: .* --delete-exports"):
        command.forget("accounts", ["id=a", "cust_name=Ann"], lake=versioned_lake, folder=EXAMPLE)
    requests = Requests(s3, versioned_lake, "accounts")
    requests.ask(f"backfill/{ours.rpartition('/')[2]}", {"export": ours})
    with pytest.raises(UserError, match="found an unfinished backfill"):
        command.forget("accounts", ["id=a", "cust_name=Ann"], lake=versioned_lake, delete_exports=True, folder=EXAMPLE)
    requests.delete(f"backfill/{ours.rpartition('/')[2]}")
    asked = []

    def follow(requests: Requests, id_: str, token: str = "") -> Iterator[News]:
        asked.append(id_)
        raise UserError("nobody answers")

    monkeypatch.setattr(lake_requests, "follow", follow)
    with pytest.raises(UserError, match="nobody answers"):
        command.forget("accounts", ["id=a", "cust_name=Ann"], lake=versioned_lake, delete_exports=True, folder=EXAMPLE)
    assert len(asked) == 1
    assert versions(s3, ours.removeprefix(f"s3://{VERSIONED}/")) == []
    assert versions(s3, exports.removeprefix(f"s3://{VERSIONED}/")).count("replaced") == 2, (
        "others' older versions stay"
    )
    assert exports_left.exports_of(s3, exports, "headwater-others") == [theirs]
    begun = f"{exports}/AWSDynamoDB/01769860800000-00000000"
    s3.put_object(Bucket=VERSIONED, Key=f"{begun.removeprefix(f's3://{VERSIONED}/')}/_started", Body=b"")
    with pytest.raises(UserError, match="found an export that is not complete, expected none"):
        command.forget("accounts", ["id=a", "cust_name=Ann"], lake=versioned_lake, delete_exports=True, folder=EXAMPLE)


@pytest.mark.parametrize("name", ["dev", "stage", "prod", "local"])
def test_every_environment_says_what_expires_elsewhere(name: str) -> None:
    settings = read_environment(name, EXAMPLE.config)
    for contract in (CUSTOMERS, ACCOUNTS):
        found = expiries(settings, contract, in_charts=False)
        assert len(found) == 5 + settings.data.retain, "a bucket has versions where data is to stay"
        assert all(each.why for each in found)


def test_a_stream_that_is_there_may_keep_records_as_long_as_tombstones_stay(tmp_path: Path) -> None:
    def keeps(folder: Path) -> list[dt.timedelta | None]:
        found = expiries(read_environment("dev", folder), ACCOUNTS, in_charts=False)
        return [each.keeps for each in found if each.place == "the Kinesis stream"]

    write_dev(tmp_path, EXISTING["key_value"])
    assert (keeps(EXAMPLE.config), keeps(tmp_path)) == ([dt.timedelta(hours=24)], [dt.timedelta(days=7)])


def test_an_import_of_quicksights_keeps_orders_until_its_next_refresh() -> None:
    def keeps(refresh: Literal["hourly", "daily"] | None, contract: Contract) -> list[dt.timedelta | None]:
        settings = read_environment("dev", EXAMPLE.config)
        settings = msgspec.structs.replace(settings, bi=Bi(principal="an arn", refresh=refresh))
        found = expiries(settings, contract, in_charts=content.shows(contract))
        return [each.keeps for each in found if each.place == "QuickSight's import"]

    content = read_content(EXAMPLE.database, EXAMPLE.queries, read_contracts(EXAMPLE.contracts))
    assert keeps("daily", ORDERS) == [dt.timedelta(days=1)]
    assert keeps("hourly", ORDERS) == [dt.timedelta(hours=1)]
    assert keeps(None, ORDERS) == keeps("daily", CUSTOMERS) == []
