"""The tutorial of one's own database, to the letter, on a schema that nobody made for Headwater."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from headwater.lake_folder import LakeFolder
from headwater.paths import ROOT
from headwater.waiting import wait_until
from rig.local.pipeline import LAKE_BUCKET, LANDING_BUCKET, SECRET_NAME
from rig.local.postgresql_server import PostgresqlServer
from rig.local.tls_front import TlsFront
from tests.local.strangers import Run, attack
from tests.programs import said_by

CDC_PASSWORD = "of the reader's own 271828"
PAGE = ROOT / "docs" / "tutorial" / "own-database.md"
SCHEMA = Path(__file__).parent / "own_database" / "rental.sql"
# The assets are there before any test, and a tutorial's passwords are the reader's.
NOT_RUN = ("make setup", "export ", "cd ")
CHANGES = """
UPDATE film SET rental_rate = 0.01, extras = '{"n": null}' WHERE film_id % 10 = 0;
DELETE FROM film WHERE film_id % 100 = 1;
INSERT INTO payment VALUES (1000000, '2030-01-01', NULL, 1);
UPDATE payment SET payment_date = '2031-01-01' WHERE payment_id = 7;
TRUNCATE country;
INSERT INTO country VALUES ('FR', 'France', 1e40);
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PostgresqlServer]:
    with PostgresqlServer(tmp_path / "postgres") as server:
        with server.connect() as owner:
            owner.execute("CREATE DATABASE rental")
        with server.connect("rental") as owner:
            owner.execute(SCHEMA.read_bytes())
        yield server


@pytest.fixture
def front(server: PostgresqlServer, tmp_path: Path) -> Iterator[TlsFront]:
    """That server behind a front that takes TLS alone."""
    with TlsFront(tmp_path / "front", server) as front:
        yield front


def trust() -> dict[str, str]:
    """The variables by which the page has the server's certificate verified."""
    (line,) = re.findall(r"^\$ export (PGSSL.*)$", PAGE.read_text(), re.MULTILINE)
    return dict(variable.split("=") for variable in line.split())


def commands() -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL)
    found = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    return [command for command in found if not command.startswith(NOT_RUN)]


class Reader:
    """A reader who follows the page with a server, or with a TLS front whose certificate is then verified."""

    def __init__(self, server: PostgresqlServer, folder: Path, front: TlsFront | None = None) -> None:
        self._folder = folder
        self._at = f"localhost --port {server.port}"
        self._address = ""
        verified = {}
        if front is not None:
            self._at = f"{front.host} --port {front.port}"
            bundle = folder.with_name("bundle.pem")
            bundle.write_text(front.root)
            verified = {**trust(), "PGSSLROOTCERT": str(bundle)}
        self._environment = {
            **os.environ,
            **verified,
            "HEADWATER_DB_PASSWORD": server.password,
            "HEADWATER_CDC_PASSWORD": CDC_PASSWORD,
            "COLUMNS": "200",
        }

    def start(self, command: str) -> subprocess.Popen[str]:
        # The folder's script would fetch the release; the checkout has it.
        placed = re.sub(r"(\.venv/bin|\.)/headwater", f"{ROOT}/.venv/bin/headwater", command)
        placed = placed.replace("../my-lake", str(self._folder)).replace("localhost --port 5432", self._at)
        if placed.startswith("at="):
            self._address, placed = f"{placed}; ", "true"
        # Ctrl-C is for the command, not for a shell that waits for it.
        own = "exec " if "headwater replicate " in placed else ""
        # Of a shell's job in the background it would inherit that Ctrl-C is ignored.
        ignored = signal.signal(signal.SIGINT, signal.default_int_handler)
        process = subprocess.Popen(
            ["bash", "-c", f"{self._address}{own}{placed.removesuffix(' || true')}"],
            cwd=self._folder if self._folder.exists() else ROOT,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        signal.signal(signal.SIGINT, ignored)
        return process

    def run(self, command: str, status: int = 0) -> str:
        with self.start(command) as process:
            said = said_by(process)[0]
        assert process.returncode == status, said
        return said


def test_the_tutorial_leads_to_a_lake_that_equals_the_database_and_leaves_it_as_it_was(
    server: PostgresqlServer, front: TlsFront, tmp_path: Path
) -> None:
    place, infer, check, before, capture, live, replicate, query, release = commands()
    reader, run = Reader(server, tmp_path / "my-lake", front), LakeFolder(tmp_path / "my-lake").run
    reader.run(place)
    # Three tables cannot be captured.
    told = reader.run(infer, status=1)
    assert re.search(r"public\.audit .* it has neither a primary key nor a unique index", told)
    assert re.search(r"public\.Legacy .* has capitals", told)
    assert re.search(r"public\.currency .* has REPLICA IDENTITY USING INDEX", told)
    assert {path.stem for path in (tmp_path / "my-lake" / "contracts").iterdir()} == {
        *("actor", "country", "film", "film_actor", "language", "payment", "rental", "staff")
    }
    assert "valid contracts: 8" in reader.run(check)
    assert "unprepared" in reader.run(before, status=1)
    with server.connect("rental") as owner:
        untouched = catalog(owner)
    reader.run(capture)
    assert "problems: 0, warnings: 0" in reader.run(live)
    with reader.start(replicate) as process:
        try:
            assert process.stdout is not None
            said = ""
            for line in process.stdout:
                said += line
                if "Query it" in line:
                    break
            assert "The lake equals its source." in said
            assert len(re.findall(r"\b1,000\b", said)) >= 2, said
            # It reaches the server also where it verifies nothing.
            connector = (run / "replicate" / "connect" / "connect.log").read_text()
            assert f"database.sslmode = {trust()['PGSSLMODE']}\n" in connector
            assert_strangers_get_nothing(process.pid, server, run)
            with server.connect("rental") as owner:
                owner.execute(CHANGES.encode())
            asked = re.search(r"Query it: (.*)", said)
            assert asked is not None
            assert query.startswith("./headwater sql --lake …")
            await_answer(reader, asked.group(1), 'SELECT count(*) FROM film_current WHERE rental_rate = 0.01"', "100")
            await_answer(reader, asked.group(1), 'SELECT count(*) FROM film_current"', "990")
            await_answer(reader, asked.group(1), 'SELECT name, area FROM country_current"', "France")
        finally:
            process.send_signal(signal.SIGINT)
            rest = said_by(process)[0]
    assert process.returncode == 0, rest
    undone = re.findall(r"ALTER TABLE .*;", reader.run(release))
    assert "ALTER TABLE public.payment_2024_01 REPLICA IDENTITY DEFAULT;" in undone
    assert "ALTER TABLE public.country REPLICA IDENTITY NOTHING;" in undone
    with server.connect("rental") as owner:
        owner.execute("".join(undone).encode())
        assert catalog(owner) == untouched


def assert_strangers_get_nothing(pid: int, server: PostgresqlServer, run: Path) -> None:
    """Attack a run that the page keeps."""
    variables = (run / "replicate" / "aws" / "variables").read_text()
    (key,) = re.findall(r"AWS_SECRET_ACCESS_KEY=(\S+)", variables)
    with server.connect("rental") as owner:
        ((title,),) = owner.execute("SELECT title FROM film WHERE film_id = 500").fetchall()
    secrets = {
        "the run's key of AWS": key,
        "the reader's password": CDC_PASSWORD,
        "the owner's": server.password,
        "Kafka's password": (run / "replicate" / "kafka" / "password").read_text().strip(),
    }
    names = [SECRET_NAME, LANDING_BUCKET, LAKE_BUCKET]
    problems = attack(Run(pid, [run / "replicate", run], secrets, {"a row": title}, names=names))
    assert not problems, "\n".join(problems)


@pytest.mark.drill
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_a_killed_run_leaves_neither_its_slot_nor_a_process(
    server: PostgresqlServer, tmp_path: Path, number: signal.Signals
) -> None:
    reader = Reader(server, tmp_path / "my-lake")
    place, infer, _, _, capture, _, replicate, _, _ = commands()
    reader.run(place)
    reader.run(infer, status=1)
    reader.run(capture)
    with server.connect("rental") as owner, reader.start(replicate) as process:
        slots = "SELECT active FROM pg_replication_slots"
        wait_until("the slot to be read", lambda: owner.execute(slots).fetchall() == [(True,)])
        parts = psutil.Process(process.pid).children(recursive=True)
        assert len(parts) > 5
        process.send_signal(number)
        said_by(process)
        wait_until("the slot to be dropped", lambda: owner.execute(slots).fetchall() == [])
        wait_until("no process to be left", lambda: not [part for part in parts if is_alive(part)])
        # The next run is not in the way of anything.
        with reader.start(replicate) as again:
            wait_until("the slot to be read again", lambda: owner.execute(slots).fetchall() == [(True,)])
            again.send_signal(signal.SIGINT)
            said_by(again)
        assert again.returncode == 130
        assert owner.execute(slots).fetchall() == []


def is_alive(part: psutil.Process) -> bool:
    try:
        return part.is_running() and part.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def await_answer(reader: Reader, command: str, query: str, expected: str) -> None:
    """Ask until the lake has it."""
    asked = re.sub(r'"SELECT .*"', lambda _: f'"{query}', command)
    answers: list[str] = []

    def is_answered() -> bool:
        answers.append(reader.run(asked))
        return re.search(rf"\b{expected}\b", answers[-1]) is not None

    wait_until(f"the answer {expected}", is_answered, lambda: answers[-1:])


def catalog(owner: psycopg.Connection) -> list[tuple[object, ...]]:
    """All that capture could leave: schemas, relations with their identities and rights, functions, roles, slots."""
    return owner.execute(
        """SELECT 'relation', nspname, relname, relreplident::text, coalesce(relacl, acldefault('r', relowner))::text
        FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
        WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema' AND relkind <> 'I'
        UNION ALL SELECT 'schema', nspname, coalesce(nspacl, acldefault('n', nspowner))::text, '', ''
        FROM pg_namespace WHERE nspname NOT LIKE 'pg\\_%'
        UNION ALL SELECT 'role', rolname, '', '', '' FROM pg_roles
        UNION ALL SELECT 'publication', pubname, '', '', '' FROM pg_publication
        UNION ALL SELECT 'trigger', evtname, '', '', '' FROM pg_event_trigger
        UNION ALL SELECT 'slot', slot_name, '', '', '' FROM pg_replication_slots
        UNION ALL SELECT 'database', datname, coalesce(datacl, acldefault('d', datdba))::text, '', '' FROM pg_database
        ORDER BY 1, 2, 3"""
    ).fetchall()


def test_what_cannot_be_taken_or_released_is_refused(server: PostgresqlServer, tmp_path: Path) -> None:
    folder = tmp_path / "my-lake"
    reader = Reader(server, folder)
    place, infer, _, _, capture, live, replicate, _, release = commands()
    reader.run(place)
    reader.run(infer, status=1)
    assert "expected none of them; nothing was written" in reader.run(infer, status=2)
    assert "Run `./headwater db capture` first" in reader.run(replicate, status=2)
    with server.connect("rental") as owner:
        owner.execute("CREATE SCHEMA capture; CREATE TABLE capture.cards (id integer)")
        assert "a schema capture of another application" in reader.run(capture, status=2)
        assert "a schema capture of another application" in reader.run(release, status=2)
        assert owner.execute("SELECT count(*) FROM capture.cards").fetchone() == (0,)
        owner.execute("DROP SCHEMA capture CASCADE")
        with server.connect("rental") as other:
            other.execute("BEGIN; SELECT count(*) FROM film")
            held = reader.run(f"{capture} --patience 0", status=2)
            assert re.search(r"public\.film: pid \d+ \(postgres, idle in transaction since .*SELECT count.* film", held)
        owner.execute("CREATE PUBLICATION others FOR TABLE staff (staff_id, email)")
        assert "found a column list in the publication others" in reader.run(capture, status=2)
        owner.execute("DROP PUBLICATION others")
        reader.run(capture)
        owner.execute("CREATE FUNCTION capture.refuse_drop() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'")
        assert "found a database that ./headwater db create" in reader.run(release, status=2)
        assert "found a database that ./headwater db create" in reader.run(capture, status=2)
        owner.execute("DROP FUNCTION capture.refuse_drop")
        owner.execute("ALTER PUBLICATION headwater DROP TABLE staff")
        assert "staff: found a table outside the publication" in reader.run(replicate, status=2)
        reader.run(capture)
        # One that a lost machine left, or that another pipeline has: whoever sees it says so.
        owner.execute("SELECT pg_create_logical_replication_slot('headwater', 'pgoutput')")
        for found in (reader.run(replicate, status=2), reader.run(capture), reader.run(f"{live} --json")):
            assert "of the database rental, which nobody reads" in found
            assert "SELECT pg_drop_replication_slot('headwater')" in found
        assert owner.execute("SELECT count(*) FROM pg_replication_slots").fetchone() == (1,)
        reader.run(release)
        assert owner.execute("SELECT count(*) FROM pg_replication_slots").fetchone() == (0,)
        owner.execute("CREATE DATABASE elsewhere")
        with server.connect("elsewhere") as other:
            other.execute("CREATE ROLE headwater_cdc; CREATE TABLE t (); GRANT SELECT ON t TO headwater_cdc")
        assert "the server's database elsewhere is captured" in reader.run(capture, status=2)
        create = ".venv/bin/headwater db create --database northwind --host localhost --port 5432"
        passwords = "HEADWATER_APP_PASSWORD=a HEADWATER_READER_PASSWORD=r"
        assert "the server's database elsewhere is captured" in reader.run(f"{passwords} {create}", status=2)
        made = owner.execute(
            "SELECT datname FROM pg_database WHERE datname = 'northwind' UNION ALL SELECT rolname FROM pg_authid"
            " WHERE rolname IN ('headwater_app', 'headwater_reader') OR rolname = 'headwater_cdc' AND rolpassword <> ''"
        )
        assert made.fetchall() == []
