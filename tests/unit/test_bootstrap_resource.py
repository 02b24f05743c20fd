"""What the database's custom resources refuse and wait for, without a database; tests/local shows what they make."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from typing import Any

import botocore.session
import pytest

from custom_resources import database_bootstrap, lifecycle
from custom_resources.data_api import Database
from custom_resources.lifecycle import Event, Outcome, ResourceFailed
from headwater.contract.reading import read_contracts
from headwater.definitions import source_database
from headwater.lake_folder import EXAMPLE
from tests.data_api import CLUSTER, OWNER_SECRET
from tests.modelled import Modelled, refusal

BEGAN = 1_000_000.0
PLACEHOLDER = r"(?<!:):[A-Za-z_]"


class DataApi:
    """Answers every statement until ``refuses`` is set; ``statements_refused`` is S3's answer to the function."""

    def __init__(self) -> None:
        self.level = "logical"
        self.refuses: Exception | None = None
        self.statements_refused: Exception | None = None
        self.refuses_rollback = False
        self.ended: list[str] = []
        self.document: dict[str, Any] = {"checks": [], "done": "done", "files": []}

    def execute_statement(self, **request: Any) -> dict[str, Any]:
        if request["sql"] == "SHOW wal_level":
            return {"records": [[{"stringValue": self.level}]]}
        if self.refuses is not None:
            raise self.refuses
        return {"records": []}

    def begin_transaction(self, **_: Any) -> dict[str, Any]:
        return {"transactionId": "1"}

    def commit_transaction(self, **_: Any) -> dict[str, Any]:
        self.ended.append("commit")
        return {}

    def rollback_transaction(self, **_: Any) -> dict[str, Any]:
        if self.refuses_rollback:
            raise refusal("TransactionNotFoundException")
        self.ended.append("rollback")
        return {}


@pytest.fixture
def api() -> DataApi:
    return DataApi()


def step(api: DataApi, secret: dict[str, Any] | None = None, seconds: float = 30) -> Outcome:
    event: Event = {
        "RequestType": "Create",
        "PhysicalResourceId": "headwater-dev",
        "ResourceProperties": {
            "ClusterArn": CLUSTER, "SecretArn": OWNER_SECRET, "Database": "northwind", "Statements": "s3://b/k",
            "RoleSecrets": {"headwater_cdc": "arn"},
        },
        "Data": {"Began": str(BEGAN)},
    }  # fmt: skip
    connection = Database(Modelled("rds-data", api), event["ResourceProperties"])
    known = secret if secret is not None else {"username": "headwater_cdc", "password": "secret"}

    def statements(_: str) -> dict[str, Any]:
        if api.statements_refused is not None:
            raise api.statements_refused
        return {"statements": ["CREATE SCHEMA one"], **api.document}

    return database_bootstrap.content_step(event, connection, statements, lambda _: known, BEGAN + seconds)


def test_only_the_passwords_take_several_calls(api: DataApi) -> None:
    assert step(api)["IsComplete"]
    assert api.ended == ["commit"]


def test_a_server_that_does_not_replicate_logically_is_named(api: DataApi) -> None:
    api.level = "replica"
    with pytest.raises(ResourceFailed, match=r"wal_level = replica, expected logical.*rds\.logical_replication"):
        step(api)
    assert api.ended == []


@pytest.mark.parametrize(
    ("secret", "message"),
    [
        ({"username": "someone", "password": "x"}, "found the user name 'someone'"),
        ({"password": "x"}, "found the user name None"),
        ({"username": "headwater_cdc"}, "found no password"),
        ({"username": "headwater_cdc", "password": "gehe\u00efm"}, "expected ASCII"),
        ({"username": "headwater_cdc", "password": "a\0b"}, "expected ASCII"),
    ],
)
def test_a_secret_that_does_not_fit_is_refused_without_its_password(
    api: DataApi, secret: dict[str, Any], message: str
) -> None:
    with pytest.raises(ResourceFailed, match=message) as failed:
        step(api, secret)
    assert "gehe" not in str(failed.value)
    assert api.ended == ["rollback"]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("StatementTimeoutException", "45 seconds"),
        ("DatabaseResumingException", "resuming"),
        ("DatabaseErrorException", "ERROR: deadlock detected; SQLState: 40P01"),
        ("DatabaseErrorException", "ERROR: canceling statement due to lock timeout; SQLState: 55P03"),
        ("TransactionNotFoundException", "gone"),
    ],
)
def test_what_passes_is_tried_again(api: DataApi, monkeypatch: pytest.MonkeyPatch, code: str, message: str) -> None:
    monkeypatch.setattr(database_bootstrap, "_PAUSE_SECONDS", 0.0)
    api.refuses = refusal(code, message, "ExecuteStatement")
    assert step(api, seconds=1000) == {"IsComplete": False}
    assert api.ended == []
    api.refuses = None
    assert step(api)["IsComplete"]


# What the bootstrap does about each error of the Data API: "wait" until the request's time is up, "settle" (wait only
# while the request is fresh), or "fail". The statement's own errors follow their SQLState.
DECISIONS = {
    "AccessDeniedException": "settle",
    "BadRequestException": "settle",
    "DatabaseErrorException": "fail",
    "DatabaseNotFoundException": "settle",
    "DatabaseResumingException": "wait",
    "DatabaseUnavailableException": "wait",
    "ForbiddenException": "settle",
    "HttpEndpointNotEnabledException": "settle",
    "InternalServerErrorException": "wait",
    "InvalidResourceStateException": "wait",
    "InvalidSecretException": "fail",
    "NotFoundException": "fail",
    "SecretsErrorException": "wait",
    "ServiceUnavailableError": "wait",
    "StatementTimeoutException": "wait",
    "TransactionNotFoundException": "wait",
    "UnsupportedResultException": "fail",
}


def test_every_error_of_the_data_api_has_been_decided() -> None:
    model = botocore.session.get_session().get_service_model("rds-data")
    assert sorted(shape.name for shape in model.error_shapes) == sorted(DECISIONS)


@pytest.mark.parametrize(("code", "decision"), [*DECISIONS.items(), ("ThrottlingException", "wait")])
def test_each_error_of_the_data_api_is_waited_for_or_fails_as_decided(api: DataApi, code: str, decision: str) -> None:
    api.refuses = refusal(code, "refused", "ExecuteStatement")
    for seconds, waits in ((30, decision != "fail"), (1000, decision == "wait")):
        if waits:
            assert step(api, seconds=seconds) == {"IsComplete": False}
        else:
            with pytest.raises(ResourceFailed, match=code):
                step(api, seconds=seconds)


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ("08006", "connection lost"),
        ("25006", "the writer has become a reader"),
        ("28P01", "the owner's password is being rotated"),
        ("53300", "too many connections"),
        ("57P01", "the instance stops"),
        ("57P03", "the instance starts"),
    ],
)
def test_what_a_failover_or_a_rotation_causes_is_tried_again(api: DataApi, state: str, why: str) -> None:
    api.refuses = refusal("DatabaseErrorException", f"FATAL: {why}; SQLState: {state}", "ExecuteStatement")
    assert step(api, seconds=1000) == {"IsComplete": False}


@pytest.mark.parametrize("code", ["AccessDeniedException", "ForbiddenException", "BadRequestException"])
def test_a_missing_right_counts_once_it_has_had_time_to_settle(api: DataApi, code: str) -> None:
    api.refuses = refusal(code, "not authorized", "ExecuteStatement")
    assert step(api, seconds=30) == {"IsComplete": False}
    with pytest.raises(ResourceFailed, match="not authorized"):
        step(api, seconds=150)


def test_a_missing_right_to_read_the_statements_has_time_to_settle_as_well(api: DataApi) -> None:
    api.statements_refused = refusal("AccessDenied", "not authorized", "GetObject")
    assert step(api, seconds=30) == {"IsComplete": False}
    with pytest.raises(ResourceFailed, match=r"AWS refused: .*GetObject.*not authorized"):
        step(api, seconds=150)


def test_an_error_of_sql_fails_with_its_words(api: DataApi) -> None:
    api.refuses = refusal("DatabaseErrorException", "ERROR: syntax error; SQLState: 42601", "ExecuteStatement")
    with pytest.raises(ResourceFailed, match="syntax error"):
        step(api)


def test_waiting_too_long_fails_with_what_was_in_the_way(api: DataApi) -> None:
    api.refuses = refusal("StatementTimeoutException", "45 seconds", "ExecuteStatement")
    with pytest.raises(ResourceFailed, match=r"in vain for AWS: .*StatementTimeoutException"):
        step(api, seconds=lifecycle.LONGEST_WAIT + 1)


def test_a_rollback_that_fails_does_not_hide_why_it_was_needed(api: DataApi) -> None:
    api.refuses = refusal("DatabaseErrorException", "ERROR: the reason; SQLState: 42601", "ExecuteStatement")
    api.refuses_rollback = True
    with pytest.raises(ResourceFailed, match="the reason"):
        step(api)


def test_no_statement_has_what_the_data_api_takes_for_a_placeholder() -> None:
    statements = [
        *source_database.created_statements(),
        *source_database.publication_statements(read_contracts(EXAMPLE.contracts)),
    ]
    for statement in statements:
        assert not re.search(PLACEHOLDER, statement), statement


def test_a_stored_password_is_what_the_standard_makes_of_it() -> None:
    # The exchange of RFC 7677's example: the verifier must sign it as the server did, and know the client's proof.
    salt = "W22ZaJ0SNY7soEsUEjb6gQ=="
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    exchange = f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s={salt},i=4096,c=biws,r={nonce}".encode()
    verifier = database_bootstrap.scram_verifier("pencil", base64.b64decode(salt))
    scheme, stored_salt, keys = verifier.replace("$4096:", "$").split("$")
    stored, server = (base64.b64decode(key) for key in keys.split(":"))
    assert (scheme, stored_salt) == ("SCRAM-SHA-256", salt)
    signed = hmac.digest(server, exchange, "sha256")
    assert base64.b64encode(signed) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    client = bytes(a ^ b for a, b in zip(proof, hmac.digest(stored, exchange, "sha256"), strict=True))
    assert hashlib.sha256(client).digest() == stored
