"""A table's lease: over moto's S3, and over a bucket whose answers are lost."""

from __future__ import annotations

import io
import json
import threading
import time
import uuid
from typing import Any

import pytest

from headwater.lake.base import lease as lease_module
from headwater.lake.base.lease import Lease, LeaseLost, Leases
from headwater.waiting import PATIENCE_SECONDS
from tests.unit.conftest import BUCKET

GO_ON = threading.Event()


class Refused(Exception):
    """An error of the S3 API."""

    def __init__(self, status: int) -> None:
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}}


class NoSuchKey(Refused):
    """There is no such object."""


class Bucket:
    """One object with S3's conditions.

    So many of the next answers get ``lost``: the request is done and sent again, as boto3 does. So many are ``cut``:
    the request is done, the call raises, and nothing is sent again. ``refused`` is the status of all writes.
    ``faster`` is what another writer stores just before the next write.
    """

    class exceptions:  # noqa: N801 - boto3's name
        ClientError = Refused
        NoSuchKey = NoSuchKey

    def __init__(self) -> None:
        self.stored: tuple[bytes, str] | None = None
        self.lost = self.cut = self.refused = self.puts = 0
        self.faster: bytes | None = None
        self._version = 0

    def put_object(self, **request: Any) -> dict[str, Any]:
        present = None if self.stored is None else self.stored[1]
        assert request.get("IfNoneMatch", "*") == "*", "S3 knows no other value"
        self.puts += 1
        if self.faster is not None:
            self.stored, self.faster, present = (self.faster, "faster"), None, "faster"
        if self.refused:
            raise Refused(self.refused)
        if "IfMatch" in request and present is None:
            raise NoSuchKey(404)
        if request.get("IfMatch", present) != present or ("IfNoneMatch" in request and present is not None):
            raise Refused(412)
        self._version += 1
        self.stored = (request["Body"], f"v{self._version}")
        if self.cut:
            self.cut -= 1
            raise ConnectionError("the connection was cut")
        if self.lost:
            self.lost -= 1
            return self.put_object(**request)
        return {"ETag": self.stored[1]}

    def get_object(self, **_: Any) -> dict[str, Any]:
        if self.stored is None:
            raise NoSuchKey(404)
        return {"Body": io.BytesIO(self.stored[0]), "ETag": self.stored[1]}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def leased(bucket: Bucket, clock: Clock, owner: str) -> Lease:
    lease = Lease(bucket, "s3://lake/_leases/orders.json", owner, ttl=3000, clock=clock)
    lease.acquire(0, GO_ON)
    return lease


def test_a_lease_whose_first_answer_is_lost_is_held() -> None:
    bucket, clock = Bucket(), Clock()
    bucket.lost = 1
    lease = leased(bucket, clock, "writer")
    lease.check()
    lease.release()


def test_a_renewal_whose_answer_is_lost_has_succeeded() -> None:
    bucket, clock = Bucket(), Clock()
    lease = leased(bucket, clock, "writer")
    for _ in range(3):
        clock.now += 2000
        bucket.lost = 1
        lease.check()
    with pytest.raises(LeaseLost, match="held by writer"):
        leased(bucket, clock, "other")
    lease.release()


def test_the_renewal_after_one_that_was_cut_finds_its_own_lease() -> None:
    bucket, clock = Bucket(), Clock()
    lease = leased(bucket, clock, "writer")
    clock.now += 2000
    bucket.cut = 1
    with pytest.raises(ConnectionError):
        lease.check()
    lease.check()
    lease.release()


def test_a_lease_that_another_has_taken_is_lost_though_the_owner_is_called_the_same() -> None:
    bucket, clock = Bucket(), Clock()
    dead = leased(bucket, clock, "host/1")
    clock.now += 3001
    heir = leased(bucket, clock, "host/1")
    with pytest.raises(LeaseLost, match="another writer took the table"):
        dead.check()
    heir.check()
    bucket.stored = None
    clock.now += 2000
    with pytest.raises(LeaseLost, match="another writer took the table"):
        heir.check()
    dead.release()
    heir.release()


@pytest.fixture
def uri() -> str:
    return f"s3://{BUCKET}/leases/{uuid.uuid4().hex}.json"


def test_a_second_writer_is_refused_and_told_who_holds_the_table(s3: Any, uri: str) -> None:
    first = Lease(s3, uri, "first")
    first.acquire(0, GO_ON)
    with pytest.raises(LeaseLost, match="held by first"):
        Lease(s3, uri, "second").acquire(0, GO_ON)
    first.release()
    second = Lease(s3, uri, "second")
    second.acquire(0, GO_ON)
    second.release()


def test_a_dead_writers_lease_runs_out_and_its_return_is_noticed(s3: Any, uri: str) -> None:
    clock = Clock()
    dead = Lease(s3, uri, "dead", ttl=3000, clock=clock)
    dead.acquire(0, GO_ON)
    clock.now += 3001
    heir = Lease(s3, uri, "heir", ttl=3000, clock=clock)
    heir.acquire(0, GO_ON)
    with pytest.raises(LeaseLost, match="another writer took the table"):
        dead.check()
    heir.check()
    dead.release()
    heir.release()


def test_a_lease_is_renewed_before_a_commit_when_half_of_it_is_gone(s3: Any, uri: str) -> None:
    clock = Clock()
    lease = Lease(s3, uri, "writer", ttl=3000, clock=clock)
    lease.acquire(0, GO_ON)
    clock.now += 2000
    lease.check()
    clock.now += 2000
    with pytest.raises(LeaseLost, match="held by writer"):
        Lease(s3, uri, "other", ttl=3000, clock=clock).acquire(0, GO_ON)
    lease.release()


HOLDER = json.dumps({"owner": "another", "token": "t", "expires": 10**9}).encode()


def test_a_refusal_names_the_lease_its_holder_and_the_way_out() -> None:
    bucket, clock = Bucket(), Clock()
    first = leased(bucket, clock, "writer")
    with pytest.raises(LeaseLost) as refused:
        leased(bucket, clock, "other")
    assert str(refused.value) == (
        "s3://lake/_leases/orders.json: held by writer. A table has one writer: stop that one, or wait 3000 s."
    )
    assert bucket.stored is not None
    bucket.stored = (HOLDER, "new")
    clock.now += 2000
    for _ in range(2):
        with pytest.raises(LeaseLost, match=r"^s3://lake/_leases/orders\.json: another writer took the table$"):
            first.check()
    first.release()
    assert bucket.stored == (HOLDER, "new")


def test_a_lease_lasts_a_minute_unless_told_otherwise() -> None:
    bucket, clock = Bucket(), Clock()
    lease = Lease(bucket, "s3://lake/_leases/orders.json", "writer", clock=clock)
    lease.acquire(0, GO_ON)
    assert bucket.stored is not None
    assert json.loads(bucket.stored[0])["expires"] == clock.now + 60
    lease.release()
    assert json.loads(bucket.stored[0])["expires"] == clock.now


def test_a_lease_that_was_never_taken_is_not_given_back() -> None:
    bucket = Bucket()
    Lease(bucket, "s3://lake/_leases/orders.json", "writer").release()
    assert bucket.puts == 0


def test_a_check_costs_nothing_until_half_of_the_lease_is_gone() -> None:
    bucket, clock = Bucket(), Clock()
    lease = leased(bucket, clock, "writer")
    clock.now += 1500
    lease.check()
    assert bucket.puts == 1
    clock.now += 1
    lease.check()
    assert bucket.puts == 2
    lease.release()
    assert bucket.puts == 3


@pytest.mark.parametrize("late", [3000, 3001])
def test_a_lease_that_has_run_out_is_not_given_back_and_free_at_that_moment(late: float) -> None:
    bucket, clock = Bucket(), Clock()
    dead = leased(bucket, clock, "dead")
    clock.now += late
    dead.release()
    assert bucket.puts == 1
    leased(bucket, clock, "heir").release()


def test_giving_back_a_lease_that_another_has_taken_is_no_error() -> None:
    bucket, clock = Bucket(), Clock()
    lease = leased(bucket, clock, "writer")
    bucket.stored = (HOLDER, "new")
    lease.release()
    assert bucket.stored == (HOLDER, "new")


def test_of_two_writers_that_come_at_once_one_is_refused() -> None:
    bucket = Bucket()
    bucket.faster = HOLDER
    with pytest.raises(LeaseLost, match="held by a writer that was faster\\. A table"):
        leased(bucket, Clock(), "writer")
    assert bucket.stored == (HOLDER, "faster")


@pytest.mark.parametrize(("status", "error"), [(404, LeaseLost), (409, LeaseLost), (412, LeaseLost), (403, Refused)])
def test_only_a_refused_condition_means_that_the_lease_is_lost(status: int, error: type[Exception]) -> None:
    bucket, clock = Bucket(), Clock()
    lease = leased(bucket, clock, "writer")
    clock.now += 2000
    bucket.refused = status
    with pytest.raises(error):
        lease.check()
    bucket.refused = 0
    lease.release()


class Time(threading.Event):
    """The time that a writer waits by, and what tells it to stop: waiting moves the lease's clock. It is set once it
    has been waited for ``rounds`` times."""

    def __init__(self, clock: Clock, rounds: int = 1000) -> None:
        super().__init__()
        self.slept: list[float | None] = []
        self._clock = clock
        self._rounds = rounds

    def monotonic(self) -> float:
        return self._clock.now

    def wait(self, timeout: float | None = None) -> bool:
        self.slept.append(timeout)
        self._clock.now += timeout or 0
        return len(self.slept) >= self._rounds


@pytest.mark.parametrize(("wait", "left", "slept"), [(0, 1, 0), (2, 1, 2), (2, 3, 4)])
def test_a_writer_waits_for_a_dead_ones_lease_and_looks_every_half_second(
    monkeypatch: pytest.MonkeyPatch, wait: float, left: float, slept: int
) -> None:
    bucket, clock = Bucket(), Clock()
    time = Time(clock)
    monkeypatch.setattr(lease_module, "time", time)
    leased(bucket, clock, "dead")
    clock.now += 3000 - left
    heir = Lease(bucket, "s3://lake/_leases/orders.json", "heir", ttl=3000, clock=clock)
    if wait < left:
        with pytest.raises(LeaseLost, match="held by dead"):
            heir.acquire(wait, time)
    else:
        heir.acquire(wait, time)
        heir.release()
    assert time.slept == [0.5] * slept


def test_a_writer_that_is_told_to_stop_waits_for_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    bucket, clock = Bucket(), Clock()
    time = Time(clock, rounds=3)
    monkeypatch.setattr(lease_module, "time", time)
    holder = leased(bucket, clock, "holder")
    with pytest.raises(LeaseLost, match="held by holder"):
        Lease(bucket, "s3://lake/_leases/orders.json", "heir", ttl=3000, clock=clock).acquire(3000, time)
    assert len(time.slept) == 3
    holder.check()


@pytest.mark.parametrize(("seconds", "holds"), [(1500, True), (1501, False), (3001, False)])
def test_a_renewal_that_took_longer_than_half_of_the_lease_has_not_renewed_it(
    monkeypatch: pytest.MonkeyPatch, seconds: float, holds: bool
) -> None:
    bucket, clock = Bucket(), Clock()
    lease = leased(bucket, clock, "writer")
    put = bucket.put_object

    def stalled(**request: Any) -> dict[str, Any]:
        answer = put(**request)
        clock.now += seconds
        return answer

    monkeypatch.setattr(bucket, "put_object", stalled)
    clock.now += 1501
    other = Lease(bucket, "s3://lake/_leases/other.json", "other", ttl=3000, clock=clock)
    if holds:
        lease.check()
    else:
        with pytest.raises(LeaseLost, match="renewing it took more than half of its 3000 s"):
            lease.check()
        bucket.stored = None
        with pytest.raises(LeaseLost, match="held by other, which took too long to acquire it"):
            other.acquire(0, GO_ON)
        # The next one is quick.
        monkeypatch.setattr(bucket, "put_object", put)
        other.acquire(0, GO_ON)
        other.check()
        other.release()
    lease.release()


class Rounds(threading.Event):
    """The event that stops the renewals after so many rounds, which take no time."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self.waited: list[float | None] = []
        self._rounds = rounds

    def wait(self, timeout: float | None = None) -> bool:
        self.waited.append(timeout)
        return len(self.waited) > self._rounds


def test_a_lease_is_renewed_at_half_of_its_life_or_soon_after_an_error_until_it_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bucket, clock = Bucket(), Clock()
    lease = leased(bucket, clock, "writer")
    monkeypatch.setattr(lease, "_stop", rounds := Rounds(3))
    lease._renew_until_stopped()
    assert (rounds.waited, bucket.puts) == ([1500.0] * 4, 1 + 3)
    bucket.cut = 1  # an error that may pass ends nothing
    monkeypatch.setattr(lease, "_stop", rounds := Rounds(2))
    lease._renew_until_stopped()
    assert rounds.waited == [1500.0, 300.0, 1500.0]
    lease.check()
    bucket.stored = (HOLDER, "new")
    monkeypatch.setattr(lease, "_stop", rounds := Rounds(5))
    lease._renew_until_stopped()
    assert len(rounds.waited) == 1
    assert bucket.stored == (HOLDER, "new")


def test_a_lease_that_is_held_is_renewed_in_the_background_until_it_is_given_back() -> None:
    bucket = Bucket()
    renewed = threading.Event()
    put = bucket.put_object

    def counted(**request: Any) -> dict[str, Any]:
        if bucket.puts >= 2:
            renewed.set()
        return put(**request)

    bucket.put_object = counted  # type: ignore[method-assign]
    # It is renewed after half of its life. Its clock stands still, so that it does not run out on a slow machine.
    lease = Lease(bucket, "s3://lake/_leases/background.json", "writer", ttl=0.2, clock=lambda: 0.0)
    lease.acquire(0, GO_ON)
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "lease _leases/background.json"]
    assert thread.daemon, "a writer that fails must end"
    assert renewed.wait(PATIENCE_SECONDS)
    lease.release()
    assert not thread.is_alive()


def test_a_jobs_leases_are_one_object_per_table_held_until_they_are_given_back(s3: Any) -> None:
    folder = f"s3://{BUCKET}/leases-{uuid.uuid4().hex}"
    began, leases = time.time(), Leases(s3, folder, "job", 60.0, GO_ON)
    held = {table: leases.take(table) for table in ("orders", "products")}
    stored = s3.get_object(Bucket=BUCKET, Key=f"{folder.rpartition('/')[2]}/orders.json")["Body"].read()
    assert began + 59.9 < json.loads(stored)["expires"] < time.time() + 60.1
    assert leases.take("orders") is held["orders"]
    for table in held:
        with pytest.raises(LeaseLost, match=rf"{table}\.json: held by job\."):
            Lease(s3, f"{folder}/{table}.json", "another", ttl=2.0).acquire(0, GO_ON)
    leases.release()
    for table in held:
        heir = Lease(s3, f"{folder}/{table}.json", "another", ttl=2.0)
        heir.acquire(0, GO_ON)
        heir.release()


def test_a_job_waits_a_little_longer_than_a_lifetime_for_a_lease_and_takes_a_lost_one_again(
    s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    acquire = Lease.acquire

    def acquired(lease: Lease, wait: float, stop: threading.Event) -> None:
        waited.append(wait)
        acquire(lease, wait, stop)

    monkeypatch.setattr(Lease, "acquire", acquired)
    folder = f"s3://{BUCKET}/leases-{uuid.uuid4().hex}"
    leases = Leases(s3, folder, "job", 30.0, GO_ON)
    first = leases.take("orders")
    s3.put_object(Bucket=BUCKET, Key=f"{folder.rpartition('/')[2]}/orders.json", Body=HOLDER)
    first._expires = 0.0
    second = leases.take("orders")
    assert second is not first
    second.check()
    leases.release()
    assert waited == [33.0, 33.0]
