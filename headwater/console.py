"""Prints what a command is doing."""

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

Announce = Callable[[str], AbstractContextManager[None]]
"""A context manager that names the work of its ``with`` block: ``announce``, or a silent one in tests."""

_CHECK_SECONDS = 5
_TICK_SECONDS = 1
# The escape sequence by which a terminal erases the rest of the line.
_ERASE = "\x1b[K"


def say(text: str, *, aside: bool = False) -> None:
    """Print a line at once, also into a pipe. ``aside`` prints on standard error.

    On a terminal the line replaces the ticking line of ``announce``.
    """
    stream = sys.stderr if aside else sys.stdout
    stream.write(f"{text}{_ERASE}\n" if stream.isatty() else f"{text}\n")
    stream.flush()


def one_line(text: str) -> str:
    """Return a text in one line, without characters that would steer a terminal."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


@contextmanager
def announce(text: str, *, aside: bool = False) -> Iterator[None]:
    """Print one line when the work of the block ends: its result and its seconds.

    On a terminal the seconds tick until then. Several threads may announce their work at once; they take turns in the
    terminal's last line. ``aside`` prints on standard error, for commands whose result may go into a file.
    """
    stream = sys.stderr if aside else sys.stdout
    started = time.monotonic()
    ended = threading.Event()

    # A thread writes the seconds over the terminal's last line until the block ends.
    def tick() -> None:
        while True:
            line = f"{text} … {time.monotonic() - started:.0f} s"[: shutil.get_terminal_size().columns - 1]
            stream.write(f"{line}{_ERASE}\r")
            stream.flush()
            if ended.wait(_TICK_SECONDS):
                return

    ticker = threading.Thread(target=tick, daemon=True)
    if stream.isatty():
        ticker.start()
    result = "failed"
    try:
        yield
        result = "done"
    finally:
        ended.set()
        if ticker.is_alive():
            ticker.join()
        say(f"{text} … {result}, {time.monotonic() - started:.1f} s", aside=aside)


def keep_running(addresses: Mapping[str, str], check: Callable[[], None] = lambda: None) -> None:
    """Print the address of each part, and return at Ctrl-C.

    ``check`` is called every few seconds. It raises if a part has ended.
    """
    say("Everything keeps running until you press Ctrl-C:")
    for name, address in addresses.items():
        say(f"  {name}: {address}")
    try:
        while not threading.Event().wait(_CHECK_SECONDS):
            check()
    except KeyboardInterrupt:
        say("Stopping")
