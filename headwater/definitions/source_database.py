"""The captured PostgreSQL database: its roles, and the statements that prepare it.

The SQL is in ``sql/``. Each statement runs alone, as the RDS Data API requires, and can run again.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from headwater.contract.model import POSTGRESQL, Contract, of_database
from headwater.definitions.connectors import HEARTBEAT_TABLE, PUBLICATION, SIGNAL_TABLE
from headwater.definitions.source_checks import UNFIT, refusals, replica_identity, text_array
from headwater.definitions.sql_script import split

CDC_ROLE = "headwater_cdc"
"""The role of the source connector."""
APP_ROLE = "headwater_app"
"""The role of the application, in a database that the deployment makes."""
READER_ROLE = "headwater_reader"
"""The role that reads every table for comparisons with the lake, in a database that the deployment makes."""
OWNER_ROLE = "headwater_owner"
"""The owner of a database that the deployment makes."""
SECRETS = {OWNER_ROLE: "owner", CDC_ROLE: "cdc", APP_ROLE: "app", READER_ROLE: "reader"}
"""By role, the end of the name of the secret with its password, after ``headwater/ENV/``."""
ROLES = (CDC_ROLE, APP_ROLE, READER_ROLE)
"""The roles, besides the owner, of a database that the deployment makes."""

_SQL = Path(__file__).parent / "sql"
_CAPTURE = ("1_capture.sql", "2_capture_role.sql", "3_capture_identities.sql")
_CREATED = ("4_created_refusals.sql", "5_created_files.sql", "6_created_roles.sql")

# A partition's changes are published as changes of its root table, which a contract names.
_OPTIONS = "publish = 'insert, update, delete, truncate', publish_via_partition_root = true"


def published_tables(contracts: Iterable[Contract]) -> list[str]:
    """Return the publication's tables: the PostgreSQL contracts' source tables, the heartbeat and the signals."""
    source_tables = {contract.source.table for contract in of_database(contracts, POSTGRESQL)}
    return [*sorted(source_tables), HEARTBEAT_TABLE, SIGNAL_TABLE]


def capture_statements() -> list[str]:
    """Return the statements that capture needs in any database.

    They make the schema ``capture``, the connector's role, and the event trigger that keeps replica identities.
    """
    return _of_scripts(_CAPTURE)


def created_statements() -> list[str]:
    """Return the statements that prepare a database that the deployment makes. Each can run again.

    They are ``capture_statements``, and the event triggers that refuse the loss of captured tables. They also create
    the record of the files of ``database/``, and the roles of the application and the reader.

    No statement holds a password. ``ALTER ROLE`` sets the roles' passwords afterwards.
    """
    return _of_scripts([*_CAPTURE, *_CREATED])


def _of_scripts(names: Iterable[str]) -> list[str]:
    return [statement.text for name in names for statement in split((_SQL / name).read_text(encoding="utf-8"))]


def publication_statements(contracts: Iterable[Contract]) -> list[str]:
    """Return the statements that publish the contracts' tables and let the connector's role read them.

    Each statement has to run in a transaction of its own. A query among them returns further statements, as rows of a
    table's name and a statement. The caller runs these, and repeats the query until it returns no row.
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
        # The publication is made without tables, so that this statement locks none.
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
        # All is set up now. So check again for faults that these statements cannot mend.
        *refusals(contracts, CDC_ROLE),
    ]


def hidden_column_statements(contracts: Iterable[Contract]) -> list[str]:
    """Return the statements that record the numbers of the columns that contracts exclude or mask.

    The record of a column is deleted when no contract has any of the column's recorded names.
    """
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
