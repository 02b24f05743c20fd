"""The local parts start, keep what they must over a crash, and are reached at the same address after it."""

from pathlib import Path

import boto3
import pytest
import requests

from headwater.errors import UserError
from headwater.local.aws import REGION, AwsApi
from headwater.local.connect import ConnectWorker
from headwater.local.kafka import Broker
from headwater.local.postgresql_server import PostgresqlServer
from headwater.local.processes import ProcessError

WORKER = {
    "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
    "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
    "offset.storage.topic": "test-offsets",
}


def test_postgres_keeps_commits_over_a_crash_at_the_same_port(postgres: PostgresqlServer) -> None:
    with postgres.connect() as connection:
        connection.execute("create table crash (id int)")
        connection.execute("insert into crash values (1)")
        port, pid = postgres.port, postgres.pid
        postgres.kill()
    postgres.start()
    assert (postgres.port, postgres.pid != pid) == (port, True)
    with postgres.connect() as connection:
        assert connection.execute("select id from crash").fetchall() == [(1,)]
        assert connection.execute("show wal_level").fetchone() == ("logical",)
        connection.execute("drop table crash")


def test_a_broker_and_its_worker_survive_a_crash_of_each(broker: Broker, tmp_path: Path) -> None:
    broker.create_topics({"crash": 2})
    broker.create_topics({"crash": 2})
    with ConnectWorker(tmp_path, broker.bootstrap, WORKER) as worker:
        plugins = {plugin["class"] for plugin in requests.get(f"{worker.url}/connector-plugins", timeout=10).json()}
        assert "io.headwater.connect.postgresql.HeadwaterPostgresConnector" in plugins
        assert "io.headwater.connect.s3.S3SinkConnector" in plugins
        with pytest.raises(UserError, match=r"refused PUT /connectors/wrong/config with .*NoSuchConnector"):
            worker.put("wrong", {"connector.class": "NoSuchConnector"})

        url, bootstrap = worker.url, broker.bootstrap
        worker.kill()
        broker.kill()
        broker.start()
        worker.start()
        assert (worker.url, broker.bootstrap) == (url, bootstrap)
        assert requests.get(f"{worker.url}/connectors", timeout=10).json() == []
    assert broker.ends(["crash"]) == {("crash", 0): 0, ("crash", 1): 0}


def test_the_aws_api_answers_again_at_the_same_address(aws_api: AwsApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "the developer's own")
    endpoints = aws_api.endpoints()
    aws_api.kill()
    aws_api.start()
    assert aws_api.endpoints() == endpoints
    assert aws_api.client("glue").get_databases()["DatabaseList"] == []


def test_the_object_store_keeps_objects_over_a_crash(aws_api: AwsApi) -> None:
    s3, bucket, endpoint = aws_api.client("s3"), "parts-of-a-test", aws_api.s3_endpoint
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    s3.put_object(Bucket=bucket, Key="a", Body=b"kept", IfNoneMatch="*")
    aws_api.store.kill()
    with pytest.raises(ProcessError):
        aws_api.check()
    aws_api.store.start()
    assert aws_api.s3_endpoint == endpoint
    assert s3.get_object(Bucket=bucket, Key="a")["Body"].read() == b"kept"
    with pytest.raises(s3.exceptions.ClientError, match="PreconditionFailed"):
        s3.put_object(Bucket=bucket, Key="a", Body=b"", IfNoneMatch="*")
    with pytest.raises(s3.exceptions.NoSuchBucket):
        s3.put_object(Bucket="parts-of-none", Key="a", Body=b"")
    stranger = boto3.client(
        "s3", endpoint_url=endpoint, region_name=REGION, aws_access_key_id="no", aws_secret_access_key="body"
    )
    with pytest.raises(s3.exceptions.ClientError, match="InvalidAccessKeyId"):
        stranger.get_object(Bucket=bucket, Key="a")
