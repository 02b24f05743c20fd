"""The content of a lake folder beside contracts and environments: SQL for its database, saved queries and charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headwater.contract.model import Contract
from headwater.definitions.charts import Charts, read_charts
from headwater.definitions.database_files import SqlFile, read_database_files
from headwater.definitions.saved_queries import SavedQuery, read_saved_queries


@dataclass(frozen=True)
class LakeContent:
    """The files of ``database/`` and ``queries/``."""

    files: Sequence[SqlFile] = ()
    """The SQL files of ``database/``, for a database that the deployment makes."""
    queries: Sequence[SavedQuery] = ()
    """The saved queries of ``queries/``."""
    charts: Charts | None = None
    """The charts of ``queries/``; None if there are none."""

    def shows(self, contract: Contract) -> bool:
        """Return whether a query of the charts reads rows of a contract's table."""
        shown = {data.query for data in self.charts.data} if self.charts is not None else set()
        return any(query.reads(contract) for query in self.queries if query.name in shown)


def read_content(database: Path, queries: Path, contracts: Sequence[Contract]) -> LakeContent:
    """Read the two folders of a lake folder. Either may be missing. Raises UserError."""
    saved = read_saved_queries(queries, contracts)
    return LakeContent(read_database_files(database), saved, read_charts(queries, saved))
