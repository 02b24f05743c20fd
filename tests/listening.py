"""The addresses on which the programs of a run listen."""

import ipaddress
from collections.abc import Iterator
from typing import NamedTuple

import psutil


class Listening(NamedTuple):
    """A TCP socket on which a program listens."""

    process: psutil.Process
    """The program."""
    command: str
    """The program's command line."""
    host: str
    """The address on which it listens."""
    port: int
    """The port."""


def listening(pid: int | None = None) -> Iterator[Listening]:
    """The sockets of a process, by default of this one, and of its descendants."""
    this = psutil.Process(pid)
    for process in [this, *this.children(recursive=True)]:
        try:
            command = " ".join(process.cmdline())
            connections = process.net_connections(kind="inet")
        except psutil.NoSuchProcess:
            continue
        for connection in connections:
            if connection.status == psutil.CONN_LISTEN:
                yield Listening(process, command, connection.laddr.ip, connection.laddr.port)


def listening_programs(pid: int | None = None) -> tuple[list[str], list[str]]:
    """The command lines of a process's descendants that listen on a socket. The process is this one by default.

    Also returns the addresses that other machines can reach, with their programs. These include the process itself.
    """
    this = psutil.Process(pid)
    found = list(listening(pid))
    programs = [each.command for each in found if each.process != this]
    reachable = [f"{each.host}:{each.port} of …{each.command[-200:]}" for each in found if not _is_loopback(each.host)]
    return programs, sorted(reachable)


def _is_loopback(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback
