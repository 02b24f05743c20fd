"""A copy of this checkout for a test, which may change its files and run Headwater's commands in it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from rig.local_aws import checkout
from tests import programs

# The local AWS, which does a command's work, is not a descendant of this process.
PATIENCE_SECONDS = 900
USER_ERROR = 2
QUESTION = b"(y/n)"


class Checkout(checkout.Checkout):
    """A copy of this checkout that runs commands and waits for them."""

    def run(self, *command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command with this Python first on the path, as `make` does."""
        return programs.run(command, patience=PATIENCE_SECONDS, cwd=self.folder, env=self.environment(variables))

    def run_headwater(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command of Headwater's."""
        return self.run(*self.headwater(*arguments), **variables)

    def run_cdk(self, environment: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run CDK's command line for an environment."""
        return self.run(*self.cdk(environment, *arguments), **variables)

    def synthesize(self, environment: str, **variables: str) -> None:
        """Do as `make synth` does."""
        succeeded(self.run_headwater("synth", "--env", environment, **variables))

    def deploy(self, environment: str = "local", **variables: str) -> subprocess.CompletedProcess[str]:
        """Do as `make deploy` does for an environment of the local AWS."""
        return self.run_headwater("deploy", "--env", environment, **variables)

    def deploy_broken(self, file: str, old: str, new: str) -> str:
        """The output of a deploy that fails because of a change. The change is taken back afterwards."""
        whole = (self.folder / file).read_text()
        self.change(file, old, new)
        done = self.deploy()
        (self.folder / file).write_text(whole)
        assert done.returncode == USER_ERROR
        return " ".join((done.stdout + done.stderr).split())

    def confirm(self, *arguments: str, **variables: str) -> tuple[int, str]:
        """Run a command of Headwater's on a terminal, and answer yes to each question.

        Returns the exit status and the output.
        """
        environment = self.environment(variables)
        return programs.run_on_terminal(self.headwater(*arguments), QUESTION, cwd=self.folder, env=environment)


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    """The output of a command. Fails if the command has failed."""
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr
