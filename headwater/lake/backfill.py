"""Loading a table export as the oldest state, while the stream goes on.

The job commits the export's data files, a few per commit, between the stream's commits. Each commit records how many
are done, so a stopped backfill goes on where it was, and a finished one is never committed again. What is to be loaded,
and what becomes of it, goes through ``backfill_requests``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from headwater.errors import UserError
from headwater.lake.backfill_requests import DONE, REFUSED, RUNNING, BackfillRequests, BackfillStatus
from headwater.lake.changes import without_row
from headwater.lake.decoded_frame import decoded_frame, spread
from headwater.lake.dynamodb_decoder import DynamoDecoder, floor_of_export
from headwater.lake.dynamodb_export import DataFile, Export, decode_items, defect
from headwater.lake.quarantine import TooManyBadRecords

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.lake.progress import Progress
    from headwater.lake.writer import TableWriter


@dataclass(frozen=True)
class _Taken:
    """A request that this job has looked at, by its version; ``export`` is None where nothing is left to do."""

    version: str
    token: str
    export: Export | None


class Backfill:
    """Answers the requests for the table of ``writer``, a few data files at a time: the writer's ``batch_bytes`` bound
    a commit of more than one data file. ``source_table`` is the name of the DynamoDB table."""

    def __init__(self, writer: TableWriter, requests: BackfillRequests, source_table: str) -> None:
        self._writer = writer
        self._requests = requests
        self._source_table = source_table
        self._taken: dict[str, _Taken] = {}

    def commit_next(self) -> bool:
        """Answer new requests, commit the next data files of the oldest one that is not finished, and say whether
        there was one. Costs one listing where there is nothing to do."""
        self._taken = {export_id: self._take(export_id, version) for export_id, version in self._requests.listed()}
        for export_id, taken in self._taken.items():
            if taken.export is not None:
                state = self._commit(taken.export, taken.token)
                if state != RUNNING:
                    self._taken[export_id] = replace(taken, export=None)
                return True
        return False

    def _take(self, export_id: str, version: str) -> _Taken:
        """Look at a request and answer it, unless this version of it is known."""
        known = self._taken.get(export_id)
        if known is not None and known.version == version:
            return known
        token = ""
        try:
            request = self._requests.get(export_id)
            if request is None:
                return _Taken(version, token, None)
            token = request.token
            answered = self._requests.status(export_id)
            if answered is not None and answered.token == token and answered.state != RUNNING:
                return _Taken(version, token, None)
            export = Export.open(self._writer.services.s3, request.export)
            self._check(export, export_id)
        except UserError as error:
            self._refuse(export_id, token, str(error))
            return _Taken(version, token, None)
        return _Taken(version, token, export if self._tell(export, token) == RUNNING else None)

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
        done = self._files_done(export)
        if done > len(export.files):
            raise UserError(
                f"{export.uri}: found {len(export.files)} data files, expected {done} at least, which are committed"
            )

    def _files_done(self, export: Export) -> int:
        """How many of the export's data files are in the table."""
        return self._writer.progress.exports.get(export.id, 0)

    def _commit(self, export: Export, token: str) -> str:
        """Commit the next data files, all or none of them, report, and return the state."""
        done = self._files_done(export)
        files = _first(export.files[done:], self._writer.settings.batch_bytes)
        reached = done + len(files)

        def advance(last: Progress) -> Progress:
            return replace(last, exports={**last.exports, export.id: reached})

        try:
            self._check_content(files)
            batch = self._decode(export, files, completes=reached == len(export.files))
            self._writer.commit(batch, f"export-{export.id}-{done:08d}", advance)
        except (UserError, TooManyBadRecords) as error:
            self._refuse(export.id, token, str(error))
            return REFUSED
        return self._tell(export, token)

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
        epoch, table = settings.epoch, self._source_table
        export_id, time = export.id, export.time

        def decode(part: Iterable[DataFile]) -> Iterator[tuple[Any, ...]]:
            import boto3

            return decode_items(iter(part), DynamoDecoder(contract, epoch, table), export_id, time, boto3.client("s3"))

        rows = spread(spark, files, settings.parallelism).mapPartitions(decode)
        if completes:
            floor = without_row(len(contract.lake_columns()), floor_of_export(epoch, time))
            rows = rows.union(spread(spark, [floor], 1))
        return decoded_frame(spark, contract, rows)

    def _tell(self, export: Export, token: str) -> str:
        """Report how far an export is committed, and return its state."""
        done = self._files_done(export)
        state = DONE if done == len(export.files) else RUNNING
        items = sum(file.items for file in export.files[:done])
        self._answer(export.id, BackfillStatus(token, state, len(export.files), done, items))
        return state

    def _refuse(self, export_id: str, token: str, reason: str) -> None:
        self._answer(export_id, BackfillStatus(token, REFUSED, reason=reason))

    def _answer(self, export_id: str, status: BackfillStatus) -> None:
        self._requests.answer(export_id, status)
        reported = {name: value for name, value in asdict(status).items() if name != "token"}
        event = {"event": "backfill", "table": self._writer.contract.table, "export": export_id, **reported}
        self._writer.services.report(event)


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
