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
    """Keep other processes that claim the folder out of it until the block or the process ends.

    The claim is a lock on a file beside the folder. So the folder need not exist, and may be removed meanwhile.

    - ``what``: the claimant's name in messages, such as ``the demo``.
    - ``wait``: if another process holds the claim, wait for its end, and say so on standard error.

    Raises UserError if another process holds the claim and ``wait`` is not set.
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
    """Claim a run's folder, and remove everything that an earlier run left in it.

    The folder and its parent, which holds all runs, become private. Raises UserError as ``claim`` does.
    """
    with claim(folder, what):
        shutil.rmtree(folder, ignore_errors=True)
        make_private(folder.parent)
        make_private(folder)
        yield
