"""The policy under test: a value table, a belief over zones, and probes where they pay."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from spotline.bench.skynomad.rules import Desk
from spotline.bench.skynomad.world import PROBE_S, AlignedZones, IntArray, Moves, ZoneTerms
from spotline.domain.beliefs.zone_beliefs import ZoneBeliefs
from spotline.domain.solvers.zone_choice import (
    IDLE,
    ON_DEMAND,
    SPOT,
    ZoneView,
    best_without_launch,
    is_worth_launching,
    launch_costs,
    probe_gain,
)
from spotline.domain.solvers.zone_table import ZoneJob, ZoneTable
from spotline.domain.units import MICRO_USD_PER_USD

# Price of waiting for a tick, in ticks of the cheapest spot; chosen on V100 zones that no set has.
_WAIT_SHARE = 0.1


def zone_job(
    market: AlignedZones, moves: Moves, terms: ZoneTerms, spot_micro_usd: IntArray
) -> ZoneJob:
    """The job as a table knows it, with spot at given prices of a tick, shape (zones,)."""
    return ZoneJob(
        work_s=terms.work_s,
        deadline_ticks=terms.deadline_ticks,
        tick_s=terms.tick_s,
        restart_s=terms.restart_s,
        region_of=market.region_of,
        spot_usd=spot_micro_usd / MICRO_USD_PER_USD,
        on_demand_usd=market.on_demand_micro_usd / MICRO_USD_PER_USD,
        egress_usd=moves.egress_micro_usd / MICRO_USD_PER_USD,
        overhead_s=moves.extra_s + terms.restart_s,
        wait_usd=_WAIT_SHARE * float(spot_micro_usd.min()) / MICRO_USD_PER_USD,
    )


@dataclass(slots=True, kw_only=True)
class TablePolicy:
    """Act on a table and a belief, for one run; `probes` lets it pay for what it wants to know."""

    table: ZoneTable
    probes: bool
    beliefs: ZoneBeliefs = field(init=False)

    def __post_init__(self) -> None:
        self.beliefs = ZoneBeliefs.before(self.table.laws)

    def act(self, desk: Desk) -> None:
        """Launch where that is cheapest to the end, else keep what is held, buy or wait."""
        now = desk.standing
        if now.tick:
            self.beliefs.advance()
        if now.kind == SPOT:
            self.beliefs.observe(now.zone, up=True)
        if now.lost_zone >= 0:
            self.beliefs.observe(now.lost_zone, up=False)
        if self._launch(desk):
            return
        view = self._view(desk)
        if self.probes and view.kind != SPOT:
            self._probe(desk, view)
        best = best_without_launch(self.table, view, self.beliefs)
        if best.kind == IDLE and view.kind != IDLE:
            desk.release()
        elif best.kind == ON_DEMAND and view.kind != ON_DEMAND:
            desk.launch_on_demand(best.region)

    def _view(self, desk: Desk) -> ZoneView:
        now, job = desk.standing, self.table.job
        return ZoneView(
            tick=now.tick,
            slack_s=(job.deadline_ticks - now.tick) * job.tick_s - now.work_left_s,
            kind=now.kind,
            zone=now.zone,
            source=now.region,
            overhead_left_s=now.overhead_left_s,
            spot_usd=desk.spot_micro_usd / MICRO_USD_PER_USD,
        )

    def _launch(self, desk: Desk) -> bool:
        """Try zones, the best first, where a launch is better than all else; whether one was had."""
        now, view = desk.standing, self._view(desk)
        costs = launch_costs(self.table, view, self.beliefs.when_up())
        for zone in np.argsort(costs, kind="stable").tolist():
            if zone in (now.zone, now.lost_zone):
                continue
            if is_worth_launching(self.table, view, self.beliefs, zone, float(costs[zone])):
                up = desk.launch_spot(zone)
                self.beliefs.observe(zone, up=up)
                if up:
                    return True
        return False

    def _probe(self, desk: Desk, view: ZoneView) -> None:
        """Probe each zone whose state is worth its price; a probe that finds none is free."""
        chances = self.beliefs.up_chances()
        for zone in range(len(chances)):
            # What is certain need not be asked.
            if zone == view.zone or not 0.0 < chances[zone] < 1.0:
                continue
            price = float(view.spot_usd[zone]) * PROBE_S / self.table.job.tick_s
            if probe_gain(self.table, view, self.beliefs, zone) > float(chances[zone]) * price:
                self.beliefs.observe(zone, up=desk.probe(zone))
