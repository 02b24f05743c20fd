"""Glue tables from contracts: the Hudi table and its published view."""

from __future__ import annotations

import base64
import json

import aws_cdk as cdk
from aws_cdk import aws_glue as glue

from headwater.contract.model import Contract
from headwater.contract.types import Type
from headwater.definitions.glue_table import table_input
from headwater.definitions.published_view import athena_type, published_columns, published_view_name, published_view_sql


def hudi_table(stack: cdk.Stack, database: str, contract: Contract, uri: str) -> cdk.CfnResource:
    """The table of a contract whose files lie at ``uri``."""
    # CloudFormation takes the input of Glue's API word for word, which the local run gives to Glue's API.
    return cdk.CfnResource(
        stack,
        f"Table-{contract.table}",
        type=glue.CfnTable.CFN_RESOURCE_TYPE_NAME,
        properties={"CatalogId": stack.account, "DatabaseName": database, "TableInput": table_input(contract, uri)},
    )


def published_view(stack: cdk.Stack, database: str, contract: Contract) -> glue.CfnTable:
    """The published view as Athena stores it: its SQL and its columns in Presto's types, as JSON in a comment."""
    columns = published_columns(contract)
    definition = {
        "originalSql": published_view_sql(contract, database),
        "catalog": "awsdatacatalog",
        "schema": database,
        "columns": [{"name": column, "type": athena_type(type_)} for column, type_ in columns],
    }
    encoded = base64.b64encode(json.dumps(definition).encode()).decode()
    return glue.CfnTable(
        stack,
        f"View-{contract.table}",
        catalog_id=stack.account,
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


def _column(name: str, type_: Type) -> glue.CfnTable.ColumnProperty:
    return glue.CfnTable.ColumnProperty(name=name, type=type_.ddl())
