"""How a command tells a person what it is doing."""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

Announce = Callable[[str], AbstractContextManager[None]]
"""Tells a person what the work inside a ``with`` block is: ``announce``, or a silent one in tests."""

SIGN_OF_LIFE_SECONDS = 10
_CHECK_SECONDS = 5


def say(text: str) -> None:
    """Print a line at once, also into a pipe."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def one_line(text: str) -> str:
    """A text in one line, without what would steer a terminal."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


@contextmanager
def announce(text: str) -> Iterator[None]:
    """Print what begins, then a sign of life every ten seconds, then how long it took."""
    say(f"{text} …")
    started = time.monotonic()
    ended = threading.Event()

    def tell_the_time() -> None:
        while not ended.wait(SIGN_OF_LIFE_SECONDS):
            say(f"  … {time.monotonic() - started:.0f} s")

    thread = threading.Thread(target=tell_the_time, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    say(f"  done in {time.monotonic() - started:.1f} s")


def keep_running(addresses: Mapping[str, str], check: Callable[[], None] = lambda: None) -> None:
    """Print where parts are reached, by their names, and return at Ctrl-C. ``check``, which raises where a part has
    ended, is called now and then."""
    say("Everything keeps running until you press Ctrl-C:")
    for name, address in addresses.items():
        say(f"  {name}: {address}")
    try:
        while not threading.Event().wait(_CHECK_SECONDS):
            check()
    except KeyboardInterrupt:
        say("Stopping")
