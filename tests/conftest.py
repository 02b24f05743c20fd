"""Fixtures that several kinds of tests share. Each starts its part once a session, and stops it at the end.

A fixture imports its part itself, because every process of pytest reads this file, and most processes start no part.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.postgresql_versions import MAJORS, binaries

if TYPE_CHECKING:
    from rig.local.aws import AwsApi
    from rig.local.kafka import Broker
    from rig.local.postgresql_server import PostgresqlServer

pytest_plugins = ["tests.heavy_starts", "tests.suites"]

# Importing aws_cdk starts the first `node` on the PATH: here always the virtual environment's. An old node of the
# machine would take minutes in place of seconds.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

# libpq's variables, such as PGSSLMODE, are meant for other servers than the tests' own.
for variable in [name for name in os.environ if name.startswith("PG")]:
    del os.environ[variable]


@pytest.fixture(scope="session")
def session_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parts")


@pytest.fixture(scope="session")
def postgres(session_folder: Path) -> Iterator[PostgresqlServer]:
    from rig.local.postgresql_server import PostgresqlServer

    with PostgresqlServer(session_folder / "postgres") as server:
        yield server


@pytest.fixture(scope="session", params=MAJORS, ids=lambda major: f"PostgreSQL {major}")
def versioned_postgres(request: pytest.FixtureRequest, session_folder: Path) -> Iterator[PostgresqlServer]:
    """The oldest and the newest PostgreSQL in turn: see ``tests/postgresql_versions.py``."""
    from rig.local.postgresql_server import PostgresqlServer

    with PostgresqlServer(
        session_folder / f"postgres-{request.param}", {"max_prepared_transactions": "2"}, binaries(request.param)
    ) as server:
        yield server


@pytest.fixture(scope="session")
def broker(session_folder: Path) -> Iterator[Broker]:
    from rig.local.kafka import Broker

    with Broker(session_folder / "kafka") as server:
        yield server


@pytest.fixture(scope="session")
def aws_api(session_folder: Path) -> Iterator[AwsApi]:
    from rig.local.aws import AwsApi

    with AwsApi(session_folder / "aws") as server:
        yield server
