"""Deletes the files of a Hudi table that compaction has replaced, once no query can need them.

Hudi's own cleaner keeps the files of a number of commits. To keep files for hours, the cleaner would need a timeline of
that length, which makes each commit slower. The names of the files are enough: they have the file group, and the
instant of the file slice. See docs/decisions/retention.md.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import defaultdict
from typing import Any, NamedTuple

from headwater.lake.base.s3_deletion import delete_all
from headwater.lake.base.s3_uri import split_uri
from headwater.lake.table.hudi_table import HudiTable

_INSTANT = r"(?P<instant>\d{17})"
_BASE = re.compile(rf"(?P<group>[^_/]+)_[^_/]+_{_INSTANT}\.parquet")
_LOG = re.compile(rf"\.(?P<group>[^_/]+)_{_INSTANT}\.log\.\d+_[^_/]+")


class _File(NamedTuple):
    """A base file or a log file."""

    instant: str
    """The instant of the file slice."""
    key: str
    """The object's key."""
    is_base: bool
    """Whether the file is a base file."""
    modified: dt.datetime
    """When the object was written."""


class ReplacedFiles:
    """Deletes replaced files of a table in version 6 of Hudi's format."""

    def __init__(self, s3: Any, table: HudiTable) -> None:
        self._s3 = s3
        self._table = table
        self._bucket, self._folder = split_uri(table.uri)

    def delete(self, before: dt.datetime) -> int:
        """Delete the files that were replaced before a moment, and return their number.

        A file slice is replaced once its file group has a newer, complete one with a base file. Commits may go on
        meanwhile. This costs a listing of the table. Raises ClientError, and then may have deleted some files.
        """
        is_complete = self._table.completed()
        keys = []
        for files in self._groups().values():
            bases = {file.instant for file in files if file.is_base and file.modified < before}
            newest = next((instant for instant in sorted(bases, reverse=True) if is_complete(instant)), "")
            keys += [file.key for file in files if file.instant < newest]
        delete_all(self._s3, self._bucket, keys)
        return len(keys)

    def log_files(self) -> int:
        """The number of log files in all file slices of the table."""
        return sum(not file.is_base for files in self._groups().values() for file in files)

    def partitions(self) -> list[str]:
        """The paths of the partitions that have files, relative to the table; "" for a table without partitions."""
        return sorted({partition[len(self._folder) + 1 :] for partition, _ in self._groups()})

    def _groups(self) -> dict[tuple[str, str], list[_File]]:
        """The files of each partition's file groups."""
        groups = defaultdict(list)
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=f"{self._folder}/")
        for page in pages:
            for entry in page.get("Contents", ()):
                partition, _, name = entry["Key"].rpartition("/")
                base = _BASE.fullmatch(name)
                match = base or _LOG.fullmatch(name)
                if match:
                    file = _File(match["instant"], entry["Key"], base is not None, entry["LastModified"])
                    groups[partition, match["group"]].append(file)
        return groups
