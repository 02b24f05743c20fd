"""The database's custom resources on a real PostgreSQL: they make what ``headwater db create`` makes, and complete from
wherever they were interrupted."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from custom_resources import database_bootstrap
from custom_resources.data_api import Database
from custom_resources.lifecycle import Event, Outcome, ResourceFailed
from headwater.contract.model import Contract
from headwater.contract.reading import parse_contract, read_contracts
from headwater.definitions import database_files, open_transactions, source_database
from headwater.definitions.connectors import PUBLICATION, SLOT
from headwater.definitions.database_files import read_database_files
from headwater.lake_folder import EXAMPLE
from headwater.postgresql import administration
from headwater.waiting import wait_until
from rig.local.postgresql_server import PostgresqlServer
from rig.local.processes import Process, Program
from tests.data_api import CLUSTER, OWNER_SECRET, data_api
from tests.modelled import Modelled, refusal

DATABASE = "northwind"
OWNER = "headwater_owner"
PASSWORDS = {role: f"password-of-{role}" for role in source_database.ROLES}
BEGAN = 1_000_000.0
FILES = read_database_files(EXAMPLE.database)
ALL_CONTRACTS = read_contracts(EXAMPLE.contracts)
# As on RDS: the owner may create roles but is no superuser, and replication is a role that can be granted.
AS_ON_RDS = f"""
CREATE ROLE {OWNER} LOGIN CREATEROLE PASSWORD 'owner';
CREATE ROLE rds_replication;
GRANT rds_replication TO {OWNER} WITH ADMIN OPTION;
"""
ORDERS = """
INSERT INTO northwind.orders (order_id, order_date) VALUES (1, '2024-01-05'), (5000, NULL), (5001, '2024-02-01'),
    (5002, NULL), (12000, '2024-03-01');
"""


class KilledError(BaseException):
    """The function was killed between two statements."""


class Server:
    """A PostgreSQL like RDS's, with a database that is empty at first."""

    def __init__(self, postgres: PostgresqlServer) -> None:
        self.postgres = postgres

    def reset(self) -> None:
        with self.postgres.connect() as admin:
            admin.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)".encode())
            for role in (*source_database.ROLES, OWNER, "rds_replication"):
                admin.execute(f"DROP ROLE IF EXISTS {role}".encode())
            admin.execute(AS_ON_RDS.encode())
            admin.execute(f"CREATE DATABASE {DATABASE} OWNER {OWNER}".encode())

    def owner(self) -> psycopg.Connection:
        return self.postgres.connect(DATABASE, OWNER, "owner")

    def create(self, contracts: list[Contract]) -> None:
        with self.owner() as owner:
            administration.create(owner, PASSWORDS, contracts, FILES)

    def dump(self) -> str:
        """Everything in the database and the server's roles, without passwords, the time of the heartbeat, and the
        numbers of tables."""
        without = [
            f"--exclude-table-data=capture.{table}"
            for table in ("database_files", "former_identity", "heartbeat", "published")
        ]
        content = self._tool("pg_dump", "--dbname", DATABASE, *without)
        published = "SELECT name, name::regclass = relation FROM capture.published ORDER BY name"
        files = "SELECT name, statements_done, checksum, finished_at IS NULL FROM capture.database_files ORDER BY name"
        for query in (published, files):
            content += self._tool("psql", "--dbname", DATABASE, "--no-psqlrc", "--command", query)
        return content + self._tool("pg_dumpall", "--roles-only", "--no-role-passwords")

    def _tool(self, name: str, *arguments: str) -> str:
        done = subprocess.run(
            [str(binary(name)), "--host", self.postgres.host, "--port", str(self.postgres.port), *arguments],
            env={"PGUSER": self.postgres.superuser, "PGPASSWORD": self.postgres.password},
            capture_output=True,
            text=True,
            check=True,
        )
        # Without the comments, which have the time, and without the token that guards the file.
        return "\n".join(
            line
            for line in done.stdout.splitlines()
            if line and not line.startswith(("--", "\\restrict", "\\unrestrict"))
        )


def binary(name: str) -> Path:
    spec = importlib.util.find_spec("pgserver")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall" / "bin" / name


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with PostgresqlServer(tmp_path_factory.mktemp("bootstrap"), {"max_prepared_transactions": "1"}) as postgres:
        yield Server(postgres)


@pytest.fixture
def server(running: Server) -> Server:
    running.reset()
    return running


def content(kind: str = "Create") -> Event:
    secrets = {role: f"arn:{role}" for role in source_database.ROLES}
    return request(kind, "Database", {"Statements": "s3://assets/content.json", "RoleSecrets": secrets})


def publication(kind: str = "Create") -> Event:
    more = {"Statements": "s3://assets/publication.json", "Slot": SLOT, "Publication": PUBLICATION}
    return request(kind, "Publication", more)


def request(kind: str, resource: str, properties: dict[str, Any]) -> Event:
    return {
        "RequestType": kind,
        "ResourceType": f"Custom::Headwater{resource}",
        "PhysicalResourceId": "headwater-test",
        "ResourceProperties": {
            "ClusterArn": CLUSTER, "SecretArn": OWNER_SECRET, "Database": DATABASE, **properties,
        },
        "Data": {"Began": str(BEGAN)},
    }  # fmt: skip


def take(client: Modelled, event: Event, contracts: list[Contract], passwords: dict[str, str] = PASSWORDS) -> Outcome:
    """One step of a request."""
    documents: dict[str, dict[str, Any]] = {
        "s3://assets/content.json": {
            "statements": source_database.created_statements(),
            **database_files.document(FILES),
        },
        "s3://assets/publication.json": {
            "transactions": open_transactions.FIND,
            "tables": source_database.published_tables(contracts),
            "statements": source_database.publication_statements(contracts),
        },
    }

    def secret(arn: str) -> dict[str, Any]:
        role = arn.partition(":")[2]
        return {"username": role, "password": passwords[role]}

    step = {
        "Custom::HeadwaterDatabase": database_bootstrap.content_step,
        "Custom::HeadwaterPublication": database_bootstrap.publication_step,
    }[event["ResourceType"]]
    return step(event, Database(client, event["ResourceProperties"]), documents.__getitem__, secret, BEGAN + 200)


def bootstrap(server: Server, contracts: list[Contract], before: Callable[[str], None] | None = None) -> None:
    """Both resources, as a deployment makes them."""
    client = data_api(server.owner, before)
    for event in (content(), publication()):
        assert take(client, event, contracts)["IsComplete"]


def test_the_bootstrap_makes_what_db_create_makes(server: Server) -> None:
    server.create(ALL_CONTRACTS)
    created = server.dump()
    server.reset()
    bootstrap(server, ALL_CONTRACTS)
    assert server.dump() == created
    assert "CREATE PUBLICATION" in created
    assert f"GRANT rds_replication TO {source_database.CDC_ROLE}" in created


def test_a_source_that_does_not_fit_fails_the_publication_and_changes_nothing(server: Server) -> None:
    client = data_api(server.owner)
    assert take(client, content(), ALL_CONTRACTS)["IsComplete"]
    before = server.dump()
    (customers,) = (contract for contract in ALL_CONTRACTS if contract.table == "customers")
    columns = [
        replace(column, source_type="text" if column.name == "city" else column.source_type)
        for column in customers.columns
    ]
    others = [contract for contract in ALL_CONTRACTS if contract is not customers]
    message = r"northwind\.customers\.city: found the type character varying, expected text, .*; correct the contract"
    with pytest.raises(ResourceFailed, match=message):
        take(client, publication(), [*others, replace(customers, columns=tuple(columns))])
    assert server.dump() == before


def test_running_it_again_changes_nothing_and_writes_no_order(server: Server) -> None:
    bootstrap(server, ALL_CONTRACTS)
    with server.owner() as owner:
        owner.execute(ORDERS.encode())
        before = owner.execute("SELECT xmin::text, ctid::text FROM northwind.order_events ORDER BY 1, 2").fetchall()
    dumped = server.dump()
    bootstrap(server, ALL_CONTRACTS)
    assert server.dump() == dumped
    with server.owner() as owner:
        after = owner.execute("SELECT xmin::text, ctid::text FROM northwind.order_events ORDER BY 1, 2").fetchall()
    assert after == before
    assert len(after) == 5


def test_it_brings_a_database_of_db_create_up_to_date(server: Server) -> None:
    server.create(ALL_CONTRACTS[:1])
    bootstrap(server, ALL_CONTRACTS)
    updated = server.dump()
    server.reset()
    server.create(ALL_CONTRACTS)
    assert server.dump() == updated


# Where the bootstrap stops: before the statement that begins with this text.
STOPS = {
    "first": source_database.created_statements()[0],
    "middle": source_database.created_statements()[len(source_database.created_statements()) // 2],
    "file": FILES[2].statements[4].text,
    "last of a file": FILES[-1].statements[-1].text,
    "password": "DO $$ BEGIN EXECUTE format('ALTER ROLE %I",
    "publication": source_database.publication_statements(ALL_CONTRACTS)[-2],
}


@pytest.mark.parametrize("at", STOPS)
@pytest.mark.parametrize("killed", [True, False], ids=["killed", "timed out"])
def test_from_an_interrupted_state_it_completes(server: Server, at: str, killed: bool) -> None:
    bootstrap(server, ALL_CONTRACTS)
    with server.owner() as owner:
        owner.execute(ORDERS.encode())
    complete = server.dump()
    server.reset()
    stopped: list[str] = []

    def before(sql: str) -> None:
        if STOPS[at] in sql:
            stopped.append(sql)
            raise KilledError if killed else refusal("StatementTimeoutException", "45 seconds", "ExecuteStatement")

    client = data_api(server.owner, before)
    with contextlib.suppress(KilledError, ResourceFailed):
        assert not all(take(client, event, ALL_CONTRACTS)["IsComplete"] for event in (content(), publication()))
    assert len(stopped) == 1
    bootstrap(server, ALL_CONTRACTS)
    with server.owner() as owner:
        owner.execute(ORDERS.encode())
    assert server.dump() == complete


def test_a_transaction_that_nobody_ended_holds_it_up_but_does_not_fail_it(server: Server) -> None:
    def impatient() -> psycopg.Connection:
        connection = server.owner()
        connection.execute("SET lock_timeout = '200ms'")
        return connection

    left = data_api(server.owner)
    cluster = {"resourceArn": CLUSTER, "secretArn": OWNER_SECRET}
    transaction = left.begin_transaction(**cluster, database=DATABASE)["transactionId"]
    for statement in source_database.created_statements()[:5]:
        left.execute_statement(**cluster, database=DATABASE, sql=statement, transactionId=transaction)
    client = data_api(impatient)
    assert take(client, content(), ALL_CONTRACTS) == {"IsComplete": False}
    left.rollback_transaction(**cluster, transactionId=transaction)
    assert take(client, content(), ALL_CONTRACTS)["IsComplete"]


def test_transactions_that_the_slot_waits_for_are_named(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = data_api(server.owner)
    assert take(client, content(), ALL_CONTRACTS)["IsComplete"]
    begun = {**publication(), "Data": {"Began": str(BEGAN + 200)}}
    with server.postgres.connect("postgres") as other:
        other.execute("BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'left'")
        try:
            assert take(client, begun, ALL_CONTRACTS) == {"IsComplete": False}
            assert (
                "waiting for the end of the prepared transaction 'left' of the database pos" in capsys.readouterr().out
            )
            monkeypatch.setattr(open_transactions, "FIND", open_transactions.FIND.replace("'1 minute'", "'0'"))
            with pytest.raises(ResourceFailed, match="ROLLBACK PREPARED 'left' in the database postgres ends it"):
                take(client, begun, ALL_CONTRACTS)
            # So does CloudFormation roll back an Update that has failed.
            assert take(client, {**begun, "RequestType": "Update"}, ALL_CONTRACTS)["IsComplete"]
        finally:
            other.execute("ROLLBACK PREPARED 'left'")
    assert take(client, begun, ALL_CONTRACTS)["IsComplete"]


def test_a_deployment_waits_for_transactions_from_before_it(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    client = data_api(server.owner)
    assert take(client, content(), ALL_CONTRACTS)["IsComplete"]
    with server.postgres.connect() as admin, server.postgres.connect(DATABASE) as other:
        # As on RDS, where the owner is a member of rds_superuser.
        admin.execute(f"GRANT pg_monitor TO {OWNER}".encode())
        other.execute("BEGIN; SELECT pg_current_xact_id()")
        begun = {**publication(), "Data": {"Began": str(BEGAN + 200)}}
        wait_until("it to be waited for", lambda: not take(client, begun, ALL_CONTRACTS)["IsComplete"])
        assert f"waiting for the end of a transaction of pid {other.info.backend_pid} in" in capsys.readouterr().out
        # This request has begun 200 seconds ago.
        assert take(client, publication(), ALL_CONTRACTS)["IsComplete"]
        other.execute("ROLLBACK")
    assert take(client, begun, ALL_CONTRACTS)["IsComplete"]


def test_a_query_of_one_table_holds_up_this_table_alone(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_bootstrap, "_PAUSE_SECONDS", 0.0)
    client = data_api(server.owner)
    assert take(client, content(), ALL_CONTRACTS)["IsComplete"]
    tables = set(source_database.published_tables(ALL_CONTRACTS))
    with server.owner() as reader, server.owner() as application:
        application.execute("SET lock_timeout = '200ms'")
        reader.execute("BEGIN; SELECT count(*) FROM northwind.customers")
        assert take(client, publication(), ALL_CONTRACTS) == {"IsComplete": False}
        assert published(server) == tables - {"northwind.customers"}
        assert re.search(
            rf"northwind\.customers remains: .* pid {reader.info.backend_pid} \(.*customers", capsys.readouterr().out
        )
        reader.execute("COMMIT")
        assert take(client, publication(), ALL_CONTRACTS)["IsComplete"]
        assert published(server) == tables
        # As after the release before, the files run once more. A trigger of the outbox waits for whoever writes, and
        # others write meanwhile.
        with server.owner() as owner:
            owner.execute("DROP TABLE capture.database_files CASCADE")
        reader.execute("BEGIN; DELETE FROM northwind.suppliers")
        ran: list[str] = []

        def before(sql: str) -> None:
            application.execute("DELETE FROM northwind.orders")
            application.execute("DELETE FROM northwind.suppliers")
            ran.append(sql)

        assert take(data_api(server.owner, before), content("Update"), ALL_CONTRACTS) == {"IsComplete": False}
        reader.execute("COMMIT")
        assert take(client, content("Update"), ALL_CONTRACTS)["IsComplete"]


def test_roles_log_in_with_the_passwords_of_their_secrets(server: Server) -> None:
    bootstrap(server, ALL_CONTRACTS)
    for role, password in PASSWORDS.items():
        server.postgres.connect(DATABASE, role, password).close()
    renewed = {role: f"{password}-2" for role, password in PASSWORDS.items()}
    assert take(data_api(server.owner), content("Update"), ALL_CONTRACTS, renewed)["IsComplete"]
    for role, password in PASSWORDS.items():
        server.postgres.connect(DATABASE, role, renewed[role]).close()
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            server.postgres.connect(DATABASE, role, password)


def test_no_statement_and_no_log_shows_a_password_or_what_is_stored_of_it(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    with server.postgres.connect() as admin:
        admin.execute(f"ALTER DATABASE {DATABASE} SET log_statement = 'ddl'".encode())
    log = server.postgres.folder / "postgres.log"
    before = log.stat().st_size
    ran: list[str] = []
    bootstrap(server, ALL_CONTRACTS, ran.append)
    # The owner may no longer change the role. PostgreSQL logs the error with its statement.
    with server.postgres.connect() as admin:
        admin.execute(f"REVOKE {source_database.APP_ROLE} FROM {OWNER}".encode())
    with pytest.raises(ResourceFailed, match="permission denied to alter role") as failed:
        take(data_api(server.owner, ran.append), content("Update"), ALL_CONTRACTS)
    said = "\n".join([*ran, str(failed.value), capsys.readouterr().out])
    logged = log.read_bytes()[before:].decode()
    assert "GRANT USAGE ON SCHEMA capture, northwind" in logged
    assert "permission denied to alter role" in logged
    for text in (said, logged):
        assert "SCRAM-SHA-256$" not in text
        assert not any(password in text for password in PASSWORDS.values())


def test_a_contract_without_its_table_is_named(server: Server) -> None:
    nowhere = parse_contract(
        "{table: x, description: x, source: {database: postgresql, table: northwind.nowhere}, key: [a],"
        " partition_by: [], buckets: 1, columns: [{name: a, type: int, source_type: integer}]}",
        "x.yaml",
    )
    client = data_api(server.owner)
    assert take(client, content(), [nowhere])["IsComplete"]
    with pytest.raises(ResourceFailed, match=r"northwind\.nowhere"):
        take(client, publication(), [nowhere])


def test_a_refused_statement_fails_with_the_servers_words(server: Server) -> None:
    with server.postgres.connect() as admin:
        admin.execute(f"ALTER DATABASE {DATABASE} OWNER TO postgres".encode())
    with pytest.raises(ResourceFailed, match="permission denied for database northwind"):
        take(data_api(server.owner), content(), ALL_CONTRACTS)


def test_the_publication_follows_the_contracts(server: Server) -> None:
    bootstrap(server, ALL_CONTRACTS[-1:])
    assert published(server) == set(source_database.published_tables(ALL_CONTRACTS[-1:]))
    bootstrap(server, ALL_CONTRACTS)
    assert published(server) == set(source_database.published_tables(ALL_CONTRACTS))


def test_tables_that_come_to_a_publication_which_is_read_await_their_rows(server: Server) -> None:
    client = data_api(server.owner)
    take(client, content(), ALL_CONTRACTS)
    by_table = {contract.table: contract for contract in ALL_CONTRACTS}
    orders, customers, products = (by_table[name] for name in ("orders", "customers", "products"))

    def publish(*contracts: Contract) -> list[str]:
        take(client, publication(), list(contracts))
        with server.owner() as owner:
            query = "SELECT name FROM capture.published WHERE awaits_rows ORDER BY name"
            return [name for (name,) in owner.execute(query).fetchall()]

    # A first snapshot brings the rows of the tables that the connector starts with.
    assert publish(orders) == []
    assert publish(orders, products) == []
    with server.postgres.connect(DATABASE) as admin:
        admin.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (SLOT,))
        assert publish(orders, products) == []
        assert publish(orders, products, customers) == ["northwind.customers"]
        assert publish(orders, products, customers) == ["northwind.customers"]
        with server.postgres.connect(DATABASE, "headwater_cdc", PASSWORDS["headwater_cdc"]) as connector:
            read = "SELECT capture.read_awaited(%s)"
            assert connector.execute(read, (["northwind.products"],)).fetchone() == (None,)
            asked = connector.execute(read, (["northwind.customers", "northwind.products"],)).fetchone()
            assert connector.execute(read, (["northwind.customers"],)).fetchone() == (None,)
            signals = connector.execute("SELECT id, type, data FROM capture.signal").fetchall()
        ((id_, kind, data),) = signals
        assert (asked, kind) == ((id_,), "execute-snapshot")
        assert json.loads(data) == {"type": "incremental", "data-collections": [r"northwind\.customers"]}
        assert json.loads(id_)["resync"] > 0
        # Whoever took a table out, and deploys it again, gets its rows.
        admin.execute("ALTER PUBLICATION headwater DROP TABLE northwind.products")
        assert publish(orders, products, customers) == ["northwind.products"]
        assert publish(orders) == []
        admin.execute("SELECT pg_drop_replication_slot(%s)", (SLOT,))


def test_slot_and_publication_are_dropped_once_nobody_holds_the_slot(server: Server, tmp_path: Path) -> None:
    bootstrap(server, ALL_CONTRACTS)
    client = data_api(lambda: server.postgres.connect(DATABASE))
    with server.postgres.connect(DATABASE) as admin:
        admin.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (SLOT,))
    with reader(server, tmp_path):
        wait_until("the reader to hold the slot", lambda: slot(server) == [True])
        assert take(client, publication("Delete"), ALL_CONTRACTS) == {"IsComplete": False}
        assert published(server)
    wait_until("the slot to be free", lambda: slot(server) == [False])
    assert take(client, publication("Delete"), ALL_CONTRACTS)["IsComplete"]
    assert slot(server) == []
    assert published(server) == set()


def test_deleting_where_nothing_is_left_succeeds(server: Server) -> None:
    client = data_api(server.owner)
    for event in (publication("Delete"), content("Delete")):
        assert take(client, event, ALL_CONTRACTS)["IsComplete"]


def test_an_owner_who_is_no_superuser_drops_what_it_made(server: Server) -> None:
    server.create(ALL_CONTRACTS)
    with server.owner() as owner:
        administration.drop(owner)
        left = owner.execute(
            "SELECT nspname FROM pg_namespace WHERE nspowner = %s::regrole UNION ALL SELECT rolname FROM pg_roles"
            " WHERE rolname = ANY(%s) UNION ALL SELECT pubname FROM pg_publication",
            (OWNER, list(source_database.ROLES)),
        ).fetchall()
    assert left == []


def test_a_publication_that_was_dropped_is_made_again(server: Server) -> None:
    bootstrap(server, ALL_CONTRACTS)
    complete = server.dump()
    client = data_api(server.owner)
    assert take(client, publication("Delete"), ALL_CONTRACTS)["IsComplete"]
    assert take(client, publication(), ALL_CONTRACTS)["IsComplete"]
    assert server.dump() == complete


def published(server: Server) -> set[str]:
    with server.owner() as owner:
        return set(administration.status(owner).published or ())


def slot(server: Server) -> list[bool]:
    with server.owner() as owner:
        rows = owner.execute("SELECT active FROM pg_replication_slots WHERE slot_name = %s", (SLOT,)).fetchall()
    return [bool(active) for (active,) in rows]


def reader(server: Server, folder: Path) -> Process:
    """A program that reads the slot, as a connector does."""
    postgres = server.postgres
    program = Program(
        "pg_recvlogical",
        [
            str(binary("pg_recvlogical")), "--host", postgres.host, "--port", str(postgres.port), "--dbname", DATABASE,
            "--slot", SLOT, "--start", "--file", "-", "--no-loop",
            "--option", "proto_version=1", "--option", f"publication_names={PUBLICATION}",
        ],
        folder / "reader.log",
        env={"PGUSER": postgres.superuser, "PGPASSWORD": postgres.password},
    )  # fmt: skip
    return Process(program)
