"""What the emulator of the local AWS runs in, under ``build/local_aws``: a Python environment and Node's packages."""

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
from headwater.paths import BUILD, ROOT

SOURCES = ROOT / "local_aws"
PYTHON = BUILD / "local_aws" / "venv" / "bin" / "python"
NODE_MODULES = BUILD / "local_aws" / "node_modules"


def build(announce: Announce, build: Path = BUILD) -> None:
    """Make both, each only when its lock has changed. Raises UserError where pip or npm fails, or a file differs from
    its lock."""
    with claim(build / "local_aws", "another run", wait=True):
        folder = build / "local_aws"
        requirements = SOURCES / "requirements.txt"
        inputs = f"{sys.version}\n{requirements.read_text()}"
        stamp = build / "stamps" / "local_aws-python"
        if not stamps.is_current(stamp, inputs):
            with announce("Setting up the emulator of AWS"):
                venv.create(folder / "venv", clear=True, with_pip=True)
                pip = [str(folder / "venv" / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check"]
                _run([*pip, "--quiet", "--require-hashes", "-r", str(requirements)], folder, build)
            stamps.write(stamp, inputs)
        inputs = (SOURCES / "package-lock.json").read_text()
        stamp = build / "stamps" / "local_aws-node"
        if not stamps.is_current(stamp, inputs):
            with announce("Setting up what its functions in Node need"):
                for name in ("package.json", "package-lock.json"):
                    shutil.copyfile(SOURCES / name, folder / name)
                _run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], folder, build)
            stamps.write(stamp, inputs)


def _run(command: Sequence[str], folder: Path, build: Path) -> None:
    log = build / "logs" / "local_aws.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    path = str(Path(sys.executable).parent)
    with log.open("w") as out:
        environment = {**os.environ, "PATH": f"{path}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
        done = subprocess.run(command, cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise UserError(f"{' '.join(command[:4])} failed. The end of its log, {log}:\n{tail(log)}")
