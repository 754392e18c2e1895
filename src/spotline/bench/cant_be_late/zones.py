"""The benchmark on aligned zones: a job may move between them, and pays the overhead to do so.

Time is split: laws are learned and the best single zone is chosen on the first half of the traces
(their common length), windows lie in the second. A training trace of a zone that is not tested is
used whole, one of a tested zone up to the split.

The market of a job that holds a zone is reduced to how long the zone can be expected to stay up, in
a few classes: an interruption leads to the best zone then up, or to none. Its transitions are
counted on training time, and an exact program on it decides when to ride, wait, launch or buy
on-demand.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from spotline.bench.cant_be_late.instance_table import InstanceTable, solve
from spotline.bench.cant_be_late.policies import (
    CLAIRVOYANT,
    POLICIES,
    RULES,
    SPOTLINE,
    UNIFORM_PROGRESS,
    Say,
    known_policy,
    run_clairvoyant,
    run_rule,
    run_spotline,
    solve_mix,
    task_of,
)
from spotline.bench.cant_be_late.report import PolicyRuns, compared, document, gap_share_percent
from spotline.bench.cant_be_late.rules import (
    LONGEST_DEADLINE_TICKS,
    Variant,
    variants_of,
)
from spotline.bench.cant_be_late.single import CantBeLateOptions, training_of
from spotline.bench.cant_be_late.table_runs import Zones, filter_beliefs, run_zones
from spotline.bench.cant_be_late.ticks import IntArray, Windows
from spotline.bench.cant_be_late.traces import Trace, read_traces, window_starts
from spotline.contracts.errors import ContractError
from spotline.domain.market.run_law import (
    LawMix,
    MarketChain,
    common_law,
    count_runs,
    learn_mix,
    mix_of,
    own_law,
)

SINGLE_ZONE: Final = "single_zone"
ALL_ZONES: Final = "all zones"

# Chosen, as the weight of the own law, on the first half of the traces alone.
_CLASSES: Final = 3
# A class whose own moves were seen this often outweighs what all classes did together.
_COMMON_MOVES: Final = 20.0
_SOME: Final = 1e-3
_DOWN_AGE_STARTS: Final = (1, 3, 9, 30)
# Weight of a zone's own law, learned at another time, against every other law.
_OWN_LAW_WEIGHT: Final = 0.4

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneMarket:
    """What a job among zones lives in, as a Markov market.

    States: `classes` of a held zone by its expected slots left (class c from `edges[c - 1]` on),
    then the same where a zone was just lost and this is the best to go to, then all zones down by
    the age of that.
    """

    edges: FloatArray
    chain: MarketChain


def bench_zones(options: CantBeLateOptions, say: Say) -> dict[str, Any]:
    """Run the benchmark with moves between zones; return its JSON document.

    Raises
    ------
    ValueError
        A name is unknown, or the second half of the traces is shorter than the longest deadline.
    ContractError
        A directory or file breaks the format.
    """
    policy = known_policy(options.policy, (*POLICIES, SINGLE_ZONE))
    variants = variants_of(options.grid)
    tested = read_traces(options.traces)
    if len(tested) < 2:
        raise ContractError(str(options.traces), "expected aligned traces of at least two zones")
    known = training_of(options.train if options.train is not None else options.traces)
    ticks = min(len(trace.up) for trace in tested)
    up = np.ascontiguousarray(np.stack([trace.up[:ticks] for trace in tested], axis=1))
    split = ticks // 2
    try:
        windows = Windows(up=up, starts=window_starts(split, ticks, LONGEST_DEADLINE_TICKS))
        before = Windows(up=up[:split], starts=window_starts(0, split, LONGEST_DEADLINE_TICKS))
    except ValueError as error:
        raise ValueError(f"{options.traces}: half of the common length: {error}") from error
    training = _training(tested, known, split)
    single, zone = _single_zone(training, before, windows, variants, say)
    name = tested[zone].name
    say(f"best single zone on training time: {name}")
    best = _known(CLAIRVOYANT, windows, variants)
    if policy == SINGLE_ZONE:
        outcome = single
    elif policy == SPOTLINE:
        outcome = _learned(tested, training, split, windows, variants)
    else:
        outcome = best if policy == CLAIRVOYANT else _known(policy, windows, variants)
    others = {
        SINGLE_ZONE: single,
        UNIFORM_PROGRESS: _known(UNIFORM_PROGRESS, windows, variants),
        CLAIRVOYANT: best,
    }
    share = gap_share_percent(outcome.score(), single.score(), best.score())
    return document(
        outcome,
        grid=options.grid,
        comparison=compared(outcome, others),
        extra={
            "zones": [trace.name for trace in tested],
            "best_single_zone": {"name": name, "score": single.score(), "misses": single.misses()},
            "multi_zone_clairvoyant": {"score": best.score()},
            "gap_share_percent": {SINGLE_ZONE: share},
            "gap_share_percent_by_variant": [
                {
                    "overhead_h": variant.overhead_h,
                    "deadline_h": variant.deadline_h,
                    "single_zone": single.score(variant=variant),
                    "clairvoyant": best.score(variant=variant),
                    "percent": gap_share_percent(
                        outcome.score(variant=variant),
                        single.score(variant=variant),
                        best.score(variant=variant),
                    ),
                }
                for variant in variants
            ],
            "training_ticks": split,
        },
    )


def _training(tested: Sequence[Trace], known: Sequence[Trace], split: int) -> list[Trace]:
    """Known traces, those of tested zones only up to the split, and the tested ones up to there."""
    names = {trace.name for trace in tested}
    firsts = [replace(trace, up=trace.up[:split]) for trace in tested]
    return firsts + [trace for trace in known if trace.name not in names]


def _known(policy: str, windows: Windows, variants: Sequence[Variant]) -> PolicyRuns:
    outcome = PolicyRuns(policy=policy)
    for variant in variants:
        begin = time.perf_counter()
        outcome.runs[variant, ALL_ZONES] = (
            run_rule(policy, windows, variant)
            if policy in RULES
            else run_clairvoyant(windows, variant)
        )
        outcome.run_s += time.perf_counter() - begin
    return outcome


def _single_zone(
    training: Sequence[Trace],
    before: Windows,
    windows: Windows,
    variants: Sequence[Variant],
    say: Say,
) -> tuple[PolicyRuns, int]:
    """The learned policy in the zone where it was cheapest on training time, and that zone."""
    mix = learn_mix([trace.up for trace in training])
    zones = before.up.shape[1]
    chosen_on = [PolicyRuns(policy=SPOTLINE) for _ in range(zones)]
    tried = [PolicyRuns(policy=SINGLE_ZONE) for _ in range(zones)]
    for variant in variants:
        table = solve_mix(mix, variant)
        for zone in range(zones):
            for of, outcome in ((before, chosen_on[zone]), (windows, tried[zone])):
                begin = time.perf_counter()
                one = Windows(up=np.ascontiguousarray(of.up[:, zone : zone + 1]), starts=of.starts)
                outcome.runs[variant, ALL_ZONES] = run_spotline(mix, table, one)
                outcome.run_s += time.perf_counter() - begin
        say(f"single zones, overhead {variant.overhead_h:g} h, {variant.deadline_h} h: done")
    costs = [outcome.mean_cost_usd() for outcome in chosen_on]
    zone = int(np.argmin(costs))
    return tried[zone], zone


def _learned(
    tested: Sequence[Trace],
    training: Sequence[Trace],
    split: int,
    windows: Windows,
    variants: Sequence[Variant],
) -> PolicyRuns:
    mixes = zone_mixes(training, len(tested))
    whole = Windows(up=windows.up[:split], starts=np.zeros(1, dtype=np.int64))
    market = learn_market(_slots_left(mixes, whole, split)[0])
    left = _slots_left(mixes, windows, LONGEST_DEADLINE_TICKS)
    outcome = PolicyRuns(policy=SPOTLINE)
    for variant in variants:
        begin = time.perf_counter()
        table = solve(task_of(variant), market.chain)
        outcome.table_s += time.perf_counter() - begin
        begin = time.perf_counter()
        outcome.runs[variant, ALL_ZONES] = _run(market, table, left, windows)
        outcome.run_s += time.perf_counter() - begin
    return outcome


def _run(market: ZoneMarket, table: InstanceTable, left: FloatArray, windows: Windows) -> IntArray:
    seen = left[:, : table.task.terms.deadline_ticks]
    best = np.argmax(seen, axis=2).astype(np.int64)
    best[seen.max(axis=2) < 0.0] = -1
    zones = Zones(
        quality=np.searchsorted(market.edges, seen, side="right").astype(np.int64),
        best=best,
        free=free_states(market.edges, seen),
    )
    task = table.task
    runs: IntArray = run_zones(table.values, table.grid_s, task.terms, task.prices, zones, windows)
    return runs


def zone_mixes(training: Sequence[Trace], zones: int) -> list[LawMix]:
    """One mix per tested zone: its own law of training time first, the other zones' beside it.

    The first `zones` of `training` are the tested ones up to the split.
    """
    counts = [count_runs(trace.up) for trace in training]
    common = common_law(counts)
    laws = [own_law(one, common) for one in counts]
    rest = (1.0 - _OWN_LAW_WEIGHT) / max(1, len(laws) - 1)
    return [
        mix_of(laws, [_OWN_LAW_WEIGHT if index == zone else rest for index in range(len(laws))])
        for zone in range(zones)
    ]


def _slots_left(mixes: Sequence[LawMix], windows: Windows, ticks: int) -> FloatArray:
    """Expected further slots per zone after each tick's observation; -1 where it is down.

    Shape (windows, ticks, zones). Only what the window has shown so far is used.
    """
    up, starts = windows
    left = np.full((len(starts), ticks, up.shape[1]), -1.0)
    for zone, mix in enumerate(mixes):
        beliefs = filter_beliefs(windows, zone, ticks, mix.chain, mix.first)
        expected = beliefs @ mix.slots_left().astype(np.float32)
        flags = up[starts[:, np.newaxis] + np.arange(ticks), zone] == 1
        left[:, :, zone] = np.where(flags, expected, -1.0)
    return left


def learn_market(left: FloatArray, classes: int = _CLASSES) -> ZoneMarket:
    """Count how a held zone fares, `left` of shape (ticks, zones), -1 where a zone is down.

    Every zone that is up counts as held, so every tick teaches about several.

    Raises
    ------
    ValueError
        No zone is ever up.
    """
    flags: npt.NDArray[np.bool_] = np.greater_equal(left, 0.0)
    seen = left[flags]
    if not len(seen):
        raise ValueError("expected a zone that is up at some tick of the training time")
    edges = np.unique(np.quantile(seen, np.linspace(0.0, 1.0, classes + 1)[1:-1]))
    classes = len(edges) + 1
    down, ages = 2 * classes, len(_DOWN_AGE_STARTS)
    held = np.searchsorted(edges, left, side="right")
    free = free_states(edges, left[np.newaxis])[0]
    # What a job that loses its zone, or waits, meets in the next tick.
    met = np.where(free < classes, free + classes, free)
    moves = np.zeros((down + ages, down + ages))
    for tick in range(len(left) - 1):
        if free[tick] >= down:
            moves[free[tick], met[tick + 1]] += 1.0
        for zone in np.flatnonzero(flags[tick]):
            after = held[tick + 1, zone] if flags[tick + 1, zone] else met[tick + 1]
            moves[held[tick, zone], after] += 1.0
    matrix = _smoothed(moves, classes)
    row, column = np.nonzero(matrix)
    return ZoneMarket(
        edges=edges,
        chain=MarketChain(
            up=np.repeat(np.array([1, 1, 0], dtype=np.uint8), (classes, classes, ages)),
            lost=np.repeat(np.array([0, 1, 0], dtype=np.uint8), (classes, classes, ages)),
            row_start=np.searchsorted(row, np.arange(len(matrix) + 1)).astype(np.int64),
            column=column.astype(np.int64),
            probability=matrix[row, column].astype(np.float32),
        ),
    )


def free_states(edges: FloatArray, left: FloatArray) -> IntArray:
    """Market state of a job that holds no zone, `left` of shape (windows, ticks, zones).

    The class of the best zone, or where all are down the age of that, as far as the window shows.
    """
    best = left.max(axis=2)
    states: IntArray = np.searchsorted(edges, best, side="right").astype(np.int64)
    down = 2 * (len(edges) + 1)
    age = np.zeros(len(left), dtype=np.int64)
    for tick in range(left.shape[1]):
        dark = best[:, tick] < 0.0
        age = np.where(dark, age + 1, 0)
        bucket = np.searchsorted(np.array(_DOWN_AGE_STARTS), age, side="right") - 1
        states[:, tick] = np.where(dark, down + bucket, states[:, tick])
    return states


def _smoothed(moves: FloatArray, classes: int) -> FloatArray:
    """Transition matrix of counted moves; where little was seen, as everywhere else."""
    down = 2 * classes
    matrix = np.zeros_like(moves)
    lost = moves[:classes, classes:].sum(axis=0) + _SOME
    for of in range(classes):
        # Where a loss leads hardly depends on the class that was lost: shrink to the common way.
        row = moves[of].copy()
        losses = row[classes:].sum()
        common = _COMMON_MOVES * lost / lost.sum()
        row[classes:] = losses * (row[classes:] + common) / (losses + _COMMON_MOVES)
        row[of] += 1.0
        matrix[of] = matrix[classes + of] = row / row.sum()
    back = moves[down:, classes:down].sum(axis=0) + _SOME
    ends = moves[down:, :down].sum(axis=1)
    slots = moves[down:].sum(axis=1)
    end = (ends.sum() + 1.0) / (slots.sum() + 2.0)
    for age, start in enumerate(_DOWN_AGE_STARTS):
        of = down + age
        chance = (ends[age] + _COMMON_MOVES * end) / (slots[age] + _COMMON_MOVES)
        matrix[of, classes:down] = chance * back / back.sum()
        older = 0.0
        if age + 1 < len(_DOWN_AGE_STARTS):
            older = 1.0 / (_DOWN_AGE_STARTS[age + 1] - start)
            matrix[of, of + 1] = (1.0 - chance) * older
        matrix[of, of] = (1.0 - chance) * (1.0 - older)
    return matrix
