"""What the example's lake folder brings beside contracts and environments."""

from collections.abc import Sequence

from headwater.contract.model import Contract
from headwater.definitions.database_files import read_database_files
from headwater.definitions.lake_content import LakeContent, read_content
from headwater.lake_folder import EXAMPLE

ORDERS = "orders"
"""The table that the example's saved queries read."""


def example_content(contracts: Sequence[Contract]) -> LakeContent:
    """The example's files; without its queries for contracts that have no orders."""
    if any(contract.table == ORDERS for contract in contracts):
        return read_content(EXAMPLE.database, EXAMPLE.queries, contracts)
    return LakeContent(read_database_files(EXAMPLE.database))
