from __future__ import annotations

import uuid
from typing import Any

import pytest

from headwater.lake.lease import Lease, LeaseLost
from headwater.local.aws import AwsApi
from tests.lake.pipeline import BUCKET


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def s3(endpoint: str, aws_api: AwsApi) -> Any:
    return aws_api.client("s3")


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
