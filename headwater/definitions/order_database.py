"""The order database: its names, and the statements that make its content.

The SQL is in ``database/``. Each statement runs on its own, as the RDS Data API requires, and can be run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import sqlparse
from sqlparse import lexer, tokens

from headwater.contract.model import POSTGRESQL, Contract, of_database
from headwater.contract.types import SourceType
from headwater.definitions.connectors import HEARTBEAT_TABLE, PUBLICATION, SIGNAL_TABLE
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
    scripts = sorted(SQL_FOLDER.glob("*.sql"))
    return [statement for script in scripts for statement in split(script.read_text(encoding="utf-8"))]


def publication_statements(contracts: Iterable[Contract]) -> list[str]:
    """The statements that publish the contracts' tables and let the connector's role read them."""
    contracts = list(contracts)
    tables = published_tables(contracts)
    # Contracts allow only lower-case letters, digits and _ in these names, so they need no quotes.
    listed = ", ".join(tables)
    schemas = ", ".join(sorted({table.partition(".")[0] for table in tables}))
    captured = [table for table in tables if table not in (HEARTBEAT_TABLE, SIGNAL_TABLE)]
    return [
        _refuse_generated_columns(contracts),
        _refuse_unfit_sources(contracts),
        # Each event then carries the whole row before the change: the writer needs it to bury a row in the partition
        # that it leaves.
        *(f"ALTER TABLE {table} REPLICA IDENTITY FULL" for table in tables),
        # PostgreSQL writes the row before a change by the identity of the partition that holds it.
        "SELECT capture.identify_partitions(ARRAY[" + ", ".join(f"'{table}'" for table in tables) + "]::regclass[])",
        f"REVOKE ALL ON ALL TABLES IN SCHEMA northwind FROM {CDC_ROLE}",
        f"GRANT USAGE ON SCHEMA {schemas} TO {CDC_ROLE}",
        *(f"GRANT SELECT ON {table} TO {CDC_ROLE}" for table in captured),
        f"""DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_publication WHERE pubname = '{PUBLICATION}') THEN
        ALTER PUBLICATION {PUBLICATION} SET TABLE {listed};
        ALTER PUBLICATION {PUBLICATION} SET ({_OPTIONS});
    ELSE
        CREATE PUBLICATION {PUBLICATION} FOR TABLE {listed} WITH ({_OPTIONS});
    END IF;
    -- By these names the event trigger sees that one is renamed.
    DELETE FROM capture.published;
    INSERT INTO capture.published (relation, name)
    SELECT c.oid, format('%I.%I', nspname, relname)
    FROM pg_publication JOIN pg_publication_rel ON prpubid = pg_publication.oid
    JOIN pg_class AS c ON c.oid = prrelid JOIN pg_namespace AS n ON n.oid = relnamespace
    WHERE pubname = '{PUBLICATION}';
END
$$""",
    ]


def _refuse_generated_columns(contracts: Sequence[Contract]) -> str:
    """A statement that fails where a contract names a generated column: PostgreSQL 16 leaves these out of the stream,
    so that each change would lack a value that the snapshot had."""
    columns = sorted(
        (contract.source.table, path)
        for contract in of_database(contracts, POSTGRESQL)
        for path in {column.path[0] for column in contract.columns}
    )
    named = ", ".join(f"('{table}', {_literal(name)})" for table, name in columns)
    return f"""DO $check$
DECLARE
    generated text;
BEGIN
    SELECT string_agg(source || '.' || name, ', ' ORDER BY source, name) INTO generated
    FROM (VALUES {named or "(NULL, NULL)"}) AS named (source, name)
    JOIN pg_attribute ON attrelid = to_regclass(source) AND attname = name AND attgenerated <> '';
    IF generated IS NOT NULL THEN
        RAISE EXCEPTION 'The contracts name generated columns: %. PostgreSQL leaves these out of its changes. '
            'Remove them from the contracts, and compute them in a view over the lake; or make them plain columns that '
            'a trigger fills.', generated USING ERRCODE = 'feature_not_supported';
    END IF;
END
$check$"""


def _refuse_unfit_sources(contracts: Sequence[Contract]) -> str:
    """A statement that fails where a source table cannot be captured as its contract says, and names every reason:

    - No unique index holds columns of the key only, so that rows of the lake would bury each other. One that is checked
      at the end of a transaction is none: two rows may have one key meanwhile.
    - Tables inherit from it. Its snapshot reads their rows, and their changes go by their own names.
    - Row level security hides rows from the snapshot.
    - A column has another type than its contract says. Debezium's numbers would then mean another unit.

    A column whose type is a domain is compared by the type below it, and a type of an extension that is a text (citext)
    counts as text, because Debezium takes them so.
    """
    described = of_database(contracts, POSTGRESQL)
    keys = sorted({(contract.source.table, _key_columns(contract)) for contract in described})
    types = sorted(
        {
            (contract.source.table, column.path[0], _spelled(SourceType.parse(column.source_type)))
            for contract in described
            for column in contract.columns
            if len(column.path) == 1 and column.source_type is not None
        }
    )
    listed_keys = ", ".join(f"('{table}', ARRAY[{', '.join(map(_literal, key))}]::text[])" for table, key in keys)
    listed_types = ", ".join(f"('{table}', {_literal(name)}, {_literal(type_)})" for table, name, type_ in types)
    return f"""DO $check$
DECLARE
    problems text;
BEGIN
    WITH RECURSIVE
    source AS (
        SELECT pg_class.*, name, key
        FROM (VALUES {listed_keys or "(NULL, ARRAY[]::text[])"}) AS listed (name, key)
        JOIN pg_class ON pg_class.oid = to_regclass(name)
    ),
    typed AS (
        SELECT source, name, expected, atttypid AS type, atttypmod AS modifier
        FROM (VALUES {listed_types or "(NULL, NULL, NULL)"}) AS listed (source, name, expected)
        JOIN pg_attribute ON attrelid = to_regclass(source) AND attname = name AND attnum > 0 AND NOT attisdropped
        UNION ALL
        SELECT source, name, expected, typbasetype, typtypmod
        FROM typed JOIN pg_type ON pg_type.oid = type AND typtype = 'd'
    ),
    spelled AS (
        SELECT source, name, expected, CASE
            WHEN typtype = 'e' THEN 'enum'
            WHEN typcategory = 'S' AND typnamespace <> 'pg_catalog'::regnamespace THEN 'text'
            WHEN format_type(type, NULL) LIKE 'timestamp%' THEN replace(format_type(type, modifier), '(6)', '')
            WHEN format_type(type, NULL) LIKE 'numeric%' THEN format_type(type, modifier)
            ELSE format_type(type, NULL)
        END AS actual
        FROM typed JOIN pg_type ON pg_type.oid = type AND typtype <> 'd'
    ),
    problem (text) AS (
        SELECT format(
            '%s: found no unique index with only columns of the contract''s key (%s), expected one that is valid, '
            'without a condition and not DEFERRABLE; create it, or name the columns of such an index as the key',
            name, array_to_string(key, ', ')
        )
        FROM source
        WHERE NOT EXISTS (
            SELECT FROM pg_index
            WHERE indrelid = source.oid AND indisunique AND indisvalid AND indimmediate AND indpred IS NULL
            AND NOT EXISTS (
                SELECT FROM generate_series(0, indnkeyatts - 1) AS place
                LEFT JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[place] AND attnum > 0
                WHERE attname IS NULL OR attname <> ALL (key)
            )
        )
        UNION
        SELECT format(
            '%s: found tables that inherit from it (%s), expected none: their rows would be in the snapshot, and their '
            'changes are not captured; detach them (ALTER TABLE … NO INHERIT), or make it a partitioned table',
            name, string_agg(inhrelid::regclass::text, ', ' ORDER BY inhrelid::regclass::text)
        )
        FROM source JOIN pg_inherits ON inhparent = source.oid
        WHERE relkind = 'r'
        GROUP BY name
        UNION
        SELECT format(
            '%s: found row level security, expected none that holds for {CDC_ROLE}: it would hide rows from the '
            'snapshot; ALTER ROLE {CDC_ROLE} BYPASSRLS, or disable it for the table', name
        )
        FROM source JOIN pg_roles ON rolname = '{CDC_ROLE}'
        WHERE relrowsecurity AND NOT rolsuper AND NOT rolbypassrls
        AND (relforcerowsecurity OR NOT pg_has_role(pg_roles.oid, relowner, 'USAGE'))
        UNION
        SELECT format(
            '%s.%s: found the type %s, expected %s, as the contract''s source_type says; correct the contract, or the '
            'column', source, name, actual, expected
        )
        FROM spelled
        WHERE actual <> expected
    )
    SELECT string_agg(text, '. ' ORDER BY text) INTO problems FROM problem;
    IF problems IS NOT NULL THEN
        RAISE EXCEPTION 'Source tables do not fit their contracts. %.', problems
            USING ERRCODE = 'feature_not_supported';
    END IF;
END
$check$"""


def _key_columns(contract: Contract) -> tuple[str, ...]:
    """The source's columns that the key holds whole, not by a path into JSON."""
    columns = [contract.column(name) for name in contract.key]
    return tuple(column.path[0] for column in columns if len(column.path) == 1)


def _spelled(source: SourceType) -> str:
    """A type as ``format_type`` prints it, with the arguments that a contract can name. Six digits of a timestamp are
    PostgreSQL's default."""
    arguments = [str(number) for number in (source.precision, source.scale) if number is not None]
    if source.base.startswith("timestamp") and source.precision == 6:
        arguments = []
    word, space, rest = source.base.partition(" ") if source.base.startswith("timestamp") else (source.base, "", "")
    argued = f"({','.join(arguments)})" if arguments else ""
    return f"{word}{argued}{space}{rest}{'[]' if source.array else ''}"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def repair_statement(first: int, last: int) -> str:
    """The statement that corrects the outbox rows of the orders ``first`` to ``last``, both included.

    An order that is older than the outbox has no row, and a row that is older than a change of
    ``outbox.current_orders`` has the old payload. The statement writes only the rows that differ.
    """
    return REPAIR.format(first=first, last=last)
