"""The best any schedule over several offerings could have earned, to hold plans against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spotline.domain.jobs.migration import MigrationTable, PlacedProgress
from spotline.domain.jobs.program import JobProgram
from spotline.domain.solvers.configurations import all_configurations
from spotline.domain.solvers.multi_window import PlacedPlan, solve_multi_window
from spotline.domain.solvers.multi_window_layout import OfferingWindow
from spotline.domain.solvers.placed_schedules import PlacedResult, check_programs, execute_placed
from spotline.domain.solvers.window import CELL_LIMIT, Rounding, WindowMarket


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedClairvoyant:
    """The best any schedule over several offerings could have earned, with the schedule.

    Where the exact grid would be too fine, `result` can be had and `upper_utility_micro_usd` is a
    bound that no schedule exceeds; otherwise they are equal.
    """

    result: PlacedResult
    upper_utility_micro_usd: int
    exact: bool


def clairvoyant_over_offerings(
    programs: Sequence[JobProgram],
    markets: Sequence[WindowMarket],
    migrations: MigrationTable,
    *,
    start: PlacedProgress | None = None,
    cell_limit: int = CELL_LIMIT,
) -> PlacedClairvoyant:
    """Solve a job's whole life on the realised market of several offerings.

    `markets` begin with the job's first slot; what lies beyond `end_slots` is not used.
    """
    check_programs(programs)
    begin = start or PlacedProgress()
    lives = [market.between(0, programs[0].end_slots) for market in markets]
    offerings = [
        OfferingWindow(
            program=program,
            configs=all_configurations(program, most_spot=int(life.spot_available.max(initial=0))),
            market=life,
        )
        for program, life in zip(programs, lives, strict=True)
    ]

    def solved(rounding: Rounding) -> PlacedPlan:
        return solve_multi_window(
            offerings,
            migrations,
            begin,
            elapsed_slots=0,
            end_value=None,
            rounding=rounding,
            cell_limit=cell_limit,
        )

    plan = solved(Rounding.DOWN)
    result = execute_placed(programs, lives, migrations, begin, plan.placements)
    upper = result.utility_micro_usd
    if not plan.exact:
        upper = max(upper, solved(Rounding.UP).utility_micro_usd)
    return PlacedClairvoyant(result=result, upper_utility_micro_usd=upper, exact=plan.exact)
