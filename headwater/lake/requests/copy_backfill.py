"""Loads a copy of a PostgreSQL table as the oldest state, while the table's changes go on.

Such a load is one of the kinds of ``requested_work``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from headwater.errors import UserError
from headwater.lake.decoding.changes import ROW_TAGS, floor_row, without_row
from headwater.lake.decoding.decoded_frame import few_rows_frame
from headwater.lake.decoding.usual_changes import StoredObject, UsualChanges
from headwater.lake.requests.files_to_load import Decoding, FilesToLoad, files_done
from headwater.lake.sources import data_files
from headwater.lake.sources.data_files import DataFile
from headwater.lake.sources.table_copy import TableCopy

if TYPE_CHECKING:
    from headwater.lake.table.writer import TableWriter

_FIRST_BYTES = 2 * 2**30
"""A table's first rows, up to this many compressed bytes, are one commit, because one costs less than several.
Meanwhile Spark keeps about ten times as many bytes on the disks of the cluster."""
_AGAIN = "Run the command again: it reads the table as it is now."
_MOST_AGE = dt.timedelta(days=1)


def work(writer: TableWriter, name: str, details: Mapping[str, Any]) -> FilesToLoad:
    """The work of a request to load a copy. Raises UserError.

    - ``writer``: the writer of the table.
    - ``name``: the request's name, which is the copy's id.
    - ``details``: the request's details, with the copy's address.
    """
    address = details.get("copy")
    if not isinstance(address, str):
        raise UserError(f"{name}: copy: found {address!r}, expected the address of the copy")
    copy = TableCopy.open(writer.services.s3, address)
    _check(writer, copy, name)
    decode = partial(_decode, writer, copy)
    return FilesToLoad(writer, "copy", copy.id, copy.files, decode, _FIRST_BYTES, data_files.alteration)


def _check(writer: TableWriter, copy: TableCopy, name: str) -> None:
    """Raise UserError if loading the copy would not give the table's true state."""
    contract = writer.contract
    if copy.id != name:
        raise UserError(f"{copy.uri}: found the copy {copy.id}, expected {name}, as requested")
    if copy.source != contract.source.table:
        raise UserError(
            f"{copy.uri}: found rows of {copy.source}, expected {contract.source.table}, the source of {contract.table}"
        )
    # A row deleted just after the copy may have a lower order than the copy's position. For a copy this young, its
    # tombstone cannot be purged yet.
    if not files_done(writer, copy.id) and dt.datetime.now(dt.UTC) - copy.time > _MOST_AGE:
        raise UserError(
            f"{copy.uri}: found a copy of {copy.time:%Y-%m-%d %H:%M:%S}, expected one of the last day. {_AGAIN}"
        )
    if writer.progress.floor > copy.floor and writer.progress.floor[:4] != copy.floor[:4]:
        raise UserError(
            f"{copy.uri}: found the epoch {copy.epoch}, expected {int(writer.progress.floor[:4])} at least, "
            f"which {contract.table} has: all rows would be older than the table's truncate marker"
        )


def _check_place(writer: TableWriter, copy: TableCopy) -> None:
    """Raise UserError if a purged tombstone may have deleted a row of the copy."""
    if copy.place <= writer.progress.purged:
        raise UserError(
            f"{copy.uri}: younger tombstones of {writer.contract.table} are purged, so rows deleted in "
            f"between would come back. {_AGAIN}"
        )


def _decode(writer: TableWriter, copy: TableCopy, files: Sequence[DataFile], is_last: bool) -> Decoding:
    contract = writer.contract
    _check_place(writer, copy)
    # All rows are as of the copy's position, so none is late, whatever its order.
    usual = UsualChanges(writer.spark, contract, copy.epoch, "")

    listed = [StoredObject(f"{copy.id}/{file.name}", file.uri) for file in files]
    frame = usual.images_frame(listed, writer.settings.parallelism, *copy.around())
    if is_last:
        ended = without_row(len(contract.lake_columns()), copy.floor)
        if contract.is_history:
            ended = floor_row(contract, copy.floor, copy.time, f"copy/{copy.id}") + ROW_TAGS
        frame = frame.unionByName(few_rows_frame(writer.spark, contract, [ended]))
    return Decoding(frame, usual.careful_frame, copy.is_unique, is_timely=True)
