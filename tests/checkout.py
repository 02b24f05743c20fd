"""A copy of this checkout, whose files a test may change, and in which it runs Headwater's commands."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from headwater.paths import BUILD, ROOT

COMMAND_SECONDS = 900
USER_ERROR = 2
QUESTION = b"(y/n)"
# What a deployment of another contract or package writes anew; the rest of build/ is shared.
WRITTEN = {"contracts", "custom_resources.zip", "database", "headwater.zip", "local_aws", "plugins", "stamps", "wheels"}


class Checkout:
    """A copy of this checkout, whose files a test may change, with a local AWS of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.account = folder / "build" / "local_aws" / "account"
        listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        for name in subprocess.check_output(listed, cwd=ROOT, text=True).rstrip("\0").split("\0"):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, folder / name)
        for name in (".venv", "node_modules"):
            (folder / name).symlink_to(ROOT / name)
        (folder / "build").mkdir()
        for part in BUILD.iterdir():
            place = folder / "build" / part.name
            if part.name not in WRITTEN:
                place.symlink_to(part)
            elif part.is_dir():
                shutil.copytree(part, place, symlinks=True, ignore=shutil.ignore_patterns("account*"))
            else:
                shutil.copyfile(part, place)

    def run(self, *command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command with this Python first on the path, as `make` does."""
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment(variables),
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )

    def headwater(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command of Headwater's."""
        return self.run(sys.executable, "-m", "headwater.cli", *arguments, **variables)

    def cdk(self, environment: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run CDK's command line for an environment."""
        command = (self.folder / "node_modules" / ".bin" / "cdk", "--no-notices", "--context", f"env={environment}")
        return self.run(*command, *arguments, **variables)

    def synthesize(self, environment: str) -> None:
        """Do as `make synth` does."""
        succeeded(self.headwater("assets"))
        succeeded(self.cdk(environment, "synth", "--quiet"))

    def deploy(self, environment: str = "local") -> subprocess.CompletedProcess[str]:
        """Do as `make deploy` does for an environment of the local AWS, whose roles' rights hold in S3 too."""
        self.synthesize(environment)
        return self.headwater("deploy", environment, "--check-s3")

    def change(self, file: str, old: str, new: str) -> None:
        """Change a file in one place."""
        path = self.folder / file
        text = path.read_text()
        assert text.count(old) == 1
        path.write_text(text.replace(old, new))

    def deploy_broken(self, file: str, old: str, new: str) -> str:
        """What a deploy says that fails because of a change, which is taken back then."""
        whole = (self.folder / file).read_text()
        self.change(file, old, new)
        done = self.deploy()
        (self.folder / file).write_text(whole)
        assert done.returncode == USER_ERROR
        return " ".join((done.stdout + done.stderr).split())

    def confirm(self, *arguments: str, **variables: str) -> tuple[int, str]:
        """The status and the output of a command of Headwater's on a terminal, at which somebody says yes to all that
        it asks."""
        ours, its = pty.openpty()
        command = [sys.executable, "-m", "headwater.cli", *arguments]
        with subprocess.Popen(
            command, cwd=self.folder, env=self._environment(variables), stdin=its, stdout=its, stderr=its
        ) as process:
            os.close(its)
            said, answered = b"", 0
            # The terminal ends with an error when nobody has it open any more.
            with suppress(OSError):
                while got := os.read(ours, 65536):
                    said += got
                    while answered < said.count(QUESTION):
                        answered += 1
                        os.write(ours, b"y\n")
        os.close(ours)
        return process.returncode, said.decode(errors="replace")

    def _environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "PATH": path, **variables}


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    """What a command said, which has to have succeeded."""
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr
