"""One fixed loop. Reports show its time beside every figure, so that figures of different machines compare."""

import time

_ROUNDS = 10_000_000


def seconds() -> float:
    """Run ``for i in range(10_000_000): s += i*i`` in this Python, and return its time in seconds.

    A usual machine takes 0.6 to 0.9 s.
    """
    total = 0
    began = time.perf_counter()
    for number in range(_ROUNDS):
        total += number * number
    return time.perf_counter() - began
