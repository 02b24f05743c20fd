"""The death of a writer as its store sees it: from some request on, no request of the writer arrives."""

from __future__ import annotations

import threading
from http import HTTPStatus

from tests.aws_recorder import Recorder

_WRITES = ("PUT", "POST", "DELETE")


class S3Cut(Recorder):
    """A proxy in front of S3 that can be cut.

    After a cut, S3 has the state that a program leaves when it is killed between two requests.
    """

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self._left: int | None = None
        self._counting = threading.Lock()
        self.happened = False

    def after(self, writes: int) -> None:
        """Let this many more writes pass, then no request until ``mend``."""
        with self._counting:
            self._left, self.happened = writes, False

    def mend(self) -> None:
        """Let everything pass again."""
        with self._counting:
            self._left = None

    def refusal(self, method: str, path: str) -> HTTPStatus | None:
        with self._counting:
            if self._left is None:
                return None
            if self._left == 0:
                self.happened = True
                # A status after which AWS's clients do not try again.
                return HTTPStatus.FORBIDDEN
            self._left -= method in _WRITES
            return None

    def _keep(self, *_: object) -> None:
        """Keep no request, because a table has many files."""
