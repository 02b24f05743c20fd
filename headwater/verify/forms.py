"""Forms: plain values that are equal exactly when the stored values are, however each side writes them.

``1.50`` and ``1.5`` are one decimal, ``12:00+02`` and ``10:00Z`` one instant. A row of either side is a tuple of forms.
"""

import datetime as dt
import math
import re
import struct
import zlib
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

from headwater.contract.transforms import DAY, HOUR, MONTH, Transform

Form = Any  # None, bool, int, str, or a tuple of forms: hashable, compared by ==
Row = tuple[Form, ...]
ToForm = Callable[[Any], Form]


_EPOCH = dt.datetime(1970, 1, 1)
_PARTS = (MONTH, DAY, HOUR)
_WRITTEN = re.compile(r"(\d{4}-\d\d)-(\d\d)(?:\Z|[T ](?:(\d\d)(?!\d))?)")


def part_form(transform: Transform) -> ToForm:
    """Return the function that gives the form of a transformed value.

    It takes a date or a timestamp as ISO 8601 text, a number if the transform has a unit, or a text for buckets. It
    raises ValueError for anything else.
    """
    if transform.is_bucket:
        return lambda value: zlib.crc32(plain_text(value).encode()) % transform.buckets
    unit = transform.micros

    def form(value: Any) -> str:
        text = value if unit is None else str(_EPOCH + dt.timedelta(microseconds=integer(Decimal(value)) * unit))
        found = _WRITTEN.match(text)
        if found is None:
            raise ValueError(value)
        return "-".join(found.groups()[: _PARTS.index(transform.part) + 1])

    return form


def unreadable(value: Any) -> Form:
    """The form of a value that its type cannot hold: equal to no readable value."""
    return ("not of its type", repr(value))


def guarded(to_form: ToForm) -> ToForm:
    """``to_form``, but for a value that its type cannot hold: that is a difference to report, no reason to stop."""

    def form(value: Any) -> Form:
        try:
            return to_form(value)
        except (ValueError, TypeError, AttributeError, InvalidOperation, OverflowError):
            return unreadable(value)

    return form


def integer(value: Any) -> int:
    """A whole number of any Python type except bool. Raises ValueError."""
    if isinstance(value, bool) or (isinstance(value, Decimal) and value != value.to_integral_value()):
        raise ValueError(value)
    return int(value)


def plain_text(value: Any) -> str:
    """A text as it is. Raises ValueError for anything else."""
    if not isinstance(value, str):
        raise ValueError(value)
    return value


def unscaled(value: Decimal, scale: int) -> Form:
    """Return a decimal in units of its last digit, e.g. 15000 for 1.5 at scale 4.

    It is a text if it has more than ``scale`` digits after the point or is not finite.
    """
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return str(value)
    number = int("".join(map(str, digits)) or "0")
    shift = exponent + scale
    if shift >= 0:
        number *= 10**shift
    else:
        number, rest = divmod(number, 10**-shift)
        if rest:
            return str(value)
    return -number if sign else number


def float_bits(value: float, *, single: bool) -> Form:
    """The bits of a float, so that 0.0 differs from -0.0. All NaNs are alike, as in PostgreSQL's text."""
    if math.isnan(value):
        return "NaN"
    kind = "<f" if single else "<d"
    return int.from_bytes(struct.pack(kind, value), "little")


_DATE = re.compile(r"(\d{4,})-(\d\d)-(\d\d)Z?( BC)?\Z")
_MOMENT = re.compile(
    r"(?P<date>\d{4,}-\d\d-\d\d)[T ](?P<time>\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?)"
    r"(?P<zone>Z|[+-]\d\d(?::?\d\d(?::?\d\d)?)?)?(?P<era> BC)?\Z"
)
_TIME = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?\Z")
_INTERVAL = re.compile(
    r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)W)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?\d*\.?\d+)S)?)?\Z"
)
DAY_MICROS = 86_400_000_000


def days(value: Any) -> Form:
    """A date of any year as days since 1970-01-01 in the proleptic Gregorian calendar; an infinity as text."""
    if value in ("infinity", "-infinity"):
        return value
    date = _DATE.match(value)
    if date is None:
        raise ValueError(value)
    year, month, day, era = date.groups()
    return _days_from_civil(1 - int(year) if era else int(year), int(month), int(day))


def _days_from_civil(year: int, month: int, day: int) -> int:
    # Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", days_from_civil: datetime ends at year 9999.
    year -= month <= 2
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def micros(value: Any) -> Form:
    """A timestamp as microseconds since 1970-01-01 UTC; without a zone it counts as UTC; an infinity as text."""
    if value in ("infinity", "-infinity"):
        return value
    moment = _MOMENT.match(value)
    if moment is None:
        raise ValueError(value)
    date: int = days(moment["date"] + (moment["era"] or ""))
    return date * DAY_MICROS + clock(moment["time"]) - _offset(moment["zone"])


def clock(value: Any) -> int:
    """A time of day as microseconds since midnight."""
    time = _TIME.match(value)
    if time is None:
        raise ValueError(value)
    hour, minute, second, fraction = time.groups()
    digits = (fraction or "").ljust(6, "0")
    if digits[6:].strip("0"):
        raise ValueError(value)
    return ((int(hour) * 60 + int(minute)) * 60 + int(second or 0)) * 1_000_000 + int(digits[:6])


def _offset(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    digits = zone[1:].replace(":", "").ljust(6, "0")
    offset = ((int(digits[:2]) * 60 + int(digits[2:4])) * 60 + int(digits[4:6])) * 1_000_000
    return -offset if zone[0] == "-" else offset


def interval(value: Any) -> Form:
    """An ISO 8601 interval as PostgreSQL stores it: months, days and microseconds."""
    parts = _INTERVAL.match(value)
    if parts is None:
        raise ValueError(value)
    years, months, weeks, day, hours, minutes = (int(part or 0) for part in parts.groups()[:6])
    micro = Decimal(parts[7] or 0) * 1_000_000 + (hours * 60 + minutes) * 60_000_000
    return ("interval", years * 12 + months, weeks * 7 + day, int(micro))


def is_interval(form: Form) -> bool:
    """Whether a form is an interval's."""
    return isinstance(form, tuple) and form[:1] == ("interval",)
