"""The shell around the actuator's looks at a cloud: it waits for news, and says what was found."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Protocol
from uuid import uuid4

import structlog

from spotline.application.cloud_actuator.actuation import CloudActuation
from spotline.application.cloud_actuator.agreeing import Agreed
from spotline.application.cloud_actuator.fencing import said_of
from spotline.application.cloud_actuator.handler import ActuateState
from spotline.application.cloud_actuator.ports import CloudClock, CloudProvider
from spotline.application.cloud_actuator.reconciling import Reconciliation
from spotline.application.cloud_actuator.settling import BillsSettled
from spotline.application.spec import Call
from spotline.contracts.errors import ProviderUnavailable
from spotline.domain.events.agreement import DisagreementKind
from spotline.domain.events.capacity import CapacitySignalled
from spotline.domain.events.event import Event
from spotline.domain.units import NS_PER_S
from spotline.runtime.metrics import DISAGREEMENT, INSTANCE_STATE, Readings
from spotline.runtime.service import CallPort
from spotline.runtime.telemetry import Telemetry

_log = structlog.get_logger(__name__)

# A cloud that always has news costs no more than this many entries of the log.
SHORTEST_WAIT_S = 1.0


class Looks:
    """Says what the actuator's looks found, in the process's log and metrics."""

    def __init__(self) -> None:
        self._last = Reconciliation()
        self._agreed = Agreed()
        self._reaped = 0
        self.followed_by: Callable[[], None] | None = None

    def note(self, found: Reconciliation) -> None:
        """Take down a look."""
        self._last = found
        if self.followed_by is not None:
            self.followed_by()
        self._reaped += len(found.reaped)
        if found.reaped or found.gone or found.adopted or found.given_up:
            _log.warning(
                "cloud_reconciled",
                reaped=found.reaped,
                gone=found.gone,
                missing=found.missing,
                adopted=[instance.instance_id for instance in found.adopted],
                given_up=found.given_up,
            )

    def note_agreed(self, agreed: Agreed) -> None:
        """Take down a comparison: a line for every difference."""
        self._agreed = agreed
        for one in agreed.disagreements:
            say = _log.error if one.continue_with else _log.warning
            say(
                "disagreement",
                kind=one.kind.value,
                scope=one.scope.value,
                key=one.key,
                detail=one.detail,
                continue_with=one.continue_with or "nothing: it was mended",
                affected_job_ids=one.affected_job_ids,
                first_deadline_ns=one.first_deadline_ns,
            )

    def note_settled(self, settled: BillsSettled) -> None:
        """Take down what became of bills."""
        if settled.settled:
            _log.info("bills_settled", instances=settled.settled, waiting=settled.waiting)
        if settled.problem:
            _log.warning("bills_not_settled", waiting=settled.waiting, error=settled.problem)
        if settled.given_up:
            _log.warning("bills_given_up", instances=settled.given_up)

    def show(self, telemetry: Telemetry) -> Callable[[], None]:
        """Have the metrics read when somebody asks, until the result is called."""

        def states() -> Readings:
            return [
                (count, {INSTANCE_STATE: state.value}) for state, count in self._last.states.items()
            ]

        def disagreements() -> Readings:
            counts = Counter(one.kind for one in self._agreed.disagreements if one.continue_with)
            return [(counts[kind], {DISAGREEMENT: kind.value}) for kind in DisagreementKind]

        def jobs() -> Readings:
            concerned = {
                job_id for one in self._agreed.disagreements for job_id in one.affected_job_ids
            }
            return [(len(concerned), {})]

        with ExitStack() as shown:
            shown.callback(telemetry.observe("spotline.disagreements", disagreements))
            shown.callback(telemetry.observe("spotline.disagreement.jobs", jobs))
            shown.callback(
                telemetry.observe("spotline.orphans", lambda: [(self._agreed.orphans, {})])
            )
            shown.callback(telemetry.observe("spotline.instance.state", states))
            shown.callback(
                telemetry.observe(
                    "spotline.unknown_outcomes", lambda: [(self._last.unknown_launches, {})]
                )
            )
            shown.callback(
                telemetry.observe("spotline.orphans.reaped", lambda: [(self._reaped, {})])
            )
            return shown.pop_all().close


_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 5.0


async def started(actuation: CloudActuation) -> None:
    """Start an actuation, again and again while the cloud does not answer."""
    wait_s = _FIRST_WAIT_S
    while True:
        try:
            await actuation.start()
            return
        except ProviderUnavailable as error:
            _log.warning("start_postponed", error=str(error))
        await asyncio.sleep(wait_s)
        wait_s = min(2 * wait_s, _LONGEST_WAIT_S)


class BillSettling:
    """Settles bills beside the actuator's calls: a biller that is slow holds up no slot."""

    def __init__(self, actuation: CloudActuation) -> None:
        self._actuation = actuation
        self._looked = asyncio.Event()

    def note(self) -> None:
        """Have a look at the cloud followed."""
        self._looked.set()

    async def run(self) -> None:
        """Settle after each look until cancelled; raises what `CloudActuation.settle` raises."""
        while True:
            await self._looked.wait()
            self._looked.clear()
            await self._actuation.settle()


class SignalHost(Protocol):
    """The actuator's host, as far as signals need it."""

    @property
    def state(self) -> ActuateState:
        """The handler's state."""
        ...

    async def live(self) -> None:
        """Wait until everything stored before the start is applied."""
        ...

    async def publish_observation(self, event: Event, *, event_id: str) -> int:
        """Record what the shell observed."""
        ...


class CloudSignals:
    """Records that the cloud has something to say, one signal at a time.

    Parameters
    ----------
    calls
        Performs the actuator's calls; use `perform` in its place.
    clock
        The market's present; None where time is played: then nothing happens between calls.
    next_look_ns
        Market time at which the cloud must be looked at even if it says nothing, None for never.
    market_s_per_s
        How fast `clock` goes.
    """

    def __init__(
        self,
        cloud: CloudProvider,
        calls: CallPort,
        *,
        clock: CloudClock | None,
        next_look_ns: Callable[[], int | None],
        shortest_wait_s: float = SHORTEST_WAIT_S,
        market_s_per_s: float = 1.0,
    ) -> None:
        self._market_ns_per_s = market_s_per_s * NS_PER_S
        self._cloud, self._calls, self._clock = cloud, calls, clock
        self._next_look_ns = next_look_ns
        self._shortest_wait_s = shortest_wait_s
        self._performed = asyncio.Event()

    async def perform(self, call: Call) -> Sequence[Event]:
        """Perform a call; what the cloud had to say is taken with it."""
        answers = await self._calls(call)
        self._performed.set()
        return answers

    async def run(self, host: SignalHost) -> None:
        """Signal until cancelled. A cloud whose time is played is never waited for."""
        clock = self._clock
        if clock is None:
            return
        await host.live()
        while True:
            self._performed.clear()
            await self._news(clock)
            opened = host.state.opened
            # Before the first slot nothing is held, and the last one is billed once.
            if opened is not None and not opened.last:
                offset_s = (clock.now_ns() - opened.ts_event_ns) // NS_PER_S
                signal = CapacitySignalled(
                    slot=opened.slot, offset_s=min(max(0, offset_s), opened.slot_s - 1)
                )
                try:
                    await host.publish_observation(signal, event_id=uuid4().hex)
                except ProviderUnavailable as error:
                    _log.warning("signal_postponed", error=str(error))
                    continue
            await self._performed.wait()

    async def _news(self, clock: CloudClock) -> None:
        """Wait until the cloud pushes something or a look is due, for the shortest wait at least."""
        loop = asyncio.get_running_loop()
        earliest_s = loop.time() + self._shortest_wait_s
        look_ns = self._next_look_ns()
        due_s = None
        if look_ns is not None:
            due_s = max(0.0, (look_ns - clock.now_ns()) / self._market_ns_per_s)
        try:
            async with asyncio.timeout(due_s):
                await self._cloud.pushed()
        except TimeoutError:
            pass  # a look is due, or the cloud took too long: it is looked at in any case
        except (OSError, ProviderUnavailable) as error:
            _log.warning("cloud_not_heard", error=said_of(error))
        await asyncio.sleep(max(0.0, earliest_s - loop.time()))
