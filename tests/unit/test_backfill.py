"""Asking for a backfill and following it; the tests give the job's answers."""

import datetime as dt
import gzip
import io
from collections.abc import Callable
from typing import Any

import pytest
import typer

from headwater.commands.backfill import _watch_copies, backfill
from headwater.errors import UserError
from headwater.lake.requests import copy_requests
from headwater.lake.requests import protocol as lake_requests
from headwater.lake.requests.backfill_requests import ask, request_id
from headwater.lake.requests.protocol import DONE, REFUSED, RUNNING, News, Requests, Status, withdraw
from headwater.lake.sources import table_copy
from headwater.lake.sources.scanned_export import write_export
from headwater.lake.sources.table_copy import TableCopy
from headwater.lake_folder import EXAMPLE
from tests.unit.conftest import BUCKET

ARN = "arn:aws:dynamodb:eu-central-1:123456789012:table/headwater-accounts"


@pytest.fixture
def uri(s3: Any) -> str:
    files = [[{"id": {"S": "a"}}], [{"id": {"S": "b"}}]]
    return write_export(s3, ARN, files, dt.datetime.now(dt.UTC), f"s3://{BUCKET}/e")


@pytest.fixture
def lake(uri: str) -> str:
    """A lake for this export alone."""
    return f"s3://{BUCKET}/{uri.rpartition('/')[2]}/lake"


@pytest.fixture
def requests(s3: Any, lake: str) -> Requests:
    return Requests(s3, lake, "accounts")


class Clock:
    """A clock that only sleeping moves; during each sleep, the next of the job's deeds takes place."""

    def __init__(self, *deeds: Callable[[], object]) -> None:
        self.now = 0.0
        self._deeds = list(deeds)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self._deeds:
            self._deeds.pop(0)()


def follow(requests: Requests, id_: str, *deeds: Callable[[], object]) -> list[News]:
    clock = Clock(*deeds)
    return list(lake_requests.follow(requests, id_, patience=5, sleep=clock.sleep, clock=lambda: clock.now))


def answer(requests: Requests, id_: str, **fields: Any) -> Callable[[], None]:
    """A job's answer, given when it is called, to the request of that moment."""

    def give() -> None:
        request = requests.get(id_)
        assert request is not None
        requests.answer(id_, Status(request.token, **{"state": RUNNING, "parts": 2, **fields}))

    return give


def test_a_backfill_is_followed_from_request_to_done(s3: Any, uri: str, requests: Requests) -> None:
    ask(s3, requests, uri + "/")
    assert [id_ for id_, _ in requests.listed()] == [request_id(uri)]
    news = follow(
        requests,
        request_id(uri),
        answer(requests, request_id(uri)),
        answer(requests, request_id(uri), parts_done=1, records=1),
        answer(requests, request_id(uri), parts_done=1, records=1),
        answer(requests, request_id(uri), parts_done=2, records=2, state=DONE),
    )
    told = [(heard.status.state, heard.status.parts_done) if heard.status else None for heard in news]
    assert told == [None, (RUNNING, 0), (RUNNING, 1), (RUNNING, 1), (DONE, 2)]
    assert [heard.quiet for heard in news] == [0, 0, 0, 1, 0]


def test_a_refusal_ends_the_following_with_its_reason(s3: Any, uri: str, requests: Requests) -> None:
    ask(s3, requests, uri)
    refusal = answer(requests, request_id(uri), state=REFUSED, reason="exportTime: too early.")
    with pytest.raises(
        UserError, match=rf"refuses the {request_id(uri).replace('/', ' of ')}\. exportTime: too early\."
    ):
        follow(requests, request_id(uri), refusal)


def test_an_answer_to_an_earlier_request_does_not_count(s3: Any, uri: str, requests: Requests) -> None:
    ask(s3, requests, uri)
    answer(requests, request_id(uri), state=REFUSED, reason="an earlier one")()
    ask(s3, requests, uri)
    news = follow(requests, request_id(uri), answer(requests, request_id(uri), state=DONE))
    assert [heard.status.state if heard.status else None for heard in news] == [None, DONE]


def test_two_watchers_of_one_backfill_both_see_its_end(s3: Any, uri: str, requests: Requests) -> None:
    ask(s3, requests, uri)

    def second_watcher() -> None:
        ask(s3, requests, uri)

    news = follow(requests, request_id(uri), second_watcher, answer(requests, request_id(uri), state=DONE))
    assert [heard.status.state if heard.status else None for heard in news] == [None, None, DONE]


def test_silence_is_told_as_no_running_job_and_leaves_the_request(s3: Any, uri: str, requests: Requests) -> None:
    ask(s3, requests, uri)
    with pytest.raises(UserError, match="No job has answered for 5 s"):
        follow(requests, request_id(uri))
    assert requests.get(request_id(uri)) is not None


def test_a_job_that_answered_once_may_be_silent_for_as_long_as_it_takes(s3: Any, uri: str, requests: Requests) -> None:
    ask(s3, requests, uri)
    nothing = [lambda: None] * 20
    news = follow(
        requests,
        request_id(uri),
        answer(requests, request_id(uri)),
        *nothing,
        answer(requests, request_id(uri), state=DONE),
    )
    assert max(heard.quiet for heard in news) == 20


def test_a_withdrawn_request_is_gone_and_ends_the_following(s3: Any, uri: str, requests: Requests) -> None:
    ask(s3, requests, uri)
    answer(requests, request_id(uri), parts_done=1)()
    status = withdraw(requests, request_id(uri))
    assert status is not None
    assert status.parts_done == 1
    assert requests.listed() == []
    with pytest.raises(UserError, match="was withdrawn"):
        follow(requests, request_id(uri))
    with pytest.raises(UserError, match="nothing to withdraw"):
        withdraw(requests, request_id(uri))


def test_a_request_that_no_job_took_up_is_withdrawn_without_a_status(s3: Any, uri: str, requests: Requests) -> None:
    ask(s3, requests, uri)
    answer(requests, request_id(uri), parts_done=1)()
    ask(s3, requests, uri)
    assert withdraw(requests, request_id(uri)) is None


def test_requests_are_listed_without_their_statuses_and_by_table(
    s3: Any, uri: str, lake: str, requests: Requests
) -> None:
    ask(s3, requests, uri)
    answer(requests, request_id(uri))()
    assert [id_ for id_, _ in requests.listed()] == [request_id(uri)]
    assert Requests(s3, lake, "account").listed() == []


def test_a_new_request_for_the_same_export_has_another_version(s3: Any, uri: str, requests: Requests) -> None:
    ask(s3, requests, uri)
    first = requests.listed()
    ask(s3, requests, uri)
    assert requests.listed() != first


def test_an_export_that_cannot_be_loaded_is_not_requested(s3: Any, uri: str, requests: Requests) -> None:
    with pytest.raises(UserError, match="found no readable object"):
        ask(s3, requests, uri + "x")
    assert requests.listed() == []


def test_an_export_is_of_dynamodbs_tables_alone_and_they_need_one(uri: str, lake: str) -> None:
    with pytest.raises(UserError, match=f"EXPORT: found {uri}, expected none: orders is of postgresql"):
        backfill("orders", uri, lake=lake, folder=EXAMPLE)
    with pytest.raises(UserError, match="EXPORT: found none, expected the export's address: accounts is of dynamodb"):
        backfill("accounts", lake=lake, folder=EXAMPLE)


def test_the_command_refuses_a_table_that_no_contract_describes(uri: str, lake: str) -> None:
    with pytest.raises(UserError, match="--table: found 'nothing', expected one of accounts, "):
        backfill("nothing", uri, lake=lake, folder=EXAMPLE)


def test_the_command_says_which_address_of_the_lake_does_not_fit(uri: str) -> None:
    with pytest.raises(UserError, match=r"--lake.*found 'lake', expected s3://bucket/prefix"):
        backfill("accounts", uri, lake="lake", folder=EXAMPLE)


def test_the_command_says_which_bucket_cannot_be_used(uri: str) -> None:
    with pytest.raises(UserError, match=r"S3 cannot be used: .*NoSuchBucket"):
        backfill("accounts", uri, lake="s3://nowhere/lake", folder=EXAMPLE)


def test_ctrl_c_leaves_the_request_and_says_how_to_go_on(
    uri: str, lake: str, requests: Requests, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(lake_requests, "follow", interrupted)
    with pytest.raises(typer.Exit) as ended:
        backfill("accounts", uri, lake=lake, folder=EXAMPLE)
    assert ended.value.exit_code == 130
    assert "Run the same command again" in capsys.readouterr().err
    assert len(requests.listed()) == 1


def test_the_command_withdraws_what_it_requested(
    s3: Any, uri: str, lake: str, requests: Requests, capsys: pytest.CaptureFixture[str]
) -> None:
    ask(s3, requests, uri)
    answer(requests, request_id(uri), parts_done=1)()
    backfill("accounts", uri, lake=lake, withdraw=True, folder=EXAMPLE)
    assert "reported 1 of 2 files" in capsys.readouterr().out
    assert requests.listed() == []


@pytest.fixture
def copy(s3: Any, lake: str) -> TableCopy:
    """A copy of the table of orders."""
    at = f"{lake.removesuffix('/lake')}/exports/_backfill/orders/0-1"
    file = table_copy.put_file(s3, at, "000000-0000.jsonl.gz", io.BytesIO(gzip.compress(b"{}\n")), 1)
    made = TableCopy(at, "northwind.orders", 1, 7, 0, True, [file])
    table_copy.complete(s3, made)
    return made


@pytest.fixture
def of_orders(s3: Any, lake: str) -> Requests:
    return Requests(s3, lake, "orders")


def test_a_copy_that_was_asked_for_is_watched_and_deleted_when_it_is_loaded(
    s3: Any,
    lake: str,
    copy: TableCopy,
    of_orders: Requests,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    id_ = copy_requests.ask(of_orders, copy)
    folder = copy.uri.rpartition("/")[0]

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lake_requests, "follow", interrupted)
        with pytest.raises(typer.Exit):
            backfill("orders", lake=lake, folder=EXAMPLE)
    assert table_copy.copies_in(s3, folder) == [copy.uri]
    answers = iter([answer(of_orders, id_), answer(of_orders, id_, state=DONE, parts_done=2, records=1)])
    monkeypatch.setattr(lake_requests.follow, "__defaults__", (9.0, lambda _: next(answers)(), lambda: 0.0, ""))
    backfill("orders", lake=lake, folder=EXAMPLE)
    told = capsys.readouterr().out
    assert "An earlier run has read orders and requested its load" in told
    assert "Done: the 1 rows are in the lake" in told
    assert table_copy.copies_in(s3, folder) == []


def test_a_copy_that_is_refused_is_deleted_and_one_that_another_table_needs_is_not(
    s3: Any, lake: str, copy: TableCopy, of_orders: Requests
) -> None:
    id_ = copy_requests.ask(of_orders, copy)
    of_history = Requests(s3, lake, "orders_changes")
    of_its_history = copy_requests.ask(of_history, copy)
    asked = [(of_orders, id_, copy.uri), (of_history, of_its_history, copy.uri)]
    answer(of_orders, id_, state=REFUSED, reason="damaged")()
    with pytest.raises(UserError, match="damaged"):
        _watch_copies(s3, asked)
    assert TableCopy.open(s3, copy.uri) == copy
    answer(of_history, of_its_history, state=DONE)()
    with pytest.raises(UserError, match="damaged"):
        _watch_copies(s3, asked)
    with pytest.raises(UserError, match="found no readable object"):
        TableCopy.open(s3, copy.uri)


def test_a_copy_that_is_withdrawn_while_it_is_watched_stays_for_the_writers_commit(
    s3: Any, copy: TableCopy, of_orders: Requests
) -> None:
    id_ = copy_requests.ask(of_orders, copy)
    answer(of_orders, id_)()
    of_orders.delete(id_)
    with pytest.raises(UserError, match="was withdrawn"):
        _watch_copies(s3, [(of_orders, id_, copy.uri)])
    assert TableCopy.open(s3, copy.uri) == copy


def test_a_copy_is_withdrawn_by_its_tables_name(lake: str, copy: TableCopy, of_orders: Requests) -> None:
    copy_requests.ask(of_orders, copy)
    backfill("orders", lake=lake, withdraw=True, folder=EXAMPLE)
    assert copy_requests.open_copies(of_orders) == {}
    with pytest.raises(UserError, match="No backfill is requested"):
        backfill("orders", lake=lake, withdraw=True, folder=EXAMPLE)


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'{"files": [{}]}', b'{"files": []}', b'{"files": [], "uri": "x", "source": 1}']
)
def test_a_manifest_of_something_else_is_refused(s3: Any, copy: TableCopy, body: bytes) -> None:
    bucket, _, folder = copy.uri.removeprefix("s3://").partition("/")
    s3.put_object(Bucket=bucket, Key=f"{folder}/copy.json", Body=body)
    with pytest.raises(UserError, match=r"copy\.json: found .* expected the manifest of a copy"):
        TableCopy.open(s3, copy.uri)


def test_what_an_environment_says_is_not_given_beside_it() -> None:
    with pytest.raises(UserError, match="--env: found --epoch, too"):
        backfill("orders", environment="dev", epoch=2, folder=EXAMPLE)
    with pytest.raises(UserError, match="--env: found --mask-secret, too"):
        backfill("orders", environment="dev", mask_secret="x", folder=EXAMPLE)
