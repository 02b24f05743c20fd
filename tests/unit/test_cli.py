"""The command line speaks to people."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater import commands
from headwater.cli import app
from headwater.commands import module_of, verbs
from headwater.errors import UserError
from headwater.paths import ROOT

SLOW = {"aws_cdk", "boto3", "botocore", "duckdb", "jsii", "pyarrow", "pyspark"}
"""What takes tenths of a second to import."""


def headwater(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headwater.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_lists_each_verb_with_a_whole_sentence(option: str, tmp_path: Path) -> None:
    done = headwater(option, cwd=tmp_path)
    assert done.returncode == 0
    _, listed = done.stdout.split("Commands:\n")
    assert tuple(re.findall(r"^  ([a-z]+) +[A-Z].*[^.]\.$", listed, re.MULTILINE)) == verbs()


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], [], ["--version"], ["statsu"]], ids=" ".join)
def test_what_needs_no_verb_imports_none(arguments: list[str], tmp_path: Path) -> None:
    program = (
        f"import sys; sys.argv = ['headwater', *{arguments}]; from headwater import cli\n"
        "try: cli.main()\n"
        "finally: sys.stderr.write('\\nImported: ' + ' '.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=False)
    imported = set(done.stderr.partition("\nImported: ")[2].split())
    assert "headwater.cli" in imported
    assert imported & (SLOW | {module_of(verb) for verb in verbs()}) == set()


def test_a_verb_shows_its_own_help_by_either_option(tmp_path: Path) -> None:
    shown, too = (headwater("sbom", option, cwd=tmp_path) for option in ("--help", "-h"))
    assert (shown.returncode, shown.stdout) == (0, too.stdout)
    assert "CycloneDX" in shown.stdout
    assert "--output" in shown.stdout


def test_the_version_is_that_of_the_package(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert headwater("--version", cwd=tmp_path).stdout == f"headwater {project['version']}\n"


def test_an_unknown_verb_is_refused_with_a_close_one(tmp_path: Path) -> None:
    done = headwater("statsu", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.endswith("Error: No such command 'statsu'. Did you mean 'status'?\n")


def without_the_rig(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command without the rig's entry points."""
    program = (
        f"import sys; sys.modules['rig'] = None; sys.argv = ['headwater', *{arguments}]\n"
        "from headwater import cli; cli.main()"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=cwd, check=False)


def test_without_the_rig_its_verbs_alone_are_refused(tmp_path: Path) -> None:
    listed = without_the_rig("--help", cwd=tmp_path)
    assert listed.returncode == 0
    assert "  demo         Not there: rig.commands.demo is missing.\n" in listed.stdout
    refused = without_the_rig("demo", cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.startswith("Error: headwater demo: found ")
    assert refused.stderr.endswith("expected the package of rig.commands.demo\n")
    other = without_the_rig("db", "--help", cwd=tmp_path)
    assert (other.returncode, "capture" in other.stdout, "load" in other.stdout) == (0, True, False)


@pytest.mark.parametrize(("name", "value"), [("status", "other.status"), ("demo", "other.demo")])
def test_a_verb_of_two_packages_is_refused(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint(*point, commands.ENTRY_POINTS) for point in (("demo", "rig.commands.demo"), (name, value))]
    monkeypatch.setattr(commands, "entry_points", lambda **_: points)
    commands._added.cache_clear()
    try:
        with pytest.raises(UserError, match=rf"^headwater {name}: found the verb in .* and in {value}, expected one$"):
            commands.load(name)
    finally:
        commands._added.cache_clear()


def test_the_option_of_contracts_is_refused_with_the_new_way() -> None:
    refused = CliRunner().invoke(app, ["contract", "check", "--contracts", "mine"]).exception
    assert isinstance(refused, UserError)
    assert str(refused).startswith(
        "--contracts: found an option of release 0.2, expected --folder DIR, the lake folder"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("status nowhere", "Got unexpected extra argument(s) (nowhere)"),
        ("status --env dev stage", "Got unexpected extra argument(s) (stage)"),
        ("check dev --nothing", "No such option: --nothing"),
        ("forget dev", "Missing argument 'KEY...'."),
        ("deploy", "Missing option '--env'."),
    ],
)
def test_other_wrong_arguments_keep_their_message(arguments: str, message: str) -> None:
    refused = CliRunner().invoke(app, arguments.split())
    assert (refused.exit_code, refused.output.splitlines()[-1]) == (2, f"Error: {message}")


def test_a_user_error_is_printed_without_a_traceback_and_ends_with_status_2(tmp_path: Path) -> None:
    program = (
        "import sys; from headwater import cli; from headwater.errors import UserError\n"
        "from headwater.packaging import jars\n"
        "def fail(): raise UserError('found [x], expected [y]: do z')\n"
        "jars.verify = fail; sys.argv = ['headwater', 'dev', 'jars', 'verify']; cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert done.stderr == "Error: found [x], expected [y]: do z\n"
