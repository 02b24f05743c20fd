"""How commands tell what they are at."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

STILL_SECONDS = 10


def say(text: str) -> None:
    """Print a line at once, also into a pipe."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@contextmanager
def step(text: str) -> Iterator[None]:
    """Print what begins, a sign of life every ten seconds, and how long it took."""
    say(f"{text} …")
    started = time.monotonic()
    ended = threading.Event()

    def live() -> None:
        while not ended.wait(STILL_SECONDS):
            say(f"  … {time.monotonic() - started:.0f} s")

    thread = threading.Thread(target=live, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    say(f"  done in {time.monotonic() - started:.1f} s")
