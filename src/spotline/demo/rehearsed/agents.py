"""Instances of a rehearsed AWS as processes of this machine, with the agent that a real one runs."""

from __future__ import annotations

import base64
import shlex
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from spotline.adapters.agents.keys import AgentKeys
from spotline.demo.rehearsed.process import InstanceProgram

# As the command `spotline`, by the Python that runs this.
_AGENT = "from spotline.cli.main import app; app()"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentsAhead:
    """Where agents will dial, known before there is anybody: their instances are told by a template.

    `address` is where the system is to listen.
    """

    address: str
    program: InstanceProgram


def agents_ahead(store: Path, folder: Path) -> AgentsAhead:
    """Make the authority of a store's agents, and the user data that names it: no secret is in it.

    Raises
    ------
    ConfigError
        The store cannot be used.
    """
    address = f"127.0.0.1:{_free_port()}"
    authority = AgentKeys(store / "agents").ca_pem.encode()
    user_data = folder / "user-data.sh"
    folder.mkdir(parents=True, exist_ok=True)
    user_data.write_text(
        "#!/bin/sh\n"
        f"export SPOTLINE_CONTROL={address}\n"
        f"export SPOTLINE_CONTROL_CA={base64.b64encode(authority).decode()}\n",
        encoding="utf-8",
    )
    command = shlex.join([sys.executable, "-c", _AGENT, "agent", "--aws"])
    return AgentsAhead(
        address=address, program=InstanceProgram(command=command, user_data=user_data.absolute())
    )


def _free_port() -> int:
    # Somebody else may take it before the system does: then that says so, and does not begin.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
