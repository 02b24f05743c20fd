"""How a command tells a person what it is doing."""

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

Announce = Callable[[str], AbstractContextManager[None]]
"""Tells a person what the work inside a ``with`` block is: ``announce``, or a silent one in tests."""

_CHECK_SECONDS = 5
_TICK_SECONDS = 1
# What a terminal erases to the right of the text that was just written.
_ERASE = "\x1b[K"


def say(text: str, *, aside: bool = False) -> None:
    """Print a line at once, also into a pipe; ``aside`` on standard error. On a terminal it replaces what ticks."""
    stream = sys.stderr if aside else sys.stdout
    stream.write(f"{text}{_ERASE}\n" if stream.isatty() else f"{text}\n")
    stream.flush()


def one_line(text: str) -> str:
    """A text in one line, without what would steer a terminal."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


@contextmanager
def announce(text: str, *, aside: bool = False) -> Iterator[None]:
    """Print one line when the work ends: whether it is done, and how long it took. On a terminal its seconds tick until
    then. Work of several threads may be announced side by side: it takes turns in the terminal's last line. ``aside``
    is standard error, beside a result that may go into a file."""
    stream = sys.stderr if aside else sys.stdout
    started = time.monotonic()
    ended = threading.Event()

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
    """Print where parts are reached, by their names, and return at Ctrl-C. ``check``, which raises if a part has
    ended, is called now and then."""
    say("Everything keeps running until you press Ctrl-C:")
    for name, address in addresses.items():
        say(f"  {name}: {address}")
    try:
        while not threading.Event().wait(_CHECK_SECONDS):
            check()
    except KeyboardInterrupt:
        say("Stopping")
