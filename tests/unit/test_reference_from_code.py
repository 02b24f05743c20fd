"""The pages of docs/reference that are made from the code say what the code says."""

import re
from pathlib import Path

import pytest

from headwater import commands
from headwater.environment.defaults import leaves
from headwater.environment.model import names
from headwater.environment.rules import read_environment
from headwater.lake_folder import EXAMPLE
from headwater.paths import ROOT
from rig.documentation import command_line, environment_fields, python_api


@pytest.fixture(scope="module")
def python_page() -> str:
    return python_api.page()


@pytest.fixture(scope="module")
def command_page() -> str:
    return command_line.page(map(commands.load, commands.verbs()))


def test_the_page_of_the_python_api_is_up_to_date(python_page: str) -> None:
    assert python_api.PAGE.read_text() == python_page, f"{python_api.PAGE} is stale: run `make reference`"


def test_the_page_of_the_command_line_is_up_to_date(command_page: str) -> None:
    assert command_line.PAGE.read_text() == command_page, f"{command_line.PAGE} is stale: run `make reference`"


def test_the_page_of_an_environments_fields_is_up_to_date() -> None:
    path = environment_fields.PAGE
    assert path.read_text() == environment_fields.page(), f"{path} is stale: run `make reference`"


def test_the_page_names_each_field_of_every_environment() -> None:
    named = set(re.findall(r"^\| `([^`]+)`", environment_fields.PAGE.read_text(), re.MULTILINE))
    shipped = {
        field
        for name in names(EXAMPLE.config)
        for field, _ in leaves(read_environment(name, EXAMPLE.config).document())
    }
    assert len(shipped) > 70
    assert shipped - named == set()


def test_everything_on_the_page_of_the_python_api_has_a_docstring(python_page: str) -> None:
    entries = re.split(r"^#{2,3} ", python_page, flags=re.MULTILINE)[1:]
    assert len(entries) > len(python_api.MODULES)
    for entry in entries:
        name, *rest = re.sub(r"```.*?```", "", entry, flags=re.DOTALL).strip().splitlines()
        assert "".join(rest), f"{name} has no docstring"


def test_every_verb_has_a_section_without_the_paths_of_a_checkout(command_page: str) -> None:
    assert set(re.findall(r"^## `headwater ([a-z]+)`$", command_page, re.MULTILINE)) == set(commands.verbs())
    assert str(ROOT) not in command_page
    assert str(Path.home()) not in command_page


def test_every_link_on_the_page_of_the_command_line_leads_to_a_heading(command_page: str) -> None:
    headings = {name.replace(" ", "-") for name in re.findall(r"^#+ `(.+)`$", command_page, re.MULTILINE)}
    links = re.findall(r"\]\(#(.+?)\)", command_page)
    assert links
    assert set(links) <= headings
