"""moto's server, with Kinesis streams and secrets that behave as on AWS if a reader depends on it.

moto 5.2.5 puts records into shards that a split or a merge has closed, and copies the records of merged shards. It
counts the sequence numbers of each shard from 1, and never ends the iterator of a closed shard. So it cannot test a
reader that follows resharding. Here a record goes to the open shard of its hash key and stays there, with a higher
sequence number than all earlier records. The iterator of a closed shard ends after its last record.

moto 5.2.5 moves the label AWSCURRENT, but a request without a version still gets the version that had the label. Here
the request gets the version that has the label now.

moto 5.2.5 lists its own folder twice per request, and parses the time of each object anew in each listing. Here it does
both only once.

moto checks no signature and answers pages in browsers. This server answers only requests that are signed with the
credentials in the environment.

python -m rig.local.moto_server PORT
"""

import functools
import hashlib
import io
import itertools
import json
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from botocore.utils import parse_to_aware_datetime
from moto import backends
from moto.core import serialize
from moto.kinesis import models
from moto.kinesis.utils import decompose_shard_iterator
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from moto.secretsmanager.models import SecretsManagerBackend
from werkzeug.serving import run_simple
from werkzeug.wrappers import Response

from rig.local.signature import Refused, SignedRequest, refuse_pages, verify

# More than any service except S3 accepts: 16 MiB is the limit of DynamoDB's requests.
_LARGEST_BODY = 16 << 20
# As many digits as Kinesis's own sequence numbers have.
_sequence_numbers = itertools.count(49 * 10**54)
# Each request has its own thread, and a reader must not see a shard in the middle of a split.
_lock = threading.RLock()
_put_record = models.Stream.put_record
_split_shard = models.Stream.split_shard
_merge_shards = models.Stream.merge_shards
_get_records = models.KinesisBackend.get_records
_update_secret_version_stage = SecretsManagerBackend.update_secret_version_stage
_list_of_moto_modules = backends.list_of_moto_modules


def mend() -> None:
    """Replace moto's behaviour in this process."""
    for owner, name, function in (
        (models.Stream, "put_record", put_record),
        (models.Shard, "put_record", append_record),
        (models.Stream, "get_shard_for_key", get_shard_for_key),
        (models.Stream, "split_shard", split_shard),
        (models.Stream, "merge_shards", merge_shards),
        (models.KinesisBackend, "get_records", get_records),
        (SecretsManagerBackend, "update_secret_version_stage", update_secret_version_stage),
        (backends, "list_of_moto_modules", moto_modules),
        (serialize, "parse_to_aware_datetime", functools.lru_cache(4096)(parse_to_aware_datetime)),
    ):
        setattr(owner, name, function)


def put_record(stream: Any, partition_key: str, explicit_hash_key: str, data: str) -> tuple[str, str]:
    """Put a record into a stream and return its sequence number and its shard's id."""
    with _lock:
        number, shard_id = _put_record(stream, partition_key, explicit_hash_key, data)
        return number, shard_id


def append_record(shard: Any, partition_key: str, data: str, explicit_hash_key: str) -> str:
    """Append a record to a shard and return its sequence number."""
    number = next(_sequence_numbers)
    shard.records[number] = models.Record(partition_key, data, number, explicit_hash_key)
    return str(number)


def get_shard_for_key(stream: Any, partition_key: str, explicit_hash_key: str) -> Any:
    """Return the open shard that takes a record."""
    digest = hashlib.md5(partition_key.encode(), usedforsecurity=False).hexdigest()
    number = int(explicit_hash_key) if explicit_hash_key else int(digest, 16)
    shards = (shard for shard in stream.shards.values() if shard.is_open)
    return next(shard for shard in shards if shard.starting_hash <= number <= shard.ending_hash)


def split_shard(stream: Any, shard_to_split: str, new_starting_hash_key: str) -> None:
    """Split a shard. Its records stay in it."""
    with _lock:
        kept = _set_aside(stream, [shard_to_split])
        try:
            _split_shard(stream, shard_to_split, new_starting_hash_key)
        finally:
            _put_back(kept)


def merge_shards(stream: Any, shard_to_merge: str, adjacent_shard_to_merge: str) -> None:
    """Merge two shards. Their records stay in them."""
    with _lock:
        kept = _set_aside(stream, [shard_to_merge, adjacent_shard_to_merge])
        try:
            _merge_shards(stream, shard_to_merge, adjacent_shard_to_merge)
        finally:
            _put_back(kept)


def get_records(
    backend: Any, stream_arn: str | None, shard_iterator: str, limit: int | None
) -> tuple[str | None, list[Any], int]:
    """Return the next iterator (None at the end of a closed shard), the records, and their delay in ms."""
    with _lock:
        following, records, behind = _get_records(backend, stream_arn, shard_iterator, limit)
        stream, shard_id, last = decompose_shard_iterator(following)
        shard = backend.describe_stream(stream_arn, stream).get_shard(shard_id)
        ended = not shard.is_open and int(last) >= shard.get_max_sequence_number()
        return None if ended else following, records, behind


def _set_aside(stream: Any, shards: list[str]) -> list[tuple[Any, Any]]:
    """Hide the records of shards from moto, which would move or copy them."""
    kept = [(stream.shards[name], stream.shards[name].records) for name in shards]
    for shard, records in kept:
        shard.records = type(records)()
    return kept


def _put_back(kept: list[tuple[Any, Any]]) -> None:
    for shard, records in kept:
        shard.records = records


def update_secret_version_stage(
    backend: Any, secret_id: str, version_stage: str, remove_from_version_id: str, move_to_version_id: str
) -> tuple[str, str]:
    """Move a label. With AWSCURRENT, a request without a version gets the label's new version from then on."""
    arn, name = _update_secret_version_stage(
        backend, secret_id, version_stage, remove_from_version_id, move_to_version_id
    )
    if version_stage == "AWSCURRENT" and move_to_version_id:
        backend.secrets[secret_id].default_version_id = move_to_version_id
    return arn, name


@functools.cache
def moto_modules() -> frozenset[str]:
    """Return the names of moto's services."""
    return frozenset(_list_of_moto_modules())


class SignedOnly:
    """A WSGI application that passes requests signed with ``credentials`` to ``application``.

    It refuses all others with status 403.
    """

    def __init__(self, application: Callable[..., Iterable[bytes]], credentials: Mapping[str, str]) -> None:
        self._application = application
        self._credentials = credentials

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request, as PEP 3333 defines it."""
        try:
            self._check(environ)
        except Refused as refused:
            body = json.dumps({"__type": refused.code, "message": str(refused)})
            headers = {"x-amzn-errortype": refused.code}
            answer = Response(body, 403, headers, content_type="application/x-amz-json-1.1")
            return answer(environ, start_response)
        return self._application(environ, start_response)

    def _check(self, environ: dict[str, Any]) -> None:
        """Raise ``Refused`` unless the request is signed. The body can be read again afterwards."""
        headers = {
            name.removeprefix("HTTP_").replace("_", "-").lower(): value
            for name, value in environ.items()
            if name.startswith("HTTP_") or name in ("CONTENT_TYPE", "CONTENT_LENGTH")
        }
        refuse_pages(headers)
        length = headers.get("content-length") or "0"
        # The sender of a body is verified only after the body has been read, so its size is limited first.
        if not length.isdecimal() or int(length) > _LARGEST_BODY:
            raise Refused("RequestTooLarge", f"Content-Length: found {length}, expected {_LARGEST_BODY} at most")
        body = environ["wsgi.input"].read(int(length))
        path, _, query = environ["RAW_URI"].partition("?")
        verify(SignedRequest(environ["REQUEST_METHOD"], path, query, headers, body), self._credentials)
        environ["wsgi.input"] = io.BytesIO(body)


def serve(port: int) -> None:
    """Serve a port of 127.0.0.1 until the process ends."""
    # moto finds its own address by this variable.
    os.environ["MOTO_PORT"] = str(port)
    application = SignedOnly(DomainDispatcherApplication(create_backend_app), os.environ)
    run_simple("127.0.0.1", port, application, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    mend()
    serve(int(sys.argv[1]))
