"""A proxy in front of SeaweedFS's S3 API.

SeaweedFS itself answers pages in browsers, and some requests without a signature. The proxy forwards, byte for byte,
requests that have an ``Authorization`` header and do not come from a page. SeaweedFS checks their signatures, which
also cover their ``Host``.

python -m rig.local.s3_front PORT FOLDER

``FOLDER`` has the Unix socket ``s3.sock`` on which SeaweedFS serves S3.
"""

import asyncio
import contextlib
import os
import sys

from rig.local.signature import Refused, refuse_pages

SOCKET = "s3.sock"
_CHUNK = 1 << 16
# A request with two of these headers could mean one thing here and another to SeaweedFS.
_ONCE = {"authorization", "content-length", "host", "origin", "transfer-encoding"}
_REFUSED = "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}"


async def serve(port: int) -> None:
    """Serve a port of 127.0.0.1 until cancelled; SeaweedFS's socket is in the working directory."""
    server = await asyncio.start_server(_connect, "127.0.0.1", port, limit=_CHUNK)
    async with server:
        await server.serve_forever()


async def _connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Forward one connection until either side ends it, or the client sends a request that is refused."""
    broken = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError)
    with contextlib.suppress(*broken), contextlib.closing(writer):
        store_reader, store_writer = await asyncio.open_unix_connection(SOCKET, limit=_CHUNK)
        with contextlib.closing(store_writer):
            requests = asyncio.create_task(_requests(reader, store_writer))
            answers = asyncio.create_task(_copy_all(store_reader, writer))
            try:
                await asyncio.wait({requests, answers}, return_when=asyncio.FIRST_COMPLETED)
                if requests.done():
                    await requests
            except Refused as refused:
                writer.write(_REFUSED.format(len(str(refused)), refused).encode())
                await writer.drain()
            finally:
                requests.cancel()
                answers.cancel()


async def _requests(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy requests, each after a check of its headers.

    Raises ``Refused`` for a request that is not forwarded, and ``IncompleteReadError`` at the end.
    """
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        headers = _checked(head)
        writer.write(head)
        if "transfer-encoding" in headers:
            await _copy_chunks(reader, writer)
        else:
            await _copy(reader, writer, int(headers.get("content-length", "0")))


def _checked(head: bytes) -> dict[str, str]:
    """Return a request's headers, by lower-case names. Raises ``Refused`` for a request that is not forwarded."""
    text = head.decode("latin-1")
    request, *lines = text.split("\r\n")[:-2]
    # SeaweedFS also accepts the end of a line without its CR.
    if any(character in "".join((request, *lines)) for character in "\r\n\0"):
        raise Refused("BadRequest", "a line ends without CR and LF")
    headers: dict[str, str] = {}
    for line in lines:
        raw, colon, value = line.partition(":")
        name = raw.lower()
        if not colon or raw != raw.strip() or not raw or (name in _ONCE and name in headers):
            raise Refused("BadRequest", f"{name}: found twice, or no header")
        headers[name] = value.strip()
    if "transfer-encoding" in headers and (
        headers["transfer-encoding"].lower() != "chunked" or "content-length" in headers
    ):
        raise Refused("BadRequest", "Transfer-Encoding: expected chunked, and no Content-Length")
    refuse_pages(headers)
    # Only a browser sends OPTIONS, to ask what a page may do.
    if request.startswith("OPTIONS") or not headers.get("authorization", "").startswith("AWS4-HMAC-SHA256 "):
        raise Refused("AccessDenied", "Authorization: expected a signature of version 4")
    return headers


async def _copy_chunks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy a chunked body with its trailers (https://www.rfc-editor.org/rfc/rfc9112#section-7.1)."""
    size = -1
    while size:
        line = await reader.readuntil(b"\r\n")
        size = int(line.partition(b";")[0], 16)
        writer.write(line)
        if size:
            await _copy(reader, writer, size + len(b"\r\n"))
    line = b""
    while line != b"\r\n":
        line = await reader.readuntil(b"\r\n")
        writer.write(line)
    await writer.drain()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, size: int) -> None:
    """Copy this many bytes. Raises ``IncompleteReadError`` if the input ends before."""
    while size > 0:
        data = await reader.read(min(size, _CHUNK))
        if not data:
            raise asyncio.IncompleteReadError(b"", size)
        writer.write(data)
        await writer.drain()
        size -= len(data)


async def _copy_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()


if __name__ == "__main__":
    # The path of a Unix socket has at most about a hundred characters.
    os.chdir(sys.argv[2])
    asyncio.run(serve(int(sys.argv[1])))
