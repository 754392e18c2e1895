"""How laws are learned from what a market has shown."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRules:
    """What is done with a market's past when its laws are learned; everything, unless said otherwise.

    A log's manifest states each by its name, and one that it does not state was not done.

    Parameters
    ----------
    watch_laws
        Forget what a market did before its law changed, see `law_drift.changed_at`.
    whole_gangs
        Tell a whole gang from one that has lost a few, see `law.choose_space`.
    falling_ends
        Draw the ends of runs towards a power of their age, see `law_ages.ends_by_age`.
    present_prices
        Learn prices from recent slots, with the latest among the levels, see `law_prices`.
    """

    watch_laws: bool = True
    whole_gangs: bool = True
    falling_ends: bool = True
    present_prices: bool = True


FIRST_RULES = LearningRules(
    watch_laws=False, whole_gangs=False, falling_ends=False, present_prices=False
)
"""Those of logs of before 0.3.0."""

ALL_RULES = LearningRules()
"""Those of new logs."""

OF_ONE_LAW = replace(ALL_RULES, watch_laws=False)
"""For a past that is too short to have changed its law."""
