"""Advice as a person can follow it from their current folder.

Messages name a command ``headwater VERB`` and a page ``docs/PAGE.md``, as in Headwater's own clone. Below another lake
folder, the command is that folder's script, and the page lies in the release that runs.
"""

from __future__ import annotations

import os
import re

from headwater.commands import verbs
from headwater.console import say
from headwater.errors import UserError
from headwater.lake_folder import LakeFolder
from headwater.paths import ROOT

_PAGE = re.compile(r"(?<![\w./-])docs/[\w/-]+\.md")


def advise(text: str) -> None:
    """Print a message ``as_typed``."""
    say(as_typed(text))


def as_typed(text: str) -> str:
    """Return a message with its commands and pages as they are found from the current folder."""
    try:
        folder = LakeFolder.find()
    except UserError:
        return text
    if folder.root == ROOT:
        return text
    script = folder.root / "headwater"
    if script.is_file():
        typed = os.path.join(os.path.relpath(folder.root), "headwater ")
        text = re.sub(rf"(?<![\w./-])headwater (?=(?:{'|'.join(verbs())})\b)", lambda _: typed, text)
    return _PAGE.sub(lambda page: str(ROOT / page.group()), text)
