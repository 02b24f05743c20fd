"""What a table's writer does on request, between the commits of its source's changes.

Each kind of request has a function that makes work of a request. The work is committed a part at a time, so that the
stream waits for one commit at most, and every commit carries the progress of the last one forward.
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
    """What a request asks for. A writer that starts makes it anew, and goes on where the last commit ended."""

    def status(self) -> Status:
        """How far it is, RUNNING or DONE, without a token."""

    def commit_next(self) -> None:
        """Commit the next part, all or none of it. Raises UserError and TooManyBadRecords, which refuse the request,
        and what ``TableWriter.commit`` raises."""


MakeWork = Callable[[str, Mapping[str, Any]], Work]
"""From a request's name and details to its work. Raises UserError where the request cannot be served."""


@dataclass(frozen=True)
class _Taken:
    """A request that this writer has looked at, by its version; ``work`` is None where nothing is left to do."""

    version: str
    token: str
    work: Work | None


class RequestedWork:
    """Serves the requests to ``writer``, whose kinds are the keys of ``kinds``. It looks for new ones at most every
    ``look_seconds``, which ``clock`` counts from any moment. A request of a kind in ``removed`` is removed, with all
    its versions, once it is answered for good."""

    def __init__(
        self,
        writer: TableWriter,
        requests: Requests,
        kinds: Mapping[str, MakeWork],
        look_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        removed: Collection[str] = (),
    ) -> None:
        self._removed = removed
        self._writer = writer
        self._requests = requests
        self._kinds = kinds
        self._taken: dict[str, _Taken] = {}
        self._look_seconds = look_seconds
        self._clock = clock
        self._looked = -math.inf

    def commit_next(self) -> bool:
        """Answer new requests, commit the next part of the oldest one that is not finished, and say whether there was
        one. Costs one listing at most where there is nothing to do."""
        works = any(taken.work is not None for taken in self._taken.values())
        if not works and self._clock() - self._looked < self._look_seconds:
            return False
        self._looked = self._clock()
        self._taken = {id_: self._take(id_, version) for id_, version in self._requests.listed()}
        for id_, taken in self._taken.items():
            if taken.work is not None:
                if self._commit(id_, taken.work, taken.token) != RUNNING:
                    self._taken[id_] = replace(taken, work=None)
                return True
        return False

    def _take(self, id_: str, version: str) -> _Taken:
        """Look at a request and answer it, unless this version of it is known."""
        known = self._taken.get(id_)
        if known is not None and known.version == version:
            return known
        nothing = _Taken(version, "", None)
        try:
            request = self._requests.get(id_)
            if request is None:
                return nothing
            nothing = replace(nothing, token=request.token)
            answered = self._requests.status(id_)
            if answered is not None and answered.settles(request.token):
                self._remove(id_)  # which a crash may have left
                return nothing
            kind, _, name = id_.partition("/")
            make = self._kinds.get(kind)
            if make is None:
                raise UserError(f"{id_}: found the kind {kind!r}, expected one of {', '.join(sorted(self._kinds))}")
            work = make(name, request.details)
        except UserError as error:
            self._answer(id_, Status(nothing.token, REFUSED, reason=str(error)))
            return nothing
        return replace(nothing, work=work) if self._tell(id_, work, request.token) == RUNNING else nothing

    def _commit(self, id_: str, work: Work, token: str) -> str:
        """Commit the next part, report, and return the state."""
        try:
            work.commit_next()
        except (UserError, TooManyBadRecords) as error:
            self._answer(id_, Status(token, REFUSED, reason=str(error)))
            return REFUSED
        return self._tell(id_, work, token)

    def _tell(self, id_: str, work: Work, token: str) -> str:
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
