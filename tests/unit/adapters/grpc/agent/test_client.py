import asyncio

import pytest

from spotline.adapters.grpc.agent.client import AgentCallFailed, AgentClient
from spotline.api.v1 import agent_service_pb2 as api
from spotline.api.v1 import job_pb2, run_pb2
from spotline.contracts.errors import ContractError
from tests.fakes.agent_control import FakeAgentControl, Instance, make_certificates

JOINING = {"instance_id": "i-1", "nonce": "n" * 32, "host": "h", "release": "1"}


@pytest.fixture(scope="module")
def certificates():
    return make_certificates()


@pytest.fixture
async def control(certificates):
    serving = FakeAgentControl(certificates)
    job = job_pb2.Job(job_id="job-1", run=run_pb2.Run(command=["true"]))
    serving.instances["i-1"] = Instance(job=job)
    await serving.start()
    yield serving
    await serving.stop()


async def joined(client: AgentClient):
    return await client.join(join_token="token-i-1", **JOINING)


async def test_every_answer_is_a_contact_and_some_say_the_time(control, certificates):
    contacts = []
    async with AgentClient(control.address, certificates.ca, contacts.append) as client:
        await joined(client)
        await client.heartbeat(3)

    moment, none = contacts
    assert (moment.market_ns, moment.slot) == (10**18, 1)
    assert none is None
    assert control.instances["i-1"].heartbeats == [3]


async def test_an_authority_that_is_not_ours_is_not_trusted(control):
    async with AgentClient(control.address, make_certificates().ca) as client:
        with pytest.raises(AgentCallFailed) as failed:
            await joined(client)

    assert failed.value.code == "UNAVAILABLE"
    assert not failed.value.refused
    assert not control.joins


async def test_a_session_that_does_not_count_is_told_from_a_refusal(control, certificates):
    async with AgentClient(control.address, certificates.ca) as client:
        with pytest.raises(AgentCallFailed, match="UNAUTHENTICATED: no such session") as failed:
            await client.heartbeat(0)

    assert failed.value.unknown_caller
    assert not failed.value.refused


async def test_a_job_without_a_run_is_no_job_of_an_agent(control, certificates):
    control.instances["i-1"].job.ClearField("run")
    async with AgentClient(control.address, certificates.ca) as client:
        with pytest.raises(ContractError, match=r"JoinResponse job\.run: is missing"):
            await joined(client)


async def test_a_run_that_breaks_the_contract_names_its_field(control, certificates):
    control.instances["i-1"].job.run.grace_s = -1
    async with AgentClient(control.address, certificates.ca) as client:
        with pytest.raises(ContractError, match=r"run\.grace_s must be >= 0, was -1"):
            await joined(client)


async def test_an_order_without_a_state_is_no_order(control, certificates):
    async with AgentClient(control.address, certificates.ca) as client:
        await joined(client)
        await control.order("i-1", api.TrainingAllocation(job_id="job-1", generation=1))
        with pytest.raises(ContractError, match="expected one of ALLOCATION_STATE_WAIT"):
            async for _ in client.watch():
                pass


async def test_an_http_proxy_is_honoured(control, certificates, monkeypatch):
    asked, serving = [], set()

    async def pass_on(source, target):
        while data := await source.read(65536):
            target.write(data)

    async def serve(reader, writer):
        serving.add(asyncio.current_task())
        ends = [writer]
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            asked.append(head.split(b"\r\n")[0].decode())
            upstream_reader, upstream = await asyncio.open_connection("localhost", control.port)
            ends.append(upstream)
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(pass_on(reader, upstream))
                tasks.create_task(pass_on(upstream_reader, writer))
        finally:
            for end in ends:
                end.transport.abort()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as proxy:
        port = proxy.sockets[0].getsockname()[1]
        for name in ("no_proxy", "no_grpc_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("grpc_proxy", f"http://127.0.0.1:{port}")
        async with AgentClient(control.address, certificates.ca) as client:
            await joined(client)
        # Neither side need have noticed yet that the other has closed.
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    assert set(asked) == {f"CONNECT localhost:{control.port} HTTP/1.1"}
