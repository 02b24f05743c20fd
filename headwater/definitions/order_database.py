"""The order database: its names, and the statements that make its content.

The SQL is in ``database/``. Each statement runs on its own, as the RDS Data API requires, and can be run again.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import sqlparse
from sqlparse import lexer, tokens

from headwater.contract.model import POSTGRESQL, Contract, of_database
from headwater.definitions.connectors import HEARTBEAT_TABLE, PUBLICATION, SIGNAL_TABLE, SLOT
from headwater.definitions.source_checks import UNFIT, refusals, replica_identity, text_array
from headwater.paths import ROOT

SQL_FOLDER = ROOT / "database"
CDC_ROLE = "headwater_cdc"
APP_ROLE = "headwater_app"
READER_ROLE = "headwater_reader"
ROLES = (CDC_ROLE, APP_ROLE, READER_ROLE)
SCHEMAS = ("outbox", "capture", "northwind")
OUTBOX = "order_events"
# A parent comes before the tables that refer to it.
TABLES = (
    "region",
    "territories",
    "employees",
    "employee_territories",
    "categories",
    "suppliers",
    "products",
    "customers",
    "shippers",
    "orders",
    "order_details",
)

_CAPTURE_SCRIPTS = ("5_capture.sql", "6_capture_role.sql", "7_capture_identities.sql")

# Changes of a partition are published as changes of the table that a contract names.
_OPTIONS = "publish = 'insert, update, delete, truncate', publish_via_partition_root = true"

# The smallest and the largest id of all orders; both null where there is no order.
ORDERS_SPAN = """SELECT min(order_id), max(order_id)
FROM (SELECT order_id FROM northwind.orders UNION ALL SELECT order_id FROM northwind.order_events) AS known"""
# The template of ``repair_statement``; it holds {first} and {last}.
REPAIR = """INSERT INTO outbox.noted (kind, key)
SELECT 'order', coalesce(built.order_id, stored.order_id)::text
FROM (SELECT * FROM outbox.current_orders WHERE order_id BETWEEN {first} AND {last}) AS built
FULL JOIN (SELECT * FROM northwind.order_events WHERE order_id BETWEEN {first} AND {last}) AS stored USING (order_id)
WHERE (built.order_month, built.payload) IS DISTINCT FROM (stored.order_month, stored.payload)"""


def split(script: str) -> list[str]:
    """Split an SQL script into its statements, without their semicolons and without the comments around them."""
    return [statement for statement in map(_without_surroundings, sqlparse.split(script)) if statement]


def _without_surroundings(statement: str) -> str:
    lexed = list(lexer.tokenize(statement))  # type: ignore[no-untyped-call]
    kept = [at for at, (kind, text) in enumerate(lexed) if not _surrounds(kind, text)]
    return "".join(text for _, text in lexed[kept[0] : kept[-1] + 1]) if kept else ""


def _surrounds(kind: object, text: str) -> bool:
    return kind in tokens.Whitespace or kind in tokens.Comment or text == ";"


def published_tables(contracts: Iterable[Contract]) -> list[str]:
    """The tables of the publication: the source tables of the PostgreSQL contracts, the heartbeat and the signals."""
    source_tables = {contract.source.table for contract in of_database(contracts, POSTGRESQL)}
    return [*sorted(source_tables), HEARTBEAT_TABLE, SIGNAL_TABLE]


def statements(contracts: Iterable[Contract]) -> list[str]:
    """Every statement that makes the database's content, in order.

    None holds a password: ``ALTER ROLE`` sets the roles' passwords afterwards.
    """
    return [*content_statements(), *publication_statements(contracts)]


def content_statements() -> list[str]:
    """The statements of ``database/``: schema, outbox, capture tables and roles."""
    return _of_scripts(sorted(SQL_FOLDER.glob("*.sql")))


def capture_statements() -> list[str]:
    """Those of them that capture needs in any database: the schema ``capture``, the connector's role, and what keeps
    replica identities. What lets the owner's statements fail is the order database's alone."""
    return _of_scripts(SQL_FOLDER / name for name in _CAPTURE_SCRIPTS)


def _of_scripts(scripts: Iterable[Path]) -> list[str]:
    return [statement for script in scripts for statement in split(script.read_text(encoding="utf-8"))]


def publication_statements(contracts: Iterable[Contract]) -> list[str]:
    """The statements that publish the contracts' tables and let the connector's role read them."""
    contracts = list(contracts)
    tables = published_tables(contracts)
    # Contracts allow only lower-case letters, digits and _ in these names, so they need no quotes.
    listed = ", ".join(tables)
    identities = dict.fromkeys(tables, "FULL") | {
        contract.source.table: replica_identity(contract) for contract in of_database(contracts, POSTGRESQL)
    }
    published, wanted = f"{text_array(identities)}::regclass[]", text_array(identities.values())
    schemas = ", ".join(sorted({table.partition(".")[0] for table in tables}))
    captured = [table for table in tables if table not in (HEARTBEAT_TABLE, SIGNAL_TABLE)]
    return [
        *refusals(contracts, CDC_ROLE, [UNFIT]),
        # By what stands there the event trigger sets right a table that loses its identity.
        "UPDATE capture.published SET replica_identity = identity"
        f" FROM unnest({published}, {wanted}) AS wanted (id, identity) WHERE relation = id",
        # With FULL each event carries the whole row before the change: where the primary key does not say it, the
        # writer needs it to bury a row in the partition that it leaves.
        *(f"ALTER TABLE {table} REPLICA IDENTITY {identity}" for table, identity in identities.items()),
        # PostgreSQL writes the row before a change by the identity of the partition that holds it.
        f"SELECT capture.identify_partitions({published}, {wanted})",
        # Tables of which no contract is left.
        f"""DO $$
DECLARE
    other regclass;
BEGIN
    FOR other IN
        SELECT DISTINCT c.oid FROM pg_class AS c CROSS JOIN LATERAL aclexplode(relacl)
        WHERE grantee = '{CDC_ROLE}'::regrole AND c.oid <> ALL ({published})
    LOOP
        EXECUTE format('REVOKE ALL ON %s FROM {CDC_ROLE}', other);
    END LOOP;
END
$$""",
        f"GRANT USAGE ON SCHEMA {schemas} TO {CDC_ROLE}",
        *(f"GRANT SELECT ON {table} TO {CDC_ROLE}" for table in captured),
        f"""DO $$
DECLARE
    before oid[] := ARRAY(
        SELECT prrelid FROM pg_publication_rel JOIN pg_publication AS p ON p.oid = prpubid
        WHERE pubname = '{PUBLICATION}'
    );
    is_read boolean := EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = '{SLOT}');
BEGIN
    IF EXISTS (SELECT FROM pg_publication WHERE pubname = '{PUBLICATION}') THEN
        ALTER PUBLICATION {PUBLICATION} SET TABLE {listed};
        ALTER PUBLICATION {PUBLICATION} SET ({_OPTIONS});
    ELSE
        CREATE PUBLICATION {PUBLICATION} FOR TABLE {listed} WITH ({_OPTIONS});
    END IF;
    DELETE FROM capture.published WHERE relation NOT IN (
        SELECT prrelid FROM pg_publication_rel JOIN pg_publication AS p ON p.oid = prpubid
        WHERE pubname = '{PUBLICATION}'
    );
    -- By these names the event trigger sees that one is renamed.
    INSERT INTO capture.published AS known (relation, name, awaits_rows, replica_identity)
    SELECT c.oid, format('%I.%I', nspname, relname), is_read AND c.oid <> ALL (before),
        CASE relreplident WHEN 'd' THEN 'DEFAULT' ELSE 'FULL' END
    FROM pg_publication JOIN pg_publication_rel ON prpubid = pg_publication.oid
    JOIN pg_class AS c ON c.oid = prrelid JOIN pg_namespace AS n ON n.oid = relnamespace
    WHERE pubname = '{PUBLICATION}'
    ON CONFLICT (relation) DO UPDATE
    SET name = excluded.name, awaits_rows = known.awaits_rows OR excluded.awaits_rows,
        replica_identity = excluded.replica_identity;
END
$$""",
        *hidden_column_statements(contracts),
        # Everything is set by now: what is still wrong, nobody here could mend.
        *refusals(contracts, CDC_ROLE),
    ]


def hidden_column_statements(contracts: Iterable[Contract]) -> list[str]:
    """The statements that record the numbers of the columns that contracts exclude or mask."""
    pairs = [
        (contract.source.table, path[0])
        for contract in of_database(contracts, POSTGRESQL)
        for path in (*contract.exclude, *(mask.path for mask in contract.masks))
    ]
    hidden = f"""SELECT id::oid, name FROM unnest({text_array(table for table, _ in pairs)}::regclass[],
    {text_array(name for _, name in pairs)}) AS listed (id, name)"""
    return [
        f"""DELETE FROM capture.hidden_columns AS known
WHERE NOT EXISTS (SELECT FROM ({hidden}) AS hidden WHERE id = relation AND hidden.name = known.name)""",
        f"""INSERT INTO capture.hidden_columns (relation, number, name)
SELECT id, attnum, name FROM ({hidden}) AS hidden
JOIN pg_attribute ON attrelid = id AND attnum > 0 AND NOT attisdropped
    AND (attname = name OR lower(attname) = lower(name))
ON CONFLICT DO NOTHING""",
    ]


def repair_statement(first: int, last: int) -> str:
    """The statement that corrects the outbox rows of the orders ``first`` to ``last``, both included.

    An order that is older than the outbox has no row, and a row that is older than a change of
    ``outbox.current_orders`` has the old payload. The statement writes only the rows that differ.
    """
    return REPAIR.format(first=first, last=last)
