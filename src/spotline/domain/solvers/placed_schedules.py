"""A schedule over several offerings, executed: what it costs and earns, through the accounting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spotline.domain.jobs.migration import (
    NOWHERE,
    MigrationTable,
    PlacedHolding,
    PlacedProgress,
    advance_placed,
    move_cost_micro_usd,
)
from spotline.domain.jobs.program import JobProgram
from spotline.domain.solvers.window import (
    WindowMarket,
)
from spotline.domain.units import cost_micro_usd


def check_programs(programs: Sequence[JobProgram]) -> None:
    """Refuse programs that are not of one job on one slot grid.

    Raises
    ------
    ValueError
        None is given, or they differ in slots, work, deadlines or values.
    """
    if not programs:
        raise ValueError("programs must hold at least one")
    shared = ("slot_s", "work_quanta", "deadline_slots", "end_slots", "value_micro_usd")
    for program in programs[1:]:
        for name in shared:
            if getattr(program, name) != getattr(programs[0], name):
                raise ValueError(f"programs of one job must have one {name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedResult:
    """How a schedule fares: `finished_slot` counts from 1, 0 where it does not finish.

    `cost_micro_usd` holds `egress_micro_usd`. `end` is where the job stands after the last slot.
    """

    utility_micro_usd: int
    cost_micro_usd: int
    egress_micro_usd: int
    value_micro_usd: int
    finished_slot: int
    on_time: bool
    placements: tuple[PlacedHolding, ...]
    end: PlacedProgress


def execute_placed(
    programs: Sequence[JobProgram],
    markets: Sequence[WindowMarket],
    migrations: MigrationTable,
    start: PlacedProgress,
    placements: Sequence[PlacedHolding],
    *,
    elapsed_slots: int = 0,
) -> PlacedResult:
    """Run a schedule slot by slot; what follows the slot in which the job is done is not held.

    Raises
    ------
    ValueError
        A placement takes more than there is, or a count that is not allowed.
    """
    state = start
    cost = egress = 0
    first = programs[0]
    for slot, after in enumerate(placements):
        _check_placement(programs, markets, slot, after)
        broken = is_interrupted(markets, state, slot)
        cost += placement_cost_micro_usd(programs, markets, after, slot)
        egress += move_cost_micro_usd(migrations, state, after)
        state = advance_placed(
            programs, migrations, state, after, held_s=first.slot_s, interrupted=broken
        )
        if state.progress_quanta >= first.work_quanta:
            number = elapsed_slots + slot + 1
            value = first.value_micro_usd[number] if number <= first.end_slots else 0
            return _result(first, value, cost, egress, number, placements[: slot + 1], state)
    return _result(first, 0, cost, egress, 0, placements, state)


def _check_placement(
    programs: Sequence[JobProgram], markets: Sequence[WindowMarket], slot: int, after: PlacedHolding
) -> None:
    if after.offering == NOWHERE:
        return
    market, held = markets[after.offering], after.holding
    if held.spot > market.spot_available[slot] or held.on_demand > market.on_demand_available[slot]:
        raise ValueError(
            f"placements[{slot}] must be <= {market.spot_available[slot]} spot and "
            f"{market.on_demand_available[slot]} on-demand, was {held.spot} and {held.on_demand}"
        )
    if held.instances not in programs[after.offering].allowed_counts:
        raise ValueError(
            f"placements[{slot}] must hold one of {programs[after.offering].allowed_counts} "
            f"instances, was {held.instances}"
        )


def _result(
    program: JobProgram,
    value: int,
    cost: int,
    egress: int,
    finished: int,
    placements: Sequence[PlacedHolding],
    end: PlacedProgress,
) -> PlacedResult:
    return PlacedResult(
        utility_micro_usd=value - cost - egress,
        cost_micro_usd=cost + egress,
        egress_micro_usd=egress,
        value_micro_usd=value,
        finished_slot=finished,
        on_time=0 < finished <= program.deadline_slots,
        placements=tuple(placements),
        end=end,
    )


def is_interrupted(markets: Sequence[WindowMarket], state: PlacedProgress, slot: int) -> bool:
    """Whether spot that `state` holds is gone when `slot` of the window opens."""
    if state.home == NOWHERE:
        return False
    return bool(state.holding.spot > markets[state.home].spot_available[slot])


def placement_cost_micro_usd(
    programs: Sequence[JobProgram], markets: Sequence[WindowMarket], after: PlacedHolding, slot: int
) -> int:
    """What holding `after` for one slot costs, without egress."""
    if after.offering == NOWHERE:
        return 0
    market, slot_s = markets[after.offering], programs[after.offering].slot_s
    return cost_micro_usd(
        int(market.spot_price[slot]), after.holding.spot, slot_s
    ) + cost_micro_usd(int(market.on_demand_price[slot]), after.holding.on_demand, slot_s)
