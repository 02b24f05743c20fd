"""The Glue Data Catalog. CDK creates the tables from contracts; the writer only adds the partitions that it created."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

_PARTITIONS_PER_CALL = 100  # the limit of BatchCreatePartition


class Catalog:
    """One Glue database. Raises the exceptions of boto3. A partition that already exists is not an error."""

    def __init__(self, glue: Any, database: str) -> None:
        self._glue = glue
        self._database = database
        self._known: dict[str, set[str]] = {}

    def register(self, table: str, paths: list[str], *, again: bool = False) -> int:
        """Register partitions that this process has not registered yet, or all if ``again``. Returns their number.

        ``paths`` are relative to the table: ``column=value``.
        """
        known = self._known.setdefault(table, set())
        fresh = sorted(path for path in set(paths) - (set() if again else known) if path)
        if not fresh:
            return 0
        descriptor = self._glue.get_table(DatabaseName=self._database, Name=table)["Table"]["StorageDescriptor"]
        location = descriptor["Location"].rstrip("/")
        for start in range(0, len(fresh), _PARTITIONS_PER_CALL):
            inputs = [
                {
                    "Values": [unquote(part.partition("=")[2]) for part in path.split("/")],
                    "StorageDescriptor": {**descriptor, "Location": f"{location}/{path}"},
                }
                for path in fresh[start : start + _PARTITIONS_PER_CALL]
            ]
            answer = self._glue.batch_create_partition(
                DatabaseName=self._database, TableName=table, PartitionInputList=inputs
            )
            errors = [
                error
                for error in answer.get("Errors", ())
                if error["ErrorDetail"]["ErrorCode"] != "AlreadyExistsException"
            ]
            if errors:
                raise RuntimeError(f"{self._database}.{table}: partitions were refused by the catalog: {errors[:3]}")
        known.update(fresh)
        return len(fresh)
