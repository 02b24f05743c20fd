"""The state of the captured PostgreSQL database: its replication slot, its publication, its heartbeat."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from headwater.contract.model import POSTGRESQL, Contract, of_database
from headwater.definitions.connectors import HEARTBEAT_TABLE, PUBLICATION, SLOT
from headwater.definitions.published_view import quoted
from headwater.definitions.source_checks import replica_identity, text_array
from headwater.definitions.source_database import CDC_ROLE, published_tables
from headwater.environment.model import Aurora
from headwater.errors import UserError
from headwater.lake.base.command_lines import CommandLines
from headwater.operations.deployed import Deployed
from headwater.operations.state import Part, Problem

NAME = "PostgreSQL"
_OWN = "it is your own database: run the command with --database-url where the database can be reached"
_MIB = 1 << 20
# The connector sends a heartbeat every ten seconds.
_HEARTBEAT_SECONDS = 60.0
_LISTED = 5
# Every role that may read the source may run this query. It locks no table.
_QUERY = f"""
WITH RECURSIVE
listed (name, identity) AS (SELECT * FROM unnest({{tables}}, {{identities}})),
present (name, identity, relation) AS (
  SELECT name, identity, c.oid FROM listed JOIN pg_class AS c ON relkind IN ('r', 'p')
  JOIN pg_namespace AS n ON n.oid = relnamespace AND nspname || '.' || relname = name),
tree (identity, relation) AS (
  SELECT identity, relation FROM present
  UNION ALL
  SELECT identity, inhrelid FROM tree JOIN pg_inherits ON inhparent = relation
  JOIN pg_class AS c ON c.oid = inhrelid AND relispartition)
SELECT json_build_object(
  'slot', (
    SELECT json_build_object(
      'active', active,
      'wal_status', wal_status,
      'unread_bytes', pg_wal_lsn_diff(written, confirmed_flush_lsn),
      'held_bytes', pg_wal_lsn_diff(written, restart_lsn),
      'left_bytes', safe_wal_size,
      'position', confirmed_flush_lsn)
    FROM pg_replication_slots WHERE slot_name = '{SLOT}'),
  'other_slot', (
    SELECT json_build_object('name', slot_name, 'held_bytes', pg_wal_lsn_diff(written, restart_lsn))
    FROM pg_replication_slots WHERE slot_name <> '{SLOT}' AND restart_lsn IS NOT NULL ORDER BY restart_lsn LIMIT 1),
  'published', (
    SELECT json_agg(schemaname || '.' || tablename) FROM pg_publication_tables WHERE pubname = '{PUBLICATION}'),
  'present', (SELECT json_agg(name) FROM present),
  'misidentified', (
    SELECT json_agg(relation::regclass::text ORDER BY relation::regclass::text)
    FROM tree JOIN pg_class AS c ON c.oid = relation AND relkind IN ('r', 'p')
    AND relreplident <> lower(left(identity, 1))::"char"),
  'sessions', (SELECT count(*) FROM pg_stat_activity WHERE usename = '{CDC_ROLE}'),
  'heartbeat_seconds', (SELECT extract(epoch FROM clock_timestamp() - beat_at) FROM {HEARTBEAT_TABLE} WHERE id = 1)
)::text
FROM pg_current_wal_lsn() AS written
"""


Query = Callable[[str], str]
"""Runs a query whose answer is one text."""


def through_data_api(deployed: Deployed) -> Query | None:
    """Return a function that runs a query, as the reader, in the database that the deployment has made.

    Returns None for an existing database, which only its own network reaches. The function raises the exceptions of
    boto3.
    """
    database = deployed.environment.database
    if not isinstance(database, Aurora):
        return None

    def query(sql: str) -> str:
        answer = deployed.client("rds-data").execute_statement(
            resourceArn=deployed.database_arn, secretArn=deployed.reader_secret_arn, database=database.name, sql=sql
        )
        return str(answer["records"][0][0]["stringValue"])

    return query


def is_empty(query: Query | None, contract: Contract) -> bool:
    """Whether a contract's source table has no row.

    Raises UserError if there is no way to the database, or if row security may hide rows from the user. Also raises the
    exceptions of the query.
    """
    if query is None:
        raise UserError(_OWN)
    table = ".".join(map(quoted, contract.source.table.split(".", 1)))
    name = table.replace("'", "''")
    answer = query(
        f"SELECT CASE WHEN EXISTS (SELECT FROM {table}) THEN 'rows' "
        f"WHEN row_security_active('{name}') THEN 'hidden' ELSE 'none' END"
    )
    if answer == "hidden":
        raise UserError(f"row security may hide rows of {contract.source.table} from the user of this query")
    return answer == "none"


def observe(deployed: Deployed, query: Query | None) -> Part:
    """Query the state of the database, if there is a way to it. Raises the exceptions of the query."""
    if query is None:
        return Part(NAME, "not asked", unasked=_OWN)
    return judge(
        json.loads(query(_query(deployed.relational))),
        deployed.relational,
        deployed.environment.monitoring.slot_lag_mib * _MIB,
        deployed.commands,
    )


def _query(contracts: Sequence[Contract]) -> str:
    identities = dict.fromkeys(published_tables(contracts), "FULL") | {
        contract.source.table: replica_identity(contract) for contract in of_database(contracts, POSTGRESQL)
    }
    return _QUERY.format(tables=text_array(identities), identities=text_array(identities.values()))


def judge(facts: dict[str, Any], contracts: Sequence[Contract], most_bytes: int, commands: CommandLines) -> Part:
    """Judge the facts that the query returned about the database.

    The tables of ``contracts`` have to be published. The slot may keep at most ``most_bytes`` of log.
    """
    environment = commands.environment
    problems = []
    slot, other = facts["slot"], facts["other_slot"]
    expected, published = set(published_tables(contracts)), set(facts["published"] or ())
    gone = sorted(expected - set(facts["present"] or ()))
    missing = sorted(expected - published - set(gone))
    # The publication and the replica identities.
    if gone:
        others = ", ".join(sorted(published - expected))
        renamed = f"; no contract names {others}, which the publication has" if others else ""
        advice = "rename the table back, or publish its successor, as the runbook says" + then_read_again(
            gone, contracts, commands
        )
        problems.append(Problem(f"dropped or renamed: {', '.join(gone)}{renamed}", advice, "gone-table"))
    if missing:
        again = then_read_again(missing, contracts, commands)
        advice = (
            f"if a contract is new, headwater deploy --env {environment}; else somebody has removed the table: add it "
            f"again (ALTER PUBLICATION){again}"
        )
        if commands.existing:
            advice = (
                f"{commands.capture()}, with the secret's password in HEADWATER_CDC_PASSWORD; then headwater deploy "
                f"--env {environment}, or restart the source connector if no contract is new"
            )
        problems.append(Problem(f"the publication lacks {', '.join(missing)}", advice, "connector"))
    misidentified = facts["misidentified"] or []
    if misidentified:
        listed = ", ".join(misidentified[:_LISTED]) + (" …" if len(misidentified) > _LISTED else "")
        problems.append(
            Problem(
                f"{len(misidentified)} tables or partitions lack the replica identity of their contract, so that "
                f"changes may be quarantined, or fail in the source: {listed}",
                f"{commands.check()} names the replica identity that each needs",
                "quarantine",
            )
        )
    # The slot, and the connector that reads it.
    if slot is None:
        problems.append(
            Problem(
                f"there is no replication slot {SLOT}",
                "find out why the source connector does not run",
                "lost-slot",
            )
        )
        return Part(NAME, "no replication slot", facts, problems)
    # For a lost slot the server reports no position in its log.
    unread, held, beat = slot["unread_bytes"] or 0, slot["held_bytes"] or 0, facts["heartbeat_seconds"]
    if slot["wal_status"] == "lost":
        problems.append(
            Problem(
                "the server has removed log that the slot needs: changes are lost",
                f"headwater epoch --env {environment} postgresql, and deploy: all rows are read again",
                "lost-slot",
            )
        )
    elif not slot["active"] and not facts["sessions"]:
        problems.append(Problem("nobody reads the replication slot", "see the source connector", "connector"))
    elif slot["active"] and beat is None:
        advice = "the connector cannot go on without this row: insert it, as the connector's log says"
        problems.append(Problem(f"{HEARTBEAT_TABLE} has no row", advice, "connector"))
    elif slot["active"] and beat > _HEARTBEAT_SECONDS:
        problems.append(
            Problem(
                f"the source connector's last heartbeat was {beat:,.0f} s ago",
                "the connector reads but makes no progress: see its log, and whether Kafka takes records",
                "connector",
            )
        )
    elif unread > most_bytes:
        problems.append(
            Problem(
                f"the connector has {_mib(unread)} yet to read",
                "after a load in the source, wait; if the backlog grows all day, give the connector more capacity",
                "slot-lag",
            )
        )
    elif held > most_bytes:
        problems.append(
            Problem(
                f"the slot keeps {_mib(held)} of log, although the connector has read it",
                "find the transaction that has been open for so long, and end it",
                "slot-lag",
            )
        )
    # The limits on the log, and other slots.
    left = slot["left_bytes"]
    if slot["wal_status"] == "unreserved" or (slot["wal_status"] != "lost" and left is not None and left < most_bytes):
        problems.append(
            Problem(
                f"after {_mib(max(left or 0, 0))} more of log the server invalidates the slot, and changes are lost",
                "raise max_slot_wal_keep_size, then find out why the connector does not read the log",
                "slot-lag",
            )
        )
    if other is not None and other["held_bytes"] > most_bytes:
        problems.append(
            Problem(
                f"the slot {other['name']}, which is not Headwater's, keeps {_mib(other['held_bytes'])} of log",
                "ask its owner, then drop it",
                "slot-lag",
            )
        )
    limit = "no limit" if left is None else f"{_mib(max(left, 0))} left"
    read = f"read at {slot['position']}" if slot["active"] else "not read"
    if not slot["active"] and facts["sessions"]:
        read += " yet, while all rows are"
    says = f"slot is {read}, {_mib(unread)} behind; log kept {_mib(held)}, {limit}"
    return Part(NAME, says, facts, problems)


def then_read_again(tables: Sequence[str], contracts: Sequence[Contract], commands: CommandLines) -> str:
    """The command that reads the rows of these source tables again, as an addition to other advice.

    Returns "" if no contract names the tables.
    """
    lost = [contract.table for contract in contracts if contract.source.table in tables]
    return f", then {commands.resync(*lost)}" if lost else ""


def _mib(size: float) -> str:
    return f"{size / _MIB:,.1f} MiB"
