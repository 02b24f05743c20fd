"""Test equipment: the RDS Data API over a real PostgreSQL.

As on Aurora, a call runs one statement, placeholders are ``:name`` and their values texts, a call outside a
transaction commits by itself, and an error carries its SQLSTATE.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from typing import Any

import psycopg

from tests.modelled import Modelled, refusal

CLUSTER = "arn:aws:rds:eu-central-1:123456789012:cluster:headwater-test"
OWNER_SECRET = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:headwater/test/owner"
_PLACEHOLDER = re.compile(r"(?<!:):([a-z_]+)")


def data_api(
    connect: Callable[[], psycopg.Connection],
    before: Callable[[str], None] | None = None,
    role_secrets: Mapping[str, Callable[[], psycopg.Connection]] | None = None,
) -> Modelled:
    """A client for rds-data. ``connect`` opens an autocommit connection as the owner of the cluster's secret,
    ``role_secrets`` those of other secrets, by their ARNs, and ``before`` is called with each statement, to raise in
    place of the service."""
    logins = {OWNER_SECRET: connect, **(role_secrets or {})}
    return Modelled("rds-data", _DataApi(logins, before or (lambda sql: None)))


class _DataApi:
    def __init__(self, logins: Mapping[str, Callable[[], psycopg.Connection]], before: Callable[[str], None]) -> None:
        self._logins = logins
        self._before = before
        self._ids = map(str, itertools.count(1))
        self._open: dict[str, psycopg.Connection] = {}

    def begin_transaction(self, **request: Any) -> dict[str, Any]:
        transaction = next(self._ids)
        self._open[transaction] = self._connect(request)
        self._open[transaction].execute("BEGIN")
        return {"transactionId": transaction}

    def commit_transaction(self, **request: Any) -> dict[str, Any]:
        return self._end(request, "COMMIT", "Transaction Committed")

    def rollback_transaction(self, **request: Any) -> dict[str, Any]:
        return self._end(request, "ROLLBACK", "Rollback Complete")

    def execute_statement(self, **request: Any) -> dict[str, Any]:
        self._before(request["sql"])
        transaction = request.get("transactionId")
        if transaction is not None:
            return _run(self._open[transaction], request)
        with self._connect(request) as connection:
            return _run(connection, request)

    def _connect(self, request: Mapping[str, Any]) -> psycopg.Connection:
        assert request["resourceArn"] == CLUSTER
        try:
            return self._logins[request["secretArn"]]()
        except psycopg.OperationalError as error:
            raise _refused(error) from error

    def _end(self, request: Mapping[str, Any], command: str, status: str) -> dict[str, Any]:
        connection = self._open.pop(request["transactionId"])
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
    # Placeholders inside quotes and functions count too: what the service makes of them is not known.
    assert named == set(values), f"placeholders {named}, parameters {set(values)}: {request['sql']}"
    try:
        if values:
            sql = _PLACEHOLDER.sub(r"%(\1)s::varchar", request["sql"].replace("%", "%%"))
            cursor = connection.execute(sql.encode(), values)
        else:
            # Prepared, because PostgreSQL prepares a single statement only.
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


def _refused(error: psycopg.Error) -> Exception:
    return refusal("DatabaseErrorException", f"ERROR: {error}; SQLState: {error.sqlstate}", "ExecuteStatement")
