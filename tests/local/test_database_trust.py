"""The source connector reads the database whose certificate it trusts, under the name that the certificate has, and no
other. Connector, worker and PostgreSQL's driver are the same as on AWS."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from headwater.commands import db, sources
from headwater.contract.reading import read_contracts
from headwater.definitions import connectors
from headwater.definitions.connectors import CaptureSettings
from headwater.definitions.source_database import CDC_ROLE
from headwater.environment import rds_authority
from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE
from headwater.waiting import wait_until
from rig.local import aws
from rig.local.certificates import Authority
from rig.local.connect import ConnectWorker
from rig.local.own_database import OwnDatabase
from rig.local.pipeline import DATABASE, Pipeline


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """A database and a Connect worker without connectors."""
    with Pipeline(tmp_path_factory.mktemp("trust"), read_contracts(EXAMPLE.contracts)) as pipeline:
        pipeline.start_source()
        pipeline.start_stream()
        pipeline.connect = ConnectWorker(
            pipeline.folder / "connect",
            pipeline.broker.access,
            connectors.worker_properties(pipeline.settings),
            environment=aws.environment(pipeline.aws.credentials),
        )
        pipeline.enter_context(pipeline.connect)
        yield pipeline


def put_source(pipeline: Pipeline, settings: CaptureSettings) -> None:
    pipeline.connect.put(*connectors.source_connector(pipeline.contracts, settings))


@pytest.mark.parametrize(
    ("root", "reason"),
    [
        (rds_authority.root("eu-central-1"), "unable to find valid certification path"),
        # Of the same name, with another key.
        (Authority.make().root, "PKIX path validation failed: .*signature check failed"),
    ],
    ids=["another authority", "another of its name"],
)
def test_a_database_with_another_authoritys_certificate_is_refused(pipeline: Pipeline, root: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        put_source(pipeline, replace(pipeline.settings, database_tls=connectors.verified_by(root)))


def test_a_database_under_another_name_than_its_certificate_has_is_refused(pipeline: Pipeline) -> None:
    with pytest.raises(UserError, match="hostname localhost could not be verified"):
        put_source(pipeline, replace(pipeline.settings, database_host="localhost"))


def test_capture_runs_over_tls_with_the_right_certificate_and_name(pipeline: Pipeline) -> None:
    put_source(pipeline, pipeline.settings)
    pipeline.connect.await_running(connectors.source_name(pipeline.settings))
    with pipeline.postgres.connect(DATABASE) as owner:
        owner.execute("INSERT INTO northwind.customers (customer_id, company_name) VALUES ('TRUST', 'Trusted')")
    customers = f"{pipeline.settings.topic_prefix}.northwind.customers"
    wait_until("the change to reach its topic", lambda: pipeline.broker.ends([customers])[customers, 0] > 0)


def test_a_client_without_tls_is_turned_away(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSSLMODE", "disable")
    with pytest.raises(UserError, match=r"(?s)closed the connection.* PGSSLMODE says whether TLS is used"):
        connect_as_commands_do(pipeline, monkeypatch)


CONNECTING: dict[str, Callable[[str, int, str], psycopg.Connection]] = {
    "db": lambda host, port, user: db.connect(host, port, user, DATABASE),
    "contract, verify, resync, backfill, forget": lambda host, port, user: sources.connector(
        "", host, port, DATABASE, user
    )(),
    "--database-url": lambda host, port, user: sources.connector(
        f"postgresql://{user}@{host}:{port}/{DATABASE}", "", 0, "", ""
    )(),
}


@pytest.mark.parametrize("how", CONNECTING)
def test_the_commands_verify_the_certificate_where_libpqs_variables_say_so(
    pipeline: Pipeline, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "rds.pem"
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    monkeypatch.setenv("PGSSLROOTCERT", str(bundle))
    bundle.write_text(pipeline.front.root)
    connect_as_commands_do(pipeline, monkeypatch, how).close()
    bundle.write_text(rds_authority.root("eu-central-1"))
    with pytest.raises(UserError, match=r"certificate verify failed.* PGSSLROOTCERT names the file"):
        connect_as_commands_do(pipeline, monkeypatch, how)


def test_a_connection_string_says_whom_to_trust(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_DB_PASSWORD", pipeline.postgres.password)
    (tmp_path / "right.pem").write_text(pipeline.front.root)
    (tmp_path / "other.pem").write_text(rds_authority.root("eu-central-1"))
    at = f"postgresql://{pipeline.postgres.superuser}@{pipeline.front.host}:{pipeline.front.port}/{DATABASE}"
    url = f"{at}?sslmode=verify-full&sslrootcert={tmp_path}"
    sources.connector(f"{url}/right.pem", "", 0, "", "")().close()
    with pytest.raises(UserError, match="certificate verify failed"):
        sources.connector(f"{url}/other.pem", "", 0, "", "")()


def connect_as_commands_do(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, how: str = "db") -> psycopg.Connection:
    monkeypatch.setenv("HEADWATER_DB_PASSWORD", pipeline.postgres.password)
    return CONNECTING[how](pipeline.front.host, pipeline.front.port, pipeline.postgres.superuser)


PLAIN, TLS, MISNAMED = "without TLS", "TLS alone", "TLS alone, under another name"


@pytest.mark.parametrize(
    ("mode", "root", "reached"),
    [
        ("disable", None, {PLAIN}),
        (None, None, {PLAIN, TLS, MISNAMED}),
        ("prefer", None, {PLAIN, TLS, MISNAMED}),
        ("require", None, {TLS, MISNAMED}),
        ("require", "right", {TLS, MISNAMED}),
        ("require", "other", set()),
        ("require", "right at home", {TLS, MISNAMED}),
        ("require", "other at home", set()),
        ("verify-ca", "right", {TLS, MISNAMED}),
        ("verify-ca", "other", set()),
        ("verify-full", None, set()),
        ("verify-full", "right", {TLS}),
        ("verify-full", "other", set()),
        ("verify-full", "right at home", {TLS}),
    ],
)
def test_the_connector_of_ones_own_database_reaches_the_servers_that_libpq_reaches(
    pipeline: Pipeline,
    mode: str | None,
    root: str | None,
    reached: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable in [name for name in os.environ if name.startswith("PG")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(tmp_path))
    if mode is not None:
        monkeypatch.setenv("PGSSLMODE", mode)
    if root is not None:
        # Where libpq looks where it is told nothing.
        bundle = tmp_path / ".postgresql" / "root.crt"
        if "at home" not in root:
            bundle = tmp_path / "bundle.pem"
            monkeypatch.setenv("PGSSLROOTCERT", str(bundle))
        bundle.parent.mkdir(exist_ok=True)
        # More than one authority, as RDS's bundle has.
        right = pipeline.front.root if root.startswith("right") else ""
        bundle.write_text(rds_authority.root("eu-central-1") + right)
    servers = {
        PLAIN: (pipeline.postgres.host, pipeline.postgres.port),
        TLS: (pipeline.front.host, pipeline.front.port),
        MISNAMED: ("localhost", pipeline.front.port),
    }
    password = pipeline.passwords[CDC_ROLE]
    databases = {name: OwnDatabase(host, port, DATABASE, password, tmp_path) for name, (host, port) in servers.items()}
    assert {name for name, database in databases.items() if libpq_connects(database)} == reached
    assert {name for name, database in databases.items() if connector_connects(pipeline, database)} == reached


def libpq_connects(database: OwnDatabase) -> bool:
    try:
        database.connect().close()
    except UserError:
        return False
    return True


def connector_connects(pipeline: Pipeline, database: OwnDatabase) -> bool:
    """Whether Debezium reaches the database, which it tries before a connector is made."""
    server = database.server()
    _, config = connectors.source_connector(
        pipeline.contracts,
        replace(pipeline.settings, database_host=server.host, database_port=str(server.port), database_tls=server.tls),
    )
    kind = config["connector.class"]
    path = f"/connector-plugins/{kind}/config/validate"
    answer = pipeline.connect.request("PUT", path, {**config, "name": "own"}, timeout=60)
    answer.raise_for_status()
    errors = [error for option in answer.json()["configs"] for error in option["value"]["errors"]]
    assert all(error.startswith("Error while validating connector config") for error in errors), errors
    return not errors
