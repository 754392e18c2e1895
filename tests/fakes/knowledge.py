"""Runs, a source that only counts them, and a configurator's host without a broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from spotline.application.configurator.handler import ConfigureHandler
from spotline.contracts.build import envelope_for
from spotline.contracts.envelope import Envelope
from spotline.contracts.errors import ProviderUnavailable
from spotline.domain.configuration.configuration import (
    Configuration,
    MeasuredRun,
    Method,
    NoPrediction,
    Prediction,
    RunOutcome,
)
from spotline.domain.configuration.interface import SourceDescription
from spotline.domain.configuration.provenance import (
    JobConfiguration,
    OriginKind,
    ParameterOrigin,
)
from spotline.domain.configuration.registry import DEFAULT_SOURCE
from spotline.domain.events.event import Event
from spotline.domain.events.market import MarketOpened
from spotline.domain.jobs.job import Job, Throughput, Work
from tests.fakes.allocator import job, market_opened

GPU = "a100-80gb"
STACK = "sfttrainer"
TOKENS_PER_HOUR = 3.6e7


def configuration(**changes: object) -> Configuration:
    one = Configuration(
        model_name="granite-3.1-8b",
        method=Method.FULL,
        gpu_model=GPU,
        gpus=8,
        nodes=1,
        tokens_per_sample=4096,
        batch_size=32,
    )
    return replace(one, **changes)


def measured(
    tokens_per_s: float = 20_000.0,
    *,
    stack: str = STACK,
    outcome: RunOutcome = RunOutcome.SUCCEEDED,
    **changes: object,
) -> MeasuredRun:
    return MeasuredRun(
        configuration=configuration(**changes),
        stack=stack,
        outcome=outcome,
        tokens_per_s=tokens_per_s if outcome is RunOutcome.SUCCEEDED else 0.0,
    )


def measured_runs(count: int, *, stack: str = STACK) -> tuple[MeasuredRun, ...]:
    """Different runs; larger batches are faster."""
    return tuple(
        measured(18_000.0 + 10 * n, stack=stack, batch_size=8 * (1 + n % 16)) for n in range(count)
    )


def predicted_job() -> Job:
    """A job on one or two instances, whose throughput was predicted."""
    origin = ParameterOrigin(
        parameter="throughput.*",
        value=f"{TOKENS_PER_HOUR:g} tokens/h",
        kind=OriginKind.PREDICTED,
        source_id="analytic",
        low=TOKENS_PER_HOUR / 2,
        high=2 * TOKENS_PER_HOUR,
    )
    return replace(
        job(counts=(1, 2)),
        work=Work(amount=1e9, unit="tokens"),
        throughputs=(Throughput(offering="*", alpha=TOKENS_PER_HOUR),),
        configuration=JobConfiguration(
            configuration=configuration(gpus=16, nodes=2),
            weak_scaling=False,
            success_ppm=990_000,
            stack=STACK,
            origins=(origin,),
        ),
    )


def market_with_gpus() -> MarketOpened:
    """A market whose instances have eight of the GPUs above."""
    opened = market_opened()
    offerings = tuple(replace(one, gpu_model=GPU) for one in opened.offerings)
    return replace(opened, offerings=offerings)


class RecallingSource:
    """Predicts how many runs it has learned in full, in thousands, and observed since, in ones."""

    def __init__(self, source_id: str = DEFAULT_SOURCE) -> None:
        self.source_id = source_id
        self._learned: tuple[MeasuredRun, ...] = ()
        self._observed: list[MeasuredRun] = []

    def learn(self, runs: Sequence[MeasuredRun]) -> None:
        self._learned, self._observed = tuple(runs), []

    def observe(self, run: MeasuredRun) -> None:
        self._observed.append(run)

    def predict(
        self, configurations: Sequence[Configuration], *, stack: str = ""
    ) -> tuple[Prediction | NoPrediction, ...]:
        known = [*self._learned, *self._observed]
        if not known or (stack and stack not in {run.stack for run in known}):
            nothing = NoPrediction(source_id=self.source_id, reason=f"no run of stack {stack!r}")
            return (nothing,) * len(configurations)
        rate = 1_000.0 * len(self._learned) + len(self._observed)
        expected = Prediction(
            source_id=self.source_id,
            tokens_per_s=rate,
            low_tokens_per_s=rate,
            high_tokens_per_s=rate,
            success_probability=1.0,
        )
        return (expected,) * len(configurations)

    def describe(self) -> SourceDescription:
        known = [*self._learned, *self._observed]
        return SourceDescription(
            source_id=self.source_id,
            runs=sum(run.ran for run in known),
            failed_runs=sum(not run.ran for run in known),
            stacks=tuple(sorted({run.stack for run in known})),
        )


def recalling(name: str) -> RecallingSource:
    """A source of this name that only counts."""
    return RecallingSource(name)


class FakeConfiguratorHost:
    """Stores an observation once by its id and applies it at once; `down` refuses to store."""

    def __init__(self, *events: Event) -> None:
        self._handler = ConfigureHandler()
        self.state = self._handler.initial()
        self.stored: dict[str, int] = {}
        self.listeners: list[Callable[[Event, Envelope, int], None]] = []
        self.down = False
        self._seq = 0
        for event in events:
            self._apply(event, f"event-{self._seq}")

    def record(self, event: Event) -> int:
        """Store what came from elsewhere."""
        return self._apply(event, f"event-{self._seq}")

    async def publish_observation(self, event: Event, *, event_id: str, correlation_id: str) -> int:
        if self.down:
            raise ProviderUnavailable("the broker is away")
        if event_id not in self.stored:
            self.stored[event_id] = self._apply(event, event_id)
        return self.stored[event_id]

    def _apply(self, event: Event, event_id: str) -> int:
        self._seq += 1
        envelope = envelope_for(
            event, event_id=event_id, source="test", causation_id="", correlation_id="c"
        )
        self._handler.evolve(self.state, event)
        for listener in self.listeners:
            listener(event, envelope, self._seq)
        return self._seq
