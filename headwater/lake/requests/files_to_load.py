"""Data files of a source's rows, loaded into a table as its oldest state while its changes go on.

The job commits the files, a few per commit, between the commits of changes. Each commit records how many are done, so
that a load which was stopped goes on where it was, and a finished one is never committed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headwater.errors import UserError
from headwater.lake.decoding.decoded_frame import spread
from headwater.lake.requests.protocol import DONE, RUNNING, Status
from headwater.lake.sources.data_files import DataFile, defect, first_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.lake.base.progress import Progress
    from headwater.lake.table.writer import TableWriter


@dataclass(frozen=True)
class Decoding:
    """The rows of some files, in the columns of ``columns_tagged``. ``careful`` decodes what is left among them.
    ``is_unique`` where no two of them have one place, ``is_timely`` where none is late, whatever its order."""

    frame: DataFrame
    careful: Callable[[DataFrame], DataFrame] | None = None
    is_unique: bool = False
    is_timely: bool = False


DecodeFiles = Callable[[Sequence[DataFile], bool], Decoding]
"""Decodes some files; says what ends with the load where they are its last."""


CheckFile = Callable[[DataFile, Any], str | None]
"""What is wrong with a file that is read by boto3's client of S3, or None."""


class FilesToLoad:
    """The files of a load, which is called ``id_`` and is of a ``kind``, for the names of its quarantine objects. They
    are committed a few at a time: the writer's ``batch_bytes`` bound a commit of more than one file, and so do
    ``first_bytes`` that of a table's first rows, where they are more. ``decode`` gives the rows of some files, and
    ``check`` says what is wrong with one."""

    def __init__(
        self,
        writer: TableWriter,
        kind: str,
        id_: str,
        files: Sequence[DataFile],
        decode: DecodeFiles,
        first_bytes: int = 0,
        check: CheckFile = defect,
    ) -> None:
        self._writer = writer
        self._kind = kind
        self._id = id_
        self._files = files
        self._decode = decode
        self._first_bytes = first_bytes
        self._check = check

    def status(self) -> Status:
        """How far the files are committed."""
        done = files_done(self._writer, self._id)
        state = DONE if done == len(self._files) else RUNNING
        return Status("", state, len(self._files), done, sum(file.items for file in self._files[:done]))

    def commit_next(self) -> None:
        """Commit the next files, all or none of them. Raises UserError where one is damaged."""
        done = files_done(self._writer, self._id)
        most = self._writer.settings.batch_bytes
        files = first_of(self._files[done:], most if self._writer.has_rows else max(most, self._first_bytes))
        reached = done + len(files)

        def advance(last: Progress) -> Progress:
            return replace(last, exports={**last.exports, self._id: reached})

        self._check_content(files)
        decoded = self._decode(files, reached == len(self._files))
        name = f"{self._kind}-{self._id}-{done:08d}"
        self._writer.commit(
            decoded.frame, name, advance, decoded.careful, is_unique=decoded.is_unique, is_timely=decoded.is_timely
        )

    def _check_content(self, files: Sequence[DataFile]) -> None:
        """Raise UserError where a data file is damaged: each is read once for this before any of them is committed."""

        find = self._check

        def check(part: Iterable[DataFile]) -> Iterator[str]:
            import boto3

            s3 = boto3.client("s3")
            return (damage for damage in (find(file, s3) for file in part) if damage is not None)

        for damage in (
            spread(self._writer.spark, files, self._writer.settings.parallelism).mapPartitions(check).collect()
        ):
            raise UserError(f"{damage}. The file is damaged: read the table again.")


def files_done(writer: TableWriter, id_: str) -> int:
    """How many of a load's files are in the table."""
    return writer.progress.exports.get(id_, 0)
