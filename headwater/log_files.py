"""Logs of the programs that Headwater starts."""

import os
from pathlib import Path

TAIL_LINES = 25


def tail(path: Path, lines: int = TAIL_LINES) -> str:
    """Return a log's last lines out of its last 64 KiB, or a remark that the log is missing or empty."""
    if not path.exists():
        return "(it wrote no log)"
    with path.open("rb") as log:
        log.seek(0, os.SEEK_END)
        log.seek(max(0, log.tell() - 64 * 1024))
        text = log.read().decode(errors="replace")
    return "\n".join(text.splitlines()[-lines:]) or "(its log is empty)"
