"""A copy of a PostgreSQL table in S3, as ``headwater backfill`` makes it: the table's rows at one position of the log.

``<folder>/<id>/`` has data files, and ``copy.json``, which is written last. The data files are lines in gzip: each line
is the image of a row as in Debezium's events.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

from headwater.errors import UserError
from headwater.lake.base.s3_deletion import delete_below
from headwater.lake.base.s3_uri import object_uri, split_uri
from headwater.lake.base.s3_versions import delete_former
from headwater.lake.decoding.debezium_decoder import floor_below, order
from headwater.lake.sources import data_files
from headwater.lake.sources.data_files import DataFile

_MANIFEST = "copy.json"


@dataclass(frozen=True)
class TableCopy:
    """A copy of a table."""

    uri: str
    """The address of the copy's folder."""
    source: str
    """The table's name, as contracts write it: ``schema.table``."""
    epoch: int
    """The epoch to which the copy's rows belong."""
    lsn: int
    """The position in the log (an LSN) at which the rows were read."""
    read_at: int
    """The time of the reading by the source's clock, in microseconds since 1970."""
    is_unique: bool
    """Whether the source allows no two rows with the same key of the contract."""
    files: Sequence[DataFile]
    """The data files."""

    @property
    def id(self) -> str:
        """The copy's id: the last part of its address."""
        return self.uri.rpartition("/")[2]

    @property
    def rows(self) -> int:
        """The number of rows in all files."""
        return sum(file.items for file in self.files)

    @property
    def floor(self) -> str:
        """The truncate marker of the copy: it deletes older rows that the copy does not have."""
        return floor_below(order(self.epoch, self.lsn, self.lsn, snapshot=True))

    @property
    def place(self) -> str:
        """The order of a change at the copy's position in the log."""
        return order(self.epoch, self.lsn, self.lsn, snapshot=False)

    @property
    def time(self) -> dt.datetime:
        """When the copy was read."""
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=self.read_at)

    def around(self) -> tuple[str, str]:
        """The texts around a row's image that turn it into the event of a snapshot."""
        schema, _, table = self.source.partition(".")
        source = {
            "schema": schema,
            "table": table,
            "snapshot": "true",
            "lsn": self.lsn,
            "ts_ms": self.read_at // 1000,
            "ts_us": self.read_at,
        }
        return f'{{"op":"r","source":{json.dumps(source)},"before":null,"after":', "}"

    @staticmethod
    def open(s3: Any, uri: str) -> TableCopy:
        """Read the manifest of the copy at ``uri``, and check that its data files exist. Raises UserError.

        ``data_files.defect`` checks the files' content.
        """
        bucket, folder = split_uri(uri)
        where = object_uri(bucket, f"{folder}/{_MANIFEST}")
        text = data_files.read_text(s3, bucket, f"{folder}/{_MANIFEST}")
        sizes = data_files.sizes(s3, bucket, f"{folder}/")
        try:
            document = json.loads(text)
            listed = [(f"{folder}/{file['name']}", file["rows"], file["md5"]) for file in document.pop("files")]
            files = [DataFile(bucket, key, rows, md5, sizes.get(key, -1)) for key, rows, md5 in listed]
            copy = TableCopy(object_uri(bucket, folder), **document, files=files)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise UserError(
                f"{where}: found {error!r}, expected the manifest of a copy that headwater backfill made"
            ) from None
        for file in files:
            if file.size < 0:
                raise UserError(f"{where}: found no object {file.uri}, expected every file that the manifest lists")
        return copy


def put_file(s3: Any, uri: str, name: str, body: IO[bytes], rows: int) -> DataFile:
    """Store a local file as a data file of the copy at ``uri``."""
    bucket, folder = split_uri(uri)
    md5 = data_files.md5_of(body)
    size = body.tell()
    body.seek(0)
    key = f"{folder}/{name}"
    s3.upload_fileobj(body, bucket, key)
    return DataFile(bucket, key, rows, md5, size)


def complete(s3: Any, copy: TableCopy) -> None:
    """Store the manifest of a copy, which makes it complete."""
    document = {
        "source": copy.source,
        "epoch": copy.epoch,
        "lsn": copy.lsn,
        "read_at": copy.read_at,
        "is_unique": copy.is_unique,
        "files": [{"name": file.name, "rows": file.items, "md5": file.md5} for file in copy.files],
    }
    bucket, folder = split_uri(copy.uri)
    s3.put_object(Bucket=bucket, Key=f"{folder}/{_MANIFEST}", Body=json.dumps(document).encode())


def copies_in(s3: Any, folder: str) -> list[str]:
    """The addresses of the copies in a folder, complete or not."""
    bucket, prefix = split_uri(folder)
    keys = data_files.sizes(s3, bucket, f"{prefix}/")
    return sorted({object_uri(bucket, key.rpartition("/")[0]) for key in keys})


def delete(s3: Any, uri: str) -> None:
    """Delete the objects of a copy, complete or not, with all their versions."""
    bucket, folder = split_uri(uri)
    delete_below(s3, bucket, f"{folder}/")
    delete_former(s3, bucket, f"{folder}/")
