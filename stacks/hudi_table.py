"""Glue tables from contracts: the Hudi table and its published view."""

from __future__ import annotations

import base64
import json
from typing import Any

from aws_cdk import aws_glue as glue
from constructs import Construct

from headwater.contract import Contract, Type
from headwater.views import athena_type, published_columns, published_view_name, published_view_sql

# Hudi's own columns, first in every file: https://hudi.apache.org/docs/0.15.0/faq_general (meta fields).
HUDI_COLUMNS = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
# Hive's metastore holds at most 4000 characters in one property, so Spark splits the schema.
_SCHEMA_PART = 4000


def table_columns(contract: Contract) -> tuple[list[tuple[str, Type]], list[tuple[str, Type]]]:
    """Columns and partition keys of the Glue table, each as name and type, in order."""
    everything = [*((name, Type("string")) for name in HUDI_COLUMNS), *contract.lake_columns()]
    kinds = dict(everything)
    columns = [(name, type_) for name, type_ in everything if name not in contract.partition_by]
    return columns, [(name, kinds[name]) for name in contract.partition_by]


def hudi_table(scope: Construct, name: str, catalog: str, database: str, contract: Contract, uri: str) -> glue.CfnTable:
    """The snapshot (real-time) view of a MERGE_ON_READ table at ``uri``, as Hudi's own catalog sync would make it."""
    columns, partitions = table_columns(contract)
    return glue.CfnTable(
        scope,
        name,
        catalog_id=catalog,
        database_name=database,
        table_input=glue.CfnTable.TableInputProperty(
            name=contract.table,
            description=contract.description,
            table_type="EXTERNAL_TABLE",
            parameters={
                "EXTERNAL": "TRUE",
                "classification": "hudi",
                # Athena's reader of Hudi 0.15 instead of 0.14.
                "athena_enable_native_hudi_connector_implementation": "true",
                "spark.sql.sources.provider": "hudi",
                **_spark_schema([*columns, *partitions], [partition for partition, _ in partitions]),
            },
            partition_keys=[_column(*partition) for partition in partitions],
            storage_descriptor=glue.CfnTable.StorageDescriptorProperty(
                location=uri,
                columns=[_column(*column) for column in columns],
                input_format="org.apache.hudi.hadoop.realtime.HoodieParquetRealtimeInputFormat",
                output_format="org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
                serde_info=glue.CfnTable.SerdeInfoProperty(
                    serialization_library="org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
                    parameters={"serialization.format": "1", "hoodie.query.as.ro.table": "false", "path": uri},
                ),
            ),
        ),
    )


def published_view(scope: Construct, name: str, catalog: str, database: str, contract: Contract) -> glue.CfnTable:
    """The published view as Athena stores one: its SQL and its columns in Presto's types, as JSON in a comment."""
    columns = published_columns(contract)
    definition = {
        "originalSql": published_view_sql(contract, database),
        "catalog": "awsdatacatalog",
        "schema": database,
        "columns": [{"name": column, "type": athena_type(type_)} for column, type_ in columns],
    }
    encoded = base64.b64encode(json.dumps(definition).encode()).decode()
    return glue.CfnTable(
        scope,
        name,
        catalog_id=catalog,
        database_name=database,
        table_input=glue.CfnTable.TableInputProperty(
            name=published_view_name(contract),
            description=f"{contract.description} Deleted rows are left out.",
            table_type="VIRTUAL_VIEW",
            parameters={"presto_view": "true", "comment": "Presto View"},
            partition_keys=[],
            storage_descriptor=glue.CfnTable.StorageDescriptorProperty(
                columns=[_column(*column) for column in columns],
                location="",
                serde_info=glue.CfnTable.SerdeInfoProperty(),
            ),
            view_original_text=f"/* Presto View: {encoded} */",
            view_expanded_text="/* Presto View */",
        ),
    )


def spark_type(type_: Type) -> Any:
    """A lake type in the JSON form of Spark's schemas."""
    if type_.kind == "array" and type_.element is not None:
        return {"type": "array", "elementType": spark_type(type_.element), "containsNull": True}
    if type_.kind == "struct":
        return {"type": "struct", "fields": [_spark_field(name, field) for name, field in type_.fields]}
    return {"int": "integer", "bigint": "long"}.get(type_.kind, type_.ddl())


def _spark_field(name: str, type_: Type) -> dict[str, Any]:
    return {"name": name, "type": spark_type(type_), "nullable": True, "metadata": {}}


def _spark_schema(columns: list[tuple[str, Type]], partitions: list[str]) -> dict[str, str]:
    fields = [_spark_field(name, type_) for name, type_ in columns]
    text = json.dumps({"type": "struct", "fields": fields}, separators=(",", ":"))
    parts = [text[at : at + _SCHEMA_PART] for at in range(0, len(text), _SCHEMA_PART)]
    properties = {"spark.sql.sources.schema.numParts": str(len(parts))}
    properties |= {f"spark.sql.sources.schema.part.{index}": part for index, part in enumerate(parts)}
    if partitions:
        properties["spark.sql.sources.schema.numPartCols"] = str(len(partitions))
        properties |= {f"spark.sql.sources.schema.partCol.{index}": name for index, name in enumerate(partitions)}
    return properties


def _column(name: str, type_: Type) -> glue.CfnTable.ColumnProperty:
    return glue.CfnTable.ColumnProperty(name=name, type=type_.glue())
