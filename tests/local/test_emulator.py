"""What Headwater's hooks make of ministack, in the environment in which it runs."""

from __future__ import annotations

import json
import subprocess
import textwrap
from typing import Any

import pytest

from rig.local_aws.emulator_packages import PYTHON, SOURCES
from tests import programs

WATCHED = """
class Asked(emulator.OwnHandlers):
    def ask(self, path, question=None):
        raise ValueError(json.dumps([path, question]))

own = Asked("", "")
def made(logical_id, properties, stack):
    return properties["Name"], {}
def updated(physical_id, former, properties, stack):
    return properties.get("Name"), {}
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run code to which the emulator's module is known."""
    whole = f"import json, sys\nsys.path.insert(0, {str(SOURCES)!r})\nimport emulator\n{textwrap.dedent(code)}"
    return programs.run([PYTHON, "-c", whole])


def told(code: str) -> Any:
    """The JSON that the code prints. It must run to its end."""
    done = run(f"{WATCHED}\ntry:\n    print(json.dumps({code}))\nexcept ValueError as error:\n    print(error)")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_ministack_that_is_locked_is_the_one_for_the_hooks() -> None:
    assert run("emulator.check_hooks()").returncode == 0


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ("emulator.VERSION = '0.0.1'", "expected 0.0.1, which the hooks are written for"),
        ("del emulator.s3._get_object_data", "Missing names: ministack.services.s3._get_object_data"),
    ],
)
def test_another_ministack_ends_at_once_and_names_what_is_missing(change: str, word: str) -> None:
    done = run(f"{change}\nemulator.check_hooks()")
    assert done.returncode == 1
    assert word in done.stderr


def test_a_property_that_a_creation_does_not_look_at_is_asked_about() -> None:
    create = "own.watch('A::B', made)('id', {'Name': 'a', 'Colour': 'red'}, 'stack')"
    assert told(create) == ["/unread", {"type": "A::B", "names": ["Colour"]}]
    assert told("own.watch('A::B', made)('id', {'Name': 'a'}, 'stack')") == ["a", {}]


@pytest.mark.parametrize(
    ("former", "now", "asked"),
    [
        ({"Name": "a", "Colour": "red"}, {"Name": "b", "Colour": "red"}, None),
        ({"Name": "a", "Colour": "red"}, {"Name": "a", "Colour": "blue"}, ["Colour"]),
        ({"Name": "a", "Colour": "red"}, {"Name": "a"}, ["Colour"]),
        ({"Name": "a"}, {"Name": "a", "Colour": "red"}, ["Colour"]),
    ],
)
def test_a_property_that_changes_and_that_an_update_does_not_look_at_is_asked_about(
    former: dict[str, str], now: dict[str, str], asked: list[str] | None
) -> None:
    answer = told(f"own.watch_update('A::B', updated)('a', {former}, {now}, 'stack')")
    assert answer == ([now["Name"], {}] if asked is None else ["/unread", {"type": "A::B", "names": asked}])


def test_a_filter_of_a_log_that_nothing_here_counts_by_is_refused() -> None:
    done = run("emulator.metrics._of_a_text(print)({'filterPattern': '{ $.level = 50 }'})")
    assert "FilterPattern: found { $.level = 50 }, expected one text in quotation marks" in done.stderr


def test_a_log_is_searched_for_any_of_several_terms_by_their_letters() -> None:
    found = "emulator.metrics._any_of_terms(lambda pattern: pattern.__eq__)"
    lines = "['an ERROR', 'an error', 'it fails', '?ERROR', 'all is well']"
    assert told(f"[line for line in {lines} if {found}('?ERROR ?fail')(line)]") == ["an ERROR", "it fails", "?ERROR"]
    assert told(f"[line for line in {lines} if {found}('an error')(line)]") == ["an error"]
