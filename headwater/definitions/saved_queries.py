"""The saved queries of a lake folder in Athena's SQL, one file in ``queries/`` for each.

The file's name is the query's name, and the comment at its beginning is the description. The placeholders
``${view.TABLE}``, ``${table.TABLE}`` and ``${database}`` stand for names that differ between environments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headwater.contract.model import Contract, lake_tables
from headwater.definitions.history_queries import history_views
from headwater.definitions.named_queries import NamedQuery, named_queries
from headwater.definitions.published_view import published_view_name, qualified, quoted
from headwater.definitions.sql_script import ScriptError, split
from headwater.errors import UserError

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,79}")
_PLACEHOLDER = re.compile(r"\$\{([^}\n]*)\}?")
_VIEW = "view."
_TABLE = "table."
# Athena's limits for a saved query: letters of the description, and bytes of the SQL.
_MOST_DESCRIPTION = 1024
_MOST_BYTES = 262_144


@dataclass(frozen=True)
class SavedQuery:
    """A query of a lake folder."""

    name: str
    """The query's name. In Athena, the environment's name comes before it."""
    description: str
    """The comment at the beginning of the file."""
    text: str
    """The query in Athena's SQL, with placeholders."""

    def reads(self, contract: Contract) -> bool:
        """Return whether the query reads rows of a contract's table."""
        used = {found.group(1) for found in _PLACEHOLDER.finditer(self.text)}
        return bool(used & _names([contract], "").keys() - _names([], "").keys())

    def named(self, contracts: Sequence[Contract], database: str) -> NamedQuery:
        """Return the query with the names of tables and views in a Glue database."""
        return NamedQuery(self.name, self.description, self.sql(_names(contracts, database)))

    def sql(self, names: Mapping[str, str]) -> str:
        """Return the SQL with names in place of placeholders. ``names`` has keys such as ``view.orders``."""
        return _PLACEHOLDER.sub(lambda found: names[found.group(1)], self.text)


def _names(contracts: Sequence[Contract], database: str) -> dict[str, str]:
    """Return the SQL name that each placeholder stands for in a Glue database."""
    names = {"database": quoted(database)}
    for contract in contracts:
        names[f"{_VIEW}{contract.table}"] = qualified(database, published_view_name(contract))
        for view in history_views(contract, database):
            names[f"{_VIEW}{view.name}"] = qualified(database, view.name)
    for contract in lake_tables(contracts):
        names[f"{_TABLE}{contract.table}"] = qualified(database, contract.table)
    return names


def read_saved_queries(folder: Path, contracts: Sequence[Contract]) -> list[SavedQuery]:
    """Return the saved queries of a folder, sorted by name; none without the folder. Raises UserError."""
    own = {query.name for query in named_queries(contracts, "")}
    queries = [_read(path, contracts, own) for path in sorted(folder.glob("*.sql"))]
    taken = {_id(name): name for name in own}
    for query in queries:
        if other := taken.get(_id(query.name)):
            raise UserError(
                f"{folder / query.name}.sql: found a name that differs only in hyphens from the query {other}, "
                "expected another name, because CloudFormation's ids have no hyphens"
            )
        taken[_id(query.name)] = query.name
    return queries


def _id(name: str) -> str:
    """Return a query's name as CDK puts it into the id of a resource."""
    return name.replace("-", "")


def _read(path: Path, contracts: Sequence[Contract], own: set[str]) -> SavedQuery:
    if _NAME.fullmatch(path.stem) is None:
        raise UserError(
            f"{path}: found this name, expected 1 to 80 lower-case letters, digits and hyphens before .sql: it is the "
            "query's name in Athena"
        )
    if path.stem in own:
        raise UserError(f"{path}: found the name of a query that Headwater adds itself, expected another name")
    try:
        script = path.read_text(encoding="utf-8-sig")
        statements = split(script)
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}, line {line}: found bytes that are not UTF-8, expected a text in UTF-8") from None
    except ScriptError as error:
        raise UserError(f"{path}, line {error.line}: found {error.found}, expected a query in Athena's SQL") from None
    # The file must have one statement, with known placeholders, that Athena takes.
    if len(statements) != 1:
        line = statements[1].line if statements else 1
        raise UserError(f"{path}, line {line}: found {len(statements)} statements, expected one query")
    (statement,) = statements
    _refuse_unknown(path, statement.line, statement.text, _names(contracts, ""))
    size = len(statement.text.encode())
    if size > _MOST_BYTES:
        raise UserError(f"{path}: found {size:,} bytes, expected {_MOST_BYTES:,} at most, which Athena takes")
    return SavedQuery(path.stem, _description(path, script), statement.text)


def _description(path: Path, script: str) -> str:
    """Return the comment at the beginning of the file, as one line. Raises UserError if it is missing or too long."""
    lines: list[str] = []
    for line in script.splitlines():
        if not line.startswith("--"):
            break
        lines.append(line.removeprefix("--").strip())
    description = " ".join(filter(None, lines))
    if not description or len(description) > _MOST_DESCRIPTION:
        found = f"a comment of {len(description):,} letters" if description else "no comment"
        raise UserError(
            f"{path}, line 1: found {found}, expected lines that begin with -- and describe the query in "
            f"{_MOST_DESCRIPTION:,} letters at most"
        )
    return description


def _refuse_unknown(path: Path, first_line: int, text: str, names: Mapping[str, str]) -> None:
    """Raise UserError for an unknown placeholder."""
    for found in _PLACEHOLDER.finditer(text):
        if found.group(1) not in names or not found.group().endswith("}"):
            line = first_line + text.count("\n", 0, found.start())
            known = ", ".join(f"${{{name}}}" for name in names)
            raise UserError(
                f"{path}, line {line}: found {found.group()}, expected one of {known}. If the table's contract was "
                "removed, delete the query, too"
            )
