"""A lake table's entry in the Glue Data Catalog, made from its contract for the templates and the local run.

The entry is for snapshot queries (Hudi's real-time view) of a MERGE_ON_READ table, as Hudi's own catalog sync would
register it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from headwater.contract.model import CHANGE_DAY, Contract
from headwater.contract.types import Type

# Hudi's own columns, first in every file: https://hudi.apache.org/docs/0.15.0/faq_general (meta fields).
HUDI_COLUMNS = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
_COMMENTS = {
    "_hoodie_commit_time": "When the row was committed to the lake, as 20240229235959123",
    "_key": "The row's key as one text",
    "_op": "The row's last change: c created, u updated, d deleted, r read",
    "_order": "What orders the row's changes: the greatest is the last",
    "_source_ts": "When the row was last changed in its source, or read there, in UTC",
    "_position": "Where the change stands in its topic or stream",
    "_deleted": "Whether the row is deleted; views leave it out",
    "_deleted_by": "ttl where the row's time to live has deleted it, client where a client has",
    "_rest": "What no column takes, and what does not fit its column, as JSON",
    "_unfit": "The columns that are null because the value did not fit",
}
_CHANGE_COMMENTS = {
    "_key": "The change's key as one text: the row's key, and the order",
    "_op": "c created, u updated, d deleted, r read; t all was read until here, late and expired bound the history",
    "_source_ts": "When the change was committed in its source, or the row read there, in UTC",
    "_deleted": "Whether the change has deleted its row",
    CHANGE_DAY: "The day of the change in UTC, as 2024-02-29",
}
# Hive's metastore holds at most 4000 characters in one property, so Spark splits the schema.
_SCHEMA_PART = 4000


def table_columns(contract: Contract) -> tuple[list[tuple[str, Type]], list[tuple[str, Type]]]:
    """Return the columns and the partition keys of the Glue table, each as name and type, in order."""
    all_columns = [*((name, Type("string")) for name in HUDI_COLUMNS), *contract.lake_columns()]
    types = dict(all_columns)
    columns = [(name, type_) for name, type_ in all_columns if name not in contract.partitions]
    return columns, [(name, types[name]) for name in contract.partitions]


def column_comments(contract: Contract) -> dict[str, str]:
    """Return the comments of columns by name: the contract's descriptions, and those for the writer's own columns."""
    said = {column.name: column.description for column in contract.columns if column.description is not None}
    return _COMMENTS | (_CHANGE_COMMENTS if contract.is_history else {}) | said


def table_input(contract: Contract, uri: str) -> dict[str, Any]:
    """Return the ``TableInput`` of Glue's API for the table's files at ``uri``. CloudFormation takes it unchanged."""
    columns, partitions = table_columns(contract)
    comments = column_comments(contract)
    return {
        "Name": contract.table,
        "Description": contract.description,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {
            "EXTERNAL": "TRUE",
            "classification": "hudi",
            # No table has Hudi's metadata table, so Athena lists the files.
            "hudi.metadata-listing-enabled": "FALSE",
            # By this property Athena reads with Hudi 0.15 instead of 0.14.
            "athena_enable_native_hudi_connector_implementation": "true",
            "spark.sql.sources.provider": "hudi",
            **_spark_schema([*columns, *partitions], comments, [partition for partition, _ in partitions]),
        },
        "PartitionKeys": [glue_column(*partition, comments) for partition in partitions],
        "StorageDescriptor": {
            "Location": uri,
            "Columns": [glue_column(*column, comments) for column in columns],
            "InputFormat": "org.apache.hudi.hadoop.realtime.HoodieParquetRealtimeInputFormat",
            "OutputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
            "SerdeInfo": {
                "SerializationLibrary": "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
                "Parameters": {"serialization.format": "1", "hoodie.query.as.ro.table": "false", "path": uri},
            },
        },
    }


def spark_type(type_: Type) -> Any:
    """Return a lake type in the JSON form of Spark's schemas."""
    if type_.kind == "array" and type_.element is not None:
        return {"type": "array", "elementType": spark_type(type_.element), "containsNull": True}
    if type_.kind == "struct":
        return {"type": "struct", "fields": [_spark_field(name, field) for name, field in type_.fields]}
    return {"int": "integer", "bigint": "long"}.get(type_.kind, type_.ddl())


def _spark_field(name: str, type_: Type, comments: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    metadata = {"comment": comments[name]} if name in comments else {}
    return {"name": name, "type": spark_type(type_), "nullable": True, "metadata": metadata}


def _spark_schema(
    columns: list[tuple[str, Type]], comments: Mapping[str, str], partitions: list[str]
) -> dict[str, str]:
    fields = [_spark_field(name, type_, comments) for name, type_ in columns]
    text = json.dumps({"type": "struct", "fields": fields}, separators=(",", ":"))
    parts = [text[at : at + _SCHEMA_PART] for at in range(0, len(text), _SCHEMA_PART)]
    properties = {"spark.sql.sources.schema.numParts": str(len(parts))}
    properties |= {f"spark.sql.sources.schema.part.{index}": part for index, part in enumerate(parts)}
    if partitions:
        properties["spark.sql.sources.schema.numPartCols"] = str(len(partitions))
        properties |= {f"spark.sql.sources.schema.partCol.{index}": name for index, name in enumerate(partitions)}
    return properties


def glue_column(name: str, type_: Type, comments: Mapping[str, str]) -> dict[str, str]:
    """Return a column in the form of Glue's API, with its comment if ``comments`` has one."""
    comment = {"Comment": comments[name]} if name in comments else {}
    return {"Name": name, "Type": type_.ddl(), **comment}
