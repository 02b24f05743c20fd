"""What pre-commit, Dependabot and GitHub read of the repository names what exists."""

import os
import re
import subprocess
import tomllib
from typing import Any

import yaml

from headwater.paths import ROOT


def test_the_hooks_are_those_of_make_lint_and_download_nothing() -> None:
    repositories = _yaml(".pre-commit-config.yaml")["repos"]
    assert [repository["repo"] for repository in repositories] == ["local"]
    hooks = repositories[0]["hooks"]
    assert {hook["language"] for hook in hooks} == {"system"}
    [recipe] = re.findall(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    linted = set(re.findall(r"@\$\(BIN\)/(.*)", recipe))
    assert {hook["entry"].removeprefix(".venv/bin/").replace(" --force-exclude", "") for hook in hooks} == linted


def test_dependabot_looks_where_dependencies_are_named() -> None:
    folders = {
        (update["package-ecosystem"], folder)
        for update in _yaml(".github/dependabot.yml")["updates"]
        for folder in update.get("directories", [update.get("directory")])
    }
    assert folders == {
        ("pip", "/"),
        ("npm", "/"),
        ("maven", "/assets/jars"),
        ("maven", "/connect"),
        ("github-actions", "/"),
    }


def test_what_dependabot_leaves_alone_is_in_use() -> None:
    named = "".join(
        (ROOT / name).read_text()
        for name in ("requirements.in", "requirements-dev.in", "assets/jars/pom.xml", "connect/pom.xml")
    )
    for update in _yaml(".github/dependabot.yml")["updates"]:
        for ignored in update.get("ignore", []):
            group, _, artifact = ignored["dependency-name"].rpartition(":")
            assert group in named, ignored
            assert artifact == "*" or artifact in named, ignored


def test_the_forms_of_issues_ask_for_what_is_needed() -> None:
    for name in ("bug", "wish"):
        form = _yaml(f".github/ISSUE_TEMPLATE/{name}.yaml")
        assert form["name"]
        assert form["description"]
        assert any(field.get("validations", {}).get("required") for field in form["body"])


def test_the_changelog_begins_with_the_version_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = re.findall(r"^## \[(\S+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions == [project["version"], "0.2.0", "0.1.0"]


def _yaml(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


def test_what_make_runs_keeps_the_bytecode_of_what_it_imports() -> None:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "MAKEFLAGS": ""}
    command = ["make", "--silent", "--eval", "shown: ; @env", "shown"]
    shown = subprocess.check_output(command, cwd=ROOT, env=environment, text=True)
    assert "PATH=" in shown
    assert "PYTHONDONTWRITEBYTECODE" not in shown
