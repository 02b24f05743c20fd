"""The order database: its names, and the statements that make its content.

The SQL is in ``database/``. Each statement runs on its own, as the RDS Data API requires, and can be run again.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import sqlparse
from sqlparse import lexer, tokens

from headwater.contract.model import POSTGRESQL, Contract, of_database
from headwater.definitions.connectors import HEARTBEAT_TABLE, PUBLICATION, SIGNAL_TABLE
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
    """The statements that publish the contracts' tables and let the connector's role read them.

    Each is to run in a transaction of its own. A query among them answers with what is still to be done: rows of a
    table's name and a statement for it. Whoever runs them repeats such a query until it has no answer.
    """
    contracts = list(contracts)
    tables = published_tables(contracts)
    identities = dict.fromkeys(tables, "FULL") | {
        contract.source.table: replica_identity(contract) for contract in of_database(contracts, POSTGRESQL)
    }
    published, wanted = f"{text_array(identities)}::regclass[]", text_array(identities.values())
    schemas = ", ".join(sorted({table.partition(".")[0] for table in tables}))
    return [
        *refusals(contracts, CDC_ROLE, [UNFIT]),
        f"GRANT USAGE ON SCHEMA {schemas} TO {CDC_ROLE}",
        # Without a table it locks none.
        f"""DO $$
DECLARE
    other regnamespace;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_publication WHERE pubname = '{PUBLICATION}') THEN
        CREATE PUBLICATION {PUBLICATION} WITH ({_OPTIONS});
    ELSE
        ALTER PUBLICATION {PUBLICATION} SET ({_OPTIONS});
    END IF;
    FOR other IN
        SELECT pnnspid FROM pg_publication_namespace JOIN pg_publication AS p ON p.oid = pnpubid
        WHERE pubname = '{PUBLICATION}'
    LOOP
        EXECUTE format('ALTER PUBLICATION {PUBLICATION} DROP TABLES IN SCHEMA %s', other);
    END LOOP;
END
$$""",
        *hidden_column_statements(contracts),
        f"SELECT place, statement FROM capture.changes({published}, {wanted})",
        # Everything is set by now: what is still wrong, nobody here could mend.
        *refusals(contracts, CDC_ROLE),
    ]


def hidden_column_statements(contracts: Iterable[Contract]) -> list[str]:
    """The statements that record the numbers of the columns that contracts exclude or mask. A number goes when no
    contract has any of its names."""
    pairs = [
        (contract.source.table, path[0])
        for contract in of_database(contracts, POSTGRESQL)
        for path in (*contract.exclude, *(mask.path for mask in contract.masks))
    ]
    hidden = f"""SELECT id::oid, name FROM unnest({text_array(table for table, _ in pairs)}::regclass[],
    {text_array(name for _, name in pairs)}) AS listed (id, name)"""
    return [
        f"""DO $hide$
BEGIN
    PERFORM capture.hide_columns(id, array_agg(name)) FROM ({hidden}) AS hidden GROUP BY id;
END
$hide$""",
        f"""DELETE FROM capture.hidden_columns WHERE (relation, number) NOT IN (
    SELECT relation, number FROM capture.hidden_columns AS known JOIN ({hidden}) AS hidden
    ON id = relation AND hidden.name = known.name
)""",
    ]


def repair_statement(first: int, last: int) -> str:
    """The statement that corrects the outbox rows of the orders ``first`` to ``last``, both included.

    An order that is older than the outbox has no row, and a row that is older than a change of
    ``outbox.current_orders`` has the old payload. The statement writes only the rows that differ.
    """
    return REPAIR.format(first=first, last=last)
