"""Run a command on a terminal and write what it prints as an animated SVG, which loops.

    python tools/record_demo.py --output docs/images/demo.svg -- .venv/bin/headwater demo

Waits are shortened. The last frame shows the end of the output; a viewer that does not animate shows it alone.
``--typescript`` draws an earlier recording again, without a run.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fcntl import ioctl
from itertools import pairwise
from pathlib import Path
from xml.sax.saxutils import escape

from rich.ansi import AnsiDecoder
from rich.color import ColorType
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

CHARACTER, LINE, FONT = 8.4, 19.0, 14
"""Width and height of a character's cell, and the size of the font, in pixels."""
MARGIN, BAR = 16.0, 34.0
"""Around the text, and for the title above it, in pixels."""
HELD_SECONDS = 6.0
"""How long the last frame stays before the recording begins again."""
TICK_SECONDS = 0.4
"""A line that is overwritten in place is shown anew at most so often."""
_BACKGROUND, _TEXT, _FAINT = "#161b22", "#d6dde6", "#8b949e"
_OTHER_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]")


@dataclass(frozen=True)
class Output:
    """A piece of what a command printed: ``seconds`` after its start, ``text``, with the terminal's codes."""

    seconds: float
    text: str


@dataclass(frozen=True)
class Shown:
    """A line of the terminal."""

    row: int
    """Counted from the first line of the output."""
    text: Text
    since: float
    """When it appears, in seconds of the recording."""
    until: float | None
    """When another text takes its place; None if it stays."""


def main(arguments: Sequence[str]) -> int:
    """Record or read a typescript, and draw it. Returns the command's exit status."""
    options = _options(arguments)
    status = 0
    if options.typescript:
        outputs = read(options.typescript)
    else:
        outputs, status = record(options.command, options.columns, options.rows)
        if options.keep:
            options.keep.write_text("".join(f"{json.dumps([each.seconds, each.text])}\n" for each in outputs))
    shown = lines(outputs, options.columns, options.seconds)
    title = options.title or " ".join(options.command)
    options.output.write_text(draw(shown, title, options.columns, options.rows), encoding="utf-8")
    sys.stdout.write(f"{options.output}: {options.output.stat().st_size:,} bytes, {len(shown)} lines\n")
    return status


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/record_demo.py", description=__doc__.partition("\n")[0])
    parser.add_argument("command", nargs="*", help="the command and its arguments, after --")
    parser.add_argument("--output", type=Path, required=True, help="the SVG file to write")
    parser.add_argument("--typescript", type=Path, help="draw this recording: lines of [seconds, text]")
    parser.add_argument("--keep", type=Path, help="keep the recording here, for --typescript")
    parser.add_argument("--title", help="what stands above the text; the command if it is left out")
    parser.add_argument("--columns", type=int, default=124, help="the terminal's width (124)")
    parser.add_argument("--rows", type=int, default=22, help="how many lines are shown at once (22)")
    parser.add_argument("--seconds", type=float, default=14, help="how long the recording is, without its end (14)")
    options = parser.parse_args(arguments)
    if bool(options.command) == bool(options.typescript):
        parser.error("found a command and --typescript, or neither; expected one of them")
    return options


def read(path: Path) -> list[Output]:
    """Read a typescript: a JSON array of seconds and text in each line."""
    return [Output(float(seconds), text) for seconds, text in map(json.loads, path.read_text("utf-8").splitlines())]


def record(command: Sequence[str], columns: int, rows: int) -> tuple[list[Output], int]:
    """Run a command on a terminal of that size, show its output, and return it with the exit status."""
    ours, its = pty.openpty()
    ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": str(rows)}
    outputs: list[Output] = []
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=environment) as process:
        os.close(its)
        began, waiting = time.monotonic(), b""
        while piece := _piece(ours):
            sys.stdout.buffer.write(piece)
            sys.stdout.flush()
            # A character of several bytes may come in two pieces.
            text, waiting = _decoded(waiting + piece)
            outputs.append(Output(round(time.monotonic() - began, 3), text))
        status = process.wait()
    os.close(ours)
    return outputs, status


def _piece(terminal: int) -> bytes:
    """The next output, or none when the command has closed its terminal, which Linux reports as an error."""
    try:
        return os.read(terminal, 1 << 16)
    except OSError:
        return b""


def _decoded(data: bytes) -> tuple[str, bytes]:
    """The text of all whole characters, and the bytes of one that is not complete."""
    for held in range(4):
        try:
            return data[: len(data) - held].decode(), data[len(data) - held :]
        except UnicodeDecodeError:
            continue
    return data.decode(errors="replace"), b""


def lines(outputs: Iterable[Output], columns: int, seconds: float) -> list[Shown]:
    """The lines that outputs make, with times that end after ``seconds``. Text behind a carriage return takes the place
    of its line."""
    frames = list(_frames(outputs))
    at = _shortened([frame.seconds for frame in frames], seconds)
    decoder = AnsiDecoder()
    shown: list[Shown] = []
    row, ticked = 0, -TICK_SECONDS
    waiting: list[Shown] = []
    for since, frame in zip(at, frames, strict=True):
        is_whole = frame.text.endswith("\n")
        if not is_whole and since - ticked < TICK_SECONDS:
            continue
        ticked = since
        shown += [Shown(each.row, each.text, each.since, since) for each in waiting]
        texts = _folded(decoder.decode_line(_OTHER_CODES.sub("", frame.text.rstrip("\n"))), columns)
        waiting = [Shown(row + number, text, since, None) for number, text in enumerate(texts)]
        if is_whole:
            shown += waiting
            row += len(texts)
            waiting = []
    return [*shown, *waiting]


def _frames(outputs: Iterable[Output]) -> Iterator[Output]:
    """Each line when it is whole, with its line feed, and each text that a carriage return gives up, without."""
    line = ""
    for output in outputs:
        for part in re.split(r"(\r\n|\n|\r)", output.text):
            if part in ("\n", "\r\n"):
                yield Output(output.seconds, f"{line}\n")
                line = ""
            elif part == "\r":
                if line:
                    yield Output(output.seconds, line)
                line = ""
            else:
                line += part
    if line:
        yield Output(output.seconds, f"{line}\n")


def _shortened(times: Sequence[float], seconds: float) -> list[float]:
    """The times of a recording that lasts ``seconds``: a wait counts by its square root, so that long ones shrink
    most."""
    counted = [0.0]
    for before, after in pairwise(times):
        counted.append(counted[-1] + max(0.0, after - before) ** 0.5)
    return [each * seconds / (counted[-1] or 1.0) for each in counted]


def _folded(text: Text, columns: int) -> list[Text]:
    """The lines that a terminal makes of a text that is wider than it."""
    return list(text.divide(range(columns, max(text.cell_len, 1), columns))) or [Text("")]


def draw(shown: Sequence[Shown], title: str, columns: int, rows: int) -> str:
    """An SVG of the lines. Without animation it shows those that stay, and of them the last ``rows``."""
    begins = sorted({each.since for each in shown})
    ends = begins[-1] + HELD_SECONDS
    width, height = columns * CHARACTER + 2 * MARGIN, rows * LINE + BAR + MARGIN
    console = Console(width=columns, color_system="truecolor", force_terminal=True)
    windows = sorted({(each.since, each.until) for each in shown}, key=lambda window: (window[0], window[1] or ends))
    names = {window: f"t{number}" for number, window in enumerate(windows)}
    rules = [rule for window, name in names.items() for rule in _visible(name, window, ends)]
    last, moves = _moves(shown, rows)
    drawn = [
        f'<g class="{names[each.since, each.until]}">{_line(each, console)}</g>' for each in shown if each.text.plain
    ]
    dots = "".join(f'<circle cx="{MARGIN + 6 + 18 * number}" cy="{BAR / 2}" r="5.5"/>' for number in range(3))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">',
            f"<title>{escape(title)}</title>",
            "<style>",
            f"text{{font:{FONT}px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
            f"fill:{_TEXT};white-space:pre}}",
            f".b{{font-weight:bold}}.i{{font-style:italic}}.f{{opacity:.7}}.h{{fill:{_FAINT}}}",
            *rules,
            *_scrolled(last, moves, ends),
            "@media (prefers-reduced-motion:reduce){g{animation:none!important}}",
            "</style>",
            f'<rect width="{width:g}" height="{height:g}" rx="8" fill="{_BACKGROUND}"/>',
            f'<g fill="{_FAINT}" opacity=".5">{dots}</g>',
            f'<text x="{width / 2:g}" y="{BAR / 2 + 5:g}" text-anchor="middle" class="h">{escape(title)}</text>',
            f'<svg y="{BAR:g}" width="{width:g}" height="{rows * LINE:g}"><g class="s">',
            *drawn,
            "</g></svg>",
            "</svg>",
            "",
        ]
    )


def _visible(name: str, window: tuple[float, float | None], ends: float) -> Iterator[str]:
    """The rules by which lines are seen in a window of time. Without animation, those are seen that stay."""
    since, until = window
    if until is None and since == 0:
        return
    steps = [(0.0, 0), (since, 1), *([] if until is None else [(until, 0)])]
    frames = "".join(f"{100 * at / ends:.2f}%{{opacity:{opacity}}}" for at, opacity in steps)
    yield f".{name}{{opacity:{int(until is None)};animation:{name} {ends:.2f}s step-end infinite}}"
    yield f"@keyframes {name}{{{frames}100%{{opacity:{int(until is None)}}}}}"


def _moves(shown: Sequence[Shown], rows: int) -> tuple[float, Mapping[float, float]]:
    """By how much the text is moved up at last, and from when by how much, in pixels and seconds."""
    moves: dict[float, float] = {}
    top = 0
    for each in sorted(shown, key=lambda line: line.since):
        if each.row - rows + 1 > top:
            top = each.row - rows + 1
            moves[each.since] = top * LINE
    return top * LINE, moves


def _scrolled(last: float, moves: Mapping[float, float], ends: float) -> Iterator[str]:
    if not moves:
        return
    frames = "".join(f"{100 * at / ends:.2f}%{{transform:translateY({-by:g}px)}}" for at, by in moves.items())
    yield f".s{{transform:translateY({-last:g}px);animation:s {ends:.2f}s step-end infinite}}"
    yield f"@keyframes s{{0%{{transform:none}}{frames}100%{{transform:translateY({-last:g}px)}}}}"


def _line(line: Shown, console: Console) -> str:
    """The text of a line, a piece for each style. Its length is given, so that columns stand in any font."""
    pieces, column = [], 0
    for segment in Segment.simplify(line.text.render(console)):
        text = segment.text
        if text.strip():
            begin = len(text) - len(text.lstrip())
            inner = text.strip()
            x, y = MARGIN + (column + begin) * CHARACTER, line.row * LINE + FONT
            pieces.append(
                f'<text x="{x:g}" y="{y:g}" textLength="{len(inner) * CHARACTER:g}"'
                f"{_look(segment.style or Style())}>{escape(inner)}</text>"
            )
        column += len(text)
    return "".join(pieces)


def _look(style: Style) -> str:
    classes = "".join(
        name for name, is_so in (("b ", style.bold), ("i ", style.italic), ("f ", style.dim)) if is_so
    ).strip()
    color = style.color
    fill = "" if color is None or color.type is ColorType.DEFAULT else color.get_truecolor(DIMMED_MONOKAI).hex
    return (f' class="{classes}"' if classes else "") + (f' style="fill:{fill}"' if fill else "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
