"""One fixed loop. Its time stands beside every figure, so that the figures of different machines compare."""

import time

_ROUNDS = 10_000_000


def seconds() -> float:
    """Run ``for i in range(10_000_000): s += i*i`` in this Python, and return its time. A usual machine takes 0.6 to
    0.9 s."""
    total = 0
    began = time.perf_counter()
    for number in range(_ROUNDS):
        total += number * number
    return time.perf_counter() - began
