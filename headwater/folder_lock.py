"""A folder that one process at a time may write to."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.errors import UserError


@contextmanager
def claim(folder: Path, what: str, *, wait: bool = False) -> Iterator[None]:
    """Hold a folder against other processes that claim it; the claim ends with the process, however that ends.

    Parameters
    ----------
    folder
        Need not exist; the claim is a lock on a file beside it, so that the folder itself may be removed meanwhile.
    what
        What claims it, for the error: `the demo`.
    wait
        Wait until it is free instead of raising `UserError`.
    """
    lock = folder.parent / f".{folder.name}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            raise UserError(f"{folder} is in use: {what} runs already. Wait for its end, or stop it.") from error
        yield
