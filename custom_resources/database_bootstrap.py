"""The database that a deployment makes: its content, and the objects that the connector needs in it.

There are two resources. ``Content`` exists as long as the database. It creates the objects of capture and the roles,
and sets the roles' passwords from their secrets. It runs each statement of the lake folder's SQL files once.
``Publication`` publishes the contracts' tables before the source connector starts. Once the connector is gone, it drops
the replication slot and the publication.

``headwater db create`` runs the same statements. ``headwater.definitions.source_database`` and
``headwater.definitions.database_files`` render them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from custom_resources import lifecycle
from custom_resources.data_api import Database, in_the_way, lock_missed, met_another, unserved
from custom_resources.lifecycle import Event, Outcome, ResourceFailed

# The number of SCRAM iterations that PostgreSQL's own clients use.
_SCRAM_ROUNDS = 4096
_SCRAM_SALT_BYTES = 16
_BRIEFLY = """DO $briefly$
BEGIN
    PERFORM set_config('lock_timeout', '100ms', true);
    EXECUTE $statement${}$statement$;
END
$briefly$"""
# Tries of a statement in one step, and the seconds between them. Queries that waited behind the statement run then.
_TRIES = 10
_PAUSE_SECONDS = 1.0
# Seconds that one step spends on the lake folder's files. Lambda ends it after 14 minutes.
_STEP_SECONDS = 300.0
_SLOT_STATE = "SELECT active FROM pg_replication_slots WHERE slot_name = :slot"

Read = Callable[[str], dict[str, Any]]
"""Reads a JSON document: the statements by their S3 address, or a secret by its ARN."""


def is_complete(event: Event, context: object) -> Outcome:
    """Take the next step of a request."""
    step = {"Custom::HeadwaterDatabase": content_step, "Custom::HeadwaterPublication": publication_step}
    # A call may take 45 seconds. boto3 need not repeat the call, because the next step does.
    rds = boto3.client("rds-data", config=Config(read_timeout=70, retries={"total_max_attempts": 1}))
    database = Database(rds, event["ResourceProperties"])
    return step[event["ResourceType"]](event, database, _read_statements, _read_secret, time.time())


def content_step(event: Event, database: Database, statements: Read, secret: Read, now: float) -> Outcome:
    """Create the database's content, statement by statement.

    Waits for another step if another session was in the way, or if many statements are left.

    ``now`` is in epoch seconds. Raises ResourceFailed with the server's message.
    """
    if event["RequestType"] == "Delete":
        return lifecycle.done()
    return _attempt(event, now, lambda: _fill(event, database, statements, secret, now))


def publication_step(event: Event, database: Database, statements: Read, secret: Read, now: float) -> Outcome:
    """Publish the contracts' tables. On Delete, drop the slot once no connector uses it, and then the publication.

    On Create, names the transactions that the connector's slot would wait for, and waits for those that began before
    the request. The arguments are the same as for ``content_step``, without ``secret``. Raises ResourceFailed with the
    server's message.
    """
    if event["RequestType"] == "Delete":
        return _attempt(event, now, lambda: _drop(event, database, now))
    properties = event["ResourceProperties"]
    return _attempt(event, now, lambda: _publish(event, database, statements(properties["Statements"]), now))


def slot_is_active(database: Database, slot: str) -> bool:
    """Whether a connector, or anything else, holds the replication slot; false if there is no such slot."""
    rows = database.execute(_SLOT_STATE, {"slot": slot})
    return bool(rows and rows[0][0])


def scram_verifier(password: str, salt: bytes) -> str:
    """The verifier that PostgreSQL stores for a password (RFC 5803).

    The password is ASCII, so it needs no normalization.
    """
    salted = hashlib.pbkdf2_hmac("sha256", password.encode("ascii"), salt, _SCRAM_ROUNDS)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    encoded = (base64.b64encode(part).decode() for part in (salt, stored, server))
    return "SCRAM-SHA-256${}:{}${}:{}".format(_SCRAM_ROUNDS, *encoded)


def _attempt(event: Event, now: float, step: Callable[[], Outcome]) -> Outcome:
    return lifecycle.attempt(event, now, "AWS", step, in_the_way)


def _fill(event: Event, database: Database, statements: Read, secret: Read, now: float) -> Outcome:
    properties = event["ResourceProperties"]
    document = statements(properties["Statements"])
    ((level,),) = database.execute("SHOW wal_level")
    if level != "logical":
        raise ResourceFailed(
            f"The server has wal_level = {level}, expected logical: set rds.logical_replication = 1 in the "
            "cluster's parameter group and restart its instances"
        )
    for statement in document["statements"]:
        _briefly(partial(database.execute, _BRIEFLY.format(statement)))
    left = _run_files(database, document)
    if left is not None:
        return lifecycle.wait(event, now, left)
    with database.transaction() as transaction:
        for role, arn in sorted(properties["RoleSecrets"].items()):
            set_password(database, role, usable_password(secret(arn), role), transaction)
    return lifecycle.done()


def _run_files(database: Database, document: Mapping[str, Any]) -> str | None:
    """Run the statements of the lake folder's files that have not run yet, in their order.

    The database refuses files that were changed after they ran. It records each statement in the call that runs it.

    Returns the place to go on from if the time of one step is over, else None. Raises ResourceFailed if a statement
    fails for a reason that does not pass.
    """
    began = time.monotonic()
    for check in document["checks"]:
        database.execute(check["sql"], check["parameters"])
    done = {name: int(count) for name, count in database.execute(document["done"])}
    left = [statement for file in document["files"] for statement in file["statements"][done.get(file["name"], 0) :]]
    for number, statement in enumerate(left):
        # Each step runs at least one statement.
        if number and time.monotonic() - began > _STEP_SECONDS:
            return f"the statements from {statement['place']} on"
        _run(database, statement)
    return None


def _run(database: Database, statement: Mapping[str, Any]) -> None:
    """Run one statement of a file.

    Raises ResourceFailed with the statement's place, or boto3's error if that error passes.
    """
    try:
        _briefly(partial(database.execute, statement["sql"], statement["parameters"]), lock_missed)
    except ClientError as error:
        if lifecycle.code(error) == "StatementTimeoutException":
            raise ResourceFailed(
                f"{statement['place']}: found a statement that takes longer than the 45 seconds of the Data API, "
                "expected a shorter one. Split it into several. Or run it by hand, write it with IF NOT EXISTS into "
                "the file, and deploy again"
            ) from None
        # A user's own statement may raise any error, each time again. ``headwater db create`` ends at it too.
        if unserved(error) or lock_missed(error) or lifecycle.code(error) != "DatabaseErrorException":
            raise
        raise ResourceFailed(
            f"{statement['place']}: the server refuses this statement: {error}. All statements before it "
            "have run. Correct this one; the next deploy begins with it"
        ) from None


def _await_transactions(event: Event, database: Database, query: str, now: float) -> Outcome | None:
    """Wait if transactions from before the request hold up the connector's replication slot; None if there are none.

    Raises ResourceFailed for a prepared transaction that seems to be left. ``query`` returns the fields of
    ``headwater.definitions.open_transactions.OpenTransaction``.
    """
    found = database.execute(query)
    left = [f"{transaction}: {action}" for _, state, _, transaction, action in found if state == "left"]
    if left:
        raise ResourceFailed(
            f"Found {'. Found '.join(left)}. Before its end PostgreSQL makes no replication slot: end it, then deploy "
            "again"
        )
    # Later ones are the connector's to wait for: in use, a database always has some.
    earlier = [
        f"{transaction}: {action}"
        for _, state, seconds, transaction, action in found
        if state == "long" and seconds >= now - lifecycle.began(event)
    ]
    return lifecycle.wait(event, now, f"the end of {', and of '.join(earlier)}") if earlier else None


def _publish(event: Event, database: Database, document: Mapping[str, Any], now: float) -> Outcome:
    # Not for an Update: CloudFormation rolls a failed one back by another Update, which must not fail likewise.
    if event["RequestType"] == "Create":
        waits = _await_transactions(event, database, document["transactions"], now)
        if waits is not None:
            return waits
    for table in document["tables"]:
        ((existing,),) = database.execute("SELECT to_regclass(:name)::text", {"name": table})
        if existing is None:
            raise ResourceFailed(
                f"A contract names the source table {table}, which does not exist: correct `source.table` in the "
                "contract, or create the table first"
            )
    for statement in document["statements"]:
        _until_done(database, statement)
    return lifecycle.done()


def _until_done(database: Database, statement: str) -> None:
    """Run a query. If it returns names and statements, run these too, and repeat the query until it returns none.

    A statement that meets another session's lock is tried again in a later step, after all others.
    """
    held: list[ClientError] = []
    tried: set[str] = set()
    # Running a statement again that has already run would not help: the checks that follow report the cause.
    while todo := [(place, step) for place, step in database.execute(statement) if step not in tried]:
        for place, step in todo:
            tried.add(step)
            try:
                database.execute(step)
            except ClientError as error:
                if not met_another(error):
                    raise
                print(f"{place} remains: {error}")
                held.append(error)
    if held:
        raise held[0]


def _briefly(run: Callable[[], object], passes: Callable[[ClientError], bool] = met_another) -> None:
    """Run a statement that waits for a lock for at most 100 ms. If its error ``passes``, try again for some seconds.

    While an ALTER TABLE waits, every later query of its table waits too. A transaction of several calls would hold the
    lock between these calls, and for three minutes if this function dies. So the transaction is one call.
    """
    for _ in range(_TRIES):
        try:
            run()
            return
        except ClientError as error:
            if not passes(error):
                raise
            time.sleep(_PAUSE_SECONDS)
    run()


def _drop(event: Event, database: Database, now: float) -> Outcome:
    slot, publication = event["ResourceProperties"]["Slot"], event["ResourceProperties"]["Publication"]
    if slot_is_active(database, slot):
        return lifecycle.wait(event, now, f"the replication slot {slot} to become inactive")
    # A query drops the slot, because pg_drop_replication_slot fails if there is no slot.
    database.execute(
        "SELECT pg_drop_replication_slot(slot_name)::text FROM pg_replication_slots WHERE slot_name = :slot",
        {"slot": slot},
    )
    database.execute(f"DROP PUBLICATION IF EXISTS {publication}")
    return lifecycle.done()


def set_password(database: Database, role: str, password: str, transaction: str) -> None:
    """Set a role's password without showing the password in a statement.

    This function hashes the password and sends the hash to the server as a parameter. ALTER ROLE takes no parameters,
    so it reads the hash from a setting. If the statement fails, it raises a new error with the same message, because
    PostgreSQL would add the statement to the original one.
    """
    verifier = scram_verifier(password, os.urandom(_SCRAM_SALT_BYTES))
    database.execute(
        "SELECT set_config('headwater.verifier', :verifier, true) IS NOT NULL", {"verifier": verifier}, transaction
    )
    database.execute(
        f"DO $$ BEGIN EXECUTE format('ALTER ROLE %I PASSWORD %L', '{role}', current_setting('headwater.verifier')); "
        "EXCEPTION WHEN OTHERS THEN RAISE EXCEPTION USING MESSAGE = SQLERRM, ERRCODE = SQLSTATE; END $$",
        transaction=transaction,
    )


def usable_password(secret: Mapping[str, str], role: str) -> str:
    """The password in a role's secret. Raises ResourceFailed if the secret is of another role, or has no ASCII text."""
    if secret.get("username") != role:
        raise ResourceFailed(
            f"The secret of {role}: found the user name {secret.get('username')!r}, expected {role}: correct the secret"
        )
    password = secret.get("password", "")
    if not password or not password.isascii() or "\0" in password:
        raise ResourceFailed(
            f"The secret of {role}: found no password, or an unusable one, expected ASCII text: put one into the "
            "secret, then deploy again"
        )
    return password


def _read_statements(address: str) -> dict[str, Any]:
    parts = urlsplit(address)
    body = boto3.client("s3").get_object(Bucket=parts.netloc, Key=parts.path.lstrip("/"))["Body"].read()
    document: dict[str, Any] = json.loads(body)
    return document


def _read_secret(arn: str) -> dict[str, Any]:
    secret: dict[str, Any] = json.loads(boto3.client("secretsmanager").get_secret_value(SecretId=arn)["SecretString"])
    return secret
