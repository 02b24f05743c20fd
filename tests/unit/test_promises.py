"""Every promise is in the list of promises, and `make promises` fails if a test does not see its mutation."""

import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from headwater.paths import ROOT
from headwater.waiting import wait_until
from rig.documentation import promises
from rig.documentation.promises import PAGE, Promise, page, read

RELIABILITY = ROOT / "docs" / "reliability.md"
FEATURES = ROOT / "docs" / "features.md"
NO_TEST = "–"
A_NAME = re.compile(r"`([a-z0-9-]+)`")
A_MODULE = re.compile(r"mutants of `(\w+)`")


def rows_about_faults() -> Iterator[list[str]]:
    """The cells of each row of docs/reliability.md's tables about faults."""
    is_about_faults = False
    for line in RELIABILITY.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if not line.startswith("|") or line.startswith("|---"):
            is_about_faults = is_about_faults and line.startswith("|")
        elif cells[0] == "fault":
            is_about_faults = True
        elif is_about_faults:
            yield cells


def guards() -> dict[str, tuple[set[str], set[str]]]:
    """Return the promises and the mutated modules that each row about a fault names, by the row's first cell."""
    cells = {row[0]: row[-1] for row in rows_about_faults() if row[-1] != NO_TEST}
    return {
        fault: (set(A_NAME.findall(A_MODULE.sub("", cell))), set(A_MODULE.findall(cell)))
        for fault, cell in cells.items()
    }


def promised_features() -> list[str]:
    """Return the promises of docs/features.md: each item of its lists."""
    return [one_line(item) for item in re.findall(r"^- (.*(?:\n  .*)*)", FEATURES.read_text("utf-8"), re.MULTILINE)]


def one_line(text: str) -> str:
    """Return a text with one space in place of each line break and indentation."""
    return re.sub(r"\s+", " ", text)


def has_test(test: str) -> bool:
    """Whether the file of a test exists and has it."""
    path, _, name = test.partition("::")
    name = name.partition("[")[0]
    file = ROOT / path
    if not file.is_file():
        return False
    if file.suffix == ".java":
        return re.search(rf"\bvoid {name}\(", file.read_text("utf-8")) is not None
    return any(function.name == name.rpartition("::")[2] for function, _ in promises.functions(file))


LIST = read()
NAMES = [promise.name for promise in LIST.promises]
TOOL = ROOT / "tools" / "promises.py"
MUTATED = "headwater/lake/base/s3_uri.py"
GUARDED = f"""promises:
  - name: guarded
    promise: An address has a prefix without slashes at its ends.
    test: tests/unit/test_s3_uri.py::test_an_address_is_a_bucket_and_a_prefix_without_slashes_at_its_ends
    file: {MUTATED}
    old: 'OLD'
    new: 'NEW'
"""
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def test_the_page_of_promises_is_up_to_date() -> None:
    assert PAGE.read_text() == page(LIST), f"{PAGE} is stale: run `make reference`"


def test_a_promise_has_a_name_of_its_own() -> None:
    assert sorted(set(NAMES)) == sorted(NAMES)


@pytest.mark.parametrize("promise", LIST.promises, ids=NAMES)
def test_a_mutation_changes_one_line_that_is_there_once(promise: Promise) -> None:
    assert (ROOT / promise.file).read_text().count(promise.old) == 1
    old, new = promise.change
    assert len(old) == 1
    assert len(new) <= 1
    assert not promise.file.startswith("tests/")
    assert [test for test in (promise.test, *promise.also) if not has_test(test)] == []


def test_every_row_about_a_fault_names_what_guards_it() -> None:
    assert len(guards()) > 70
    assert [row for row in rows_about_faults() if len(row) != 3] == []
    assert [fault for fault, (names, modules) in guards().items() if not names and not modules] == []


def test_a_row_names_promises_of_the_list_and_mutated_modules() -> None:
    mutated = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]["only_mutate"]
    known = {Path(file).stem for file in mutated}
    unknown = {fault: (names - set(NAMES), modules - known) for fault, (names, modules) in guards().items()}
    assert {fault: found for fault, found in unknown.items() if any(found)} == {}


def test_every_promised_feature_is_in_the_list() -> None:
    text = one_line(FEATURES.read_text())
    phrases = [phrase for promise in LIST.promises for phrase in promise.features]
    assert {phrase: text.count(phrase) for phrase in phrases if phrase not in text} == {}
    expected = promised_features()
    assert len(expected) > 12
    assert [each for each in expected if not any(phrase in each for phrase in phrases)] == []


def test_every_promise_stands_somewhere() -> None:
    named = set.union(*(names for names, _ in guards().values()))
    assert [each.name for each in LIST.promises if each.name not in named and not each.features] == []


@pytest.mark.parametrize(
    ("marks", "folder", "suite"),
    [
        ("", "unit", "unit"),
        ("", "lake", "test"),
        ("@pytest.mark.drill\n", "lake", "drills"),
        ("pytestmark = pytest.mark.drill\n\n\n", "local", "drills"),
        ("pytestmark = [pytest.mark.slow, pytest.mark.drill]\n\n\n", "unit", "drills"),
        ('@pytest.mark.parametrize("a", [pytest.param(1, marks=pytest.mark.drill)])\n', "lake", "test"),
    ],
)
def test_the_suite_of_a_test_is_told_by_its_markers_and_folder(
    marks: str, folder: str, suite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(promises, "ROOT", tmp_path)
    file = tmp_path / "tests" / folder / "test_a.py"
    file.parent.mkdir(parents=True)
    file.write_text(f"import pytest\n\n\n{marks}def test_b(a: int = 0) -> None:\n    pass\n")
    assert Promise("a", "A.", f"tests/{folder}/test_a.py::test_b", "app.py", "a", "b").suite == suite


def listed(folder: Path, old: str, new: str) -> list[str]:
    """The command that checks a promise with that mutation, which has its copies of the checkout in a folder."""
    path = folder / "promises.yaml"
    path.write_text(GUARDED.replace("OLD", old).replace("NEW", new))
    return [sys.executable, str(TOOL), "--list", str(path), "--folder", str(folder / "copies")]


@pytest.mark.parametrize(
    ("old", "new", "status", "said"),
    [
        ('prefix.strip("/")', "prefix", 0, "guarded: .* failed,.*\nEach of 1 mutations makes its test fail"),
        ('prefix.strip("/")', 'prefix.strip("/").strip("/")', 1, "guarded: .* passed,.*\nNot as it should be: guarded"),
        (
            "a line that is gone",
            "x",
            1,
            "guarded: .* found 'a line that is gone' 0 times.*\nNot as it should be: guarded",
        ),
        ("def split_uri", "def split_url", 1, "guarded: .* did not run to the end .*\nNot as it should be: guarded"),
    ],
    ids=["caught", "survives", "gone", "breaks the test's imports"],
)
def test_a_mutation_that_its_test_does_not_catch_fails(
    tmp_path: Path, old: str, new: str, status: int, said: str
) -> None:
    before = (ROOT / MUTATED).read_bytes()
    command = [*listed(tmp_path, old, new), "--mutations-only"]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, "")
    assert re.search(said, done.stdout), done.stdout
    assert (ROOT / MUTATED).read_bytes() == before
    assert [path.name for path in (tmp_path / "copies").iterdir() if path.is_dir()] == []


def test_a_test_that_fails_without_its_mutation_proves_nothing(tmp_path: Path) -> None:
    command = listed(tmp_path, 'prefix.strip("/")', "prefix")
    path = tmp_path / "promises.yaml"
    path.write_text(path.read_text().replace("slashes_at_its_ends", "a_name_that_is_none"))
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Not as it should be: tests/unit, guarded." in done.stdout


@pytest.mark.parametrize("ends", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_ended_leaves_no_copy_and_no_process(tmp_path: Path, ends: signal.Signals) -> None:
    before = (ROOT / MUTATED).read_bytes()
    command = [*listed(tmp_path, 'prefix.strip("/")', "prefix"), "--mutations-only"]
    log = tmp_path / "copies" / "guarded.log"
    # Whoever runs the tests in the background may ignore Ctrl-C.
    heeds = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, preexec_fn=heeds
    ) as process:
        wait_until("the test to begin", lambda: log.exists() and "test session starts" in log.read_text())
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(ends)
        said, _ = process.communicate()
    assert (process.returncode, said) == (130, "Interrupted\n")
    assert [child for child in children if child.is_running()] == []
    assert (ROOT / MUTATED).read_bytes() == before
    assert list((tmp_path / "copies").iterdir()) == [log]
