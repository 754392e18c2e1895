"""Ports for servers of tests."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket

# Below what the kernel hands out of itself, which may be anybody's a moment later, and below those at
# which the ranks of programs meet (from 20,000 on); each test process begins at a place of its own.
_FIRST_PORT, _PORTS = 12_000, 8_000
_offsets = itertools.count(os.getpid() * 97)


def free_port() -> int:
    """A port that is free and stays so: a server must come up, or come back, on this very one."""
    for offset in itertools.islice(_offsets, _PORTS):
        port = _FIRST_PORT + offset % _PORTS
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port is free")
