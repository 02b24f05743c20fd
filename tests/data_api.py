"""Test equipment: a boto3 client for the RDS Data API over a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import psycopg

from rig.local_aws.api import ApiError
from rig.local_aws.data_api import DataApi
from tests.modelled import Modelled, refusal

CLUSTER = "arn:aws:rds:eu-central-1:123456789012:cluster:headwater-test"
OWNER_SECRET = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:headwater/test/owner"


def data_api(
    connect: Callable[[], psycopg.Connection],
    before: Callable[[str], None] | None = None,
    role_secrets: Mapping[str, Callable[[], psycopg.Connection]] | None = None,
) -> Modelled:
    """A client for rds-data.

    ``connect`` opens an autocommit connection as the owner of the cluster's secret. ``role_secrets`` open connections
    for other secrets, by their ARNs. ``before`` is called with each statement, and may raise in place of the service.
    If a statement is the parameter of a call, ``before`` gets that statement too.
    """
    logins = {OWNER_SECRET: connect, **(role_secrets or {})}
    return Modelled("rds-data", _Client(logins, before or (lambda sql: None)))


class _Client:
    def __init__(self, logins: Mapping[str, Callable[[], psycopg.Connection]], before: Callable[[str], None]) -> None:
        self._logins = logins
        self._before = before
        self._api = DataApi(self._connect)

    def begin_transaction(self, **request: Any) -> dict[str, Any]:
        return self._answered(self._api.begin_transaction, request)

    def commit_transaction(self, **request: Any) -> dict[str, Any]:
        return self._answered(self._api.commit_transaction, request)

    def rollback_transaction(self, **request: Any) -> dict[str, Any]:
        return self._answered(self._api.rollback_transaction, request)

    def execute_statement(self, **request: Any) -> dict[str, Any]:
        values = {each["name"]: each["value"]["stringValue"] for each in request.get("parameters", [])}
        self._before(values.get("statement", request["sql"]))
        return self._answered(self._api.execute_statement, request)

    def _answered(
        self, operation: Callable[[Mapping[str, Any]], dict[str, Any]], request: Mapping[str, Any]
    ) -> dict[str, Any]:
        try:
            return operation(request)
        except ApiError as error:
            raise refusal(error.code, str(error), "ExecuteStatement") from error

    def _connect(self, cluster: str, secret: str, database: str) -> psycopg.Connection:
        assert cluster == CLUSTER
        return self._logins[secret]()
