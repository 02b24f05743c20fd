"""The lake's side: Hudi tables read with hudi-rs.

hudi-rs shares no code with the library that writes the lake, so the writer does not vouch for itself.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pyarrow as pa
import pyarrow.compute as pc
from hudi import HudiReadOptions, HudiTable, HudiTableBuilder
from pyarrow import fs
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from headwater.contract.model import Contract
from headwater.errors import UserError

BATCH_ROWS = 8192
_COMPACTION_SECONDS = 60.0


def s3_options(
    region: str,
    endpoint: str | None = None,
    access_key: str | None = None,
    secret_key: str | None = None,
    session_token: str | None = None,
) -> dict[str, str]:
    """hudi-rs's storage options for S3.

    An ``endpoint`` may be http, and is addressed with the bucket in the path. Without keys, hudi-rs takes the
    credentials of the environment or of the machine's role.
    """
    options = {
        "aws_region": region,
        "aws_access_key_id": access_key,
        "aws_secret_access_key": secret_key,
        "aws_session_token": session_token,
    }
    if endpoint is not None:
        options |= {
            # AWS_ENDPOINT_URL of the environment becomes this option too. If our endpoint had another of the option's
            # names, the variable would sometimes win.
            "aws_endpoint_url": endpoint,
            "aws_allow_http": "true",
            "aws_virtual_hosted_style_request": "false",
        }
    return {name: value for name, value in options.items() if value is not None}


def read_lake(uri: str, storage: Mapping[str, str], patience: float | None = None) -> Iterator[pa.RecordBatch]:
    """Stream a Hudi table's current snapshot, tombstones included. A table that was never written gives nothing.

    The call itself reads the table's properties alone. The first use of the iterator takes the snapshot, so a
    comparison can read its source in between. ``storage`` are hudi-rs's storage options (see ``s3_options``). Waits for
    a compaction that is under way, up to ``patience`` seconds, by default a minute. Raises CompactionOpen if that is
    not completed, and UserError if the table cannot be read.
    """
    try:
        _described(uri, storage)
    except Exception as error:
        _refuse_unless_unwritten(uri, error)
    return _rows(uri, storage, patience)


def _rows(uri: str, storage: Mapping[str, str], patience: float | None) -> Iterator[pa.RecordBatch]:
    patiently = Retrying(
        retry=retry_if_exception_type(CompactionOpen),
        stop=stop_after_delay(_COMPACTION_SECONDS if patience is None else patience),
        wait=wait_fixed(1),
        reraise=True,
    )
    try:
        table = patiently(_open, uri, storage)
        yield from table.read_stream(HudiReadOptions().with_batch_size(BATCH_ROWS))
    except UserError:
        raise
    except Exception as error:
        _refuse_unless_unwritten(uri, error)


def _refuse_unless_unwritten(uri: str, error: Exception) -> None:
    # hudi-rs raises the same class for every error; only the text says what happened.
    message = str(error)
    if "hoodie.properties not found" not in message or "NoSuchBucket" in message:
        raise UserError(
            f"{uri} cannot be read as a Hudi table: {message}. Check --lake, --endpoint and the AWS credentials."
        ) from error


class CompactionOpen(UserError):
    """The table's newest rows are in files that hudi-rs does not read yet."""


def _described(uri: str, storage: Mapping[str, str]) -> HudiTable:
    """Read the table's properties, and none of its rows."""
    return HudiTableBuilder.from_base_uri(uri).with_storage_options(dict(storage)).build()


def _open(uri: str, storage: Mapping[str, str]) -> HudiTable:
    """Open the table as of now.

    Commits after the plan of a compaction write to log files of the compaction's new file slice. Until the compaction
    is complete, hudi-rs 0.5 ignores these files and returns older rows. Raises CompactionOpen in that case.
    """
    table = _described(uri, storage)
    timeline = table.get_timeline()
    newest = max((rows.timestamp for rows in timeline.get_completed_deltacommits()), default="")
    # A compaction that was not complete when the timeline was read counts as open.
    completed = {compaction.timestamp for compaction in timeline.get_completed_commits()}
    for instant in _planned_compactions(uri, storage) - completed:
        if instant < newest:
            raise CompactionOpen(
                f"{uri} cannot be read now: it has rows that were committed while the compaction {instant} is under"
                " way. A running writer completes the compaction within seconds; a writer that starts repeats it."
            )
    return table


def _planned_compactions(uri: str, storage: Mapping[str, str]) -> set[str]:
    """The instants of the compactions that are planned, complete or not."""
    place = urlsplit(uri)
    if place.scheme == "file":
        files, folder = fs.LocalFileSystem(), url2pathname(place.path)
    else:
        # As hudi-rs does; Arrow would not look there.
        endpoint = urlsplit(storage.get("aws_endpoint_url") or os.environ.get("AWS_ENDPOINT_URL", ""))
        files = fs.S3FileSystem(
            region=storage.get("aws_region"),
            access_key=storage.get("aws_access_key_id"),
            secret_key=storage.get("aws_secret_access_key"),
            session_token=storage.get("aws_session_token"),
            endpoint_override=endpoint.netloc or None,
            scheme=endpoint.scheme or "https",
        )
        folder = f"{place.netloc}{place.path}"
    names = (info.base_name for info in files.get_file_info(fs.FileSelector(f"{folder.rstrip('/')}/.hoodie")))
    return {name.partition(".")[0] for name in names if name.endswith(".compaction.requested")}


def live_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Leave out tombstones: rows whose ``_deleted`` is true."""
    for batch in batches:
        at = batch.schema.get_field_index("_deleted")
        if at < 0:
            yield batch
        else:
            deleted = pc.fill_null(batch.column(at), False)
            yield batch.filter(pc.invert(deleted))


def read_live_table(uri: str, storage: Mapping[str, str]) -> pa.Table | None:
    """A lake table's live rows as one Arrow table, or None if it was never written."""
    batches = list(live_rows(read_lake(uri, storage)))
    return pa.Table.from_batches(batches) if batches else None


ReadTable = Callable[[str, Mapping[str, str]], Iterable[pa.RecordBatch]]
"""Reads a table by its URI and hudi-rs's storage options."""


@dataclass(frozen=True)
class Lake:
    """The lake's tables, each in the folder of its name below ``uri``.

    ``storage`` are hudi-rs's storage options (see ``s3_options``); ``read_table`` reads one table with them.
    """

    uri: str
    storage: Mapping[str, str]
    read_table: ReadTable = read_lake

    def table(self, contract: Contract) -> Iterable[pa.RecordBatch]:
        """The rows of a contract's table, tombstones included."""
        return self.read_table(f"{self.uri.rstrip('/')}/{contract.table}", self.storage)
