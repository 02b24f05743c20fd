from __future__ import annotations

from collections.abc import Iterator

import pytest

from rig.local_aws.account import LocalAccount


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=3, help="how often a drill in test_kills.py kills its part")


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAccount]:
    """An account of the local AWS behind whose resources nothing runs."""
    with LocalAccount(tmp_path_factory.mktemp("account"), idle=True) as account:
        account.start()
        yield account
