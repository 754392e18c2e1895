"""How far the default's plans are from what any online policy could earn on a known law."""

from __future__ import annotations

import numpy as np

from spotline.bench.quality.statistics import FloatArray
from spotline.domain.certificates.certificate import (
    MOST_ENTRIES,
    Certificate,
    MarketFutures,
    certify,
    foresight_of,
    futures_of,
    interval_95,
)
from spotline.domain.market.law import MarketLaw
from spotline.domain.policies.compiled import MarketSeries, replay_pool
from spotline.domain.policies.registry import FALLBACK_POLICY_ID, policy_named
from spotline.domain.policies.sdp import SDP
from spotline.domain.solvers.table_store import table_of
from spotline.domain.solvers.table_terms import TableTerms
from spotline.domain.units import PPM

_SEED = 301


def market_of(law: MarketLaw, futures: MarketFutures, on_demand: tuple[int, int]) -> MarketSeries:
    """Lay futures one after another; `on_demand` is its price in micro-USD, and its count."""
    run, price = futures.run.ravel(), futures.price.ravel()
    centres = np.array(law.space.price_centres_ppm, dtype=np.int64)
    return MarketSeries(
        spot_price=centres[price] * on_demand[0] // PPM,
        on_demand_price=np.full(run.size, on_demand[0], dtype=np.int64),
        spot_available=law.run_counts()[run],
        on_demand_available=np.full(run.size, on_demand[1], dtype=np.int64),
        run_state=run,
    )


def certified(
    terms: TableTerms, futures: int, *, most_entries: int = MOST_ENTRIES
) -> dict[str, object]:
    """Compare `sdp` with the ceiling on futures of the law of `terms`.

    What `sdp` earns is taken less what it pays for what happened: the mean is the same, and on
    every future the difference to the ceiling's schedule is no less than 0. `most_entries` as in
    `foresight_of`.

    Returns
    -------
    dict
        `above_percent`: by how much the ceiling exceeds what `sdp` earns, with its 95 % interval;
        `clairvoyant_above_percent` the same of the clairvoyant; `exact` whether no gain was
        rounded up.
    """
    program = terms.program
    uniforms = np.random.Generator(np.random.PCG64(_SEED)).random((2, futures, program.end_slots))
    drawn = futures_of(terms.law, uniforms)
    foresight = foresight_of(terms, most_entries=most_entries)
    found: Certificate = certify(foresight, drawn)
    series = market_of(terms.law, drawn, (terms.on_demand_price, terms.on_demand_available))
    earned: FloatArray = np.zeros(futures)
    for future in range(futures):
        records = series.records(future * program.end_slots, program.end_slots)
        (result,) = replay_pool(
            program, records, (SDP,), policy_named(FALLBACK_POLICY_ID), table_of(terms)
        )
        paid = foresight.charged(drawn, future, result.holdings)
        earned[future] = result.utility_micro_usd - paid
    low, high = interval_95(found.penalised - earned)
    mean = earned.mean()
    return {
        "above_percent": [
            float(100.0 * low / mean),
            float(100.0 * (found.ceiling_micro_usd / mean - 1.0)),
            float(100.0 * high / mean),
        ],
        "clairvoyant_above_percent": float(100.0 * (found.clairvoyant_micro_usd / mean - 1.0)),
        "exact": found.exact,
        "futures": futures,
    }
