"""Loading a table export as the oldest state, while the stream goes on.

The job stays the only writer of its table. The laptop puts a request below the lake
(``_backfill/<table>/<export>.json``); the job takes it up, commits the export's data files a few at a time between the
stream's commits, and reports beside the request (``<export>.status.json``). How far it is stands in the commits
themselves, so a stopped backfill goes on where it was, and a finished one is never committed again.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from headwater.contract.model import Contract
from headwater.errors import UserError
from headwater.lake.changes import columns_tagged
from headwater.lake.dynamodb_decoder import DynamoDecoder
from headwater.lake.dynamodb_export import DataFile, Export, decode_items, defect, floor
from headwater.lake.landing import split_uri
from headwater.lake.quarantine import TooManyBadRecords

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headwater.lake.table import Progress
    from headwater.lake.writer import Report, TableWriter, WriterSettings

RUNNING, DONE, REFUSED = "running", "done", "refused"
_FOLDER = "_backfill"
_SUFFIX, _STATUS_SUFFIX = ".json", ".status.json"


@dataclass(frozen=True)
class Request:
    """What is asked for: an export, by its address. ``token`` tells apart two requests for one export."""

    export: str
    token: str


@dataclass(frozen=True)
class Status:
    """The job's answer to the request of that ``token``. ``items`` counts those of the ``files_done`` first files, bad
    ones included; ``reason`` says why the request was refused."""

    token: str
    state: str
    files: int = 0
    files_done: int = 0
    items: int = 0
    reason: str = ""


class Requests:
    """The requests for one table and their statuses, below ``lake`` (``s3://bucket/prefix``)."""

    def __init__(self, s3: Any, lake: str, table: str) -> None:
        self._s3 = s3
        self._bucket, prefix = split_uri(lake)
        self._folder = f"{prefix}/{_FOLDER}/{table}/".lstrip("/")

    def put(self, export_id: str, request: Request) -> None:
        """Ask for an export, in place of an earlier request for it."""
        self._put(export_id + _SUFFIX, asdict(request))

    def withdraw(self, export_id: str) -> None:
        """Take a request back: the job stops after its current commit."""
        self._s3.delete_object(Bucket=self._bucket, Key=self._folder + export_id + _SUFFIX)

    def get(self, export_id: str) -> Request | None:
        """The request for an export, or None. Raises UserError where it is not one that ``put`` wrote."""
        found = self._get(export_id + _SUFFIX)
        try:
            return None if found is None else Request(**json.loads(found))
        except (ValueError, TypeError) as error:
            where = f"s3://{self._bucket}/{self._folder}{export_id}{_SUFFIX}"
            raise UserError(f"{where}: found {error}, expected a request of `headwater backfill`") from None

    def answer(self, export_id: str, status: Status) -> None:
        """Report on a request."""
        self._put(export_id + _STATUS_SUFFIX, asdict(status))

    def status(self, export_id: str) -> Status | None:
        """The last report on a request for an export, or None."""
        found = self._get(export_id + _STATUS_SUFFIX)
        return None if found is None else Status(**json.loads(found))

    def listed(self) -> list[tuple[str, str]]:
        """Export and version of every request, the oldest first."""
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._folder)
        entries = [
            entry
            for page in pages
            for entry in page.get("Contents", ())
            if entry["Key"].endswith(_SUFFIX) and not entry["Key"].endswith(_STATUS_SUFFIX)
        ]
        entries.sort(key=lambda entry: (entry["LastModified"], entry["Key"]))
        return [(entry["Key"][len(self._folder) : -len(_SUFFIX)], entry["ETag"]) for entry in entries]

    def _put(self, name: str, document: dict[str, Any]) -> None:
        body = json.dumps(document, ensure_ascii=False, sort_keys=True).encode("utf-8")
        self._s3.put_object(Bucket=self._bucket, Key=self._folder + name, Body=body)

    def _get(self, name: str) -> bytes | None:
        try:
            body: bytes = self._s3.get_object(Bucket=self._bucket, Key=self._folder + name)["Body"].read()
        except self._s3.exceptions.NoSuchKey:
            return None
        return body


@dataclass(frozen=True)
class _Taken:
    """A request that this job has looked at, by its version; ``export`` is None where nothing is left to do."""

    version: str
    token: str
    export: Export | None


class Backfill:
    """Answers the requests for the table of ``writer``, a few data files a step. ``source_table`` is the name of the
    DynamoDB table; ``settings`` are the writer's, whose ``batch_bytes`` bound a commit of more than one data file."""

    def __init__(
        self,
        writer: TableWriter,
        s3: Any,
        lake: str,
        spark: SparkSession,
        contract: Contract,
        source_table: str,
        settings: WriterSettings,
        report: Report,
    ) -> None:
        self._writer = writer
        self._s3 = s3
        self._requests = Requests(s3, lake, contract.table)
        self._spark = spark
        self._contract = contract
        self._source_table = source_table
        self._settings = settings
        self._report = report
        self._taken: dict[str, _Taken] = {}

    def step(self) -> bool:
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
            export = Export.open(self._s3, request.export)
            self._check(export, export_id)
        except UserError as error:
            self._refuse(export_id, token, str(error))
            return _Taken(version, token, None)
        return _Taken(version, token, export if self._tell(export, token) == RUNNING else None)

    def _check(self, export: Export, export_id: str) -> None:
        """Raise UserError where loading the export would not give the table's true state."""
        if export.id != export_id:
            raise UserError(
                f"{export.uri}: exportArn: found the export {export.id}, expected {export_id}, as requested"
            )
        if export.table != self._source_table:
            raise UserError(
                f"{export.uri}: tableArn: found the table {export.table!r}, expected {self._source_table!r}, the "
                f"source of {self._contract.table}"
            )
        since = self._writer.progress.since
        if not since:
            raise UserError(
                f"{self._contract.table}: when streaming began is not known before its first change is in the table. "
                "Change an item, wait until the change is in the lake, and ask again."
            )
        if export.time < since:
            raise UserError(
                f"{export.uri}: exportTime: found {_iso(export.time)}, expected {_iso(since)} or later, when streaming "
                "began: items deleted in between would come back. Export the table again."
            )
        done = self._writer.progress.exports.get(export.id, 0)
        if done > len(export.files):
            raise UserError(
                f"{export.uri}: found {len(export.files)} data files, expected {done} at least, which are committed"
            )

    def _commit(self, export: Export, token: str) -> str:
        """Commit the next data files, all or none of them, report, and return the state."""
        done = self._writer.progress.exports.get(export.id, 0)
        files = _some(export.files[done:], self._settings.batch_bytes)
        reached = done + len(files)

        def advance(progress: Progress) -> Progress:
            return replace(progress, exports={**progress.exports, export.id: reached})

        try:
            self._check_content(files)
            self._writer.commit(
                self._decode(export, files, completes=reached == len(export.files)),
                f"export-{export.id}-{done:08d}",
                advance,
            )
        except (UserError, TooManyBadRecords) as error:
            self._refuse(export.id, token, str(error))
            return REFUSED
        return self._tell(export, token)

    def _check_content(self, files: list[DataFile]) -> None:
        """Raise UserError where a data file is damaged: it is read once for this before any of it is committed."""

        def check(part: Iterable[DataFile]) -> Iterator[str]:
            import boto3

            s3 = boto3.client("s3")
            return (found for found in (defect(file, s3) for file in part) if found is not None)

        slices = min(len(files), self._settings.parallelism)
        for found in self._spark.sparkContext.parallelize(files, slices).mapPartitions(check).collect():
            raise UserError(f"{found}. The file is damaged: export the table again.")

    def _decode(self, export: Export, files: list[DataFile], completes: bool) -> DataFrame:
        contract, epoch, table = self._contract, self._settings.epoch, self._source_table
        export_id, time = export.id, export.time

        def decode(part: Iterable[DataFile]) -> Iterator[tuple[Any, ...]]:
            import boto3

            return decode_items(iter(part), DynamoDecoder(contract, epoch, table), export_id, time, boto3.client("s3"))

        schema = ", ".join(f"`{name}` {type_}" for name, type_ in columns_tagged(contract))
        slices = min(len(files), self._settings.parallelism)
        rows = self._spark.sparkContext.parallelize(files, slices).mapPartitions(decode)
        if completes:
            nothing = (None,) * len(contract.lake_columns())
            rows = rows.union(self._spark.sparkContext.parallelize([(*nothing, floor(epoch, time), None, None)], 1))
        return self._spark.createDataFrame(rows, schema, verifySchema=False)

    def _tell(self, export: Export, token: str) -> str:
        """Report how far an export is committed, and return its state."""
        done = self._writer.progress.exports.get(export.id, 0)
        state = DONE if done == len(export.files) else RUNNING
        items = sum(found.items for found in export.files[:done])
        self._answer(export.id, Status(token, state, len(export.files), done, items))
        return state

    def _refuse(self, export_id: str, token: str, reason: str) -> None:
        self._answer(export_id, Status(token, REFUSED, reason=reason))

    def _answer(self, export_id: str, status: Status) -> None:
        self._requests.answer(export_id, status)
        told = {name: value for name, value in asdict(status).items() if name != "token"}
        self._report({"event": "backfill", "table": self._contract.table, "export": export_id, **told})


def _some(files: tuple[DataFile, ...], most_bytes: int) -> list[DataFile]:
    """The first files until ``most_bytes`` are reached, and one at least."""
    taken: list[DataFile] = []
    total = 0
    for found in files:
        if taken and total + found.size > most_bytes:
            break
        taken.append(found)
        total += found.size
    return taken


def _iso(micros: int) -> str:
    moment = dt.datetime.fromtimestamp(micros // 10**6, dt.timezone.utc) + dt.timedelta(microseconds=micros % 10**6)
    return moment.isoformat().replace("+00:00", "Z")
