"""Whether the contracts fit their real PostgreSQL tables, as one SQL query.

The deployment runs it within statements that fail (``refusals``), and ``headwater contract check --live`` prints its
rows (``findings``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from headwater.contract.model import DEFAULT, HMAC, POSTGRESQL, Contract, of_database
from headwater.contract.types import SourceType
from headwater.definitions.connectors import HEARTBEAT_TABLE, PUBLICATION, SIGNAL_TABLE, SLOT

UNFIT = "unfit"
"""The source cannot be captured as the contract says, and its owner or the contract must change."""
UNPREPARED = "unprepared"
"""Identity, publication or rights are not as ``headwater db create`` or ``capture`` and the deployment set them."""
WARNING = "warning"
"""Rows or values will be missing in the lake."""
NOTE = "note"
"""Worth knowing, and as it may be."""
PROBLEMS = (UNFIT, UNPREPARED)

_LEAST_VERSION = 15
"""Before it the catalog says nothing of the columns and rows that a publication leaves out."""
_MOST_BYTES = 65_536
"""What the Data API takes of one statement."""

_UPGRADE = "upgrade the server"

Query = Callable[[str], Iterable[Sequence[object]]]
"""Runs a query and returns its rows."""


@dataclass(frozen=True)
class Finding:
    """One finding of a check."""

    contract: str
    """The contract's table, or "" if the finding concerns all."""
    place: str
    """A table, a column as ``schema.table.column``, a role, or ``server``."""
    level: str
    """One of this module's four levels."""
    found: str
    expected: str
    action: str
    """What to do."""

    def __str__(self) -> str:
        return f"{self.place}: found {self.found}, expected {self.expected}; {self.action}"


def findings(contracts: Iterable[Contract], role: str, query: Query) -> list[Finding]:
    """Return the findings about the source tables of the PostgreSQL contracts, problems first.

    ``role`` is the connector's. If the server is too old, that is the only finding.
    """
    ((version, measures),) = query(
        "SELECT current_setting('server_version_num'), has_function_privilege('pg_ls_waldir()', 'EXECUTE')"
    )
    major = int(str(version)) // 10_000
    if major < _LEAST_VERSION:
        return [Finding("", "server", UNFIT, f"PostgreSQL {major}", f"{_LEAST_VERSION} or later", _UPGRADE)]
    return [Finding(*map(str, row)) for row in query(findings_query(contracts, role, measures=bool(measures)))]


def refusals(contracts: Iterable[Contract], role: str, levels: Sequence[str] = PROBLEMS) -> list[str]:
    """Return statements that fail if there are findings of these levels, and name all of them.

    It is one statement, or several if one would be too long for the Data API.
    """
    statements: list[str] = []
    batch: list[Contract] = []
    for contract in of_database(contracts, POSTGRESQL):
        if batch and len(_refusal([*batch, contract], role, levels).encode()) > _MOST_BYTES:
            statements.append(_refusal(batch, role, levels))
            batch = []
        batch.append(contract)
    return [*statements, _refusal(batch, role, levels)]


def _refusal(contracts: Sequence[Contract], role: str, levels: Sequence[str]) -> str:
    # PL/pgSQL has a variable ``found`` of its own.
    return f"""DO $check$
#variable_conflict use_column
DECLARE
    problems text;
BEGIN
    IF current_setting('server_version_num')::int < {_LEAST_VERSION}0000 THEN
        RAISE EXCEPTION 'server: found PostgreSQL %, expected {_LEAST_VERSION} or later; {_UPGRADE}',
            current_setting('server_version')
            USING ERRCODE = 'feature_not_supported';
    END IF;
    SELECT string_agg(format('%s: found %s, expected %s; %s', place, found, expected, action), '. ' ORDER BY place)
    INTO problems
    FROM ({findings_query(contracts, role)}) AS checked
    WHERE level IN ({", ".join(map(_literal, levels))});
    IF problems IS NOT NULL THEN
        RAISE EXCEPTION 'Source tables do not fit their contracts. %.', problems
            USING ERRCODE = 'feature_not_supported';
    END IF;
END
$check$"""


def findings_query(contracts: Iterable[Contract], role: str, *, measures: bool = False) -> str:
    """Return the query for the findings. Its columns are the fields of ``Finding``.

    It needs only the right to connect. With ``measures`` it also finds the size of the server's log, for which it needs
    the rights of ``pg_monitor``.

    A column whose type is a domain is compared by the type below it. A text type of an extension (citext) counts as
    text. Debezium treats both so.
    """
    described = of_database(contracts, POSTGRESQL)
    listed = [
        f"({_literal(contract.table)}, {_literal(contract.source.table)},"
        f" {text_array(_sources(contract, contract.key))},"
        f" {text_array(_sources(contract, contract.partition_by))}, {text_array(names)}, {text_array(types)},"
        f" {text_array([name for (name,) in contract.exclude])}, {_literal(contract.unnamed)},"
        f" {text_array([name for mask in contract.masks for name in mask.path])},"
        f" {text_array([name for mask in contract.masks if mask.how == HMAC for name in mask.path])},"
        f" {_literal(replica_identity(contract))})"
        for contract in described
        for names, types in [_expected_columns(contract)]
    ]
    nothing = (
        "(NULL, NULL, ARRAY[]::text[], ARRAY[]::text[], ARRAY[]::text[], ARRAY[]::text[], ARRAY[]::text[], NULL,"
        " ARRAY[]::text[], ARRAY[]::text[], NULL)"
    )
    query = re.sub(r"\n\s+", "\n", _QUERY)
    return (
        query.replace("{listed}", ",\n        ".join(listed) or nothing)
        .replace("{role}", _literal(role))
        .replace("{publication}", _literal(PUBLICATION))
        .replace("{heartbeat}", _literal(HEARTBEAT_TABLE))
        .replace("{signal}", _literal(SIGNAL_TABLE))
        .replace("{slot}", _literal(SLOT))
        .replace("{log_bytes}", "(SELECT sum(size) FROM pg_ls_waldir())" if measures else "NULL::numeric")
    )


def replica_identity(contract: Contract) -> str:
    """The replica identity of a contract's table, as ALTER TABLE names it."""
    return "DEFAULT" if contract.source.replica_identity == DEFAULT else "FULL"


def _sources(contract: Contract, names: Sequence[str]) -> list[str]:
    """The source's columns that these columns hold whole."""
    columns = [contract.column(name) for name in names]
    return [column.path[0] for column in columns if len(column.path) == 1]


def _expected_columns(contract: Contract) -> tuple[list[str], list[str]]:
    """The source's columns that a contract names, and the type of each; ``json`` if a path leads into it."""
    pairs = sorted(
        {
            (column.path[0], "json" if column.source_type is None else _spelled(SourceType.parse(column.source_type)))
            for column in contract.columns
        }
    )
    return [name for name, _ in pairs], [type_ for _, type_ in pairs]


def _spelled(source: SourceType) -> str:
    """Return a type as ``format_type`` prints it, with the arguments that a contract can name.

    Six digits of a timestamp are PostgreSQL's default.
    """
    arguments = [str(number) for number in (source.precision, source.scale) if number is not None]
    if source.base.startswith("timestamp") and source.precision == 6:
        arguments = []
    word, space, rest = source.base.partition(" ") if source.base.startswith("timestamp") else (source.base, "", "")
    argued = f"({','.join(arguments)})" if arguments else ""
    return f"{word}{argued}{space}{rest}{'[]' if source.array else ''}"


def text_array(texts: Iterable[str]) -> str:
    """Texts as an array of SQL."""
    return f"ARRAY[{', '.join(map(_literal, texts))}]::text[]"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# Each SELECT of ``checked`` is one rule.
_QUERY = """WITH RECURSIVE
    listed (contract, name, key, partition_by, columns, types, exclude, unnamed, masked, by_hmac, identity) AS (VALUES
        {listed}
    ),
    role AS (SELECT * FROM pg_roles WHERE rolname = {role}),
    publication AS (SELECT * FROM pg_publication WHERE pubname = {publication}),
    source AS (SELECT listed.*, pg_class.* FROM listed JOIN pg_class ON pg_class.oid = to_regclass(listed.name)),
    captured (contract, name, id, identity) AS (
        SELECT contract, name, oid, identity FROM source WHERE relkind IN ('r', 'p')
        UNION ALL
        SELECT '', capture, to_regclass(capture)::oid, 'FULL' FROM (VALUES ({heartbeat}), ({signal})) AS own (capture)
        WHERE to_regclass(capture) IS NOT NULL
    ),
    -- Those and their partitions, by the catalog alone: pg_partition_tree would lock all of them.
    tree (contract, name, identity, root, relation) AS (
        SELECT contract, name, identity, id, id FROM captured
        UNION ALL
        SELECT contract, name, identity, root, inhrelid
        FROM tree JOIN pg_inherits ON inhparent = relation JOIN pg_class ON pg_class.oid = inhrelid AND relispartition
    ),
    attribute AS (
        SELECT contract, name, key, partition_by, columns, exclude, unnamed, masked, by_hmac, identity, pg_attribute.*
        FROM source JOIN pg_attribute ON attrelid = source.oid AND attnum > 0 AND NOT attisdropped
    ),
    -- The columns of primary keys that REPLICA IDENTITY DEFAULT can go by.
    key_column AS (
        SELECT attribute.* FROM attribute
        JOIN pg_index ON indrelid = attrelid AND indisprimary AND indisvalid AND indimmediate
        CROSS JOIN generate_series(0, indnkeyatts - 1) AS place
        WHERE attnum = indkey[place]
    ),
    server (checks_generated, identifies) AS (
        SELECT current_setting('server_version_num')::int >= 180000,
            EXISTS (
                SELECT FROM pg_event_trigger
                WHERE evtname = 'headwater_new_partitions' AND evtenabled IN ('O', 'A')
            )
            -- Before capture, whoever asks is taken for who will prepare it.
            OR to_regnamespace('capture') IS NULL AND EXISTS (
                SELECT FROM pg_roles
                WHERE rolname = current_user AND rolsuper
                OR rolname = 'rds_superuser' AND pg_has_role(pg_roles.oid, 'USAGE')
            )
    ),
    named (contract, name, column_name, expected, needed) AS (
        SELECT contract, name, column_name, expected, column_name = ANY (key || partition_by)
        FROM listed CROSS JOIN LATERAL unnest(columns, types) AS pair (column_name, expected)
    ),
    typed (contract, name, column_name, expected, type, modifier) AS (
        SELECT contract, name, column_name, expected, atttypid, atttypmod
        FROM named JOIN attribute USING (contract, name) WHERE attname = column_name
        UNION ALL
        SELECT contract, name, column_name, expected, typbasetype, typtypmod
        FROM typed JOIN pg_type ON pg_type.oid = type AND typtype = 'd'
    ),
    spelled AS (
        SELECT contract, name, column_name, expected, CASE
            WHEN typtype = 'e' THEN 'enum'
            WHEN typcategory = 'S' AND typnamespace <> 'pg_catalog'::regnamespace THEN 'text'
            WHEN format_type(type, NULL) LIKE 'timestamp%' THEN replace(format_type(type, modifier), '(6)', '')
            WHEN format_type(type, NULL) LIKE 'numeric%' THEN format_type(type, modifier)
            ELSE format_type(type, NULL)
        END AS actual
        FROM typed JOIN pg_type ON pg_type.oid = type AND typtype <> 'd'
    ),
    -- Columns that the source connector reads, and the type below each domain.
    read (contract, name, attname, declared, type) AS (
        SELECT contract, name, attname, atttypid, atttypid FROM attribute
        WHERE attname <> ALL (exclude) AND (unnamed = 'keep' OR attname = ANY (columns))
        UNION ALL
        SELECT contract, name, attname, declared, typbasetype
        FROM read JOIN pg_type ON pg_type.oid = type AND typtype = 'd'
    ),
    checked (contract, place, level, found, expected, action) AS (
        SELECT '', 'server', 'unfit', 'wal_level = ' || current_setting('wal_level'), 'logical',
            'set it (on Aurora rds.logical_replication = 1 in the cluster''s parameter group) and restart the server'
        WHERE current_setting('wal_level') <> 'logical'

        UNION ALL
        SELECT '', 'server', 'unfit', 'a server in recovery, such as a reader', 'the one that is written to',
            'take the address of the primary server, or of the cluster''s writer'
        WHERE pg_is_in_recovery()

        UNION ALL
        SELECT '', 'server', 'unfit', 'all ' || current_setting(name) || ' of ' || name || ' in use',
            'one that is free', 'raise ' || name || ' and restart the server, or drop what nobody uses'
        FROM (
            SELECT 'max_replication_slots', (SELECT count(*) FROM pg_replication_slots)
            UNION ALL
            SELECT 'max_wal_senders', (SELECT count(*) FROM pg_stat_replication)
        ) AS used (name, number)
        WHERE number >= current_setting(name)::bigint
        AND NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = {slot})

        UNION ALL
        SELECT '', 'server', 'warning',
            'max_slot_wal_keep_size = -1 (' || coalesce('the log has ' || pg_size_pretty({log_bytes}) || ', ', '')
                || 'slots hold back ' || pg_size_pretty(coalesce((
                    SELECT max(pg_wal_lsn_diff(
                        CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END,
                        restart_lsn
                    )) FROM pg_replication_slots
                ), 0)) || ' of it, max_wal_size = ' || current_setting('max_wal_size') || ')',
            'a limit: while nobody reads a replication slot, the log grows until the disk is full and the server stops',
            'ALTER SYSTEM SET max_slot_wal_keep_size = ''…GB'', then SELECT pg_reload_conf() (on RDS in the parameter '
                'group): less than the disk has free, which PostgreSQL does not say, and as much as is written while '
                'capture may stand still'
        WHERE current_setting('max_slot_wal_keep_size') = '-1'

        UNION ALL
        SELECT '', current_database(), 'warning', 'the encoding SQL_ASCII', 'UTF8, or another that PostgreSQL converts',
            'load a dump of the database into one with ENCODING ''UTF8'', unless all its texts are UTF-8: the source '
                'connector stops at a row with other bytes'
        WHERE current_setting('server_encoding') = 'SQL_ASCII'

        UNION ALL
        SELECT '', 'server', 'unfit',
            'a replication slot ' || slot_name || ' of ' || coalesce('the database ' || database, 'another server'),
            'none of this name but this database''s',
            'see whose it is: a server has one slot of a name, so that one environment reads it'
        FROM pg_replication_slots WHERE slot_name = {slot} AND database IS DISTINCT FROM current_database()

        UNION ALL
        SELECT contract, name, 'unfit', 'no such table', 'the source table of the contract',
            'correct source.table in the contract, or create the table first'
        FROM listed WHERE name IS NOT NULL AND to_regclass(name) IS NULL

        UNION ALL
        SELECT contract, name, 'unfit',
            CASE relkind WHEN 'v' THEN 'a view' WHEN 'm' THEN 'a materialized view' WHEN 'f' THEN 'a foreign table'
                WHEN 'r' THEN 'an unlogged or temporary table' ELSE 'no table' END,
            'a table or a partitioned table, whose changes are in the server''s log',
            'name the table that holds the rows, or make it logged (ALTER TABLE … SET LOGGED)'
        FROM source WHERE relkind NOT IN ('r', 'p') OR (relkind = 'r' AND relpersistence <> 'p')

        UNION ALL
        SELECT contract, name, 'unfit',
            'no unique index with only columns of the contract''s key (' || array_to_string(key, ', ') || ')',
            'one that is valid, without a condition and not DEFERRABLE',
            'create it, or name the columns of such an index as the key'
        FROM source
        WHERE relkind IN ('r', 'p') AND NOT EXISTS (
            SELECT FROM pg_index
            WHERE indrelid = source.oid AND indisunique AND indisvalid AND indimmediate AND indpred IS NULL
            AND NOT EXISTS (
                SELECT FROM generate_series(0, indnkeyatts - 1) AS place
                LEFT JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[place] AND attnum > 0
                WHERE attname IS NULL OR attname <> ALL (key)
            )
        )

        UNION ALL
        SELECT contract, name, 'unfit',
            'a primary key without ' || string_agg(attname, ', ' ORDER BY attnum),
            'one that has the columns of the contract''s key and partition and is not DEFERRABLE, as '
                'source.replica_identity is default',
            'take them into the primary key, or remove replica_identity from the contract'
        FROM attribute
        WHERE identity = 'DEFAULT' AND attname = ANY (key || partition_by)
        AND attrelid NOT IN (SELECT attrelid FROM key_column WHERE attnum = attribute.attnum)
        GROUP BY contract, name

        UNION ALL
        SELECT contract, name, CASE WHEN checks_generated THEN 'unfit' ELSE 'note' END,
            'REPLICA IDENTITY FULL of a table with generated columns ('
                || string_agg(attname, ', ' ORDER BY attnum) || ')',
            'another identity: from PostgreSQL 18 on, the application''s UPDATE and DELETE would fail',
            CASE WHEN checks_generated THEN '' ELSE 'before an upgrade to 18, ' END || CASE
                WHEN (
                    SELECT array_agg(attname::text) @> (attribute.key || attribute.partition_by)
                        AND bool_and(attgenerated = '')
                    FROM key_column WHERE attrelid = attribute.attrelid
                )
                THEN 'write replica_identity: default under source in the contract, for which its primary key serves'
                ELSE 'write replica_identity: default under source in the contract, once a primary key without '
                    'generated columns has all columns of the contract''s key and partition; or make these columns '
                    'plain ones that a trigger fills'
            END
        FROM attribute CROSS JOIN server
        WHERE identity = 'FULL' AND attgenerated <> ''
        GROUP BY contract, name, attrelid, key, partition_by, checks_generated

        UNION ALL
        SELECT contract, name, 'unfit', 'a generated column (' || attname || ') in the primary key',
            'none there: from PostgreSQL 18 on, the application''s UPDATE and DELETE would fail',
            'take it out of the primary key, or remove the contract'
        FROM key_column CROSS JOIN server
        WHERE identity = 'DEFAULT' AND attgenerated <> '' AND checks_generated

        UNION ALL
        SELECT contract, name, 'unfit',
            'a partitioned table without a primary key, and no event trigger headwater_new_partitions',
            'either: each partition that is created later would refuse UPDATE and DELETE',
            'give it a primary key, or run headwater db capture as a superuser (on RDS and Aurora as a member of '
                'rds_superuser), who may create that trigger; else each new partition would need ALTER TABLE … REPLICA '
                'IDENTITY FULL'
        FROM source CROSS JOIN server
        WHERE relkind = 'p' AND NOT identifies AND source.oid NOT IN (SELECT attrelid FROM key_column)

        UNION ALL
        SELECT contract, name, 'warning', 'a partitioned table, and no event trigger headwater_new_partitions',
            'one: a partition that is created later keeps REPLICA IDENTITY DEFAULT, and its changes that need the row '
                'before are quarantined',
            'ALTER TABLE … REPLICA IDENTITY FULL with each new partition; or run headwater db capture as a superuser '
                '(on RDS and Aurora as a member of rds_superuser), who may create that trigger'
        FROM source CROSS JOIN server
        WHERE relkind = 'p' AND identity = 'FULL' AND NOT identifies
        AND source.oid IN (SELECT attrelid FROM key_column)

        UNION ALL
        SELECT '', 'server', 'warning', 'no event trigger headwater_new_partitions',
            'one: a generated column that is added to a captured table would have its UPDATE and DELETE fail',
            'ALTER TABLE … REPLICA IDENTITY DEFAULT before such a column is added; or run headwater db capture as a '
                'superuser (on RDS and Aurora as a member of rds_superuser), who may create that trigger'
        FROM server
        WHERE checks_generated AND NOT identifies AND EXISTS (SELECT FROM source WHERE identity = 'FULL')

        UNION ALL
        SELECT contract, relation::regclass::text, 'unfit',
            'REPLICA IDENTITY USING INDEX ' || coalesce(quote_ident(pg_index.relname), '(dropped)'),
            'FULL or DEFAULT: deletes would arrive without their key, and updates without their former partition',
            'ALTER TABLE ' || relation::regclass || ' REPLICA IDENTITY ' || identity
                || ' as its owner, unless another reader needs the index'
        FROM tree JOIN pg_class ON pg_class.oid = relation AND relreplident = 'i'
        LEFT JOIN (
            SELECT indrelid, relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE indisreplident
        ) AS pg_index ON indrelid = relation

        UNION ALL
        SELECT contract, name, 'unfit',
            'tables that inherit from it (' || string_agg(inhrelid::regclass::text, ', '
                ORDER BY inhrelid::regclass::text) || ')',
            'none: their rows would be in the snapshot, and their changes are not captured',
            'detach them (ALTER TABLE … NO INHERIT), or make it a partitioned table'
        FROM source JOIN pg_inherits ON inhparent = source.oid
        WHERE relkind = 'r'
        GROUP BY contract, name

        UNION ALL
        SELECT contract, name, 'unfit', 'row level security',
            'none that holds for ' || {role} || ': it would hide rows from the snapshot',
            CASE WHEN rolname IS NULL THEN 'CREATE ROLE ' || {role} || ' LOGIN BYPASSRLS as a superuser (headwater db '
                'capture gives it the other rights)' ELSE 'ALTER ROLE ' || rolname || ' BYPASSRLS as a superuser' END
                || ', or disable it for the table'
        FROM source LEFT JOIN role ON true
        WHERE relrowsecurity AND (rolname IS NULL OR NOT rolsuper AND NOT rolbypassrls
            AND (relforcerowsecurity OR NOT pg_has_role(role.oid, relowner, 'USAGE')))

        UNION ALL
        SELECT contract, name || '.' || column_name, 'unfit', 'the type ' || actual,
            CASE expected WHEN 'json' THEN 'json or jsonb, as the contract''s paths lead into it'
                ELSE expected || ', as the contract''s source_type says' END,
            'correct the contract, or the column'
        FROM spelled
        WHERE actual <> expected
        AND NOT (expected = 'json' AND actual IN ('jsonb', 'text', 'character varying'))

        UNION ALL
        SELECT contract, name || '.' || column_name, 'unfit', 'a generated column',
            'a plain one: PostgreSQL leaves generated columns out of its changes',
            'remove it from the contract and compute it in a view over the lake, or make it a plain column that a '
                'trigger fills'
        FROM named JOIN attribute USING (contract, name) WHERE attname = column_name AND attgenerated <> ''
        GROUP BY contract, name, column_name

        UNION ALL
        SELECT contract, name || '.' || column_name, CASE WHEN bool_or(needed) THEN 'unfit' ELSE 'warning' END,
            'no such column',
            CASE WHEN bool_or(needed) THEN 'a column of the contract''s key or partition'
                ELSE 'a column that the contract names' END,
            CASE WHEN bool_or(needed) THEN 'correct the contract, or add the column'
                ELSE 'nothing, where it is yet to come or has gone: it is null in the lake' END
        FROM named JOIN source USING (contract, name)
        WHERE NOT EXISTS (SELECT FROM attribute WHERE attribute.attrelid = source.oid AND attname = column_name)
        GROUP BY contract, name, column_name

        UNION ALL
        SELECT contract, name || '.' || excluded, 'warning', 'no such column', 'a column that the contract excludes',
            'correct exclude in the contract, unless the column is yet to come or has gone'
        FROM source CROSS JOIN LATERAL unnest(exclude) AS listed (excluded)
        WHERE NOT EXISTS (SELECT FROM attribute WHERE attribute.attrelid = source.oid AND attname = excluded)

        UNION ALL
        SELECT contract, name || '.' || attname, 'unfit', 'a column of the primary key',
            'another one: the primary key is in the key of each record',
            'remove it from exclude in the contract, or from the primary key'
        FROM attribute JOIN pg_index ON indrelid = attrelid AND indisprimary AND attnum = ANY (indkey)
        WHERE lower(attname) IN (SELECT lower(hidden) FROM unnest(exclude) AS listed (hidden))

        UNION ALL
        SELECT DISTINCT contract, name || '.' || attname, 'unfit', 'a hidden column in a unique index',
            'a primary key: without one, Debezium takes a unique index as the key, which stands in its position',
            'give the table a primary key, or take the column out of exclude and mask in the contract'
        FROM attribute JOIN pg_index ON indrelid = attrelid AND indisunique AND attnum = ANY (indkey)
        WHERE lower(attname) IN (SELECT lower(hidden) FROM unnest(exclude || masked) AS listed (hidden))
        AND NOT EXISTS (SELECT FROM pg_index AS other WHERE other.indrelid = attrelid AND other.indisprimary)

        UNION ALL
        SELECT contract, name || '.' || hidden, 'warning', 'no such column', 'a column that the contract masks',
            'correct mask in the contract, unless the column is yet to come or has gone'
        FROM source CROSS JOIN LATERAL unnest(masked) AS listed (hidden)
        WHERE NOT EXISTS (
            SELECT FROM attribute WHERE attribute.attrelid = source.oid AND lower(attname) = lower(hidden)
        )

        UNION ALL
        SELECT contract, name || '.' || attname, 'unfit', 'a column of the primary key',
            'another one: the primary key is in the key of each record',
            'remove it from mask in the contract, or from the primary key'
        FROM attribute JOIN pg_index ON indrelid = attrelid AND indisprimary AND attnum = ANY (indkey)
        WHERE lower(attname) IN (SELECT lower(hidden) FROM unnest(masked) AS listed (hidden))

        UNION ALL
        SELECT contract, name || '.' || attname, 'unfit', format_type(atttypid, atttypmod) || ' masked by hmac',
            'text, character varying or character', 'mask it as null in the contract, or exclude it'
        FROM attribute JOIN pg_type ON pg_type.oid = atttypid
        WHERE lower(attname) IN (SELECT lower(hidden) FROM unnest(by_hmac) AS listed (hidden))
        AND CASE typtype WHEN 'd' THEN typbasetype ELSE atttypid END
            NOT IN ('text'::regtype, 'character varying'::regtype, 'character'::regtype)

        UNION ALL
        SELECT contract, name || '.' || attname, 'warning', 'a column that may be NULL',
            'NOT NULL in a column of the key',
            'ALTER TABLE … ALTER COLUMN … SET NOT NULL: a row without its key is put aside, not stored'
        FROM attribute WHERE attname = ANY (key) AND NOT attnotnull

        UNION ALL
        SELECT contract, relation::regclass::text, 'unprepared',
            'REPLICA IDENTITY ' || CASE relreplident
                WHEN 'd' THEN 'DEFAULT' WHEN 'f' THEN 'FULL' ELSE 'NOTHING' END,
            identity || ', also of each partition (as its owner, ALTER TABLE … REPLICA IDENTITY ' || identity || ')',
            'run headwater db create or capture, or deploy'
        FROM tree CROSS JOIN server
        JOIN pg_class ON pg_class.oid = relation AND relkind IN ('r', 'p')
            AND relreplident NOT IN ('i', lower(left(identity, 1)))
        -- With FULL, changes of such a table would fail.
        WHERE NOT (checks_generated AND identity = 'FULL' AND EXISTS (
            SELECT FROM pg_attribute WHERE attrelid = relation AND attgenerated <> ''
        ))

        UNION ALL
        SELECT '', {publication}, 'unprepared', 'no such publication', 'one of the contracts'' tables',
            'run headwater db create or capture, or deploy'
        WHERE NOT EXISTS (SELECT FROM publication)

        UNION ALL
        SELECT '', pubname, 'unprepared',
            concat_ws(', ', CASE WHEN puballtables THEN 'all tables' END,
                'publish = ' || concat_ws(' ', CASE WHEN pubinsert THEN 'insert' END,
                    CASE WHEN pubupdate THEN 'update' END, CASE WHEN pubdelete THEN 'delete' END,
                    CASE WHEN pubtruncate THEN 'truncate' END),
                'publish_via_partition_root = ' || pubviaroot),
            'a publication of the contracts'' tables, publish = insert update delete truncate, '
                'publish_via_partition_root = true',
            'run headwater db create or capture, or deploy'
        FROM publication
        WHERE puballtables OR NOT (pubinsert AND pubupdate AND pubdelete AND pubtruncate AND pubviaroot)

        UNION ALL
        SELECT contract, name, 'unprepared', 'a table outside the publication ' || pubname, 'one that it publishes',
            'run headwater db create or capture, or deploy'
        FROM captured CROSS JOIN publication
        WHERE NOT puballtables
        AND NOT EXISTS (SELECT FROM pg_publication_rel WHERE prpubid = publication.oid AND prrelid = id)

        UNION ALL
        SELECT contract, name, 'unprepared',
            concat_ws(' and ', CASE WHEN prqual IS NOT NULL THEN 'a row filter' END,
                CASE WHEN prattrs IS NOT NULL THEN 'a column list' END) || ' in the publication ' || pubname,
            'neither: rows would be missing, and updates would fail beside REPLICA IDENTITY FULL',
            'run headwater db create or capture, or deploy'
        FROM captured CROSS JOIN publication
        JOIN pg_publication_rel ON prpubid = publication.oid AND prrelid = id
        WHERE prqual IS NOT NULL OR prattrs IS NOT NULL

        UNION ALL
        SELECT contract, relation::regclass::text, 'unfit',
            CASE WHEN prattrs IS NULL THEN 'a row filter' ELSE 'a column list' END || ' in the publication '
                || other.pubname,
            'none beside a change to REPLICA IDENTITY ' || identity || ': updates and deletes would fail',
            'take it out of that publication'
        FROM tree JOIN pg_class ON pg_class.oid = relation
        JOIN pg_publication_rel ON prrelid = relation
        JOIN pg_publication AS other ON other.oid = prpubid AND (pubupdate OR pubdelete)
        WHERE pubname <> {publication} AND CASE identity
            WHEN 'FULL' THEN prattrs IS NOT NULL
            ELSE relreplident <> 'd' AND (prattrs IS NOT NULL OR prqual IS NOT NULL)
        END

        UNION ALL
        SELECT '', prrelid::regclass::text, 'warning', 'a table in the publication ' || pubname,
            'only tables that contracts name', 'write a contract for it; the next deploy takes it out otherwise'
        FROM publication JOIN pg_publication_rel ON prpubid = publication.oid
        WHERE prrelid NOT IN (SELECT id FROM captured)

        UNION ALL
        SELECT '', {role}, 'unprepared', 'no such role', 'the role of the source connector',
            'run headwater db create or capture, or deploy'
        WHERE NOT EXISTS (SELECT FROM role)

        UNION ALL
        SELECT '', rolname, 'unprepared', 'a role that may not replicate', 'REPLICATION, or on RDS rds_replication',
            'run headwater db create or capture, or deploy'
        FROM role
        WHERE NOT rolreplication AND NOT rolsuper AND NOT EXISTS (
            SELECT FROM pg_roles AS rds
            WHERE rds.rolname = 'rds_replication' AND pg_has_role(role.oid, rds.oid, 'USAGE')
        )

        UNION ALL
        SELECT contract, name, 'unprepared',
            'no ' || string_agg(privilege, ' and no ' ORDER BY privilege) || ' for ' || rolname, 'these rights',
            'run headwater db create or capture, or deploy'
        FROM captured CROSS JOIN role
        CROSS JOIN (VALUES ('SELECT'), ('INSERT'), ('UPDATE'), ('DELETE')) AS needed (privilege)
        WHERE (privilege = 'SELECT' OR (name = {heartbeat} AND privilege = 'UPDATE')
            OR (name = {signal} AND privilege IN ('INSERT', 'DELETE')))
        AND NOT has_table_privilege(role.oid, id, privilege)
        GROUP BY contract, name, rolname

        UNION ALL
        SELECT '', nspname, 'unprepared', 'no USAGE for ' || rolname, 'this right on the schema',
            'run headwater db create or capture, or deploy'
        FROM role CROSS JOIN pg_namespace
        WHERE EXISTS (SELECT FROM captured JOIN pg_class ON pg_class.oid = id WHERE relnamespace = pg_namespace.oid)
        AND NOT has_schema_privilege(role.oid, pg_namespace.oid, 'USAGE')

        UNION ALL
        SELECT contract, name, 'unfit', 'columns that Debezium takes for one: ' || string_agg(
            quote_ident(attname), ', ' ORDER BY attnum),
            'names that differ in more than capitals and the quotes around them: an event has the value of one alone',
            'rename all of them but one (ALTER TABLE … RENAME COLUMN … TO …)'
        FROM attribute
        GROUP BY contract, name, lower(regexp_replace(attname, '^(["''`])(.*)\\1$', '\\2'))
        HAVING count(*) > 1

        UNION ALL
        SELECT contract, name || '.' || attname, 'unfit', 'a column of type ' || format_type(declared, NULL),
            'a type whose values a snapshot can read',
            'exclude the column: instead of its value, the driver reads the rows of a cursor of that name'
        FROM read WHERE type = 'refcursor'::regtype

        UNION ALL
        SELECT contract, name || '.' || attname, 'note',
            CASE WHEN attgenerated = '' THEN 'a column' ELSE 'a generated column' END || ' of type '
                || format_type(atttypid, atttypmod),
            'a column that the contract names',
            CASE WHEN attgenerated = '' THEN 'nothing, where _rest may keep its values; name it to give it a column'
                ELSE 'nothing: PostgreSQL leaves it out of its changes' END
        FROM attribute
        WHERE attname <> ALL (columns || exclude || masked) AND unnamed = 'keep'

        UNION ALL
        SELECT '', pg_class.oid::regclass::text, 'note', 'a table without a contract', 'a contract',
            'nothing, where it is not to be captured; write a contract to have it in the lake'
        FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
        WHERE relkind IN ('r', 'p') AND NOT relispartition AND pg_class.oid NOT IN (SELECT id FROM captured)
        AND relnamespace IN (SELECT relnamespace FROM source)
    )
    SELECT contract, place, level, found, expected, action FROM checked
    ORDER BY array_position(ARRAY['unfit', 'unprepared', 'warning', 'note'], level), contract, place, found"""
