"""The RDS Data API over a real PostgreSQL.

As on Aurora, a call runs one statement. Placeholders are ``:name``, and their values are texts. A call outside a
transaction commits by itself. An error carries its SQLSTATE.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from typing import Any

import psycopg

from rig.local_aws.api import ApiError, Operation

Connect = Callable[[str, str, str], psycopg.Connection]
"""Opens an autocommit connection to a database. The cluster is given by its ARN, the login by a secret's ARN or
name."""

_PLACEHOLDER = re.compile(r"(?<!:):([a-z_]+)")


class DataApi:
    """Statements and transactions, on connections that ``connect`` opens.

    After each commit, ``after`` is called with the cluster's ARN.
    """

    def __init__(self, connect: Connect, after: Callable[[str], None] = lambda cluster: None) -> None:
        self._open_connection = connect
        self._after = after
        self._ids = map(str, itertools.count(1))
        self._open: dict[str, psycopg.Connection] = {}

    def operations(self) -> dict[str, Operation]:
        """The operations, by their names."""
        return {
            "BeginTransaction": self.begin_transaction,
            "CommitTransaction": self.commit_transaction,
            "ExecuteStatement": self.execute_statement,
            "RollbackTransaction": self.rollback_transaction,
        }

    def begin_transaction(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Begin a transaction on its own connection."""
        transaction = next(self._ids)
        self._open[transaction] = self._connect(request)
        self._open[transaction].execute("BEGIN")
        return {"transactionId": transaction}

    def commit_transaction(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Commit a transaction."""
        ended = self._end(request, "COMMIT", "Transaction Committed")
        self._after(request["resourceArn"])
        return ended

    def rollback_transaction(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Roll a transaction back."""
        return self._end(request, "ROLLBACK", "Rollback Complete")

    def execute_statement(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Run one statement, by itself or within a transaction."""
        transaction = request.get("transactionId")
        if transaction is not None:
            return _run(self._find(transaction), request)
        with self._connect(request) as connection:
            result = _run(connection, request)
        self._after(request["resourceArn"])
        return result

    def _connect(self, request: Mapping[str, Any]) -> psycopg.Connection:
        try:
            return self._open_connection(request["resourceArn"], request["secretArn"], request["database"])
        except psycopg.OperationalError as error:
            raise _refused(error) from error

    def _find(self, transaction: str) -> psycopg.Connection:
        if transaction not in self._open:
            raise ApiError("TransactionNotFoundException", f"Transaction {transaction} is not found")
        return self._open[transaction]

    def _end(self, request: Mapping[str, Any], command: str, status: str) -> dict[str, Any]:
        connection = self._find(request["transactionId"])
        del self._open[request["transactionId"]]
        try:
            connection.execute(command.encode())
        except psycopg.Error as error:
            raise _refused(error) from error
        finally:
            connection.close()
        return {"transactionStatus": status}


def _run(connection: psycopg.Connection, request: Mapping[str, Any]) -> dict[str, Any]:
    values = {parameter["name"]: parameter["value"]["stringValue"] for parameter in request.get("parameters", [])}
    named = set(_PLACEHOLDER.findall(request["sql"]))
    # Placeholders inside quotes and functions count too, because nobody knows how the service treats them.
    if named != set(values):
        raise ApiError("BadRequestException", f"placeholders {named}, parameters {set(values)}: {request['sql']}")
    try:
        if values:
            sql = _PLACEHOLDER.sub(r"%(\1)s::varchar", request["sql"].replace("%", "%%"))
            cursor = connection.execute(sql.encode(), values)
        else:
            # Prepared, because PostgreSQL prepares only single statements.
            cursor = connection.execute(request["sql"].encode(), prepare=True)
        rows = cursor.fetchall() if cursor.description else []
    except psycopg.Error as error:
        raise _refused(error) from error
    return {"records": [[_field(value) for value in row] for row in rows]} if cursor.description else {}


def _field(value: object) -> dict[str, object]:
    if value is None:
        return {"isNull": True}
    kinds = {bool: "booleanValue", int: "longValue", str: "stringValue"}
    return {kinds[type(value)]: value}


def _refused(error: psycopg.Error) -> ApiError:
    return ApiError("DatabaseErrorException", f"ERROR: {error}; SQLState: {error.sqlstate}")
