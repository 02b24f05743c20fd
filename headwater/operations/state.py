"""What is said of an environment: its parts, its tables, its alarms, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

WELL, WRONG, UNASKED, UNWRITTEN = "well", "wrong", "not asked", "nothing written yet"
"""The states of a part: UNASKED if it could not be asked, UNWRITTEN if it is a table without a commit."""


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
    """Something that is wrong: what was found, what to do next, and the page that says more."""

    found: str
    next: str
    runbook: Runbook


@dataclass(frozen=True)
class Part:
    """A part of an environment. ``says`` is a line for people, ``facts`` the same for programs, with the units in the
    names; ``unasked`` is why it could not be asked, and "" where it could. ``unwritten`` is None, unless it is a table
    without a commit whose source has rows, or may have."""

    name: str
    says: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    problems: Sequence[Problem] = ()
    unasked: str = ""
    unwritten: Problem | None = None

    @property
    def state(self) -> str:
        """How it is."""
        if self.problems:
            return WRONG
        return UNWRITTEN if self.unwritten else UNASKED if self.unasked else WELL


@dataclass(frozen=True)
class Alarm:
    """An alarm that rings: its name without the environment's, since when in epoch seconds, what its text says, and
    whether it tells the topic that may wake somebody."""

    name: str
    since: float
    text: str
    urgent: bool
    runbook: str


@dataclass(frozen=True)
class State:
    """The state of an environment at a moment, in epoch seconds: its parts from the sources to the lake, then its
    tables. ``alarms_unasked`` is why the alarms could not be asked."""

    environment: str
    at: float
    parts: Sequence[Part]
    tables: Sequence[Part]
    alarms: Sequence[Alarm]
    alarms_unasked: str = ""

    @property
    def problems(self) -> list[tuple[str, Problem]]:
        """What is wrong, each with its part's name: the first is nearest to the source, and others may follow from
        it."""
        return [(part.name, problem) for part in (*self.parts, *self.tables) for problem in part.problems]

    @property
    def verdict(self) -> str:
        """How it is as a whole."""
        if self.problems or self.alarms:
            return WRONG
        unasked = self.alarms_unasked or any(part.unasked for part in (*self.parts, *self.tables))
        return UNASKED if unasked else UNWRITTEN if self.unwritten else WELL

    @property
    def unwritten(self) -> list[tuple[str, Problem]]:
        """The tables into which nothing has been written yet, although their sources have rows, or may have."""
        return [(table.name, table.unwritten) for table in self.tables if table.unwritten]

    def document(self) -> dict[str, Any]:
        """The same as JSON."""
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
