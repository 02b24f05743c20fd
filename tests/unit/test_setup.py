"""Set-up says what it does in few lines, what a machine lacks, and starts over after an interruption.

It runs in a small checkout, with programs in the place of Python, uv, npm and Java that do what set-up looks at.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.paths import ROOT
from headwater.waiting import wait_until
from tests.programs import run_on_terminal

INPUTS = ("requirements.txt", "requirements-dev.txt", "pyproject.toml", "package.json", "package-lock.json")
# What set-up calls besides, as any machine has it.
TOOLS = ("cat", "cksum", "cp", "date", "dirname", "kill", "mkdir", "rm", "sed", "sleep", "touch")
# A Python that set-up takes: it makes an environment of itself, with uv and npm. Files of the checkout say what these
# and pip do.
PYTHON = r"""#!/bin/sh
case "$1 $2" in
"-m venv") mkdir -p .venv/bin .venv/lib/python3.12/site-packages; cp "$0" .venv/bin/python; touch .venv/made ;;
"-m pip")
    for name in uv npm; do printf "#!/bin/sh\n. ./$name\n" >.venv/bin/$name; chmod +x .venv/bin/$name; done
    . ./pip
    ;;
"-c import sys"*) echo "$0" ;;
"-c import fcntl"*) exec {python} "$@" ;;
esac
""".replace("{python}", sys.executable)
UV = "mkdir -p .venv/lib/python3.12/site-packages/one.dist-info"
NPM = "mkdir -p node_modules/aws-cdk"
ONLY_3_13 = "#!/bin/sh\ncase $1 in --version) echo Python 3.13.5 ;; *) exit 1 ;; esac\n"


class Machine:
    """A machine with a checkout, and with the programs below ``bin``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        for name in (*TOOLS, "chmod"):
            (self.bin / name).symlink_to(str(shutil.which(name)))
        (folder / "tools").mkdir()
        shutil.copy(ROOT / "tools" / "setup", folder / "tools" / "setup")
        for name in (*INPUTS, "pip"):
            (folder / name).touch()
        (folder / "uv").write_text(UV)
        (folder / "npm").write_text(NPM)
        self.program("python3.12", PYTHON)
        self.program("java", "#!/bin/sh\necho 'openjdk version \"17.0.15\"' >&2\n")
        for name in ("javac", "mvn", "git"):
            self.program(name, "#!/bin/sh\n")

    def program(self, name: str, text: str, folder: Path | None = None) -> None:
        """Put a program on the PATH, or into a folder of its own."""
        path = (folder or self.bin) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def environment(self) -> dict[str, str]:
        return {"PATH": str(self.bin), "HOME": str(self.folder / "home")}

    def begin(self) -> subprocess.Popen[str]:
        """Start set-up in a process group of its own."""
        # Of a shell's job in the background it would inherit that Ctrl-C is ignored.
        ignored = signal.signal(signal.SIGINT, signal.default_int_handler)
        process = subprocess.Popen(
            ["/bin/sh", "tools/setup"],
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        signal.signal(signal.SIGINT, ignored)
        return process

    def set_up(self, status: int = 0) -> tuple[list[str], str]:
        """Run set-up: its lines, and what it says of errors."""
        with self.begin() as process:
            said, errors = process.communicate()
        assert process.returncode == status, said + errors
        return said.splitlines(), errors


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_set_up_says_a_line_at_once_and_one_per_step(machine: Machine) -> None:
    (machine.folder / "pip").write_text("echo Requirement already satisfied: uv\n")
    (first, python, node), errors = machine.set_up()
    assert first == "Setting up .venv and node_modules in this folder"
    assert re.fullmatch(r"Python packages … 1 installed, \d+ s", python)
    assert re.fullmatch(r"Node packages … 1 installed, \d+ s", node)
    assert errors == ""


def test_what_is_set_up_already_is_left_and_nothing_is_said(machine: Machine) -> None:
    machine.set_up()
    for name in ("uv", "npm"):
        (machine.folder / name).write_text("exit 1")
    assert machine.set_up() == ([], "")


def test_on_a_terminal_the_seconds_tick(machine: Machine) -> None:
    command = ["/bin/sh", "tools/setup"]
    status, said = run_on_terminal(command, cwd=machine.folder, env=machine.environment())
    assert status == 0
    assert "\rPython packages … 0 s" in said
    *_, last = said.strip().split("\r")
    assert re.fullmatch(r"\x1b\[KNode packages … 1 installed, \d+ s", last)


def test_a_step_that_fails_shows_all_that_it_said(machine: Machine) -> None:
    (machine.folder / "uv").write_text("echo no such hash >&2; exit 1")
    (machine.folder / "pip").write_text("case $* in *requirements-dev*) echo no network; exit 3 ;; esac")
    (_, failed), errors = machine.set_up(status=3)
    assert re.fullmatch(r"Python packages … failed, \d+ s", failed)
    assert errors == "no such hash\nno network\n"


def test_node_packages_that_failed_are_tried_again_alone(machine: Machine) -> None:
    (machine.folder / "npm").write_text(f"{NPM}; exit 4")
    machine.set_up(status=4)
    (machine.folder / "npm").write_text(NPM)
    (_, node), _ = machine.set_up()
    assert node.startswith("Node packages … 1 installed")


def test_where_uv_cannot_install_pip_does(machine: Machine) -> None:
    (machine.folder / "uv").write_text("echo no such index >&2; exit 1")
    (machine.folder / "pip").write_text(f"case $* in *requirements-dev*) {UV} ;; esac")
    lines, errors = machine.set_up()
    assert lines[1].startswith("Python packages … 1 installed")
    assert errors == ""


@pytest.mark.parametrize("ends", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("step", ["uv", "pip", "npm"])
def test_a_set_up_that_was_interrupted_starts_over(machine: Machine, step: str, ends: signal.Signals) -> None:
    """Also one that had brought an earlier set-up up to date: no half package stays."""
    machine.set_up()
    for name in INPUTS:
        (machine.folder / name).write_text("other versions")
    (machine.folder / step).write_text("touch .venv/half begun; exec sleep 600")
    with machine.begin() as process:
        wait_until("the step", (machine.folder / "begun").exists)
        os.killpg(process.pid, ends)
    assert process.returncode != 0
    (machine.folder / "uv").write_text(UV)
    (machine.folder / "pip").write_text("")
    (machine.folder / "npm").write_text(NPM)
    lines, _ = machine.set_up()
    assert len(lines) == (2 if step == "npm" else 3)
    assert (machine.folder / ".venv" / "half").exists() == (step == "npm")
    assert machine.set_up() == ([], "")


def test_what_a_killed_set_up_left_running_ends_first(machine: Machine) -> None:
    (machine.folder / "uv").write_text("touch begun; sleep 1; touch .venv/late")
    with machine.begin() as process:
        wait_until("the step", (machine.folder / "begun").exists)
        process.kill()
    (machine.folder / "uv").write_text(UV)
    # It has brought the Python packages to their end meanwhile.
    (_, waiting, node), _ = machine.set_up()
    assert waiting == "Waiting for another set-up of this folder to end"
    assert node.startswith("Node packages")
    assert (machine.folder / ".venv" / "late").exists()


def test_packages_change_in_an_environment_that_works(machine: Machine) -> None:
    machine.set_up()
    (machine.folder / ".venv" / "kept").touch()
    (machine.folder / "requirements.txt").write_text("other versions")
    lines, _ = machine.set_up()
    assert len(lines) == 2
    assert (machine.folder / ".venv" / "kept").exists()


def test_where_python_is_3_13_a_command_that_gives_3_12_is_named(machine: Machine) -> None:
    (machine.bin / "python3.12").unlink()
    machine.program("python3", ONLY_3_13)
    (first,), errors = machine.set_up(status=2)
    assert first.startswith("Setting up")
    assert "Python 3.11 or 3.12 (found: Python 3.13.5)" in errors
    assert "Debian 13, Ubuntu 25.10, others: apt-get install pipx, then pipx run uv python install 3.12\n" in errors
    # Nothing else is missing.
    assert errors.count("\n  - ") == 1


@pytest.mark.parametrize("home", ["home/.local/bin", "elsewhere"])
def test_a_python_that_uv_has_installed_is_found_off_the_path(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    (machine.bin / "python3.12").unlink()
    machine.program("python3", ONLY_3_13)
    machine.program("python3.12", PYTHON, machine.folder / home)
    variables = {**machine.environment(), "XDG_BIN_HOME": "" if home.startswith("home") else str(machine.folder / home)}
    monkeypatch.setattr(machine, "environment", lambda: variables)
    lines, _ = machine.set_up()
    assert len(lines) == 3


def test_all_that_a_machine_lacks_is_named_at_once(machine: Machine) -> None:
    for name in ("python3.12", "java", "mvn", "git"):
        (machine.bin / name).unlink()
    _, errors = machine.set_up(status=2)
    for line in (
        "Python 3.11 or 3.12 (found: no python3)",
        "a JDK 17 (java not found)",
        "Maven (mvn not found)",
        "git (not found)",
    ):
        assert f"\n  - {line}\n" in errors
    assert "Debian 13: temurin-17-jdk from https://adoptium.net/installation/linux" in errors


def test_another_java_is_named_with_its_version(machine: Machine) -> None:
    machine.program("java", "#!/bin/sh\necho 'openjdk version \"21.0.8\"' >&2\n")
    _, errors = machine.set_up(status=2)
    assert "a JDK 17 (found: Java 21.0.8 as java)" in errors
