"""What ``headwater replicate`` prints of its comparison, and its status."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headwater.cli import app
from headwater.packaging import artifacts
from headwater.verify import Example, NotCompared, TableComparison
from rig.demo import replication

EQUAL = TableComparison("customers", 3, 3, 0, 0, 0)
DIFFERENT = TableComparison(
    "orders", 3, 3, 0, 0, 1, (Example("different", {"order_id": "10248"}, {"freight": ("32.38", "99.00")}),)
)
FAILURE = NotCompared([EQUAL], {"products": "contracts/products.yaml: columns: price: found no column price"})


class Pipeline:
    """A pipeline whose comparisons are given."""

    def __init__(self, *found: list[TableComparison] | NotCompared) -> None:
        self._found = list(found)

    def drain(self, patience: float) -> None:
        pass

    def verify(self) -> list[TableComparison]:
        found = self._found.pop(0)
        if isinstance(found, NotCompared):
            raise found
        return found


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    def run(*found: list[TableComparison] | NotCompared) -> Result:
        def replicate(*given: Any) -> None:
            compared = given[-1]
            compared(replication._compare(Pipeline(*found), lambda text: nullcontext()), {}, lambda: None)  # type: ignore[arg-type]

        monkeypatch.setattr(replication, "replicate", replicate)
        return CliRunner().invoke(app, ["replicate", "--database", "shop"])

    monkeypatch.setenv("HEADWATER_CDC_PASSWORD", "of the connector")
    monkeypatch.setattr(artifacts, "build", lambda announce: None)
    return run


def test_equal_tables_end_with_zero(run: Callable[..., Result]) -> None:
    done = run([DIFFERENT], [EQUAL])
    assert (done.exit_code, "The lake equals its source." in done.stdout) == (0, True)


def test_a_difference_is_shown_with_its_values(run: Callable[..., Result]) -> None:
    done = run([DIFFERENT], [DIFFERENT], [EQUAL, DIFFERENT])
    assert done.exit_code == 1
    assert "orders order_id = 10248: different\n  freight: source 32.38 | lake 99.00\n" in done.stdout
    assert "orders: different rows (1): if the source was written meanwhile" in done.stdout
    assert "--repair" not in done.stdout


def test_one_tables_trouble_leaves_the_others_compared(run: Callable[..., Result]) -> None:
    done = run(FAILURE)
    assert done.exception is FAILURE
    assert "customers" in done.stdout
    assert "The lake equals" not in done.stdout
    assert str(FAILURE) == (
        "1 of 2 tables could not be compared: products\ncontracts/products.yaml: columns: price: found no column price"
    )
