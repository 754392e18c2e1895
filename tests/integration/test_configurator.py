"""ConfigurationService over real gRPC: with a host that has no broker, and as a process on NATS."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from spotline.adapters.grpc.configurator.client import ConfiguratorClient
from spotline.adapters.grpc.configurator.server import ConfiguratorServer
from spotline.adapters.grpc.configurator.servicer import SharedKnowledge, runs_measured
from spotline.adapters.grpc.kit.calling import open_channel
from spotline.adapters.grpc.kit.errors import RpcFailed
from spotline.adapters.knowledge.store import read_knowledge, write_knowledge
from spotline.api.v1 import configuration_service_pb2_grpc
from spotline.application.configurator.knowledge import KnowledgeBase
from spotline.application.configurator.messages import (
    CompletionRequest,
    Lesson,
    PredictionAnswer,
    PredictionRequest,
)
from spotline.bootstrap.parts import BusAddress, open_stream
from spotline.contracts.batch import unpacked
from spotline.contracts.build import event_of
from spotline.contracts.errors import ConfigError, ContractError
from spotline.contracts.mapping import to_message
from spotline.domain.configuration.configuration import MeasuredRun, Method, RunOutcome
from spotline.domain.configuration.registry import make_source
from spotline.domain.events.knowledge import RunMeasured
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import Deadline, DeadlineKind
from spotline.domain.market.generate import generate
from spotline.runtime.applied import AppliedFeed
from spotline.runtime.broker import EmbeddedBroker
from tests.eventually import PATIENCE_S, eventually
from tests.fakes.allocator import START_NS, forecast_issued, slot_opened
from tests.fakes.knowledge import (
    FakeConfiguratorHost,
    RecallingSource,
    configuration,
    market_with_gpus,
    measured,
    measured_runs,
    recalling,
)
from tests.fakes.processes import ServiceProcesses, free_port

pytestmark = pytest.mark.integration

MARKET = generate("mixed", seed=3, slots=4, slot_s=1800, start_ns=START_NS)
ASKED = PredictionRequest(configurations=(configuration(), configuration(batch_size=64)))


@asynccontextmanager
async def serving(host: FakeConfiguratorHost, base: KnowledgeBase, *, address: str = "127.0.0.1:0"):
    """The configurator's server on a host without a broker; yields its address."""
    feed = AppliedFeed(runs_measured)
    host.listeners.append(feed.on_applied)
    knowledge = SharedKnowledge(base, host, feed)
    server = ConfiguratorServer(host, knowledge, address=address)
    async with asyncio.TaskGroup() as tasks:
        learning = tasks.create_task(knowledge.keep_learning())
        try:
            await knowledge.start()
            yield await server.start()
        finally:
            await server.stop(grace_s=0.2)
            learning.cancel()
            knowledge.close()


@asynccontextmanager
async def client_of(
    *imported: MeasuredRun, host: FakeConfiguratorHost | None = None, make=recalling
):
    base = KnowledgeBase(imported, make=make)
    async with (
        serving(host or FakeConfiguratorHost(), base) as address,
        ConfiguratorClient(address) as client,
    ):
        yield client


def rate(answers: tuple[PredictionAnswer, ...]) -> float:
    """Thousands are runs learned in full, ones are runs observed since."""
    assert answers[0].prediction is not None, answers[0].reason
    return answers[0].prediction.tokens_per_s


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Ask again until it is so."""
    async with asyncio.timeout(100):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.02)


def draft(**changes: object) -> JobDraft:
    one = JobDraft(
        tenant="research",
        client_request_id="r1",
        model_name="granite-3.1-8b",
        tokens=1e9,
        deadline=Deadline(
            kind=DeadlineKind.HARD,
            at_ns=START_NS + 86_400 * 10**9,
            expires_ns=START_NS + 86_400 * 10**9,
        ),
        value_micro_usd=10**9,
    )
    return replace(one, **changes)


# --- predict and learn ------------------------------------------------------------------------


async def test_what_was_learned_changes_the_next_prediction() -> None:
    async with client_of(*measured_runs(3)) as client:
        before = rate(await client.predict(ASKED))
        receipt = await client.learn([measured(1.0), measured(2.0)])
        after = rate(await client.predict(ASKED))

    assert (receipt.recorded, receipt.refused) == (2, ())
    assert (before, after) == (3_000.0, 3_002.0)


async def test_sources_learn_anew_beside_the_answers_once_enough_was_added() -> None:
    async with client_of(*measured_runs(3)) as client:
        await client.predict(ASKED)
        await client.learn([measured(float(n)) for n in range(1, 11)])

        async def relearned() -> bool:
            return rate(await client.predict(ASKED)) == 13_000.0

        await until(relearned)


class SlowSource(RecallingSource):
    """Learns anew, and predicts a batch of one, only when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.let = threading.Event()
        self.busy = threading.Event()

    def learn(self, runs):
        if len(runs) > 3:
            self._wait()
        super().learn(runs)

    def predict(self, configurations, *, stack=""):
        if configurations[0].batch_size == 1:
            self._wait()
        return super().predict(configurations, stack=stack)

    def _wait(self) -> None:
        self.busy.set()
        assert self.let.wait(PATIENCE_S)


async def test_questions_are_answered_while_sources_learn_anew() -> None:
    made: list[SlowSource] = []

    def make(name: str) -> SlowSource:
        made.append(SlowSource())
        return made[-1]

    async with client_of(*measured_runs(3), make=make) as client:
        await client.learn([measured(float(n)) for n in range(1, 11)])
        await eventually(lambda: len(made) == 2 and made[1].busy.is_set())
        meanwhile = rate(await client.predict(ASKED))
        made[1].let.set()

        async def relearned() -> bool:
            return rate(await client.predict(ASKED)) == 13_000.0

        await until(relearned)

    assert meanwhile == 3_010.0


async def test_a_question_withdrawn_before_its_turn_takes_no_run_with_it() -> None:
    source = SlowSource()
    host, feed = FakeConfiguratorHost(), AppliedFeed(runs_measured)
    knowledge = SharedKnowledge(
        KnowledgeBase(measured_runs(3), make=lambda name: source), host, feed
    )
    try:
        await knowledge.start()
        slow = asyncio.ensure_future(
            knowledge.ask(lambda base: base.predict([configuration(gpus=1, batch_size=1)]))
        )
        await eventually(source.busy.is_set)
        host.record(RunMeasured(run=measured(1.0)))
        withdrawn = asyncio.ensure_future(knowledge.ask(lambda base: base.stack))
        await asyncio.sleep(0)
        withdrawn.cancel()
        source.let.set()
        await slow

        (prediction,) = await knowledge.ask(lambda base: base.predict([configuration()]))
    finally:
        source.let.set()
        knowledge.close()

    assert withdrawn.cancelled()
    assert prediction.tokens_per_s == 3_001.0


async def test_a_lesson_sent_again_is_recorded_once() -> None:
    host = FakeConfiguratorHost()
    lesson = [measured(1.0), measured(2.0), measured(1.0)]

    async with client_of(host=host) as client:
        first = await client.learn(lesson)
        again = await client.learn(lesson)

    assert (first.recorded, again.recorded) == (3, 3)
    assert len(host.stored) == 2


async def test_each_run_that_cannot_be_learned_is_refused_by_index_and_reason() -> None:
    host = FakeConfiguratorHost()
    lesson = to_message(
        Lesson(
            runs=(
                measured(1.0),
                measured(model_name="nobody-knows"),
                measured(gpu_model="abacus"),
                measured(batch_size=3),
                measured(),
                measured(2.0),
            )
        )
    )
    lesson.runs[4].configuration.tokens_per_sample = 0

    async with (
        serving(host, KnowledgeBase(make=recalling)) as address,
        open_channel(address) as channel,
    ):
        stub = configuration_service_pb2_grpc.ConfigurationServiceStub(channel)
        receipt = await stub.Learn(lesson, timeout=30)

    reasons = {one.index: one.reason for one in receipt.refused}
    assert receipt.recorded == len(host.stored) == 2
    assert sorted(reasons) == [1, 2, 3, 4]
    assert "nobody-knows" in reasons[1]
    assert "abacus" in reasons[2]
    assert "outcome must not be succeeded: batch_size must be a multiple of gpus" in reasons[3]
    assert "tokens_per_sample must be >= 1, was 0" in reasons[4]


async def test_a_full_log_refuses_further_runs_and_names_the_way_out(monkeypatch) -> None:
    monkeypatch.setattr("spotline.adapters.grpc.configurator.servicer.MOST_LEARNED_RUNS", 2)
    host = FakeConfiguratorHost()

    async with client_of(host=host) as client:
        receipt = await client.learn([measured(1.0), measured(2.0), measured(3.0), measured(1.0)])

    assert (receipt.recorded, [one.index for one in receipt.refused]) == (3, [2])
    assert "from a file" in receipt.refused[0].reason


async def test_learning_while_the_bus_is_down_says_that_nothing_was_recorded() -> None:
    host = FakeConfiguratorHost()
    host.down = True

    async with client_of(host=host) as client:
        with pytest.raises(RpcFailed) as caught:
            await client.learn([measured()])

    assert caught.value.code == "UNAVAILABLE"
    assert not caught.value.unreachable


# --- bad input --------------------------------------------------------------------------------


async def test_a_configuration_that_cannot_be_predicted_does_not_spoil_the_others() -> None:
    asked = PredictionRequest(
        configurations=(
            configuration(model_name="nobody-knows"),
            configuration(gpu_model="abacus"),
            configuration(batch_size=3),
            configuration(),
        ),
        source_id="analytic",
    )
    base = KnowledgeBase()
    async with (
        serving(FakeConfiguratorHost(), base) as address,
        ConfiguratorClient(address) as client,
    ):
        answers = await client.predict(asked)

    assert [one.prediction is None for one in answers] == [True, True, True, False]
    assert "nobody-knows" in answers[0].reason
    assert "abacus" in answers[1].reason
    assert "batch_size must be a multiple of gpus" in answers[2].reason
    # No run was ever measured: the analytic model answers, and says how wide it is.
    known = answers[3].prediction
    assert known is not None
    assert known.high_tokens_per_s > 2 * known.low_tokens_per_s


async def test_zero_tokens_name_the_field() -> None:
    message = to_message(ASKED)
    message.configurations[1].tokens_per_sample = 0

    async with (
        serving(FakeConfiguratorHost(), KnowledgeBase(make=recalling)) as address,
        open_channel(address) as channel,
    ):
        stub = configuration_service_pb2_grpc.ConfigurationServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Predict(message, timeout=30)

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == ("configurations[1]: tokens_per_sample must be >= 1, was 0")


async def test_an_unknown_source_is_refused_with_those_there_are() -> None:
    async with client_of() as client:
        with pytest.raises(RpcFailed) as caught:
            await client.predict(replace(ASKED, source_id="oracle"))

    assert caught.value.bad_input
    assert caught.value.field == "source_id"
    assert "combined" in str(caught.value)


class SingularSource(RecallingSource):
    """One whose numbers cannot be solved for."""

    def predict(self, configurations, *, stack: str = ""):
        raise np.linalg.LinAlgError("singular matrix")


@pytest.mark.parametrize("rpc", ["predict", "complete"])
async def test_a_failure_inside_a_source_is_not_the_callers_mistake(rpc) -> None:
    host = FakeConfiguratorHost(market_with_gpus(), slot_opened(0), forecast_issued(0))
    asked = {"predict": ASKED, "complete": CompletionRequest(draft=draft())}[rpc]
    async with client_of(*measured_runs(3), host=host, make=SingularSource) as client:
        with pytest.raises(RpcFailed, match="singular matrix") as caught:
            await getattr(client, rpc)(asked)

    assert (caught.value.code, caught.value.bad_input) == ("UNKNOWN", False)


async def test_too_many_configurations_are_refused(monkeypatch) -> None:
    monkeypatch.setattr("spotline.adapters.grpc.configurator.servicer._MOST_PER_CALL", 1)

    async with client_of() as client:
        with pytest.raises(RpcFailed) as caught:
            await client.predict(ASKED)

    assert caught.value.field == "configurations"
    assert str(caught.value) == "configurations must be <= 1, was 2"


async def test_a_draft_before_the_market_is_asked_to_come_again() -> None:
    async with client_of() as client:
        with pytest.raises(RpcFailed) as caught:
            await client.complete(CompletionRequest(draft=draft()))

    assert caught.value.code == "UNAVAILABLE"
    assert "no market is open" in str(caught.value)


async def test_a_draft_becomes_a_whole_job_by_what_was_measured() -> None:
    host = FakeConfiguratorHost(market_with_gpus(), slot_opened(0), forecast_issued(0))
    runs = measured_runs(3)

    async with client_of(*runs, host=host, make=make_source) as client:
        answer = await client.complete(
            CompletionRequest(draft=draft(method=Method.FULL), source_id="analytic")
        )

    origins = {one.parameter: one.said_by for one in answer.job.configuration.origins}
    assert answer.job.client_request_id == "r1"
    assert answer.job.configuration.stack == "sfttrainer"
    assert answer.options[0].chosen
    assert answer.considered >= len(answer.options)
    assert (origins["method"], origins["batch_size"]) == ("user", "predicted by analytic")


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"model_name": "nobody-knows"}, "draft.model_name", "nobody-knows"),
        ({"gpus": 8, "batch_size": 3}, "draft.batch_size", "multiple of gpus"),
    ],
)
async def test_a_draft_that_cannot_be_completed_names_the_field(changes, field, said) -> None:
    host = FakeConfiguratorHost(market_with_gpus(), slot_opened(0), forecast_issued(0))

    async with client_of(host=host, make=make_source) as client:
        with pytest.raises(RpcFailed) as caught:
            await client.complete(CompletionRequest(draft=draft(**changes), source_id="analytic"))

    assert caught.value.code == "INVALID_ARGUMENT"
    assert caught.value.field == field
    assert said in str(caught.value)


async def test_a_deadline_nothing_meets_is_answered_with_the_earliest() -> None:
    host = FakeConfiguratorHost(market_with_gpus(), slot_opened(0), forecast_issued(0))

    async with client_of(host=host, make=make_source) as client:
        with pytest.raises(RpcFailed) as caught:
            await client.complete(CompletionRequest(draft=draft(tokens=1e13), source_id="analytic"))

    assert caught.value.code == "FAILED_PRECONDITION"
    assert caught.value.field == "draft.deadline"
    assert caught.value.earliest_feasible_deadline > "2026-03-02"


async def test_an_absent_configurator_is_named() -> None:
    async with ConfiguratorClient("127.0.0.1:1") as client:
        with pytest.raises(RpcFailed) as caught:
            await client.predict(ASKED)

    assert caught.value.unreachable
    assert "the configurator at 127.0.0.1:1 cannot be reached" in str(caught.value)


# --- the server itself ------------------------------------------------------------------------


async def test_nothing_is_loaded_before_somebody_asks_where_nothing_was_measured() -> None:
    made: list[str] = []

    def make(name: str):
        made.append(name)
        return recalling(name)

    async with client_of(make=make) as client:
        at_start = tuple(made)
        await client.predict(ASKED)

    assert (at_start, made) == ((), ["combined"])


async def test_with_measured_runs_the_default_source_is_taught_before_listening() -> None:
    made: list[str] = []

    def make(name: str):
        made.append(name)
        return recalling(name)

    async with serving(FakeConfiguratorHost(), KnowledgeBase(measured_runs(2), make=make)):
        assert made == ["combined"]


async def test_health_is_served_and_a_taken_address_is_said() -> None:
    base = KnowledgeBase(make=recalling)
    async with (
        serving(FakeConfiguratorHost(), base) as address,
        open_channel(address) as channel,
    ):
        health = await health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service="spotline.api.v1.ConfigurationService")
        )
        with pytest.RaisesGroup(
            pytest.RaisesExc(ConfigError, match="is another configurator running there")
        ):
            async with serving(FakeConfiguratorHost(), base, address=address):
                pass

    assert health.status == health_pb2.HealthCheckResponse.SERVING


# --- as a process -----------------------------------------------------------------------------


async def said_by(client: ConfiguratorClient) -> tuple[object, ...]:
    """What a caller sees."""
    return await client.sources(), await client.predict(ASKED)


def known_from(
    imported: Sequence[MeasuredRun], learned: Sequence[MeasuredRun]
) -> tuple[object, ...]:
    """The same, of a base in this process that knows the same runs."""
    base = KnowledgeBase(imported)
    for run in learned:
        base.observe(run)
    return base.describe(), base.answer(ASKED).answers


@pytest.mark.slow  # the short form is the placer's
@pytest.mark.timeout(240)
async def test_killed_and_started_again_it_answers_as_before(tmp_path: Path) -> None:
    file = tmp_path / "runs.parquet"
    write_knowledge(measured_runs(8), file)
    address = f"127.0.0.1:{free_port()}"
    settings = {"SPOTLINE_CONFIGURATOR_ADDRESS": address, "SPOTLINE_KNOWLEDGE": str(file)}
    taught = [measured(30_000.0 + n, batch_size=8 * n) for n in range(1, 14)]
    failed = measured(outcome=RunOutcome.OUT_OF_MEMORY, batch_size=1024)
    async with (
        EmbeddedBroker(tmp_path / "broker") as broker,
        ServiceProcesses(broker.url, tmp_path, MARKET, **settings) as services,
        ConfiguratorClient(address) as client,
    ):

        async def up() -> None:
            await services.start("configurator")

            async def answering() -> bool:
                assert not services.dead(), services.said()
                try:
                    await client.sources()
                except RpcFailed as error:
                    if not error.unreachable:
                        raise
                    return False
                return True

            await until(answering)

        await up()
        before = await client.predict(ASKED)
        receipt = await client.learn([*taught, failed])
        recorded = await runs_recorded(broker.url)
        expected = known_from(read_knowledge(file), recorded)

        # More than a tenth was added: what they observed is learned in full beside the answers.
        async def relearned() -> bool:
            return await said_by(client) == expected

        await until(relearned)
        after = await client.predict(ASKED)
        await services.kill("configurator")
        await up()
        again = await said_by(client)

    assert receipt.recorded == 14
    assert set(recorded) == {*taught, failed}
    assert before != after
    assert again == expected


async def runs_recorded(url: str) -> list[MeasuredRun]:
    """Runs in the order of the log: those of one call are stored together, in whatever order."""
    async with open_stream(BusAddress(nats_url=url), name="test") as (_, stream):
        log = [entry async for entry in stream.read([], last_seq=await stream.last_seq())]
    events = [event_of(envelope) for entry in log for envelope in unpacked(entry)]
    return [event.run for event in events if isinstance(event, RunMeasured)]


async def test_a_knowledge_file_that_is_not_there_stops_it_with_the_reason(
    broker, tmp_path: Path
) -> None:
    from spotline.bootstrap.parts import PartHooks
    from spotline.bootstrap.servers import serve_configurator

    with pytest.raises(ContractError, match=r"nowhere\.parquet: expected a knowledge base"):
        await serve_configurator(
            BusAddress(nats_url=broker.url),
            address="127.0.0.1:0",
            knowledge=tmp_path / "nowhere.parquet",
            stack="",
            hooks=PartHooks(),
        )
