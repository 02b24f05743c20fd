"""A small process that drops the replication slot of a run, however that run ends.

python -m rig.local.slot_watcher

The run holds the other end of the process's standard input, which the kernel closes with the run. The run writes
``_Task`` there, in one line, so that no other process sees the password.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

import psycopg

from headwater import private_files
from headwater.errors import UserError
from headwater.folder_lock import claim

_WATCHES, _OURS, _LEFT = "watches\n", "ours\n", "left\n"
# Nobody waits for the end of a killed run. The server, or the network to it, may have to come back.
_ABRUPT_SECONDS = 600
_POLL_SECONDS = 0.5
_FIND = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"


class _Task(TypedDict):
    connection: dict[str, str | int]
    """The arguments of ``psycopg.connect`` for the slot's database, as a role that may drop the slot."""
    slot: str
    """The slot's name."""
    claimed: str
    """The folder that the process claims, so that no later run begins meanwhile."""
    seconds: float
    """How many seconds the process tries if the run ends in order."""


class SlotWatcher:
    """The watching process, as the run sees it. After the run has ended, it writes its messages to ``log``.

    ``connection`` are the arguments of ``psycopg.connect``. ``claimed`` is a folder that the process claims until it
    ends. After a run that ends in order, the process tries for ``seconds`` to drop the slot.
    """

    def __init__(
        self, connection: Mapping[str, str | int], slot: str, claimed: Path, log: Path, seconds: float = 30
    ) -> None:
        self._task = _Task(connection=dict(connection), slot=slot, claimed=str(claimed), seconds=seconds)
        self._log = log
        self._child: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the process, which drops nothing before ``take``.

        Raises UserError if the watcher of an earlier run has not ended yet.
        """
        with private_files.append(self._log) as log:
            # In its own session, so that neither Ctrl-C nor a closed terminal ends it.
            self._child = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                umask=private_files.UMASK,
            )
        self._tell(json.dumps(self._task) + "\n")
        said = self._said()
        if said != _WATCHES:
            raise UserError(f"nobody watches the replication slot, so it is not taken: {said.strip() or self.end()}")

    def take(self) -> None:
        """Make the watcher drop the slot when this process ends."""
        self._tell(_OURS)

    def end(self) -> str:
        """Make the process drop the slot, if it was taken, once nobody reads it.

        Returns the reason if the slot stays, else an empty text.
        """
        child = self._child
        if child is None:
            return ""
        self._child = None
        with suppress(BrokenPipeError):
            said, _ = child.communicate(_LEFT)
        return said.strip() if child.returncode in (0, 1) else f"its watcher ended with {child.returncode}"

    def _tell(self, line: str) -> None:
        child = self._child
        if child is None or child.stdin is None:
            raise UserError("nobody watches the replication slot: start the watcher first")
        with suppress(BrokenPipeError):
            child.stdin.write(line)
            child.stdin.flush()

    def _said(self) -> str:
        child = self._child
        return "" if child is None or child.stdout is None else child.stdout.readline()


def drop(connection: Mapping[str, str | int], slot: str, seconds: float) -> str:
    """Drop a slot once nobody reads it, within some seconds.

    Returns why the slot stays; empty if it is gone.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            with psycopg.connect(**connection, autocommit=True) as database:  # type: ignore[arg-type]
                row = database.execute(_FIND, (slot,)).fetchone()
                if row is None:
                    return ""
                if not row[0]:
                    database.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
                    return ""
            problem = "something reads it"
        except psycopg.Error as error:
            problem = str(error).strip()
        if time.monotonic() > deadline:
            return f"after {seconds:.0f} s: {problem}"
        time.sleep(_POLL_SECONDS)


def main() -> int:
    """Watch over the run at the other end of standard input. Returns 1 if the slot stays."""
    # Signals to the terminal's whole process group must not end the watcher before the slot is dropped.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    line = sys.stdin.readline()
    if not line:
        return 0
    task: _Task = json.loads(line)
    try:
        with claim(Path(task["claimed"]), "the end of an earlier run"):
            # The slot is watched from here on. The run reports whether it took the slot, and whether it ends in order.
            sys.stdout.write(_WATCHES)
            sys.stdout.flush()
            if sys.stdin.readline() != _OURS:
                return 0
            is_orderly = sys.stdin.readline() == _LEFT
            problem = drop(task["connection"], task["slot"], task["seconds"] if is_orderly else _ABRUPT_SECONDS)
    except UserError as error:
        is_orderly, problem = True, str(error)
    if problem:
        (sys.stdout if is_orderly else sys.stderr).write(f"{problem}\n")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
