"""What was to be had on the very market that a job met, by whoever knew its law and not its future.

The clairvoyant of that market pays for what he foresaw, as on drawn futures (see `certificate`), at
the prices and counts that were really there. On one market that may be more or less than somebody
earned who was lucky; in the mean over jobs nobody who does not foresee earns more, as far as markets
follow the law.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spotline.domain.certificates.certificate import Foresight, worth_when_late
from spotline.domain.certificates.relaxation import best_penalised
from spotline.domain.jobs.accounting import lay_out
from spotline.domain.jobs.program import Holding
from spotline.domain.kernels import FloatArray
from spotline.domain.market.law import IntArray, run_states
from spotline.domain.policies.replay import SlotRecord
from spotline.domain.solvers.configurations import all_configurations
from spotline.domain.solvers.window import CELL_LIMIT
from spotline.domain.units import PPM


@dataclass(frozen=True, slots=True, kw_only=True)
class MetBound:
    """The most value less cost on a market that was met, micro-USD.

    `ceiling_micro_usd` is left of `clairvoyant_micro_usd` when foresight is paid for.
    `luck_micro_usd` is what the job's own schedule would have paid: what happened was better for it
    than what was to be expected. What it earned without luck is no more than the ceiling. Not
    `exact`: gains were rounded up, so that both bounds are higher than they need be.
    """

    ceiling_micro_usd: float
    clairvoyant_micro_usd: float
    luck_micro_usd: float
    exact: bool

    def missing_micro_usd(self, utility_micro_usd: int) -> int:
        """How far from the ceiling a job was that earned so much, its luck left out."""
        return round(self.ceiling_micro_usd - (utility_micro_usd - self.luck_micro_usd))


def bound_on_met(
    foresight: Foresight, records: Sequence[SlotRecord], holdings: Sequence[Holding] = ()
) -> MetBound:
    """Bound what a job could have earned on what it was offered, slot by slot from its first.

    Parameters
    ----------
    holdings
        What the job itself held in each slot.

    Raises
    ------
    ValueError
        The records end before the deadline.
    """
    terms, program = foresight.terms, foresight.terms.program
    slots = foresight.slots
    if len(records) < slots:
        raise ValueError(f"records must reach {slots} slots, were {len(records)}")
    met = records[:slots]
    # More than the job can hold is no more to it.
    spot = np.minimum([record.spot_available for record in met], program.max_instances)
    states = run_states(terms.law.space, [record.spot_available for record in met])
    levels = [
        terms.law.space.price_of(record.spot_price * PPM // max(1, record.on_demand_price))
        for record in met
    ]
    # The kernel reads counts by state: every count that was met in a state is a state of its own,
    # which nothing leads to and from which the market goes on as from that state.
    found = sorted(set(zip(states.tolist(), spot.tolist(), strict=True)))
    place = {pair: terms.law.space.run_states + at for at, pair in enumerate(found)}
    like = [state for state, _ in found]
    counts = np.concatenate([foresight.spot_counts, _ints([count for _, count in found])])
    chances = _chances(terms.law.run_matrix(), like)
    opening = np.concatenate([foresight.opening, foresight.opening[:, like]], axis=1)
    price_states = terms.law.space.price_states
    prices = np.repeat(_ints([record.spot_price for record in met])[:, None], price_states, axis=1)
    futures = np.stack(
        [
            _ints([[place[state, count] for state, count in zip(states, spot, strict=True)]]),
            _ints([levels]),
        ]
    )
    layout = lay_out(program)
    sets = all_configurations(program, most_spot=int(counts.max()))
    ends = []
    exact = True
    for charged in (1, 0):
        best, exact = best_penalised(
            (
                layout.row,
                layout.by_count,
                layout.values,
                worth_when_late(program, terms.on_demand_price),
            ),
            (sets.spot, sets.on_demand, sets.cover_start, sets.covers),
            (opening, foresight.sets[1], foresight.pending_s, foresight.cell_quanta),
            (
                counts,
                np.ascontiguousarray(prices),
                _ints([record.on_demand_price for record in met]),
                _ints([record.on_demand_available for record in met]),
            ),
            (chances, terms.law.price_matrix()),
            futures,
            (CELL_LIMIT, charged),
        )
        ends.append(float(best[0]))
    offered = _ints([record.spot_available for record in met])
    return MetBound(
        ceiling_micro_usd=ends[0],
        clairvoyant_micro_usd=ends[1],
        luck_micro_usd=foresight.paid(states, _ints(levels), offered, holdings),
        exact=bool(exact),
    )


def _chances(run: FloatArray, like: Sequence[int]) -> FloatArray:
    """Where each state leads, and each that was met, which goes on as the state that it is like."""
    chances = np.zeros((run.shape[0] + len(like),) * 2)
    chances[:, : run.shape[0]] = np.concatenate([run, run[like]])
    return chances


def _ints(values: Sequence[object]) -> IntArray:
    return np.ascontiguousarray(np.array(values, dtype=np.int64))
