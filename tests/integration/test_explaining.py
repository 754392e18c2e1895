"""Decisions of a running log are explained as those of a recorded one, one at a time."""

from __future__ import annotations

import asyncio
import json

import pytest
import typer
from typer.testing import CliRunner

from spotline.adapters.grpc.allocator.job_feed import JobFeed
from spotline.adapters.grpc.allocator.server import RpcServer
from spotline.application.explaining.messages import DecisionExplanation, DecisionQuery
from spotline.application.explaining.ports import ExplainerBusy, LogBeginsLate, UnknownDecision
from spotline.bootstrap.explaining import LiveExplainer
from spotline.bootstrap.parts import BusAddress
from spotline.cli import explain as command
from spotline.contracts.batch import packed
from spotline.replay.explain import LogExplainer, RecordedEntries
from spotline.replay.handlers import selector_options
from tests.fakes.allocator import opened_host
from tests.fakes.recorded_run import SETTINGS, small_run

pytestmark = pytest.mark.integration

OPTIONS = selector_options(SETTINGS)
APP = typer.Typer()
command.register(APP)


@pytest.fixture(scope="module")
def log():
    return small_run()


@pytest.fixture(scope="module")
def offline(log):
    """The explanation of the latest decision of the log's first job, from the log itself."""
    explainer, entries = LogExplainer(OPTIONS), RecordedEntries(log)
    explainer.follow(entries)
    query = DecisionQuery(job_id=explainer.index.decisions()[0].job_id)
    return explainer.explain(entries, query)


@pytest.fixture
async def explainer(broker, event_stream, log):
    entries = packed([entry.envelope() for entry in log])
    await event_stream.publish([entry.envelope for entry in entries])
    live = LiveExplainer(BusAddress(nats_url=broker.url), OPTIONS)
    yield live
    live.close()


def query_of(explanation: DecisionExplanation) -> DecisionQuery:
    return DecisionQuery(job_id=explanation.decision.job_id)


def told(explanation: DecisionExplanation) -> tuple[object, ...]:
    """What does not depend on how events lie in entries of the log."""
    return (
        explanation.decision,
        explanation.summary,
        explanation.alternatives,
        [(link.kind, link.event_id, link.text) for link in explanation.chain],
        [(each.kind, each.id, each.age_s, each.text) for each in explanation.inputs],
    )


async def test_a_running_log_is_explained_like_a_recorded_one(explainer, offline) -> None:
    found = await explainer.explain(query_of(offline))
    again = await explainer.explain(query_of(offline))

    assert told(found) == told(offline)
    assert again == found


async def test_only_one_is_explained_at_a_time(explainer, offline) -> None:
    first = asyncio.create_task(explainer.explain(query_of(offline)))
    await asyncio.sleep(0)

    with pytest.raises(ExplainerBusy, match="try again"):
        await explainer.explain(query_of(offline))

    assert told(await first) == told(offline)
    # And then the next has its turn.
    with pytest.raises(UnknownDecision):
        await explainer.explain(DecisionQuery(job_id="none"))


async def test_a_log_whose_beginning_is_gone_is_refused(
    explainer, js, event_stream, offline
) -> None:
    config = (await js.stream_info(event_stream.name)).config
    config.max_msgs = 50
    await js.update_stream(config)

    with pytest.raises(LogBeginsLate, match=r"begins with seq [1-9]\d+: what came before"):
        await explainer.explain(query_of(offline))


async def test_the_command_asks_the_running_system(explainer, offline) -> None:
    server = RpcServer(opened_host(), JobFeed(), address="127.0.0.1:0")
    address = await server.start()

    async def run(*arguments: str):
        environment = {"SPOTLINE_ALLOCATOR_ADDRESS": address, "COLUMNS": "100"}
        return await asyncio.to_thread(CliRunner().invoke, APP, list(arguments), env=environment)

    job_id = offline.decision.job_id
    try:
        without = await run(job_id)
        server.explain_with(explainer)
        said = await run(job_id, "--json")
        elsewhere = await run(job_id, "--slot", "7000")
        unknown = await run("0" * 32)
    finally:
        await server.stop(grace_s=0.2)

    assert without.exit_code == 1
    assert "explains no decisions" in without.stderr
    assert said.exit_code == 0, said.output
    assert json.loads(said.stdout)["summary"] == offline.summary
    assert elsewhere.exit_code != 0
    assert "the nearest are" in elsewhere.stderr
    assert unknown.exit_code != 0
    assert "there is no job 0000" in unknown.stderr
