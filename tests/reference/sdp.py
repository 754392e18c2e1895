"""Stochastic control with a learned value-to-go, alone or behind a window of forecasts."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.jobs.program import Holding
from spotline.domain.policies.interface import Choice, Memory, Outlook, PolicyView
from spotline.domain.units import PPM
from tests.reference.decision import largest_allowed
from tests.reference.value_table import look_ahead, look_through


@dataclass(frozen=True, slots=True)
class ValueToGo:
    """Take what is best for this slot and, by the job's value table, for all that follows.

    With a window of w > 0 the next w slots are those of the forecast, and the table speaks from
    there on ("AHAP with a learned value-to-go"); w = 0 trusts the market's law alone. Until the
    job's table is ready all useful spot is held, and the safety net guards every deadline.

    Notes
    -----
    Not in arXiv:2512.20967, whose model it plans on; see `solvers/value_table.py`.
    """

    window: int = 0

    @property
    def policy_id(self) -> str:
        """`sdp`, or `hybrid(w)`."""
        return f"hybrid({self.window})" if self.window else "sdp"

    @property
    def needs_forecast(self) -> bool:
        """Never: without one it looks no further than the law."""
        return False

    @property
    def nets_soft_deadlines(self) -> bool:
        """Not by itself: what being late costs is in the table, as soon as there is one."""
        return False

    def choose(self, view: PolicyView, memory: Memory) -> Choice:
        """Look ahead; remembers nothing."""
        outlook = view.outlook
        program = view.program
        if outlook is None:
            count = largest_allowed(program, view.spot_available)
            return Choice(holding=Holding(spot=count), memory=memory)
        slots = 0
        if view.forecast is not None:
            slots = min(self.window, len(view.forecast.spot_price))
            slots = min(slots, program.deadline_slots - view.elapsed_slots - 1)
        holding = self._through(view, outlook, slots) if slots else self._now(view, outlook)
        return Choice(holding=holding, memory=memory)

    def _now(self, view: PolicyView, outlook: Outlook) -> Holding:
        return look_ahead(
            outlook.table,
            elapsed_slots=view.elapsed_slots,
            run_state=outlook.run_state,
            price_ppm=view.spot_price * PPM // view.on_demand_price,
            held=view.state.holding,
            interrupted=view.interrupted,
            pending_overhead_s=view.state.pending_overhead_s,
            work_left_quanta=view.program.work_quanta - view.state.progress_quanta,
            spot_price=view.spot_price,
            on_demand_price=view.on_demand_price,
            spot_available=view.spot_available,
            on_demand_available=view.on_demand_available,
            slot_left_s=view.slot_left_s,
        )

    def _through(self, view: PolicyView, outlook: Outlook, slots: int) -> Holding:
        forecast = view.forecast
        if forecast is None:
            raise ValueError("a window needs a forecast")
        taken = outlook.table.terms.taken
        space = outlook.table.terms.law.space
        # Where the run will be if the forecast comes true: the same level grows older.
        level, age = divmod(outlook.run_state, space.ages)
        lasted = space.age_starts[age]
        for count in forecast.spot_available[:slots]:
            after = space.level_of(count + taken)
            lasted = lasted + 1 if after == level else 1
            level = after
        return look_through(
            outlook.table,
            forecast.spot_price[:slots],
            forecast.spot_available[:slots],
            elapsed_slots=view.elapsed_slots,
            run_state_after=level * space.ages + space.age_of(lasted),
            price_ppm_after=forecast.spot_price[slots - 1] * PPM // view.on_demand_price,
            held=view.state.holding,
            interrupted=view.interrupted,
            pending_overhead_s=view.state.pending_overhead_s,
            work_left_quanta=view.program.work_quanta - view.state.progress_quanta,
            spot_price=view.spot_price,
            on_demand_price=view.on_demand_price,
            spot_available=view.spot_available,
            on_demand_available=view.on_demand_available,
            slot_left_s=view.slot_left_s,
        )


SDP = ValueToGo()
HYBRIDS = (ValueToGo(1), ValueToGo(2), ValueToGo(5))
