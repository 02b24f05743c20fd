"""The comment on a pull request that shows its effect on one environment, cut to the length that GitHub takes."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

# GitHub takes 65,536 characters; a character outside Unicode's first plane may count twice there.
MOST_CHARACTERS = 60_000
# Characters for the marker, headings, fences and notes around the texts.
_FRAME = 2_000


@dataclass(frozen=True)
class Section:
    """The output of a command, as a section of the comment."""

    title: str
    """The section's title."""
    file: str
    """The file with the whole output in the artifact of the review."""
    text: str | None
    """The output; None if the command has written none."""
    unfolded: bool = True
    """Whether the section is shown unfolded."""


def marker(lake: str, environment: str) -> str:
    """Return the first line of an environment's comment, by which the workflow finds the comment to edit.

    The line names the lake too, because a repository may have several.
    """
    return f"<!-- review: {lake} {environment} -->"


def render(lake: str, environment: str, sections: Iterable[Section], run_url: str, limit: int = MOST_CHARACTERS) -> str:
    """Return the comment on an environment of a lake, of at most ``limit`` characters.

    If the texts are too long, the longest are cut after a line. A note below then says that the whole text is in the
    artifacts of the workflow's run at ``run_url``.
    """
    parts = list(sections)
    room = _room([len(section.text or "") for section in parts], limit - _FRAME)
    lines = [marker(lake, environment), f"### {lake} {environment}"]
    for section, characters in zip(parts, room, strict=True):
        lines += _section(section, characters, f"the artifact of {environment}, of [this run]({run_url})")
    return "\n".join(lines) + "\n"


def _room(lengths: list[int], total: int) -> list[int]:
    """Share out a number of characters: short texts get all that they need, long ones the rest in equal parts."""
    room = [0] * len(lengths)
    left = total
    shortest_first = sorted(range(len(lengths)), key=lambda index: lengths[index])
    for place, index in enumerate(shortest_first):
        room[index] = min(lengths[index], left // (len(lengths) - place))
        left -= room[index]
    return room


def _section(section: Section, characters: int, artifact: str) -> list[str]:
    opening = f"<details{' open' if section.unfolded else ''}><summary>{section.title}</summary>"
    if section.text is None:
        return [opening, "", f"The run ended before this was written: see {artifact}.", "</details>"]
    text = section.text.strip("\n")
    note = []
    if len(text) > characters:
        lines = text.count("\n") + 1
        text = text[: text.rfind("\n", 0, characters) + 1]
        shown = text.count("\n")
        note = ["", f"Cut after {shown:,} of {lines:,} lines. The whole text is `{section.file}` in {artifact}."]
    # A fence is longer than any run of backticks in the text, so that the text cannot close it.
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return [opening, "", fence, text.rstrip("\n"), fence, *note, "</details>"]
