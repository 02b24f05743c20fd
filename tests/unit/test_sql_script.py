"""Scripts are split as psql splits them."""

import pytest

from headwater.definitions.sql_script import ScriptError, split
from headwater.lake_folder import EXAMPLE


def texts(script: str) -> list[str]:
    return [statement.text for statement in split(script)]


def test_a_script_is_split_into_statements() -> None:
    script = """
    -- a comment; with a semicolon
    SELECT ';' AS "a;b";  /* another; /* within */ it; */
    DO $$ BEGIN PERFORM 1; END $$;
    CREATE FUNCTION f() AS $body$ SELECT $$;$$; $body$
    """
    assert texts(script) == [
        "SELECT ';' AS \"a;b\"",
        "DO $$ BEGIN PERFORM 1; END $$",
        "CREATE FUNCTION f() AS $body$ SELECT $$;$$; $body$",
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT E'it\\'s; one' || 'it''s; one'",
        "CREATE RULE r AS ON INSERT TO t DO ALSO (DELETE FROM a; DELETE FROM b)",
        "CREATE OR REPLACE FUNCTION f() RETURNS int LANGUAGE sql"
        " BEGIN ATOMIC SELECT 1; SELECT CASE WHEN true THEN 2 END; END",
        "CREATE PROCEDURE p() BEGIN ATOMIC DELETE FROM a; END",
        "SELECT a$b$c, $1, 1$$;$$",
        "SELECT $ä$;$ä$",
        "INSERT INTO begin VALUES (1) -- in; it\n RETURNING 1",
    ],
)
def test_semicolons_within_a_statement_do_not_end_it(statement: str) -> None:
    assert texts(f"SELECT 0;\n{statement};\nSELECT 2") == ["SELECT 0", statement, "SELECT 2"]


def test_comments_alone_are_no_statement() -> None:
    assert texts("-- only this") == texts("/* and; this */;\n;") == texts("") == []


def test_a_statement_knows_its_line_and_its_words() -> None:
    first, second = split("-- one\n\nSELECT 'not this', \"nor\" that;\n/* two\n */ create\n index x;")
    assert (first.line, first.words) == (3, ("SELECT", "THAT"))
    assert (second.line, second.words) == (5, ("CREATE", "INDEX", "X"))


@pytest.mark.parametrize(
    ("script", "line", "found"),
    [
        ("SELECT 1;\n\\connect shop\nSELECT 2;", 2, r"\\connect shop, a psql meta-command"),
        ("SELECT 1 \\gexec", 1, r"\\gexec, a psql meta-command"),
        ("SELECT 1;\nCOPY t (a) FROM stdin;\n1\tit's\n\\.\n", 2, "a COPY whose rows psql sends"),
        ("SELECT 1;\n\nSELECT 'a;\n", 3, "a text that begins with ' and does not end"),
        ('SELECT "a', 1, 'a text that begins with " and'),
        ("SELECT $a$ $b$", 1, r"a text that begins with \$a\$ and"),
        ("\n/* /* */", 2, r"a comment that begins with /\* and"),
    ],
)
def test_what_psql_would_do_itself_is_refused_with_its_line(script: str, line: int, found: str) -> None:
    with pytest.raises(ScriptError, match=f"line {line}: found {found}"):
        split(script)


def test_the_projects_scripts_hold_statements_and_between_them_only_comments() -> None:
    for script in sorted(EXAMPLE.database.glob("*.sql")):
        rest = script.read_text(encoding="utf-8")
        for statement in texts(rest):
            before, whole, rest = rest.partition(statement)
            assert whole == statement
            assert _has_only_comments(before), (script.name, before)
        assert _has_only_comments(rest), (script.name, rest)


def _has_only_comments(text: str) -> bool:
    lines = (line.strip() for line in text.removeprefix(";").splitlines())
    return all(line == "" or line.startswith("--") for line in lines)
