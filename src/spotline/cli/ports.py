"""Whether the ports that a command is to listen on are free, before anything is started."""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping

from spotline.contracts.errors import ConfigError


def check_ports(addresses: Mapping[str, str]) -> None:
    """Bind and let go every address, by the option that states it.

    Raises
    ------
    ConfigError
        Some cannot be listened on; a line for each says why, and what to do.
    """
    problems = [
        problem
        for option, address in addresses.items()
        if (problem := _problem_of(option, address)) is not None
    ]
    bound: dict[tuple[str, int], str] = {}
    for option, address in addresses.items():
        host, port = _parts(address) or ("", 0)
        if port and (host, port) in bound:
            other = bound[host, port]
            problems.append(f"{option}: expected a port of its own, found that of {other}: {port}")
        bound.setdefault((host, port), option)
    if problems:
        raise ConfigError("\n".join(problems))


def _parts(address: str) -> tuple[str, int] | None:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        return None
    return host.strip("[]"), int(port)


def _problem_of(option: str, address: str) -> str | None:
    parts = _parts(address)
    if parts is None:
        return f"{option}: expected HOST:PORT, such as 127.0.0.1:7070, found {address!r}"
    host, port = parts
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, place = found[0]
        with socket.socket(family, kind, protocol) as probe:
            # Without it a port of connections that ended a moment ago would count as taken.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return (
                f"{option}: expected a free port, found {port} in use, perhaps by another "
                f"`spotline up` (`lsof -i :{port}` says; {option} {host}:0 takes any)"
            )
        reason = error.strerror or str(error)
        return f"{option}: expected an address to listen on, found {address}: {reason}"
    return None
