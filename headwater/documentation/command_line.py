"""``docs/reference/cli.md``: every command with its arguments and options, as typer tells them."""

import re

import typer
from typer.cli import get_docs_for_click

from headwater.paths import ROOT

PAGE = ROOT / "docs" / "reference" / "cli.md"

_INTRODUCTION = """# The command line
`.venv/bin/headwater` inside the checkout has a verb for each task; `--help` after a verb prints what stands here. Wrong
input ends a command with status 2, and with a message that names what was found and what was expected.
`make reference` writes this page.
"""
_COMMANDS = re.compile(r"^\* `(?P<name>[a-z][a-z-]*)`(?:: .*)?$", re.MULTILINE)
_HELP_OPTION = re.compile(r"^\* `--help`: .*\n", re.MULTILINE)


def page(app: typer.Typer) -> str:
    """Return the page for an app with all of its verbs; it is the same in every checkout."""
    command = typer.main.get_command(app)
    told = get_docs_for_click(obj=command, ctx=typer.Context(command, info_name="headwater"), name="headwater")
    _, *sections = re.split(r"^(?=#{2,} )", told, flags=re.MULTILINE)
    return _INTRODUCTION + "\n" + "\n".join(f"{_section(section)}\n" for section in sections)


def _section(section: str) -> str:
    """A command's section: subcommands as links, paths as in the checkout, and without ``--help``, which all have."""
    anchor = re.sub(r"[^a-z -]", "", section.partition("\n")[0]).strip().replace(" ", "-")
    section = _COMMANDS.sub(rf"* [`\g<name>`](#{anchor}-\g<name>)", section)
    section = _HELP_OPTION.sub("", section).replace("**Options**:\n\n\n", "").replace(f"{ROOT}/", "")
    return section.strip()
