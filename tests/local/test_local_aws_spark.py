"""Spark's cluster of the local AWS runs what the account submits to it, and nothing for others who reach its ports."""

from __future__ import annotations

import http.client
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from headwater.waiting import wait_until
from rig.local import aws
from rig.local_aws.account_context import AccountContext
from rig.local_aws.node import Node
from tests.listening import listening

pytestmark = pytest.mark.drill

NO_STORE: Any = None
JOB = "from pyspark import SparkContext\nprint(SparkContext().parallelize(range(3), 1).sum())\n"
# Hudi's one comes with a job's jars.
PLAIN = {"spark.serializer": "org.apache.spark.serializer.JavaSerializer"}
REFUSED = "Failed to connect to master"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    context = AccountContext("111111111111", aws.REGION, NO_STORE, aws.make_credentials())
    folder = tmp_path_factory.mktemp("node")
    with Node(folder, context, aws.environment({}), defaults=PLAIN, exported={}, memory_mib=2048) as node:
        (folder / "job.py").write_text(JOB)
        yield node


def test_a_job_runs_with_the_secret_of_its_cluster_and_not_without(node: Node) -> None:
    with node.submit("a job", [str(node.folder / "job.py")], node.folder / "own") as job:
        assert job.await_end() == 0
    assert (node.folder / "own" / "stdout").read_text().splitlines()[-1] == "3"
    # Of the settings a stranger lacks the secret alone.
    settings = (node.folder / "own" / "conf" / "spark-defaults.conf").read_text()
    conf = node.folder / "strangers"
    conf.mkdir()
    known = [line for line in settings.splitlines(keepends=True) if not line.startswith("spark.authenticate")]
    (conf / "spark-defaults.conf").write_text("".join(known))
    log = conf / "log"
    environment = {**(job.program.env or {}), "SPARK_CONF_DIR": str(conf)}
    with log.open("wb") as out, subprocess.Popen(job.program.argv, env=environment, stdout=out, stderr=out) as stranger:
        wait_until("an answer to the stranger", lambda: stranger.poll() is not None or REFUSED in log.read_text())
        stranger.kill()
    assert REFUSED in log.read_text()
    assert "\n3\n" not in log.read_text()


def test_the_pages_of_its_daemons_show_nothing(node: Node) -> None:
    ports = {each.port for each in listening() if "org.apache.spark.deploy." in each.command}
    assert len(ports) == 4
    answers = [answer for port in ports for path in ("/", "/json/") if (answer := get(port, path)) is not None]
    # They send everybody away to an address that no machine has.
    assert answers == [302] * 4


def get(port: int, path: str) -> int | None:
    """The status of an answer; None from what speaks no HTTP."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def test_no_secret_of_it_is_on_a_command_line_or_readable(node: Node) -> None:
    (secret,) = {
        line.split()[1]
        for path in node.folder.rglob("*.conf")
        for line in path.read_text().splitlines()
        if line.startswith("spark.authenticate.secret")
    }
    commands = [" ".join(program.cmdline()) for program in psutil.Process().children(recursive=True)]
    assert [command for command in commands if secret in command] == []
    holding = [path for path in node.folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert len(holding) >= 2
    assert [path for path in holding if os.stat(path).st_mode & 0o077] == []
