"""The local parts start, keep what they must over a crash, and are reached at the same address after it."""

import socket
import threading
from pathlib import Path

import psycopg
import pytest
import requests
from botocore.exceptions import ClientError
from kafka import KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from headwater.errors import UserError
from rig.local import aws
from rig.local.aws import AwsApi
from rig.local.connect import ConnectWorker
from rig.local.dynamodb_local import DynamoDbLocal
from rig.local.kafka import Broker
from rig.local.postgresql_server import PostgresqlServer

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


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PGSSLMODE", "verify-full"),
        ("PGSSLROOTCERT", "/nowhere.pem"),
        ("PGHOST", "db.example.com"),
        ("PGHOSTADDR", "127.0.0.2"),
        ("PGPORT", "1"),
        ("PGOPTIONS", "-c search_path=elsewhere"),
        ("PGSERVICE", "rental"),
    ],
)
def test_what_libpq_is_told_of_another_server_leaves_ours(
    postgres: PostgresqlServer, variable: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "services").write_text(
        "[rental]\nhost=db.example.com\nhostaddr=127.0.0.2\nport=1\nsslmode=verify-full\n"
        "options=-c search_path=elsewhere\n"
    )
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    monkeypatch.setenv(variable, value)
    with postgres.connect() as connection:
        assert connection.execute("SHOW search_path").fetchone() == ('"$user", public',)


def test_a_broker_and_its_worker_survive_a_crash_of_each(broker: Broker, tmp_path: Path) -> None:
    broker.create_topics({"crash": 2})
    broker.create_topics({"crash": 2})
    with ConnectWorker(tmp_path, broker.access, WORKER) as worker:
        plugins = {plugin["class"] for plugin in worker.request("GET", "/connector-plugins").json()}
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
        assert worker.request("GET", "/connectors").json() == []
    assert broker.ends(["crash"]) == {("crash", 0): 0, ("crash", 1): 0}


def test_a_groups_lag_is_what_it_has_not_read_of_a_topic_that_is_there(broker: Broker) -> None:
    broker.create_topics({"lag": 2, "gone": 1})
    with KafkaProducer(**broker.access.for_python()) as producer:
        for partition in (0, 0, 0, 1):
            producer.send("lag", b"value", partition=partition)
        producer.flush()
    read = {TopicPartition("lag", 0): 1, TopicPartition("lag", 1): 0, TopicPartition("gone", 0): 0}
    with KafkaAdminClient(**broker.access.for_python()) as admin:
        offsets = {at: OffsetAndMetadata(offset, "", -1) for at, offset in read.items()}
        # The first group makes the topic that keeps their offsets.
        for attempt in Retrying(
            retry=retry_if_exception_type(KafkaError), stop=stop_after_delay(30), wait=wait_fixed(0.2)
        ):
            with attempt:
                admin.alter_group_offsets("readers", offsets)
    assert {key: lag for key, lag in broker.lags().items() if key[0] == "readers"} == {
        ("readers", "lag"): 3,
        ("readers", "gone"): 0,
    }
    broker.delete_topic("gone")
    assert broker.lags()["readers", "lag"] == 3
    assert "gone" not in broker.topics()


def refusals(endpoint: str) -> set[tuple[int, bool]]:
    """How requests without a signature are answered: the statuses, and whether a page in a browser may read any."""
    pages: list[dict[str, str]] = [{}, {"Origin": "http://evil.example"}, {"Host": "evil.example"}]
    answers = [
        requests.request(method, f"{endpoint}{path}", headers=headers, data=body, timeout=30)
        for headers in pages
        for method, path, body in (
            ("GET", "/", b""),
            ("OPTIONS", "/", b""),
            ("POST", "/", b"Action=GetCallerIdentity&Version=2011-06-15"),
            ("GET", "/moto-api/data.json", b""),
            ("POST", "/moto-api/reset", b""),
            ("POST", "/", b"x" * (17 << 20)),
        )
    ]
    return {
        (answer.status_code, any(name.lower().startswith("access-control") for name in answer.headers))
        for answer in answers
    }


def test_the_aws_api_answers_its_own_credentials_only(aws_api: AwsApi, tmp_path: Path) -> None:
    assert refusals(aws_api.endpoint) == {(403, False)}
    assert aws_api.client("sts").get_caller_identity()["Account"] == "123456789012"
    stranger = aws.client("secretsmanager", aws_api.endpoint, {**aws_api.credentials, "AWS_SECRET_ACCESS_KEY": "x"})
    with pytest.raises(ClientError, match="InvalidSignatureException"):
        stranger.list_secrets()
    aws.write_variables(tmp_path / "variables", aws_api.environment())
    assert (tmp_path / "variables").stat().st_mode & 0o777 == 0o600
    assert aws_api.credentials["AWS_SECRET_ACCESS_KEY"] != aws.make_credentials()["AWS_SECRET_ACCESS_KEY"]


def test_dynamodb_answers_its_own_credentials_only(aws_api: AwsApi, tmp_path: Path) -> None:
    with DynamoDbLocal(tmp_path, aws_api.credentials) as server:
        assert refusals(server.endpoint) == {(403, False)}
        client = server.client("dynamodb")
        taken = client.list_tables()["ResponseMetadata"]["HTTPHeaders"]
        assert [name for name in taken if name.startswith("access-control")] == []
        for other in ({"AWS_SECRET_ACCESS_KEY": "x"}, {"AWS_ACCESS_KEY_ID": "another"}):
            stranger = aws.client("dynamodb", server.endpoint, {**aws_api.credentials, **other})
            with pytest.raises(ClientError, match="UnrecognizedClientException"):
                stranger.list_tables()
        # One that goes on after it has been signed.
        client.meta.events.register("before-send", lambda request, **_: request.headers.update({"X-Amz-More": "x"}))
        with pytest.raises(ClientError, match="SignedHeaders"):
            client.list_tables()


def test_no_proxy_of_the_user_gets_what_is_for_the_parts(aws_api: AwsApi, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        proxy = f"http://127.0.0.1:{closed.getsockname()[1]}"
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, proxy)
    assert proxy not in aws_api.environment().values()
    assert aws_api.client("sts").get_caller_identity()["Account"] == "123456789012"
    assert aws_api.client("s3").list_buckets()["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert aws_api.store.requests() is not None


def test_whoever_has_postgresqls_port_is_not_told_its_password(tmp_path: Path) -> None:
    said: list[bytes] = []

    def impostor(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(1000)
            # AuthenticationCleartextPassword
            connection.sendall(b"R" + (8).to_bytes(4, "big") + (3).to_bytes(4, "big"))
            said.append(connection.recv(1000))

    server = PostgresqlServer(tmp_path)
    (tmp_path / "password").write_text("the password")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server.port = listening.getsockname()[1]
        thread = threading.Thread(target=impostor, args=[listening])
        thread.start()
        with pytest.raises(psycopg.OperationalError, match="authentication method"):
            server.connect()
        thread.join()
    assert said == [b""]


def test_the_aws_api_answers_again_at_the_same_address(aws_api: AwsApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "the developer's own")
    environment = aws_api.environment()
    aws_api.kill()
    aws_api.start()
    assert aws_api.environment() == environment
    assert aws_api.client("glue").get_databases()["DatabaseList"] == []
