"""How long a writer waits before it looks again where it found nothing to commit."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_PAUSE_SECONDS = 0.5
"""The pause of the EMR step after work."""


@dataclass(frozen=True)
class IdlePause:
    """Seconds between two looks: ``first`` after work, then twice as long each time, up to ``longest``. What lands is
    found within ``longest``, and sooner while there is work."""

    first: float
    longest: float

    def after(self, idle_looks: int) -> float:
        """The pause after this many looks in a row (1 or more) that found nothing."""
        pause = self.first
        for _ in range(idle_looks - 1):
            if pause >= self.longest:
                break
            pause *= 2
        return min(pause, self.longest)
