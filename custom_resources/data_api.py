"""PostgreSQL through the RDS Data API: one statement per call, at most 45 seconds each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import ClientError

from custom_resources import lifecycle

Row = list[Any]

# SQLStates of errors that pass: https://www.postgresql.org/docs/16/errcodes-appendix.html
_OTHER_SESSION = frozenset(
    {
        # Serialization failure, deadlock, object in use, lock timeout, statement timeout.
        "40001", "40P01", "55006", "55P03", "57014",
    }
)  # fmt: skip
_NO_SERVER = frozenset(
    {
        # A failover or a restart: lost connection, read-only writer, too many connections, shutdown, start.
        "08000", "08001", "08003", "08006", "25006", "53300", "57P01", "57P02", "57P03",
        # A rotation: the database has the owner's new password, and the secret does not show it yet.
        "28P01",
    }
)  # fmt: skip
# Errors of the Data API that pass, beside the errors that every service has. The Data API reads the secret from Secrets
# Manager, which may time out, and refuses a cluster that is being changed. tests/unit/test_bootstrap_resource.py lists
# each error of the service.
_PASSING = frozenset(
    {
        "InvalidResourceStateException",
        "SecretsErrorException",
        "StatementTimeoutException",
        "TransactionNotFoundException",
    }
)


class Database:
    """One database of an Aurora cluster.

    ``client`` is boto3's for rds-data; ``properties`` are ``ClusterArn``, ``SecretArn`` (of the owner's secret) and
    ``Database``. Methods raise the exceptions of boto3.
    """

    def __init__(self, client: Any, properties: Mapping[str, str]) -> None:
        self._client = client
        self._cluster = {"resourceArn": properties["ClusterArn"], "secretArn": properties["SecretArn"]}
        self._database = properties["Database"]

    def execute(
        self, sql: str, parameters: Mapping[str, str] | None = None, transaction: str | None = None
    ) -> list[Row]:
        """Run one statement, by itself or within the transaction of that id, and return its rows.

        ``parameters`` are texts for the placeholders ``:name``. A secret value goes there, never into ``sql``.
        """
        request: dict[str, Any] = {"database": self._database, "sql": sql}
        if parameters:
            request["parameters"] = [
                {"name": name, "value": {"stringValue": value}} for name, value in sorted(parameters.items())
            ]
        if transaction is not None:
            request["transactionId"] = transaction
        answer = self._client.execute_statement(**self._cluster, **request)
        return [[_value(field) for field in row] for row in answer.get("records", [])]

    @contextmanager
    def transaction(self) -> Iterator[str]:
        """Begin a transaction and yield its id; commit it at the end, roll it back on an error."""
        transaction = self._client.begin_transaction(**self._cluster, database=self._database)["transactionId"]
        try:
            yield transaction
        except BaseException:
            try:
                self._client.rollback_transaction(**self._cluster, transactionId=transaction)
            except ClientError as error:
                # The first error counts. The Data API rolls an abandoned transaction back after three minutes.
                print(
                    f"A transaction may stay open: {lifecycle.code(error)}. The Data API ends it within three minutes"
                )
            raise
        self._client.commit_transaction(**self._cluster, transactionId=transaction)


def in_the_way(error: ClientError) -> bool:
    """Whether a statement failed for a reason that passes: another session was in the way, or the service itself."""
    return unserved(error) or _sqlstate(error) in _OTHER_SESSION


def unserved(error: ClientError) -> bool:
    """Whether the service or the server cannot run any statement for now."""
    return lifecycle.passing(error) or lifecycle.code(error) in _PASSING or _sqlstate(error) in _NO_SERVER


def met_another(error: ClientError) -> bool:
    """Whether a statement failed because of another transaction.

    That transaction held a lock, or it dropped the statement's table meanwhile.
    """
    return lock_missed(error) or _sqlstate(error) == "42P01"


def lock_missed(error: ClientError) -> bool:
    """Whether a statement did not get a lock within its ``lock_timeout``.

    Two transactions that change the same entry of the catalog count too.
    """
    return _sqlstate(error) in ("40P01", "55P03") or "tuple concurrently" in str(error)


def _sqlstate(error: ClientError) -> str:
    found = re.search(r"SQLState: (\w{5})", str(error))
    return found.group(1) if found else ""


def _value(field: Mapping[str, Any]) -> Any:
    """The value of a field. The Data API gives a field as a mapping from its type to its value."""
    return None if field.get("isNull") else next(iter(field.values()))
