"""The environment of the local AWS's emulator, under ``build/local_aws``: Python packages and Node packages."""

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from headwater.console import Announce
from headwater.errors import UserError
from headwater.folder_lock import claim
from headwater.log_files import tail
from headwater.packaging import stamps
from headwater.packaging.side_by_side import one_by_one
from headwater.packaging.unfinished import take_place, unfinished
from headwater.paths import BUILD, ROOT

SOURCES = ROOT / "rig" / "emulator"
PYTHON = BUILD / "local_aws" / "venv" / "bin" / "python"
NODE_MODULES = BUILD / "local_aws" / "node_modules"


def build(announce: Announce, build: Path = BUILD) -> None:
    """Install both, each only if its lock has changed or the last installation was interrupted.

    Raises UserError if pip or npm fails, or if a file differs from its lock.
    """
    with claim(build / "local_aws", "another run", wait=True), one_by_one() as beside:
        python = beside.add(_build_python, announce, build)
        _build_node(announce, build)
        python.result()


def _build_python(announce: Announce, build: Path) -> None:
    folder = build / "local_aws" / "venv"
    requirements = SOURCES / "requirements.txt"
    inputs = f"{sys.version}\n{requirements.read_text()}"
    stamp = build / "stamps" / "local_aws-python"
    if folder.exists() and stamps.is_current(stamp, inputs):
        return
    with announce("Setting up the emulator of AWS"), unfinished("emulator", build) as temporary:
        made = temporary / "venv"
        venv.create(made, symlinks=True, with_pip=True)
        # The emulator runs only this environment's Python, so the environment may be moved.
        pip = [str(made / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
        _run([*pip, "--require-hashes", "-r", str(requirements)], made, build / "logs" / "local_aws-pip.log")
        stamp.unlink(missing_ok=True)
        take_place(made, folder)
    stamps.write(stamp, inputs)


def _build_node(announce: Announce, build: Path) -> None:
    folder = build / "local_aws" / "node_modules"
    inputs = (SOURCES / "package-lock.json").read_text()
    stamp = build / "stamps" / "local_aws-node"
    if folder.exists() and stamps.is_current(stamp, inputs):
        return
    with (
        announce("Setting up the packages of the emulator's functions in Node"),
        unfinished("emulator-node", build) as temporary,
    ):
        for name in ("package.json", "package-lock.json"):
            shutil.copyfile(SOURCES / name, temporary / name)
        npm = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        _run(npm, temporary, build / "logs" / "local_aws-npm.log")
        stamp.unlink(missing_ok=True)
        take_place(temporary / "node_modules", folder)
    stamps.write(stamp, inputs)


def _run(command: Sequence[str], folder: Path, log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    path = str(Path(sys.executable).parent)
    with log.open("w") as out:
        environment = {**os.environ, "PATH": f"{path}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
        done = subprocess.run(command, cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise UserError(f"{' '.join(command[:4])} failed. The end of its log, {log}:\n{tail(log)}")
