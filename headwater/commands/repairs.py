"""The repairs of ``headwater verify --repair``: rows that differ are read again from the source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import psycopg

from headwater.commands.advice import advise
from headwater.commands.lakes import AnyLake
from headwater.commands.resync import ItemReader, read_by_connector
from headwater.commands.writer_requests import s3_errors
from headwater.contract.model import Contract
from headwater.errors import UserError
from headwater.postgresql import conditions
from headwater.postgresql.conditions import NOT_IN_A_CONDITION
from headwater.verify.watch import EXTRA, Difference


class Repairs(Protocol):
    """Repairs tables of one database."""

    at_once: int
    """How many rows one repair reads at most."""

    def read(self, contract: Contract, keys: Sequence[Any]) -> None:
        """Have the rows of these keys read again. Raises UserError.

        The whole table is read if there are no keys, or if a condition cannot hold the keys.
        """

    def mend(self, contract: Contract, found: Sequence[Difference], may_be_whole: bool) -> bool:
        """Have differing rows read again, and return whether the whole table is read. Raises UserError.

        The whole table is read only if ``may_be_whole`` is set, and a row is extra or no condition can hold the keys.
        """


class RowRepairs:
    """Repairs tables of PostgreSQL: the source connector reads rows again. ``connect`` opens a connection."""

    at_once = 1_000

    def __init__(self, connect: Callable[[], psycopg.Connection]) -> None:
        self._connect = connect

    def read(self, contract: Contract, keys: Sequence[Sequence[str]]) -> None:
        """Have the rows read again, as ``Repairs`` says.

        The whole table is also read if PostgreSQL finds fewer rows than keys.
        """
        with self._connect() as connection:
            where = None
            with suppress(UserError):
                where = conditions.by_keys(connection, contract, keys) if keys else None
            read_by_connector(connection, [contract], where if where and where.rows == len(keys) else None)

    def mend(self, contract: Contract, found: Sequence[Difference], may_be_whole: bool) -> bool:
        """Have the rows read again, as ``Repairs`` says. Rows that the source no longer has are left out."""
        keys = _to_read(found, may_be_whole)
        is_whole = may_be_whole and not keys
        named = [key for key in keys if not any(mark in "\n".join(key) for mark in NOT_IN_A_CONDITION)]
        if left := len(keys) - len(named):
            advise(
                f"{left:,} rows of {contract.table} are not repaired, because no SQL condition can hold their keys. "
                f"Have the whole table read again: `headwater resync {contract.table}`"
            )
        with self._connect() as connection:
            where = conditions.by_keys(connection, contract, named) if named else None
            if where and not where.rows:
                where = None
            if is_whole or where:
                read_by_connector(connection, [contract], where)
        return is_whole


class ItemRepairs:
    """Repairs tables of DynamoDB: reads items, which the running job loads.

    ``spent`` is called with the read units of each page, before the next page is read.
    """

    # PartiQL's limit for IN.
    at_once = 50

    def __init__(self, place: AnyLake, spent: Callable[[Contract, float], None]) -> None:
        self._place = place
        self._spent = spent

    def read(self, contract: Contract, keys: Sequence[Any]) -> None:
        """Have items read again, as ``Repairs`` says.

        All items with the same partition keys are read. If there are too many keys, all items of the table are read.
        """
        self._read(contract, _beside(keys))

    def mend(self, contract: Contract, found: Sequence[Difference], may_be_whole: bool) -> bool:
        """Have items read again, as ``Repairs`` says."""
        where = _beside(_to_read(found, may_be_whole))
        is_whole = may_be_whole and not where
        if where or is_whole:
            self._read(contract, where)
        return is_whole

    def _read(self, contract: Contract, where: str) -> None:
        place = self._place
        reader = ItemReader(place.dynamodb, place.s3, place.uri, partial(self._spent, contract))
        with s3_errors():
            reader.read(contract, place.tables.get(contract.table, contract.source.table), where)


def _to_read(found: Sequence[Difference], may_be_whole: bool) -> list[Any]:
    """Return the keys to read again; none if the whole table should be read.

    The whole table is read if a row is extra and ``may_be_whole`` is set, because no other read ends extra rows.
    """
    keys = [difference.asked for difference in found if difference.kind != EXTRA]
    return [] if may_be_whole and len(keys) < len(found) else keys


def _beside(keys: Sequence[Any]) -> str:
    """Return the PartiQL condition for all items with the partition keys of these keys.

    The condition is "" if there are too many keys for one, or if a partition key is neither a text nor a number.
    """
    if len(keys) > ItemRepairs.at_once or not all(isinstance(key, Mapping) for key in keys):
        return ""
    first = [next(iter(key.items())) for key in keys]
    kinds = {next(iter(value)) for _, value in first}
    if not kinds <= {"S", "N"}:
        return ""
    values = {_quoted(value["S"]) if "S" in value else value["N"] for _, value in first}
    return f'"{first[0][0]}" IN [{", ".join(sorted(values))}]' if first else ""


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
