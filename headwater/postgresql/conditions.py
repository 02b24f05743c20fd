"""SQL conditions for rows that the source connector reads again.

Debezium puts a condition into its own queries. The condition is stored in clear, in the source and in Kafka. So a
user's condition may use only captured columns that the contract neither masks nor leaves out. PostgreSQL reports the
columns and functions of a condition: the server parses it, but plans, runs and creates nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import sql
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus

from headwater.contract.model import DROP, Contract
from headwater.definitions.source_database import CDC_ROLE
from headwater.errors import UserError
from headwater.postgresql.queries import server_message

# Debezium combines a condition with others, and its driver takes ? for a parameter.
NOT_IN_A_CONDITION = (";", "--", "/*", "?")
# How long PostgreSQL may wait for a table's lock, parse a condition, and count the condition's rows.
_LOCK, _PARSE, _COUNT = "5s", "10s", "10min"
_SESSION = (
    "SET TRANSACTION READ ONLY",
    f"SET LOCAL lock_timeout = '{_LOCK}'",
    # The source connector's session resolves names without a schema in the same way.
    f"SET LOCAL search_path = {CDC_ROLE}, public",
)

# The allowed nodes of PostgreSQL's parse tree (nodes/primnodes.h, nodes/parsenodes.h): a query of one table, and a
# condition on its row. A node of a later version is refused until it is added here.
_OF_THE_QUERY = frozenset({"ALIAS", "FROMEXPR", "QUERY", "RANGETBLENTRY", "RANGETBLREF", "RTEPERMISSIONINFO"})
_ONCE = ("QUERY", "RANGETBLENTRY")
_OF_A_CONDITION = frozenset(
    {
        "ARRAYCOERCEEXPR", "ARRAYEXPR", "BOOLEANTEST", "BOOLEXPR", "CASEEXPR", "CASETESTEXPR", "CASEWHEN",
        "COALESCEEXPR", "COERCEVIAIO", "COLLATEEXPR", "CONST", "DISTINCTEXPR", "FIELDSELECT", "FUNCEXPR",
        "JSONISPREDICATE", "MINMAXEXPR", "NULLIFEXPR", "NULLTEST", "OPEXPR", "RELABELTYPE", "ROWCOMPAREEXPR",
        "ROWEXPR", "SCALARARRAYOPEXPR", "SQLVALUEFUNCTION", "SUBSCRIPTINGREF", "VAR",
    }
)  # fmt: skip
_NAMES = {"SUBLINK": "a subquery", "PARAM": "a parameter", "COERCETODOMAIN": "a cast to a domain"}
_NODE = re.compile(r"\{(\w+)")
_FUNCTION = re.compile(r":(?:funcid|opfuncid) (\d+)")
# The columns that the query's user must be allowed to read, as a set of bits.
_SELECTED = re.compile(r":selectedCols \(b([ \d]*)\)")
# FirstLowInvalidHeapAttributeNumber: the bit of a column is this much higher than the column's number. The whole row
# has the number 0, and system columns have negative numbers.
_BIT_OF_THE_ROW = 7

# Functions on times depend on the session's time zone, or on the transaction's time, and are harmless. Other
# functions that are not immutable can read tables, such as table_to_xml.
_OTHER_FUNCTIONS = """
SELECT coalesce(p.oid::regprocedure::text, 'without a name')
FROM unnest(%s::oid[]) AS used (id) LEFT JOIN pg_proc AS p ON p.oid = id
WHERE (
    provolatile = 'i' AND (
        pronamespace = 'pg_catalog'::regnamespace
        OR EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_proc'::regclass AND objid = p.oid AND deptype = 'e')
    )
    OR provolatile = 's' AND pronamespace = 'pg_catalog'::regnamespace AND EXISTS (
        SELECT FROM pg_type AS t WHERE t.oid = ANY(proargtypes::oid[] || prorettype) AND typcategory IN ('D', 'T')
    )
) IS NOT TRUE
ORDER BY 1
"""
# A generated column is not in changes.
_COLUMNS = """
SELECT attnum, attname::text, attgenerated = '', coalesce(names, '{}')
FROM pg_attribute
LEFT JOIN capture.hidden_columns_of(to_regclass(%s)) AS hidden ON hidden.number = attnum
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
ORDER BY attnum
"""


@dataclass(frozen=True)
class Condition:
    """A condition by which the source connector may read rows: ``by_user`` and ``by_keys`` make it."""

    text: str
    """The condition, in SQL."""
    rows: int
    """How many rows of the table met the condition when it was made."""


def by_user(conn: psycopg.Connection, contract: Contract, where: str) -> Condition:
    """Check a user's condition for a contract's source table, over an autocommit connection, and return it.

    It may use captured columns that the contract neither masks nor leaves out. It may use functions of PostgreSQL or an
    extension whose result depends only on their arguments, and PostgreSQL's functions for times. Raises UserError for
    any other condition, and if its rows cannot be counted.
    """
    table = contract.source.table
    if any(mark in where for mark in NOT_IN_A_CONDITION):
        marks = " ".join(NOT_IN_A_CONDITION)
        raise UserError(f"--where: found {where!r}, expected a condition of SQL without any of {marks}")
    with _refusals_explained(table, where), _session(conn, _PARSE):
        shown, other = _columns(conn, contract)
        # Parse the condition by itself, and in an array: unbalanced parentheses fail in one of both.
        _parse(conn, f"SELECT FROM {table} WHERE (ARRAY[{where}])[1]")
        tree = _tree(conn, f"SELECT FROM {table} WHERE ({where})")
        _refuse_nodes(tree)
        _refuse_columns(tree, contract, shown, other)
        _refuse_functions(conn, tree)
    return Condition(where, rows_where(conn, table, where))


def by_keys(conn: psycopg.Connection, contract: Contract, keys: Sequence[Sequence[str]]) -> Condition:
    """The condition for the rows of these keys. Raises UserError if the server refuses the keys' values."""
    names = sql.SQL(", ").join(sql.Identifier(contract.column(name).path[0]) for name in contract.key)
    rows = [sql.SQL("({})").format(sql.SQL(", ").join(map(sql.Literal, key))) for key in keys]
    where = sql.SQL("({}) IN ({})").format(names, sql.SQL(", ").join(rows)).as_string()
    return Condition(where, rows_where(conn, contract.source.table, where))


def rows_where(conn: psycopg.Connection, table: str, where: str) -> int:
    """How many rows of a source table meet a condition. Raises UserError if they cannot be counted."""
    query = f"SELECT count(*) FROM {table} WHERE ({where})"
    with _refusals_explained(table, where), _session(conn, _COUNT):
        counted = conn.execute(query.encode(conn.info.encoding)).fetchone()
    return int(counted[0]) if counted is not None else 0


@contextmanager
def _session(conn: psycopg.Connection, statement_timeout: str) -> Iterator[None]:
    """A transaction that changes nothing, and that waits for no lock for long."""
    with conn.transaction(force_rollback=True):
        for setting in (*_SESSION, f"SET LOCAL statement_timeout = '{statement_timeout}'"):
            conn.execute(setting.encode())
        yield


@contextmanager
def _refusals_explained(table: str, where: str) -> Iterator[None]:
    """Turn the server's errors about a condition into UserError."""
    try:
        yield
    except psycopg.errors.LockNotAvailable:
        raise UserError(
            f"--where: found {table} locked for {_LOCK}, expected to read it: try again when the other session is done"
        ) from None
    except psycopg.errors.QueryCanceled as error:
        raise UserError(
            f"--where: found {where!r}, expected rows that PostgreSQL counts within {_COUNT}: {server_message(error)}. "
            "Narrow the condition by an indexed column, or read the whole table again without --where."
        ) from None
    except psycopg.Error as error:
        raise UserError(
            f"--where: found {where!r}, expected a condition of SQL on {table}: {server_message(error)}"
        ) from None


def _columns(conn: psycopg.Connection, contract: Contract) -> tuple[dict[int, str], dict[int, str]]:
    """The columns that a condition may use and the others, by their numbers."""
    table = contract.source.table
    try:
        columns = conn.execute(_COLUMNS, (table, table)).fetchall()
    except (psycopg.errors.UndefinedFunction, psycopg.errors.InvalidSchemaName):
        raise UserError(
            f"{conn.info.dbname}: found no database of this release: deploy, or run headwater db capture"
        ) from None
    named = {column.path[0] for column in contract.columns}
    # The source connector compares names of columns without regard to capitals.
    hidden = {path[0].lower() for path in (*contract.exclude, *(mask.path for mask in contract.masks))}
    shown: dict[int, str] = {}
    other: dict[int, str] = {}
    for number, name, is_captured, hidden_as in columns:
        # A column keeps the names under which contracts have hidden it, because it may have been renamed.
        is_hidden = not hidden.isdisjoint(each.lower() for each in (name, *hidden_as))
        is_left_out = contract.unnamed == DROP and name not in named
        (shown if is_captured and not is_hidden and not is_left_out else other)[number] = name
    return shown, other


def _parse(conn: psycopg.Connection, query: str) -> None:
    """Let the server parse one statement without running it. Raises psycopg's errors."""
    encoding = conn.info.encoding
    result = conn.pgconn.prepare(b"", query.encode(encoding))
    if result.status != ExecStatus.COMMAND_OK:
        raise error_from_result(result, encoding)


def _tree(conn: psycopg.Connection, query: str) -> str:
    """The parse tree of a statement, in which the server has replaced names by object ids.

    The server logs the tree too.
    """
    trees: list[str] = []

    def hear(notice: psycopg.errors.Diagnostic) -> None:
        if notice.source_function == "elog_node_display":
            trees.append(notice.message_detail or "")

    conn.execute("SET LOCAL client_min_messages = log")
    conn.execute("SET LOCAL debug_print_parse = on")
    conn.add_notice_handler(hear)
    try:
        _parse(conn, query)
    finally:
        conn.remove_notice_handler(hear)
    # The server wraps long lines.
    tree = " ".join(" ".join(trees).split())
    if not _SELECTED.search(tree):
        raise UserError(
            "--where: found a PostgreSQL that does not show a condition's columns, expected version 15 to 18: read the "
            "whole table again without --where"
        )
    return tree


def _refuse_nodes(tree: str) -> None:
    """Raise UserError for nodes that do not belong to an expression on one row of the table."""
    nodes = _NODE.findall(tree)
    other = {node for node in nodes if node not in _OF_THE_QUERY | _OF_A_CONDITION}
    other |= {node for node in _ONCE if nodes.count(node) != 1}
    if other:
        found = [name for node, name in _NAMES.items() if node in other] or [f"{min(other)} in PostgreSQL's parse tree"]
        raise UserError(
            f"--where: found {found[0]}, expected a condition on the columns of one row, with operators, functions and "
            "constants alone"
        )


def _refuse_columns(tree: str, contract: Contract, shown: dict[int, str], other: dict[int, str]) -> None:
    """Raise UserError for columns that a condition may not use, and for the whole row."""
    numbers = [int(bit) - _BIT_OF_THE_ROW for bits in _SELECTED.findall(tree) for bit in bits.split()]
    found = [other.get(number, "a system column") for number in numbers if number not in shown and number != 0]
    if 0 in numbers and not found:
        found = [f"the whole row of {contract.source.table}"]
    if found:
        raise UserError(
            f"--where: found {', '.join(found)}, which {contract.table} masks, excludes or does not capture as such, "
            f"expected columns out of: {', '.join(shown.values())}. Write the condition with these, or read the whole "
            "table again without --where: conditions are stored in clear, in the source and in Kafka."
        )


def _refuse_functions(conn: psycopg.Connection, tree: str) -> None:
    """Raise UserError for functions, also of operators and casts, whose result depends on more than their arguments."""
    used = sorted({int(number) for number in _FUNCTION.findall(tree)})
    if other := [name for (name,) in conn.execute(_OTHER_FUNCTIONS, (used,)).fetchall()]:
        raise UserError(
            f"--where: found the function {', '.join(other)}, maybe behind an operator or a cast. Expected functions "
            "of PostgreSQL or an extension whose result depends only on their arguments, or PostgreSQL's functions for "
            "times, such as now()"
        )
