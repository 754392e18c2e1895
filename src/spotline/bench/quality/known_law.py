"""Markets whose law is known: how near a law learned from few slots comes to the best policy.

On recorded markets nobody knows what can be had without foresight. Here it is known: the value
table of the law that generates the market is optimal up to its grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from spotline.bench.quality.certified import certified
from spotline.bench.quality.episodes import BASE, IntArray, program_of, table_for
from spotline.bench.quality.families import GANG
from spotline.bench.quality.statistics import FloatArray, percent
from spotline.domain.certificates.certificate import MOST_ENTRIES
from spotline.domain.forecasting.law_book import MOST_INSTANCES
from spotline.domain.jobs.program import JobProgram
from spotline.domain.market.law import (
    MarketLaw,
    StateSpace,
    learn_laws,
    quantised_rows,
    run_states,
)
from spotline.domain.market.learning_rules import ALL_RULES
from spotline.domain.policies.compiled import MarketSeries, clairvoyant_many, replay_many
from spotline.domain.policies.prediction import UNCOUNTED
from spotline.domain.policies.registry import FALLBACK_POLICY_ID, policy_named
from spotline.domain.policies.sdp import SDP
from spotline.domain.solvers.table_terms import TableTerms
from spotline.domain.units import PPM

LEARNED_SLOTS = 300
DEADLINE_SLOTS = 10
_ON_DEMAND_PRICE = 3_060_000
_PATH_SEED = 101
# Slots for which the ages of runs are told apart: longer than any job lives.
_AGES = 16
_LEARNING_SEEDS = (201, 202, 203, 204, 205)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLaw:
    """A fixed market and what it is an example of."""

    name: str
    description: str
    law: MarketLaw


def _memoryless() -> KnownLaw:
    space = StateSpace(level_starts=(0, 16), age_starts=(1,), price_centres_ppm=(250_000, 450_000))
    run = np.array([[0.85, 0.15], [0.10, 0.90]])
    price = np.array([[0.92, 0.08], [0.08, 0.92]])
    return KnownLaw(
        name="memoryless",
        description="gangs of 16, up or down without memory; two prices",
        law=_law(space, (0, 16), run, price),
    )


def _heavy_tailed() -> KnownLaw:
    """Runs end ever more rarely the longer they have lasted; ages are told apart exactly."""
    ages = np.arange(1, 13)
    return KnownLaw(
        name="heavy-tailed",
        description="gangs of 16; the longer a run has lasted, the longer it goes on",
        law=_renewal(0.30 / ages, 0.35 / ages),
    )


def _pareto() -> KnownLaw:
    """Runs are discretised Pareto: P(longer than k) = (1 + k / scale) ** -1.2, no variance."""
    ages = np.arange(_AGES)
    down, up = (_hazards((1.0 + ages / scale) ** -1.2) for scale in (1.5, 2.5))
    return KnownLaw(
        name="pareto",
        description="gangs of 16; runs of discretised Pareto length, exponent 1.2",
        law=_renewal(down, up),
    )


def _exponentials() -> KnownLaw:
    """Every run is short or long, and nobody sees which: a mixture of two geometric lengths."""
    ages = np.arange(_AGES)
    down = _hazards(0.7 * 0.4**ages + 0.3 * 0.95**ages)
    up = _hazards(0.5 * 0.5**ages + 0.5 * 0.97**ages)
    return KnownLaw(
        name="exponentials",
        description="gangs of 16; short runs of 2 slots among long ones of 20 to 33",
        law=_renewal(down, up),
    )


def _hazards(longer: FloatArray) -> FloatArray:
    """Chance that a run ends in each of its slots, from that of being longer than so many."""
    ends: FloatArray = 1.0 - longer[1:] / longer[:-1]
    return ends


def _renewal(down: FloatArray, up: FloatArray) -> MarketLaw:
    """Gangs of 16 whose runs end with a chance given by their age, after the last as in it."""
    ages = down.size
    space = StateSpace(
        level_starts=(0, 16), age_starts=tuple(range(1, ages + 1)), price_centres_ppm=(300_000,)
    )
    run = np.zeros((2 * ages, 2 * ages))
    for level, ends in enumerate((down, up)):
        for age in range(ages):
            state = level * ages + age
            run[state, (1 - level) * ages] = ends[age]
            run[state, level * ages + min(age + 1, ages - 1)] = 1.0 - ends[age]
    return _law(space, (0, 16), run, np.ones((1, 1)))


def _birth_death() -> KnownLaw:
    counts = (0, 3, 6, 9, 12)
    levels = len(counts)
    run = np.zeros((levels, levels))
    for level in range(levels):
        if level > 0:
            run[level, level - 1] = 0.18
        if level < levels - 1:
            run[level, level + 1] = 0.18
        run[level, level] = 1.0 - run[level].sum()
    prices = (200_000, 350_000, 600_000)
    price = np.array([[0.85, 0.13, 0.02], [0.10, 0.80, 0.10], [0.02, 0.13, 0.85]])
    space = StateSpace(level_starts=counts, age_starts=(1,), price_centres_ppm=prices)
    return KnownLaw(
        name="birth-death",
        description="counts that go up and down by threes, and three prices",
        law=_law(space, counts, run, price),
    )


def _law(space: StateSpace, counts: Sequence[int], run: FloatArray, price: FloatArray) -> MarketLaw:
    return MarketLaw(
        space=space,
        level_counts=tuple(counts),
        run_ppb=quantised_rows(run),
        price_ppb=quantised_rows(price),
    )


KNOWN_LAWS = (_memoryless(), _heavy_tailed(), _birth_death(), _pareto(), _exponentials())


def sample(law: MarketLaw, slots: int, seed: int) -> MarketSeries:
    """A market that follows `law`, from a state drawn after a long time."""
    rng = np.random.Generator(np.random.PCG64(seed))
    burn_in = 500
    run = _walk(law.run_matrix(), slots + burn_in, rng)[burn_in:]
    price = _walk(law.price_matrix(), slots + burn_in, rng)[burn_in:]
    centres = np.array(law.space.price_centres_ppm, dtype=np.int64)
    return MarketSeries(
        spot_price=centres[price] * _ON_DEMAND_PRICE // PPM,
        on_demand_price=np.full(slots, _ON_DEMAND_PRICE, dtype=np.int64),
        spot_available=law.run_counts()[run],
        on_demand_available=np.full(slots, UNCOUNTED, dtype=np.int64),
    )


def _walk(matrix: FloatArray, slots: int, rng: np.random.Generator) -> IntArray:
    reached = matrix.cumsum(axis=1)
    drawn = rng.random(slots)
    states = np.zeros(slots, dtype=np.int64)
    last = matrix.shape[0] - 1
    for slot in range(1, slots):
        after = int(np.searchsorted(reached[states[slot - 1]], drawn[slot], side="right"))
        states[slot] = min(after, last)
    return states


def learned_law(law: MarketLaw, seed: int) -> MarketLaw:
    """What is learned of `law` from `LEARNED_SLOTS` slots that follow it."""
    past = sample(law, LEARNED_SLOTS, seed)
    price_ppm = past.spot_price * PPM // past.on_demand_price
    series = {"known": (past.spot_available, price_ppm)}
    return learn_laws(series, most_instances=MOST_INSTANCES, learning=ALL_RULES)["known"]


def _terms(program: JobProgram, law: MarketLaw) -> TableTerms:
    return TableTerms(
        program=program,
        law=law,
        on_demand_price=_ON_DEMAND_PRICE,
        on_demand_available=UNCOUNTED,
        even_cells=True,
    )


def utilities(market: MarketSeries, law: MarketLaw, starts: IntArray) -> IntArray:
    """What the program of `law` earns by first slot, micro-USD, shape (starts,)."""
    program = program_of(BASE, GANG, DEADLINE_SLOTS, _ON_DEMAND_PRICE, hard=False)
    placed = replace(market, run_state=run_states(law.space, market.spot_available))
    table = replay_many(
        program,
        placed,
        (SDP,),
        starts,
        policy_named(FALLBACK_POLICY_ID),
        table_for(program, law, market),
    )
    earned: IntArray = table.utility_micro_usd[:, 0]
    return earned


def known_law_table(
    *,
    jobs: int,
    pasts: int = len(_LEARNING_SEEDS),
    futures: int = 400,
    most_entries: int = MOST_ENTRIES,
) -> dict[str, dict[str, object]]:
    """Compare learned laws with the true ones on the same paths, by name of the market.

    `percent_of_true_law_optimum` is the mean over `pasts` (at most five) independent pasts to learn
    from, `worst` the least of them, and `standard_error` that of the first, from independent jobs.
    `certificate` says how far the true law's plans are from what any online policy could earn, on
    so many `futures` of their own (`most_entries` as in `foresight_of`).
    """
    program = program_of(BASE, GANG, DEADLINE_SLOTS, _ON_DEMAND_PRICE, hard=False)
    starts = np.arange(jobs, dtype=np.int64) * program.end_slots
    table: dict[str, dict[str, object]] = {}
    for known in KNOWN_LAWS:
        market = sample(known.law, jobs * program.end_slots, _PATH_SEED)
        best = utilities(market, known.law, starts)
        learned = [
            utilities(market, learned_law(known.law, s), starts) for s in _LEARNING_SEEDS[:pasts]
        ]
        percents = [percent(one, best) for one in learned]
        paired = (learned[0] - best) * len(best) / best.sum()
        optimum = clairvoyant_many(program, market, starts[: min(jobs, 300)])
        table[known.name] = {
            "percent_of_true_law_optimum": float(np.mean(percents)),
            "worst": min(percents),
            "by_past": percents,
            "standard_error": float(100.0 * paired.std() / np.sqrt(len(best))),
            "true_law_percent_of_clairvoyant": percent(
                best[: min(jobs, 300)], optimum.upper_utility_micro_usd
            ),
            "certificate": certified(
                _terms(program, known.law), futures, most_entries=most_entries
            ),
            "learned_slots": LEARNED_SLOTS,
            "jobs": jobs,
            "description": known.description,
        }
    return table
