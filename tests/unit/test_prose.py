"""The check of prose finds sentences that are hard to read, and no file may get more of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.paths import ROOT

CLEAN, FOUND, USER_ERROR = 0, 1, 2
NUMBERS = "reviewed/prose.toml"
ROWS = "a row, " * 11 + "and a row"
"""Of 25 words."""
# A sentence that breaks a rule, and one that keeps it.
RULES = {
    "sentence-length": (f"Read {ROWS}.", f"{ROWS.capitalize()}."),
    "what-is": ("The writer deletes what is old.", "What is old?"),
    "that-which": ("It keeps that which is new.", "It keeps the rows which are new."),
    "those-of": ("The counts are those of the batch.", "The batch has these counts."),
    "of-which": ("Read the batch, of which one row is new.", "Read the batch. One of its rows is new."),
    "who-asks": ("The answer goes to who asks.", "The answer goes to the user who asks."),
    "is-told": ("A late row is noted.", "The writer records a late row."),
    "where-so": ("Where that is set, it ends.", "If that is set, it ends. Where does it end, and when?"),
    "archaism": ("It goes on for ever.", "It goes on forever."),
    "lexical_illusions": ("It has the the row.", "It has the row."),
}


class Clone:
    """A clone by git with files of its own, in which the check runs as ``make lint`` runs it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run(["git", "init", "--quiet", str(folder)], check=True)

    def write(self, file: str, *lines: str) -> None:
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([*lines, ""]))

    def check(self, *arguments: str) -> tuple[int, list[str]]:
        """The exit status of the check, and the lines that it says."""
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        done = subprocess.run(
            [sys.executable, "-m", "tools.prose", *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, (done.stdout + done.stderr).splitlines()


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The findings in a page for each rule, whose line 4 breaks it."""
    clone = Clone(tmp_path_factory.mktemp("pages"))
    for rule, (bad, good) in RULES.items():
        clone.write(f"{rule}.md", "# A page", "", good, bad, good)
    status, lines = clone.check(*(f"{rule}.md" for rule in RULES))
    assert status == FOUND
    return lines


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_finds_its_sentence_and_leaves_a_good_one(rule: str, pages: list[str]) -> None:
    found = [line.split(": ")[:2] for line in pages if line.startswith(f"{rule}.md:")]
    assert found == [[f"{rule}.md:4", rule]]


def test_a_finding_begins_with_the_words_of_its_sentence(clone: Clone) -> None:
    clone.write("page.md", "One [link", "to](https://a.example/b) `code", "of two` lines. **Then** `x`", f"and {ROWS}.")
    _, lines = clone.check()
    begin = "Then `x` and a row, a row, a …"
    assert lines[0] == f"page.md:3: sentence-length: {begin} (found 28 words, at most 25)"


def test_docstrings_messages_and_comments_are_read(clone: Clone) -> None:
    clone.write(
        "module.py",
        '"""A module: those of two."""',
        "def f(x):",
        '    """Return a text.',
        "",
        "    A row is noted.",
        '    """',
        "    print(",
        '        f"{x} is told by {x}"',
        "    )",
        '    raise Refused(f"{x}: of which {x}" + " is " "noted" if x else "is told")',
        '    return "is noted"',
        "    # is noted",
    )
    clone.write("Type.java", "class Type {", "    /**", "     * Whether {@code is told} is told.", "     */", "}")
    _, lines = clone.check()
    assert [line.split(": ")[:2] for line in lines if re.match(r"\S+:\d", line)] == [
        ["Type.java:3", "is-told"],
        ["module.py:1", "those-of"],
        ["module.py:5", "is-told"],
        ["module.py:8", "is-told"],
        ["module.py:10", "of-which"],
        ["module.py:10", "is-told"],
        ["module.py:10", "is-told"],
    ]


def test_code_addresses_and_titles_are_no_sentences(clone: Clone) -> None:
    clone.write(
        "page.md",
        "# What is old",
        "",
        "Run `SELECT what is told`, as [a page](https://a.example/those-of) says.",
        "",
        "```",
        "is told",
        "```",
        "",
        "| what is read | where |",
        "|---|---|",
        f"| {'A row. ' * 30} | `is told` |",
    )
    assert clone.check() == (CLEAN, [])


def test_a_number_that_rises_fails_with_the_sentences(clone: Clone) -> None:
    clone.write(NUMBERS, '"page.md" = 1')
    clone.write("page.md", "A row is noted.")
    assert clone.check() == (CLEAN, [])
    clone.write("page.md", "A row is noted.", "", "Another is told.")
    status, (first, second, summary) = clone.check()
    assert status == FOUND
    assert first.startswith("page.md:1: is-told: A row is noted. ")
    assert second.startswith("page.md:3: is-told: Another is told. ")
    assert summary == "page.md: findings: found 2, at most 1: rewrite the new sentences"


def test_a_new_file_may_have_no_finding(clone: Clone) -> None:
    clone.write(NUMBERS, '"page.md" = 1')
    clone.write("page.md", "A row is noted.")
    clone.write("new.md", "A row is noted.")
    status, lines = clone.check()
    assert status == FOUND
    assert lines[-1].startswith("new.md: findings: found 1, at most 0: ")


def test_a_number_that_falls_fails_until_it_is_written(clone: Clone) -> None:
    clone.write(NUMBERS, '"gone.md" = 2', '"page.md" = 3')
    clone.write("page.md", "A row is noted.")
    status, lines = clone.check()
    assert status == FOUND
    assert lines == [
        "gone.md: findings: found 0, expected 2",
        "page.md: findings: found 1, expected 3",
        f"{NUMBERS}: found numbers that have fallen, expected the new ones: "
        "run .venv/bin/python -m tools.prose --update",
    ]
    assert clone.check("--update") == (CLEAN, [])
    assert clone.check() == (CLEAN, [])
    assert '"page.md" = 1\n' in (clone.folder / NUMBERS).read_text()


def test_an_update_raises_no_number_and_a_new_count_does(clone: Clone) -> None:
    clone.write("page.md", "A row is noted.")
    status, lines = clone.check("--update")
    assert status == FOUND
    assert "at most 0" in lines[-1]
    assert clone.check("--anew") == (CLEAN, [])
    assert clone.check() == (CLEAN, [])


def test_the_findings_of_one_file_are_listed_on_request(clone: Clone) -> None:
    clone.write(NUMBERS, '"one.md" = 1')
    for file in ("one.md", "two.md"):
        clone.write(file, "A row is noted.")
    status, (line,) = clone.check("one.md")
    assert status == FOUND
    assert line.startswith("one.md:1: is-told: A row is noted. ")


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        (NUMBERS, '"page.md" = "one"', "page.md: found 'one', expected a number of findings, at least 1"),
        (NUMBERS, "page.md", "found no TOML"),
        ("module.py", "def f(:", "module.py: found no text that can be checked: invalid syntax"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(file: str, text: str, said: str, clone: Clone) -> None:
    clone.write(file, text)
    status, (line,) = clone.check()
    assert status == USER_ERROR
    assert said in line


@pytest.mark.parametrize("page", ["README.md", "KNOWN_LIMITS.md", "CHANGELOG.md", "docs/benchmarks.md"])
def test_a_page_that_everybody_reads_has_no_finding(page: str) -> None:
    assert (ROOT / page).exists()
    assert f'"{page}"' not in (ROOT / NUMBERS).read_text()
