"""Which addresses the programs of a run listen on."""

import ipaddress

import psutil


def listening_programs(pid: int | None = None) -> tuple[list[str], list[str]]:
    """The command lines of the descendants of a process, by default of this one, that listen on a socket, and addresses
    with programs, of the process too, that other machines can reach."""
    this = psutil.Process(pid)
    listening: list[str] = []
    reachable: list[str] = []
    for process in [this, *this.children(recursive=True)]:
        try:
            command = " ".join(process.cmdline())
            connections = process.net_connections(kind="inet")
        except psutil.NoSuchProcess:
            continue
        for connection in connections:
            if connection.status == psutil.CONN_LISTEN:
                if process != this:
                    listening.append(command)
                if not _is_loopback(connection.laddr.ip):
                    reachable.append(f"{connection.laddr.ip}:{connection.laddr.port} of …{command[-200:]}")
    return listening, sorted(reachable)


def _is_loopback(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback
