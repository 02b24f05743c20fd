"""Transforms: functions that turn a source's value into a column that can partition a table.

Runs on EMR and Glue too, so it uses the standard library only, in Python 3.11 and later.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from headwater.contract.types import Type

MONTH, DAY, HOUR, BUCKET = "month", "day", "hour", "bucket"
UNITS = {"seconds": 1_000_000, "milliseconds": 1_000, "microseconds": 1}
"""The microseconds in each unit of a number that counts from 1970."""
MOST_BUCKETS = 9_999
PATTERN = rf"({MONTH}|{DAY}|{HOUR})(\(({'|'.join(UNITS)})\))?|{BUCKET}\([1-9][0-9]{{0,3}}\)"
EXPECTED = (
    "month, day or hour, with the unit of a number as in day(seconds) or day(milliseconds), or bucket(16) with a "
    f"number of buckets up to {MOST_BUCKETS}"
)


@dataclass(frozen=True)
class Transform:
    """A function from a source's value to a column's value."""

    part: str
    """``MONTH``, ``DAY`` or ``HOUR`` for a part of a time, or ``BUCKET``."""
    unit: str | None = None
    """The unit of a number since 1970; None if the value is a date, a timestamp or a text."""
    buckets: int = 0
    """The number of buckets; 0 for a part of a time."""

    def __str__(self) -> str:
        argument = str(self.buckets) if self.is_bucket else self.unit
        return self.part if argument is None else f"{self.part}({argument})"

    @property
    def is_bucket(self) -> bool:
        """Whether the transform returns a bucket number instead of a part of a time, such as a month."""
        return self.part == BUCKET

    @property
    def type(self) -> Type:
        """The lake type of the transform's results."""
        return Type("int" if self.is_bucket else "string")

    @property
    def micros(self) -> int | None:
        """The microseconds in the unit of a number; None if the value is not a number."""
        return None if self.unit is None else UNITS[self.unit]


def parse_transform(text: str) -> Transform:
    """Parse a transform as contracts write it. Raises ValueError."""
    if re.fullmatch(PATTERN, text) is None:
        raise ValueError(f"found {text!r}, expected {EXPECTED}")
    part, _, argument = text.rstrip(")").partition("(")
    return Transform(part, buckets=int(argument)) if part == BUCKET else Transform(part, argument or None)
