"""The allocator's port of agents: real broker, real TLS, agents written by hand."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from spotline.adapters.agents.identity_documents import DocumentRules
from spotline.adapters.agents.keys import AgentKeys
from spotline.adapters.grpc.agent.servicer import AgentServicer
from spotline.adapters.grpc.allocator.client import JobClient
from spotline.adapters.grpc.allocator.server import RpcServer
from spotline.adapters.grpc.kit.errors import failure_of
from spotline.api.v1 import agent_service_pb2 as pb
from spotline.api.v1 import agent_service_pb2_grpc, output_pb2, training_pb2
from spotline.domain.events.capacity import CapacityLost, InterruptionKind, InterruptionNoticed
from spotline.domain.events.lifecycle import (
    JobClosed,
    JobExited,
    JobOutcome,
    JobProgressReported,
    JobSubmitted,
)
from spotline.domain.events.training import (
    AgentJoined,
    CheckpointCommitted,
    GenerationFormed,
    NoticeAcknowledged,
    TrainingRestarted,
)
from spotline.domain.units import NS_PER_S
from tests.eventually import PATIENCE_S, eventually
from tests.fakes.allocator import EAST, START_NS, market_opened, slot_opened
from tests.fakes.identity_documents import ACCOUNT, REGION, RegionSigner, document
from tests.fakes.scripted_agent import (
    NONCE,
    TIMES,
    ControlPlane,
    ScriptedAgent,
    WrittenLog,
    channel_to,
    control_plane,
)
from tests.fakes.training_story import run_job

pytestmark = pytest.mark.integration

JOB = run_job()
JOB_ID = JOB.job_id
SHA256 = "ab" * 32


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    """Nothing is planned here: the planners need not be compiled."""
    monkeypatch.setattr(RpcServer, "prepare", lambda self: None)


@pytest.fixture
async def log(event_stream):
    written = WrittenLog(event_stream)
    await written.write(market_opened(), slot_opened(0), source="market_ingest")
    await written.write(JobSubmitted(job=JOB, ts_event_ns=START_NS), source="allocator")
    return written


@pytest.fixture
async def plane(broker, log, tmp_path):
    async with control_plane(broker.url, tmp_path) as running:
        yield running


def agent(plane, instance_id, **options):
    return ScriptedAgent(plane.user_data(instance_id, JOB_ID), **options)


def of_job(event_type, **fields):
    return event_type(job_id=JOB_ID, tenant=JOB.tenant, **fields)


def closed():
    return of_job(
        JobClosed,
        slot=0,
        outcome=JobOutcome.COMPLETED,
        policy_id="p",
        cost_micro_usd=1_000_000,
        value_micro_usd=0,
        progress_ppm=1_000_000,
    )


async def refused(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return failure_of(caught.value, "here")


# --- a whole story ------------------------------------------------------------------------------


async def test_a_notice_a_resize_and_a_restart_on_the_way_to_a_finished_job(plane, log):
    async with agent(plane, "i-1") as first, agent(plane, "i-2") as second:
        await log.hold(JOB_ID, "i-1", "i-2")
        await first.begin()
        assert (await first.until("wait")).generation == 0
        await second.begin()

        told = await first.until("run", 1)
        assert [(one.instance_id, one.node_rank, one.host) for one in told.members] == [
            ("i-1", 0, "host-of-i-1"),
            ("i-2", 1, "host-of-i-2"),
        ]
        await second.until("run", 1)
        await say_work(first, generation=1, done=1.0)
        await say_checkpoint(first, generation=1, step=10)
        await log.write(
            of_job(
                InterruptionNoticed,
                offering_id=EAST,
                instance_ids=("i-2",),
                slot=0,
                offset_s=30,
                lead_s=120,
                kind=InterruptionKind.CAPACITY_RECLAIMED,
            )
        )
        await eventually(lambda: first.told[-1].notices)
        (notice,) = first.told[-1].notices
        assert notice.deadline_ns == START_NS + 150 * 10**9
        assert first.state == "run"
        await second.say(
            "AcknowledgeNotice",
            notice_id=notice.notice_id,
            action=training_pb2.NOTICE_ACTION_SAVED,
            after_s=20,
        )

        # The allocator is killed while the program runs, and knows it again.
        before = len(first.told)
        market_ns = await market_time(first)
        await plane.stop()
        await plane.start()
        await eventually(lambda: len(first.told) > before)
        assert (await first.until("run", 1)).detail == ""
        assert START_NS < market_ns < await market_time(first)

        await log.hold(JOB_ID, "i-1")
        await second.until("leave")
        told = await first.until("run", 2)
        assert [one.instance_id for one in told.members] == ["i-1"]
        await say_work(first, generation=2, done=3.0)
        await first.end(0)
        await eventually_written(log, JobExited)
        await log.write(closed(), source="selector")
        await first.until("over")

    exits = await log.events(JobExited)
    assert [(one.generation, one.exit_code) for one in exits] == [(2, 0)]
    formed = await log.events(GenerationFormed)
    assert [one.instance_ids for one in formed] == [("i-1", "i-2"), ("i-1",)]
    assert len(await log.events(AgentJoined)) == 2
    (saved,) = await log.events(CheckpointCommitted)
    assert (saved.uri, saved.sha256, saved.save_s) == ("file:///c/10", SHA256, 7)
    (acknowledged,) = await log.events(NoticeAcknowledged)
    assert acknowledged.instance_id == "i-2"
    progress = await log.events(JobProgressReported)
    assert [(one.generation, one.done, one.instances) for one in progress] == [
        (1, 1.0, 2),
        (2, 3.0, 1),
    ]
    assert [one.restart_s for one in await log.events(TrainingRestarted)] == [40, 40]
    async with JobClient(plane.address) as client:
        happened = [one async for one in client.happenings(JOB_ID, follow=True)]
    # A quote comes when it is worked out, or too late for this.
    told = [one for one in happened if one.kind != "job.quoted"]
    assert [one.kind for one in told] == [
        *("job.submitted", "job.agent", "job.agent", "job.generation", "job.restarted"),
        *("job.checkpoint.committed", "capacity.noticed", "job.notice", "job.generation"),
        *("job.restarted", "job.exited", "job.closed"),
    ]
    assert told[3].text == "generation 1 starts on i-1, i-2: the first start"
    assert told[6].ts_event_ns == START_NS + 30 * 10**9


async def market_time(agent):
    return (await agent.say("ReportHeartbeat", generation=agent.running)).clock.market_ns


async def say_work(agent, *, generation, done):
    for _ in range(2):  # sent again, it is the same report
        await agent.say(
            "ReportWork",
            generation=generation,
            step=10,
            done=done,
            rate_per_hour=2.0,
            checkpointed=done / 2,
            restart_s=40,
            load_s=3,
            resumed_sha256=SHA256,
        )


async def say_checkpoint(agent, *, generation, step):
    await agent.say(
        "ReportCheckpoint",
        generation=generation,
        step=step,
        done=1.0,
        uri=f"file:///c/{step}",
        sha256=SHA256,
        size_bytes=1000,
        kind=training_pb2.CHECKPOINT_KIND_PREEMPTION,
        save_s=7,
    )


async def eventually_written(log, event_type):
    """Wait for an event; every look reads the log."""
    found = []

    async def look():
        while not found:
            found.extend(await log.events(event_type))

    await asyncio.wait_for(look(), 60)


async def test_a_member_that_vanishes_aborts_the_others_and_a_failure_is_told_once(plane, log):
    async with agent(plane, "i-1") as first, agent(plane, "i-2") as second:
        await log.hold(JOB_ID, "i-1", "i-2")
        await first.begin()
        await second.begin()
        await first.until("run", 1)
        await second.until("run", 1)
        await second.__aexit__()
        await log.write(
            of_job(CapacityLost, offering_id=EAST, instance_ids=("i-2",), slot=0, offset_s=40)
        )
        await log.hold(JOB_ID, "i-1")
        await first.until("run", 2)
        assert await log.events(JobExited) == []

        await first.end(3)
        await eventually_written(log, JobExited)
        # At first it is told to wait for no reason: how it ended is not applied yet.
        await eventually(
            lambda: first.told[-1].detail == "the program failed: it is started again later"
        )
        assert (first.state, first.told[-1].generation) == ("wait", 2)
    (exited,) = await log.events(JobExited)
    assert (exited.generation, exited.exit_code, exited.detail) == (2, 3, "exited with 3")


# --- who may come in ----------------------------------------------------------------------------


async def test_an_agent_counts_as_heard_of_before_the_log_says_that_it_joined(
    plane, log, monkeypatch
):
    """Else a server that has run for a while would take it for silent."""
    heard = []
    record = AgentServicer._record

    async def noting(self, gang, event, what):
        if isinstance(event, AgentJoined):
            heard.append(event.instance_id in self._keeper._of(gang).agents)
        await record(self, gang, event, what)

    monkeypatch.setattr(AgentServicer, "_record", noting)
    async with agent(plane, "i-1") as first:
        await log.hold(JOB_ID, "i-1")
        await first.join()

    assert heard == [True]


async def test_a_token_is_good_for_one_agent_also_after_a_restart(plane, log):
    async with agent(plane, "i-1") as ours, agent(plane, "i-1", nonce="x" * 40) as thief:
        joined = await ours.join()
        assert joined.job.job_id == JOB_ID
        assert list(joined.job.run.command) == ["train"]
        assert (joined.lease_s, joined.heartbeat_s) == (3600, TIMES.heartbeat_s)
        again = await ours.join()
        assert again.job == joined.job

        await plane.stop()
        await plane.start()

        # What an allocator opened before it was started again still counts.
        ours.session = joined.session
        await ours.say("ReportHeartbeat", generation=0)
        await ours.join()
        await ours.say("ReportHeartbeat", generation=0)
        failure = await refused(thief.join())
        assert (failure.code, failure.reason) == ("PERMISSION_DENIED", "TOKEN_USED")
    assert len(await log.events(AgentJoined)) == 1


async def test_an_instance_of_ec2_joins_once_by_its_signed_document(broker, log, tmp_path):
    signer = RegionSigner()
    (certificate := tmp_path / "aws.pem").write_bytes(signer.certificate())
    rules = DocumentRules(certificates=certificate, accounts=(ACCOUNT,), regions=(REGION,))
    shown = document("i-1", pending_s=START_NS // NS_PER_S)
    said = {
        "join_token": "",
        "identity_document": shown,
        "identity_signature": signer.sign(shown),
    }
    async with control_plane(broker.url, tmp_path, documents=rules) as plane:  # noqa: SIM117
        async with agent(plane, "i-1") as ours, agent(plane, "i-1", nonce="x" * 40) as thief:
            early = await refused(ours.join(**said))
            assert (early.code, early.reason) == ("UNAVAILABLE", "NOT_HELD_YET")
            await log.hold(JOB_ID, "i-1")
            async with asyncio.timeout(PATIENCE_S):
                while not await joined_by(ours, said):  # noqa: ASYNC110 - asked over the wire
                    await asyncio.sleep(0.01)

            failure = await refused(thief.join(**said))
            assert (failure.code, failure.reason) == ("PERMISSION_DENIED", "TOKEN_USED")
            forged = {**said, "identity_signature": RegionSigner(1).sign(shown)}
            failure = await refused(thief.join(**forged))
            assert (failure.code, failure.reason) == ("PERMISSION_DENIED", "DOCUMENT_REFUSED")
    assert len(await log.events(AgentJoined)) == 1


async def joined_by(scripted, said):
    """Whether an agent could join: its instance is in the log, and the server has read it."""
    try:
        return (await scripted.join(**said)).job.job_id == JOB_ID
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.UNAVAILABLE:
            raise
        return False


async def test_a_token_is_good_for_its_own_instance_and_its_own_server(plane, tmp_path):
    foreign = AgentKeys(tmp_path / "foreign")
    forged = {
        **plane.user_data("i-1", JOB_ID),
        "SPOTLINE_JOIN_TOKEN": foreign.signer.sign(
            "join",
            {"instance": "i-1", "job": JOB_ID, "tenant": "research", "expires_s": 1 << 40},
        ),
    }
    async with agent(plane, "i-1") as ours, ScriptedAgent(forged) as stranger:
        failure = await refused(ours.join(instance_id="i-2"))
        assert (failure.code, failure.field) == ("PERMISSION_DENIED", "instance_id")
        failure = await refused(stranger.join())
        assert (failure.code, failure.reason) == ("PERMISSION_DENIED", "TOKEN_REFUSED")
        failure = await refused(ours.join(nonce="short"))
        assert (failure.code, failure.field) == ("INVALID_ARGUMENT", "nonce")
        assert "at least 32 characters" in str(failure)
    async with ScriptedAgent(plane.user_data("i-1", "no-such-job")) as lost:
        failure = await refused(lost.join())
        assert failure.reason == "NOT_RUN_HERE"


async def test_a_session_that_was_not_opened_here_says_nothing(plane, log):
    async with agent(plane, "i-1") as ours, agent(plane, "i-2") as other:
        await ours.join()
        session = ours.session
        await other.join()
        purpose, payload, _ = session.split(".")
        mac = other.session.rpartition(".")[2]
        for forged in ("", "nonsense", f"{purpose}.{payload}.{mac}", "x" * 5000):
            ours.session = forged
            failure = await refused(ours.say("ReportHeartbeat", generation=0))
            assert (failure.code, failure.reason) == ("UNAUTHENTICATED", "SESSION_REFUSED")
        bare = ours.stub.WatchAllocation(pb.WatchAllocationRequest(), timeout=60)
        assert (await refused(bare.read())).code == "UNAUTHENTICATED"


async def goes_on(agent):
    """Join and say something; again where the machine was so busy that the new session ended, too."""
    while True:
        await agent.join()
        try:
            return await agent.say("ReportHeartbeat", generation=0)
        except grpc.aio.AioRpcError as failure:
            if failure.code() is not grpc.StatusCode.UNAUTHENTICATED:
                raise


async def test_a_watch_ends_with_its_session_and_goes_on_with_the_next(broker, log, tmp_path):
    plane = ControlPlane(broker.url, tmp_path)
    plane.at = replace(plane.at, times=replace(TIMES, session_s=1.0))
    await plane.start()
    try:
        async with agent(plane, "i-1") as ours:
            joined = await ours.join()
            assert joined.session_s == 1.0
            watch = ours.stub.WatchAllocation(
                pb.WatchAllocationRequest(), metadata=ours.metadata, timeout=60
            )
            assert len([told async for told in watch]) == 1

            failure = await refused(ours.say("ReportHeartbeat", generation=0))
            assert (failure.code, failure.reason) == ("UNAUTHENTICATED", "SESSION_REFUSED")
            assert "the session is refused: it ended at" in str(failure)
            await asyncio.wait_for(goes_on(ours), 60)
    finally:
        await plane.stop()


async def test_an_agent_stays_with_its_job_when_the_signing_key_was_replaced(plane, log):
    async with agent(plane, "i-1") as ours, agent(plane, "i-1", nonce="t" * 40) as thief:
        await ours.join()
        AgentKeys(plane.at.folder).rotate(None)

        failure = await refused(ours.say("ReportHeartbeat", generation=0))
        assert failure.reason == "SESSION_REFUSED"
        # By the secret that only it knows, though nothing counts any more that the key has signed.
        await ours.join()
        await ours.say("ReportHeartbeat", generation=0)
        failure = await refused(thief.join())
        assert failure.reason == "TOKEN_REFUSED"


async def test_a_session_of_an_earlier_generation_reports_nothing(plane, log):
    async with agent(plane, "i-1") as ours, agent(plane, "i-1") as thief:
        await ours.begin()
        stolen = thief.session = ours.session
        await thief.say("ReportHeartbeat", generation=0)
        await log.hold(JOB_ID, "i-1")
        await ours.until("run", 1)

        assert ours.session != stolen
        chunk = pb.SendOutputRequest(chunk={"job_id": JOB_ID, "text": "x"})
        tried = [
            thief.say("ReportHeartbeat", generation=0),
            thief.say("ReportRanks", generation=1, state=pb.RANKS_STATE_ENDED),
            thief.say("ReportWork", generation=1, done=1.0),
            thief.say("ReportCheckpoint", generation=1, kind=1, uri="u", sha256=SHA256),
            thief.say("AcknowledgeNotice", notice_id="n", action=2),
            thief.stub.SendOutput(iter([chunk]), metadata=thief.metadata, timeout=60),
            thief.stub.WatchAllocation(
                pb.WatchAllocationRequest(), metadata=thief.metadata, timeout=60
            ).read(),
        ]
        for call in tried:
            failure = await refused(call)
            assert (failure.code, failure.reason) == ("UNAUTHENTICATED", "SESSION_REFUSED")
            assert "it is of generation 0, and the present one is 1" in str(failure)
        await ours.say("ReportWork", generation=1, done=1.0)
    assert len(await log.events(JobProgressReported)) == 1
    assert not await log.events(CheckpointCommitted)


async def test_an_agent_of_days_ago_gets_its_next_session_by_its_nonce_and_no_other_does(
    plane, log
):
    keys = AgentKeys(plane.at.folder)
    expired = {
        **plane.user_data("i-1", JOB_ID),
        "SPOTLINE_JOIN_TOKEN": keys.signer.sign(
            "join", {"instance": "i-1", "job": JOB_ID, "tenant": "research", "expires_s": 1}
        ),
    }
    async with ScriptedAgent(expired) as late:
        failure = await refused(late.join())
        assert (failure.code, failure.field) == ("PERMISSION_DENIED", "join_token")
        assert "it has expired" in str(failure)

        async with agent(plane, "i-1") as ours:
            await ours.join()
        await late.join()
        await late.say("ReportHeartbeat", generation=0)
        failure = await refused(late.join(nonce="t" * 40))
        assert failure.reason == "TOKEN_USED"


async def test_only_those_who_trust_our_authority_speak_to_it_and_it_serves_nothing_else(
    plane, tmp_path
):
    ca_pem = plane.user_data("i-1", JOB_ID)["SPOTLINE_CONTROL_CA"]
    others = AgentKeys(tmp_path / "others").ca_pem
    async with channel_to(plane.at.address, others) as suspicious:
        stub = agent_service_pb2_grpc.AgentServiceStub(suspicious)
        failure = await refused(stub.Join(pb.JoinRequest(nonce=NONCE), timeout=60))
        assert failure.code == "UNAVAILABLE"
    async with grpc.aio.insecure_channel(plane.at.address) as clear:
        stub = agent_service_pb2_grpc.AgentServiceStub(clear)
        failure = await refused(stub.Join(pb.JoinRequest(nonce=NONCE), timeout=60))
        assert failure.code == "UNAVAILABLE"
    async with channel_to(plane.at.address, ca_pem) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=60)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        told = reflection.ServerReflectionInfo(iter([asked]))
        assert (await refused(told.read())).code == "UNIMPLEMENTED"


WRONG = (
    ("ReportHeartbeat", {"generation": 7}, "generation"),
    ("ReportRanks", {"generation": 1, "state": 2, "detail": "x" * 4001}, "detail"),
    ("ReportRanks", {"generation": 1}, "state"),
    ("ReportRanks", {"generation": 0, "state": 2}, "generation"),
    ("ReportWork", {"generation": 1, "done": -1.0}, "done"),
    ("ReportWork", {"generation": 1, "done": float("nan")}, "done"),
    ("ReportCheckpoint", {"generation": 1, "kind": 1, "sha256": SHA256}, "uri"),
    ("ReportCheckpoint", {"generation": 1, "kind": 1, "uri": "u", "sha256": "x"}, "sha256"),
    ("ReportCheckpoint", {"generation": 1, "uri": "u", "sha256": SHA256}, "kind"),
    ("AcknowledgeNotice", {"notice_id": "", "action": 2}, "notice_id"),
    ("AcknowledgeNotice", {"notice_id": "n"}, "action"),
)


async def test_what_makes_no_sense_is_refused_by_its_field(members):
    for method, fields, field in WRONG:
        failure = await refused(members[0].say(method, **fields))

        assert (failure.code, failure.field) == ("INVALID_ARGUMENT", field)


@pytest.fixture
async def members(plane, log):
    async with agent(plane, "i-1") as first:
        await log.hold(JOB_ID, "i-1")
        await first.begin()
        await first.until("run", 1)
        yield (first,)


async def test_who_runs_no_part_of_a_program_reports_nothing_of_it(members, plane, log):
    (first,) = members
    async with agent(plane, "i-2") as idle:
        await idle.join()
        for method, fields in (
            ("ReportWork", {"generation": 1, "done": 1.0}),
            ("ReportCheckpoint", {"generation": 1, "kind": 1, "uri": "u", "sha256": SHA256}),
        ):
            failure = await refused(idle.say(method, **fields))
            assert (failure.code, failure.field) == ("INVALID_ARGUMENT", "generation")
            assert "generation 1 does not run on i-2" in str(failure)
    await say_work(first, generation=1, done=1.0)
    assert [event.done for event in await log.events(JobProgressReported)] == [1.0]


# --- output -------------------------------------------------------------------------------------


def pieces(count, *, first=0, **fields):
    return [
        pb.SendOutputRequest(
            chunk=output_pb2.OutputChunk(
                generation=1, rank=0, index=first + index, text=f"line {first + index}\n", **fields
            )
        )
        for index in range(count)
    ]


async def send(agent, requests):
    return await agent.stub.SendOutput(iter(requests), metadata=agent.metadata, timeout=60)


async def test_what_a_program_wrote_is_read_in_order_from_any_place_and_followed(
    members, plane, log
):
    (first,) = members
    # Whose it is follows from the session, whatever a piece says.
    answer = await send(first, pieces(12, job_id="another", tenant="another", instance_id="i-9"))
    assert answer.chunks == 12
    await send(first, pieces(2))  # sent again

    async with JobClient(plane.address) as client:
        every = [one async for one in client.output(JOB_ID)]
        assert [one.index for one in every] == list(range(12))
        assert {(one.job_id, one.tenant, one.instance_id) for one in every} == {
            (JOB_ID, JOB.tenant, "i-1")
        }
        assert [one.text async for one in client.output(JOB_ID, last=3)] == [
            *("line 9\n", "line 10\n", "line 11\n")
        ]
        assert len([one async for one in client.output(JOB_ID, last=100)]) == 12

        followed = []

        async def follow():
            async for one in client.output(JOB_ID, last=1, follow=True):
                followed.append(one.index)  # noqa: PERF401 - looked at meanwhile

        following = asyncio.create_task(follow())
        await eventually(lambda: followed == [11])
        await send(first, pieces(3, first=12))
        await eventually(lambda: followed == [11, 12, 13, 14])
        await log.write(closed(), source="selector")
        await asyncio.wait_for(following, 60)


async def test_a_piece_that_is_too_large_is_refused(members):
    (first,) = members
    too_long = pb.SendOutputRequest(chunk=output_pb2.OutputChunk(text="x" * 65_537))
    failure = await refused(send(first, [too_long]))
    assert failure.code == "INVALID_ARGUMENT"
    assert [wrong.field for wrong in failure.violations] == ["chunk.text"]

    huge = pb.SendOutputRequest(chunk=output_pb2.OutputChunk(text="x" * (2 << 20)))
    failure = await refused(send(first, [huge]))
    assert failure.code == "RESOURCE_EXHAUSTED"
