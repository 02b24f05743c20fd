"""The local AWS as a process that stays when the command that started it has ended, until it is told to end.

python -m headwater.local_aws.daemon FOLDER
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import psutil

from headwater.errors import UserError
from headwater.folder_lock import claim
from headwater.local.processes import wait_until
from headwater.local_aws.account import LocalAccount
from headwater.log_files import tail
from headwater.paths import BUILD, ROOT

FOLDER = BUILD / "local_aws" / "account"
_STARTS_SECONDS = 60.0
_ENDS_SECONDS = 120.0


@dataclass(frozen=True)
class Running:
    """A local AWS that runs: its process, and the variables by which AWS's tools find it."""

    pid: int
    environment: dict[str, str]

    @classmethod
    def find(cls, folder: Path = FOLDER) -> Self | None:
        """The one below a folder; None where none runs."""
        try:
            found = cls(**json.loads(_description(folder).read_text()))
        except FileNotFoundError:
            return None
        return found if psutil.pid_exists(found.pid) else None

    @classmethod
    def start(cls, folder: Path = FOLDER) -> Self:
        """Start one, empty, below a folder. Raises UserError with the end of its log where it does not start."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        log = folder / "daemon.log"
        with log.open("ab") as out:
            child = subprocess.Popen(
                [sys.executable, "-m", __name__, str(folder)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

        def answers() -> bool:
            if child.poll() is not None:
                raise UserError(f"the local AWS ended with {child.returncode}:\n{tail(log)}")
            return cls.find(folder) is not None

        wait_until("the local AWS to start", answers, _STARTS_SECONDS)
        found = cls.find(folder)
        if found is None:
            raise UserError(f"the local AWS has ended:\n{tail(log)}")
        return found

    def stop(self, folder: Path = FOLDER) -> None:
        """End it with all that runs in it, and remove what it has stored."""
        os.kill(self.pid, signal.SIGTERM)
        wait_until("the local AWS to end", lambda: not _runs(self.pid), _ENDS_SECONDS)
        shutil.rmtree(folder, ignore_errors=True)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _description(folder: Path) -> Path:
    return folder / "account.json"


def serve(folder: Path) -> None:
    """Have an account until SIGTERM."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with claim(folder, "a local AWS"), LocalAccount(folder) as account:
        account.start()
        changed = {name: value for name, value in account.environment().items() if os.environ.get(name) != value}
        described = _description(folder).with_suffix(".part")
        described.touch(mode=0o600)
        described.write_text(json.dumps(asdict(Running(os.getpid(), changed))))
        described.rename(_description(folder))
        ended.wait()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
