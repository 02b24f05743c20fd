"""YAML as people write it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest

from headwater.errors import UserError
from headwater.yaml_files import convert, load_yaml, read_yaml, remove_value, set_value, yaml_paths


def test_a_field_that_is_written_twice_is_refused() -> None:
    with pytest.raises(UserError, match=r"x\.yaml: b: found in line 3 and in line 4, expected it once"):
        load_yaml("a:\n- 1\nb: 1\nb: 2\n", "x.yaml")


def test_the_same_name_may_stand_in_two_places() -> None:
    assert load_yaml("a: {b: 1}\nb: {b: 2}\n", "x.yaml") == {"a": {"b": 1}, "b": {"b": 2}}


def test_a_value_is_replaced_and_all_around_it_stays() -> None:
    text = "# top\na:\n  b: 1   # of a\nb: {c: 'two', b: 3}\n"
    assert set_value(text, ("a", "b"), "12") == text.replace("b: 1 ", "b: 12 ")
    assert set_value(text, ("b", "c"), "x") == text.replace("'two'", "x")
    for path in (("a",), ("a", "b", "c")):
        with pytest.raises(KeyError):
            set_value(text, path, "1")


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("a:\n  b: 1   # of a\n\n# of c\nc: 2", "a.d", "a:\n  b: 1   # of a\n  d: 5\n\n# of c\nc: 2"),
        ("a:\n  b:\n    - 1\n# of c\nc: 2\n", "a.d", "a:\n  b:\n    - 1\n  d: 5\n# of c\nc: 2\n"),
        ("a:\n  b:\n    c: 1\nd: 2\n", "a.b.e", "a:\n  b:\n    c: 1\n    e: 5\nd: 2\n"),
        ("a: 1  # no line break", "b.c", "a: 1  # no line break\nb:\n  c: 5\n"),
        ("a: {b: 1}  # both\nc: 2\n", "a.d", "a: {b: 1, d: 5}  # both\nc: 2\n"),
        ("a: {}\n", "a.b.c", "a: {b: {c: 5}}\n"),
        ("a: {b: {c: 1}, d: 2}\n", "a.b.e", "a: {b: {c: 1, e: 5}, d: 2}\n"),
        ("# only\na: |\n  text\n  more\n\nb: 1\n", "c", "# only\na: |\n  text\n  more\n\nb: 1\nc: 5\n"),
    ],
)
def test_a_field_that_is_not_there_is_added_to_its_mapping(text: str, path: str, expected: str) -> None:
    assert set_value(text, path.split("."), "5") == expected
    assert set_value(expected, path.split("."), "5") == expected


def test_a_field_is_added_behind_the_one_that_is_named() -> None:
    text = "a: 1  # one\n\n# of b\nb: 2\n"
    assert set_value(text, ("c",), "5", behind="a") == "a: 1  # one\nc: 5\n\n# of b\nb: 2\n"
    assert set_value(text, ("c",), "5", behind="x") == f"{text}c: 5\n"


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("a: 1\nb: 2   # of b\nc: 3\n", "b", "a: 1\nc: 3\n"),
        ("a: 1\n# of b\n# too\nb: 2\n# of c\nc: 3\n", "b", "a: 1\n# of c\nc: 3\n"),
        ("a: 1\n# of all\n\nb: 2\nc: 3", "b", "a: 1\n# of all\n\nc: 3"),
        ("a: 1\nb: 2  # of b\n      # and more\nc: 3\n", "b", "a: 1\nc: 3\n"),
        ("# of the file\na: 1\nb: 2\n", "a", "# of the file\nb: 2\n"),
        (
            "a:\n  b: 1\n  # of c\n  c:\n    - 2\n\n  d: |\n    x\n\ne: 3\n",
            "a.c",
            "a:\n  b: 1\n\n  d: |\n    x\n\ne: 3\n",
        ),
        ("a:\n  b: 1\n  d: |\n    x\n\ne: 3\n", "a.d", "a:\n  b: 1\n\ne: 3\n"),
        ("x: 0\n# of a\na:\n  # of b\n  b: 1\nc: 2\n", "a.b", "x: 0\nc: 2\n"),
        ("a: {b: 1, c: 2, d: 3}  # all\n", "a.b", "a: {c: 2, d: 3}  # all\n"),
        ("a: {b: 1, c: 2, d: 3}  # all\n", "a.c", "a: {b: 1, d: 3}  # all\n"),
        ("a: {b: 1, c: 2, d: 3}  # all\n", "a.d", "a: {b: 1, c: 2}  # all\n"),
        ("a: {b: {c: 1}}\nd: 2\n", "a.b.c", "d: 2\n"),
        ("a: [1, 2]\nb: null\n", "b", "a: [1, 2]\n"),
        ("a: 1\nb:\nc: 2\n", "b", "a: 1\nc: 2\n"),
    ],
)
def test_a_field_is_removed_with_its_comments(text: str, path: str, expected: str) -> None:
    assert remove_value(text, path.split(".")) == expected


@pytest.mark.parametrize("path", ["b", "a.c", "a.b.c", "d.e"])
def test_a_field_that_is_not_there_cannot_be_removed(path: str) -> None:
    with pytest.raises(KeyError):
        remove_value("a: {b: 1}\nd: [1]\n", path.split("."))


def test_what_is_not_yaml_is_refused() -> None:
    with pytest.raises(UserError, match=r"x\.yaml: not YAML"):
        load_yaml("a: [", "x.yaml")


@pytest.mark.parametrize("text", ["since: 2024-13-01", "a: &b [*b, c", "- a\nb: 1"])
def test_what_yaml_cannot_read_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"x\.yaml: not YAML"):
        load_yaml(text, "x.yaml")


@pytest.mark.parametrize("text", ["{{a: 1}: b}", "? [a, b]\n: 1"])
def test_a_field_that_is_named_by_a_list_or_a_mapping_is_refused(text: str) -> None:
    with pytest.raises(
        UserError, match=r"x\.yaml: line 1: found a field named by a list or a mapping, expected a text"
    ):
        load_yaml(text, "x.yaml")


@pytest.mark.parametrize(
    "text", ['{a: "f(1,2)"}', "{a: f(1), b: }", "a: f(1,2)", "{a: (b, c: 1}", "{a: 'f(1', '2)': }", "{a: [f(1, 2)]}"]
)
def test_a_comma_that_splits_no_value_is_left_alone(text: str) -> None:
    load_yaml(text, "x.yaml")


def test_a_value_that_its_comma_splits_is_refused_wherever_it_stands() -> None:
    with pytest.raises(UserError, match=r'x\.yaml: line 2: a: found f\(1,2\) without quotes, expected a: "f\(1,2\)"'):
        load_yaml("b:\n- {name: [c], a: f(1,2)}", "x.yaml")


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"x\.yaml: cannot be read: No such file"):
        read_yaml(tmp_path / "x.yaml")
    (tmp_path / "x.yaml").write_bytes(b"a: \xff")
    with pytest.raises(UserError, match=r"x\.yaml: found 0xff at byte 3, expected UTF-8"):
        read_yaml(tmp_path / "x.yaml")


@pytest.mark.parametrize("name", ["b.yml", "b.YAML", "b.Yml"])
def test_a_file_whose_ending_is_not_read_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.yaml").touch()
    assert yaml_paths(tmp_path) == [tmp_path / "a.yaml"]
    (tmp_path / name).touch()
    with pytest.raises(UserError, match=r"expected \.yaml: rename the file"):
        yaml_paths(tmp_path)


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    count: Annotated[int, msgspec.Meta(ge=1, le=3)]
    share: Annotated[float, msgspec.Meta(ge=0.5)] = 1
    kind: Literal["big", "small"] = "big"
    on: bool = True
    code: Annotated[str, msgspec.Meta(pattern="^[0-9]+$", extra={"expected": "digits in quotes"})] = "1"


class Whole(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    parts: tuple[Part, ...]
    spare: Part | None = None
    texts: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        (None, "content: found None, expected a mapping with name, parts, spare, texts"),
        ({"parts": []}, "name: found nothing, expected a text"),
        ({"name": 16.9, "parts": []}, "name: found 16.9, expected a text in quotes"),
        ({"name": ["a"], "parts": []}, "name: found ['a'], expected a text"),
        ({"name": "a", "parts": {}}, "parts: found {}, expected a list of mappings"),
        ({"name": "a", "parts": [], "texts": "b"}, "texts: found 'b', expected a list of texts"),
        ({"name": "a", "parts": [], True: 1}, "True: found an unknown field, expected name, parts, spare, texts"),
        ({"name": "a", "parts": [{}]}, "parts[0].count: found nothing, expected a whole number, 1 to 3"),
        ({"name": "a", "parts": [{"count": 4}]}, "parts[0].count: found 4, expected 1 to 3"),
        ({"name": "a", "parts": [{"count": True}]}, "parts[0].count: found True, expected a whole number, 1 to 3"),
        ({"name": "a", "parts": [], "spare": 1}, "spare: found 1, expected a mapping with count, share, kind, on, cod"),
        ({"name": "a", "parts": [], "spare": {"count": 1, "share": 0}}, "spare.share: found 0, expected 0.5 or more"),
        (
            {"name": "a", "parts": [], "spare": {"count": 1, "share": "1"}},
            "spare.share: found '1', expected a number, 0.5 or more",
        ),
        (
            {"name": "a", "parts": [], "spare": {"count": 1, "kind": "x"}},
            "spare.kind: found 'x', expected big or small",
        ),
        ({"name": "a", "parts": [], "spare": {"count": 1, "on": 1}}, "spare.on: found 1, expected true or false"),
        ({"name": "a", "parts": [], "spare": {"count": 1, "code": "x"}}, "spare.code: found 'x', expected digits in q"),
        ({"name": "a", "parts": [], "spare": {"count": 1, "code": 1}}, "spare.code: found 1, expected digits in quot"),
        (
            {"name": "a", "parts": [{"count": 1}, {"cuont": 1}]},
            "parts[1].cuont: found an unknown field, expected count or another of share, kind, on, code",
        ),
        (
            {"name": "a", "parts": [{"count": 1, None: 1}]},
            "parts[0].None: found an unknown field, expected on or another of count, share",
        ),
    ],
)
def test_a_document_that_does_not_fit_is_refused_with_field_found_and_expected(document: Any, complaint: str) -> None:
    with pytest.raises(UserError) as refused:
        convert(document, Whole, "x.yaml")
    assert str(refused.value).startswith(f"x.yaml: {complaint}")


def test_a_document_that_fits_is_converted() -> None:
    document = {"name": "a", "parts": [{"count": 1, "share": 2}], "spare": None, "texts": ["b"]}
    assert convert(document, Whole, "x.yaml") == Whole("a", (Part(1, 2.0),), None, ("b",))
