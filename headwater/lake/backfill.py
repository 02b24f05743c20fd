"""Loading a table export as the oldest state, while the stream goes on.

The job commits the export's data files, a few per commit, between the stream's commits. Each commit records how many
are done, so a stopped backfill goes on where it was, and a finished one is never committed again. It is one of the
kinds of ``requested_work``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headwater.errors import UserError
from headwater.lake.changes import ROW_TAGS, floor_row, without_row
from headwater.lake.decoded_frame import decoded_frame, spread
from headwater.lake.dynamodb_decoder import DynamoDecoder, floor_of_export, moment
from headwater.lake.dynamodb_export import DataFile, Export, decode_items, defect
from headwater.lake.requests import DONE, RUNNING, Status

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.lake.progress import Progress
    from headwater.lake.writer import TableWriter


class Backfill:
    """Makes the work of requests for exports to the table of ``writer``, a few data files at a time: the writer's
    ``batch_bytes`` bound a commit of more than one data file. ``source_table`` is the name of the DynamoDB table."""

    def __init__(self, writer: TableWriter, source_table: str) -> None:
        self._writer = writer
        self._source_table = source_table

    def work(self, name: str, details: Mapping[str, Any]) -> ExportToLoad:
        """The work of the request for the export of that id, whose address is in its details. Raises UserError."""
        address, whole = details.get("export"), details.get("whole", True)
        if not isinstance(address, str):
            raise UserError(f"{name}: export: found {address!r}, expected the address of the export")
        if not isinstance(whole, bool):
            raise UserError(f"{name}: whole: found {whole!r}, expected true or false")
        export = Export.open(self._writer.services.s3, address)
        self._check(export, name)
        return ExportToLoad(self._writer, self._source_table, export, whole)

    def _check(self, export: Export, export_id: str) -> None:
        """Raise UserError where loading the export would not give the table's true state."""
        table = self._writer.contract.table
        if export.id != export_id:
            raise UserError(
                f"{export.uri}: exportArn: found the export {export.id}, expected {export_id}, as requested"
            )
        if export.table != self._source_table:
            raise UserError(
                f"{export.uri}: tableArn: found the table {export.table!r}, expected {self._source_table!r}, the "
                f"source of {table}"
            )
        since = self._writer.progress.since
        if not since:
            raise UserError(
                f"{table}: when streaming began is not known before its first change is in the table. Change an item, "
                "wait until the change is in the lake, and ask again."
            )
        if export.time < since:
            raise UserError(
                f"{export.uri}: exportTime: found {_iso(export.time)}, expected {_iso(since)} or later, when streaming "
                "began: items deleted in between would come back. Export the table again."
            )
        if floor_of_export(self._writer.progress.epoch, export.time) < self._writer.progress.purged:
            raise UserError(
                f"{export.uri}: exportTime: found {_iso(export.time)}, expected a later one: younger tombstones of "
                f"{table} are purged, so items deleted in between would come back. Export the table again."
            )
        done = _files_done(self._writer, export)
        if done > len(export.files):
            raise UserError(
                f"{export.uri}: found {len(export.files)} data files, expected {done} at least, which are committed"
            )


class ExportToLoad:
    """An export, which is loaded a few data files at a time. What a ``whole`` one does not have ends with it."""

    def __init__(self, writer: TableWriter, source_table: str, export: Export, whole: bool) -> None:
        self._writer = writer
        self._source_table = source_table
        self._export = export
        self._whole = whole

    def status(self) -> Status:
        """How far the export is committed."""
        files, done = self._export.files, _files_done(self._writer, self._export)
        state = DONE if done == len(files) else RUNNING
        return Status("", state, len(files), done, sum(file.items for file in files[:done]))

    def commit_next(self) -> None:
        """Commit the next data files, all or none of them. Raises UserError where one is damaged."""
        export = self._export
        done = _files_done(self._writer, export)
        files = _first(export.files[done:], self._writer.settings.batch_bytes)
        reached = done + len(files)

        def advance(last: Progress) -> Progress:
            return replace(last, exports={**last.exports, export.id: reached})

        self._check_content(files)
        batch = self._decode(export, files, completes=self._whole and reached == len(export.files))
        self._writer.commit(batch, f"export-{export.id}-{done:08d}", advance)

    def _check_content(self, files: list[DataFile]) -> None:
        """Raise UserError where a data file is damaged: each is read once for this before any of them is committed."""

        def check(part: Iterable[DataFile]) -> Iterator[str]:
            import boto3

            s3 = boto3.client("s3")
            return (damage for damage in (defect(file, s3) for file in part) if damage is not None)

        for damage in (
            spread(self._writer.spark, files, self._writer.settings.parallelism).mapPartitions(check).collect()
        ):
            raise UserError(f"{damage}. The file is damaged: export the table again.")

    def _decode(self, export: Export, files: list[DataFile], completes: bool) -> DataFrame:
        spark, contract, settings = self._writer.spark, self._writer.contract, self._writer.settings
        epoch, table = self._writer.progress.epoch, self._source_table
        mask_key, purged = settings.mask_key, self._writer.progress.purged

        def decode(part: Iterable[DataFile]) -> Iterator[tuple[Any, ...]]:
            import boto3

            decoder = DynamoDecoder(contract, epoch, table, mask_key)
            return decode_items(part, decoder, export, boto3.client("s3"), purged)

        rows = spread(spark, files, settings.parallelism).mapPartitions(decode)
        if completes:
            floor = floor_of_export(epoch, export.time)
            ended = without_row(len(contract.lake_columns()), floor)
            if contract.is_history:
                ended = floor_row(contract, floor, moment(export.until), f"export/{export.id}") + ROW_TAGS
            rows = rows.union(spread(spark, [ended], 1))
        return decoded_frame(spark, contract, rows)


def _files_done(writer: TableWriter, export: Export) -> int:
    """How many of the export's data files are in the table."""
    return writer.progress.exports.get(export.id, 0)


def _first(files: tuple[DataFile, ...], most_bytes: int) -> list[DataFile]:
    """The first files until ``most_bytes`` are reached, and one at least."""
    taken: list[DataFile] = []
    total = 0
    for file in files:
        if taken and total + file.size > most_bytes:
            break
        taken.append(file)
        total += file.size
    return taken


def _iso(micros: int) -> str:
    moment = dt.datetime.fromtimestamp(micros // 10**6, dt.UTC) + dt.timedelta(microseconds=micros % 10**6)
    return moment.isoformat().replace("+00:00", "Z")
