"""The facts that services are judged by: the market's clock, disks, snapshots, tasks, the fold."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from spotline.application.health.conditions import HealthLimits, Judged
from spotline.application.health.surroundings import SlotFacts, SlotJudge, disk, quotes, tasks
from spotline.application.health.system import heard_all, of_the_log
from spotline.application.market_ingest.handler import IngestOptions, IngestState
from spotline.application.market_ingest.opening import stale_offerings
from spotline.application.operations.messages import ServiceStatus
from spotline.application.spec import Timer
from spotline.contracts.errors import ProviderUnavailable
from spotline.domain.market.grid import AnyMarket, opens_ns, slots_of
from spotline.domain.market.market import Market
from spotline.domain.market.market_clock import WALL_TIME, MarketClock
from spotline.runtime.snapshots import SnapshotStore
from spotline.runtime.timers import Gate
from spotline.runtime.trouble import Trouble

if TYPE_CHECKING:
    from spotline.application.allocator.handler import JobsState
    from spotline.bootstrap.health import Probe
    from spotline.bootstrap.parts import PartHooks


class _Folding(Protocol):
    @property
    def state(self) -> JobsState: ...


class _Ingesting(Protocol):
    @property
    def state(self) -> IngestState: ...


def limits_of(hooks: PartHooks) -> HealthLimits:
    """The limits of the process that the hooks are of."""
    return HealthLimits() if hooks.health is None else hooks.health.limits


class MarketWatch:
    """Says whether the market's next slot should be opening, and how old its quotes are.

    Parameters
    ----------
    gate
        Holds the market's clock back; as long as it does, no slot is due.
    clock_ns
        Wall time, ns since the epoch.
    clock
        How market time follows wall time, where slots open by it.
    """

    def __init__(
        self,
        market: AnyMarket,
        options: IngestOptions,
        gate: Gate | None,
        *,
        clock: MarketClock = WALL_TIME,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._clock_ns = clock_ns
        self._clock = clock
        self._market = market
        self._options = options
        self._gate = gate
        self._held = 0

    @property
    def gate(self) -> Gate | None:
        """The gate for the host; it notes who waits at it."""
        return None if self._gate is None else self._hold

    def probe(self, host: _Ingesting, limits: HealthLimits) -> Probe:
        """Judges slots and quotes by the state of a host."""
        judge = SlotJudge(limits=limits)

        def judged(now_s: float) -> Sequence[Judged]:
            state = host.state
            return [
                judge.judge(self.slot_facts(state), now_s),
                quotes(self._ages_s(state), stale_offerings(state.frozen)),
            ]

        return judged

    def slot_facts(self, state: IngestState) -> SlotFacts:
        """The market's clock in a state."""
        why_not = ""
        if self._held:
            why_not = "it is held back"
        elif (slots := slots_of(self._market)) is not None and state.slot + 1 >= slots:
            why_not = "the market has ended"
        elif self._options.wait_for_work and not state.needed:
            why_not = "it waits for work"
        elif self._options.wall_clock and self._now_ns() < self._opens_ns(state.slot + 1):
            why_not = "its time has not come"
        slot_s = self._market.slot_s / self._clock.market_s_per_s
        return SlotFacts(
            slot=state.slot,
            due=not why_not,
            interval_s=slot_s if self._options.wall_clock else self._options.slot_interval_s,
            settled=state.settled or not self._options.barrier,
            why_not=why_not,
        )

    def _now_ns(self) -> int:
        """Market time, where slots open by the wall clock."""
        return self._clock.market_at(self._clock_ns())

    def _ages_s(self, state: IngestState) -> dict[str, int]:
        """How old quotes are, by offering: of a slot when it opened, of a live market now."""
        market = self._market
        if isinstance(market, Market):
            if not 0 <= state.slot < market.slots:
                return {}
            at_ns = self._opens_ns(state.slot)
            return {quote.offering_id: quote.age_s(at_ns) for quote in market.quotes(state.slot)}
        at_ns = self._now_ns()
        said = {o.offering_id: state.said.latest(o.offering_id) for o in market.offerings}
        return {
            offering_id: each.quote.age_s(at_ns)
            for offering_id, each in said.items()
            if each is not None
        }

    def _opens_ns(self, slot: int) -> int:
        return opens_ns(self._market, slot)

    async def _hold(self, timer: Timer) -> None:
        if self._gate is None:
            return
        self._held += 1
        try:
            await self._gate(timer)
        finally:
            self._held -= 1


class WatchedSnapshots:
    """A `SnapshotStore` that notes whether snapshots are saved."""

    def __init__(self, store: SnapshotStore) -> None:
        self._store = store
        self.trouble = Trouble()

    async def put(self, name: str, data: bytes) -> None:
        """Replace the snapshot of `name`; see the port."""
        try:
            await self._store.put(name, data)
        except ProviderUnavailable as error:
            self.trouble.failed(str(error))
            raise
        self.trouble.ended()

    async def get(self, name: str) -> bytes | None:
        """The snapshot of `name`; see the port."""
        return await self._store.get(name)

    async def set_aside(self, name: str) -> None:
        """Keep the snapshot of `name` for people to look at; see the port."""
        await self._store.set_aside(name)


def ledger_folder(url: str) -> dict[str, Path]:
    """Where a ledger's file is, by what it is; empty for one on a server."""
    scheme, _, path = url.partition("///")
    return {"the ledger": Path(path).parent} if scheme.startswith("sqlite") and path else {}


def free_space(folders: Mapping[str, Path], limits: HealthLimits) -> Probe:
    """Judges the room where folders are, by what they hold."""

    def judged(now_s: float) -> Sequence[Judged]:
        free: dict[str, int] = {}
        for name, path in folders.items():
            try:
                free[name] = shutil.disk_usage(path).free
            except OSError as error:
                # What cannot be looked at cannot be written to either.
                free[f"{name} ({error.strerror})"] = 0
        return [disk(free, limits)]

    return judged


def ended_tasks(ended: Mapping[str, Callable[[], str]]) -> Probe:
    """Judges tasks by what says why one has ended, empty while it runs."""

    def judged(now_s: float) -> Sequence[Judged]:
        said = {name: why() for name, why in ended.items()}
        return [tasks({name: why for name, why in said.items() if why})]

    return judged


def system_probe(
    host: _Folding, services: Callable[[], Sequence[ServiceStatus]], limits: HealthLimits
) -> Probe:
    """Judges the system as a whole by the allocator's fold, for the metrics.

    Services start one after the other: who is not heard is judged from `heard_s` on.
    """
    began_s: list[float] = []

    def judged(now_s: float) -> Sequence[Judged]:
        if not began_s:
            began_s.append(now_s)
        clock = host.state.recent.clock()
        slot = -1 if clock is None else clock.slot
        starting = now_s - began_s[0] < limits.heard_s
        heard = () if starting else (heard_all(services(), limits),)
        return [*heard, *of_the_log(host.state.operations, slot, limits)]

    return judged
