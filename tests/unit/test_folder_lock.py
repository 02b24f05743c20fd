"""Two runs never share a folder."""

import subprocess
import sys
from pathlib import Path

import pytest

from headwater.errors import UserError
from headwater.folder_lock import claim


def test_a_second_claim_is_refused_and_a_later_one_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "demo"
    refused = pytest.raises(UserError, match=r"run/demo is in use: the demo runs already")
    with claim(folder, "the demo"), refused, claim(folder, "the demo"):
        pass
    with claim(folder, "the demo"):
        pass


def test_a_killed_process_holds_no_claim(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    program = (
        "import pathlib, sys; from headwater.folder_lock import claim\n"
        "with claim(pathlib.Path(sys.argv[1]), 'x'): print('claimed', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as claimant:
        assert claimant.stdout is not None
        claimant.stdout.readline()
        with pytest.raises(UserError), claim(folder, "x"):
            pass
        claimant.kill()
    with claim(folder, "x"):
        pass


def test_a_claim_that_waits_says_for_what(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    program = (
        "import pathlib, sys; from headwater.folder_lock import claim\n"
        "with claim(pathlib.Path(sys.argv[1]), 'another run', wait=True): print('claimed', flush=True)"
    )
    command = [sys.executable, "-c", program, str(folder)]
    with claim(folder, "x"):
        waiting = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert waiting.stderr is not None
        assert waiting.stderr.readline() == f"{folder} is in use: waiting for another run to end\n"
    said, errors = waiting.communicate()
    assert (said, errors, waiting.returncode) == ("claimed\n", "", 0)
