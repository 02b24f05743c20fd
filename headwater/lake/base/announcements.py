"""Events that the writer sends to EventBridge: a table fails, recovers or lacks rows, or its maintenance fails.

The rules of the monitoring stack use the same names of events.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from headwater.lake.base.command_lines import CommandLines

TRIES = 3
"""A failure that may pass by itself is announced when it has occurred this many times in a row."""

FAILING = "Table Failing"
RECOVERED = "Table Recovered"
INCOMPLETE = "Table Incomplete"
UPKEEP_FAILING = "Upkeep Failing"
# Every environment's Glue database has a name with this prefix.
_DATABASES = "headwater_"
_DETAIL_CHARACTERS = 4000
"""An event has at most this many characters of an error's text. EventBridge and SNS take 256 KB in all."""


def event_source(database: str) -> str:
    """The event source of the writers of a Glue database. Each environment has another one."""
    return f"{database}.writer"


class EventBridgeReport:
    """Sends EventBridge the writer's events that an operator must act on.

    - A table fails, or works again. A failure that may pass is sent when it has come three times in a row.
    - A table lacks the changes that came before its first one.
    - A maintenance task of a table has failed three times in a row.

    Several threads may report at the same time.
    """

    def __init__(self, events: Any, database: str) -> None:
        self._events = events
        self._database = database
        self._commands = CommandLines(database.removeprefix(_DATABASES))
        self._lock = threading.Lock()
        self._told: set[str] = set()

    def __call__(self, event: dict[str, Any]) -> None:
        """Handle one event. Only ``failed``, ``recovered``, ``begins late`` and ``upkeep failed`` count."""
        kind = event["event"]
        if kind == "failed":
            passing = event["passes"] and event["attempt"] < TRIES and event["again_in_seconds"] is not None
            with self._lock:
                if passing or event["table"] in self._told:
                    return
                self._told.add(event["table"])
            self._send(FAILING, event["table"], {**event, "next_step": _next_step(event)})
        elif kind == "recovered":
            with self._lock:
                if event["table"] not in self._told:
                    return
                self._told.discard(event["table"])
            self._send(RECOVERED, event["table"], {})
        elif kind == "begins late":
            table, partition = event["table"], event["partition"]
            message = (
                f"The landing objects of {partition} begin with offset {event['first_offset']}: older changes are "
                "gone, and the table lacks them."
            )
            again = self._commands.resync(event["main_table"])
            step = f"Read the source's rows again: {again}. If a resync is already running, wait for its end."
            self._send(INCOMPLETE, table, {"message": message, "next_step": step})
        elif kind == "upkeep failed" and event["attempt"] == TRIES:
            step = "Changes are still written. Do what the message says; the writer tries again when it is due."
            message = f"{event['chore']}: {event['message']}"
            self._send(UPKEEP_FAILING, event["table"], {**event, "message": message, "next_step": step})

    def _send(self, kind: str, table: str, event: dict[str, Any]) -> None:
        detail: dict[str, Any] = {"table": table}
        for name in ("error", "message", "next_step"):
            if name in event:
                detail[name] = _plain(event[name])
        entry = {"Source": event_source(self._database), "DetailType": kind, "Detail": json.dumps(detail)}
        try:
            answer = self._events.put_events(Entries=[entry])
            refused = answer["Entries"][0].get("ErrorMessage") if answer["FailedEntryCount"] else None
        except Exception as error:
            # An error of EventBridge must not stop the other tables. The failing table raises its own alarm.
            refused = f"{type(error).__name__}: {error}"
        if refused is not None:
            sys.stderr.write(f"{kind}: {table}: EventBridge refused this event, so nobody was notified: {refused}\n")


def _plain(text: str) -> str:
    """A text as one line without quotes and backslashes: EventBridge's input transformer does not escape them."""
    return " ".join(text[:_DETAIL_CHARACTERS].split()).replace('"', "'").replace("\\", "/")


def _next_step(event: dict[str, Any]) -> str:
    again = event["again_in_seconds"]
    then = (
        "The job has ended and is started anew." if again is None else "The other tables go on; this one tries again."
    )
    if event["passes"]:
        return f"{then} If it keeps failing, search the writer's log for `failed` and the table's name."
    return f"{then} Do what the message says."
