"""The SQL files of a lake folder's ``database/``, for the database that a deployment makes.

Each statement runs once, in a session and a transaction of its own, as the RDS Data API requires. The procedures of
``sql/5_created_files.sql`` run it, record it, and refuse files whose statements that have run were changed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.definitions.sql_script import ScriptError, Statement, split
from headwater.errors import UserError

DONE = "SELECT name, statements_done FROM capture.database_files"
"""The query of how many statements of each file have run."""
_CHECK_FILES = "CALL capture.check_files(string_to_array(:files, '/'), string_to_array(:checksums, ' '))"
_CHECK_FILE = (
    "CALL capture.check_file(:file, CAST(:total AS integer), CAST(:first AS integer), string_to_array(:checksums, ' '))"
)
_RUN = (
    "CALL capture.run_statement(:file, CAST(:number AS integer), CAST(:total AS integer), :checksum, "
    "string_to_array(:settings, chr(31)), :statement)"
)
_NAME = re.compile(r"(\d+)_[A-Za-z0-9_-]+\.sql")
_MOST_BYTES = 65_536
"""The Data API's limit of one statement."""
_CHECKSUMS = 500
"""How many checksums one call compares."""
_ALONE = "each statement runs in a session and a transaction of its own"
_OF_SESSION = f"nothing that ends with its session, since {_ALONE}"
# Matches the words of a statement that makes a temporary object. It leaves out INSERT INTO temp, where temp is a table,
# and a search path with pg_temp.
_TEMPORARY = re.compile(
    r"^CREATE (OR REPLACE )?((LOCAL|GLOBAL) )?TEMP(ORARY)?(?!\S)"
    r"|(?<!INSERT )(?<!MERGE )\bINTO TEMP(ORARY)?(?!\S)"
    r"|^((?!SEARCH_PATH ).)*\bPG_TEMP(?!\S)"
)
_SET = re.compile(r"SET\s+(?:SESSION\s+(?!AUTHORIZATION))?", re.IGNORECASE)
_SET_CONFIG = re.compile(
    r"SELECT\s+(?:pg_catalog\s*\.\s*)?set_config\s*\(\s*('(?:[^']|'')*')\s*,\s*('(?:[^']|'')*')\s*,\s*false\s*\)",
    re.IGNORECASE,
)
# Settings of psql's connection, and limits of time. A deployment has its own.
_NOT_KEPT = re.compile(r"CLIENT_ENCODING|\w+_TIMEOUT")
# The first words of statements that work in psql and not here, and the advice for each.
_REFUSED: Mapping[tuple[str, ...], str] = {
    **dict.fromkeys(
        [
            ("ABORT",), ("BEGIN",), ("COMMIT",), ("END",), ("PREPARE", "TRANSACTION"), ("RELEASE",), ("ROLLBACK",),
            ("SAVEPOINT",), ("SET", "TRANSACTION"), ("START", "TRANSACTION"),
        ],
        f"no BEGIN, COMMIT or the like, since {_ALONE}: leave it out",
    ),
    **dict.fromkeys(
        [
            ("DEALLOCATE",), ("DECLARE",), ("DISCARD",), ("LISTEN",),
            ("PREPARE",), ("RESET",), ("SET", "CONSTRAINTS"), ("SET", "LOCAL"), ("SET", "SESSION", "CHARACTERISTICS"),
        ],
        _OF_SESSION,
    ),
    **dict.fromkeys(
        [
            ("ALTER", "SYSTEM"), ("CREATE", "DATABASE"), ("CREATE", "SUBSCRIPTION"), ("CREATE", "TABLESPACE"),
            ("DROP", "DATABASE"), ("DROP", "SUBSCRIPTION"), ("DROP", "TABLESPACE"), ("VACUUM",),
        ],
        "a statement that may run in a transaction: run this one by hand",
    ),
}  # fmt: skip
_CONCURRENTLY = (
    "no CONCURRENTLY, which no transaction may have: leave it out, or for a large table run it by hand first"
)


@dataclass(frozen=True)
class Call:
    """A statement with placeholders ``:name``, and the texts for these."""

    sql: str
    parameters: Mapping[str, str]


@dataclass(frozen=True)
class FileStatement:
    """A statement of a file."""

    line: int
    """The line in which it begins, from 1 on."""
    text: str
    settings: tuple[str, ...]
    """The SET of the file before it, which hold for it alone."""


@dataclass(frozen=True)
class SqlFile:
    """A file of the database, which has one statement at least."""

    name: str
    statements: tuple[FileStatement, ...]

    def checks(self) -> Iterator[Call]:
        """Return the calls that fail if a statement of the file ran and was changed since."""
        checksums = self.checksums()
        for first in range(0, len(checksums), _CHECKSUMS):
            some = checksums[first : first + _CHECKSUMS]
            yield Call(
                _CHECK_FILE,
                {
                    "file": self.name,
                    "total": str(len(checksums)),
                    "first": str(first + 1),
                    "checksums": " ".join(some),
                },
            )

    def calls(self) -> list[Call]:
        """The calls that run the statements and record them, in their order."""
        return [
            Call(
                _RUN,
                {
                    "file": self.name,
                    "number": str(number),
                    "total": str(len(self.statements)),
                    "checksum": checksum,
                    "settings": "\x1f".join(statement.settings),
                    "statement": statement.text,
                },
            )
            for number, (statement, checksum) in enumerate(zip(self.statements, self.checksums(), strict=True), start=1)
        ]

    def place(self, number: int) -> str:
        """The place of statement ``number``, from 0 on, for messages."""
        return f"database/{self.name}, line {self.statements[number].line}"

    def checksums(self) -> list[str]:
        """The checksum of the first statement, of the first two, and so on."""
        digest = hashlib.sha256()
        found = []
        for statement in self.statements:
            digest.update("\x1f".join([*statement.settings, statement.text, ""]).encode())
            found.append(digest.hexdigest())
        return found


def checks(files: Sequence[SqlFile]) -> list[Call]:
    """The calls to make before any statement runs. Each fails with the reason why the files may not run."""
    order = Call(
        _CHECK_FILES,
        {
            "files": "/".join(file.name for file in files),
            "checksums": " ".join(file.checksums()[-1] for file in files),
        },
    )
    return [order, *(call for file in files for call in file.checks())]


def document(files: Sequence[SqlFile]) -> dict[str, Any]:
    """The files as the custom resource of the database's content reads them."""
    return {
        "done": DONE,
        "checks": [_as_document(call) for call in checks(files)],
        "files": [
            {
                "name": file.name,
                "statements": [
                    {"place": file.place(number), **_as_document(call)} for number, call in enumerate(file.calls())
                ],
            }
            for file in files
        ],
    }


def _as_document(call: Call) -> dict[str, Any]:
    return {"sql": call.sql, "parameters": dict(call.parameters)}


def read_database_files(folder: Path) -> list[SqlFile]:
    """The SQL files of a folder in the order of their numbers; none if there is no such folder. Raises UserError."""
    return read_files(sorted(folder.iterdir()) if folder.is_dir() else [])


def read_files(paths: Iterable[Path]) -> list[SqlFile]:
    """The SQL files among ``paths`` in the order of their numbers. Raises UserError for the first that cannot run."""
    numbered: dict[int, Path] = {}
    for path in paths:
        named = _NAME.fullmatch(path.name)
        if named is None and path.suffix.lower() == ".sql":
            raise UserError(
                f"{path}: found this name, expected a number, an underscore and letters, such as 1_tables.sql: files "
                "run in the order of their numbers"
            )
        if named is None:
            continue
        number = int(named.group(1))
        if number in numbered:
            raise UserError(f"{path}: found the number of {numbered[number].name}, expected another number")
        numbered[number] = path
    return [_read(path) for _, path in sorted(numbered.items())]


def _read(path: Path) -> SqlFile:
    try:
        # With the line ends that git may change.
        script = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}, line {line}: found bytes that are no UTF-8, expected a text in UTF-8") from None
    before, nul, _ = script.partition("\0")
    if nul:
        line = before.count("\n") + 1
        raise UserError(f"{path}, line {line}: found the character NUL, expected none: PostgreSQL stores no such text")
    try:
        statements = split(script)
    except ScriptError as error:
        raise UserError(
            f"{path}, line {error.line}: found {error.found}, expected statements that the server "
            "runs by themselves. pg_dump --inserts writes such"
        ) from None
    found: list[FileStatement] = []
    settings: list[str] = []
    for statement in statements:
        _refuse(path, statement)
        setting = _setting(statement)
        if setting is None:
            found.append(FileStatement(statement.line, statement.text, tuple(settings)))
        elif setting:
            settings.append(setting)
    if not found:
        raise UserError(f"{path}: found no statement, expected one at least: delete the file, or write one into it")
    return SqlFile(path.name, tuple(found))


def _refuse(path: Path, statement: Statement) -> None:
    """Raise UserError for a statement that cannot run by itself in a transaction."""
    words = statement.words
    expected = next((advice for start, advice in _REFUSED.items() if words[: len(start)] == start), "")
    size = len(statement.text.encode())
    if _TEMPORARY.search(" ".join(words)):
        expected = _OF_SESSION
    if "CONCURRENTLY" in words[:5] and words[0] in ("CREATE", "DROP", "REINDEX"):
        expected = _CONCURRENTLY
    elif size > _MOST_BYTES:
        expected = f"{_MOST_BYTES:,} bytes at most, which the Data API takes: make several statements of it"
    if expected:
        start = f"{size:,} bytes" if size > _MOST_BYTES else " ".join(statement.text.split())[:60]
        raise UserError(f"{path}, line {statement.line}: found {start}, expected {expected}")


def _setting(statement: Statement) -> str | None:
    """Return the statement by which a SET of the file holds for one later statement.

    Returns "" for a SET without effect here, and None for any other statement.
    """
    words = [word for word in statement.words if word != "SESSION"]
    if words[:1] == ["SET"]:
        return "" if _NOT_KEPT.fullmatch(" ".join(words[1:2])) else _SET.sub("SET LOCAL ", statement.text, count=1)
    config = _SET_CONFIG.fullmatch(statement.text)
    if config is None:
        return None
    name, value = config.groups()
    return (
        "" if _NOT_KEPT.fullmatch(name.strip("'").upper()) else f"SELECT pg_catalog.set_config({name}, {value}, true)"
    )
