"""The command line speaks to people."""

import subprocess
import sys
from pathlib import Path


def headwater(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headwater.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def test_help_names_the_commands(tmp_path: Path) -> None:
    done = headwater("--help", cwd=tmp_path)
    assert done.returncode == 0
    assert {"db", "demo", "verify", "jars", "assets"} <= set(done.stdout.split())


def test_a_user_error_is_printed_without_a_traceback_and_ends_with_status_2(tmp_path: Path) -> None:
    program = (
        "import sys; from headwater import cli; from headwater.errors import UserError\n"
        "from headwater.packaging import jars\n"
        "def fail(): raise UserError('found [x], expected [y]: do z')\n"
        "jars.verify = fail; sys.argv = ['headwater', 'jars', 'verify']; cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert done.stderr == "Error: found [x], expected [y]: do z\n"
