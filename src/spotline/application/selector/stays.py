"""Where a job may go while spot lasts there, though it has no value table: to spot that nobody holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from spotline.application.allocation.messages import Alternative, SpotStay
from spotline.application.selector.egress import held_back
from spotline.application.selector.job_run import JobRun
from spotline.application.selector.leaving import alternative_to, can_stay
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.rescuing import RescueRoom
from spotline.application.selector.state import SelectorState
from spotline.domain.market.lasting import lasting_of
from spotline.domain.market.named_law import NamedLaw
from spotline.domain.market.offering import Quote

# Places that a job bids for beside those it has tables of, at most.
MOST_STAYS = 3
# Slots of a stay by which places are put in order.
_RANKED_SLOTS = 8


@dataclass(slots=True, kw_only=True)
class IdleSpot:
    """Spot that no job holds as a slot opens, by offering, where it is counted.

    It is less than nothing where jobs held more than there is now. `quotes` are those of the slot.
    Nothing is idle without `stays_elsewhere`, or inside a slot.
    """

    instances: Mapping[str, int] = field(default_factory=dict)
    quotes: Mapping[str, Quote] = field(default_factory=dict)
    _run_states: dict[str, int] = field(default_factory=dict)
    _slots: dict[tuple[str, int], float] = field(default_factory=dict)

    @classmethod
    def of(cls, state: SelectorState, options: SelectorOptions) -> IdleSpot:
        """What there is now."""
        if not (options.moves and options.stays_elsewhere and state.clearing) or state.offset_s:
            return cls()
        residual = state.residual()
        quotes = {
            quoted.quote.offering_id: quoted.quote
            for quoted in state.current.quotes
            if quoted.quote.spot_available.known
        }
        idle = {offering_id: residual.spot(offering_id) for offering_id in quotes}
        for run in state.running():
            if run.offering_id in idle:
                idle[run.offering_id] -= run.state.holding.spot
        return cls(instances=idle, quotes=quotes)

    def places(
        self, state: SelectorState, run: JobRun, options: SelectorOptions, room: RescueRoom
    ) -> Iterator[Alternative]:
        """Where a job could go that finds less spot at home than it may hold, the best first."""
        home = self.quotes.get(run.offering_id)
        if home is None or run.table_in(state.slot, run.offering_id) is None:
            return
        if not self._is_short(state, run):
            return
        ranked = sorted(self._ranked(state, run, home))
        full = room.full_for(state, run, [offering_id for _, offering_id in ranked])
        found = 0
        for _, offering_id in ranked:
            if offering_id in full or held_back(state, run, offering_id, options):
                continue
            if not can_stay(state, run, offering_id, options):
                continue
            # Others that could go there in this slot leave it that much.
            room.claim(state, run, offering_id)
            named = state.laws[offering_id]
            stay = SpotStay(
                law_id=named.law_id,
                run_state=self._run_state(state, offering_id, named),
                spot_surcharge_micro_usd=state.spot_surcharge(offering_id),
            )
            yield alternative_to(state, run, offering_id, options, stay=stay)
            found += 1
            if found == MOST_STAYS:
                return

    def _is_short(self, state: SelectorState, run: JobRun) -> bool:
        """Whether a job that has work to do could hold more spot than there is for it at home."""
        if run.elapsed_slots(state.slot) >= run.compiled.deadline_slots:
            return False
        at_home = self.instances[run.offering_id] + run.state.holding.spot
        return at_home < run.job.max_instances

    def _ranked(
        self, state: SelectorState, run: JobRun, home: Quote
    ) -> Iterator[tuple[float, str]]:
        """What idle spot elsewhere spares a job of on-demand at home as long as it lasts: less is better."""
        for offering_id, idle in self.instances.items():
            named, offering = state.laws.get(offering_id), state.offerings[offering_id]
            if offering_id == run.offering_id or offering_id in run.tables or named is None:
                continue
            if run.job.throughput_on(offering_id, offering.instance_type) is None:
                continue
            count = max((c for c in run.job.allowed_counts if c <= idle), default=0)
            price = self.quotes[offering_id].spot_price_micro_usd
            spared = home.on_demand_price_micro_usd - price - state.spot_surcharge(offering_id)
            if not count or spared <= 0:
                continue
            lasts = self._expected_slots(state, offering_id, named, count)
            yield -count * spared * lasts, offering_id

    def _run_state(self, state: SelectorState, offering_id: str, named: NamedLaw) -> int:
        """Where an offering is in its law: the same for all jobs of the slot."""
        found = self._run_states.get(offering_id)
        if found is None:
            found = state.run_state(offering_id, named.law.space)
            self._run_states[offering_id] = found
        return found

    def _expected_slots(
        self, state: SelectorState, offering_id: str, named: NamedLaw, count: int
    ) -> float:
        """Slots that so many instances are expected to stay, this one among them."""
        found = self._slots.get((offering_id, count))
        if found is None:
            run_state = self._run_state(state, offering_id, named)
            found = lasting_of(named.law).expected_slots(run_state, count, _RANKED_SLOTS)
            self._slots[offering_id, count] = found
        return found
