"""PostgreSQL's errors as texts that may be kept, without the values of rows that its messages may repeat."""

import re

import psycopg

# The classes of SQLSTATE whose messages name tables, columns, roles and settings, but no values. Others may: data that
# do not fit (22), constraints (23), what functions raise (P0), what other servers say (HV).
_WITHOUT_VALUES = ("08", "0A", "25", "28", "3D", "3F", "40", "42", "53", "54", "55", "57", "58")


def told(error: psycopg.Error) -> str:
    """Return an error in a line: its condition and SQLSTATE, or the server's message if that holds no values.

    An error of the connection has no SQLSTATE and comes in full.
    """
    if error.sqlstate is None:
        is_data = isinstance(error, psycopg.DataError)
        return _condition(error) if is_data else " ".join(str(error).split())
    condition = f"{_condition(error)} ({error.sqlstate})"
    if error.sqlstate[:2] not in _WITHOUT_VALUES or not error.diag.message_primary:
        return condition
    return f"{error.diag.message_primary} ({error.sqlstate})"


def _condition(error: psycopg.Error) -> str:
    """The name of an error's condition: ``invalid text representation``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__).lower()
