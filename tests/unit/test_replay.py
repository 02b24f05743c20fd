"""Which quarantined records a writer takes again, and how their commands ask for it; the tests are the writer."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from headwater.commands import quarantine as command
from headwater.contract.model import Contract
from headwater.contract.reading import read_contract
from headwater.errors import UserError
from headwater.lake.base.lease import LeaseLost
from headwater.lake.base.progress import Progress
from headwater.lake.base.quarantine import BadEntry, Quarantine
from headwater.lake.decoding import debezium_decoder, dynamodb_decoder
from headwater.lake.requests import protocol as lake_requests
from headwater.lake.requests import replay
from headwater.lake.requests.protocol import DONE, REFUSED, RUNNING, News, Request, Requests, Status
from headwater.lake.requests.replay import RecordsToReplay
from headwater.lake.requests.replay_requests import Choice, ask, withdraw
from headwater.lake.requests.requested_work import RequestedWork
from headwater.lake_folder import EXAMPLE
from tests.unit.conftest import BUCKET

ORDERS, ACCOUNTS = (read_contract(EXAMPLE.contracts / f"{name}.yaml") for name in ("orders", "accounts"))


class Lake:
    """A lake with a quarantine of ``orders``, and a writer that commits nothing. It calls every replayed record bad
    whose JSON says so."""

    def __init__(self, s3: Any) -> None:
        self.s3 = s3
        self.uri = f"s3://{BUCKET}/{uuid.uuid4().hex[:8]}/lake"
        self.quarantine = Quarantine(s3, f"{self.uri}/_quarantine", "orders")
        self.requests = Requests(s3, self.uri, "orders")
        self.events: list[dict[str, Any]] = []
        self.replayed: list[tuple[int, Any]] = []

    def writer(self, contract: Contract = ORDERS, epoch: int = 1) -> Any:
        services = SimpleNamespace(s3=self.s3, report=self.events.append)
        return SimpleNamespace(
            services=services,
            settings=SimpleNamespace(quarantine=f"{self.uri}/_quarantine"),
            progress=Progress(epoch=epoch),
            contract=contract,
            replay=self._replay,
            check_lease=self.check_lease,
        )

    def check_lease(self) -> None:
        """The lease is held."""

    def _replay(self, parts: Any) -> list[tuple[str, str]]:
        bad = []
        for name, line, epoch, text in parts:
            self.replayed.append((epoch, json.loads(text)))
            if "bad" in text:
                bad.append(("bad still", json.dumps([name, line])))
        return bad

    def serve(self, epoch: int = 1) -> None:
        """Let a new writer do all requested work."""
        writer = self.writer(epoch=epoch)
        served = RequestedWork(writer, self.requests, {"replay": partial(replay.work, writer, partial(no_decoder))}, 0)
        while served.commit_next():
            pass

    def status(self, id_: str) -> Status:
        status = self.requests.status(id_)
        assert status is not None
        return replace(status, token="")

    def entries(self) -> list[BadEntry]:
        listed = [self.quarantine.read(object_.name) or [] for object_ in self.quarantine.listed()]
        return sorted((entry for entries in listed for entry in entries), key=BadEntry.to_json)

    def names(self) -> tuple[str, ...]:
        return tuple(object_.name for object_ in self.quarantine.listed())


def no_decoder(epoch: int) -> Any:
    raise AssertionError("the writer of these tests decodes nothing")


@pytest.fixture
def lake(s3: Any, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setattr(RecordsToReplay, "_frame", lambda self, parts: parts)
    return Lake(s3)


def kept(reason: str, record: Any, epoch: int | None = 1) -> BadEntry:
    return BadEntry(reason, record, epoch, None if epoch is None else 1)


class Parts:
    """Work of three parts."""

    def __init__(self) -> None:
        self.done = 0

    def status(self) -> Status:
        return Status("", DONE if self.done == 3 else RUNNING, parts=3, parts_done=self.done)

    def commit_next(self) -> None:
        self.done += 1


def test_new_requests_are_looked_for_once_in_a_while_and_each_time_while_one_is_served(lake: Lake) -> None:
    now, listed = 0.0, 0
    writer, requests = lake.writer(), lake.requests
    list_all = requests.listed

    def counted() -> list[tuple[str, str]]:
        nonlocal listed
        listed += 1
        return list_all()

    requests.listed = counted  # type: ignore[method-assign]
    work = Parts()
    served = RequestedWork(writer, requests, {"parts": lambda *_: work}, poll_seconds=30.0, clock=lambda: now)
    assert not served.commit_next()
    requests.ask("parts/all", {})
    now = 29.9
    assert not served.commit_next()
    assert (listed, work.done) == (1, 0)
    now = 30.0
    assert [served.commit_next() for _ in range(4)] == [True, True, True, False]
    # What is served may be taken back at any time.
    assert (listed, work.done) == (4, 3)


def test_what_is_applied_goes_and_what_stays_keeps_its_epoch_and_gets_its_new_reason(lake: Lake) -> None:
    lake.quarantine.store("b-1", [kept("price", "fits"), kept("price", "bad"), kept("key", "not chosen")])
    lake.quarantine.store("b-2", [kept("price", "fits too")])
    untouched = lake.quarantine.store("b-3", [kept("key", "nor this")])
    id_ = ask(lake.requests, Choice(lake.names(), "price"))
    lake.serve(epoch=2)
    assert lake.status(id_) == Status("", DONE, parts=3, parts_done=3, records=3, kept=1)
    assert sorted(lake.replayed) == [(1, "bad"), (1, "fits"), (1, "fits too")]
    stay = [kept("bad still", "bad"), kept("key", "nor this"), kept("key", "not chosen")]
    assert lake.entries() == stay
    assert len(lake.names()) == 2
    assert untouched in lake.names()
    assert [event["event"] for event in lake.events] == ["request", "request"]


def test_a_writer_that_has_lost_its_lease_puts_nothing_back(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it holds may have been forgotten since."""

    def lost() -> None:
        raise LeaseLost("orders")

    monkeypatch.setattr(lake, "check_lease", lost)
    lake.quarantine.store("b-1", [kept("price", "fits"), kept("price", "bad")])
    before = lake.names()
    ask(lake.requests, Choice(before))
    with pytest.raises(LeaseLost):
        lake.serve()
    assert lake.names() == before


def test_objects_that_are_gone_count_as_done_and_a_finished_request_is_left_alone(lake: Lake) -> None:
    id_ = ask(lake.requests, Choice(("gone.jsonl.gz",)))
    lake.serve()
    assert lake.status(id_) == Status("", DONE, parts=1, parts_done=1)
    lake.quarantine.store("b-1", [kept("price", "fits")])
    lake.serve()
    assert len(lake.entries()) == 1


def test_an_object_that_does_not_change_stays_as_it_is(lake: Lake) -> None:
    lake.quarantine.store("b-1", [kept("bad still", "bad")])
    before = lake.quarantine.listed()
    id_ = ask(lake.requests, Choice(lake.names()))
    lake.serve()
    assert lake.quarantine.listed() == before
    assert lake.status(id_).kept == 1


def test_a_sample_of_a_refused_batch_is_not_replayed(lake: Lake) -> None:
    lake.quarantine.store("b-1", [kept("price", "fits")], refused=True)
    id_ = ask(lake.requests, Choice(lake.names()))
    lake.serve()
    assert lake.status(id_).state == REFUSED
    assert "found a sample of a refused batch" in lake.status(id_).reason
    assert len(lake.entries()) == 1


def test_a_record_whose_place_among_the_changes_cannot_be_told_stays(lake: Lake) -> None:
    lake.quarantine.store(
        "b-1", [kept("a", "old", None), kept("a", "later", 3), BadEntry("a", "other layout", 1, order_version=0)]
    )
    ask(lake.requests, Choice(lake.names()))
    lake.serve(epoch=2)
    assert lake.replayed == []
    reasons = {entry.record: entry.reason for entry in lake.entries()}
    assert reasons["old"].startswith("epoch: found none, expected the one in which the record was read")
    assert reasons["later"].startswith("epoch: found 3, expected at most 2")
    assert reasons["other layout"].startswith("layout of _order: found version 0 in epoch 1, expected 1")


def test_a_record_of_an_earlier_release_is_of_the_first_epoch_while_there_is_no_other(lake: Lake) -> None:
    lake.quarantine.store("b-1", [kept("a", "old", None)])
    ask(lake.requests, Choice(lake.names()))
    lake.serve()
    assert lake.replayed == [(1, "old")]


@pytest.mark.parametrize(
    ("id_", "details", "reason"),
    [
        ("replay/x", {"objects": "all", "reason": ""}, "objects: found 'all', expected a list"),
        ("replay/x", {"objects": []}, "reason: found None, expected a text"),
        ("fill/x", {}, "found the kind 'fill', expected one of replay"),
    ],
)
def test_a_request_that_says_nothing_is_refused(lake: Lake, id_: str, details: Any, reason: str) -> None:
    lake.requests.put(id_, Request("token", details))
    lake.serve()
    assert lake.status(id_).state == REFUSED
    assert reason in lake.status(id_).reason


def test_only_unfinished_replays_are_withdrawn(lake: Lake) -> None:
    done = ask(lake.requests, Choice(("gone",)))
    lake.serve()
    waiting = ask(lake.requests, Choice(("gone", "too")))
    assert withdraw(lake.requests) == [waiting]
    assert [id_ for id_, _ in lake.requests.listed()] == [done]
    with pytest.raises(UserError, match="nothing to withdraw"):
        withdraw(lake.requests)
    assert (lake.requests.is_answered(done), lake.requests.is_answered(waiting)) == (True, False)


def test_what_is_asked_for_again_is_unfinished_until_it_is_answered_again(lake: Lake) -> None:
    id_ = ask(lake.requests, Choice(("gone",)))
    lake.serve()
    ask(lake.requests, Choice(("gone",)))
    assert not lake.requests.is_answered(id_)
    lake.serve()
    assert lake.requests.is_answered(id_)
    # What was answered is so, also where the request has been taken away since.
    lake.requests.delete(id_)
    assert lake.requests.is_answered(id_)


# --- Decoding ---------------------------------------------------------------------------------------------------------


def position(contract: Contract, row: tuple[Any, ...]) -> str:
    value: str = row[[name for name, _ in contract.lake_columns()].index("_position")]
    return value


def order(contract: Contract, row: tuple[Any, ...]) -> str:
    value: str = row[[name for name, _ in contract.lake_columns()].index("_order")]
    return value


@pytest.mark.parametrize("source", [{"source": "t.orders/3"}, {}], ids=["kept", "by an earlier release"])
def test_a_landed_line_is_decoded_in_its_epoch_and_at_its_position(source: dict[str, str]) -> None:
    position_in_source = {"schema": "northwind", "table": "order_events", "lsn": 7, "ts_us": 1}
    before = {"order_id": 1, "order_month": "2024-01", "payload": "{}"}
    value = json.dumps({"op": "d", "before": before, "source": position_in_source}).encode()
    line: Any = {"offset": 9, "key": None, "value": base64.b64encode(value).decode(), "headers": [], **source}
    (row,) = debezium_decoder.kept_decoder(ORDERS, 4)(line, "t.orders-3-00000000000000000007-0123456789ab.jsonl.gz")
    assert position(ORDERS, row) == "t.orders/3/9"
    assert order(ORDERS, row).startswith("0004")


def stream_record() -> str:
    image = {"id": {"S": "a"}, "custName": {"S": "Ann"}, "registrationDate": {"S": "2024-01-31"}}
    return json.dumps(
        {
            "eventName": "INSERT",
            "eventID": "e",
            "tableName": "T",
            "dynamodb": {"ApproximateCreationDateTime": 5, "Keys": image, "NewImage": image},
        }
    )


STREAMED = stream_record()
EXPORTED = json.dumps({"Item": json.loads(STREAMED)["dynamodb"]["NewImage"]})


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "record",
    [
        {"sequence": "12", "position": "shard/12", "data": STREAMED},
        {"sequence": "12", "position": "shard/12", "data_base64": encoded(STREAMED)},
        {"exported_at": 10**15, "position": "export/file/0", "item": EXPORTED},
        {"exported_at": 10**15, "position": "export/file/0", "item_base64": encoded(EXPORTED)},
    ],
    ids=["streamed", "streamed bytes", "exported", "exported bytes"],
)
def test_a_record_of_dynamodb_is_decoded_in_its_epoch_and_at_its_position(record: Any) -> None:
    (row,) = dynamodb_decoder.kept_decoder(ACCOUNTS, "T", None, 4)(record, "b-0123456789ab.jsonl.gz")
    assert position(ACCOUNTS, row) == record["position"]
    assert order(ACCOUNTS, row).startswith("0004")


def test_an_item_that_was_read_while_its_table_changed_is_known_from_the_end_of_the_reading_on() -> None:
    """Also where quarantine has kept it."""
    (bad,) = dynamodb_decoder.decode_item(
        '{"Item": {}}', (10**15, 10**15 + 7), "export/file/0", dynamodb_decoder.DynamoDecoder(ACCOUNTS)
    )
    kept_item = {**json.loads(bad[-1]), "item": EXPORTED}
    (row,) = dynamodb_decoder.kept_decoder(ACCOUNTS, "T", None, 4)(kept_item, "b-0123456789ab.jsonl.gz")
    names = [name for name, _ in ACCOUNTS.lake_columns()]
    assert row[names.index("_source_ts")] == dynamodb_decoder.moment(10**15 + 7)
    assert f"{10**15 - 60 * 10**6:020d}" in order(ACCOUNTS, row)


# --- Commands ---------------------------------------------------------------------------------------------------------


def landed(value: Any, offset: int = 1) -> Any:
    text = base64.b64encode(json.dumps(value).encode()).decode()
    return {"offset": offset, "key": base64.b64encode(b'{"id": 7}').decode(), "value": text, "source": "t.orders/0"}


def test_the_list_tells_per_object_how_many_records_there_are_and_why(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    command.list_(lake=lake.uri, folder=EXAMPLE)
    assert capsys.readouterr().out == f"No bad records in {lake.uri}/_quarantine\n"
    pairs = [kept(f"price: found {value}, expected a number", landed({})) for value in ("'a'", "'b'")]
    name = lake.quarantine.store("t-0-1", [*pairs, kept("key: null", landed({}))])
    sample = lake.quarantine.store("t-0-2", pairs, refused=True)
    command.list_(lake=lake.uri, as_json=True, folder=EXAMPLE)
    listed = {entry["object"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert listed[name]["reasons"] == {"price: found …, expected a number": 2, "key: null": 1}
    assert (listed[name]["table"], listed[name]["records"], listed[name]["sample"]) == ("orders", 3, False)
    assert listed[sample]["sample"]
    command.list_("orders", lake=lake.uri, folder=EXAMPLE)
    printed = capsys.readouterr().out
    assert "Bad records" in printed
    assert "orders" in printed


def test_bad_records_are_shown_with_position_key_and_content(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    name = lake.quarantine.store("t-0-1", [kept("price", landed({"op": "c", "after": {"price": 1.10}}))])
    lake.quarantine.store("t-0-2", [kept("key", landed({}, 2))])
    command.show("orders", lake=lake.uri, reason="price", folder=EXAMPLE)
    assert capsys.readouterr().out == (
        f'{name} t.orders/0/1\n  reason: price\n  epoch: 1\n  key: {{"id": 7}}\n'
        '  content: {"op": "c", "after": {"price": "1.1"}}\n'
    )
    command.show("orders", [name], lake=lake.uri, as_json=True, folder=EXAMPLE)
    (shown,) = json.loads(capsys.readouterr().out)
    assert (shown["object"], shown["key"], shown["position"]) == (name, {"id": 7}, "t.orders/0/1")


@pytest.mark.parametrize(
    ("record", "position", "key", "content"),
    [
        ({"sequence": "1", "position": "s/1", "data": STREAMED}, "s/1", json.loads(STREAMED)["dynamodb"]["Keys"], None),
        ({"sequence": None, "position": "s/1", "data": None}, "s/1", None, None),
        ({"sequence": None, "position": "s/1", "data_base64": "/w=="}, "s/1", None, "\\xff"),
        ({"exported_at": 1, "position": "e/f/0", "item": "no JSON"}, "e/f/0", None, "no JSON"),
        ("anything", None, None, None),
    ],
)
def test_every_kind_of_bad_record_can_be_read(record: Any, position: str | None, key: Any, content: Any) -> None:
    shown = command.readable(kept("reason", record))
    assert (shown["position"], shown["key"]) == (position, key)
    assert content is None or shown["content"] == content


def test_objects_that_are_not_there_are_named(lake: Lake) -> None:
    with pytest.raises(UserError, match=r"_quarantine/orders/: found none of objects, expected bad records of orders"):
        command.show("orders", lake=lake.uri, folder=EXAMPLE)
    lake.quarantine.store("t-0-1", [kept("price", landed({}))])
    with pytest.raises(UserError, match=r"found none of the objects x\.jsonl\.gz"):
        command.drop("orders", ["x.jsonl.gz"], lake=lake.uri, yes=True, folder=EXAMPLE)


def test_records_are_dropped_after_a_yes(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [lake.quarantine.store(f"t-0-{number}", [kept("price", landed({}))]) for number in range(3)]

    def refuse(*_: object, **__: object) -> bool:
        raise typer.Abort

    monkeypatch.setattr(typer, "confirm", refuse)
    with pytest.raises(typer.Abort):
        command.drop("orders", lake=lake.uri, folder=EXAMPLE)
    assert len(lake.names()) == 3
    command.drop("orders", names[:1], lake=lake.uri, yes=True, folder=EXAMPLE)
    assert sorted(lake.names()) == sorted(names[1:])
    command.drop("orders", lake=lake.uri, yes=True, folder=EXAMPLE)
    assert lake.names() == ()


def test_the_replay_of_all_leaves_samples_out_and_ends_with_1_where_records_stay(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lake.quarantine.store("t-0-1", [kept("price", "fits")])
    lake.quarantine.store("t-0-2", [kept("price", "fits")], refused=True)

    def follow(requests: Requests, id_: str, token: str = "") -> Iterator[News]:
        assert (waiting := requests.status(id_)) is None or waiting.state == RUNNING
        lake.serve()
        yield News(requests.status(id_), 0)

    monkeypatch.setattr(lake_requests, "follow", follow)
    command.replay("orders", lake=lake.uri, folder=EXAMPLE)
    assert "Done: 1 records are in the lake, 0 stay in quarantine" in capsys.readouterr().out
    assert len(lake.names()) == 1
    command.replay("orders", lake=lake.uri, folder=EXAMPLE)
    assert "Nothing to replay" in capsys.readouterr().out
    lake.quarantine.store("t-0-3", [kept("price", "bad")])
    with pytest.raises(typer.Exit) as ended:
        command.replay("orders", lake=lake.uri, folder=EXAMPLE)
    assert ended.value.exit_code == 1
    ask(lake.requests, Choice(("gone",)))
    command.replay("orders", lake=lake.uri, withdraw=True, folder=EXAMPLE)
    assert "Withdrawn: 1 requests" in capsys.readouterr().out


def test_quarantine_may_have_a_bucket_of_its_own(lake: Lake, s3: Any, capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere = f"s3://{BUCKET}/{uuid.uuid4().hex[:8]}"
    Quarantine(s3, elsewhere, "orders").store("t-0-1", [kept("price", landed({}))])
    command.show("orders", lake=lake.uri, uri=elsewhere, folder=EXAMPLE)
    assert "price" in capsys.readouterr().out
