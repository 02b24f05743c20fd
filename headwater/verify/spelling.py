"""Forms as text for people, which PostgreSQL reads, too."""

import struct

from headwater.contract.model import Contract, along
from headwater.contract.types import Type
from headwater.verify.forms import DAY_MICROS, Form

_LONGEST = 120
_BEFORE = 20
HIDDEN = "(hidden)"
"""Stands for a value that the contract masks or excludes."""


def shortened(text: str) -> str:
    """A text, cut to a readable length."""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def shortened_pair(first: str, second: str) -> tuple[str, str]:
    """Two texts, cut to a readable length so that the first letter in which they differ stays."""
    same = next(
        (at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )
    if max(len(first), len(second)) <= _LONGEST or same < _LONGEST - _BEFORE:
        return shortened(first), shortened(second)
    return shortened("…" + first[same - _BEFORE :]), shortened("…" + second[same - _BEFORE :])


def hides(contract: Contract, path: tuple[str, ...]) -> bool:
    """Whether a contract masks or excludes the value at a path, or a value in it or around it."""
    hidden = (*contract.exclude, *(mask.path for mask in contract.masks))
    return any(along(path, other, contract.source.database) for other in hidden)


def spelled_hidden(form: Form) -> str:
    """Show null as it is, and hide any other value that the contract masks or excludes.

    Masks are hidden too, because a password's SHA-256 from before the mask looks the same.
    """
    return "null" if form is None else HIDDEN


def spelled(form: Form, type_: Type) -> str:
    """The value of the contract's type ``type_`` that a form stands for, as a person would write it."""
    if form is None:
        return "null"
    if isinstance(form, tuple):
        if type_.kind == "struct" and len(form) == len(type_.fields):
            fields = zip(type_.fields, form, strict=True)
            return "{" + ", ".join(f"{name}: {spelled(value, kind)}" for (name, kind), value in fields) + "}"
        if type_.kind == "array" and type_.element is not None:
            return "[" + ", ".join(spelled(item, type_.element) for item in form) + "]"
        return " ".join(str(part) for part in form)
    if isinstance(form, int) and not isinstance(form, bool):
        return _spelled_number(form, type_)
    return str(form)


def _spelled_number(form: int, type_: Type) -> str:
    if type_.kind == "decimal":
        digits = str(abs(form)).rjust(type_.scale + 1, "0")
        whole, fraction = digits[: len(digits) - type_.scale], digits[len(digits) - type_.scale :]
        return ("-" if form < 0 else "") + whole + (f".{fraction}" if fraction else "")
    if type_.kind == "float" and form < 2**32:
        return repr(struct.unpack("<f", form.to_bytes(4, "little"))[0])
    if type_.kind in ("float", "double"):
        return repr(struct.unpack("<d", form.to_bytes(8, "little"))[0])
    if type_.kind == "date":
        return spelled_date(form)
    if type_.kind == "timestamp":
        return spelled_moment(form, "Z")
    return str(form)


def spelled_date(days: int) -> str:
    """A date, ``0044-03-15 BC``, from its days since 1970-01-01."""
    date, era = _civil(days)
    return date + era


def spelled_moment(micros: int, zone: str = "") -> str:
    """A timestamp, ``2024-02-29 10:00:00.000000``, with the zone behind it, from its microseconds since 1970-01-01."""
    days, of_day = divmod(micros, DAY_MICROS)
    date, era = _civil(days)
    return f"{date} {spelled_time(of_day)}{zone}{era}"


def spelled_time(micros: int) -> str:
    """A time of day, ``24:00:00.000000`` at its latest, from its microseconds since midnight."""
    minutes, rest = divmod(micros, 60_000_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1_000_000:02}.{rest % 1_000_000:06}"


def spelled_interval(form: Form) -> str:
    """An interval in ISO 8601, from the form that ``forms.interval`` makes."""
    _, months, days, micros = form
    sign, seconds = "-" if micros < 0 else "", abs(micros) // 1_000_000
    hours, minutes = f"{sign}{seconds // 3600}H", f"{sign}{seconds // 60 % 60}M"
    return f"P{months}M{days}DT{hours}{minutes}{sign}{seconds % 60}.{abs(micros) % 1_000_000:06}S"


def _civil(days: int) -> tuple[str, str]:
    """A day of any year, and `` BC`` if the year is before the first."""
    # As forms._days_from_civil, backwards.
    since = days + 719_468
    era, of_era = divmod(since, 146_097)
    year_of_era = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    from_march = (5 * of_year + 2) // 153
    day = of_year - (153 * from_march + 2) // 5 + 1
    month = from_march + (3 if from_march < 10 else -9)
    year = year_of_era + era * 400 + (month <= 2)
    shown, bc = (year, "") if year > 0 else (1 - year, " BC")
    return f"{shown:04}-{month:02}-{day:02}", bc
