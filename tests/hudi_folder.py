"""A Hudi table of one file, written by hand, so its rows are known without the writer."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_INSTANT = "20240101000000000"
_PROPERTIES = """\
hoodie.table.name=by_hand
hoodie.table.type=COPY_ON_WRITE
hoodie.table.version=6
hoodie.timeline.layout.version=1
hoodie.table.base.file.format=PARQUET
hoodie.table.recordkey.fields=id
hoodie.table.metadata.enable=false
hoodie.populate.meta.fields=false
"""
_AVRO = {"int32": "int", "int64": "long", "bool": "boolean"}


def write_table(folder: Path, rows: pa.Table) -> Path:
    """Write a table without partitions, and return its one data file. Its columns are numbers, texts and booleans."""
    own = folder / ".hoodie"
    own.mkdir(parents=True)
    (own / "hoodie.properties").write_text(_PROPERTIES)
    (folder / ".hoodie_partition_metadata").write_text("commitTime=1\npartitionDepth=0\n")
    file = folder / f"group-0_0-1-1_{_INSTANT}.parquet"
    pq.write_table(rows, file)
    fields = [
        {"name": field.name, "type": ["null", _AVRO.get(re.sub(r"\W.*", "", str(field.type)), "string")]}
        for field in rows.schema
    ]
    written = {"fileId": "group-0", "path": file.name, "partitionPath": "", "numWrites": rows.num_rows}
    commit = {
        "partitionToWriteStats": {"": [written]},
        "operationType": "INSERT",
        "extraMetadata": {"schema": json.dumps({"type": "record", "name": "by_hand", "fields": fields})},
    }
    for ending, content in ((".commit.requested", ""), (".inflight", ""), (".commit", json.dumps(commit))):
        (own / f"{_INSTANT}{ending}").write_text(content)
    return file
