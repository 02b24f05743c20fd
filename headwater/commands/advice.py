"""Prints advice with commands and paths that work from the current folder.

Messages name a command as ``headwater VERB`` and a page as ``docs/PAGE.md``, which fits Headwater's own clone. In
another lake folder, this module puts the folder's script and the page of the running release in their place.
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
    """Print a message with commands and pages as ``as_typed`` returns them."""
    say(as_typed(text))


def as_typed(text: str) -> str:
    """Return a message whose commands and pages work from the current folder."""
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
