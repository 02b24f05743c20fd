"""Loads data files of a source's rows into a table as its oldest state, while the table's changes go on.

The job commits the files, a few per commit, between the commits of changes. Each commit records the number of loaded
files. So a stopped load goes on with the next file, and a finished one is never committed again.
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
    """The rows of some files."""

    frame: DataFrame
    """The rows, in the columns of ``columns_tagged``."""
    careful: Callable[[DataFrame], DataFrame] | None = None
    """The reference decoder, for records that the fast path has left."""
    is_unique: bool = False
    """Whether no two rows have the same location."""
    is_timely: bool = False
    """Whether no row is late, whatever its order."""


DecodeFiles = Callable[[Sequence[DataFile], bool], Decoding]
"""Decodes some files. The rows of the load's last files include its truncate marker."""


CheckFile = Callable[[DataFile, Any], str | None]
"""The defect of a file, or None. The arguments are the file and boto3's client of S3."""


class FilesToLoad:
    """The files of a load, which are committed a few at a time.

    - ``writer``: the writer of the table. Its ``batch_bytes`` limit a commit of several files.
    - ``kind``, ``id_``: the names of the load's quarantine objects begin with them.
    - ``files``: the files, in the order in which they are committed.
    - ``decode``: decodes some of the files.
    - ``first_bytes``: the limit for the commit of a table's first rows, if it is larger.
    - ``check``: returns the defect of a file, or None.
    """

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
        """How many of the files are committed."""
        done = files_done(self._writer, self._id)
        state = DONE if done == len(self._files) else RUNNING
        return Status("", state, len(self._files), done, sum(file.items for file in self._files[:done]))

    def commit_next(self) -> None:
        """Commit the next files, all or none of them. Raises UserError if a file is damaged."""
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
        """Raise UserError if a data file is damaged. Every file is read for this check before any is committed."""

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
    """The number of a load's files that are in the table."""
    return writer.progress.exports.get(id_, 0)
