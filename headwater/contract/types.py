"""The types of lake columns, and the names of PostgreSQL's types.

Runs on EMR and Glue too, so it uses the standard library only, in Python 3.11 and later.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Python's $ alone would also match before a line break at the end.
NAME = re.compile(r"^[a-z][a-z0-9_]*$(?!\n)")
"""Valid names for columns and for fields of structs. Athena and Glue know no capitals."""
_SCALARS = ("int", "bigint", "float", "double", "boolean", "string", "binary", "date", "timestamp")
_MAX_DECIMAL_PRECISION = 38  # Spark's and Hive's limit


@dataclass(frozen=True)
class Type:
    """The type of a lake column."""

    kind: str
    """The name of a scalar type, such as ``int``, or ``decimal``, ``array`` or ``struct``."""
    precision: int = 0
    """A decimal's number of digits."""
    scale: int = 0
    """A decimal's number of digits after the point."""
    element: Type | None = None
    """The type of an array's elements."""
    fields: tuple[tuple[str, Type], ...] = ()
    """The name and the type of each field of a struct."""

    def ddl(self) -> str:
        """Return the type as Spark's ``simpleString``, such as ``array<struct<a:int>>``.

        The Glue Data Catalog spells all types that a contract may have in the same way.
        """
        if self.kind == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.kind == "array" and self.element is not None:
            return f"array<{self.element.ddl()}>"
        if self.kind == "struct":
            return "struct<" + ",".join(f"{name}:{field.ddl()}" for name, field in self.fields) + ">"
        return self.kind


class _TypeParser:
    """A recursive-descent parser for a DDL type. Keywords may be in capitals; names keep their capitals."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = re.findall(r"[A-Za-z0-9_]+|[<>(),:]|\S", text)
        self._at = 0

    def parse(self) -> Type:
        parsed = self._type()
        if self._at != len(self._tokens):
            raise ValueError(f"found {self._tokens[self._at]!r} after the type's end in {self._text!r}")
        return parsed

    def _next(self, expected: str | None = None) -> str:
        if self._at >= len(self._tokens):
            raise ValueError(f"type {self._text!r} ends too early")
        token = self._tokens[self._at]
        if expected is not None and token != expected:
            raise ValueError(f"found {token!r} in type {self._text!r}, expected {expected!r}")
        self._at += 1
        return token

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _type(self) -> Type:
        start = self._at
        kind = self._next().lower()
        # If more follows the name, this is a type of PostgreSQL, such as double precision or timestamp(3).
        if kind in _SCALARS and self._peek() in ("", ",", ">"):
            return Type(kind)
        if kind == "decimal" and self._peek() == "(":
            return self._decimal()
        if kind == "array":
            self._next("<")
            element = self._type()
            self._next(">")
            return Type("array", element=element)
        if kind == "struct":
            return self._struct()
        raise self._unknown(start)

    def _decimal(self) -> Type:
        self._next("(")
        precision = self._number()
        self._next(",")
        scale = self._number()
        self._next(")")
        if not (1 <= precision <= _MAX_DECIMAL_PRECISION and 0 <= scale <= precision):
            raise ValueError(f"decimal({precision},{scale}) is outside decimal(1..38, 0..precision)")
        return Type("decimal", precision=precision, scale=scale)

    def _struct(self) -> Type:
        self._next("<")
        fields: list[tuple[str, Type]] = []
        while True:
            name = self._next()
            if not NAME.match(name):
                raise ValueError(_bad_name(name, self._text))
            if any(name == known for known, _ in fields):
                raise ValueError(f"found the field {name!r} twice in {self._text!r}, expected it once")
            self._next(":")
            fields.append((name, self._type()))
            if self._peek() != ",":
                break
            self._next(",")
        self._next(">")
        return Type("struct", fields=tuple(fields))

    def _number(self) -> int:
        token = self._next()
        if not token.isdigit():
            raise ValueError(f"found {token!r} in type {self._text!r}, expected a number")
        return int(token)

    def _unknown(self, start: int) -> ValueError:
        """Return the error for an unknown lake type that begins at the token ``start``."""
        # The written type ends before the next separator that is not between parentheses.
        end, depth = start, 0
        while end < len(self._tokens) and (depth > 0 or self._tokens[end] not in (",", ":", "<", ">")):
            depth += {"(": 1, ")": -1}.get(self._tokens[end], 0)
            end += 1
        written = re.sub(r" ?([(\[,]) ?| (?=[)\]])", r"\1", " ".join(self._tokens[start:end]))
        known = f"one of {', '.join(_SCALARS)}, decimal(p,s), array<>, struct<>"
        return ValueError(f"found the type {written!r}, expected {lake_type(written) or known}")


def _bad_name(name: str, text: str) -> str:
    problem = (
        f"found the field {name!r} in {text!r}, expected lower-case letters, digits and _, beginning with a letter"
    )
    if name.lower() == name:
        return problem
    return (
        f"{problem}: lake names are lower-case, because Athena and Glue know no capitals. Add a column for such a "
        f"field, by its path, as in `from: address.{name}`; or keep the whole document in a column of type string"
    )


def parse_type(text: str) -> Type:
    """Parse a Spark DDL type. Raises ValueError, which names the found and the expected text."""
    return _TypeParser(text).parse()


_SYNONYMS = {
    "int2": "smallint", "int": "integer", "int4": "integer", "int8": "bigint", "bool": "boolean",
    "float4": "real", "float8": "double precision", "double": "double precision", "decimal": "numeric",
    "varchar": "character varying", "char": "character", "bpchar": "character",
    "timestamptz": "timestamp with time zone", "timestamp": "timestamp without time zone",
    "time": "time without time zone", "timetz": "time with time zone",
}  # fmt: skip
# The lake type that a contract should have for each PostgreSQL type. A numeric's precision and scale are added.
_LAKE_TYPES = {
    "smallint": "int", "integer": "int", "serial": "int", "bigserial": "bigint", "bigint": "bigint", "real": "float",
    "double precision": "double", "boolean": "boolean", "character varying": "string", "character": "string",
    "text": "string", "uuid": "string", "enum": "string", "json": "string", "jsonb": "string", "bytea": "binary",
    "date": "date", "timestamp with time zone": "timestamp", "timestamp without time zone": "timestamp",
    "time without time zone": "string", "interval": "string", "numeric": "string, or decimal(p,s)",
}  # fmt: skip


@dataclass(frozen=True)
class SourceType:
    """The type of a PostgreSQL column."""

    base: str
    """The name of the type, or of an array's element type, without its arguments."""
    precision: int | None = None
    """A numeric's digits, or a timestamp's digits after the second; None if the type does not name them."""
    scale: int | None = None
    """A numeric's digits after the point; None if the type does not name them."""
    array: bool = False
    """Whether the type is an array."""

    @staticmethod
    def parse(text: str) -> SourceType:
        """Parse a type's name as PostgreSQL's ``format_type`` prints it, or a usual synonym."""
        name = " ".join(text.lower().split())
        array = name.endswith("[]")
        name = name[:-2].strip() if array else name
        arguments = re.search(r" ?\( ?(\d+)(?: ?, ?(\d+))? ?\)", name)
        base = name[: arguments.start()] + name[arguments.end() :] if arguments else name
        base = _SYNONYMS.get(base, base)
        if arguments and base.startswith("timestamp"):
            return SourceType(base, int(arguments.group(1)), None, array)
        if base == "numeric" and arguments:
            return SourceType(base, int(arguments.group(1)), int(arguments.group(2) or 0), array)
        return SourceType(base, None, None, array)


def lake_type(written: str) -> str | None:
    """Return the lake type that a contract should have for a PostgreSQL type; None if there is none."""
    source = SourceType.parse(written)
    lake = _LAKE_TYPES.get(source.base)
    if source.base == "numeric" and source.precision is not None:
        lake = f"decimal({source.precision},{source.scale})"
    return f"array<{lake}>" if lake is not None and source.array else lake
