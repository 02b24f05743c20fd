"""``docs/reference/cli.md``: every command with its arguments and options, as typer describes them."""

import re
from collections.abc import Iterable
from typing import Any

import typer
from typer.cli import get_docs_for_click

from headwater.paths import ROOT

PAGE = ROOT / "docs" / "reference" / "cli.md"

_INTRODUCTION = """# The command line
`.venv/bin/headwater` inside the checkout has a verb for each task. `headwater --help` lists the verbs, and `--help` or
`-h` after a verb prints its part of this page. `headwater --version` prints the version. Wrong input ends a command
with status 2, and with a message that names the found and the expected value.
`make reference` writes this page.

`--env ENV` names the environment for every verb. It is an option, because many verbs take a table, a part or a source
as their argument. Some verbs take `--lake` instead.
"""
_COMMANDS = re.compile(r"^\* `(?P<name>[a-z][a-z-]*)`(?:: .*)?$", re.MULTILINE)
_HELP_OPTION = re.compile(r"^\* `--help`: .*\n", re.MULTILINE)


def page(verbs: Iterable[Any]) -> str:
    """Return the page with the commands of all verbs; it is the same in every checkout."""
    told = "".join(
        get_docs_for_click(obj=verb, ctx=typer.Context(verb), indent=1, call_prefix="headwater") for verb in verbs
    )
    _, *sections = re.split(r"^(?=#{2,} )", told, flags=re.MULTILINE)
    return _INTRODUCTION + "\n" + "\n".join(f"{_section(section)}\n" for section in sections)


def _section(section: str) -> str:
    """A command's section: subcommands as links, paths as in the checkout, and no ``--help``."""
    anchor = re.sub(r"[^a-z -]", "", section.partition("\n")[0]).strip().replace(" ", "-")
    section = _COMMANDS.sub(rf"* [`\g<name>`](#{anchor}-\g<name>)", section)
    section = _HELP_OPTION.sub("", section).replace("**Options**:\n\n\n", "").replace(f"{ROOT}/", "")
    return section.strip()
