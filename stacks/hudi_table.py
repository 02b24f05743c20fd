"""Entries of the Glue Data Catalog: the Hudi table of a contract, and views."""

from __future__ import annotations

from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_glue as glue

from headwater.contract.model import Contract
from headwater.definitions.glue_table import table_input
from headwater.definitions.published_view import View


def hudi_table(stack: cdk.Stack, database: str, contract: Contract, uri: str) -> cdk.CfnResource:
    """The catalog entry of a contract's Hudi table, whose files lie at ``uri``."""
    return _entry(stack, f"Table-{contract.table}", database, table_input(contract, uri))


def catalog_view(stack: cdk.Stack, logical_id: str, database: str, view: View) -> cdk.CfnResource:
    """The catalog entry of a view that Athena and Spark can read."""
    return _entry(stack, logical_id, database, view.table_input(database))


def _entry(stack: cdk.Stack, logical_id: str, database: str, entry: dict[str, Any]) -> cdk.CfnResource:
    # CloudFormation passes this input to Glue's API unchanged. The local run calls Glue's API with the same input.
    return cdk.CfnResource(
        stack,
        logical_id,
        type=glue.CfnTable.CFN_RESOURCE_TYPE_NAME,
        properties={"CatalogId": stack.account, "DatabaseName": database, "TableInput": entry},
    )
