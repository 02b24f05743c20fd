"""``headwater dev reference``: write the pages and schemas made from baselines and code."""

from headwater import commands
from headwater.console import say
from headwater.environment import schemas
from headwater.paths import ROOT
from headwater.review import reference_pages
from rig.documentation import command_line, environment_fields, promises, python_api


def reference() -> None:
    """Rewrite the files that are generated from reviewed/ and the code.

    These are five pages of docs/reference, docs/promises.md, and schemas/ for editors.
    """
    pages = {
        **reference_pages.pages(),
        **schemas.files(),
        python_api.PAGE: python_api.page(),
        environment_fields.PAGE: environment_fields.page(),
        promises.PAGE: promises.page(promises.read()),
        command_line.PAGE: command_line.page(map(commands.load, commands.verbs())),
    }
    stale = {path: text for path, text in pages.items() if not path.exists() or path.read_text("utf-8") != text}
    for path, text in stale.items():
        path.write_text(text, encoding="utf-8")
        say(f"wrote {path.relative_to(ROOT)}")
    if not stale:
        say("The pages are up to date")
