"""Child processes are ready when started and gone with the process that started them."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from headwater.waiting import PATIENCE_SECONDS, wait_until
from rig.local.processes import Process, ProcessError, Program, free_port, free_ports


def python(
    tmp_path: Path,
    script: str,
    ready: Callable[[], bool] | None = None,
    patience: float = PATIENCE_SECONDS,
    port: int | None = None,
) -> Process:
    argv = [sys.executable, "-c", textwrap.dedent(script)]
    return Process(Program("the test's child", argv, tmp_path / "child.log"), ready, patience, port)


def ending(tmp_path: Path) -> Process:
    """A program that ends with status 3 once the file ``go`` is there. One that ends before its start is over has
    failed."""
    script = f"""
        import pathlib, time
        while not pathlib.Path({str(tmp_path / "go")!r}).exists():
            time.sleep(0.01)
        raise SystemExit(3)
    """
    return python(tmp_path, script)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_port_is_given_to_nobody_else_and_a_server_may_take_it() -> None:
    ports = [port for _ in range(100) for port in free_ports(10)]
    assert len(set(ports)) == len(ports)
    with socket.create_server(("127.0.0.1", ports[0])):
        assert listens(ports[0])


def test_start_returns_when_it_is_ready(tmp_path: Path) -> None:
    port = free_port()
    program = f"""
        import socket, time
        time.sleep(0.3)
        server = socket.create_server(("127.0.0.1", {port}))
        time.sleep(60)
    """
    with python(tmp_path, program, port=port) as child:
        assert listens(port)
        assert child.running
    assert not listens(port)


def test_a_port_that_somebody_else_has_taken_is_not_its_own(tmp_path: Path) -> None:
    asked: list[int] = []

    def ask() -> bool:
        asked.append(port)
        return True

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        child = python(tmp_path, "import time; time.sleep(60)", ask, 0.5, port)
        with pytest.raises(ProcessError, match="not ready yet"):
            child.start()
    # Nothing is told to whoever has it.
    assert asked == []


def test_one_that_dies_at_its_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    child = python(tmp_path, "print('no such option'); raise SystemExit(3)", ready=lambda: False)
    with pytest.raises(
        ProcessError, match=r"(?s)the test's child ended with exit status 3.*child\.log:\nno such option"
    ):
        child.start()


def test_one_that_never_gets_ready_is_stopped_and_says_why(tmp_path: Path) -> None:
    def refused() -> bool:
        raise ConnectionRefusedError("nobody listens")

    child = python(tmp_path, "import time; time.sleep(60)", ready=refused, patience=0.5)
    with pytest.raises(ProcessError, match=r"in vain for .* to be ready, .* \(ConnectionRefusedError: nobody listens"):
        child.start()
    assert not child.running


def test_check_tells_that_it_was_killed(tmp_path: Path) -> None:
    child = python(tmp_path, "import time; time.sleep(60)")
    child.start()
    child.check()
    child.kill()
    with pytest.raises(ProcessError, match="ended by SIGKILL"):
        child.check()


def test_one_that_ignores_the_request_is_killed_with_its_own_children(tmp_path: Path) -> None:
    program = f"""
        import pathlib, signal, subprocess, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        grandchild = subprocess.Popen(["sleep", "60"], start_new_session=True)
        pathlib.Path({str(tmp_path / "grandchild")!r}).write_text(str(grandchild.pid))
        time.sleep(60)
    """
    child = python(tmp_path, program, ready=lambda: bool((tmp_path / "grandchild").read_text()))
    child.start()
    grandchild = int((tmp_path / "grandchild").read_text())
    child.stop(patience=0.2)
    assert not alive(child.pid)
    assert not alive(grandchild)


def test_several_threads_may_end_it_at_once(tmp_path: Path) -> None:
    process = Process(Program("sleep", ["sleep", "100"], tmp_path / "log"))
    process.start()
    together = threading.Barrier(4)

    def end() -> None:
        together.wait()
        process.kill()

    with ThreadPoolExecutor(4) as threads:
        ended = [threads.submit(end) for _ in range(4)]
    assert [thread.exception() for thread in ended] == [None] * 4


def test_it_can_be_started_again(tmp_path: Path) -> None:
    child = python(tmp_path, "import time; time.sleep(60)")
    child.start()
    first = child.pid
    child.stop()
    child.start()
    assert child.pid != first
    child.stop()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, None])
def test_nothing_outlives_the_parent(tmp_path: Path, end: signal.Signals | None) -> None:
    program = f"""
        import pathlib, signal, sys, time
        from rig.local.processes import Process, Program
        # Whoever runs the tests in the background of a shell has it ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        log = pathlib.Path({str(tmp_path)!r}) / "child.log"
        child = Process(Program("child", ["/bin/sh", "-c", "trap '' TERM INT; sleep 60 & echo $!; wait"], log))
        child.start()
        while not log.read_text():
            time.sleep(0.01)
        print(child.pid, log.read_text(), flush=True)
        {"time.sleep(60)" if end else "sys.exit(0)"}
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = [int(word) for word in (parent.stdout.readline()).split()]
    assert len(pids) == 2
    assert end is None or all(alive(pid) for pid in pids)
    if end is not None:
        os.kill(parent.pid, end)
    parent.wait()
    parent.stdout.close()
    wait_until("the children's end", lambda: not any(alive(pid) for pid in pids))


def test_whether_it_has_ended_is_known_after_a_while(tmp_path: Path) -> None:
    with ending(tmp_path) as child:
        (tmp_path / "go").touch()
        assert child.wait() == 3
        assert child.ends_within(0)
    with python(tmp_path, "import time; time.sleep(60)") as child:
        assert not child.ends_within(0)


def test_one_that_stands_still_is_not_waited_for(tmp_path: Path) -> None:
    program = "import time; print('begun', flush=True); time.sleep(600)"
    log = tmp_path / "child.log"
    with (
        python(tmp_path, program, ready=lambda: "begun" in log.read_text()) as child,
        pytest.raises(ProcessError, match=r"(?s)in vain for the test's child to end, .* idle\..*child\.log:\nbegun"),
    ):
        child.await_end(patience=0.5)
    with ending(tmp_path) as child:
        (tmp_path / "go").touch()
        assert child.await_end() == 3
