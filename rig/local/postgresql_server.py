"""A PostgreSQL server on this machine, from the binaries of the pgserver package or from others."""

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import psycopg

from headwater import private_files
from headwater.errors import UserError
from headwater.paths import SETUP
from rig.local.processes import Part, Process, Program, free_port

# Numbers of Linux capabilities, see capabilities(7).
CAP_DAC_OVERRIDE = 1
CAP_SETPCAP = 8
# The path at which another account finds the data folder, if folders above it are closed to that account.
_WORKING_FOLDER = "/proc/self/cwd"
SETTINGS = {
    "wal_level": "logical",
    "max_slot_wal_keep_size": "4GB",
    "max_wal_senders": "8",
    "max_replication_slots": "8",
    "max_connections": "60",
    "shared_buffers": "64MB",
    # A commit does not wait for the disk, so thousands of small transactions take a fraction of the time. A commit
    # survives kill -9 of the server, but not a crash of the machine.
    "fsync": "off",
    "log_min_messages": "warning",
    "timezone": "UTC",
    "password_encryption": "scram-sha-256",
}


class PostgresqlServer(Part):
    """One PostgreSQL server on a free port of 127.0.0.1; its data, password and log are in ``folder``.

    ``settings`` are added to ``SETTINGS``, or override them. ``binaries`` is the folder of another version's programs,
    `initdb` and `postgres`.

    A second ``start`` over the same folder, also by another process, finds the same data, port and password.
    """

    name = "PostgreSQL"
    host = "127.0.0.1"
    superuser = "postgres"

    def __init__(
        self, folder: Path, settings: Mapping[str, str] = MappingProxyType({}), binaries: Path | None = None
    ) -> None:
        super().__init__(folder)
        self.data = self.folder / "data"
        self._settings = dict(settings)
        self._binaries = binaries
        self.port = 0

    @property
    def password(self) -> str:
        """The superuser's password, which is made together with the data folder."""
        return (self.folder / "password").read_text().strip()

    def connect(
        self, dbname: str = "postgres", user: str | None = None, password: str | None = None
    ) -> psycopg.Connection:
        """Open an autocommit connection, by default as the superuser."""
        return psycopg.connect(
            host=self.host,
            port=self.port,
            dbname=dbname,
            user=user or self.superuser,
            password=password or self.password,
            autocommit=True,
            connect_timeout=10,
            # The user's PGHOSTADDR, PGOPTIONS and PGSSLMODE are meant for another server. This server is built without
            # TLS.
            hostaddr=self.host,
            options="",
            sslmode="disable",
            # Another program may have taken the port of a server that has ended. It must not get the password.
            require_auth="scram-sha-256",
        )

    def _prepare(self) -> Process:
        binaries = self._binaries or _binaries()
        account = _account()
        if not (self.data / "PG_VERSION").exists():
            self._create(binaries, account)
        # The port never changes, so that clients such as a connector find the server again after a restart.
        port_file = self.folder / "port"
        if not port_file.exists():
            port_file.write_text(str(free_port()))
        self.port = int(port_file.read_text())
        options = [f"--{name}={value}" for name, value in {**SETTINGS, **self._settings}.items()]
        program = Program(
            self.name,
            [
                *_as(account),
                str(binaries / "postgres"),
                *(
                    "-D",
                    _WORKING_FOLDER if account else str(self.data),
                    "-h",
                    self.host,
                    "-p",
                    str(self.port),
                    "-k",
                    "",
                ),
                *options,
            ],
            self.folder / "postgres.log",
            env=_environment(),
            cwd=self.data,
            stop_signal=signal.SIGINT,
            death_signal=signal.SIGQUIT,
        )
        return Process(program, ready=self._answers, port=self.port)

    def _answers(self) -> bool:
        with self.connect() as connection:
            return connection.execute("select 1").fetchone() == (1,)

    def _create(self, binaries: Path, account: str | None) -> None:
        shutil.rmtree(self.data, ignore_errors=True)
        password = secrets.token_urlsafe(24) + "\n"
        private_files.write(self.folder / "password", password)
        self.data.mkdir(mode=0o700)
        if account is not None:
            os.chown(self.data, pwd.getpwnam(account).pw_uid, -1)
            # The group lets root enter even if root lacks the capability to pass closed folders.
            self.data.chmod(0o750)
        command = [
            *_as(account),
            str(binaries / "initdb"),
            f"--pgdata={_WORKING_FOLDER if account else self.data}",
            *(["--allow-group-access"] if account else []),
            f"--username={self.superuser}",
            "--pwfile=/dev/stdin",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        ]
        with tempfile.TemporaryFile() as given:
            given.write(password.encode())
            given.flush()
            if account is not None:
                os.fchown(given.fileno(), pwd.getpwnam(account).pw_uid, -1)
            done = subprocess.run(
                command, stdin=given, capture_output=True, text=True, env=_environment(), cwd=self.data, check=False
            )
        if done.returncode != 0:
            shutil.rmtree(self.data, ignore_errors=True)
            hint = (
                f"PostgreSQL refuses to run as root, so it runs as {account}, who must be able to enter the folders "
                f"above {binaries}. `namei -m` shows their modes. Open them, or check the project out elsewhere."
                if account is not None
                else ""
            )
            raise UserError(f"PostgreSQL's initdb failed:\n{done.stderr.strip()}\n{hint}")


def _binaries() -> Path:
    # Only the package's files are used. Importing it would change users and the modes of folders.
    spec = importlib.util.find_spec("pgserver")
    if spec is None or spec.origin is None:
        raise UserError(f"The package pgserver, which carries PostgreSQL, is not installed: run `{SETUP}`")
    return Path(spec.origin).parent / "pginstall" / "bin"


def _account() -> str | None:
    """Return the account to run PostgreSQL as if this process runs as root, else None."""
    if os.geteuid() != 0:
        return None
    # Not the account nobody: other services that run as nobody would then have rights over the server.
    for name in ("postgres", "daemon"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        if shutil.which("setpriv") is None:
            raise UserError("PostgreSQL refuses to run as root and `setpriv` is missing: install util-linux")
        return name
    raise UserError(
        "PostgreSQL refuses to run as root, and this machine has neither an account postgres nor daemon: create one"
    )


def _as(account: str | None) -> list[str]:
    if account is None:
        return []
    entry = pwd.getpwnam(account)
    command = ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"]
    if _may_pass_closed_folders():
        # root's checkout often lies below a folder that is closed to others, such as /root. initdb looks for its
        # companion programs by access(2). That call respects the capability only with the secure bit.
        command += ["--inh-caps=+dac_override", "--ambient-caps=+dac_override", "--securebits=+no_setuid_fixup"]
    return [*command, "--"]


def _may_pass_closed_folders() -> bool:
    status = Path("/proc/self/status")
    if not status.exists():
        return False
    (permitted,) = (line.split()[1] for line in status.read_text().splitlines() if line.startswith("CapPrm:"))
    return all(int(permitted, 16) & 1 << number for number in (CAP_DAC_OVERRIDE, CAP_SETPCAP))


def _environment() -> dict[str, str]:
    # Only the path: the caller's PGPORT, PGDATA and other variables are meant for another server.
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}
