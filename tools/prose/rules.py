"""The rules on prose: a style of our own, and the checks of proselint that fit technical pages."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate
from typing import NamedTuple

import proselint.checks
from proselint.registry import CheckRegistry
from proselint.registry.checks import Check, CheckResult
from proselint.registry.checks.engine import Fancy, RegexOptions
from proselint.registry.checks.types import ExistenceSimple
from sentencex import get_sentence_boundaries

from tools.prose.texts import Paragraph

MOST_WORDS = 25
"""A sentence has at most this number of words. A code span is one word."""
_FIRST_WORDS = 8
"""A finding shows this many words of its sentence."""
_BETWEEN = "\n|\n"
"""The separator of two paragraphs. No pattern of a check matches across it."""
_FROM_PROSELINT = (
    "archaism",
    "cliches",
    "hedging",
    "industrial_language",
    "lexical_illusions",
    "malapropisms",
    "needless_variants",
    "nonwords",
    "redundancy",
    "spelling",
)
_OURS = "headwater"
_FOUND = "{}"
"""Stands for the words that a check has found, in its message."""
_PATTERNS = Fancy(RegexOptions(case_insensitive=True, multi_line=True))
_WORD = re.compile(r"\S*\w\S*")
_UNIT = re.compile(r"(\d) ([a-z])(?=\. )")

# Building blocks of the patterns.
_NO_QUESTION = r"(?![^.?!\n]*\?)"
_NO_TITLE = r"(?!^[^.\n]*$)"
"""Excludes titles and cells of tables, which have no full stop."""
_BEGINS = rf"(?:{_NO_TITLE}^|(?<=[.:!?] ))"
"""Matches the beginning of a sentence."""
_PASSIVE = r"\b(?:am|is|are|was|were|be|been|being) (?:(?:\w+ly|also|not|only|then) )?"
# Constructions that need a second reading, each with what to write in its place.
_CONSTRUCTIONS = {
    "what-is": (rf"{_NO_TITLE}\bwhat (?:is|are|was|were|has|have|had)\b{_NO_QUESTION}", "name the thing"),
    "that-which": (r"\b(?:that|those) which\b", "name the thing"),
    "those-of": (r"\bthose of\b", "repeat the noun"),
    "of-which": (r"\bof which\b", "begin a sentence, or use “whose”"),
    "who-asks": (
        rf"(?:{_BEGINS}|\b(?:as|by|for|from|of|than|to|with) )who [a-z]+{_NO_QUESTION}",
        "name the person or the part",
    ),
    "is-told": (
        rf"{_PASSIVE}(?:asked|looked (?:after|at|for|into|up)|noted|told)\b",
        "say who reports, records or reads",
    ),
    "where-so": (rf"{_BEGINS}(?-i:Where)\b(?=[^.?!\n]*, ){_NO_QUESTION}", "begin a condition by if, when or unless"),
}


class Finding(NamedTuple):
    """A sentence that breaks a rule."""

    file: str
    """The file's path."""
    line: int
    """The number of the line."""
    rule: str
    """The name of the rule."""
    sentence: str
    """The first words of the sentence."""
    reason: str
    """The words that were found, and how to rewrite them."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}: {self.sentence} ({self.reason})"


def findings(file: str, paragraphs: Sequence[Paragraph]) -> list[Finding]:
    """The findings in the paragraphs of a file, in the order of its lines."""
    plain = _BETWEEN.join(paragraph.plain for paragraph in paragraphs)
    begins = [0, *accumulate(len(paragraph.plain) + len(_BETWEEN) for paragraph in paragraphs)]
    found = []
    for check in _checks():
        for result in check.check_with_flags(plain):
            index = bisect_right(begins, result.span[0]) - 1
            found.append(_finding(file, paragraphs[index], result, begins[index]))
    return sorted(found, key=lambda finding: finding.line)


def _finding(file: str, paragraph: Paragraph, result: CheckResult, begin: int) -> Finding:
    """The finding for a result of a check in a paragraph, which begins at ``begin`` in the checked text."""
    first, last = (position - begin for position in result.span)
    sentence_begin, sentence_end = next(
        (sentence for sentence in _sentences(paragraph.plain) if first < sentence[1]), (0, len(paragraph.text))
    )
    words = paragraph.text[sentence_begin:sentence_end].split()
    return Finding(
        file,
        paragraph.line(first),
        result.check_path.removeprefix(f"{_OURS}."),
        " ".join([*words[:_FIRST_WORDS], "…"] if len(words) > _FIRST_WORDS else words),
        result.message.replace(_FOUND, paragraph.text[first:last].strip()),
    )


@cache
def _checks() -> list[Check]:
    ours = [
        Check(_long_sentences, path=f"{_OURS}.sentence-length"),
        *(
            Check(ExistenceSimple(pattern), _PATTERNS, f"{_OURS}.{name}", f"found “{_FOUND}”: {advice}")
            for name, (pattern, advice) in _CONSTRUCTIONS.items()
        ),
    ]
    registry = CheckRegistry()
    registry.register_many((*ours, *proselint.checks.__register__))
    chosen: list[Check] = registry.get_all_enabled(dict.fromkeys((_OURS, *_FROM_PROSELINT), True))
    return chosen


def _long_sentences(plain: str, check: Check) -> Iterator[CheckResult]:
    begin = 0
    for paragraph in plain.split(_BETWEEN):
        for first, last in _sentences(paragraph):
            count = len(_WORD.findall(paragraph, first, last))
            if count > MOST_WORDS:
                message = f"found {count} words, at most {MOST_WORDS}"
                yield CheckResult(check.path, message, (begin + first, begin + last), None)
        begin += len(paragraph) + len(_BETWEEN)


def _sentences(plain: str) -> list[tuple[int, int]]:
    """The positions at which each sentence of a paragraph begins and ends."""
    # sentencex treats one letter with a full stop as an initial, so "5 s. Then" would not end a sentence.
    text = _UNIT.sub(r"\1q\2", plain)
    return [(sentence["start_index"], sentence["end_index"]) for sentence in get_sentence_boundaries("en", text)]
