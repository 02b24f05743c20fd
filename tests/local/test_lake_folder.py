"""A lake folder with a real clone of Headwater behind it, and with contracts of a real PostgreSQL."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace
from typer.testing import CliRunner

from headwater.cli import app
from headwater.contract.reading import read_contracts
from headwater.lake_folder import EXAMPLE, FILE, LakeFolder
from headwater.paths import ROOT
from rig.local.postgresql_server import PostgresqlServer
from tests import programs
from tests.command_line import understood
from tests.former_releases import SECOND, former_checkout

PATIENCE_SECONDS = 900
ONE_SCREEN = 24
CLOSED = "http://127.0.0.1:9"
"""Where no proxy is."""


def git(folder: Path, *arguments: str) -> str:
    own = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(folder)]
    return subprocess.run([*own, *arguments], check=True, capture_output=True, text=True).stdout.strip()


def test_a_lake_folder_has_a_contract_of_each_table(postgres: PostgresqlServer, tmp_path: Path) -> None:
    with postgres.connect("postgres") as connection:
        connection.execute("CREATE SCHEMA rental")
        connection.execute("CREATE TABLE rental.film (film_id int PRIMARY KEY, title text)")
        connection.execute("CREATE TABLE rental.note (text text)")
    at = ["--host", postgres.host, "--port", str(postgres.port), "--database", "postgres", "--user", postgres.superuser]
    words = ["init", str(tmp_path / "lake"), "--schema", "rental", *at]
    done = CliRunner().invoke(app, words, env={"HEADWATER_DB_PASSWORD": postgres.password})
    # A table without a key cannot be captured. The others have their contracts.
    assert done.exit_code == 1, done.output
    assert "rental.note" in done.output
    folder = LakeFolder.find(str(tmp_path / "lake"))
    assert [contract.table for contract in read_contracts(folder.contracts)] == ["film"]
    given = " ".join(at[:6])
    for verb in (f"db capture {given} --user {postgres.superuser}", f"replicate {given}"):
        assert f"  ./headwater {verb} " in done.output
        assert f"./headwater {verb} " in (folder.root / "README.md").read_text()
        understood(*verb.split())


@pytest.fixture
def variables(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The variables of a machine that has nothing of Headwater, and the place of its cache."""
    yield {**programs.without_environment(), "HEADWATER_HOME": str(tmp_path / "cache")}
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)


@pytest.mark.drill
def test_a_lake_folder_fetches_upgrades_and_synthesizes(tmp_path: Path, variables: dict[str, str]) -> None:
    before = git(ROOT, "status", "--porcelain")
    clone, lake = tmp_path / "clone", tmp_path / "data" / "lake"
    git(tmp_path, "clone", "--quiet", str(ROOT), str(clone))
    git(clone, "checkout", "--quiet", "--detach", git(ROOT, "rev-parse", "HEAD"))
    lake.parent.mkdir()
    git(lake.parent, "init", "--quiet")
    words = ["init", str(lake), "--example", "--repository", str(clone)]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    # One environment is enough, and takes a third of the time.
    for environment in ("stage", "prod"):
        (lake / "config" / f"{environment}.yaml").unlink()

    def run(*command: str, **more: str) -> str:
        done = programs.run(command, patience=PATIENCE_SECONDS, cwd=lake, env={**variables, **more})
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    assert run("./headwater", "--version").startswith("headwater ")

    # Another release, and a file of a former one, whose single node is on Spot.
    former = former_checkout(SECOND, tmp_path / "former") / "config" / "dev.yaml"
    shutil.copyfile(former, lake / "config" / "dev.yaml")
    git(clone, "commit", "--quiet", "--allow-empty", "--message", "another release")
    git(clone, "tag", f"v{version('headwater')}")
    settings = LakeFolder(lake).settings
    (lake / FILE).write_text(replace(settings, release=version("headwater")).text())
    said = run("./headwater", "upgrade")
    assert "Wrote config/dev.yaml\n" in said
    assert "dev: reviewed/baselines has no baselines of dev" in said
    assert LakeFolder(lake).settings.commit == git(clone, "rev-parse", "HEAD")
    run("./headwater", "baselines")
    converted = (lake / "config" / "dev.yaml").read_text()
    said = run("./headwater", "upgrade")
    assert "All files fit this release already" in said
    assert "dev: no difference" in said
    shutil.copyfile(EXAMPLE.config / "dev.yaml", lake / "config" / "dev.yaml")
    said = run("./headwater", "upgrade")
    assert "emr.market: spot -> on-demand" in said
    assert said.count("\n") <= ONE_SCREEN
    assert said.endswith("The whole difference: build/upgrade.txt\n")
    assert "AWS::EMR::Cluster" in (lake / "build" / "upgrade.txt").read_text()
    (lake / "config" / "dev.yaml").write_text(converted)
    git(lake.parent, "commit", "--quiet", "--allow-empty", "--message", "before the lake")
    without = git(lake.parent, "rev-parse", "HEAD")
    git(lake.parent, "add", ".")
    git(lake.parent, "commit", "--quiet", "--message", "the lake")

    # What was fetched runs without a network and without the repository.
    clone.rename(tmp_path / "gone")
    offline = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), CLOSED)
    assert "valid contracts: 4" in run("./headwater", "contract", "check", **offline)
    run("./headwater", "synth", "--env", "dev", **offline)

    # The workflow does on a pull request what it says.
    [file] = (lake.parent / ".github" / "workflows").iterdir()
    of_runner = {"RUN_URL": "https://example.org/run", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}
    steps = [step for step in yaml.safe_load(file.read_text())["jobs"]["review"]["steps"] if "run" in step]
    for step in steps:
        if "if" not in step:
            run("bash", "-e", "-c", step["run"], **offline, **of_runner)
    head = git(lake.parent, "rev-parse", "HEAD")
    for base, said in ((head, "dev: no difference"), (without, "Stack connect is new")):
        shutil.rmtree(lake / "build" / "base", ignore_errors=True)
        shutil.rmtree(lake / "build" / "review", ignore_errors=True)
        for step in steps:
            if "if" in step:
                run("bash", "-e", "-c", step["run"], **offline, **of_runner, BASE=base)
        [comment] = (path.read_text() for path in (lake / "build" / "review").rglob("comment.md"))
        assert comment.startswith("<!-- review: lake dev -->\n")
        assert said in comment
        assert "The run ended before" not in comment

    # Git sees nothing of what was built, in the lake, in the cache and in the checkout.
    assert git(lake.parent, "status", "--porcelain") == ""
    for checkout in (tmp_path / "cache").glob("[0-9a-f]*"):
        assert git(checkout, "status", "--porcelain") == ""
    assert git(ROOT, "status", "--porcelain") == before
