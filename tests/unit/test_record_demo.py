"""The recording of the demo: an SVG that shows a run on a terminal, in seconds, and ends with its result."""

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from headwater.paths import ROOT

TOOL = ROOT / "tools" / "record_demo.py"
NAME = "{http://www.w3.org/2000/svg}"
TICKING = [[number, f"Waiting … {number} s\x1b[K\r"] for number in range(60)]


def drawn(folder: Path, typescript: list[list[object]], *options: str) -> str:
    """The SVG of a typescript."""
    recording, svg = folder / "typescript.jsonl", folder / "demo.svg"
    recording.write_text("".join(f"{json.dumps(each)}\n" for each in typescript))
    command = [sys.executable, str(TOOL), "--typescript", str(recording), "--output", str(svg), *options]
    subprocess.run(command, check=True, capture_output=True)
    return svg.read_text()


def at_rest(svg: str) -> list[str]:
    """The lines that the SVG shows where nothing is animated, the title first."""
    hidden = set(re.findall(r"\.(t\d+)\{opacity:0;", svg))
    root = ElementTree.fromstring(svg)  # noqa: S314  # made by the test
    lines = [each for each in root.iter(f"{NAME}g") if each.get("class", "").startswith("t")]
    return ["".join(each.itertext()) for each in lines if each.get("class") not in hidden]


def test_a_line_that_ticks_is_shown_once_when_it_is_done(tmp_path: Path) -> None:
    svg = drawn(
        tmp_path, [*TICKING, [60, "Waiting … done, 60.0 s\x1b[K\r\n"], [61, "The lake equals its sources.\r\n"]]
    )
    assert at_rest(svg) == ["Waiting … done, 60.0 s", "The lake equals its sources."]
    assert "Waiting … 30 s" in svg


def test_a_long_wait_is_seconds_and_the_recording_loops(tmp_path: Path) -> None:
    svg = drawn(tmp_path, [[0, "first\r\n"], [3600, "last\r\n"]], "--seconds", "5")
    assert set(re.findall(r"([\d.]+)s step-end infinite", svg)) == {"11.00"}
    assert "<script" not in svg
    assert "prefers-reduced-motion" in svg


def test_the_last_frame_shows_the_end_of_a_long_output(tmp_path: Path) -> None:
    svg = drawn(tmp_path, [[number, f"line {number}\r\n"] for number in range(30)], "--rows", "10")
    assert ".s{transform:translateY(-380px);" in svg


def test_colours_and_weights_of_the_terminal_are_kept(tmp_path: Path) -> None:
    svg = drawn(tmp_path, [[0, "\x1b[1;31m7\x1b[0m <missing>\r\n"]])
    assert re.search(r'class="b" style="fill:#[0-9a-f]{6}">7</text>', svg)
    assert ">&lt;missing&gt;</text>" in svg


def test_a_line_wider_than_the_terminal_is_folded(tmp_path: Path) -> None:
    assert at_rest(drawn(tmp_path, [[0, "abcdefgh\r\n"]], "--columns", "5")) == ["abcde", "fgh"]


def test_a_command_is_recorded_on_a_terminal_with_its_status(tmp_path: Path) -> None:
    program = "import sys; print(sys.stdout.isatty(), 'grüße'); sys.exit(3)"
    svg, kept = tmp_path / "demo.svg", tmp_path / "kept.jsonl"
    command = [
        sys.executable,
        str(TOOL),
        "--output",
        str(svg),
        "--keep",
        str(kept),
        "--",
        sys.executable,
        "-c",
        program,
    ]
    done = subprocess.run(command, check=False, capture_output=True)
    assert done.returncode == 3
    assert at_rest(svg.read_text()) == ["True grüße"]
    assert "".join(text for _, text in map(json.loads, kept.read_text().splitlines())) == "True grüße\r\n"
