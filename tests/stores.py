"""Searches all stores: S3 with its older versions, and files on this machine, such as Kafka's segments.

It unpacks and decodes the files by readers that share no code with Headwater. It reports files that it cannot read.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import io
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
from kafka.record.memory_records import MemoryRecords


class Trace(NamedTuple):
    """A version of an object, or a file, in which markers were found."""

    key: str
    """The object's key, or the file's path."""
    version: str
    """The version's id."""
    is_current: bool
    """Whether readers get this version."""
    told: frozenset[str]
    """The markers in the content or in the key."""

    def store(self, prefix: str = "") -> str:
        """The trace's store: its folder after a ``prefix`` of its key, and the kind of file.

        The folder of a trace in the lake is its table's folder.
        """
        first, _, others = self.key.removeprefix(prefix).partition("/")
        name = self.key.rpartition("/")[2]
        ending = "log" if ".log." in name else name.rpartition(".")[2]
        folder = others.partition("/")[0] if first == "lake" else first
        return f"{folder} {ending}{'' if self.is_current else ' of before'}"


def traces(s3: Any, bucket: str, prefix: str, markers: list[str]) -> list[Trace]:
    """The versions of objects, current ones too, that contain some of the markers in their content or their key."""
    found = []
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix):
        for entry in page.get("Versions", ()):
            body = s3.get_object(Bucket=bucket, Key=entry["Key"], VersionId=entry["VersionId"])["Body"].read()
            texts = [entry["Key"].encode(), *unpacked(entry["Key"], body)]
            told = frozenset(marker for marker in markers if any(_tells(text, marker) for text in texts))
            if told:
                found.append(Trace(entry["Key"], entry["VersionId"], entry["IsLatest"], told))
        found += [
            Trace(mark["Key"], mark["VersionId"], False, frozenset(markers))
            for mark in page.get("DeleteMarkers", ())
            if any(marker in mark["Key"] for marker in markers)
        ]
    return found


def file_traces(folder: Path, markers: list[str]) -> list[Trace]:
    """The files below a folder that contain some of the markers, by their paths from the folder's parent."""
    found = []
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        try:
            body = path.read_bytes()
        except FileNotFoundError:
            continue  # a running part has deleted the file meanwhile
        key = str(path.relative_to(folder.parent))
        # Kafka renames segments that it is about to delete to NAME.log.deleted.
        is_segment = path.name.partition(".")[0].isdigit() and ".log" in path.name
        texts = [key.encode(), *(_kafka_records(body) if is_segment else ()), *unpacked(key, body)]
        told = frozenset(marker for marker in markers if any(_tells(text, marker) for text in texts))
        if told:
            found.append(Trace(key, "", True, told))
    return found


def _kafka_records(body: bytes) -> Iterator[bytes]:
    """The records of a segment, which may be compressed."""
    records = MemoryRecords(body)
    while (batch := records.next_batch()) is not None:
        for record in batch:
            for part in (record.key, record.value, *(content for _, content in record.headers)):
                if part is not None:
                    yield bytes(part)


def _tells(content: bytes, marker: str) -> bool:
    text = marker.encode()
    # Hudi writes some keys by Kryo, which sets a bit in the last letter of a text.
    return text in content or text[:-1] + bytes([text[-1] | 0x80]) in content


def unpacked(key: str, body: bytes) -> Iterator[bytes]:
    """The content of an object: its bytes, and the values in them by the object's kind."""
    yield body
    if body.startswith(b"PAR1"):
        yield from _parquet(body)
    elif b"#HUDI#" in body[:6]:
        yield from _log_blocks(key, body)
    elif body.startswith(b"\x1f\x8b"):
        content = gzip.decompress(body)
        yield content
        yield from _json_lines(content)
    else:
        yield from _json_lines(body)


def _parquet(body: bytes) -> Iterator[bytes]:
    file = pq.ParquetFile(io.BytesIO(body))
    yield repr(file.read().to_pylist()).encode()
    yield repr(file.metadata.to_dict()).encode()  # with the least and the greatest value of each column
    yield b"\n".join(part for pair in (file.metadata.metadata or {}).items() for part in pair)


def _log_blocks(key: str, body: bytes) -> Iterator[bytes]:
    """The content of a log file's blocks: Avro as it is, or in gzip, and Parquet."""
    at = 0
    while at < len(body):
        assert body[at : at + 6] == b"#HUDI#", f"{key}: no block at {at}"
        (size,) = struct.unpack(">q", body[at + 6 : at + 14])
        block = body[at + 14 : at + 14 + size]
        yield block
        for start in _starts(block, b"\x1f\x8b\x08"):
            try:
                yield gzip.decompress(block[start:])
            except (OSError, EOFError, ValueError):
                continue
        for start in _starts(block, b"PAR1"):
            try:
                yield from _parquet(block[start : block.rindex(b"PAR1") + 4])
            except (OSError, ValueError):
                continue
        at += 14 + size


def _starts(content: bytes, mark: bytes) -> Iterator[int]:
    at = content.find(mark)
    while at >= 0:
        yield at
        at = content.find(mark, at + 1)


def _json_lines(content: bytes) -> Iterator[bytes]:
    """All texts in lines of JSON, and the bytes of texts in base64."""
    for line in content.splitlines():
        try:
            document = json.loads(line)
        except ValueError:
            continue
        yield from _texts(document)


def _texts(document: Any) -> Iterator[bytes]:
    if isinstance(document, dict):
        for name, value in document.items():
            yield name.encode("utf-8", "surrogatepass")
            yield from _texts(value)
    elif isinstance(document, list):
        for value in document:
            yield from _texts(value)
    elif isinstance(document, str):
        yield document.encode("utf-8", "surrogatepass")
        try:
            yield base64.b64decode(document, validate=True)
        except (ValueError, binascii.Error):
            return
    else:
        yield str(document).encode()
