"""A program is ended with all that it has started."""

import subprocess
import sys

import psutil
import pytest

from headwater import process_groups

PROGRAM = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("leads", [True, False], ids=["of a group of its own", "of its parent's group"])
def test_a_killed_program_leaves_no_descendant(leads: bool) -> None:
    program = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, start_new_session=leads)
    assert program.stdout is not None
    descendant = psutil.Process(int(program.stdout.readline()))
    process_groups.kill(program)
    assert program.returncode == -9
    assert not descendant.is_running() or descendant.status() == psutil.STATUS_ZOMBIE
    program.stdout.close()
