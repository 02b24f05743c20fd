"""The SQL files of a lake folder's ``database/``, for the database that a deployment makes.

Each statement runs once, in a session and a transaction of its own, as the RDS Data API requires. The procedures of
``sql/5_created_files.sql`` run and record each statement. They refuse a file whose executed statements were changed.
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
"""The query for the number of statements of each file that have run."""
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
"""The Data API's limit for one statement."""
_CHECKSUMS = 500
"""How many checksums one call compares."""
_ALONE = "each statement runs in a session and a transaction of its own"
_OF_SESSION = f"nothing that ends with its session, since {_ALONE}"
# Matches the words of a statement that makes a temporary object. It does not match INSERT INTO temp, where temp is a
# table, nor a search path with pg_temp.
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
# Ignored settings: the encoding of psql's connection, and timeouts. A deployment sets these itself.
_NOT_KEPT = re.compile(r"CLIENT_ENCODING|\w+_TIMEOUT")
# The first words of statements that run in psql but not here, with the advice for each.
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
    """A call of a procedure in the database."""

    sql: str
    """The statement, with placeholders such as ``:name``."""
    parameters: Mapping[str, str]
    """The value of each placeholder."""


@dataclass(frozen=True)
class FileStatement:
    """A statement of a file."""

    line: int
    """The line of the file in which the statement begins, from 1 on."""
    text: str
    """The statement."""
    settings: tuple[str, ...]
    """The SET statements before it in the file, which run again for this statement alone."""


@dataclass(frozen=True)
class SqlFile:
    """A file of ``database/``."""

    name: str
    """The file's name."""
    statements: tuple[FileStatement, ...]
    """The statements of the file, at least one."""

    def checks(self) -> Iterator[Call]:
        """Yield the calls that fail if a statement of the file was changed after it ran."""
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
        """Return the calls that run and record the statements, in their order."""
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
        """Return file and line of the statement ``number``, from 0 on, for messages."""
        return f"database/{self.name}, line {self.statements[number].line}"

    def checksums(self) -> list[str]:
        """Return the checksum of the first statement, of the first two statements, and so on."""
        digest = hashlib.sha256()
        found = []
        for statement in self.statements:
            digest.update("\x1f".join([*statement.settings, statement.text, ""]).encode())
            found.append(digest.hexdigest())
        return found


def checks(files: Sequence[SqlFile]) -> list[Call]:
    """Return the calls to make before any statement runs. A call fails with the reason if the files may not run."""
    order = Call(
        _CHECK_FILES,
        {
            "files": "/".join(file.name for file in files),
            "checksums": " ".join(file.checksums()[-1] for file in files),
        },
    )
    return [order, *(call for file in files for call in file.checks())]


def document(files: Sequence[SqlFile]) -> dict[str, Any]:
    """Return the files in the form that the custom resource of the database's content reads."""
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
    """Return the SQL files of a folder in the order of their numbers; none without the folder. Raises UserError."""
    return read_files(sorted(folder.iterdir()) if folder.is_dir() else [])


def read_files(paths: Iterable[Path]) -> list[SqlFile]:
    """Return the SQL files among ``paths`` in the order of their numbers. Raises UserError if one cannot run."""
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
        # Git may change line ends, so they do not count.
        script = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}, line {line}: found bytes that are not UTF-8, expected a text in UTF-8") from None
    before, nul, _ = script.partition("\0")
    if nul:
        line = before.count("\n") + 1
        raise UserError(f"{path}, line {line}: found the character NUL, expected none: PostgreSQL stores no such text")
    try:
        statements = split(script)
    except ScriptError as error:
        raise UserError(
            f"{path}, line {error.line}: found {error.found}, expected statements that the server can run without "
            "psql, as pg_dump --inserts writes them"
        ) from None
    # Each statement gets the SET statements before it.
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
        raise UserError(f"{path}: found no statement, expected at least one: delete the file, or add a statement")
    return SqlFile(path.name, tuple(found))


def _refuse(path: Path, statement: Statement) -> None:
    """Raise UserError for a statement that cannot run alone in a transaction."""
    words = statement.words
    expected = next((advice for start, advice in _REFUSED.items() if words[: len(start)] == start), "")
    size = len(statement.text.encode())
    if _TEMPORARY.search(" ".join(words)):
        expected = _OF_SESSION
    if "CONCURRENTLY" in words[:5] and words[0] in ("CREATE", "DROP", "REINDEX"):
        expected = _CONCURRENTLY
    elif size > _MOST_BYTES:
        expected = f"at most {_MOST_BYTES:,} bytes, which the Data API takes: divide it into several statements"
    if expected:
        start = f"{size:,} bytes" if size > _MOST_BYTES else " ".join(statement.text.split())[:60]
        raise UserError(f"{path}, line {statement.line}: found {start}, expected {expected}")


def _setting(statement: Statement) -> str | None:
    """Return the statement that applies a SET of the file to one later statement.

    Returns "" for an ignored SET, and None for a statement other than SET.
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
