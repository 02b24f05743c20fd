"""A TLS proxy in front of the local PostgreSQL, whose binaries are built without TLS.

A client gets the same as from Aurora with ``rds.force_ssl``: TLS after PostgreSQL's request for it, and no other
connection (https://www.postgresql.org/docs/16/protocol-flow.html#PROTOCOL-FLOW-SSL).

python -m rig.local.tls_front LISTENING_PORT POSTGRESQL_HOST POSTGRESQL_PORT CERTIFICATE_AND_KEY
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import sys
from functools import partial
from pathlib import Path
from typing import Protocol

from headwater import private_files
from rig.local.aws import environment
from rig.local.certificates import Authority, ServerCertificate
from rig.local.processes import Part, Process, Program, free_port

_SSL_REQUEST = bytes.fromhex("0000000804d2162f")
_CHUNK = 1 << 16


class Server(Protocol):
    """A PostgreSQL server that takes connections without TLS."""

    host: str
    port: int


class TlsFront(Part):
    """Accepts TLS on a free port of 127.0.0.1, which stays the same over restarts, and forwards to a server.

    Its certificate names 127.0.0.1 and no host. Without a given certificate, an authority of its own signs one.
    ``root`` is the signing certificate, as PEM. ``folder`` takes certificate, key and log.
    """

    name = "the TLS front of PostgreSQL"
    host = "127.0.0.1"

    def __init__(self, folder: Path, server: Server, certificate: ServerCertificate | None = None) -> None:
        super().__init__(folder)
        self._server = server
        self._certificate = certificate or Authority.make().issue(self.host)
        self.port = 0

    @property
    def root(self) -> str:
        """The certificate that clients trust, as PEM."""
        return self._certificate.root

    def _prepare(self) -> Process:
        if not self.port:
            self.port = free_port()
        chain = self.folder / "server.pem"
        private_files.write(chain, self._certificate.certificate + self._certificate.key)
        program = Program(
            self.name,
            [sys.executable, "-m", __name__, str(self.port), self._server.host, str(self._server.port), str(chain)],
            self.folder / "tls_front.log",
            env=environment({}),
        )
        return Process(program, port=self.port)


async def serve(port: int, target: tuple[str, int], chain: Path) -> None:
    """Serve a port of 127.0.0.1 until cancelled. ``target`` is the server's host and port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # The local Java programs compute AES without the processor's help. TLS 1.3 would leave the choice of cipher to the
    # client.
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE+CHACHA20")
    context.load_cert_chain(chain)
    server = await asyncio.start_server(partial(_connect, context, target), TlsFront.host, port, limit=_CHUNK)
    async with server:
        await server.serve_forever()


async def _connect(
    context: ssl.SSLContext, target: tuple[str, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Forward one connection in both directions until either side ends it."""
    # A client that does not trust the certificate causes an error too, and so does the end of a killed server.
    with contextlib.suppress(OSError, asyncio.IncompleteReadError), contextlib.closing(writer):
        if await reader.readexactly(len(_SSL_REQUEST)) != _SSL_REQUEST:
            return
        writer.write(b"S")
        await writer.start_tls(context)
        server_reader, server_writer = await asyncio.open_connection(*target, limit=_CHUNK)
        with contextlib.closing(server_writer):
            directions = (_copy(reader, server_writer), _copy(server_reader, writer))
            tasks = [asyncio.create_task(direction) for direction in directions]
            _, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in left:
                task.cancel()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), (sys.argv[2], int(sys.argv[3])), Path(sys.argv[4])))
