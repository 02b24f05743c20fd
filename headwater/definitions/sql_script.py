"""Splits scripts of PostgreSQL's SQL into statements, as psql does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

# The tokens outside of texts and comments. The regular expression tries them in this order.
_TOKEN = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*)
    | (?P<comment>/\*)
    | (?P<dollar>\$(?:[^\W\d]\w*)?\$)
    | (?P<text>[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*")
    | (?P<word>[^\W\d][\w$]*)
    | (?P<number>\d[\w.]*)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT = re.compile(r"/\*|\*/")
_ROUTINES = ("FUNCTION", "PROCEDURE")
_FIRST_WORDS = 4
"""The number of words, as in CREATE OR REPLACE FUNCTION, that say whether a statement creates a routine."""


class ScriptError(ValueError):
    """The script cannot be split into statements."""

    def __init__(self, line: int, found: str) -> None:
        super().__init__(f"line {line}: found {found}")
        self.line = line
        """The line of the problem, from 1 on."""
        self.found = found
        """The problem, in words that follow "found"."""


@dataclass(frozen=True)
class Statement:
    """A statement without its semicolon and the comments around it."""

    line: int
    """The line of the script in which the statement begins, from 1 on."""
    text: str
    """The statement."""
    words: tuple[str, ...]
    """The statement's words outside of texts and comments, in capitals."""


@dataclass(frozen=True)
class _Token:
    """A token of the script."""

    kind: str
    """The name of the token's group in ``_TOKEN``."""
    start: int
    """The index of the first character."""
    end: int
    """The index after the last character."""


def split(script: str) -> list[Statement]:
    """Split a script into its statements.

    Raises ScriptError for a psql meta-command, for a COPY whose rows come from psql, and for a text or comment without
    an end.
    """
    found: list[Statement] = []
    words: list[str] = []
    first: _Token | None = None
    last = parentheses = blocks = 0
    line, counted = 1, 0
    # A statement ends at a semicolon outside of parentheses and routine bodies, or at the end of the script.
    for token in chain(_tokens(script), [_Token("other", len(script), len(script))]):
        text = script[token.start : token.end]
        if token.kind == "space":
            continue
        if text == "" or (text == ";" and not parentheses and not blocks):
            if first is not None:
                line += script.count("\n", counted, first.start)
                counted = first.start
                if words[:1] == ["COPY"] and {"STDIN", "STDOUT"} & set(words):
                    raise ScriptError(line, "a COPY whose rows psql sends")
                found.append(Statement(line, script[first.start : last], tuple(words)))
            first, words, parentheses, blocks = None, [], 0, 0
            continue
        if text == "\\":
            command = script[token.start :].split("\n", 1)[0].strip()
            raise ScriptError(_line(script, token.start), f"{command}, a psql meta-command")
        if text in "()":
            parentheses = max(0, parentheses + (1 if text == "(" else -1))
        if token.kind == "word":
            words.append(text.upper())
            # A routine's body of the form BEGIN ATOMIC … END has semicolons inside.
            if not parentheses and _creates_routine(words):
                blocks = _depth(blocks, words[-1])
        first, last = first or token, token.end
    return found


def _creates_routine(words: list[str]) -> bool:
    return words[0] == "CREATE" and any(word in _ROUTINES for word in words[1:_FIRST_WORDS])


def _depth(blocks: int, word: str) -> int:
    if word == "BEGIN" or (word == "CASE" and blocks):
        return blocks + 1
    return max(0, blocks - 1) if word == "END" else blocks


def _tokens(script: str) -> Iterator[_Token]:
    at = 0
    while at < len(script):
        match = _TOKEN.match(script, at)
        if match is None or match.lastgroup is None:
            raise AssertionError("the last alternative takes every character")
        # Comments nest, and a dollar-quoted text ends at its tag: for both, search the end by hand.
        kind, start, at = match.lastgroup, at, match.end()
        if kind == "comment":
            kind, at = "space", _end_of_comment(script, start)
        elif kind == "dollar":
            tag = match.group()
            last = script.find(tag, at)
            if last < 0:
                raise ScriptError(_line(script, start), f"a text that begins with {tag} and does not end")
            kind, at = "text", last + len(tag)
        elif match.group() in ("'", '"'):
            raise ScriptError(_line(script, start), f"a text that begins with {match.group()} and does not end")
        yield _Token(kind, start, at)


def _end_of_comment(script: str, start: int) -> int:
    depth = 0
    for match in _COMMENT.finditer(script, start):
        depth += 1 if match.group() == "/*" else -1
        if not depth:
            return match.end()
    raise ScriptError(_line(script, start), "a comment that begins with /* and does not end")


def _line(script: str, at: int) -> int:
    return script.count("\n", 0, at) + 1
