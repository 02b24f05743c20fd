"""Compare source tables with their lake tables, by key and by content.

``forms`` says when two values are equal. ``postgresql_source`` and ``dynamodb_source`` read a source, in bunches by
``paced_reader``, and ``lake_reader`` reads the lake. ``arrow_forms`` and ``dynamodb_forms`` turn values into forms, and
``compare`` finds what differs. Nothing here shares code with what writes the lake.
"""

from collections.abc import Mapping, Sequence

from headwater.contract.model import Contract
from headwater.verify.compare import MAX_EXAMPLES, Example, RowsRead, Source, TableComparison, compare
from headwater.verify.dynamodb_source import DynamoDbSource
from headwater.verify.lake_reader import Lake, read_lake, read_live_table, s3_options
from headwater.verify.postgresql_source import PostgresqlSource, load_queries

__all__ = [
    "MAX_EXAMPLES",
    "DynamoDbSource",
    "Example",
    "Lake",
    "PostgresqlSource",
    "RowsRead",
    "Source",
    "TableComparison",
    "compare",
    "load_queries",
    "read_lake",
    "read_live_table",
    "s3_options",
    "verify_tables",
]


def verify_tables(
    contracts: Sequence[Contract], sources: Mapping[str, Source], lake: Lake, report: RowsRead | None = None
) -> list[TableComparison]:
    """Compare every contract's source with its lake table; the comparisons come in the order of the contracts.

    ``sources`` are the databases by the name that contracts give them, ``postgresql`` and ``dynamodb``; a source that
    no contract names is not touched. The lake is equal to its sources only once the pipelines have drained.

    Raises UserError if the lake or a source cannot be read.
    """
    comparisons: dict[str, TableComparison] = {}
    for database in dict.fromkeys(contract.source.database for contract in contracts):
        source = sources[database]
        with source.reading():
            for contract in contracts:
                if contract.source.database == database:
                    comparisons[contract.table] = compare(source.table(contract), lake.table(contract), report)
    return [comparisons[contract.table] for contract in contracts]
