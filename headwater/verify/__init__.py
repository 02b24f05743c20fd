"""Compare source tables with their lake tables, by key and by content.

``forms`` says when two values are equal. ``postgresql_source`` and ``dynamodb_source`` read a source, in bunches by
``paced_reader``, and ``lake_reader`` reads the lake. ``arrow_forms`` and ``dynamodb_forms`` turn values into forms, and
``compare`` finds what differs. Nothing here shares code with what writes the lake.
"""

import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from headwater.contract.model import Contract
from headwater.errors import UserError
from headwater.verify.compare import MAX_EXAMPLES, Example, RowsRead, Source, TableComparison, compare
from headwater.verify.dynamodb_source import DynamoDbSource
from headwater.verify.lake_reader import Lake, read_lake, read_live_table, s3_options
from headwater.verify.postgresql_source import PostgresqlSource, load_queries

__all__ = [
    "MAX_EXAMPLES",
    "DynamoDbSource",
    "Example",
    "Lake",
    "NotCompared",
    "PostgresqlSource",
    "RowsRead",
    "Source",
    "TableComparison",
    "compare",
    "load_queries",
    "raised_in",
    "read_lake",
    "read_live_table",
    "s3_options",
    "verify_tables",
]


class NotCompared(UserError):
    """Some tables could not be compared; all others were.

    Args:
        tables: The comparisons of the other tables.
        reasons: Why a table could not be compared, by its name.
        others: How many other tables were compared, if their comparisons are not at hand.
    """

    def __init__(self, tables: Sequence[TableComparison], reasons: Mapping[str, str], others: int = 0) -> None:
        self.tables = list(tables)
        self.reasons = dict(reasons)
        # Tables of one source may have one reason.
        said = list(dict.fromkeys(self.reasons.values()))
        count = len(self.tables) + others + len(self.reasons)
        if len(self.reasons) == 1 == count:
            super().__init__(*said)
        else:
            names = ", ".join(self.reasons)
            heading = f"{len(self.reasons)} of {count} tables could not be compared: {names}"
            super().__init__("\n".join([heading, *said]))


def verify_tables(
    contracts: Sequence[Contract], sources: Mapping[str, Source], lake: Lake, report: RowsRead | None = None
) -> list[TableComparison]:
    """Compare every contract's source with its lake table; the comparisons come in the order of the contracts.

    ``sources`` are the databases by the name that contracts give them, ``postgresql`` and ``dynamodb``; a source that
    no contract names is not touched. The lake is equal to its sources only once the pipelines have drained.

    Raises NotCompared, a UserError, once all other tables are compared, if a table cannot be read in its source or in
    the lake.
    """
    comparisons: dict[str, TableComparison] = {}
    reasons: dict[str, str] = {}
    for database in dict.fromkeys(contract.source.database for contract in contracts):
        of_source = [contract for contract in contracts if contract.source.database == database]
        source = sources[database]
        try:
            with source.reading():
                for contract in of_source:
                    try:
                        # The lake's table first: if credentials have expired, no source is read for nothing.
                        rows = lake.table(contract)
                        comparisons[contract.table] = compare(source.table(contract), rows, report)
                    except Exception as error:  # whatever it is, it must not cost the other tables' comparisons
                        reasons[contract.table] = _reason(contract, error)
        except UserError as error:
            left = [each.table for each in of_source if each.table not in comparisons and each.table not in reasons]
            reasons |= dict.fromkeys(left, str(error))
    ordered = [comparisons[contract.table] for contract in contracts if contract.table in comparisons]
    if reasons:
        raise NotCompared(ordered, reasons)
    return ordered


def _reason(contract: Contract, error: Exception) -> str:
    """Why a table could not be compared, without values of its rows, which the text of an unknown error may have."""
    if isinstance(error, UserError):
        return str(error)
    return (
        f"{contract.table}: the comparison failed with {type(error).__name__}{raised_in(error)}, expected no error: "
        "this is a fault of Headwater's, please report it"
    )


def raised_in(error: Exception) -> str:
    """The place in the code where an error was raised, as the end of a sentence."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f" in line {last.lineno} of {Path(last.filename).name}"
