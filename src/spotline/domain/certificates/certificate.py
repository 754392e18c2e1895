"""How much any online policy could earn at most on a market of a known law.

The clairvoyant knows what nobody can know, so his mean is a loose ceiling. Here he pays, at every
step, for what he foresaw of it: `W(next) - E[W(next)]`, W from a value table of the job. Nobody who
does not foresee pays anything on average, so the mean of what he then earns is a ceiling for every
online policy, whatever W; the nearer W is to the true value, the tighter (Brown, Sun and Smith,
Operations Research 2010). With the true value every future gives the same number: the optimum.

The ceiling holds for the job's model: exact integer progress, all splits of all allowed counts,
after the deadline only the largest on-demand count. What would only lower it is left out: budget,
the safety net, launches of on-demand that wait, work lost without notice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spotline.domain.certificates.relaxation import best_penalised, expect, open_life
from spotline.domain.jobs.accounting import CHANGES, kind_s, lay_out
from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.jobs.progress import JobProgress, advance
from spotline.domain.market.law import FloatArray, IntArray, MarketLaw
from spotline.domain.market.long_run import long_run
from spotline.domain.solvers.configurations import Configurations, all_configurations
from spotline.domain.solvers.table_look import cell_of
from spotline.domain.solvers.table_stage import TableArray, level_of
from spotline.domain.solvers.table_terms import TableTerms
from spotline.domain.solvers.value_table import (
    LEAST_CELLS,
    held_sets,
    nearest_sets,
    pending_levels,
)
from spotline.domain.solvers.window import CELL_LIMIT, value_after_deadline
from spotline.domain.units import PPM

# Bound on what foresight is charged by: 96 MB.
MOST_ENTRIES = 24_000_000
# Of a normal distribution, both sides together 5 %.
_Z_95 = 1.959964


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DrawnFutures:
    """What a market may do: run state and price level by slot, shape (futures, slots) each.

    Raises
    ------
    ValueError
        The shapes differ.
    """

    run: IntArray
    price: IntArray

    def __post_init__(self) -> None:
        if self.run.ndim != 2 or self.run.shape != self.price.shape:
            raise ValueError(
                "run and price must have one shape (futures, slots), "
                f"had {self.run.shape} and {self.price.shape}"
            )

    def __len__(self) -> int:
        return int(self.run.shape[0])

    @property
    def slots(self) -> int:
        """How far they reach."""
        return int(self.run.shape[1])


def futures_of(
    law: MarketLaw, uniforms: FloatArray, *, first: tuple[int, int] | None = None
) -> DrawnFutures:
    """Turn numbers drawn from [0, 1) into futures of a law.

    Parameters
    ----------
    uniforms
        Shape (2, futures, slots), for run states and price levels.
    first
        Run state and price level of the first slot; None draws those, too, from where the law is
        after a long time.

    Raises
    ------
    ValueError
        `uniforms` has another shape.
    """
    if uniforms.ndim != 3 or uniforms.shape[0] != 2:
        raise ValueError(f"uniforms must have shape (2, futures, slots), had {uniforms.shape}")
    run, price = (
        _walks(matrix, uniforms[axis], None if first is None else first[axis])
        for axis, matrix in enumerate((law.run_matrix(), law.price_matrix()))
    )
    return DrawnFutures(run=run, price=price)


def _walks(matrix: FloatArray, uniforms: FloatArray, first: int | None) -> IntArray:
    last = matrix.shape[0] - 1
    reached = matrix.cumsum(axis=1)
    states = np.zeros(uniforms.shape, dtype=np.int64)
    if first is None:
        settled = long_run(matrix).cumsum()
        states[:, 0] = np.minimum(np.searchsorted(settled, uniforms[:, 0], side="right"), last)
    else:
        states[:, 0] = first
    for slot in range(1, uniforms.shape[1]):
        passed = uniforms[:, slot, None] >= reached[states[:, slot - 1]]
        states[:, slot] = np.minimum(passed.sum(axis=1), last)
    return states


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Foresight:
    """What foresight is charged by: the worth of every slot of a job's life as it opens.

    Attributes
    ----------
    terms
        The job and its market.
    spot_counts, spot_prices
        Spot to be had by run state; micro-USD per instance-hour by slot and price level, with what
        is charged beyond the price.
    opening
        Micro-USD, shape (slots, run states, price levels, sets, levels pending, cells).
    cell_quanta, pending_s
        Its grid: cell j stands for j + 1 of these of work left.
    sets
        The held sets, and for every (spot, on-demand) the one that stands for it.
    """

    terms: TableTerms
    spot_counts: IntArray
    spot_prices: IntArray
    opening: TableArray
    cell_quanta: int
    pending_s: IntArray
    sets: tuple[Configurations, IntArray]

    @property
    def slots(self) -> int:
        """Slots until the deadline."""
        return int(self.spot_prices.shape[0])

    def charged(self, futures: DrawnFutures, future: int, holdings: Sequence[Holding]) -> float:
        """What a schedule pays on a future for what happened, micro-USD; below 0 it is paid.

        The mean over futures is 0 where nothing held depends on later slots.
        """
        run = futures.run[future]
        return self.paid(run, futures.price[future], self.spot_counts[run], holdings)

    def paid(
        self, run: IntArray, price: IntArray, spot: IntArray, holdings: Sequence[Holding]
    ) -> float:
        """As `charged`, of a market that was met: its states, levels and counts by slot."""
        program = self.terms.program
        state, paid = JobProgress(), 0.0
        expected = np.empty(self.opening.shape[3:])
        chances = self.terms.law.run_matrix(), self.terms.law.price_matrix()
        for t, held in enumerate(holdings[: self.slots - 1]):
            broken = state.holding.spot > spot[t]
            state = advance(program, state, held, held_s=program.slot_s, interrupted=bool(broken))
            left = program.work_quanta - state.progress_quanta
            if left <= 0:
                break
            expect(self.opening[t + 1], chances[0][run[t]], chances[1][price[t]], expected)
            foreseen = self.opening[t + 1, run[t + 1], price[t + 1]] - expected
            row = foreseen[
                self.sets[1][held.spot, held.on_demand],
                level_of(self.pending_s, state.pending_overhead_s),
            ]
            j, part = cell_of(left, self.cell_quanta, 1.0 / self.cell_quanta)
            paid += part * row[j] + (1.0 - part) * row[max(0, j - 1)]
        return float(paid)


def foresight_of(
    terms: TableTerms,
    *,
    surcharge_micro_usd: IntArray | None = None,
    most_entries: int = MOST_ENTRIES,
) -> Foresight:
    """Find what every slot is worth as it opens, by the induction that builds value tables.

    Unlike a table it tells all splits of a count apart where there is room: foresight would live
    off a set that stands for another.

    Parameters
    ----------
    surcharge_micro_usd
        What spot costs beyond its price by slot until the deadline, micro-USD per instance-hour:
        the shadow price of capacity, where jobs share it. None is what the terms say, everywhere.
    most_entries
        Of the answer, 4 bytes each. With fewer the ceiling is less tight, and no less valid.

    Raises
    ------
    ValueError
        A surcharge is below 0, or there are not as many as slots until the deadline.
    """
    program, law = terms.program, terms.law
    slots = max(1, program.deadline_slots)
    surcharge = np.full(slots, terms.spot_surcharge, dtype=np.int64)
    if surcharge_micro_usd is not None:
        surcharge[:] = _checked(np.asarray(surcharge_micro_usd, dtype=np.int64), slots)
    counts = np.maximum(law.run_counts() - terms.taken, 0)
    centres = np.array(law.space.price_centres_ppm, dtype=np.int64)
    prices = np.maximum(centres * terms.on_demand_price // PPM, 1)[None, :] + surcharge[:, None]
    pending = pending_levels(program)
    per_cell = slots * law.space.run_states * law.space.price_states * pending.size
    sets = _sets(terms, int(counts.max()), most_entries // (per_cell * LEAST_CELLS))
    most_cells = max(LEAST_CELLS, most_entries // (per_cell * len(sets[0].holdings)))
    cell = _cell_quanta(program, pending, most_cells)
    layout = lay_out(program)
    opening = open_life(
        layout.row,
        np.array(
            (
                cell,
                -(-program.work_quanta // cell),
                terms.on_demand_price,
                terms.on_demand_available,
            ),
            dtype=np.int64,
        ),
        (sets[0].spot, sets[0].on_demand, sets[0].cover_start, sets[0].covers),
        pending,
        layout.by_count,
        (counts, prices),
        (law.run_matrix(), law.price_matrix()),
        (layout.values, worth_when_late(program, terms.on_demand_price)),
    )
    return Foresight(
        terms=terms,
        spot_counts=counts,
        spot_prices=prices,
        opening=opening,
        cell_quanta=cell,
        pending_s=pending,
        sets=sets,
    )


def _sets(terms: TableTerms, most_spot: int, most: int) -> tuple[Configurations, IntArray]:
    every = all_configurations(terms.program, most_spot=most_spot)
    sets = every if len(every.holdings) <= most else held_sets(terms, most)
    return sets, nearest_sets(sets.spot, sets.on_demand, terms.program.max_instances)


def _cell_quanta(program: JobProgram, pending_s: IntArray, most_cells: int) -> int:
    """What divides every gain, or a small multiple: between cells foresight finds what is not."""
    terms = lay_out(program).terms
    lost_s = [max(kind_s(terms, k), p) for k in range(CHANGES) for p in pending_s.tolist()]
    gained = math.gcd(*(max(0, program.slot_s - lost) for lost in lost_s))
    cell = gained * math.gcd(*(program.rate_quanta_per_s[n] for n in program.allowed_counts))
    cell = cell or program.work_quanta
    return int(cell * -(-program.work_quanta // (cell * most_cells)))


def _checked(surcharge: IntArray, slots: int) -> IntArray:
    if surcharge.shape != (slots,) or (surcharge < 0).any():
        raise ValueError(
            f"surcharge_micro_usd must be >= 0 in each of {slots} slots, "
            f"had shape {surcharge.shape} and least {surcharge.min(initial=0)}"
        )
    return surcharge


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Certificate:
    """What nobody exceeds, from a sample of futures, micro-USD.

    Attributes
    ----------
    penalised, clairvoyant
        The best schedule's value less cost on every future, foresight paid for and free, shape
        (futures,). Nothing that was drawn online earns more than the mean of the first.
    exact
        No gain was rounded up; otherwise the ceiling is higher than it need be.
    """

    penalised: FloatArray
    clairvoyant: FloatArray
    exact: bool

    @property
    def ceiling_micro_usd(self) -> float:
        """Estimate of the ceiling."""
        return float(self.penalised.mean())

    @property
    def clairvoyant_micro_usd(self) -> float:
        """Estimate of the clairvoyant's mean."""
        return float(self.clairvoyant.mean())

    @property
    def interval_micro_usd(self) -> tuple[float, float]:
        """Where the ceiling lies with 95 %; its upper end is what may be relied on."""
        return interval_95(self.penalised)


def interval_95(values: FloatArray) -> tuple[float, float]:
    """Where the mean of independent values lies with 95 %; one value tells nothing."""
    if values.size < 2:
        return -np.inf, np.inf
    half = _Z_95 * float(values.std(ddof=1)) / float(np.sqrt(values.size))
    return float(values.mean()) - half, float(values.mean()) + half


def certify(foresight: Foresight, futures: DrawnFutures) -> Certificate:
    """Bound what a job can earn from its first slot on, idle, on a market of its table's law.

    Raises
    ------
    ValueError
        The futures end before the deadline, or there is none.
    """
    if futures.slots < foresight.slots or not len(futures):
        raise ValueError(
            f"futures must be >= 1 and reach {foresight.slots} slots, "
            f"were {len(futures)} of {futures.slots}"
        )
    penalised, exact = _solved(foresight, futures, charged=True)
    clairvoyant, _ = _solved(foresight, futures, charged=False)
    return Certificate(penalised=penalised, clairvoyant=clairvoyant, exact=bool(exact))


def _solved(
    foresight: Foresight, futures: DrawnFutures, *, charged: bool
) -> tuple[FloatArray, bool]:
    terms, program = foresight.terms, foresight.terms.program
    layout = lay_out(program)
    sets = all_configurations(program, most_spot=int(foresight.spot_counts.max()))
    return best_penalised(
        (
            layout.row,
            layout.by_count,
            layout.values,
            worth_when_late(program, terms.on_demand_price),
        ),
        (sets.spot, sets.on_demand, sets.cover_start, sets.covers),
        (foresight.opening, foresight.sets[1], foresight.pending_s, foresight.cell_quanta),
        (
            foresight.spot_counts,
            foresight.spot_prices,
            np.full(foresight.slots, terms.on_demand_price, dtype=np.int64),
            np.full(foresight.slots, terms.on_demand_available, dtype=np.int64),
        ),
        (terms.law.run_matrix(), terms.law.price_matrix()),
        np.stack((futures.run, futures.price)),
        (CELL_LIMIT, int(charged)),
    )


def worth_when_late(program: JobProgram, on_demand_price: int) -> IntArray:
    """Worth at the deadline by slots of on-demand work left; a hard one leaves nothing."""
    if program.hard:
        return np.zeros(1, dtype=np.int64)
    return value_after_deadline(program, on_demand_price_micro_usd=on_demand_price)
