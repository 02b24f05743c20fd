"""Steps beside each other, and what a failed or killed one leaves."""

import subprocess
import sys
import threading
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from headwater.errors import UserError
from headwater.packaging.side_by_side import one_by_one
from headwater.packaging.unfinished import unfinished


def test_steps_go_on_beside_the_block_in_their_order() -> None:
    passed, done = threading.Event(), list[str]()
    with one_by_one() as beside:
        # Either would wait for ever without the other.
        first = beside.add(passed.wait)
        beside.add(done.append, "second")
        passed.set()
        assert first.result()
    assert done == ["second"]


def test_after_a_failure_what_has_not_begun_is_left_out() -> None:
    begun, go_on, done = threading.Event(), threading.Event(), list[str]()

    def step() -> None:
        begun.set()
        go_on.wait()
        done.append("first")

    def fail() -> None:
        with one_by_one() as beside:
            beside.add(step)
            beside.add(done.append, "second")
            begun.wait()
            threading.Timer(0.1, go_on.set).start()
            raise UserError("it failed")

    with pytest.raises(UserError):
        fail()
    assert done == ["first"]


def test_a_step_that_fails_leaves_out_those_after_it() -> None:
    def fail() -> None:
        raise UserError("it failed")

    done = list[str]()
    with one_by_one() as beside:
        beside.add(done.append, "first")
        failed = beside.add(fail)
        after = beside.add(done.append, "third")
    assert isinstance(failed.exception(), UserError)
    with pytest.raises(CancelledError):
        after.result()
    assert done == ["first"]


def test_what_a_killed_run_has_begun_is_gone_in_the_next(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys; from headwater.packaging.unfinished import unfinished\n"
        "with unfinished('jars', pathlib.Path(sys.argv[1])) as folder:\n"
        "    (folder / 'half.jar').write_text('ha'); print(folder, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        former = Path(killed.stdout.readline().strip())
        assert (former / "half.jar").exists()
        killed.kill()
    with unfinished("jars", tmp_path) as folder:
        assert folder != former
        assert list(tmp_path.rglob("*.jar")) == []
    assert not folder.parent.exists()
