"""Loads an export of a DynamoDB table as the oldest state, while the changes of the stream go on.

Such a load is one of the kinds of ``requested_work``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headwater.errors import UserError
from headwater.lake.decoding.changes import ROW_TAGS, floor_row, without_row
from headwater.lake.decoding.decoded_frame import decoded_frame, spread
from headwater.lake.decoding.dynamodb_decoder import DynamoDecoder, floor_of_export, moment
from headwater.lake.requests.files_to_load import Decoding, FilesToLoad, files_done
from headwater.lake.sources.data_files import DataFile
from headwater.lake.sources.dynamodb_export import Export, decode_items

if TYPE_CHECKING:
    from headwater.lake.table.writer import TableWriter


def work(writer: TableWriter, source_table: str, name: str, details: Mapping[str, Any]) -> FilesToLoad:
    """The work of a request to load an export. Raises UserError.

    - ``writer``: the writer of the table. Its ``batch_bytes`` limit a commit of several data files.
    - ``source_table``: the name of the DynamoDB table.
    - ``name``: the request's name, which is the export's id.
    - ``details``: the request's details, with the export's address.
    """
    address, whole = details.get("export"), details.get("whole", True)
    if not isinstance(address, str):
        raise UserError(f"{name}: export: found {address!r}, expected the address of the export")
    if not isinstance(whole, bool):
        raise UserError(f"{name}: whole: found {whole!r}, expected true or false")
    export = Export.open(writer.services.s3, address)
    _check(writer, source_table, export, name)
    rows = _ExportRows(writer, source_table, export, whole)
    return FilesToLoad(writer, "export", export.id, export.files, rows.batch)


def _check(writer: TableWriter, source_table: str, export: Export, export_id: str) -> None:
    """Raise UserError if loading the export would not give the table's true state."""
    table = writer.contract.table
    if export.id != export_id:
        raise UserError(f"{export.uri}: exportArn: found the export {export.id}, expected {export_id}, as requested")
    if export.table != source_table:
        raise UserError(
            f"{export.uri}: tableArn: found the table {export.table!r}, expected {source_table!r}, the "
            f"source of {table}"
        )
    since = writer.progress.since
    if export.time < since:
        raise UserError(
            f"{export.uri}: exportTime: found {_iso(export.time)}, expected {_iso(since)} or later, when streaming "
            "began: items deleted in between would come back. Export the table again."
        )
    if floor_of_export(writer.progress.epoch, export.time) < writer.progress.purged:
        raise UserError(
            f"{export.uri}: exportTime: found {_iso(export.time)}, expected a later one: younger tombstones of "
            f"{table} are purged, so items deleted in between would come back. Export the table again."
        )
    done = files_done(writer, export.id)
    if done > len(export.files):
        raise UserError(
            f"{export.uri}: found {len(export.files)} data files, expected at least {done}, because so many are loaded "
            "already. Restore the export's manifest, or load another export."
        )


class _ExportRows:
    """The rows of an export. A ``whole`` export deletes older rows that it does not have."""

    def __init__(self, writer: TableWriter, source_table: str, export: Export, whole: bool) -> None:
        self._writer = writer
        self._source_table = source_table
        self._export = export
        self._whole = whole

    def batch(self, files: Sequence[DataFile], is_last: bool) -> Decoding:
        """Decode some files; a ``DecodeFiles``."""
        export = self._export
        spark, contract, settings = self._writer.spark, self._writer.contract, self._writer.settings
        epoch, table = self._writer.progress.epoch, self._source_table
        mask_key, purged = settings.mask_key, self._writer.progress.purged

        def decode(part: Iterable[DataFile]) -> Iterator[tuple[Any, ...]]:
            import boto3

            decoder = DynamoDecoder(contract, epoch, table, mask_key)
            return decode_items(part, decoder, export, boto3.client("s3"), purged)

        rows = spread(spark, files, settings.parallelism).mapPartitions(decode)
        if is_last and self._whole:
            floor = floor_of_export(epoch, export.time)
            ended = without_row(len(contract.lake_columns()), floor)
            if contract.is_history:
                ended = floor_row(contract, floor, moment(export.until), f"export/{export.id}") + ROW_TAGS
            rows = rows.union(spread(spark, [ended], 1))
        return Decoding(decoded_frame(spark, contract, rows))


def _iso(micros: int) -> str:
    moment = dt.datetime.fromtimestamp(micros // 10**6, dt.UTC) + dt.timedelta(microseconds=micros % 10**6)
    return moment.isoformat().replace("+00:00", "Z")
