"""The prose of a file: paragraphs of Markdown, docstrings and messages of Python, doc comments of Java."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

_MARKDOWN = MarkdownIt("commonmark").enable("table")
# Calls that show their text to a person, beside exceptions. The keyword ``help`` of any call does so too.
_SHOWN_BY = {"advise", "announce", "print", "say"}
_STREAMS = {"sys.stderr.write", "sys.stdout.write"}
_FIELD = re.compile(r"\{…\}")
"""Stands for the value of an f-string's field."""
_JAVADOC = re.compile(r"/\*\*(.*?)\*/", re.DOTALL)


class Paragraph(NamedTuple):
    """A paragraph, heading, table cell or line of a message, in one line of text."""

    text: str
    """The text without the marks of links and emphasis. A line break of the source is a space."""
    plain: str
    """The text with a capitalized word of the same length in place of each code span and field. So positions are the
    same as in ``text``."""
    lines: tuple[tuple[int, int], ...]
    """The position at which each line of the source begins, with the line's number (from 1)."""

    def line(self, position: int) -> int:
        """The number of the source's line that holds a position of the text."""
        return [number for begin, number in self.lines if begin <= position][-1]


def of_file(path: Path) -> list[Paragraph]:
    """The paragraphs of a file; none if its kind has no prose. Raises SyntaxError if Python cannot parse it."""
    reader = _READERS.get(path.suffix)
    return list(reader(path.read_text())) if reader else []


def _of_markdown(text: str, first_line: int = 1) -> Iterator[Paragraph]:
    for token in _MARKDOWN.parse(text):
        if token.type == "inline" and token.map is not None:
            yield _paragraph(token, token.map[0] + first_line)


def _of_python(text: str) -> Iterator[Paragraph]:
    nodes = list(ast.walk(ast.parse(text)))
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from _of_docstring(node.value.value, node.value.end_lineno or node.lineno)
    for literal in _messages(nodes):
        for line in _shown(literal).splitlines():
            for token in _MARKDOWN.parseInline(line):
                yield _paragraph(token, literal.lineno)


def _of_docstring(text: str, last_line: int) -> Iterator[Paragraph]:
    first, _, others = text.partition("\n")
    return _of_markdown(f"{first.lstrip()}\n{textwrap.dedent(others)}", last_line - text.count("\n"))


def _of_java(text: str) -> Iterator[Paragraph]:
    for comment in _JAVADOC.finditer(text):
        prose = re.sub(r"^[ \t]*\* ?", "", comment[1], flags=re.MULTILINE)
        prose = re.sub(r"\{@(?:code|link|linkplain)\s+([^}]*)\}", r"`\1`", prose).replace("<p>", "")
        # A tag, such as @param, begins a paragraph.
        prose = re.sub(r"^@(?:param (\S+)|\w+) ", r"- \1: ", prose, flags=re.MULTILINE)
        yield from _of_markdown(prose, text.count("\n", 0, comment.start()) + 1)


_READERS: dict[str, Callable[[str], Iterator[Paragraph]]] = {
    ".java": _of_java,
    ".md": _of_markdown,
    ".py": _of_python,
}


def _paragraph(inline: Token, line: int) -> Paragraph:
    """The paragraph of an ``inline`` token, whose source begins in a line."""
    text, plain, lines, place = "", "", [(0, line)], 0
    for child in inline.children or []:
        if child.type in ("softbreak", "hardbreak"):
            line += 1
            text, plain = f"{text} ", f"{plain} "
            lines.append((len(text), line))
        elif child.type == "code_inline":
            # In code, Markdown turns a line break into a space, but the line numbers of the source go on.
            opened = inline.content.find(child.markup, place) + len(child.markup)
            place = inline.content.find(child.markup, opened) + len(child.markup)
            line += inline.content.count("\n", opened, place)
            text += f"`{child.content}`"
            plain += _word(len(plain), len(child.content) + 2)
            lines.append((len(text), line))
        elif child.type in ("text", "image"):
            plain += _FIELD.sub(lambda field: _word(field.start(), len(field[0])), child.content)
            text += child.content
    return Paragraph(text, plain, tuple(lines))


def _word(place: int, length: int) -> str:
    """A capitalized word of this length that no rule knows. Two neighbouring words differ."""
    return "Q" + chr(ord("a") + place % 26) * (length - 1)


def _messages(nodes: Sequence[ast.AST]) -> Iterator[ast.Constant | ast.JoinedStr]:
    """The string literals that a person reads: in exceptions, and in calls that print."""
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    raised = {
        ast.unparse(node.exc.func) for node in nodes if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
    }
    for call in calls:
        name = ast.unparse(call.func)
        shown = [keyword.value for keyword in call.keywords if keyword.arg == "help"]
        if name in raised | _STREAMS or name.rpartition(".")[2] in _SHOWN_BY:
            shown += call.args
        yield from (literal for argument in shown for literal in _literals(argument))


def _literals(node: ast.expr) -> Iterator[ast.Constant | ast.JoinedStr]:
    match node:
        case ast.Constant(value=str()) | ast.JoinedStr():
            yield node
        case ast.BinOp(op=ast.Add()):
            yield from _literals(node.left)
            yield from _literals(node.right)
        case ast.IfExp():
            yield from _literals(node.body)
            yield from _literals(node.orelse)


def _shown(literal: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(literal, ast.Constant):
        return str(literal.value)
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "{…}" for part in literal.values)
