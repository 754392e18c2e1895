"""The smallest constant on-demand count that meets the deadline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spotline.domain.jobs.accounting import CAP_S, RATE, Held, Terms, lay_out, terms_at
from spotline.domain.jobs.offer import is_allowed
from spotline.domain.jobs.program import Holding
from spotline.domain.kernels import IntArray, kernel, part
from spotline.domain.policies.interface import Choice, Memory, PolicyView
from spotline.domain.policies.params import Params

KIND = 0


@part
def choose(terms: Terms, memory: IntArray, row: int, by_count: IntArray) -> Held:
    """Hold the count found in the first slot, which is what its row of `memory` keeps."""
    if memory[row, 0] < 0:
        memory[row, 0] = smallest_constant_count(terms, by_count)
    return Held(0, memory[row, 0])


@part
def smallest_constant_count(terms: Terms, by_count: IntArray) -> int:
    """The smallest count that, held from the first slot, meets the deadline; else the largest."""
    available_s = terms.deadline_slots * terms.slot_s - terms.launch_s
    for count in range(1, by_count.shape[1]):
        capped_s = min(available_s, by_count[CAP_S, count])
        if is_allowed(by_count, count) and by_count[RATE, count] * capped_s >= terms.work_quanta:
            return count
    return int(by_count.shape[1] - 1)


@kernel
def _choose(row: IntArray, memory: IntArray, by_count: IntArray) -> Held:
    return choose(terms_at(row), memory, 0, by_count)


@dataclass(frozen=True, slots=True)
class OnDemandOnly:
    """The smallest constant on-demand count that meets the deadline."""

    policy_id: str = "on_demand_only"
    needs_forecast: bool = False
    nets_soft_deadlines: bool = True
    forecast_slots: int = 0
    uses_table: bool = False

    @property
    def params(self) -> Params:
        """Its kind alone."""
        return Params(KIND)

    def choose(self, view: PolicyView, memory: Memory) -> Choice:
        """Hold the count found in the first slot."""
        layout = lay_out(view.program)
        row = np.array((memory or (-1,),), dtype=np.int64)
        _, count = _choose(layout.row, row, layout.by_count)
        # Without compiling, numpy's own integers come back.
        return Choice(holding=Holding(on_demand=int(count)), memory=(int(count),))
