"""The policy under test: a value table, a belief over zones, and probes where they pay."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from spotline.bench.skynomad.rules import IDLE, ON_DEMAND, SPOT, Desk, Standing
from spotline.bench.skynomad.world import Market, Moves, Terms
from spotline.domain.beliefs.zone_beliefs import ZoneBeliefs, ZoneLaws
from spotline.domain.solvers.zone_choice import (
    NextTick,
    ZoneView,
    bought_usd,
    held_usd,
    idle_usd,
    launch_usd,
    next_tick,
)
from spotline.domain.solvers.zone_table import ZoneJob, ZoneTable, build_zone_table
from spotline.domain.units import MICRO_USD_PER_USD

FloatArray = npt.NDArray[np.float64]


def zone_job(
    market: Market, moves: Moves, terms: Terms, spot_micro_usd: npt.NDArray[np.int64]
) -> ZoneJob:
    """The job as a table knows it, with spot at given prices of a tick."""
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
    )


@dataclass(slots=True, kw_only=True)
class TablePolicy:
    """Act on a table and a belief, for one run."""

    market: Market
    moves: Moves
    terms: Terms
    laws: ZoneLaws
    beliefs: ZoneBeliefs = field(init=False)
    table: ZoneTable | None = None

    def __post_init__(self) -> None:
        self.beliefs = ZoneBeliefs.before(self.laws)

    def act(self, desk: Desk) -> None:
        """Launch where that is cheapest to the end, else stay, buy or wait."""
        now = desk.standing
        if self.table is None:
            job = zone_job(self.market, self.moves, self.terms, desk.spot_micro_usd)
            self.table = build_zone_table(job, self.laws)
        if now.tick:
            self.beliefs.advance()
        if now.kind == SPOT:
            self.beliefs.observe(now.zone, up=True)
        if now.lost_zone >= 0:
            self.beliefs.observe(now.lost_zone, up=False)
        view = self._view(desk, now)
        if not self._launch(desk, now, view):
            self._settle(desk, now, view)

    def _view(self, desk: Desk, now: Standing) -> ZoneView:
        left = self.terms.deadline_ticks - now.tick
        return ZoneView(
            tick=now.tick,
            slack_s=left * self.terms.tick_s - now.work_left_s,
            source=now.region,
            spot_usd=desk.spot_micro_usd / MICRO_USD_PER_USD,
        )

    def _launch(self, desk: Desk, now: Standing, view: ZoneView) -> bool:
        """Try zones, the best first, while launching is cheaper than all else; whether one was."""
        dists = self.beliefs.when_up()
        costs = {
            zone: launch_usd(self.table, view, zone, dist)
            for zone, dist in enumerate(dists)
            if zone not in (now.zone, now.lost_zone)
        }
        # What is tried in vain is known to be down, so values are those of all being down.
        dark = self.beliefs.copy()
        for zone in costs:
            dark.observe(zone, up=False)
        least, _ = self._best_other(now, view, next_tick(self.table, dark, now.region))
        for zone in sorted(costs, key=lambda z: (costs[z], z)):
            if costs[zone] >= least:
                return False
            up = desk.launch_spot(zone)
            self.beliefs.observe(zone, up=up)
            if up:
                return True
        return False

    def _settle(self, desk: Desk, now: Standing, view: ZoneView) -> None:
        _, act = self._best_other(now, view, next_tick(self.table, self.beliefs, now.region))
        if act == IDLE and now.kind != IDLE:
            desk.release()
        elif act not in (IDLE, SPOT, ON_DEMAND):
            desk.launch_on_demand(int(act))

    def _best_other(self, now: Standing, view: ZoneView, later: NextTick) -> tuple[float, str]:
        """Cheapest of staying, idling and buying: its cost, and the kind or region."""
        table = self.table
        assert table is not None
        choices = [(idle_usd(table, view, later), IDLE)]
        if now.kind == SPOT:
            held_s = view.slack_s - now.overhead_left_s
            dist = self.beliefs.when_up()[now.zone]
            choices.insert(0, (held_usd(table, view, now.zone, dist, slack_s=held_s), SPOT))
        if now.kind == ON_DEMAND:
            cost = bought_usd(table, view, later, now.region, overhead_s=now.overhead_left_s)
            choices.insert(0, (cost, ON_DEMAND))
        for region in range(len(self.market.regions)):
            if now.kind != ON_DEMAND:
                overhead_s = int(table.job.overhead_s[now.region, region])
                cost = bought_usd(table, view, later, region, overhead_s=overhead_s)
                cost += float(table.job.egress_usd[now.region, region])
                choices.append((cost, str(region)))
        return min(choices, key=lambda choice: choice[0])
