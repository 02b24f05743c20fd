"""Entries of the Glue Data Catalog: the Hudi table of a contract, and views for Athena."""

from __future__ import annotations

import base64
import json

import aws_cdk as cdk
from aws_cdk import aws_glue as glue

from headwater.contract.model import Contract
from headwater.contract.types import Type
from headwater.definitions.glue_table import table_input
from headwater.definitions.published_view import View, athena_type


def hudi_table(stack: cdk.Stack, database: str, contract: Contract, uri: str) -> cdk.CfnResource:
    """The table of a contract whose files lie at ``uri``."""
    # CloudFormation takes the input of Glue's API word for word, which the local run gives to Glue's API.
    return cdk.CfnResource(
        stack,
        f"Table-{contract.table}",
        type=glue.CfnTable.CFN_RESOURCE_TYPE_NAME,
        properties={"CatalogId": stack.account, "DatabaseName": database, "TableInput": table_input(contract, uri)},
    )


def athena_view(stack: cdk.Stack, logical_id: str, database: str, view: View) -> glue.CfnTable:
    """A view as Athena stores it: its SQL and its columns in Presto's types, as JSON in a comment."""
    definition = {
        "originalSql": view.sql,
        "catalog": "awsdatacatalog",
        "schema": database,
        "columns": [{"name": column, "type": athena_type(type_)} for column, type_ in view.columns],
    }
    encoded = base64.b64encode(json.dumps(definition).encode()).decode()
    return glue.CfnTable(
        stack,
        logical_id,
        catalog_id=stack.account,
        database_name=database,
        table_input=glue.CfnTable.TableInputProperty(
            name=view.name,
            description=view.description,
            table_type="VIRTUAL_VIEW",
            parameters={"presto_view": "true", "comment": "Presto View"},
            partition_keys=[],
            storage_descriptor=glue.CfnTable.StorageDescriptorProperty(
                columns=[_column(*column) for column in view.columns],
                location="",
                serde_info=glue.CfnTable.SerdeInfoProperty(),
            ),
            view_original_text=f"/* Presto View: {encoded} */",
            view_expanded_text="/* Presto View */",
        ),
    )


def _column(name: str, type_: Type) -> glue.CfnTable.ColumnProperty:
    return glue.CfnTable.ColumnProperty(name=name, type=type_.ddl())
