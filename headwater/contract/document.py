"""Contracts as people write them: the shape of the YAML document, which is also the source of the editors' schema.

``reading`` turns a document into a contract. This module is never shipped to the jobs, because it needs msgspec.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from headwater.contract.transforms import EXPECTED, PATTERN
from headwater.contract.types import NAME
from headwater.yaml_files import DIFFERENT, END

_TEXT = {"pattern": r"\S", "extra": {"expected": "a text that is not empty"}}
_NAME = {
    "pattern": NAME.pattern,
    "extra": {"expected": "lower-case letters, digits and _, beginning with a letter"},
}


class _Written(Struct, frozen=True, forbid_unknown_fields=True):
    """A mapping that refuses fields without a declaration."""


class PostgresqlSource(_Written, frozen=True, kw_only=True):
    """The PostgreSQL table whose changes make the lake table."""

    database: Annotated[Literal["postgresql", "dynamodb"], Meta(description="The kind of database.")]
    table: Annotated[
        str,
        Meta(
            pattern=rf"^[a-z_][a-z0-9_]*\.[a-z_][a-z0-9_]*{END}",
            description="schema.table",
            extra={"expected": "schema.table"},
        ),
    ]
    replica_identity: Annotated[
        Literal["full", "default"],
        Meta(
            description="What PostgreSQL logs about a row before its change. full: the whole row. default: the primary "
            "key, for tables whose primary key includes key and partition_by, and whose rows are written whole.",
        ),
    ] = "full"


class DynamodbSource(_Written, frozen=True, kw_only=True):
    """The DynamoDB table whose changes make the lake table."""

    database: Annotated[Literal["postgresql", "dynamodb"], Meta(description="The kind of database.")]
    table: Annotated[
        str,
        Meta(
            pattern=rf"^[a-zA-Z0-9_.-]{{3,255}}{END}",
            description="The table's name. For headwater-accounts a deployment makes headwater-dev-accounts in dev.",
            extra={"expected": "a DynamoDB table's name"},
        ),
    ]
    time_to_live: (
        Annotated[
            str,
            Meta(
                min_length=1,
                description="The attribute with the time, in seconds since 1970, at which an item expires. Without it "
                "no item expires.",
                examples=["expires_at"],
                extra={"expected": "an attribute's name"},
            ),
        ]
        | UnsetType
    ) = UNSET


class _WrittenColumn(_Written, frozen=True, kw_only=True):
    name: Annotated[str, Meta(description="The lake column's name, in lower case.", **_NAME)]
    type: Annotated[
        str,
        Meta(
            description="The lake column's type, as Spark spells it. A type with a comma needs quotes.",
            examples=[
                "int", "bigint", "float", "double", "boolean", "string", "binary", "date", "timestamp",
                "decimal(12,4)", "array<string>", "struct<city:string,zip:string>",
            ],
            **_TEXT,
        ),
    ]  # fmt: skip
    description: (
        Annotated[
            str,
            Meta(
                # The limit of the Glue Data Catalog, which counts bytes. ``reading`` checks the bytes.
                max_length=255,
                pattern=rf"^(?=.*\S)[^\x00-\x08\x0a-\x1f]*{END}",
                description="The meaning of the values, which is the column's comment in the catalog.",
                extra={"expected": "one line of at most 255 bytes"},
            ),
        ]
        | UnsetType
    ) = UNSET
    transform: (
        Annotated[
            str,
            Meta(
                pattern=rf"^({PATTERN}){END}",
                description="The form in which the value is stored. month, day and hour: a string such as 2024-02, "
                "2024-02-29 or 2024-02-29-13, for a date, a timestamp, or (with a unit) a number since 1970. bucket: "
                "an int, which is the CRC-32 of the text modulo the number of buckets.",
                examples=["month", "day", "hour", "day(seconds)", "hour(milliseconds)", "bucket(16)"],
                extra={"expected": EXPECTED},
            ),
        ]
        | UnsetType
    ) = UNSET


class PostgresqlColumn(_WrittenColumn, frozen=True, kw_only=True):
    """A lake column for a PostgreSQL column, or for a value inside a JSON column."""

    source_type: (
        Annotated[
            str,
            Meta(
                description="PostgreSQL's type, as format_type prints it; enum for any enum. A JSON path has none.",
                examples=[
                    "smallint", "integer", "bigint", "numeric(12,4)", "numeric", "real", "double precision", "boolean",
                    "character varying(40)", "text", "uuid", "enum", "date", "timestamp with time zone", "jsonb",
                    "bytea",
                ],
                **_TEXT,
            ),
        ]
        | UnsetType
    ) = UNSET  # fmt: skip
    path: (
        Annotated[
            str,
            Meta(
                pattern=rf"^[^.]+(\.[^.]+)*{END}",
                description="The source column, if its name differs, or a path into JSON: payload.customer.",
                extra={"expected": "a text: a source column, or a path such as payload.customer"},
            ),
        ]
        | UnsetType
    ) = field(name="from", default=UNSET)


# msgspec 0.22.0 crashes when it frees a union of a list and a text with a pattern, for example when Python ends. So the
# pattern is only in the editors' schema, and ``reading`` checks it.
_ATTRIBUTE_PATH = (
    Annotated[str, Meta(min_length=1, extra_json_schema={"pattern": rf"^[^.]+(\.[^.]+)*{END}"})]
    | Annotated[list[Annotated[str, Meta(min_length=1, extra={"expected": "a name"})]], Meta(min_length=1)]
)
ATTRIBUTE_PATH_EXPECTED = "an attribute, a path such as address.city, or a list of names that may hold dots"


class DynamodbColumn(_WrittenColumn, frozen=True, kw_only=True):
    """A lake column for a DynamoDB attribute, or for a value inside a map."""

    source_type: Annotated[
        Literal["S", "N", "B", "BOOL", "M", "L", "SS", "NS", "BS"],
        Meta(description="DynamoDB's type. For a path, the type of the value at its end."),
    ]
    path: (
        Annotated[
            _ATTRIBUTE_PATH,
            Meta(
                description="The attribute, if its name differs, a path into its maps (settings.locale), or a list of "
                "names, which may hold dots ([nick.name]). Capitals count.",
                extra={"expected": ATTRIBUTE_PATH_EXPECTED},
            ),
        ]
        | UnsetType
    ) = field(name="from", default=UNSET)


_HOW = Literal["hmac"] | None
"""The value that is stored in place of the source's value."""


class WrittenHistory(_Written, frozen=True, kw_only=True):
    """The change history of the table, which is a second table."""

    keep_days: Annotated[
        int,
        Meta(
            ge=1,
            le=36_500,
            description="For how many days past states of the table can be queried. Older changes are deleted, but the "
            "last change of each row stays.",
        ),
    ]
    buckets: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000,
            description="File groups per day. A first snapshot is one day. Cannot be changed later.",
        ),
    ] = 1


class _WrittenContract(_Written, frozen=True, kw_only=True):
    table: Annotated[str, Meta(description="The lake table's name, which is also the file's name.", **_NAME)]
    description: Annotated[
        str,
        Meta(
            # The catalog takes 2,048 bytes, and views and the history add words to the description.
            max_length=1_500,
            pattern=rf"^(?=[\s\S]*\S)[^\x00-\x08\x0b\x0c\x0e-\x1f]*{END}",
            description="The description of the table, for readers and the catalog.",
            extra={"expected": "a text that is not empty, of at most 1,500 bytes"},
        ),
    ]
    key: Annotated[
        list[str],
        Meta(
            min_length=1,
            description="The columns that identify a row. Cannot be changed later.",
            extra_json_schema=DIFFERENT,
            extra={"expected": "a list of at least one column"},
        ),
    ]
    partition_by: Annotated[
        list[str],
        Meta(
            max_length=1,
            description="The column that partitions the table, or none: []. Cannot be changed later.",
            extra={"expected": "a list of no column or one"},
        ),
    ]
    buckets: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description="File groups per partition: one for a few thousand rows, more for millions. Cannot be changed "
            "later.",
        ),
    ]
    on_unfit: Annotated[
        Literal["keep", "quarantine"],
        Meta(
            description="The handling of a value that its column cannot hold. keep: the column is null, the value "
            "is in _rest, and _unfit names the column. quarantine: the whole record goes into quarantine.",
        ),
    ] = "keep"
    history: (
        Annotated[
            WrittenHistory,
            Meta(
                description="Keep all changes of some days in a second table, for queries as of any instant and for "
                "slowly changing dimensions.",
            ),
        ]
        | UnsetType
    ) = UNSET
    unnamed: Annotated[
        Literal["keep", "drop"],
        Meta(
            description="The handling of fields that no column names. keep: they are in _rest. drop: they are stored "
            "nowhere, and PostgreSQL's columns do not leave the source connector.",
        ),
    ] = "keep"


class PostgresqlContract(_WrittenContract, frozen=True, kw_only=True):
    """A lake table that replicates a PostgreSQL table."""

    source: PostgresqlSource
    verify_with: (
        Annotated[
            str,
            Meta(
                description="An SQL file beside the contract whose query computes the source's rows for headwater "
                "verify.",
                **_TEXT,
            ),
        ]
        | UnsetType
    ) = UNSET
    exclude: Annotated[
        list[Annotated[str, Meta(min_length=1, extra={"expected": "a column of the source"})]],
        Meta(
            description="Columns of the source that are stored nowhere: they do not leave the source connector.",
            examples=[["password_hash"]],
            extra_json_schema=DIFFERENT,
            extra={"expected": "a list of the source's columns"},
        ),
    ] = []
    mask: (
        Annotated[
            dict[str, _HOW],
            Meta(
                min_length=1,
                description="Columns of the source whose values do not leave the source connector. hmac: the lake has "
                "the text's HMAC-SHA-256 under the environment's key, equal for equal texts. null: the lake has null.",
                examples=[{"email": "hmac", "phone": None}],
                extra={"expected": "a mapping of the source's columns to hmac or null"},
            ),
        ]
        | UnsetType
    ) = UNSET
    columns: Annotated[
        list[PostgresqlColumn],
        Meta(min_length=1, description="The columns.", extra={"expected": "a list of at least one column"}),
    ]


class DynamodbContract(_WrittenContract, frozen=True, kw_only=True):
    """A lake table that replicates a DynamoDB table."""

    source: DynamodbSource
    exclude: Annotated[
        list[_ATTRIBUTE_PATH],
        Meta(
            description="Values that are stored nowhere. Each is an attribute, a path into its maps (settings.pin), or "
            "a list of names, which may hold dots. Capitals count.",
            examples=[["passwordHash", "settings.pin"]],
            extra={"expected": "a list of attributes, paths such as settings.pin, or lists of names"},
        ),
    ] = []
    mask: (
        Annotated[
            dict[str, _HOW],
            Meta(
                min_length=1,
                description="Attributes, or paths into their maps, whose values the lake does not have. hmac: the lake "
                "has the text's HMAC-SHA-256 under the environment's key, equal for equal texts. null: it has null.",
                examples=[{"email": "hmac", "settings.phone": None}],
                extra={"expected": "a mapping of attributes, or paths such as settings.pin, to hmac or null"},
            ),
        ]
        | UnsetType
    ) = UNSET
    columns: Annotated[
        list[DynamodbColumn],
        Meta(min_length=1, description="The columns.", extra={"expected": "a list of at least one column"}),
    ]
