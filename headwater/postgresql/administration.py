"""Create a database's content or prepare its capture, look at it, drop it. Each can be run again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import sql

from headwater.contract.model import Contract
from headwater.definitions.connectors import PUBLICATION, SLOT
from headwater.definitions.database_files import SqlFile
from headwater.definitions.source_checks import UNFIT, refusals
from headwater.definitions.source_database import (
    CDC_ROLE,
    ROLES,
    capture_statements,
    created_statements,
    publication_statements,
    published_tables,
)
from headwater.errors import UserError
from headwater.postgresql.conditions import Condition
from headwater.postgresql.file_runs import run_files
from headwater.postgresql.gradually import PATIENCE_SECONDS, Gradual, Tell, silent
from headwater.postgresql.queries import is_created, require_created, row_count, server_message, single_value

# Another database whose objects the connector's role has rights on.
_CAPTURED_ELSEWHERE = """SELECT datname FROM pg_shdepend
JOIN pg_roles ON refclassid = 'pg_authid'::regclass AND refobjid = pg_roles.oid
JOIN pg_database ON dbid = pg_database.oid
WHERE rolname = %s AND datname <> %s LIMIT 1"""
_DROP_PUBLICATION = f"DROP PUBLICATION IF EXISTS {PUBLICATION}"
_CAPTURED = "SELECT to_regclass('capture.published') IS NOT NULL"
_WITHDRAW_ALL = "SELECT place, statement FROM capture.changes(ARRAY[]::regclass[], ARRAY[]::text[])"
_GIVE_BACK = """SELECT place, format('SELECT capture.identify(%L::regclass, %L, false)', place, clause)
FROM capture.identities_to_give_back()"""
_TO_GIVE_BACK = """SELECT format('ALTER TABLE %s REPLICA IDENTITY %s', place, clause)
FROM capture.identities_to_give_back() ORDER BY place"""
# The schemas and tables of the database itself: no catalogs, and nothing of extensions.
_SCHEMAS = """SELECT quote_ident(nspname) FROM pg_namespace
WHERE nspname !~ '^pg_' AND nspname NOT IN ('information_schema', 'public') AND NOT EXISTS (
    SELECT FROM pg_depend WHERE classid = 'pg_namespace'::regclass AND objid = pg_namespace.oid AND deptype = 'e'
)"""
_TABLES = """SELECT nspname::text, relname::text FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE relkind IN ('r', 'p') AND NOT relispartition
AND nspname !~ '^pg_' AND nspname NOT IN ('information_schema', 'capture') AND NOT EXISTS (
    SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = pg_class.oid AND deptype = 'e'
)
ORDER BY 1, 2"""
# The objects of schemas, tables first, except for objects of extensions. An interrupted ``create`` may leave the schema
# ``capture`` with its tables. Without the heartbeat's table, the schema belongs to another application.
_CONTENT = """SELECT format('%s %s', object.type, object.identity) FROM pg_depend AS held
JOIN pg_namespace ON pg_namespace.oid = held.refobjid,
LATERAL pg_identify_object(held.classid, held.objid, held.objsubid) AS object
WHERE held.refclassid = 'pg_namespace'::regclass AND held.classid <> 'pg_extension'::regclass
AND nspname !~ '^pg_' AND nspname <> 'information_schema'
AND (nspname <> 'capture' OR NOT EXISTS (
    SELECT FROM pg_class WHERE relnamespace = pg_namespace.oid AND relname = 'heartbeat'
))
AND NOT EXISTS (
    SELECT FROM pg_depend AS brought
    WHERE brought.classid = held.classid AND brought.objid = held.objid AND brought.deptype = 'e'
)
ORDER BY object.type <> 'table', 1 LIMIT 1"""
_FILES = """SELECT name, CASE WHEN finished_at IS NULL THEN format('not done: %s statements have run', statements_done)
    ELSE 'ran on ' || date_trunc('second', finished_at) END
FROM capture.database_files ORDER BY capture.number_of(name)"""
_PUBLIC_IN_USE = """SELECT EXISTS (SELECT FROM pg_depend
WHERE refclassid = 'pg_namespace'::regclass AND refobjid = to_regnamespace('public'))"""
_EMPTY_PUBLIC = (
    "DROP SCHEMA public CASCADE",
    "CREATE SCHEMA public AUTHORIZATION pg_database_owner",
    "GRANT USAGE ON SCHEMA public TO PUBLIC",
)


def create(
    conn: psycopg.Connection,
    passwords: Mapping[str, str],
    contracts: Iterable[Contract],
    files: Sequence[SqlFile],
    patience: float = PATIENCE_SECONDS,
    tell: Tell = silent,
) -> None:
    """Create what capture needs, what the SQL files create, roles and publication, or bring them up to date.

    It does so as ``Gradual`` does, over an autocommit connection.

    ``passwords`` holds a password for each of ``ROLES``; a role that exists gets the new one. ``files`` come
    from the lake folder; each statement of them runs once. ``patience`` and ``tell`` are passed to ``Gradual``.

    Raises UserError if one of these holds:

    - A password is missing.
    - A file cannot run, or was changed after it ran.
    - A contract names a table that does not exist or cannot be captured as it says, or a generated column.
    - The server's ``wal_level`` is not ``logical``.
    - The connected role lacks a right.
    - Other transactions keep a lock.
    """
    gradual = Gradual(conn, patience, tell)
    wanted = {role: passwords.get(role, "") for role in ROLES}
    _bring(conn, gradual, created_statements(), wanted, contracts, lambda: run_files(conn, gradual, files, tell))


def refuse_own(conn: psycopg.Connection) -> None:
    """Raise UserError for a database with content that neither ``create`` nor a deployment has made."""
    content = None if is_created(conn) else conn.execute(_CONTENT).fetchone()
    if content is not None:
        raise UserError(
            f"{conn.info.dbname}: found the {content[0]}, expected an empty database, or one that "
            "`headwater db create` made: `headwater db capture` prepares a database of your own"
        )


def prepare(
    conn: psycopg.Connection,
    password: str,
    contracts: Iterable[Contract],
    patience: float = PATIENCE_SECONDS,
    tell: Tell = silent,
) -> None:
    """Prepare a database that has content of its own, so that the contracts' tables are captured.

    It gets the schema ``capture``, the publication, and the connector's role with the password. The tables get the
    replica identity that their contracts want; the earlier one is kept for ``release``. ``patience`` and ``tell`` are
    passed to ``Gradual``.

    After a failure the application goes on, and a second run finishes. Raises UserError as ``create`` does, and if a
    deployment has made the database.
    """
    contracts = list(contracts)
    _require_own(conn)
    refuse_another(conn, conn.info.dbname)
    # In one transaction, which locks no table but those of ``capture``: a source that does not fit leaves no trace. The
    # checks come first, so that their advice is about the existing roles.
    first = _together([*refusals(contracts, CDC_ROLE, [UNFIT]), *capture_statements()])
    _bring(conn, Gradual(conn, patience, tell), [first], {CDC_ROLE: password}, contracts)


def _together(statements: Iterable[str]) -> str:
    """Statements as one text, which the server runs in one transaction however the client ends."""
    return ";\n".join(statements)


def refuse_another(conn: psycopg.Connection, database: str) -> None:
    """Raise UserError if another database of the server than this one is captured, over a connection to any."""
    elsewhere = conn.execute(_CAPTURED_ELSEWHERE, (CDC_ROLE, database)).fetchone()
    if elsewhere is not None:
        raise UserError(
            f"{database}: found that the server's database {elsewhere[0]} is captured, expected no captured "
            "database: a server has only one such role and slot"
        )


def _require_own(conn: psycopg.Connection) -> None:
    """Raise UserError for a database that ``create`` made, and if its schema ``capture`` is another application's."""
    if is_created(conn):
        raise UserError(
            f"{conn.info.dbname}: found a database that headwater db create or a deployment made, expected one of your "
            "own: see headwater db create"
        )
    if single_value(conn, "SELECT to_regnamespace('capture') IS NOT NULL AND to_regclass('capture.published') IS NULL"):
        raise UserError(f"{conn.info.dbname}: found a schema capture of another application, expected none")


def _bring(
    conn: psycopg.Connection,
    gradual: Gradual,
    statements: Sequence[str],
    passwords: Mapping[str, str],
    contracts: Iterable[Contract],
    then: Callable[[], None] = lambda: None,
) -> None:
    """Run statements, do what comes ``then``, publish the contracts' tables, and give the roles their passwords."""
    for role, password in passwords.items():
        if not password or "\0" in password:
            problem = "a NUL character in it" if password else "none"
            raise UserError(f"Password for {role}: found {problem}, expected a text without NUL characters.")
    level = single_value(conn, "SHOW wal_level")
    if level != "logical":
        raise UserError(
            f"The server has wal_level = {level}, expected logical: set it (on Aurora rds.logical_replication = 1 in "
            "the cluster's parameter group) and restart the server."
        )
    contracts = list(contracts)
    try:
        with gradual.briefly_locking():
            gradual.run(statements)
            then()
            for table in published_tables(contracts):
                if single_value(conn, "SELECT to_regclass(%s)", (table,)) is None:
                    raise UserError(
                        f"A contract names the source table {table}, which the database does not have: correct "
                        "`source.table` in the contract, or create the table first."
                    )
            gradual.run(publication_statements(contracts))
            for role, password in passwords.items():
                # Hashed here, so that the password appears in no log of the server.
                secret = conn.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256")
                conn.execute(
                    sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(role), sql.Literal(secret.decode()))
                )
    except psycopg.errors.FeatureNotSupported as error:
        raise UserError(server_message(error)) from None
    except psycopg.errors.InsufficientPrivilege as error:
        raise UserError(
            f"{conn.info.user} may not do all of this: {server_message(error)}. Connect as the server's administrator, "
            "who must own the tables too (--user)."
        ) from None


@dataclass(frozen=True)
class SlotStatus:
    """A replication slot: whether a connector uses it, and how many bytes of the server's log it holds back."""

    active: bool
    held_bytes: int


@dataclass(frozen=True)
class Status:
    """What a database holds that ``create`` or a deployment made."""

    rows: dict[str, int]
    """How many rows each table has, by schema and name."""
    files: dict[str, str]
    """When each file of ``database/`` ran, or how many of its statements have run."""
    published: list[str] | None
    """The tables of the publication; None if there is no publication."""
    slot: SlotStatus | None
    """None until a connector has run for the first time."""
    missing_roles: list[str]
    """The names in ``ROLES`` that the server does not have."""


def status(conn: psycopg.Connection) -> Status:
    """Read the status of the database. Raises UserError if neither ``create`` nor a deployment has made it."""
    require_created(conn)
    rows = {f"{schema}.{table}": row_count(conn, schema, table) for schema, table in conn.execute(_TABLES).fetchall()}
    files: dict[str, str] = {}
    if single_value(conn, "SELECT to_regclass('capture.database_files')") is not None:
        files = dict(conn.execute(_FILES).fetchall())
    published = None
    if single_value(conn, "SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = %s)", (PUBLICATION,)):
        tables = conn.execute(
            "SELECT schemaname || '.' || tablename FROM pg_publication_tables WHERE pubname = %s ORDER BY 1",
            (PUBLICATION,),
        )
        published = [str(table) for (table,) in tables]
    slot = conn.execute(
        """SELECT active, coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint
           FROM pg_replication_slots WHERE slot_name = %s""",
        (SLOT,),
    ).fetchone()
    present = {
        str(name) for (name,) in conn.execute("SELECT rolname FROM pg_roles WHERE rolname = ANY(%s)", (list(ROLES),))
    }
    return Status(
        rows=rows,
        files=files,
        published=published,
        slot=SlotStatus(bool(slot[0]), int(slot[1])) if slot else None,
        missing_roles=[role for role in ROLES if role not in present],
    )


def read_again(conn: psycopg.Connection, tables: Sequence[str], where: Condition | None = None) -> str:
    """Have rows of source tables read again beside their changes, and return the id of the signal that asks for it.

    ``tables`` are names as contracts have them. Rows of the lake that the source no longer has become tombstones. With
    ``where`` only the rows that meet the condition are read, and no row becomes a tombstone.
    """
    condition = None if where is None else f"({where.text})"
    return str(single_value(conn, "SELECT capture.read_again(%s, %s)", (list(tables), condition)))


def drop(conn: psycopg.Connection, patience: float = PATIENCE_SECONDS, tell: Tell = silent) -> None:
    """Drop all schemas with their rows, publication, roles, and the connector's slot; the empty database stays.

    ``patience`` and ``tell`` are passed to ``Gradual``.

    Raises UserError if neither ``create`` nor a deployment has made the database, or if a connector uses the slot. It
    raises it also if another database of the server still needs a role, or other transactions keep a lock.
    """
    require_created(conn)
    _refuse_slot_in_use(conn)
    gradual = Gradual(conn, patience, tell)
    with _refusals_explained("nothing was dropped here"), gradual.briefly_locking():
        schemas = [str(schema) for (schema,) in conn.execute(_SCHEMAS).fetchall()]
        emptied = _EMPTY_PUBLIC if single_value(conn, _PUBLIC_IN_USE) else ()
        _drop(conn, gradual, schemas, ROLES, emptied)


@dataclass(frozen=True)
class Released:
    """What ``release`` leaves at the tables."""

    identities: list[str]
    """The statements that would restore the former replica identity of tables and partitions."""
    refused: list[str]
    """The statements that the server refused, each with the reason."""


def release(
    conn: psycopg.Connection,
    restore_identities: bool = False,
    patience: float = PATIENCE_SECONDS,
    tell: Tell = silent,
) -> Released:
    """Undo ``prepare``, table by table, and drop the connector's slot.

    ``restore_identities`` restores the former replica identity of tables and partitions. ``patience`` and ``tell`` are
    passed to ``Gradual``.

    After a failure the application goes on, and a second run finishes. Raises UserError as ``drop`` does, if a
    deployment has made the database, and if another database is captured.
    """
    _require_own(conn)
    _refuse_slot_in_use(conn)
    refuse_another(conn, conn.info.dbname)
    gradual = Gradual(conn, patience, tell)
    left = Released([], [])
    with _refusals_explained("run the same command again"), gradual.briefly_locking():
        # It locks no table. It comes first, because PostgreSQL refuses the UPDATE and DELETE of a published table that
        # has no identity.
        gradual.run([_DROP_PUBLICATION])
        if single_value(conn, _CAPTURED):
            # Those of an earlier release lack what follows.
            gradual.run([_together(capture_statements()), _WITHDRAW_ALL])
            refused = gradual.attempt(_GIVE_BACK) if restore_identities else []
            left = Released([str(statement) for (statement,) in conn.execute(_TO_GIVE_BACK)], refused)
        _drop(conn, gradual, ["capture"], [CDC_ROLE])
    return left


def _slot(conn: psycopg.Connection) -> bool | None:
    """Whether the slot of this database is in use; None if it has none."""
    slot = conn.execute("SELECT active, database FROM pg_replication_slots WHERE slot_name = %s", (SLOT,)).fetchone()
    return bool(slot[0]) if slot is not None and slot[1] == conn.info.dbname else None


def _refuse_slot_in_use(conn: psycopg.Connection) -> None:
    if _slot(conn):
        raise UserError(f"The replication slot {SLOT} is in use: stop the source connector first, then drop again.")


def _drop(
    conn: psycopg.Connection,
    gradual: Gradual,
    schemas: Sequence[str],
    roles: Sequence[str],
    more: Sequence[str] = (),
) -> None:
    """Drop publication, schemas, roles and slot in one transaction, which runs ``more`` statements too."""
    statements = [_DROP_PUBLICATION, *(f"DROP SCHEMA IF EXISTS {schema} CASCADE" for schema in schemas), *more]
    for role in roles:
        if single_value(conn, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = %s)", (role,)):
            # The maker of a role does not have its privileges, unless the maker is a superuser.
            statements += [f"GRANT {role} TO CURRENT_USER", f"DROP OWNED BY {role}", f"DROP ROLE {role}"]
    if _slot(conn) is not None:
        # No rollback brings the slot back, so it is dropped last.
        statements.append(f"SELECT pg_drop_replication_slot('{SLOT}')")
    gradual.run([_together(statements)])


@contextmanager
def _refusals_explained(rest: str) -> Iterator[None]:
    """Raise what the server refuses as UserError, which ends with ``rest``."""
    try:
        yield
    except psycopg.errors.DependentObjectsStillExist as error:
        raise UserError(
            f"{server_message(error)} ({error.diag.message_detail}): drop the other database's content first; {rest}."
        ) from None
    except psycopg.errors.InsufficientPrivilege as error:
        raise UserError(
            f"{server_message(error)}: connect as the administrator that made the roles (--user); {rest}."
        ) from None
