"""Types: what a lake column can hold, and what PostgreSQL calls its own types.

Runs on EMR and Glue too: the standard library only, Python 3.9 and later.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
"""What columns and the fields of structs may be called: Glue and Athena know no capital letters."""
_SCALARS = ("int", "bigint", "float", "double", "boolean", "string", "binary", "date", "timestamp")
_MAX_DECIMAL_PRECISION = 38  # Spark's and Hive's limit


@dataclass(frozen=True)
class Type:
    """A lake type: a scalar kind, ``decimal``, ``array`` or ``struct``."""

    kind: str
    precision: int = 0
    scale: int = 0
    element: Type | None = None
    fields: tuple[tuple[str, Type], ...] = ()

    def ddl(self) -> str:
        """The type as Spark's ``simpleString``, e.g. ``array<struct<a:int>>``."""
        if self.kind == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.kind == "array" and self.element is not None:
            return f"array<{self.element.ddl()}>"
        if self.kind == "struct":
            return "struct<" + ",".join(f"{name}:{field.ddl()}" for name, field in self.fields) + ">"
        return self.kind

    def glue(self) -> str:
        """The type as the Glue Data Catalog spells it; Hive's names are Spark's for all that a contract may hold."""
        return self.ddl()


class _TypeParser:
    """Recursive descent over a DDL type string."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = re.findall(r"[a-z0-9_]+|[<>(),:]|\S", text.lower())
        self._at = 0

    def parse(self) -> Type:
        parsed = self._type()
        if self._at != len(self._tokens):
            raise ValueError(f"unexpected {self._tokens[self._at]!r} in type {self._text!r}")
        return parsed

    def _next(self, expected: str | None = None) -> str:
        if self._at >= len(self._tokens):
            raise ValueError(f"type {self._text!r} ends too early")
        token = self._tokens[self._at]
        if expected is not None and token != expected:
            raise ValueError(f"expected {expected!r} but found {token!r} in type {self._text!r}")
        self._at += 1
        return token

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _type(self) -> Type:
        kind = self._next()
        if kind in _SCALARS:
            return Type(kind)
        if kind == "decimal":
            self._next("(")
            precision = self._number()
            self._next(",")
            scale = self._number()
            self._next(")")
            if not (1 <= precision <= _MAX_DECIMAL_PRECISION and 0 <= scale <= precision):
                raise ValueError(f"decimal({precision},{scale}) is outside decimal(1..38, 0..precision)")
            return Type("decimal", precision=precision, scale=scale)
        if kind == "array":
            self._next("<")
            element = self._type()
            self._next(">")
            return Type("array", element=element)
        if kind == "struct":
            self._next("<")
            fields: list[tuple[str, Type]] = []
            while True:
                name = self._next()
                if not NAME.match(name):
                    raise ValueError(f"field name {name!r} is not lower-case letters, digits and _")
                if any(name == other for other, _ in fields):
                    raise ValueError(f"field {name!r} appears twice")
                self._next(":")
                fields.append((name, self._type()))
                if self._peek() != ",":
                    break
                self._next(",")
            self._next(">")
            return Type("struct", fields=tuple(fields))
        raise ValueError(
            f"unknown type {kind!r} in {self._text!r}; known: {', '.join(_SCALARS)}, decimal(p,s), array<>, struct<>"
        )

    def _number(self) -> int:
        token = self._next()
        if not token.isdigit():
            raise ValueError(f"expected a number but found {token!r} in type {self._text!r}")
        return int(token)


def parse_type(text: str) -> Type:
    """Parse a Spark DDL type. Raises ValueError that says what was found."""
    return _TypeParser(text).parse()


_SYNONYMS = {
    "int2": "smallint", "int": "integer", "int4": "integer", "int8": "bigint", "bool": "boolean",
    "float4": "real", "float8": "double precision", "double": "double precision", "decimal": "numeric",
    "varchar": "character varying", "char": "character", "bpchar": "character",
    "timestamptz": "timestamp with time zone", "timestamp": "timestamp without time zone",
    "time": "time without time zone", "timetz": "time with time zone",
}  # fmt: skip


@dataclass(frozen=True)
class SourceType:
    """A PostgreSQL type: its base name without length, precision and scale of a numeric that has them, and the digits
    after the second of a timestamp that tells them as its precision."""

    base: str
    precision: int | None = None
    scale: int | None = None
    array: bool = False

    @staticmethod
    def parse(text: str) -> SourceType:
        """Parse a name as PostgreSQL's ``format_type`` prints it, or its usual synonym."""
        name = " ".join(text.lower().split())
        array = name.endswith("[]")
        name = name[:-2].strip() if array else name
        arguments = re.search(r" ?\(([\d, ]+)\)", name)
        base = name[: arguments.start()] + name[arguments.end() :] if arguments else name
        base = _SYNONYMS.get(base, base)
        if arguments and base.startswith("timestamp"):
            return SourceType(base, int(arguments.group(1)), None, array)
        if base == "numeric" and arguments:
            numbers = [int(number) for number in arguments.group(1).split(",")]
            return SourceType(base, numbers[0], numbers[1] if len(numbers) > 1 else 0, array)
        return SourceType(base, None, None, array)
