"""A cluster's node: a folder instead of a machine's disk, its role's credentials, and Spark's master and worker.

Executors get only the files that Spark ships from the driver.
"""

from __future__ import annotations

import os
import secrets
import stat
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from headwater import private_files, process_groups
from headwater.errors import UserError
from headwater.log_files import tail
from headwater.packaging import class_archive, wheels
from rig.local import java, spark
from rig.local.processes import Process, Program, free_ports
from rig.local_aws.account_context import AccountContext

# A machine's folder for added files; here it lies below the node's folder.
_ADDED = "/opt/"
_HEAP = "256m"
_FILTER = "org.apache.hadoop.yarn.server.webproxy.amfilter.AmIpFilter"
# Spark's daemons need their web pages, which show logs and end programs. This filter refuses every client that does not
# come from a proxy at an address that no machine has (RFC 5737).
_CLOSED_PAGES = {
    "spark.ui.filters": _FILTER,
    f"spark.{_FILTER}.param.PROXY_HOSTS": "192.0.2.1",
    f"spark.{_FILTER}.param.PROXY_URI_BASES": "http://192.0.2.1",
}
_SHIMS = {
    "sudo": '#!/bin/sh\nexec "$@"\n',
    # The part of AWS's command line that nodes use.
    "aws": """#!{python}
import argparse, urllib.parse, boto3
parser = argparse.ArgumentParser()
parser.add_argument("service", choices=["s3"])
parser.add_argument("command", choices=["cp"])
parser.add_argument("--only-show-errors", action="store_true")
parser.add_argument("--region")
parser.add_argument("source")
parser.add_argument("target")
options = parser.parse_args()
source = urllib.parse.urlsplit(options.source)
boto3.client("s3", region_name=options.region).download_file(source.netloc, source.path.lstrip("/"), options.target)
""",
}

# The nodes' Python on a machine that cannot run theirs: this Python, with its own packages.
_OWN_PYTHON = """#!/bin/sh
PYTHONPATH=$(printf %s "$PYTHONPATH" | tr : '\\n' | grep -v "^{added}" | paste -sd : -)
export PYTHONPATH
exec "{python}" "$@"
"""


class Node(ExitStack):
    """A node below ``folder``. Variables of ``account`` point its programs to the account and their role.

    ``defaults`` are the cluster's Spark settings, which override the machine's. ``exported`` are the variables of its
    Spark programs. ``memory_mib`` is the memory that executors may take.
    """

    def __init__(
        self,
        folder: Path,
        context: AccountContext,
        account: Mapping[str, str],
        *,
        defaults: Mapping[str, str],
        exported: Mapping[str, str],
        memory_mib: int,
    ) -> None:
        super().__init__()
        self.folder = folder.resolve()
        self._context = context
        self._account = account
        self._defaults = defaults
        self._exported = exported
        self._memory_mib = memory_mib
        self._master = ""
        self._daemons: list[Process] = []
        # Any client that reaches Spark's master could make it run a program.
        self._secret = {"spark.authenticate.secret": secrets.token_hex(32)}
        self._bin = self.folder / "bin"
        private_files.make_private(self.folder)
        self._bin.mkdir()
        self._shipped = spark.shipped_python()
        shims = dict(_SHIMS)
        if not self._shipped:
            shims[f"python{wheels.PYTHON}"] = _OWN_PYTHON.replace("{added}", self.localized(_ADDED))
        for name, text in shims.items():
            path = self._bin / name
            path.write_text(text.replace("{python}", sys.executable))
            path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def bootstrap(self, name: str, script: str, arguments: Sequence[str]) -> None:
        """Run a script from S3, as EMR does on each node before its applications.

        Raises UserError with the end of the script's output if it fails or hangs.
        """
        log = self.folder / "bootstrap.log"
        path = self._fetch(script)
        if self._context.idle:
            return
        command = ["bash", str(path), *map(self.localized, arguments)]
        what = f"the bootstrap action {name}"
        status = process_groups.run(what, command, log, self._environment(), self.folder)
        if status:
            raise UserError(f"{what} failed with {status}: {tail(log, 5)}")

    def __enter__(self) -> Node:
        """Start Spark on the node."""
        if self._context.idle:
            return self
        port, web_port, worker_port, worker_web_port = free_ports(4)
        self._master = f"spark://127.0.0.1:{port}"
        master = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web_port)]
        worker = ["--host", "127.0.0.1", "--port", str(worker_port), "--webui-port", str(worker_web_port)]
        worker += ["--cores", str(spark.CORES), "--memory", f"{self._memory_mib}m"]
        worker += ["--work-dir", str(self.folder / "work")]
        daemons = [
            self._daemon("master", "org.apache.spark.deploy.master.Master", master, port),
            self._daemon("worker", "org.apache.spark.deploy.worker.Worker", [*worker, self._master], worker_port),
        ]
        with ExitStack() as stack:
            for daemon in daemons:
                stack.enter_context(daemon)
            self._stack = stack.pop_all()
        self.callback(self._stack.close)
        self._daemons = daemons
        return self

    @property
    def lost(self) -> bool:
        """Whether a process of the node has ended by itself, as on a machine that is taken away."""
        return not all(daemon.running for daemon in self._daemons)

    def submit(self, name: str, arguments: Sequence[str], folder: Path) -> Process:
        """The spark-submit process with these arguments, not yet started.

        ``folder`` gets ``stdout`` and ``stderr``.
        """
        folder.mkdir(parents=True)
        settings = self._settings(folder)
        conf = folder / "conf"
        conf.mkdir()
        _write_settings(conf / "spark-defaults.conf", settings)
        program = Program(
            name,
            ["sleep", "infinity"] if self._context.idle else ["spark-submit", *map(self.localized, arguments)],
            folder / "stderr",
            stdout_path=folder / "stdout",
            env={**self._environment(), "SPARK_CONF_DIR": str(conf)},
            cwd=folder,
        )
        return Process(program)

    def localized(self, text: str) -> str:
        """A text with a machine's folders replaced by this node's folders."""
        return text.replace(_ADDED, f"{self.folder}{_ADDED}")

    def _fetch(self, uri: str) -> Path:
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        path = self.folder / key
        self._context.client("s3").download_file(bucket, key, str(path))
        return path

    def _settings(self, folder: Path) -> dict[str, str]:
        """The lines of ``spark-defaults.conf``: the machine's settings, then the cluster's."""
        place = spark.configuration(folder / "spark", endpoint=self._context.endpoint)
        # The job itself ships Hudi.
        path = os.pathsep.join(map(str, class_archive.class_path()))
        place |= {
            **self._secret,
            "spark.master": self._master,
            "spark.hadoop.fs.s3a.aws.credentials.provider": "com.amazonaws.auth.EC2ContainerCredentialsProviderWrapper",
            "spark.driver.extraClassPath": path,
            "spark.executor.extraClassPath": path,
            "spark.executor.extraJavaOptions": place["spark.driver.extraJavaOptions"],
        }
        return {**place, **self._defaults}

    def _environment(self) -> dict[str, str]:
        shared = {**self._account, **spark.environment(), **self._shipped}
        exported = {name: self.localized(value) for name, value in self._exported.items()}
        paths = [str(self._bin), str(Path(shared["SPARK_HOME"]) / "bin"), shared["PATH"]]
        return {
            **shared,
            **exported,
            # Otherwise the worker looks for a build of Spark around it.
            "SPARK_SCALA_VERSION": "2.12",
            "PATH": os.pathsep.join(paths),
        }

    def _daemon(self, name: str, main: str, arguments: Sequence[str], port: int) -> Process:
        folder = self.folder / name
        folder.mkdir(parents=True)
        environment = self._environment()
        settings = folder / "spark.conf"
        _write_settings(settings, {"spark.authenticate": "true", **self._secret, **_CLOSED_PAGES})
        program = java.JavaProgram(
            main,
            ["--properties-file", str(settings), *arguments],
            class_archive.class_path(),
            _HEAP,
            flags=class_archive.flags(),
        )
        argv = java.argv(program, folder)
        return Process(
            Program(f"Spark's {name}", argv, folder / f"{name}.log", env=environment, cwd=folder),
            port=port,
        )


def _write_settings(path: Path, settings: Mapping[str, str]) -> None:
    """Write a file with Spark's settings, which include a secret."""
    private_files.write(path, "".join(f"{key} {value}\n" for key, value in settings.items()))
