"""The command that deploys synthesizes without warnings and credentials, and its output is valid CloudFormation."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.paths import ROOT
from headwater.review.baselines import CDK
from tests.synth.conftest import WITH_BI

if TYPE_CHECKING:
    from tests.synth.conftest import Synthesized

BIN = Path(sys.executable).parent
# W3005: CDK names every dependency, even where a reference implies it. W3010: the environment's file names the zones.
LINT_IGNORES = ("W3005", "W3010")


def test_cfn_lint_finds_nothing(every: "Synthesized") -> None:
    done = lint(every.environment.region, *sorted(every.assembly.glob("*.template.json")))
    assert done.returncode == 0, done.stdout


def test_cfn_lint_finds_nothing_in_the_optional_stacks(synthesize: Callable[[str], "Synthesized"]) -> None:
    with_bi = synthesize(WITH_BI)
    done = lint(with_bi.environment.region, *with_bi.assembly.glob("*-bi.template.json"))
    assert done.returncode == 0, done.stdout


def test_cfn_lint_finds_what_is_wrong(tmp_path: Path) -> None:
    template = tmp_path / "wrong.template.json"
    template.write_text('{"Resources": {"A": {"Type": "AWS::S3::Bucket", "Properties": {"BucketNames": "a"}}}}')
    done = lint("eu-central-1", template)
    assert done.returncode != 0
    assert "BucketNames" in done.stdout


def test_synthesis_warns_of_nothing(every_stack: "Synthesized") -> None:
    messages = [message for stack in every_stack.app.synth().stacks for message in stack.messages]
    assert [(message.id, message.entry.data) for message in messages] == []


def test_the_command_synthesizes_without_credentials(tmp_path: Path) -> None:
    command = [*CDK, "--context", "env=dev", "synth", "--quiet", "--strict"]
    done = subprocess.run(
        [*command, "--no-staging", "--output", str(tmp_path / "cdk.out")],
        cwd=ROOT,
        env={"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    assert [line.split(" ")[0:2] for line in said] == [["Successfully", "synthesized"], ["Supply", "a"]], said


def lint(region: str, *templates: Path) -> subprocess.CompletedProcess[str]:
    command = [str(BIN / "cfn-lint"), "--regions", region, "--ignore-checks", *LINT_IGNORES, "--template"]
    return subprocess.run([*command, *map(str, templates)], capture_output=True, text=True, check=False)
