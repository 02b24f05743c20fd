"""One writer per table: a lease object in S3, taken and renewed by conditional writes.

The job takes the lease before it makes a Hudi client: a second client's clean-up would roll back the first one's open
commit. It checks the lease before every commit.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from headwater.lake.base.s3_uri import split_uri
from headwater.lake.base.s3_versions import met_another

LEASE_SECONDS = 60.0
"""A lease expires after this many seconds, by default. It is renewed when half of them have passed."""
_CLOCKS = 1.1
"""A writer waits this many lifetimes for another writer's lease, because the other writer's clock may be ahead."""


class LeaseLost(RuntimeError):
    """Another writer holds the table, or this one let its lease run out."""


class Lease:
    """A lease on a table: an object in S3 with its owner and the time when it expires.

    - ``uri``: the object's ``s3://`` address.
    - ``ttl``: seconds until the lease expires. The clocks of two writers must differ by much less.
    - ``clock``: gives seconds since 1970.
    """

    def __init__(
        self, s3: Any, uri: str, owner: str, ttl: float = LEASE_SECONDS, clock: Callable[[], float] = time.time
    ) -> None:
        self._s3 = s3
        self._uri = uri
        self._bucket, self._key = split_uri(uri)
        self._owner = owner
        self._token = uuid.uuid4().hex
        self._ttl = ttl
        self._clock = clock
        self._etag: str | None = None
        self._expires = 0.0
        self._guard = threading.Lock()
        self._stop = threading.Event()
        self._renewer: threading.Thread | None = None

    def acquire(self, wait: float, stop: threading.Event) -> None:
        """Take the lease, and renew it in the background from then on.

        Waits until another's lease has expired, at most ``wait`` seconds, and not after ``stop`` is set. Raises
        LeaseLost with the holder's name.
        """
        deadline = time.monotonic() + wait
        while (holder := self._try()) is not None:
            if time.monotonic() >= deadline or stop.wait(0.5):
                raise LeaseLost(
                    f"{self._uri}: held by {holder}. A table has one writer: stop that one, or wait {self._ttl:.0f} s."
                )
        self._renewer = threading.Thread(target=self._renew_until_stopped, name=f"lease {self._key}", daemon=True)
        self._renewer.start()

    def check(self) -> None:
        """Renew the lease if less than half of its time is left.

        Raises LeaseLost if another writer has it, or if the renewal took more than half of its time.
        """
        with self._guard:
            if self._is_fresh():
                return
            self._put(self._etag)
            if not self._is_fresh():
                raise LeaseLost(f"{self._uri}: renewing it took more than half of its {self._ttl:.0f} s")

    def _is_fresh(self) -> bool:
        return self._expires - self._clock() >= self._ttl / 2

    def release(self) -> None:
        """Give the lease back, so that the next writer need not wait."""
        self._stop.set()
        if self._renewer is not None:
            self._renewer.join()
        with self._guard:
            if self._etag is not None and self._clock() < self._expires:
                self._ttl = 0.0
                with contextlib.suppress(LeaseLost):
                    self._put(self._etag)
            self._etag = None

    def _try(self) -> str | None:
        """Try once to take the lease. Returns None if it is ours now, else its holder."""
        try:
            stored = self._s3.get_object(Bucket=self._bucket, Key=self._key)
        except self._s3.exceptions.NoSuchKey:
            etag, held = None, None
        else:
            etag, held = stored["ETag"], json.loads(stored["Body"].read())
        if held is not None and held["expires"] > self._clock() and held["owner"] != self._owner:
            return str(held["owner"])
        try:
            with self._guard:
                self._put(etag)
                return None if self._is_fresh() else f"{self._owner}, which took too long to acquire it"
        except LeaseLost:
            return "a writer that was faster"

    def _put(self, etag: str | None) -> None:
        """Write the lease over the version ``etag``. Raises LeaseLost if another writer's version is there.

        The other version may also be our own, if S3's answer to a write was lost. Then this method overwrites it.
        """
        written = self._written(etag)
        if written is None:
            own = self._own_etag()
            written = None if own is None else self._written(own)
        if written is None:
            self._etag = None
            self._expires = 0.0
            raise LeaseLost(f"{self._uri}: another writer took the table")
        self._etag, self._expires = written

    def _written(self, etag: str | None) -> tuple[str, float] | None:
        """Write the lease over the version ``etag``. Returns its ETag and expiry; None if another version is there."""
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        expires = self._clock() + self._ttl
        body = json.dumps({"owner": self._owner, "token": self._token, "expires": expires}).encode()
        try:
            stored = self._s3.put_object(Bucket=self._bucket, Key=self._key, Body=body, **condition)
        except self._s3.exceptions.ClientError as error:
            if met_another(error):
                return None
            raise
        return stored["ETag"], expires

    def _own_etag(self) -> str | None:
        """The ETag of the stored lease if this object has written it, else None."""
        try:
            stored = self._s3.get_object(Bucket=self._bucket, Key=self._key)
        except self._s3.exceptions.NoSuchKey:
            return None
        return str(stored["ETag"]) if json.loads(stored["Body"].read()).get("token") == self._token else None

    def _renew_until_stopped(self) -> None:
        pause = self._ttl / 2
        while not self._stop.wait(pause):
            try:
                with self._guard:
                    self._put(self._etag)
            except LeaseLost:
                return
            except Exception:  # the error may pass by itself: a later try, or check() before a commit, decides
                pause = self._ttl / 10
            else:
                pause = self._ttl / 2


class Leases:
    """The leases of a job's tables.

    A table's first writer takes the lease. If the lease is lost, the next writer takes it again. Threads of different
    tables may take theirs at the same time.

    - ``uri``: the ``s3://`` address of the folder that has the leases.
    - ``owner``: the name under which this job holds them.
    - ``ttl``: seconds until a lease expires.
    - ``stop``: once it is set, the job waits for no lease.
    """

    def __init__(self, s3: Any, uri: str, owner: str, ttl: float, stop: threading.Event) -> None:
        self._s3 = s3
        self._uri = uri
        self._owner = owner
        self._ttl = ttl
        self._stop = stop
        self._held: dict[str, Lease] = {}

    def take(self, table: str) -> Lease:
        """Take the lease of a table. Waits until the lease of a dead writer has expired. Raises LeaseLost."""
        lease = self._held.get(table)
        if lease is not None:
            try:
                lease.check()
            except LeaseLost:
                self._held.pop(table).release()
            else:
                return lease
        lease = Lease(self._s3, f"{self._uri}/{table}.json", self._owner, self._ttl)
        lease.acquire(_CLOCKS * self._ttl, self._stop)
        self._held[table] = lease
        return lease

    def release(self) -> None:
        """Give all leases back."""
        for lease in self._held.values():
            lease.release()
