"""The rules of a tick, after the simulator of SkyNomad's artifact (see the reference).

In a tick the progress of the last one is credited, then interruptions take effect, then the policy
acts; what runs afterwards is billed for the whole tick, but for the tick that ends the work. A
launch costs the restart and what moving the checkpoint takes; it may take the place of what runs.
A launch or probe that finds no spot is free; a probe that does costs 60 s of its price. Below a
restart and a tick of slack the safety net buys on-demand to the end, and the policy is not asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from spotline.bench.skynomad.world import (
    NOWHERE,
    AlignedZones,
    IntArray,
    Moves,
    ZoneTerms,
    probe_micro_usd,
)
from spotline.contracts.errors import InvariantViolation

IDLE: Final = "idle"
SPOT: Final = "spot"
ON_DEMAND: Final = "on_demand"


@dataclass(frozen=True, slots=True, kw_only=True)
class TickState:
    """Where a job stands when the policy is asked.

    Attributes
    ----------
    tick
        Ticks since the start.
    kind
        `idle`, `spot` or `on_demand`.
    zone, region
        Zone of the spot instance, else -1; region of the checkpoint, -1 before the first launch.
    lost_zone
        Zone whose instance was interrupted in this tick, else -1.
    work_left_s, overhead_left_s
        Seconds of work left, and of the launch before work goes on.
    """

    tick: int
    kind: str
    zone: int
    region: int
    lost_zone: int
    work_left_s: int
    overhead_left_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneOutcome:
    """A finished run: its cost, micro-USD, and what of it was not spot; ticks, launches, lateness."""

    cost_micro_usd: int
    probe_micro_usd: int
    egress_micro_usd: int
    on_demand_micro_usd: int
    on_demand_ticks: int
    idle_ticks: int
    launches: int
    probes: int
    finish_tick: int
    missed: bool


class Desk(Protocol):
    """What a policy may see and do in a tick; it learns of other zones by acting alone."""

    @property
    def standing(self) -> TickState:
        """Where the job stands now, after what was done in this tick."""

    @property
    def spot_micro_usd(self) -> IntArray:
        """Spot price of this tick, shape (zones,): prices are public."""

    def launch_spot(self, zone: int) -> bool:
        """Launch in a zone, in the place of what runs; whether it had spot."""

    def launch_on_demand(self, region: int) -> None:
        """Launch on-demand in the place of what runs."""

    def release(self) -> None:
        """End what runs."""

    def probe(self, zone: int) -> bool:
        """Pay to learn whether a zone has spot now."""


class ZonePolicy(Protocol):
    """Acts once a tick until the safety net takes over."""

    def act(self, desk: Desk) -> None:
        """Launch, release, probe, or leave things as they are."""


class _Desk:
    """One run: the desk of every tick and the books."""

    def __init__(self, market: AlignedZones, moves: Moves, terms: ZoneTerms, start: int) -> None:
        self._market, self._moves, self._terms = market, moves, terms
        self._start = start
        self._standing = TickState(
            tick=0,
            kind=IDLE,
            zone=-1,
            region=NOWHERE,
            lost_zone=-1,
            work_left_s=terms.work_s,
            overhead_left_s=0,
        )
        self._launched = False
        self.cost = self.probe_cost = self.egress_cost = self.on_demand_cost = 0
        self.on_demand_ticks = self.idle_ticks = self.launches = self.probes = 0

    @property
    def standing(self) -> TickState:
        return self._standing

    @property
    def spot_micro_usd(self) -> IntArray:
        prices: IntArray = self._market.spot_micro_usd[self._start + self._standing.tick]
        return prices

    def _is_up(self, zone: int) -> bool:
        return bool(self._market.up[self._start + self._standing.tick, zone])

    def launch_spot(self, zone: int) -> bool:
        self._check_free()
        if not self._is_up(zone):
            return False
        self._launch(SPOT, zone, int(self._market.region_of[zone]))
        return True

    def launch_on_demand(self, region: int) -> None:
        self._check_free()
        self._launch(ON_DEMAND, -1, region)

    def release(self) -> None:
        self._check_free()
        self._set(kind=IDLE, zone=-1, overhead_left_s=0)

    def probe(self, zone: int) -> bool:
        if zone == self._standing.zone:
            raise InvariantViolation("a policy must not probe the zone it runs in")
        if not self._is_up(zone):
            return False
        price = probe_micro_usd(int(self.spot_micro_usd[zone]), self._terms.tick_s)
        self.cost += price
        self.probe_cost += price
        self.probes += 1
        return True

    def _check_free(self) -> None:
        if self._launched:
            raise InvariantViolation("what was launched in a tick must not be ended in it")

    def _launch(self, kind: str, zone: int, region: int) -> None:
        source = self._standing.region
        self._launched = True
        self.launches += 1
        egress = int(self._moves.egress_micro_usd[source, region])
        self.cost += egress
        self.egress_cost += egress
        overhead_s = self._terms.restart_s + int(self._moves.extra_s[source, region])
        self._set(kind=kind, zone=zone, region=region, overhead_left_s=overhead_s)

    def _set(self, **changes: object) -> None:
        values = {name: getattr(self._standing, name) for name in TickState.__slots__}
        self._standing = TickState(**{**values, **changes})

    def end_tick(self) -> None:
        """Bill what runs, credit its progress, and let interruptions of the next tick take effect."""
        now, tick_s = self._standing, self._terms.tick_s
        credit_s = 0
        if now.kind == IDLE:
            self.idle_ticks += 1
        else:
            credit_s = max(0, tick_s - now.overhead_left_s)
            self.on_demand_ticks += now.kind == ON_DEMAND
            if credit_s < now.work_left_s:
                if now.kind == SPOT:
                    self.cost += int(self.spot_micro_usd[now.zone])
                else:
                    price = int(self._market.on_demand_micro_usd[now.region])
                    self.cost += price
                    self.on_demand_cost += price
        self._launched = False
        self._set(
            tick=now.tick + 1,
            lost_zone=-1,
            work_left_s=max(0, now.work_left_s - credit_s),
            overhead_left_s=max(0, now.overhead_left_s - tick_s),
        )
        if now.kind == SPOT and self._standing.work_left_s > 0 and not self._is_up(now.zone):
            self._set(kind=IDLE, zone=-1, lost_zone=now.zone, overhead_left_s=0)


def is_forced(terms: ZoneTerms, standing: TickState) -> bool:
    """Whether the safety net takes over: ceil((work + restart) / tick) >= ticks left."""
    needed = -(-(standing.work_left_s + terms.restart_s) // terms.tick_s)
    return needed >= terms.deadline_ticks - standing.tick


def run(
    policy: ZonePolicy, market: AlignedZones, moves: Moves, terms: ZoneTerms, start: int
) -> ZoneOutcome:
    """Run a job whose first tick is `start` of the market.

    Raises
    ------
    ValueError
        The market ends before the deadline.
    InvariantViolation
        The policy broke a rule.
    """
    if start + terms.deadline_ticks > market.ticks:
        raise ValueError(
            f"a window of {terms.deadline_ticks} ticks from tick {start} must end by "
            f"{market.ticks}, the end of the market"
        )
    desk = _Desk(market, moves, terms, start)
    forced = False
    while desk.standing.work_left_s > 0 and desk.standing.tick < terms.deadline_ticks:
        if not forced and is_forced(terms, desk.standing):
            forced = True
            _force(desk, market)
        if not forced:
            policy.act(desk)
        desk.end_tick()
    return ZoneOutcome(
        cost_micro_usd=desk.cost,
        probe_micro_usd=desk.probe_cost,
        egress_micro_usd=desk.egress_cost,
        on_demand_micro_usd=desk.on_demand_cost,
        on_demand_ticks=desk.on_demand_ticks,
        idle_ticks=desk.idle_ticks,
        launches=desk.launches,
        probes=desk.probes,
        finish_tick=desk.standing.tick,
        missed=desk.standing.work_left_s > 0,
    )


def _force(desk: _Desk, market: AlignedZones) -> None:
    if desk.standing.kind == SPOT:
        desk.launch_on_demand(desk.standing.region)
    elif desk.standing.kind == IDLE:
        desk.launch_on_demand(cheapest_region(market))


def cheapest_region(market: AlignedZones) -> int:
    """Region of the cheapest on-demand, the first of several."""
    return int(np.argmin(market.on_demand_micro_usd))
