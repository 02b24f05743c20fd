"""The comment on a pull request: short parts are whole, a long one is cut and names the place of the rest."""

import re
from pathlib import Path

from typer.testing import CliRunner

from headwater.cli import app
from headwater.review.comment import MOST_CHARACTERS, Section, marker, render

RUN = "https://github.com/o/r/actions/runs/1"
LONG = "".join(f"[~] AWS::S3::Bucket Bucket{number} changes its tags\n" for number in range(5_000))


def test_short_texts_are_shown_whole() -> None:
    sections = [Section("gate", "gate.txt", "dev: nothing\n"), Section("diff", "diff.txt", "a\nb\n")]
    comment = render("example", "dev", sections, RUN)
    assert comment.startswith(f"{marker('example', 'dev')}\n### example dev\n")
    assert "```\ndev: nothing\n```" in comment
    assert "```\na\nb\n```" in comment
    assert "Cut after" not in comment


def test_an_over_long_diff_is_cut_after_a_line_and_points_to_the_artifact() -> None:
    sections = [Section("gate", "gate.txt", "prod: nothing"), Section("diff", "diff.txt", LONG)]
    comment = render("example", "prod", sections, RUN)
    assert MOST_CHARACTERS * 0.9 < len(comment) <= MOST_CHARACTERS
    assert "prod: nothing" in comment
    [_, shown] = re.findall(r"^```\n(.*?)\n```$", comment, re.DOTALL | re.MULTILINE)
    assert LONG.startswith(f"{shown}\n")
    lines = shown.count("\n") + 1
    assert 0 < lines < 5_000
    assert (
        f"Cut after {lines:,} of 5,000 lines. The whole text is `diff.txt` in the artifact of prod, "
        f"of [this run]({RUN})."
    ) in comment


def test_every_fence_and_every_fold_is_closed_however_much_is_cut() -> None:
    sections = [Section("gate", "gate.txt", LONG), Section("cost", "cost.txt", LONG), Section("diff", "diff.txt", LONG)]
    comment = render("example", "prod", sections, RUN, limit=10_000)
    assert len(comment) <= 10_000
    assert comment.count("\n```\n") == 6
    assert comment.count("<details") == comment.count("</details>") == 3
    assert comment.count("Cut after ") == 3


def test_a_first_line_that_is_too_long_leaves_an_empty_fence() -> None:
    comment = render("example", "prod", [Section("diff", "diff.txt", "x" * MOST_CHARACTERS)], RUN)
    assert len(comment) <= MOST_CHARACTERS
    assert "```\n\n```" in comment
    assert "Cut after 0 of 1 lines" in comment


def test_text_cannot_close_its_fence() -> None:
    comment = render("example", "dev", [Section("diff", "diff.txt", "a\n````\nb")], RUN)
    assert "`````\na\n````\nb\n`````" in comment


def test_the_command_reads_what_the_steps_wrote_and_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "gate.txt").write_text("dev: nothing is lost")
    (tmp_path / "diff.txt").write_text(LONG)
    arguments = ["dev", "review", "comment", "--env", "dev", str(tmp_path), "--run-url", RUN]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    assert done.output.startswith(marker("example", "dev"))
    assert "dev: nothing is lost" in done.output
    assert "The run ended before this was written: see the artifact of dev, of [this run]" in done.output
    assert "`diff.txt` in the artifact of dev, of [this run]" in done.output
