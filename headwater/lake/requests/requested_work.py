"""The work that a table's writer does on request, between the commits of its source's changes.

Each kind of request has a function that makes the work of a request. The work is committed part by part, so changes
wait for at most one commit. These commits keep the progress of the last commit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from headwater.errors import UserError
from headwater.lake.base.quarantine import TooManyBadRecords
from headwater.lake.requests.protocol import REFUSED, RUNNING, Requests, Status

if TYPE_CHECKING:
    from headwater.lake.table.writer import TableWriter


class Work(Protocol):
    """The work of a request. A writer that starts makes the work again, and goes on where the last commit ended."""

    def status(self) -> Status:
        """The status of the work, RUNNING or DONE, without a token."""

    def commit_next(self) -> None:
        """Commit the next part, all or none of it.

        UserError and TooManyBadRecords refuse the request. Also raises the exceptions of ``TableWriter.commit``.
        """


MakeWork = Callable[[str, Mapping[str, Any]], Work]
"""Makes the work of a request from its name and details. Raises UserError if the request cannot be served."""


@dataclass(frozen=True)
class _Taken:
    """A request that this writer has read."""

    version: str
    """The version of the request's object."""
    token: str
    """The request's token."""
    work: Work | None
    """The request's work; None if no work is left."""


class RequestedWork:
    """Serves the requests to a table's writer.

    - ``writer``: the table's writer.
    - ``requests``: the requests to this writer.
    - ``kinds``: functions that make the work of a request, by the request's kind.
    - ``poll_seconds``: the least number of seconds between two polls for new requests.
    - ``clock``: returns the seconds since an arbitrary moment.
    - ``removed``: requests of these kinds are removed with all their versions once they are done or refused.
    """

    def __init__(
        self,
        writer: TableWriter,
        requests: Requests,
        kinds: Mapping[str, MakeWork],
        poll_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        removed: Collection[str] = (),
    ) -> None:
        self._removed = removed
        self._writer = writer
        self._requests = requests
        self._kinds = kinds
        self._taken: dict[str, _Taken] = {}
        self._poll_seconds = poll_seconds
        self._clock = clock
        self._polled = -math.inf

    def commit_next(self) -> bool:
        """Answer new requests, and commit the next part of the oldest unfinished one. Returns whether there was one.

        Without a request, it costs at most one listing.
        """
        # Poll for requests, at intervals if there is no work.
        works = any(taken.work is not None for taken in self._taken.values())
        if not works and self._clock() - self._polled < self._poll_seconds:
            return False
        self._polled = self._clock()
        self._taken = {id_: self._take(id_, version) for id_, version in self._requests.listed()}
        for id_, taken in self._taken.items():
            if taken.work is not None:
                if self._commit(id_, taken.work, taken.token) != RUNNING:
                    self._taken[id_] = replace(taken, work=None)
                return True
        return False

    def _take(self, id_: str, version: str) -> _Taken:
        """Read a request and answer it, unless this version of it is known."""
        known = self._taken.get(id_)
        if known is not None and known.version == version:
            return known
        nothing = _Taken(version, "", None)
        # Make the work of the request, unless it is answered already. Answer a request that cannot be served.
        try:
            request = self._requests.get(id_)
            if request is None:
                return nothing
            nothing = replace(nothing, token=request.token)
            answered = self._requests.status(id_)
            if answered is not None and answered.settles(request.token):
                self._remove(id_)  # a crash may have come between the answer and the removal
                return nothing
            kind, _, name = id_.partition("/")
            make = self._kinds.get(kind)
            if make is None:
                raise UserError(f"{id_}: found the kind {kind!r}, expected one of {', '.join(sorted(self._kinds))}")
            work = make(name, request.details)
        except UserError as error:
            self._answer(id_, Status(nothing.token, REFUSED, reason=str(error)))
            return nothing
        return replace(nothing, work=work) if self._report(id_, work, request.token) == RUNNING else nothing

    def _commit(self, id_: str, work: Work, token: str) -> str:
        """Commit the next part, and answer with the new state. Returns it."""
        try:
            work.commit_next()
        except (UserError, TooManyBadRecords) as error:
            self._answer(id_, Status(token, REFUSED, reason=str(error)))
            return REFUSED
        return self._report(id_, work, token)

    def _report(self, id_: str, work: Work, token: str) -> str:
        status = replace(work.status(), token=token)
        self._answer(id_, status)
        return status.state

    def _answer(self, id_: str, status: Status) -> None:
        self._requests.answer(id_, status)
        if status.state != RUNNING:
            self._remove(id_)
        reported = {name: value for name, value in status.document().items() if name != "token"}
        self._writer.services.report(
            {"event": "request", "table": self._writer.contract.table, "request": id_, **reported}
        )

    def _remove(self, id_: str) -> None:
        if id_.partition("/")[0] in self._removed:
            self._requests.remove(id_)
