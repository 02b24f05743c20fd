"""The state of an environment: its parts, its tables, its alarms, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

WELL, WRONG, UNASKED, UNWRITTEN = "well", "wrong", "not asked", "nothing written yet"
"""The states of a part: UNASKED if it could not be checked, UNWRITTEN if it is a table without a commit."""


Runbook = Literal[
    "catalog",
    "connector",
    "consumer-lag",
    "differs",
    "ended",
    "freshness",
    "gone-table",
    "iterator-age",
    "left-out",
    "lost-slot",
    "quarantine",
    "replication",
    "slot-lag",
    "unfit",
    "unread-table",
    "writer",
]
"""A page of ``docs/runbooks``."""


@dataclass(frozen=True)
class Problem:
    """A problem of a part."""

    found: str
    """The fault, in words."""
    next: str
    """What to do next."""
    runbook: Runbook
    """The page that says more."""


@dataclass(frozen=True)
class Part:
    """A part of an environment, and its state."""

    name: str
    """The part's name."""
    says: str = ""
    """The state for people, in one line."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The state for programs. The names of the facts contain their units."""
    problems: Sequence[Problem] = ()
    """The part's problems."""
    unasked: str = ""
    """Why the part could not be checked, or "" if it could."""
    unwritten: Problem | None = None
    """The advice on a table without a commit whose source has rows, or may have rows; None for any other part."""

    @property
    def state(self) -> str:
        """The part's state: ``WELL``, ``WRONG``, ``UNASKED`` or ``UNWRITTEN``."""
        if self.problems:
            return WRONG
        return UNWRITTEN if self.unwritten else UNASKED if self.unasked else WELL


@dataclass(frozen=True)
class Alarm:
    """An alarm that rings."""

    name: str
    """Its name without the environment's."""
    since: float
    """Since when it rings, in epoch seconds."""
    text: str
    """The first part of its description."""
    urgent: bool
    """Whether it notifies the topic that may wake somebody."""
    runbook: str
    """The page that says what to do."""


@dataclass(frozen=True)
class State:
    """The state of an environment at a moment."""

    environment: str
    """The environment's name."""
    at: float
    """The moment, in epoch seconds."""
    parts: Sequence[Part]
    """The parts, from the sources to the lake."""
    tables: Sequence[Part]
    """The tables of the lake."""
    alarms: Sequence[Alarm]
    """The alarms that ring."""
    alarms_unasked: str = ""
    """Why the alarms could not be read, or "" if they could."""

    @property
    def problems(self) -> list[tuple[str, Problem]]:
        """All problems, each with its part's name. The first is nearest to the source; others may follow from it."""
        return [(part.name, problem) for part in (*self.parts, *self.tables) for problem in part.problems]

    @property
    def verdict(self) -> str:
        """The state of the environment as a whole."""
        if self.problems or self.alarms:
            return WRONG
        unasked = self.alarms_unasked or any(part.unasked for part in (*self.parts, *self.tables))
        return UNASKED if unasked else UNWRITTEN if self.unwritten else WELL

    @property
    def unwritten(self) -> list[tuple[str, Problem]]:
        """The tables that no writer has written yet, although their sources have rows, or may have rows."""
        return [(table.name, table.unwritten) for table in self.tables if table.unwritten]

    def document(self) -> dict[str, Any]:
        """The state as JSON."""
        return {
            "environment": self.environment,
            "at": self.at,
            "state": self.verdict,
            "parts": [_document(part) for part in self.parts],
            "tables": [_document(table) for table in self.tables],
            "alarms": [asdict(alarm) for alarm in self.alarms],
            "alarms_unasked": self.alarms_unasked,
        }


def _document(part: Part) -> dict[str, Any]:
    return {"state": part.state, **asdict(part)}
