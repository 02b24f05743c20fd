"""Contracts as people write them: the shape of the YAML document, from which editors get their schema.

``reading`` makes a contract of a document. Stays on the laptop, as it needs msgspec.
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
    """A mapping that takes the fields it names and no others."""


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
            description="What PostgreSQL logs of a row before its change: full, where nothing is said, or default, "
            "the primary key. That is for tables whose primary key has key and partition, and whose rows are "
            "written whole.",
        ),
    ] = "full"


class DynamodbSource(_Written, frozen=True, kw_only=True):
    """The DynamoDB table whose changes make the lake table."""

    database: Annotated[Literal["postgresql", "dynamodb"], Meta(description="The kind of database.")]
    table: Annotated[
        str,
        Meta(
            pattern=rf"^[a-zA-Z0-9_.-]{{3,255}}{END}",
            description="The table's name; a deployment makes headwater-dev-accounts of headwater-accounts.",
            extra={"expected": "a DynamoDB table's name"},
        ),
    ]
    time_to_live: (
        Annotated[
            str,
            Meta(
                min_length=1,
                description="The attribute by whose time, in seconds since 1970, items expire. Without it none does.",
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
            description="The lake column's type, as Spark spells it; in quotes where it has a comma.",
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
                # What a comment of the Glue Data Catalog takes, which counts bytes: reading holds it to them.
                max_length=255,
                pattern=rf"^(?=.*\S)[^\x00-\x08\x0a-\x1f]*{END}",
                description="What the values mean: the column's comment in the catalog.",
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
                description="What is made of the value. month, day and hour: a string such as 2024-02, 2024-02-29 or "
                "2024-02-29-13, of a date, a timestamp, or with a unit of a number since 1970. bucket: an int, the "
                "CRC-32 of the text modulo the number of buckets.",
                examples=["month", "day", "hour", "day(seconds)", "hour(milliseconds)", "bucket(16)"],
                extra={"expected": EXPECTED},
            ),
        ]
        | UnsetType
    ) = UNSET


class PostgresqlColumn(_WrittenColumn, frozen=True, kw_only=True):
    """A lake column and the PostgreSQL column, or the place in a JSON column, that it holds."""

    source_type: (
        Annotated[
            str,
            Meta(
                description="PostgreSQL's type, as format_type prints it; enum for any enum. Left out beside a path.",
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
                description="The source column where it has another name, or a path into JSON: payload.customer.",
                extra={"expected": "a text: a source column, or a path such as payload.customer"},
            ),
        ]
        | UnsetType
    ) = field(name="from", default=UNSET)


# msgspec 0.22.0 crashes when it frees a union of a list and a text with a pattern, which may be when Python ends. So
# the pattern is for editors alone, and contracts are held to it when they are read.
_ATTRIBUTE_PATH = (
    Annotated[str, Meta(min_length=1, extra_json_schema={"pattern": rf"^[^.]+(\.[^.]+)*{END}"})]
    | Annotated[list[Annotated[str, Meta(min_length=1, extra={"expected": "a name"})]], Meta(min_length=1)]
)
ATTRIBUTE_PATH_EXPECTED = "an attribute, a path such as address.city, or a list of names that may hold dots"


class DynamodbColumn(_WrittenColumn, frozen=True, kw_only=True):
    """A lake column and the attribute, or the place in a map, that it holds."""

    source_type: Annotated[
        Literal["S", "N", "B", "BOOL", "M", "L", "SS", "NS", "BS"],
        Meta(description="DynamoDB's type; of a path, the type of what it leads to."),
    ]
    path: (
        Annotated[
            _ATTRIBUTE_PATH,
            Meta(
                description="The attribute where it has another name, a path into its maps (settings.locale), or a "
                "list of names, which may hold dots ([nick.name]). Capitals count.",
                extra={"expected": ATTRIBUTE_PATH_EXPECTED},
            ),
        ]
        | UnsetType
    ) = field(name="from", default=UNSET)


_HOW = Literal["hmac"] | None
"""The value that is stored in place of the source's."""


class WrittenHistory(_Written, frozen=True, kw_only=True):
    """The change history that is kept beside the table, in a table of its own."""

    keep_days: Annotated[
        int,
        Meta(
            ge=1,
            le=36_500,
            description="For how many days the table can be seen as it was: older changes go, but the last of each row "
            "stays.",
        ),
    ]
    buckets: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000,
            description="File groups per day; a first snapshot is of one day. Cannot be changed later.",
        ),
    ] = 1


class _WrittenContract(_Written, frozen=True, kw_only=True):
    table: Annotated[str, Meta(description="The lake table's name, as the file's.", **_NAME)]
    description: Annotated[
        str,
        Meta(
            # The catalog takes 2,048 bytes, and views and history add to it.
            max_length=1_500,
            pattern=rf"^(?=[\s\S]*\S)[^\x00-\x08\x0b\x0c\x0e-\x1f]*{END}",
            description="For readers and the catalog.",
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
            description="What becomes of a value that its column cannot hold. keep: the column is null, the value "
            "stands in _rest, and _unfit names the column. quarantine: the whole record is put aside.",
        ),
    ] = "keep"
    history: (
        Annotated[
            WrittenHistory,
            Meta(
                description="Keep all changes of so many days beside the table, for its state as of any instant, and "
                "for slowly changing dimensions.",
            ),
        ]
        | UnsetType
    ) = UNSET
    unnamed: Annotated[
        Literal["keep", "drop"],
        Meta(
            description="What becomes of what no column names. keep: it stands in _rest. drop: it is stored "
            "nowhere, and PostgreSQL's columns do not leave the source connector.",
        ),
    ] = "keep"


class PostgresqlContract(_WrittenContract, frozen=True, kw_only=True):
    """A lake table that is kept in step with a PostgreSQL table."""

    source: PostgresqlSource
    verify_with: (
        Annotated[
            str,
            Meta(
                description="An SQL file beside the contract that recomputes the source's rows, for headwater verify.",
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
                "the text's HMAC-SHA-256 under the environment's key, equal for equal texts. null: it has null.",
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
    """A lake table that is kept in step with a DynamoDB table."""

    source: DynamodbSource
    exclude: Annotated[
        list[_ATTRIBUTE_PATH],
        Meta(
            description="What is stored nowhere: an attribute, a path into its maps (settings.pin), or a list of "
            "names, which may hold dots. Capitals count.",
            examples=[["passwordHash", "settings.pin"]],
            extra={"expected": "a list of attributes, paths such as settings.pin, or lists of names"},
        ),
    ] = []
    mask: (
        Annotated[
            dict[str, _HOW],
            Meta(
                min_length=1,
                description="Attributes, or paths into their maps, whose values the lake does not have. hmac: it has "
                "the text's HMAC-SHA-256 under the environment's key, equal for equal texts. null: it has null.",
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
