"""A handler whose every output depends on all inputs before it, so that any slip shows."""

import json
from dataclasses import asdict, dataclass, replace

from spotline.application.spec import (
    NOTHING,
    Call,
    CallSpec,
    Outcome,
    Recomputed,
    Spec,
    Timer,
    derive_id,
)
from spotline.domain.events.allocation import AllocationAnswered, CallOutcome
from spotline.domain.events.capacity import SlotDecided
from spotline.domain.events.forecast import ForecastOverdue
from spotline.domain.events.lifecycle import JobCancelled
from spotline.domain.events.market import MarketOpened


def recomputed(call, recorded):
    """The toy's answers repeat its request."""
    return Recomputed(answer=replace(recorded, slot=call.request))


SPEC = Spec(
    service="toy",
    consumes=(ForecastOverdue, JobCancelled, AllocationAnswered, SlotDecided),
    produces=(SlotDecided, AllocationAnswered, JobCancelled, MarketOpened),
    decides=(SlotDecided,),
    calls=(CallSpec(name="ask", answers=(AllocationAnswered,), recompute=recomputed),),
)


@dataclass(slots=True)
class ToyState:
    inputs: int = 0
    answers: int = 0
    decided: int = 0
    fired: int = 0
    digest: str = ""


class ToyHandler:
    """Two decisions for each even slot, one for an odd one; every fifth slot makes a call.

    With `timers`, a cancellation is due until as many as that were recorded.
    """

    spec = SPEC

    def __init__(self, *, timers=0, timer_s=0.0, gated=False):
        self.timers = timers
        self.timer_s = timer_s
        self.gated = gated

    def initial(self):
        return ToyState()

    def evolve(self, state, event):
        state.digest = derive_id(state.digest, repr(event))
        match event:
            case ForecastOverdue():
                state.inputs += 1
            case AllocationAnswered():
                state.answers += 1
            case SlotDecided():
                state.decided += 1
            case JobCancelled():
                state.fired += 1

    def decide(self, state, event, ctx):
        if not isinstance(event, ForecastOverdue):
            return NOTHING
        decided = tuple(
            SlotDecided(
                slot=event.slot,
                revision=revision,
                offset_s=int(state.digest[:4], 16) + int(ctx.uniform("offset") * 1000),
                commands=state.decided,
            )
            for revision in range(1 + (event.slot % 2 == 0))
        )
        calls = (Call(name="ask", digest=state.digest, request=event.slot),)
        return Outcome(events=decided, calls=calls if event.slot % 5 == 0 else ())

    def due(self, state):
        if state.fired >= self.timers:
            return ()
        event = JobCancelled(job_id=f"timer-{state.fired}", tenant="toy")
        timer_id = f"cancel:{state.fired}"
        return (
            Timer(timer_id=timer_id, after_s=self.timer_s, events=(event,), needs_gate=self.gated),
        )


def answer(slot, revision=0):
    return AllocationAnswered(
        slot=slot,
        revision=revision,
        request_digest="asked",
        outcome=CallOutcome.ANSWERED,
        answers=(),
    )


class ToyCalls:
    """Answers each call with as many events as its slot is divisible by five, at least one."""

    def __init__(self):
        self.performed = []

    async def __call__(self, call):
        self.performed.append(call.request)
        return [answer(call.request, place) for place in range(max(1, call.request // 5 % 4))]


class ToyCodec:
    version = "1"

    def dump(self, state):
        return json.dumps(asdict(state)).encode()

    def load(self, dumped):
        return ToyState(**json.loads(dumped))
