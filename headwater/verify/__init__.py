"""Compare source tables with their lake tables, by key and by content.

``forms`` says when two values are equal, ``postgresql`` and ``dynamodb`` read a source, ``lake`` reads the lake, and
``compare`` holds one against the other. Nothing here shares code with what writes the lake.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa

from headwater.contract.model import Contract
from headwater.verify.compare import MAX_EXAMPLES, Example, Progress, Source, TableComparison, compare
from headwater.verify.dynamodb_source import DynamoDbSource
from headwater.verify.lake import read_lake, read_live_table, s3_options
from headwater.verify.postgresql_source import PostgresqlSource, load_queries

__all__ = [
    "MAX_EXAMPLES",
    "DynamoDbSource",
    "Example",
    "PostgresqlSource",
    "Progress",
    "ReadTable",
    "Source",
    "TableComparison",
    "compare",
    "load_queries",
    "read_lake",
    "read_live_table",
    "s3_options",
    "verify",
]

ReadTable = Callable[[str, Mapping[str, str]], Iterable[pa.RecordBatch]]


def verify(
    contracts: Sequence[Contract],
    sources: Mapping[str, Source],
    lake_uri: str,
    storage: Mapping[str, str],
    *,
    read_table: ReadTable = read_lake,
    progress: Progress | None = None,
) -> list[TableComparison]:
    """Compare every contract's source with its lake table; the comparisons come in the order of the contracts.

    ``sources`` are the databases by the name that contracts call them, ``postgresql`` and ``dynamodb``; one that no
    contract names is not touched. ``storage`` are hudi-rs's storage options (see ``s3_options``), ``read_table`` reads
    a lake table by its URI and those options, and ``progress`` is called with table, side (``source`` or ``lake``) and
    rows so far. The lake is equal to its sources only once the pipelines have drained.

    Raises UserError where the lake or a source cannot be read.
    """
    found: dict[str, TableComparison] = {}
    for database in dict.fromkeys(contract.source.database for contract in contracts):
        source = sources[database]
        with source.reading():
            for contract in contracts:
                if contract.source.database == database:
                    batches = read_table(f"{lake_uri.rstrip('/')}/{contract.table}", storage)
                    found[contract.table] = compare(source.table(contract), batches, progress)
    return [found[contract.table] for contract in contracts]
