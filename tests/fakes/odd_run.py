"""A whole run in one process, market clock included, into which odd entries can be put."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

import numpy as np

from spotline.application.allocation.messages import AllocateRequest
from spotline.application.allocator.handler import JobsHandler
from spotline.application.cloud_actuator.handler import ActuateHandler
from spotline.application.configurator.handler import ConfigureHandler
from spotline.application.forecaster.handler import ForecastHandler
from spotline.application.market_ingest.handler import IngestHandler, IngestOptions
from spotline.application.placer.handler import PlaceHandler
from spotline.application.read_model.handler import ReadModelHandler
from spotline.application.selector.handler import ALLOCATE_CALL, SelectHandler
from spotline.application.selector.options import SelectorOptions
from spotline.application.spec import Call
from spotline.contracts.build import event_of
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.mapping import digest
from spotline.domain.events.allocation import AllocationAnswered, CallOutcome
from spotline.domain.events.capacity import SlotDecided
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobClosed, JobSubmitted
from spotline.domain.events.market import SlotOpened
from spotline.domain.events.parking import EntryParked
from spotline.domain.forecasting.registry import forecaster_factory
from spotline.domain.jobs.job import Job
from spotline.domain.market.market import Market
from spotline.domain.policies.answer import DecisionReason, JobAnswer
from spotline.replay.host import LocalHost
from spotline.replay.jobs import generated_jobs
from spotline.replay.parts import ExactCloud, answer_in_process
from tests.fakes.recorded_run import small_market

OPTIONS = SelectorOptions(rehearsals=2)


def _answered(call: Call) -> tuple[Event, ...]:
    """Answer as the allocator, which refuses what contradicts itself."""
    try:
        return answer_in_process(call)
    except (LookupError, ValueError):
        request = cast("AllocateRequest", call.request)
        return (
            AllocationAnswered(
                slot=request.slot,
                revision=request.revision,
                request_digest=call.digest,
                outcome=CallOutcome.REFUSED,
                answers=(),
            ),
        )


class OddRun:
    """Every handler on one stream, a market behind a barrier, and an exact cloud.

    The actuator asks its cloud for nothing here: that one answers by itself.
    """

    def __init__(self, market: Market, jobs: Sequence[Job], *, forecaster: str = "persistence"):
        self.log: list[StoredEntry] = []
        self.settings = SETTINGS
        self.clock = IngestHandler(market, IngestOptions())
        self.market = market
        self.jobs = jobs
        self.host = LocalHost(
            [
                self.clock,
                ForecastHandler(forecaster_factory(forecaster), horizon_slots=6),
                SelectHandler(OPTIONS, digest=digest),
                JobsHandler(OPTIONS),
                ReadModelHandler(),
                ConfigureHandler(),
                PlaceHandler(),
                ActuateHandler(),
                ExactCloud(),
            ],
            answers={
                ALLOCATE_CALL: _answered,
                **{call.name: lambda call: () for call in ActuateHandler.spec.calls},
            },
            record=self.log.append,
        )

    def state_of(self, service: str) -> Any:
        return self.host.state_of(service)

    def begin(self) -> None:
        self._fire()
        for job in self.jobs:
            event = JobSubmitted(job=job, ts_event_ns=self.market.start_ns)
            self.host.publish(event, source="allocator")

    def _fire(self) -> bool:
        """What the services' timers record now; whether there was anything."""
        fired = False
        for turns in self.host.hosted:
            for timer in turns.due():
                for output in turns.timer_outputs(timer):
                    self.host.publish(output.event, source=turns.service, event_id=output.event_id)
                fired = True
                break
        return fired

    def to_the_end(self, odd: Mapping[int, Sequence[Event]] | None = None) -> None:
        """Let the market run; `odd` events come when that slot is the open one."""
        left = {slot: list(events) for slot, events in (odd or {}).items()}
        for _ in range(20 * self.market.slots):
            for event in left.pop(self.state_of("market_ingest").slot, ()):
                self.host.publish(event, source="somebody")
            if not self._fire():
                return
        raise AssertionError("the market never ended")

    def events(self, *kinds: type[Event]) -> list[Any]:
        found = (event_of(entry) for entry in self.log)
        return [event for event in found if isinstance(event, kinds)]

    def parked(self) -> list[EntryParked]:
        return self.events(EntryParked)

    def outcomes(self) -> dict[str, str]:
        return {event.job_id: event.outcome.value for event in self.events(JobClosed)}


def dumped(value: Any, seen: frozenset[int] = frozenset()) -> Any:
    """All that a state holds, as plain values that can be compared."""
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return value
    if id(value) in seen:
        return "..."
    seen |= {id(value)}
    if isinstance(value, np.ndarray):
        return ("array", value.shape, value.tolist())
    if isinstance(value, dict):
        return ("dict", [(dumped(k, seen), dumped(v, seen)) for k, v in value.items()])
    if isinstance(value, (set, frozenset)):
        return ("set", sorted(map(repr, value)))
    if isinstance(value, (list, tuple)) or type(value).__name__ == "deque":
        return (type(value).__name__, [dumped(item, seen) for item in value])
    if is_dataclass(value) and not isinstance(value, type):
        return (
            type(value).__name__,
            [(f.name, dumped(getattr(value, f.name), seen)) for f in fields(value)],
        )
    if hasattr(value, "__dict__") and not callable(value):
        return (type(value).__name__, dumped(vars(value), seen))
    return repr(type(value))


def watch(run: OddRun, *event_types: type[Event]) -> list[str]:
    """Services whose state a parked event of these types changed; filled while the run goes on."""
    changed: list[str] = []
    for turns in run.host.hosted:

        def checked(event, ctx, recorded=None, *, turns=turns, take=turns.take):
            if not isinstance(event, event_types):
                return take(event, ctx, recorded)
            before = dumped(turns.state)
            turn = take(event, ctx, recorded)
            if turn.error is not None and dumped(turns.state) != before:
                changed.append(f"{turns.service} {type(event).__name__}: {turn.error}")
            return turn

        turns.take = checked
    return changed


SETTINGS = {
    "selector": {"rehearsals": 2},
    "forecaster": {"forecaster": "persistence", "horizon_slots": 6},
}


def poisoned_run() -> OddRun:
    """A run in the middle of which entries come that services cannot take."""
    market = small_market(slots=16)
    run = OddRun(market, generated_jobs(market, 3, 5))
    run.begin()
    first = run.clock.slot_events(5)[-1]
    assert isinstance(first, SlotOpened)
    answer = AllocationAnswered(
        slot=4,
        revision=0,
        request_digest="x",
        outcome=CallOutcome.ANSWERED,
        answers=(
            JobAnswer(
                job_id="nobody",
                policy_id="sdp",
                lots=(),
                memory=(),
                reason=DecisionReason.POLICY,
            ),
        ),
    )
    run.to_the_end(
        {
            3: [replace(first, slot=10**7), replace(first, quotes=())],
            4: [SlotDecided(slot=9, revision=0, offset_s=0, commands=0), answer],
            6: [SlotDecided(slot=6, revision=0, offset_s=0, commands=99), replace(first, slot=-4)],
            7: [replace(first, slot=14)],
        }
    )
    return run
