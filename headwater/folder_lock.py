"""A folder that one process at a time may write to."""

import fcntl
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.errors import UserError
from headwater.private_files import make_private


@contextmanager
def claim(folder: Path, what: str, *, wait: bool = False) -> Iterator[None]:
    """Keep other processes that claim the folder out of it. The claim ends with the process, however that ends.

    It is a lock on a file beside the folder, so the folder need not exist and may be removed meanwhile. ``what`` names
    the claimant in messages, as in ``the demo``. If another process holds the claim, raises UserError, or with ``wait``
    says so on standard error and waits for its end.
    """
    lock = folder.parent / f".{folder.name}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if not wait:
                raise UserError(f"{folder} is in use: {what} runs already. Wait until it ends, or stop it.") from error
            sys.stderr.write(f"{folder} is in use: waiting for {what} to end\n")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def claimed_empty(folder: Path, what: str) -> Iterator[None]:
    """Claim a run's folder, and have it empty: what an earlier run left is removed. It becomes private, and so does the
    folder of all runs that it is in. Raises UserError as ``claim`` does."""
    with claim(folder, what):
        shutil.rmtree(folder, ignore_errors=True)
        make_private(folder.parent)
        make_private(folder)
        yield
