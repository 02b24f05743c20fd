"""A table's lease: over moto's S3, and over a bucket whose answers are lost."""

from __future__ import annotations

import io
import uuid
from typing import Any

import pytest

from headwater.lake.lease import Lease, LeaseLost
from tests.unit.conftest import BUCKET


class Refused(Exception):
    """An error of the S3 API."""

    def __init__(self, status: int) -> None:
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}}


class NoSuchKey(Refused):
    """There is no such object."""


class Bucket:
    """One object with S3's conditions. ``lost`` answers get lost: the request is done and sent again, as boto3 does;
    ``cut`` ones are done and raise, as where the connection is cut and nothing is sent again."""

    class exceptions:  # noqa: N801 - boto3's name
        ClientError = Refused
        NoSuchKey = NoSuchKey

    def __init__(self) -> None:
        self.stored: tuple[bytes, str] | None = None
        self.lost = self.cut = 0
        self._version = 0

    def put_object(self, **request: Any) -> dict[str, Any]:
        present = None if self.stored is None else self.stored[1]
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
    lease.acquire(wait=0)
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
    first.acquire(wait=0)
    with pytest.raises(LeaseLost, match="held by first"):
        Lease(s3, uri, "second").acquire(wait=0)
    first.release()
    second = Lease(s3, uri, "second")
    second.acquire(wait=0)
    second.release()


def test_a_dead_writers_lease_runs_out_and_its_return_is_noticed(s3: Any, uri: str) -> None:
    clock = Clock()
    dead = Lease(s3, uri, "dead", ttl=3000, clock=clock)
    dead.acquire(wait=0)
    clock.now += 3001
    heir = Lease(s3, uri, "heir", ttl=3000, clock=clock)
    heir.acquire(wait=0)
    with pytest.raises(LeaseLost, match="another writer took the table"):
        dead.check()
    heir.check()
    dead.release()
    heir.release()


def test_a_lease_is_renewed_before_a_commit_when_half_of_it_is_gone(s3: Any, uri: str) -> None:
    clock = Clock()
    lease = Lease(s3, uri, "writer", ttl=3000, clock=clock)
    lease.acquire(wait=0)
    clock.now += 2000
    lease.check()
    clock.now += 2000
    with pytest.raises(LeaseLost, match="held by writer"):
        Lease(s3, uri, "other", ttl=3000, clock=clock).acquire(wait=0)
    lease.release()
