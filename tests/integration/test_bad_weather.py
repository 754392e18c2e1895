"""Garbage on every subject, a broker that goes away: nothing is lost, the services live."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import nats
import pytest
import pytest_asyncio

from spotline.application.selector.options import SelectorOptions
from spotline.contracts.build import is_dead_letter
from spotline.contracts.subjects import EVENT_TYPES, filter_of
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.lifecycle import JobClosed
from spotline.domain.market.generate import generate
from spotline.replay.jobs import generated_jobs
from spotline.runtime.broker import EmbeddedBroker
from tests.fakes.composed import composed
from tests.fakes.processes import ROOT, free_port

START_NS = 1_767_571_200_000_000_000
MARKET = generate("mixed", seed=5, slots=44, slot_s=1800, start_ns=START_NS)
JOBS = generated_jobs(MARKET, 4, 5)
OPTIONS = SelectorOptions(forecast_timeout_s=60.0, rehearsals=0)


async def decisions_of(system) -> dict[tuple[str, int, int], AllocationDecided]:
    return {(d.job_id, d.slot, d.revision): d for d in await system.events(AllocationDecided)}


@dataclass(frozen=True, slots=True)
class Calm:
    """An undisturbed run: what was decided, and where its log still is."""

    decisions: dict[tuple[str, int, int], AllocationDecided]
    nats_url: str


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def calm(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Calm]:
    """One for all that compare with it."""
    async with EmbeddedBroker() as broker:
        folder = tmp_path_factory.mktemp("calm")
        async with composed(broker.url, folder, MARKET, selector=OPTIONS) as system:
            await system.submit(JOBS)
            system.go.set()
            await _end(system)
            decisions = await decisions_of(system)
        yield Calm(decisions, broker.url)


async def _end(system) -> None:
    await system.wait_for(
        CapacityReported,
        lambda e: isinstance(e, CapacityReported) and e.slot == MARKET.slots - 1 and e.settled,
    )


async def test_garbage_on_every_subject_is_dead_lettered_and_changes_nothing(
    tmp_path: Path, calm: Calm
) -> None:
    async with asyncio.timeout(200):
        async with (
            EmbeddedBroker() as broker,
            composed(broker.url, tmp_path / "noisy", MARKET, selector=OPTIONS) as system,
        ):
            client = await nats.connect(broker.url)

            async def garbage() -> None:
                for event_type in EVENT_TYPES.values():
                    subject = filter_of(event_type).replace("*", "x").replace(">", "x")
                    # Truncated where a message would begin; with and without our headers.
                    await client.publish(subject, b"\x0a\xff\xff")
                    kind = subject.removeprefix("spotline.v1.")
                    headers = {"ce-id": f"bad-{kind}", "ce-type": f"spotline.v1.{kind}"}
                    headers["ce-source"] = "spotline/nobody"
                    await client.publish(subject, b"\x0a\x7f", headers=headers)
                await client.flush()

            system.before_slot[20] = garbage
            await system.submit(JOBS)
            system.go.set()
            await _end(system)
            decisions = await decisions_of(system)
            last = await system.stream.last_seq()
            letters = [
                entry
                async for entry in system.stream.read([], last_seq=last)
                if is_dead_letter(entry)
            ]
            await client.close()

    assert decisions == calm.decisions
    assert len({letter.subject for letter in letters}) >= 4


# Shorter, and longer, than an answer is waited for.
@pytest.mark.parametrize(
    "outage_s", [pytest.param(of, marks=pytest.mark.slow) for of in (2.0, 10.0)]
)
async def test_a_broker_gone_for_seconds_changes_nothing(
    tmp_path: Path, calm: Calm, outage_s: float
) -> None:
    async with asyncio.timeout(200):
        port = free_port()
        broker = EmbeddedBroker(tmp_path / "broker", port=port)
        await broker.__aenter__()
        try:
            async with composed(
                broker.url, tmp_path / "shaken", MARKET, selector=OPTIONS
            ) as system:
                healthy: list[bool] = []

                async def outage() -> None:
                    nonlocal broker
                    healthy.append(system.probes.overall().healthy)
                    await broker.__aexit__(None, None, None)
                    await asyncio.sleep(outage_s)
                    healthy.append(system.probes.overall().healthy)
                    broker = EmbeddedBroker(tmp_path / "broker", port=port)
                    await broker.__aenter__()

                system.before_slot[20] = outage
                await system.submit(JOBS)
                system.go.set()
                await _end(system)
                decisions = await decisions_of(system)
                closed = await system.events(JobClosed)
        finally:
            await broker.__aexit__(None, None, None)

    assert decisions == calm.decisions
    assert len(closed) == len(JOBS)
    assert healthy == [True, False]


PLAIN_SUBSCRIBER = """
import asyncio, json, sys
import nats
from spotline.api.v1 import allocation_pb2

async def main(url, wanted):
    client = await nats.connect(url)
    subscription = await client.jetstream(timeout=60).subscribe(
        "spotline.v1.decision.>", ordered_consumer=True
    )
    for _ in range(wanted):
        message = await subscription.next_msg(timeout=60)
        decided = allocation_pb2.AllocationDecided.FromString(message.data)
        lots = [[lot.offering_id, lot.spot, lot.on_demand] for lot in decided.lots]
        print(json.dumps([decided.job_id, decided.slot, decided.revision, lots]))
    await client.close()

import spotline
assert spotline.__file__.startswith(sys.path[0]), spotline.__file__
asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


async def test_a_plain_subscriber_with_protos_alone_reads_every_decision(
    tmp_path: Path, calm: Calm
) -> None:
    generated = tmp_path / "generated"
    generated.mkdir()
    protos = sorted(str(p.relative_to(ROOT / "protos")) for p in ROOT.glob("protos/**/*.proto"))
    compiler = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "grpc_tools.protoc", "-I", "protos", f"--python_out={generated}", *protos),
        cwd=ROOT,
    )
    assert await compiler.wait() == 0
    # A regular package here hides any Spotline that is installed.
    for package in ("spotline", "spotline/api", "spotline/api/v1"):
        (generated / package / "__init__.py").touch()
    script = tmp_path / "subscriber.py"
    script.write_text(PLAIN_SUBSCRIBER)
    async with asyncio.timeout(200):
        reader = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            f"import sys; sys.path[:0] = [{str(generated)!r}]; "
            f"sys.argv = ['subscriber', {calm.nats_url!r}, {str(len(calm.decisions))!r}]; "
            f"exec(open({str(script)!r}).read())",
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await reader.communicate()

    read = [json.loads(line) for line in output.decode().splitlines()]
    expected = [
        [d.job_id, d.slot, d.revision, [[x.offering_id, x.spot, x.on_demand] for x in d.lots]]
        for d in calm.decisions.values()
    ]
    assert read == expected
    assert calm.decisions
