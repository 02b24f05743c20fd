"""The process of the emulator."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headwater.errors import UserError
from rig.local.processes import Part, Process, Program, free_port
from rig.local_aws.emulator_packages import NODE_MODULES, PYTHON, SOURCES


class Emulator(Part):
    """The emulator on a free port of 127.0.0.1, with its functions' processes.

    ``account`` has the environment variables of its account. ``handlers`` is the URL of the ``HandlerServer``, which
    accepts requests with ``token``.
    """

    name = "the emulator of AWS (ministack)"

    def __init__(self, folder: Path, account: Mapping[str, str], handlers: str, token: str) -> None:
        super().__init__(folder)
        self._account = dict(account)
        self._handlers = handlers
        self._token = token
        self.port = free_port()

    @property
    def endpoint(self) -> str:
        """The URL of all services."""
        return f"http://127.0.0.1:{self.port}"

    def _prepare(self) -> Process:
        if not PYTHON.exists():
            raise UserError(f"{PYTHON} is missing: run `headwater dev assets`")
        kept = {name: value for name, value in self._account.items() if not name.startswith("MINISTACK_")}
        program = Program(
            self.name,
            [str(PYTHON), str(SOURCES / "emulator.py")],
            self.folder / "emulator.log",
            env={
                **kept,
                "AUTH": "true",
                "AWS_ENDPOINT_URL": self.endpoint,
                "BIND_HOST": "127.0.0.1",
                "GATEWAY_PORT": str(self.port),
                "HEADWATER_HANDLERS": self._handlers,
                "HEADWATER_HANDLERS_TOKEN": self._token,
                # These services would listen on ports of their own.
                "IOT_MTLS_ENABLED": "0",
                "SFTP_ENABLED": "0",
                "LAMBDA_EXECUTOR": "local",
                "MINISTACK_HOST": "127.0.0.1",
                "NODE_PATH": str(NODE_MODULES),
                "TMPDIR": str(self.folder),
            },
            cwd=self.folder,
        )
        return Process(program, port=self.port)
