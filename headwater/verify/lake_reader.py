"""The lake's side: Hudi tables read with hudi-rs.

hudi-rs shares no code with the library that writes the lake, so the writer does not vouch for itself.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from hudi import HudiReadOptions, HudiTableBuilder

from headwater.contract.model import Contract
from headwater.errors import UserError

BATCH_ROWS = 8192


def s3_options(
    region: str,
    endpoint: str | None = None,
    access_key: str | None = None,
    secret_key: str | None = None,
    session_token: str | None = None,
) -> dict[str, str]:
    """hudi-rs's storage options for S3.

    An ``endpoint`` may be http, and is addressed with the bucket in the path. Without keys, hudi-rs takes those of the
    environment or of the machine's role.
    """
    options = {
        "aws_region": region,
        "aws_access_key_id": access_key,
        "aws_secret_access_key": secret_key,
        "aws_session_token": session_token,
    }
    if endpoint is not None:
        options |= {
            # AWS_ENDPOINT_URL of the environment becomes this option too. Under another of the option's names, this
            # endpoint would lose to that one now and then.
            "aws_endpoint_url": endpoint,
            "aws_allow_http": "true",
            "aws_virtual_hosted_style_request": "false",
        }
    return {name: value for name, value in options.items() if value is not None}


def read_lake(uri: str, storage: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """Stream a Hudi table's current snapshot, tombstones included. A table that was never written gives nothing.

    ``storage`` are hudi-rs's storage options (see ``s3_options``). Raises UserError where the table cannot be read.
    """
    try:
        table = HudiTableBuilder.from_base_uri(uri).with_storage_options(dict(storage)).build()
        yield from table.read_stream(HudiReadOptions().with_batch_size(BATCH_ROWS))
    except Exception as error:
        # hudi-rs raises the same class for every error; only the text says what happened.
        if _never_written(str(error)):
            return
        raise UserError(
            f"{uri} cannot be read as a Hudi table: {error}. Check --lake, --endpoint and the AWS credentials."
        ) from error


def _never_written(message: str) -> bool:
    return "hoodie.properties not found" in message and "NoSuchBucket" not in message


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
    """A lake table's live rows as one Arrow table, or None where it was never written."""
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
