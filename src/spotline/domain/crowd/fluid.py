"""What spot is worth to a crowd in slots to come: the duals of a fluid program of its work.

Jobs become a fluid: work of like jobs flows into the slots before it is due, through spot or on demand, the
cheapest way for all together. Where the spot of a slot is used up, one instance more would spare what its work
costs elsewhere, less its price. A fluid of mean counts prices too little, for spot is scarce when it is
short and not in the mean; so futures of counts and arrivals are drawn, each is solved, and
their worths are averaged: the randomised linear program (Talluri and van Ryzin, Transportation Science
33(2), 1999). As a flow of least cost its numbers are whole, and the same on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

# Work that is left when it is due costs so many times what on-demand costs at most: it is never left
# where there is a way.
_LEFT_OVER = 3
# Micro-USD that a unit costs at most, and units of work in all: costs then stay far from overflow.
MOST_PRICE_MICRO_USD = 10**12
MOST_WORK = 10**15
# Far beyond all that a way can cost.
_NO_WAY = 1 << 50


class FluidWork(NamedTuple):
    """Work that may flow from slot `begins` on, before slot `due`, through the offerings `where`.

    No more than `most` of its `amount` flow in a slot, both in the units of the supply.
    """

    begins: int
    due: int
    most: int
    amount: int
    where: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Supply:
    """What there is in one future.

    `spot` is in units of work, shape (slots, offerings), `on_demand` the same in every slot, shape
    (offerings,). Prices are micro-USD per unit, both shape (offerings,).
    """

    offering_ids: tuple[str, ...]
    spot: IntArray
    on_demand: IntArray
    spot_price: IntArray
    on_demand_price: IntArray


def marginal_worths(work: Sequence[FluidWork], supply: Supply) -> IntArray:
    """What one unit more of spot is worth beyond its price in each slot, micro-USD; shape of `supply.spot`.

    Raises
    ------
    ValueError
        Work flows in slots or through offerings that the supply does not have; prices are beyond
        `MOST_PRICE_MICRO_USD`, or all work beyond `MOST_WORK`.
    """
    dearest = max(int(supply.spot_price.max()), int(supply.on_demand_price.max()))
    if dearest > MOST_PRICE_MICRO_USD:
        raise ValueError(f"prices must be <= {MOST_PRICE_MICRO_USD}, was {dearest}")
    all_work = sum(each.amount for each in work)
    if all_work > MOST_WORK:
        raise ValueError(f"amounts must sum to <= {MOST_WORK}, was {all_work}")
    slots, offerings = supply.spot.shape
    for each in work:
        if not 0 <= each.begins < each.due <= slots:
            raise ValueError(
                f"begins and due must ascend in 0..{slots}, were {each.begins} and {each.due}"
            )
        if not each.where or not set(each.where) <= set(supply.offering_ids):
            raise ValueError(f"where must name offerings of the supply, was {each.where}")
    kinds = _alike(work)
    if not kinds:
        return np.zeros_like(supply.spot)
    network = _Network.of(kinds, supply)
    ways = network.cheapest_ways(network.flows())
    # A unit more of spot takes one from where it flows now: a way back that spares what that costs.
    spared = np.where(ways < _NO_WAY // 2, -ways, 0).reshape(slots, offerings)
    worths: IntArray = np.maximum(0, spared - supply.spot_price[None, :])
    return worths


def _alike(work: Sequence[FluidWork]) -> list[FluidWork]:
    """Work that is due and begins together, through the same offerings, as one."""
    sums: dict[tuple[int, int, tuple[str, ...]], tuple[int, int]] = {}
    for each in work:
        if each.amount > 0:
            key = each.begins, each.due, each.where
            most, amount = sums.get(key, (0, 0))
            sums[key] = most + each.most, amount + each.amount
    return [
        FluidWork(begins, due, most, amount, where)
        for (begins, due, where), (most, amount) in sorted(sums.items())
    ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Network:
    """Arcs from kinds of work to slots of places, on to offerings in slots, and out: all shape (arcs,).

    Nodes are numbered in that order; the sink is the last. `first_of_slots` is the node of the first
    offering in the first slot.
    """

    tail: IntArray
    head: IntArray
    most: IntArray
    cost: IntArray
    supplies: IntArray
    first_of_slots: int

    @classmethod
    def of(cls, kinds: Sequence[FluidWork], supply: Supply) -> _Network:
        slots, offerings = supply.spot.shape
        places = sorted({kind.where for kind in kinds})
        row_of = {where: row for row, where in enumerate(places)}
        column_of = {name: column for column, name in enumerate(supply.offering_ids)}
        first_place = len(kinds)
        first_of_slots = first_place + len(places) * slots
        sink = first_of_slots + slots * offerings
        amounts = np.array([kind.amount for kind in kinds], dtype=np.int64)
        all_work = int(amounts.sum())
        dearest = int(max(supply.on_demand_price.max(), supply.spot_price.max(), 1))
        arcs: list[tuple[IntArray, IntArray, IntArray, IntArray]] = []

        def add(tail: IntArray, head: IntArray, most: IntArray, cost: IntArray) -> None:
            arcs.append((tail, head, most, cost))

        # What is not done when it is due.
        number = np.arange(len(kinds))
        add(number, np.full_like(number, sink), amounts, np.full_like(number, _LEFT_OVER * dearest))
        # From work to the slots in which it may be done.
        lasting = np.array([kind.due - kind.begins for kind in kinds])
        tail = np.repeat(number, lasting)
        slot = np.concatenate([np.arange(kind.begins, kind.due) for kind in kinds])
        row = np.repeat([row_of[kind.where] for kind in kinds], lasting)
        most = np.repeat([kind.most for kind in kinds], lasting)
        add(tail, first_place + row * slots + slot, most, np.zeros_like(tail))
        # On to the offerings of each kind of places.
        for at, where in enumerate(places):
            tail = np.repeat(first_place + at * slots + np.arange(slots), len(where))
            head = first_of_slots + np.add.outer(
                np.arange(slots) * offerings, np.array([column_of[name] for name in where])
            ).reshape(-1)
            add(tail, head, np.full_like(tail, all_work), np.zeros_like(tail))
        # And out of them, on spot or on demand.
        node = first_of_slots + np.arange(slots * offerings)
        out = np.full_like(node, sink)
        add(node, out, supply.spot.reshape(-1), np.tile(supply.spot_price, slots))
        plenty = np.minimum(supply.on_demand, all_work)
        add(node, out, np.tile(plenty, slots), np.tile(supply.on_demand_price, slots))
        supplies = np.zeros(sink + 1, dtype=np.int64)
        supplies[: len(kinds)] = amounts
        supplies[sink] = -all_work
        joined = [np.concatenate(column).astype(np.int64) for column in zip(*arcs, strict=True)]
        return cls(
            tail=joined[0],
            head=joined[1],
            most=joined[2],
            cost=joined[3],
            supplies=supplies,
            first_of_slots=first_of_slots,
        )

    def flows(self) -> IntArray:
        """What flows through each arc at least cost, shape (arcs,)."""
        # OR-Tools takes long to import, and many processes never price anything.
        from ortools.graph.python import min_cost_flow

        solver = min_cost_flow.SimpleMinCostFlow()
        arcs = solver.add_arcs_with_capacity_and_unit_cost(
            self.tail, self.head, self.most, self.cost
        )
        solver.set_nodes_supplies(np.arange(len(self.supplies)), self.supplies)
        status = solver.solve()
        if status != solver.OPTIMAL:
            raise ValueError(f"work must have a way out, found none: {status}")
        return np.asarray(solver.flows(arcs), dtype=np.int64)

    def cheapest_ways(self, flows: IntArray) -> IntArray:
        """What a unit costs from the sink back to each offering in each slot, shape (slots * offerings,).

        Bellman and Ford's on what is left of the arcs: flows of least cost leave no circle that spares.
        """
        onward, back = flows < self.most, flows > 0
        tail = np.concatenate([self.tail[onward], self.head[back]])
        head = np.concatenate([self.head[onward], self.tail[back]])
        cost = np.concatenate([self.cost[onward], -self.cost[back]])
        sink = len(self.supplies) - 1
        ways = np.full(sink + 1, _NO_WAY, dtype=np.int64)
        ways[sink] = 0
        for _ in range(sink + 1):
            shorter = ways.copy()
            np.minimum.at(shorter, head, ways[tail] + cost)
            if np.array_equal(shorter, ways):
                break
            ways = shorter
        return ways[self.first_of_slots : sink]
