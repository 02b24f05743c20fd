"""Conditions of ``headwater resync --where`` on the PostgreSQL of a table that masks and excludes columns. The command
takes conditions on columns that it shows, and PostgreSQL refuses conditions on any other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headwater.cli import app
from headwater.errors import UserError
from rig.local.postgresql_server import PostgresqlServer
from tests.lake_folders import lake_folder

CONTRACT = """
table: customers
description: Customers with columns that must not be revealed.
source: {database: postgresql, table: shop.customers, replica_identity: default}
key: [id, region]
partition_by: []
buckets: 1
exclude: [Paßwort, token]
mask: {phone: null, email: hmac}
columns:
  - {name: id, type: int, source_type: integer}
  - {name: region, type: string, source_type: text}
  - {name: name, type: string, source_type: text}
"""
SOURCE = """
CREATE SCHEMA shop;
CREATE EXTENSION IF NOT EXISTS citext;
CREATE TYPE shop.mood AS ENUM ('sad', 'glad');
CREATE DOMAIN shop.positive AS integer CHECK (VALUE > 0);
CREATE TYPE shop.address AS (street text, town text);
CREATE TABLE shop.customers (
    id integer, region text, name text, phone text, email text, "Paßwort" text, "Größe" text, "Nick Name" citext,
    ok boolean, mood shop.mood, notes jsonb, tags text[], age shop.positive, seen_at timestamptz, born date,
    count integer, home shop.address, upper_name text GENERATED ALWAYS AS (upper(name)) STORED,
    digits text GENERATED ALWAYS AS (translate(phone, ' ', '')) STORED, token text, PRIMARY KEY (id, region)
);
INSERT INTO shop.customers VALUES (
    1, 'EU', 'Ann', '555', 'a@b.c', 'hush', 'groß', 'Annie', true, 'glad', '{"a": "x"}', '{vip}', 40, '2026-01-02',
    '1986-01-01', 7
);
CREATE TABLE shop.others (id integer PRIMARY KEY, phone text);
CREATE TABLE shop.numbers (n integer);
CREATE FUNCTION shop.phone_of(id integer) RETURNS text LANGUAGE sql IMMUTABLE SECURITY DEFINER
    AS 'SELECT phone FROM shop.customers AS c WHERE c.id = $1';
CREATE FUNCTION public.anything(shop.customers) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT $1.phone';
CREATE FUNCTION shop.is_like(text, text) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT true';
CREATE OPERATOR shop.~~~ (LEFTARG = text, RIGHTARG = text, FUNCTION = shop.is_like);
CREATE FUNCTION shop.to_address(integer) RETURNS shop.address LANGUAGE sql IMMUTABLE
    AS 'SELECT (phone, email)::shop.address FROM shop.customers WHERE id = $1';
CREATE CAST (integer AS shop.address) WITH FUNCTION shop.to_address(integer);
"""
GOOD = (
    "id = 1",
    "(id = 1) AND (region = 'EU')",
    "(id, region) IN ((1, 'EU'), (2, 'US'))",
    "(id, region) >= (1, 'A')",
    "customers.id = 1 AND shop.customers.id = 1",
    "id IN (1, 2) AND id BETWEEN 0 AND 3 AND id <> ALL (ARRAY[7, 8])",
    "name LIKE 'A%' AND name ILIKE 'a%' AND name ~ '^A' AND NAME SIMILAR TO 'A%'",
    '"Größe" = \'groß\' AND "Größe" IS NOT NULL',
    "\"Nick Name\" = 'annie'",
    "U&\"\\006eame\" = 'Ann'",
    "ok AND ok IS TRUE AND NOT (ok IS UNKNOWN)",
    "mood = 'glad' AND mood IN ('sad', 'glad') AND mood > 'sad'",
    "notes @> '{\"a\": \"x\"}' AND notes ->> 'a' = 'x' AND notes['a'] = '\"x\"'",
    "'vip' = ANY (tags) AND tags && ARRAY['vip'] AND tags[1] = 'vip'",
    "age = 40",
    "seen_at >= '2026-01-01' AND seen_at < now() + interval '1000 years' AND seen_at::date > DATE '2025-01-01'",
    "born < CURRENT_DATE AND extract(year FROM born) = 1986 AND date_trunc('month', born) = '1986-01-01'",
    "count = 7 AND id::text = '1' AND CAST(count AS bigint) = 7",
    "name COLLATE \"C\" = 'Ann' AND lower(name) = 'ann' AND coalesce(name, '') <> '' AND length(trim(name)) = 3",
    "CASE WHEN id = 1 THEN true ELSE false END AND nullif(id, 2) = 1 AND greatest(id, 0) = 1",
    "name IS DISTINCT FROM 'phone' AND name <> 'customers.* select (' AND name <> $$it's )$$ AND name <> E'\\''",
    "(home).street IS NULL",
    "name <> 'x :opfuncid 2626 {SUBLINK :selectedCols (b 7)'",
)
BAD = {
    "a masked column": (
        "phone LIKE '5%'",
        "PHONE = '555'",
        "customers.email = 'a@b.c'",
        "shop.customers.phone = '555'",
        "id = 1 OR length(phone) = 3",
        "U&\"\\0070hone\" = '555'",
        "U&\"!0070hone\" UESCAPE '!' = '555'",
        "\"Paßwort\" = 'hush'",
        "(customers).phone = '555'",
        "phone(customers) = '555'",
        "(phone, id) = ('555', 1)",
        "CASE WHEN phone = '555' THEN 1 / (id - id) = 1 ELSE true END",
        "coalesce(name, phone) = '555'",
        '"phone" COLLATE "C" > \'5\'',
        "tags @> ARRAY[phone]",
        "was_secret = 'x'",
        "ROW(customers.*) IS NOT NULL",
    ),
    "a generated column": ("digits = '555'", "upper_name = 'ANN'"),
    "the whole row": (
        "customers::text LIKE '%555%'",
        "customers.*::text LIKE '%555%'",
        "row_to_json(customers) IS NOT NULL",
        "to_jsonb(customers) ->> 'phone' = '555'",
        "(customers).name = 'Ann'",
        "customers IS NOT NULL",
        "customers = customers",
        "hash_record(customers) = 1",
        "format('%s', customers) LIKE '%555%'",
        "anything(customers) = '555'",
        "customers.anything = '555'",
        "num_nulls(VARIADIC ARRAY[customers]) = 0",
    ),
    "a system column": ("ctid = '(0,1)'", "xmin::text = '1'", "tableoid = 1"),
    "a subquery": (
        "EXISTS (SELECT FROM shop.customers AS x WHERE x.phone = '555')",
        "id IN (SELECT id FROM shop.others)",
        "'555' = (SELECT o.phone FROM shop.others AS o WHERE o.id = customers.id)",
        "id = ANY (ARRAY(TABLE shop.numbers))",
        "(VALUES (true))",
        "(WITH x AS (SELECT phone FROM shop.customers) SELECT true FROM x LIMIT 1)",
        "(SELECT (customers).phone) = '555'",
    ),
    "a function": (
        "shop.phone_of(id) = '555'",
        "name OPERATOR(shop.~~~) 'x'",
        "(id::shop.address).street = '555'",
        "query_to_xml('SELECT phone FROM shop.customers', true, true, '') IS NOT NULL",
        "table_to_xml('shop.customers', true, true, '')::text LIKE '%555%'",
        "schema_to_xml('shop', true, true, '')::text LIKE '%555%'",
        "database_to_xml(true, true, '')::text LIKE '%555%'",
        "pg_read_file('/etc/passwd') <> ''",
        "pg_sleep(0) IS NULL",
        "random() < 0.5",
        "nextval('shop.s') > 0",
        "set_config('x.y', name, false) = ''",
        "pg_advisory_lock(id) IS NULL",
        "pg_logical_emit_message(false, 'headwater', name) IS NULL",
        "current_setting('data_directory') <> ''",
        "lo_import('/etc/passwd') > 0",
        "pg_notify('x', name) IS NULL",
        "40::shop.positive = id",
    ),
    "another statement or clause": (
        "id = 1; DELETE FROM shop.customers",
        "id = 1) OR (true",
        "true) AND (phone = '555'",
        "true) UNION SELECT FROM shop.customers WHERE (phone = '555'",
        "true) LIMIT (1",
        "true) ORDER BY (phone",
        "true) GROUP BY (id) HAVING (true",
        "true) FOR UPDATE OF customers",
        "true) HAVING (true",
        "(id = 1",
        "id = 1 -- x",
        "id = 1 /* x */",
        "name = 'it",
        "id = $1",
        "id = ?",
        "true, true",
        "true AS x",
        "id",
        "   ",
        "*",
        "{fn now()} = now()",
    ),
    "rows of others": (
        "count(*) > 1",
        "max(phone) = '555'",
        "row_number() OVER () = 1",
        "generate_series(1, id) = 1",
        "unnest(tags) = 'vip'",
        "others.id = 1",
        "DEFAULT",
    ),
}
SAYS = {
    "a masked column": re.compile(
        r"found (phone|email|Paßwort|was_secret)[^\n]*, which customers masks, excludes or does not"
    ),
    "a generated column": re.compile(r"found (digits|upper_name), which customers"),
    "the whole row": re.compile(r"found the whole row of shop.customers, which"),
    "a system column": re.compile(r"found a system column, which"),
    "a subquery": re.compile(r"found a subquery, expected a condition on the columns of one row"),
    "a function": re.compile(r"found (the function [\w.]+\(|a cast to a domain, expected)|does not exist"),
}
ANYTHING = re.compile("^--where: found ")
SHOWN = "expected columns out of: id, region, name, Größe, Nick Name, ok, mood,"
_numbers = count(1)


class Shop:
    """A captured database, and the command on it."""

    def __init__(self, server: PostgresqlServer, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server, self.name, self.folder = server, name, folder
        self._monkeypatch = monkeypatch
        self.user = server.superuser
        monkeypatch.setenv("HEADWATER_CDC_PASSWORD", "of the connector")
        monkeypatch.setenv("HEADWATER_DB_PASSWORD", server.password)
        self.owner = server.connect(name)

    def log_in(self, user: str, password: str) -> None:
        """Have the command connect as this user."""
        self.user = user
        self._monkeypatch.setenv("HEADWATER_DB_PASSWORD", password)

    def run(self, *command: str) -> Result:
        at = ["--host", self.server.host, "--port", str(self.server.port), "--database", self.name, "--user", self.user]
        folder = lake_folder(self.folder / "lake", self.folder)
        return CliRunner().invoke(app, [*command, *at, "--folder", str(folder.root)])

    def takes(self, where: str) -> str:
        """The command's output for a condition that it takes."""
        done = self.run("resync", "customers", "--where", where)
        assert done.exit_code == 0, (where, done.output, done.exception)
        return done.stdout

    def refuses(self, where: str) -> str:
        """The command's output for a condition that it refuses."""
        done = self.run("resync", "customers", "--where", where)
        return str(done.exception) if isinstance(done.exception, UserError) else f"taken: {done.output}"

    def filters(self) -> list[str]:
        """The conditions in the signals to the connector."""
        found = self.owner.execute("SELECT data::json -> 'additional-conditions' -> 0 ->> 'filter' FROM capture.signal")
        return [condition for (condition,) in found.fetchall()]

    def all_that_is_there(self) -> list[tuple[object, ...]]:
        """The catalogue's entries."""
        kinds = ("pg_class", "pg_proc", "pg_type", "pg_namespace", "pg_rewrite", "pg_depend", "pg_largeobject_metadata")
        counted = [f"SELECT '{kind}', count(*), max(xmin::text::bigint) FROM {kind}" for kind in kinds]
        return self.owner.execute(" UNION ALL ".join(counted).encode()).fetchall()


@pytest.fixture
def shop(versioned_postgres: PostgresqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    name = f"shop_{next(_numbers)}"
    (tmp_path / "customers.yaml").write_text(CONTRACT, encoding="utf-8")
    with versioned_postgres.connect() as maintenance:
        maintenance.execute(f"CREATE DATABASE {name}".encode())
        shop = Shop(versioned_postgres, name, tmp_path, monkeypatch)
        shop.owner.execute(SOURCE.encode())
        assert shop.run("db", "capture").exit_code == 0
        shop.owner.execute("ALTER TABLE shop.customers RENAME token TO was_secret")
        yield shop
        shop.owner.close()
        maintenance.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
        # A role belongs to the server, and another file's tests may not alter one that is there.
        maintenance.execute("DROP ROLE headwater_cdc")


def test_conditions_on_shown_columns_are_taken(shop: Shop) -> None:
    # The source may let nobody make anything.
    shop.owner.execute(
        "CREATE FUNCTION shop.refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'no DDL'; END$$"
    )
    shop.owner.execute("CREATE EVENT TRIGGER no_ddl ON ddl_command_start EXECUTE FUNCTION shop.refuse()")
    shop.owner.execute(f"REVOKE TEMPORARY ON DATABASE {shop.name} FROM PUBLIC".encode())
    before = shop.all_that_is_there()
    shop.log_in("headwater_cdc", "of the connector")
    for where in GOOD:
        found = shop.owner.execute(f"SELECT count(*) FROM shop.customers WHERE ({where})".encode()).fetchone()
        assert found is not None
        assert f"Requested a read of {found[0]} rows of customers" in shop.takes(where)
    assert sorted(shop.filters()) == sorted(f"({where})" for where in GOOD)
    assert shop.all_that_is_there() == before


def test_conditions_that_could_reveal_more_are_refused(shop: Shop) -> None:
    before = shop.all_that_is_there()
    said = {(kind, where): shop.refuses(where) for kind, conditions in BAD.items() for where in conditions}
    wrong = {where: message for (kind, where), message in said.items() if not SAYS.get(kind, ANYTHING).search(message)}
    assert wrong == {}
    assert [message for message in said.values() if ", which customers" in message and SHOWN not in message] == []
    assert [where for (_, where), message in said.items() if "555" in message and "555" not in where] == []
    assert shop.filters() == []
    assert shop.all_that_is_there() == before


def test_columns_that_no_contract_names_are_refused_if_dropped(shop: Shop) -> None:
    (shop.folder / "customers.yaml").write_text(CONTRACT + "unnamed: drop\n", encoding="utf-8")
    assert "found mood, which customers" in shop.refuses("mood = 'glad'")
    assert "expected columns out of: id, region, name." in shop.refuses("customers IS NULL")
    assert "Requested a read of 1 rows" in shop.takes("name = 'Ann'")


def test_a_condition_waits_for_no_writer_and_not_long_for_a_lock(shop: Shop) -> None:
    with closing(shop.server.connect(shop.name)) as other, other.transaction():
        other.execute("LOCK TABLE shop.customers IN EXCLUSIVE MODE")
        assert "Requested a read of 1 rows" in shop.takes("id = 1")
        other.execute("LOCK TABLE shop.customers IN ACCESS EXCLUSIVE MODE")
        assert "found shop.customers locked for 5s, expected to read it" in shop.refuses("id = 1")
    assert shop.filters() == ["(id = 1)"]
