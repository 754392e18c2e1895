"""What a job would cost at each offering, by laws of their spot: what homes are chosen by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.state import SelectorState
from spotline.domain.events.market import SlotOpened
from spotline.domain.jobs.program import JobProgram
from spotline.domain.market.law import last_run_state
from spotline.domain.market.named_law import NamedLaw
from spotline.domain.market.offering import Quote
from spotline.domain.solvers.home_cost import PARTS, SpotParts, Stint, slots_of_each_kind


@dataclass(slots=True, kw_only=True)
class HomeProspects:
    """The laws of offerings and where each is in its law, as a slot opens.

    `worths` is what an instance of spot was worth of late beyond its price, micro-USD per hour.
    """

    laws: Mapping[str, NamedLaw]
    run_states: Mapping[str, int]
    worths: Mapping[str, int]
    _found: dict[tuple[object, ...], tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, state: SelectorState, options: SelectorOptions) -> HomeProspects | None:
        """Those of the open slot; None without `homes_by_law`."""
        if not options.homes_by_law or state.beliefs is not None:
            return None
        return cls(
            laws=state.laws,
            run_states={
                offering_id: state.run_state(offering_id, named.law.space)
                for offering_id, named in state.laws.items()
            },
            worths={}
            if state.shadow is None
            else {offering_id: state.shadow.lately(offering_id) for offering_id in state.laws},
        )

    def behind(
        self, counts: Mapping[str, Sequence[int]], ahead: Sequence[SlotOpened]
    ) -> HomeProspects:
        """The same where slots of a future have opened, the open one first, behind these counts.

        Of the slots to come nobody knows what spot will be worth: as much as of late.
        """
        if len(ahead) <= 1:
            return self
        seen = {name: list(counts.get(name, ())) for name in self.laws}
        for opened in ahead[1:]:
            for quoted in opened.quotes:
                available = quoted.quote.spot_available
                if quoted.quote.offering_id in seen and available.known:
                    seen[quoted.quote.offering_id].append(available.instances)
        return replace(
            self,
            run_states={
                name: last_run_state(named.law.space, seen[name])
                if seen[name]
                else self.run_states[name]
                for name, named in self.laws.items()
            },
        )

    def price(
        self, quote: Quote, program: JobProgram, done_quanta: int, taken: int, known: float
    ) -> float:
        """What an instance-hour of a job's work costs at an offering in the mean, micro-USD.

        Where no law is known that is what is `known` without one.
        """
        shares = self._shares(quote.offering_id, program, done_quanta, taken)
        if shares is None:
            return known
        on_demand = quote.on_demand_price_micro_usd
        spot = quote.spot_price_micro_usd + self.worths.get(quote.offering_id, 0)
        return shares[0] * min(spot, on_demand) + shares[1] * on_demand

    def _shares(
        self, offering_id: str, program: JobProgram, done_quanta: int, taken: int
    ) -> tuple[float, float] | None:
        """The shares of a job's work on spot and on demand at an offering; None where no law is known.

        Parameters
        ----------
        taken
            Instances of spot that others take there.
        """
        named = self.laws.get(offering_id)
        if named is None:
            return None
        most = program.max_instances
        full = program.rate_quanta_per_s[most] * program.slot_s
        parts = max(1, -(-(program.work_quanta - done_quanta) * PARTS // full))
        slots = max(1, program.deadline_slots)
        lost = min(PARTS, round(PARTS * program.launch_s / program.slot_s))
        key = named.law_id, self.run_states[offering_id], slots, parts, most, taken, lost
        found = self._found.get(key)
        if found is None:
            law = named.law
            left = np.maximum(0, law.run_counts() - taken)
            share = np.minimum(1.0, left / most)
            spot = SpotParts(
                first=np.rint(share * (PARTS - lost)).astype(np.int64),
                next=np.rint(share * PARTS).astype(np.int64),
                share=share,
            )
            held, bought = slots_of_each_kind(
                law.run_matrix(), self.run_states[offering_id], Stint(slots, parts), spot
            )
            found = self._found[key] = held * PARTS / parts, bought * PARTS / parts
        return found
