"""`spotline priors build`: market laws and policy weights from the first halves of public traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spotline.bench.priors.sources import PriorSource, prior_sources
from spotline.bench.quality.cells import POLICY_IDS, Density, Forecasts, courses_of, run_cell
from spotline.bench.quality.episodes import BASE, DEADLINES_SLOTS, Replays
from spotline.bench.quality.families import Family, load_families
from spotline.bench.quality.forecasts import forecast_family, window_forecasts
from spotline.domain.forecasting.registry import DEFAULT_FORECASTER
from spotline.domain.market.law import (
    MarketLaw,
    law_weights,
    learn_law,
    mixed_law,
    run_states,
    transitions,
)
from spotline.domain.market.prior_laws import (
    SHARES,
    WHOLE,
    PriorLaw,
    learn_prior,
    priors_to_json,
)
from spotline.domain.selection.prior import initial_weights
from spotline.domain.selection.rules import DEFAULT_RULE, rule_named
from spotline.domain.selection.saved import SavedWeights, saved_from
from spotline.domain.units import MICRO_USD_PER_USD, PPM

FIRST_SLOTS = 48
"""The first hours that a card judges laws on: a day of half-hour slots."""

FloatArray = npt.NDArray[np.float64]

_JOBS = Density(reported=24, rehearsed=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltPriors:
    """Priors as the wheel ships them: the texts of both files, and the card inside the first."""

    laws_json: str
    weights: SavedWeights
    card: Mapping[str, Any]


def build_priors(
    data: Path, *, command: str = "", tell: Callable[[str], None] = lambda line: None
) -> BuiltPriors:
    """Learn priors from the first half of every public trace under `data`.

    Raises
    ------
    ContractError
        A file breaks its format, or no trace is there.
    """
    sources = prior_sources(data)
    tell(f"laws of {len(sources)} series")
    laws = tuple(
        learn_prior(source.name, source.kind, source.region, source.counts)
        for source in sources
        if source.counts.max(initial=0) > 0
    )
    families, _ = load_families(data)
    weights = _weights(families, tell)
    card = {
        "command": command,
        "sources": [source.as_json() for source in sources],
        "leave_one_region_out": _judged(sources, laws),
        "weights": {
            "families": [family.name for family in families],
            "jobs": weights.rounds,
            "deadlines_slots": list(DEADLINES_SLOTS),
        },
    }
    return BuiltPriors(laws_json=priors_to_json(laws, card), weights=weights, card=card)


# --- policy weights ---------------------------------------------------------------------------


def _weights(families: Sequence[Family], tell: Callable[[str], None]) -> SavedWeights:
    """What the selector learns from jobs of the first halves; planned by laws of the first quarters.

    Families are taken job by job in turn, so that none has the last word.
    """
    rule = rule_named(DEFAULT_RULE, len(POLICY_IDS), prior=initial_weights(POLICY_IDS))
    lessons: list[FloatArray] = []
    for family in families:
        tell(f"policies on the first half of {family.name}")
        early = _first_half(family)
        said = forecast_family(early.series, DEFAULT_FORECASTER)
        forecasts: Forecasts = {
            (one.together, one.name, one.world): found[one.name]
            for group in said
            for found in (window_forecasts(group, judged=True),)
            for one in group.series
        }
        courses = courses_of(early, forecasts, relearn_slots=_never(early))
        for deadline in DEADLINES_SLOTS:
            cell = run_cell(early, courses, BASE, deadline, _JOBS, adapt=False, strict=False)
            lessons.append(_in_order(cell.soft))
    for turn in range(max(len(lesson) for lesson in lessons)):
        for lesson in lessons:
            if turn < len(lesson):
                rule.update(lesson[turn] / MICRO_USD_PER_USD, served=False)
    names = ", ".join(family.name for family in families)
    saved = saved_from(rule, POLICY_IDS, f"first halves of public traces: {names}")
    return replace(saved, weights={name: round(one, 9) for name, one in saved.weights.items()})


def _first_half(family: Family) -> Family:
    halves = tuple(
        replace(one, market=one.market.between(0, one.half))
        for one in family.series
        if one.world == 0
    )
    return replace(family, series=halves)


def _never(family: Family) -> int:
    return max(one.slots for one in family.series)


def _in_order(jobs: Replays) -> FloatArray:
    order = np.lexsort((jobs.series, jobs.start))
    utilities: FloatArray = jobs.utility[order].astype(np.float64)
    return utilities


# --- how laws do on what they did not see -----------------------------------------------------


def _judged(sources: Sequence[PriorSource], laws: Sequence[PriorLaw]) -> dict[str, Any]:
    """By kind: nats per slot over the first day of each series, told by priors without its region.

    Beside it what nothing but assumptions gives, and the law of the series' own first half, which
    no prior can reach. A law of the same region is left out whatever its kind.
    """
    rows: dict[str, list[tuple[float, float, float]]] = {}
    for source in sources:
        others = [law for law in laws if law.region != source.region]
        if source.counts.max(initial=0) < 1 or not others:
            continue
        own = learn_prior(source.name, source.kind, source.region, source.counts).law
        shares = _shares(source.counts)[: FIRST_SLOTS + 1]
        lent = _likelihood(shares, [law.law for law in others], _alike(others))
        nothing, whole = _likelihood(shares, (), ()), _likelihood(shares, (own,), (1.0,))
        rows.setdefault(source.kind, []).append((lent, nothing, whole))
    return {
        kind: {
            "series": len(found),
            "nats_per_slot_priors": round(float(np.mean([row[0] for row in found])), 4),
            "nats_per_slot_nothing_known": round(float(np.mean([row[1] for row in found])), 4),
            "nats_per_slot_own_law": round(float(np.mean([row[2] for row in found])), 4),
        }
        for kind, found in sorted(rows.items())
    }


def _shares(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    shares = counts * WHOLE // int(counts.max())
    shares[(counts > 0) & (shares < 1)] = 1
    return shares


def _alike(laws: Sequence[PriorLaw]) -> tuple[float, ...]:
    kinds = [law.kind for law in laws]
    return tuple(1.0 / (len(set(kinds)) * kinds.count(kind)) for kind in kinds)


def _likelihood(
    shares: npt.NDArray[np.int64], laws: Sequence[MarketLaw], before: Sequence[float]
) -> float:
    """Mean log-probability of each slot's level, told by what was known the slot before."""
    levels = len(SHARES.level_starts)
    unpriced = np.full(len(shares), PPM // 3, dtype=np.int64)
    states = run_states(SHARES, shares)
    total = 0.0
    for slot in range(1, len(shares)):
        past = shares[:slot]
        prior = None
        if laws:
            weights = law_weights(transitions(SHARES, past), laws, np.array(before))
            prior = mixed_law(laws, weights)
        law = learn_law(past, unpriced[:slot], SHARES, prior=prior)
        chances = law.run_matrix()[states[slot - 1]].reshape(levels, SHARES.ages).sum(axis=1)
        total += float(np.log(max(chances[states[slot] // SHARES.ages], 1e-9)))
    return total / max(1, len(shares) - 1)
