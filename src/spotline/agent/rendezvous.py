"""The port at which the ranks of a generation find each other.

All members must come to the same one, so it follows from job and generation: no word is needed. Only
the first member can see whether it is taken there; it then has another generation formed, which has
another port. That is no failure of the program.
"""

from __future__ import annotations

import errno
import hashlib
import re
import socket

from spotline.contracts.errors import SpotlineError

# Below the ports that Linux hands out by itself (32768 and up), above those of services.
FIRST_PORT = 20_000
PORTS = 12_000

# As the C library, Python, torch and gRPC say it.
_IN_USE = re.compile(r"address already in use|EADDRINUSE", re.IGNORECASE)


class PortTaken(SpotlineError):
    """The ranks of a generation cannot find each other: something else listens at their port."""


def master_port(job_id: str, generation: int) -> int:
    """The port of a generation, the same on all members.

    Two programs on one machine share one in one of `PORTS` cases.
    """
    digest = hashlib.sha256(f"{job_id}/{generation}".encode()).digest()
    return FIRST_PORT + int.from_bytes(digest[:8], "big") % PORTS


def own_port(job_id: str, generation: int) -> int:
    """The port of a program on a single member: nobody else need know it, so it is one free here."""
    first = master_port(job_id, generation) - FIRST_PORT
    ports = (FIRST_PORT + (first + offset) % PORTS for offset in range(PORTS))
    return next((port for port in ports if is_free(port)), FIRST_PORT + first)


def is_free(port: int) -> bool:
    """Whether a server could listen on a port of this machine now, on any of its addresses."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.create_server(("", port), family=family).close()
        except OSError as error:
            # Anything else, such as no IPv6 here, says nothing about the port.
            if error.errno == errno.EADDRINUSE:
                return False
    return True


def says_in_use(words: str) -> bool:
    """Whether a program says that an address was taken."""
    return _IN_USE.search(words) is not None
