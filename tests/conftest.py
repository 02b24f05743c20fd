"""Parts that several kinds of tests start: each once a session, stopped at its end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.local.aws import AwsApi
from headwater.local.kafka import Broker
from headwater.local.postgres import Postgres


@pytest.fixture(scope="session")
def session_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parts")


@pytest.fixture(scope="session")
def postgres(session_folder: Path) -> Iterator[Postgres]:
    with Postgres(session_folder / "postgres") as server:
        yield server


@pytest.fixture(scope="session")
def broker(session_folder: Path) -> Iterator[Broker]:
    with Broker(session_folder / "kafka") as server:
        yield server


@pytest.fixture(scope="session")
def aws_api(session_folder: Path) -> Iterator[AwsApi]:
    with AwsApi(session_folder / "aws") as server:
        yield server
