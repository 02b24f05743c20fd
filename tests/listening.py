"""Which addresses the programs of a run listen on."""

import ipaddress

import psutil


def listening_beyond_loopback() -> tuple[int, list[str]]:
    """How many sockets this process and all its descendants listen on, and the programs and addresses of those that
    other machines can reach."""
    this = psutil.Process()
    count = 0
    reachable: list[str] = []
    for process in [this, *this.children(recursive=True)]:
        try:
            command = " ".join(process.cmdline())[-200:]
            connections = process.net_connections(kind="inet")
        except psutil.NoSuchProcess:
            continue
        for connection in connections:
            if connection.status == psutil.CONN_LISTEN:
                count += 1
                if not _is_loopback(connection.laddr.ip):
                    reachable.append(f"{connection.laddr.ip}:{connection.laddr.port} of …{command}")
    return count, sorted(reachable)


def _is_loopback(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback
