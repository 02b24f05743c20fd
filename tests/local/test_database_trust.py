"""The source connector reads the database whose certificate it trusts, under the name that the certificate has, and no
other. Connector, worker and PostgreSQL's driver are those of AWS."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from headwater.contract.reading import read_contracts
from headwater.definitions import connectors
from headwater.definitions.connectors import CaptureSettings
from headwater.deployment import rds_authority
from headwater.errors import UserError
from headwater.local.certificates import Authority
from headwater.local.connect import ConnectWorker
from headwater.local.pipeline import DATABASE, Pipeline
from headwater.local.processes import wait_until
from headwater.paths import CONTRACTS


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """A database and a Connect worker without connectors."""
    with Pipeline(tmp_path_factory.mktemp("trust"), read_contracts(CONTRACTS)) as pipeline:
        pipeline.start_source()
        pipeline.start_stream()
        pipeline.connect = ConnectWorker(
            pipeline.folder / "connect",
            pipeline.broker.bootstrap,
            connectors.worker_properties(pipeline.settings),
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


def test_a_client_without_tls_is_turned_away(pipeline: Pipeline) -> None:
    with pytest.raises(psycopg.OperationalError, match="closed the connection"):
        connect_as_commands_do(pipeline, sslmode="disable")


def test_the_commands_verify_the_certificate_where_libpqs_variables_say_so(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "rds.pem"
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    monkeypatch.setenv("PGSSLROOTCERT", str(bundle))
    bundle.write_text(pipeline.front.root)
    connect_as_commands_do(pipeline).close()
    bundle.write_text(rds_authority.root("eu-central-1"))
    with pytest.raises(psycopg.OperationalError, match="certificate verify failed"):
        connect_as_commands_do(pipeline)


def connect_as_commands_do(pipeline: Pipeline, sslmode: str | None = None) -> psycopg.Connection:
    return psycopg.connect(
        host=pipeline.front.host,
        port=pipeline.front.port,
        dbname=DATABASE,
        user=pipeline.postgres.superuser,
        password=pipeline.postgres.password,
        connect_timeout=10,
        sslmode=sslmode,
    )
