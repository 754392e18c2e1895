"""A control plane for agents, as `agent_service.proto` states it; it decides nothing by itself.

Run as a process it takes orders from a file and writes what it receives to another:
`python -m tests.fakes.agent_control FOLDER PORT`.
"""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from google.protobuf import json_format

from spotline.api.v1 import agent_service_pb2 as api
from spotline.api.v1 import agent_service_pb2_grpc, job_pb2, market_pb2
from tests.fakes.ports import free_port


@dataclass(frozen=True)
class Certificates:
    ca: bytes
    chain: bytes
    key: bytes


def make_certificates() -> Certificates:
    """An authority, and a certificate of it for this machine's loopback."""
    now = datetime.datetime.now(datetime.UTC)

    def build(subject, public_key, issuer):
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
        )

    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca = (
        build("test authority", ca_key.public_key(), "test authority")
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    leaf = (
        build("control", key.public_key(), "test authority")
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return Certificates(
        ca=ca.public_bytes(pem),
        chain=leaf.public_bytes(pem),
        key=key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


@dataclass
class Instance:
    """What is to be said to one instance, and what it said."""

    job: job_pb2.Job
    lease_s: int = 60
    heartbeat_s: float = 0.2
    nonce: str = ""
    allocation: api.TrainingAllocation | None = None
    received: list = field(default_factory=list)
    heartbeats: list[int] = field(default_factory=list)
    pieces: dict = field(default_factory=dict)

    def of(self, kind: type) -> list:
        """What was received of one kind, each once, in order."""
        found = []
        for message in self.received:
            if isinstance(message, kind) and message not in found:
                found.append(message)
        return found

    @property
    def text(self) -> str:
        """All output, by generation, rank and index."""
        return "".join(self.pieces[key] for key in sorted(self.pieces))


class FakeAgentControl(agent_service_pb2_grpc.AgentServiceServicer):
    """Serves instances by id; their token is `token-<id>`."""

    def __init__(self, certificates: Certificates) -> None:
        self.certificates = certificates
        self.instances: dict[str, Instance] = {}
        self.joins = 0
        self.port = 0
        self._server: grpc.aio.Server | None = None
        self._changed = asyncio.Condition()

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"

    async def start(self) -> None:
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        agent_service_pb2_grpc.add_AgentServiceServicer_to_server(self, self._server)
        credentials = grpc.ssl_server_credentials(
            [(self.certificates.key, self.certificates.chain)]
        )
        # Started again, it must be found where it was.
        self.port = self.port or free_port()
        self.port = self._server.add_secure_port(f"localhost:{self.port}", credentials)
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def order(self, instance_id: str, allocation: api.TrainingAllocation) -> None:
        self.instances[instance_id].allocation = allocation
        async with self._changed:
            self._changed.notify_all()

    async def _caller(self, context) -> Instance:
        metadata = dict(context.invocation_metadata())
        session = metadata.get("authorization", "").removeprefix("Bearer session-")
        if session not in self.instances:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "no such session")
        return self.instances[session]

    async def Join(self, request, context):
        self.joins += 1
        instance = self.instances.get(request.instance_id)
        if instance is None or request.join_token != f"token-{request.instance_id}":
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is not valid")
        if instance.nonce not in ("", request.nonce) or len(request.nonce) < 32:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "the token is used up")
        instance.nonce = request.nonce
        instance.received.append(request)
        return api.JoinResponse(
            session=f"session-{request.instance_id}",
            job=instance.job,
            market_s_per_s=60.0,
            lease_s=instance.lease_s,
            heartbeat_s=instance.heartbeat_s,
            clock=market_pb2.MarketClock(market_ns=10**18, slot=1, slot_s=600),
        )

    async def WatchAllocation(self, request, context):
        instance = await self._caller(context)
        said = None
        while True:
            async with self._changed:
                while instance.allocation is None or instance.allocation == said:
                    await self._changed.wait()
                said = instance.allocation
            yield api.WatchAllocationResponse(allocation=said)

    async def ReportHeartbeat(self, request, context):
        (await self._caller(context)).heartbeats.append(request.generation)
        return api.ReportHeartbeatResponse()

    async def _note(self, request, context, answer):
        (await self._caller(context)).received.append(request)
        return answer

    async def ReportRanks(self, request, context):
        return await self._note(request, context, api.ReportRanksResponse())

    async def ReportWork(self, request, context):
        return await self._note(request, context, api.ReportWorkResponse())

    async def ReportCheckpoint(self, request, context):
        return await self._note(request, context, api.ReportCheckpointResponse())

    async def AcknowledgeNotice(self, request, context):
        return await self._note(request, context, api.AcknowledgeNoticeResponse())

    async def SendOutput(self, requests, context):
        instance = await self._caller(context)
        count = 0
        async for request in requests:
            chunk = request.chunk
            assert len(chunk.text.encode()) <= 64 * 1024
            instance.pieces[(chunk.generation, chunk.rank, chunk.index)] = chunk.text
            count += 1
        return api.SendOutputResponse(chunks=count)


def whole(path: Path, text: str) -> None:
    """Write a file that another process may be about to read."""
    aside = path.with_suffix(".tmp")
    aside.write_text(text)
    aside.replace(path)


async def _serve(folder: Path, port: int) -> None:
    """Serve one instance as `instance.json` says, with the order in `order.json`."""
    certificates = Certificates(
        **{name: (folder / f"{name}.pem").read_bytes() for name in ("ca", "chain", "key")}
    )
    control = FakeAgentControl(certificates)
    control.port = port
    said = json.loads((folder / "instance.json").read_text())
    instance = Instance(job=json_format.ParseDict(said["job"], job_pb2.Job()), **said["terms"])
    control.instances[said["instance_id"]] = instance
    await control.start()
    whole(folder / "port", str(control.port))
    order = folder / "order.json"
    seen = ""
    while True:
        if order.exists() and (text := order.read_text()) != seen:
            seen = text
            allocation = json_format.Parse(text, api.TrainingAllocation())
            await control.order(said["instance_id"], allocation)
        states = [
            [message.generation, message.state] for message in instance.of(api.ReportRanksRequest)
        ]
        whole(folder / "ranks.json", json.dumps(states))
        await asyncio.sleep(0.02)


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), int(sys.argv[2])))
