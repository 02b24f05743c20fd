"""YAML as people write it."""

import pytest

from headwater.errors import UserError
from headwater.yaml_files import load_yaml


def test_a_field_that_is_written_twice_is_refused() -> None:
    with pytest.raises(UserError, match=r"x\.yaml: b: found in line 3 and in line 4, expected it once"):
        load_yaml("a:\n- 1\nb: 1\nb: 2\n", "x.yaml")


def test_the_same_name_may_stand_in_two_places() -> None:
    assert load_yaml("a: {b: 1}\nb: {b: 2}\n", "x.yaml") == {"a": {"b": 1}, "b": {"b": 2}}


def test_what_is_not_yaml_is_refused() -> None:
    with pytest.raises(UserError, match=r"x\.yaml: not YAML"):
        load_yaml("a: [", "x.yaml")
