"""A run's replication slot goes with the run, however that ends, on a real PostgreSQL."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.pq import PGconn

from headwater.errors import UserError
from headwater.waiting import wait_until
from rig.local.postgresql_server import PostgresqlServer
from rig.local.processes import free_port
from rig.local.slot_watcher import SlotWatcher

SLOT = "watched"
# A run that has its slot watched, and goes on until it is ended.
RUN = """
import json, signal, sys, time
from pathlib import Path
# A shell lets what it runs in the background ignore SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)
from rig.local.slot_watcher import SlotWatcher
connection, taken, claimed, log = json.loads(sys.stdin.readline())
watcher = SlotWatcher(connection, "watched", Path(claimed), Path(log))
watcher.start()
if taken:
    watcher.take()
print("watched", flush=True)
time.sleep(600)
"""

Watcher = Callable[..., SlotWatcher]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresqlServer]:
    with PostgresqlServer(tmp_path_factory.mktemp("watched") / "postgres") as server:
        yield server


@pytest.fixture
def owner(server: PostgresqlServer) -> Iterator[psycopg.Connection]:
    with server.connect() as owner:
        owner.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (SLOT,))
        yield owner
        owner.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")


def login(server: PostgresqlServer) -> dict[str, Any]:
    return {
        "host": server.host,
        "port": server.port,
        "dbname": "postgres",
        "user": server.superuser,
        "password": server.password,
    }


@pytest.fixture
def watcher(server: PostgresqlServer, tmp_path: Path) -> Iterator[Watcher]:
    made: list[SlotWatcher] = []

    def make(seconds: float = 30, **changed: Any) -> SlotWatcher:
        connection = {**login(server), **changed}
        made.append(SlotWatcher(connection, SLOT, tmp_path / "claimed", tmp_path / "slot.log", seconds))
        return made[-1]

    yield make
    for each in made:
        each.end()


@contextmanager
def a_run(server: PostgresqlServer, folder: Path, *, taken: bool = True) -> Iterator[tuple[Any, psutil.Process]]:
    """A run in a process of its own, and the watcher that it has started."""
    command = [sys.executable, "-c", RUN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        run.stdin.write(json.dumps([login(server), taken, str(folder / "claimed"), str(folder / "slot.log")]) + "\n")
        run.stdin.flush()
        try:
            assert run.stdout.readline() == "watched\n"
            (child,) = psutil.Process(run.pid).children()
            yield run, child
        finally:
            run.kill()
            run.wait()
            await_end(child)


@contextmanager
def reading(server: PostgresqlServer, owner: psycopg.Connection) -> Iterator[None]:
    """Something that reads the slot, as a connector does whose end the server has not noticed yet."""
    reader = PGconn.connect(make_conninfo(**login(server), replication="database").encode())
    try:
        reader.exec_(f"START_REPLICATION SLOT {SLOT} LOGICAL 0/0 (proto_version '1', publication_names 'p')".encode())
        wait_until("the slot to be read", lambda: slots(owner) == [(SLOT, True)])
        yield
    finally:
        reader.finish()


def await_end(watcher: psutil.Process) -> None:
    def ended() -> bool:
        try:
            return watcher.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    wait_until("the watcher to end", ended)


def slots(owner: psycopg.Connection) -> list[tuple[Any, ...]]:
    return owner.execute("SELECT slot_name::text, active FROM pg_replication_slots").fetchall()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_killed_runs_slot_goes_and_so_does_its_watcher(
    server: PostgresqlServer, owner: psycopg.Connection, tmp_path: Path, number: signal.Signals
) -> None:
    with a_run(server, tmp_path) as (run, watcher), reading(server, owner):
        # As a closed terminal, or an orderly end of the machine's session, does to all processes.
        for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            watcher.send_signal(ignored)
        run.send_signal(number)
        run.wait()
        assert slots(owner) == [(SLOT, True)]
        assert watcher.is_running()
    assert slots(owner) == []


def test_a_run_that_has_not_taken_the_slot_leaves_it(
    server: PostgresqlServer, owner: psycopg.Connection, tmp_path: Path
) -> None:
    with a_run(server, tmp_path, taken=False):
        pass
    assert slots(owner) == [(SLOT, False)]


def test_a_run_that_ends_in_order_hears_why_its_slot_stays(owner: psycopg.Connection, watcher: Watcher) -> None:
    orderly, lost = watcher(), watcher(seconds=0, port=free_port())
    orderly.start()
    orderly.take()
    assert orderly.end() == ""
    assert slots(owner) == []
    lost.start()
    lost.take()
    assert "Connection refused" in lost.end()


def test_the_next_run_waits_for_the_watcher_of_the_last(
    server: PostgresqlServer, owner: psycopg.Connection, watcher: Watcher, tmp_path: Path
) -> None:
    with a_run(server, tmp_path) as (run, _), reading(server, owner):
        run.kill()
        with pytest.raises(UserError, match=r"claimed is in use: the end of an earlier run"):
            watcher().start()


def test_no_other_process_sees_the_password(server: PostgresqlServer, tmp_path: Path) -> None:
    with a_run(server, tmp_path) as (_, watcher):
        assert server.password not in " ".join(watcher.cmdline())
        assert server.password not in json.dumps(watcher.environ())
        assert server.password not in (tmp_path / "slot.log").read_text()
