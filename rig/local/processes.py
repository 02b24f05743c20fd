"""Child processes that are ready when ``start`` returns and never outlive the process that started them."""

import signal
import socket
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import psutil

from headwater import private_files, process_groups
from headwater.errors import UserError
from headwater.log_files import tail
from headwater.waiting import PATIENCE_SECONDS, StuckError, cpu_seconds, wait_until, work_beside

# Sends signal $2 to the process group $1 when standard input ends without a line, and SIGKILL two seconds later. The
# kernel closes that pipe however the starting process ends. Unlike Linux's parent-death signal, this works on any Unix,
# from any thread and across a change of user.
GUARD = """
trap '' INT TERM HUP
read -r word && exit
kill -s "$2" -- "-$1"
[ "$2" = KILL ] || sleep 2
kill -s KILL -- "-$1" 2>/dev/null
"""
POLL_SECONDS = 0.05
STOP_PATIENCE_SECONDS = 20.0
"""How long a program may use no processor time after a request to end, before it is killed."""


class ProcessError(UserError):
    """A local part did not start, or died. The message holds the end of its log."""


def free_ports(count: int) -> list[int]:
    """Return this many TCP ports of 127.0.0.1 on which nothing listens now.

    No other program gets one of them within the next minute: a closed connection to each stays in ``TIME_WAIT``, which
    does not hinder a server.
    """
    with ExitStack() as probes:
        return [_reserved(probes.enter_context(socket.socket())) for _ in range(count)]


def _reserved(probe: socket.socket) -> int:
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind(("127.0.0.1", 0))
    probe.listen(1)
    with socket.create_connection(probe.getsockname()):
        # The side that closes first has the connection in TIME_WAIT.
        probe.accept()[0].close()
    return int(probe.getsockname()[1])


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 on which nothing listens now."""
    return free_ports(1)[0]


@dataclass(frozen=True)
class Program:
    """A program to start, and how it is ended."""

    name: str
    """The program's name in errors."""
    argv: Sequence[str]
    """The command line."""
    log_path: Path
    """The file for standard output and standard error. A restart appends to it."""
    stdout_path: Path | None = None
    """The file for standard output alone, for a program whose output is data."""
    env: Mapping[str, str] | None = None
    """The whole environment; None is this process's own."""
    cwd: Path | None = None
    """The working directory; None is this process's own."""
    stop_signal: signal.Signals = signal.SIGTERM
    """The signal that asks the program to end in order."""
    death_signal: signal.Signals = signal.SIGKILL
    """The signal that the program's process group gets when this process itself dies."""


class Process:
    """A program in its own process group.

    With a ``port`` of 127.0.0.1 the program is ready once it listens there itself: another user could have taken the
    port before it. Then ``ready`` is called until it returns true. An exception from ``ready`` counts as "not yet", and
    is shown if the program stands still for ``patience`` seconds. Without both the program is ready as soon as it has
    started.
    """

    def __init__(
        self,
        program: Program,
        ready: Callable[[], bool] | None = None,
        patience: float = PATIENCE_SECONDS,
        port: int | None = None,
    ) -> None:
        self.program = program
        self.name = program.name
        self._ready = ready
        self._port = port
        self._patience = patience
        self._child: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._clearing = threading.RLock()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The program's process id. Raises ``ProcessError`` if the program was not started."""
        return self._started().pid

    @property
    def running(self) -> bool:
        """Whether the program was started and has not ended."""
        return self._child is not None and self._child.poll() is None

    def start(self) -> None:
        """Start the program and wait until it is ready. Raises ``ProcessError`` if it dies or stands still."""
        program = self.program
        if self.running:
            raise ProcessError(f"{self.name} is running already (process {self.pid})")
        with (
            private_files.append(program.log_path) as log,
            private_files.append(program.stdout_path or program.log_path) as out,
        ):
            self._child = subprocess.Popen(
                list(program.argv),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                env=None if program.env is None else dict(program.env),
                cwd=program.cwd,
                start_new_session=True,
                umask=private_files.UMASK,
            )
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", GUARD, "guard", str(self._child.pid), program.death_signal.name.removeprefix("SIG")],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            self._await_ready()
        except BaseException:
            self.kill()
            raise

    def check(self) -> None:
        """Raise ``ProcessError`` with the end of the log unless the program runs."""
        code = self._started().poll()
        if code is not None:
            raise ProcessError(f"{self.name} ended {_how(code)}. {self._log_tail()}")

    def wait(self) -> int:
        """Wait until the program ends by itself, and return its exit status."""
        code = self._started().wait()
        self._clear_group()
        return code

    def ends_within(self, seconds: float) -> bool:
        """Wait up to ``seconds``, and return whether the program has ended."""
        with suppress(subprocess.TimeoutExpired):
            self._started().wait(seconds)
        return not self.running

    def await_end(self, patience: float = PATIENCE_SECONDS) -> int:
        """Wait until the program ends by itself, and return its exit status.

        ``patience`` means the same as in ``wait_until``, in seconds. Work of any program that this process has started
        counts as progress. Raises ``ProcessError`` with the end of the log if nothing moves any more.
        """
        child = self._started()
        try:
            process_groups.await_end(self.name, child, patience, work_beside)
        except StuckError as error:
            raise ProcessError(f"{error}. {self._log_tail()}") from error
        return self.wait()

    def stop(self, patience: float = STOP_PATIENCE_SECONDS) -> None:
        """Ask the program to end, wait until it stands still for ``patience`` seconds, then kill its process group.

        Does nothing if the program has ended already.
        """
        if self._child is None:
            return
        if self._child.poll() is None:
            self._child.send_signal(self.program.stop_signal)
            with suppress(StuckError):
                process_groups.await_end(self.name, self._child, patience)
        self._clear_group()

    def kill(self) -> None:
        """End the whole process group by SIGKILL, as a crash would."""
        if self._child is not None:
            self._clear_group()

    def _clear_group(self) -> None:
        # The thread that waits for the program and the one that ends it may come here at the same time.
        with self._clearing:
            child, guard = self._child, self._guard
            if child is None or guard is None or guard.stdin is None:
                return
            process_groups.kill(child)
            with suppress(BrokenPipeError):
                guard.stdin.write(b"done\n")
                guard.stdin.close()
            guard.wait()
            self._guard = None

    def _await_ready(self) -> None:
        problem = "not ready yet"

        def is_ready() -> bool:
            nonlocal problem
            self.check()
            try:
                return self._listens() and (self._ready is None or self._ready())
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
                return False

        work = partial(cpu_seconds, self.pid)
        try:
            wait_until(f"{self.name} to be ready", is_ready, poll=POLL_SECONDS, patience=self._patience, work=work)
        except StuckError as error:
            raise ProcessError(f"{error} ({problem}). {self._log_tail()}") from error

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            raise ProcessError(f"{self.name} is not running: start it first")
        return self._child

    def _listens(self) -> bool:
        """Whether the program itself, or a child of it, listens on its port."""
        if self._port is None:
            return True
        program = psutil.Process(self.pid)
        return any(
            connection.status == psutil.CONN_LISTEN and connection.laddr.port == self._port
            for process in [program, *program.children(recursive=True)]
            for connection in process.net_connections("tcp")
        )

    def _log_tail(self) -> str:
        return f"The end of its log, {self.program.log_path}:\n{tail(self.program.log_path)}"


class Part(ABC):
    """A part of the pipeline: one process, whose address stays the same over restarts.

    ``folder`` takes the part's data and its log; only its owner can read it. ``name`` is the part's name in errors.
    """

    name: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._process: Process | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process id. Raises ``UserError`` if the part was not started."""
        return self._running().pid

    def start(self) -> None:
        """Start the part and wait until it serves. Raises ``ProcessError`` if it dies or stands still."""
        private_files.make_private(self.folder)
        self._process = self._prepare()
        self._process.start()

    def stop(self) -> None:
        """Shut the part down in order. Does nothing if it was not started."""
        if self._process is not None:
            self._process.stop()

    def kill(self) -> None:
        """End the part as a crash would. Raises ``UserError`` if it was not started."""
        self._running().kill()

    def check(self) -> None:
        """Raise ``ProcessError`` unless the part runs."""
        self._running().check()

    @property
    def running(self) -> bool:
        """Whether the part was started and its process has not ended."""
        return self._process is not None and self._process.running

    @abstractmethod
    def _prepare(self) -> Process:
        """Write the files that the process needs into the folder, and return the process, not yet started."""

    def _running(self) -> Process:
        if self._process is None:
            raise UserError(f"{self.name} in {self.folder} is not running: start it first")
        return self._process


def occurrences(log: Path, words: bytes) -> int:
    """Return how often a log contains some words; 0 if there is no log yet."""
    return log.read_bytes().count(words) if log.exists() else 0


def private_bytes(process: psutil.Process) -> int:
    """The private memory of a process now, in bytes.

    It excludes files and the memory that PostgreSQL's processes share. A count of single pages would exclude pages that
    a fork shares until it writes them, but takes a tenth of a core. Raises psutil's errors if the process has ended.
    """
    memory = process.memory_info()
    return int(memory.rss - getattr(memory, "shared", 0))


def _how(code: int) -> str:
    return f"with exit status {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
