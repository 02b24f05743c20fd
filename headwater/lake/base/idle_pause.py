"""How long a writer waits until its next poll after one that found nothing to commit."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_PAUSE_SECONDS = 0.5
"""The pause of the EMR step after work."""


@dataclass(frozen=True)
class IdlePause:
    """The pause between two polls. It doubles with each poll that finds nothing.

    So a change is found within ``longest`` seconds, and sooner while there is work.
    """

    first: float
    """Seconds of the first pause after work."""
    longest: float
    """Seconds of the longest pause."""

    def after(self, idle_polls: int) -> float:
        """The pause in seconds after this many polls in a row (1 or more) that found nothing."""
        pause = self.first
        for _ in range(idle_polls - 1):
            if pause >= self.longest:
                break
            pause *= 2
        return min(pause, self.longest)
