"""The object store keeps what it acknowledged over a crash, and decides between writers as S3 does."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import boto3
import psutil
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from headwater.local import aws
from headwater.local.aws import REGION
from headwater.local.object_store import ObjectStore
from headwater.local.processes import wait_until
from tests.listening import listening_programs

BUCKET = "headwater-objects"
KEY = aws.make_credentials()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with ObjectStore(tmp_path_factory.mktemp("store"), aws.environment(KEY)) as part:
        aws.client("s3", part.endpoint, KEY).create_bucket(
            Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION}
        )
        yield part


def answer(s3: Any, key: str, **conditions: str) -> int:
    """The HTTP status of a put."""
    try:
        put = s3.put_object(Bucket=BUCKET, Key=key, Body=b"new", **conditions)
    except ClientError as error:
        return int(error.response["ResponseMetadata"]["HTTPStatusCode"])
    return int(put["ResponseMetadata"]["HTTPStatusCode"])


def serves(s3: Any, key: str) -> bool:
    """Whether an object can be read; a store that has just come back may answer 500."""
    try:
        s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] != 500:
            raise
        return False
    return True


def test_one_of_many_writers_puts_an_absent_key(store: ObjectStore) -> None:
    s3 = aws.client("s3", store.endpoint, KEY)
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: answer(s3, "lease", IfNoneMatch="*"), range(64)))
    assert sorted(answers) == [200] + [412] * 63


def test_a_write_on_condition_of_what_is_there_needs_that(store: ObjectStore) -> None:
    s3 = aws.client("s3", store.endpoint, KEY)
    etag = s3.put_object(Bucket=BUCKET, Key="state", Body=b"old")["ETag"]
    assert answer(s3, "state", IfMatch='"00000000000000000000000000000000"') == 412
    assert answer(s3, "state", IfMatch=etag) == 200
    assert answer(s3, "state", IfMatch=etag) == 412


def test_other_credentials_are_refused(store: ObjectStore) -> None:
    stranger = boto3.client(
        "s3",
        endpoint_url=store.endpoint,
        region_name=REGION,
        aws_access_key_id="headwaterlocal",
        aws_secret_access_key="wrong",
        config=Config(s3={"addressing_style": "path"}),
    )
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        stranger.list_objects_v2(Bucket=BUCKET)


def test_it_listens_on_the_loopback_only(store: ObjectStore) -> None:
    def ports() -> int:
        return sum(str(store.folder) in command for command in listening_programs()[0])

    # Its admin server, which nothing here asks, opens its two after the store answers.
    wait_until("every server of the store to listen", lambda: ports() == 11)
    _, reachable = listening_programs()
    assert reachable == []


def test_it_counts_what_is_asked_of_it_by_what_s3_is_paid_for(store: ObjectStore) -> None:
    s3 = aws.client("s3", store.endpoint, KEY)
    before = store.requests()
    for number in range(3):
        s3.put_object(Bucket=BUCKET, Key=f"counted/{number}", Body=b"x")
    s3.get_object(Bucket=BUCKET, Key="counted/0")
    s3.head_object(Bucket=BUCKET, Key="counted/1")
    s3.list_objects_v2(Bucket=BUCKET, Prefix="counted/")
    s3.delete_object(Bucket=BUCKET, Key="counted/0")
    assert store.requests() - before == {"PUT": 3, "GET": 2, "LIST": 1, "DELETE": 1}


def test_objects_outlive_a_crash_at_the_same_address(store: ObjectStore) -> None:
    s3 = aws.client("s3", store.endpoint, KEY)
    bodies = {f"kept/{number}": bytes([number]) * 10_000 for number in range(50)}
    for key, body in bodies.items():
        s3.put_object(Bucket=BUCKET, Key=key, Body=body)
    endpoint, pid = store.endpoint, store.pid
    store.kill()
    assert not psutil.pid_exists(pid)
    store.start()
    assert (store.endpoint, store.pid != pid) == (endpoint, True)
    listed = s3.list_objects_v2(Bucket=BUCKET, Prefix="kept/")["Contents"]
    assert {entry["Key"] for entry in listed} == set(bodies)
    for key, body in bodies.items():
        wait_until(f"the store to serve {key}", partial(serves, s3, key))
        assert s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == body


def test_how_many_buckets_there_may_be_does_not_depend_on_the_disk(store: ObjectStore) -> None:
    (allowed,) = re.findall(r"Topology .* hdd\(volume:\d+/(\d+) ", store.administer("volume.list"))
    assert int(allowed) > 10_000
