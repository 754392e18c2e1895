"""Uniform Progress among zones: eager failover, probing, and in one zone alone.

Work is kept on a straight line to the deadline: spot where it is had, on-demand behind the line,
until two restarts ahead of it (Wu et al., NSDI'24, which gives the rule for one zone). The variants
for several zones are those that SkyNomad (NSDI'27) compares with; they differ in which zones they
try first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from spotline.bench.skynomad.rules import IDLE, ON_DEMAND, SPOT, Desk
from spotline.bench.skynomad.world import AlignedZones, ZoneTerms

_PROBE_INTERVAL_S: Final = 7200
_SAMPLES: Final = 5


@dataclass(slots=True, kw_only=True)
class EagerFailover:
    """Try the cheapest zone first, those of the region that was last held at the end."""

    market: AlignedZones
    terms: ZoneTerms
    zones: Sequence[int] = ()
    _last_region: int = field(default=-1, init=False)

    def act(self, desk: Desk) -> None:
        """Hold spot; without it, wait or buy as the line says."""
        now = desk.standing
        if now.kind == SPOT:
            return
        if self._buys_on(desk):
            return
        for zone in self._order(desk):
            if desk.launch_spot(zone):
                self._last_region = int(self.market.region_of[zone])
                return
        if now.kind == ON_DEMAND:
            desk.release()
        elif _behind(self.terms, desk, 0):
            desk.launch_on_demand(self._region_to_buy(desk))

    def _buys_on(self, desk: Desk) -> bool:
        """Whether on-demand goes on: it does until two restarts ahead of the line."""
        ahead_s = 2 * self.terms.restart_s
        return desk.standing.kind == ON_DEMAND and _behind(self.terms, desk, ahead_s)

    def _region_to_buy(self, desk: Desk) -> int:
        if desk.standing.region >= 0:
            return desk.standing.region
        return int(self.market.on_demand_micro_usd.argmin())

    def _order(self, desk: Desk) -> list[int]:
        prices = desk.spot_micro_usd
        zones = self.zones or range(len(self.market.zones))
        lost = self._last_region
        return sorted(zones, key=lambda z: (self.market.region_of[z] == lost, prices[z], z))


@dataclass(slots=True, kw_only=True)
class Probing:
    """Try the zone first that launches and probes found up most often of late.

    A zone is probed every two hours, one in a tick, and what is held is sampled as often. A zone
    that did better than the one that is held is moved to.
    """

    market: AlignedZones
    terms: ZoneTerms
    _seen: list[deque[int]] = field(init=False)
    _due: list[int] = field(init=False)

    def __post_init__(self) -> None:
        zones = len(self.market.zones)
        self._seen = [deque(maxlen=_SAMPLES) for _ in range(zones)]
        self._due = [0] * zones

    def act(self, desk: Desk) -> None:
        """Hold spot in the best zone; without it, wait or buy as the line says."""
        now = desk.standing
        if now.lost_zone >= 0:
            self._seen[now.lost_zone].append(0)
        if now.kind == SPOT and now.tick >= self._due[now.zone]:
            self._sample(now.zone, now.tick, up=True)
        if now.kind == ON_DEMAND and _behind(self.terms, desk, 2 * self.terms.restart_s):
            return
        if not self._spot(desk):
            if desk.standing.kind == ON_DEMAND:
                desk.release()
            elif desk.standing.kind == IDLE and _behind(self.terms, desk, 0):
                desk.launch_on_demand(max(0, now.region))
        self._probe(desk)

    def _spot(self, desk: Desk) -> bool:
        """Hold or launch the best zone; whether there is spot."""
        now = desk.standing
        best = sorted(range(len(self._seen)), key=lambda z: (-self._share(z), z))
        for zone in best:
            if now.kind == SPOT and self._share(now.zone) >= self._share(zone):
                return True
            up = desk.launch_spot(zone)
            self._sample(zone, now.tick, up=up)
            if up:
                return True
        return now.kind == SPOT

    def _share(self, zone: int) -> float:
        seen = self._seen[zone]
        return sum(seen) / len(seen) if seen else 0.5

    def _sample(self, zone: int, tick: int, *, up: bool) -> None:
        self._seen[zone].append(int(up))
        self._due[zone] = tick + max(1, round(_PROBE_INTERVAL_S / self.terms.tick_s))

    def _probe(self, desk: Desk) -> None:
        now = desk.standing
        due = [z for z in range(len(self._due)) if z != now.zone and now.tick >= self._due[z]]
        if due:
            zone = min(due, key=lambda z: (len(self._seen[z]), z))
            self._sample(zone, now.tick, up=desk.probe(zone))


def _behind(terms: ZoneTerms, desk: Desk, ahead_s: int) -> bool:
    """Whether the work done is behind a straight line to the deadline, drawn so much earlier."""
    now = desk.standing
    done = (terms.work_s - now.work_left_s) * terms.deadline_ticks * terms.tick_s
    return done < (now.tick * terms.tick_s + ahead_s) * terms.work_s
