"""Many agents dial at once: the process that answers them lives on."""

from __future__ import annotations

import subprocess
import sys

# A crash of gRPC's own threads must not take the tests along.
PROGRAM = """
import asyncio, sys
from pathlib import Path
from types import SimpleNamespace
import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from spotline.adapters.agents.keys import AgentKeys
from spotline.adapters.grpc.agent.server import AgentServer
from spotline.application.allocator.gang_facts import AgentTimes

async def main():
    keys = AgentKeys(Path(sys.argv[1]))
    port_of_agents = AgentServer(None, SimpleNamespace(times=AgentTimes()), None, keys, address="127.0.0.1:0")
    server = grpc.aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
    port = server.add_secure_port("127.0.0.1:0", port_of_agents.credentials())
    await server.start()
    trusted = grpc.ssl_channel_credentials(keys.ca_pem.encode())
    alone = (("grpc.use_local_subchannel_pool", 1),)

    async def dial():
        async with grpc.aio.secure_channel(f"127.0.0.1:{port}", trusted, options=alone) as channel:
            await health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=30
            )

    for _ in range(60):
        await asyncio.gather(*(dial() for _ in range(16)))
    await server.stop(None)

asyncio.run(main())
"""


def test_agents_that_dial_at_once_do_not_end_it(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "agents")],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stderr
