"""What a job is worth where it has no value table: it would stay there as long as spot lasts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spotline.application.allocation.messages import Alternative, SpotStay
from spotline.domain.market.lasting import lasting_of
from spotline.domain.market.law import MarketLaw
from spotline.domain.policies.interface import PolicyView
from spotline.domain.policies.params import offer_of, standing_of
from spotline.domain.solvers.spot_stay import STAY_SLOTS, HomeValue, Stay, stay_worth


@dataclass(frozen=True, slots=True, kw_only=True)
class Away:
    """A job away from home: what it sees at home, and how spot lasts where it would go."""

    home: PolicyView
    stay: SpotStay
    law: MarketLaw

    @classmethod
    def at(cls, place: Alternative, home: PolicyView, laws: Mapping[str, MarketLaw]) -> Away | None:
        """A job at an alternative; None where it has a value table there.

        Raises
        ------
        ValueError
            The law is not among `laws`, or the run state is none of the law's.
        """
        stay = place.stay
        if stay is None:
            return None
        law = laws.get(stay.law_id)
        if law is None:
            raise ValueError(f"laws must hold {stay.law_id}, by which spot lasts")
        if not 0 <= stay.run_state < law.space.run_states:
            raise ValueError(
                f"stay.run_state must lie in 0..{law.space.run_states - 1}, was {stay.run_state}"
            )
        return cls(home=home, stay=stay, law=law)

    def worth(self, there: PolicyView, count: int) -> float:
        """What the rest of the job's life is worth with `count` instances of spot there, micro-USD.

        The way there is not paid yet; this slot is decided at its price, as everywhere.
        """
        home, outlook = self.home, self.home.outlook
        late = home.elapsed_slots >= home.program.deadline_slots
        table = None if outlook is None or late else outlook.table
        chances = lasting_of(self.law).chances(self.stay.run_state, 1)
        if outlook is not None and table is not None:
            chances = lasting_of(table.terms.law).chances(outlook.run_state, STAY_SLOTS)
        return stay_worth(
            there.program,
            standing_of(there),
            offer_of(home),
            HomeValue(table=table, chances=chances),
            Stay(
                instances=count,
                price=there.spot_price,
                later_price=there.spot_price + self.stay.spot_surcharge_micro_usd,
                lasts=lasting_of(self.law).lasts(self.stay.run_state, count, STAY_SLOTS),
            ),
        )


def most_that_fit(there: PolicyView, spot: int) -> int:
    """The largest count that a job may hold of so much spot, 0 for none."""
    return max((count for count in there.program.allowed_counts if count <= spot), default=0)
