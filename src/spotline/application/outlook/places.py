"""Where a job can run in its futures: what a decision reads of every offering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spotline.application.outlook.futures import FloatArray, IntArray, MarketFutures
from spotline.application.selector.job_table import JobTable
from spotline.application.selector.state import SelectorState
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.limits.freezes import Purchase
from spotline.domain.market.forecast import CountProbability, ForecastStep, OfferingForecast
from spotline.domain.market.law import MarketLaw, run_states
from spotline.domain.market.offering import CapacityType, Count, Offering, Provenance, Quote
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.units import NS_PER_S, PPM

# Steps that forecast-driven policies may look ahead (the largest omega of the pool).
_WINDOW = 5


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of an offering in a slot: instances."""

    spot: int
    on_demand: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FuturePlace:
    """One offering in every future, as one job meets it.

    `spot` and `on_demand` are what other jobs leave, shape (futures, slots). `run_state`, of that
    shape, is where the market is in the law of `table`; None without one.
    """

    offering: Offering
    program: JobProgram
    spot: IntArray
    on_demand: IntArray
    spot_price: IntArray
    on_demand_price: int
    spot_known: bool
    lead_s: int | None
    reserve_slots: int
    rescue_instances: int
    table: JobTable | None
    run_state: IntArray | None
    outlooks: Mapping[int, tuple[tuple[CountProbability, ...], ...]]
    law_state: IntArray | None

    def quote(self, future: int, slot: int, ts_ns: int, left: Left) -> SlotQuote:
        """What is quoted in a slot of a future to a job that finds so much left."""
        known = Provenance.INFERRED if self.spot_known else Provenance.UNKNOWN
        return SlotQuote(
            quote=Quote(
                offering_id=self.offering.offering_id,
                ts_event_ns=ts_ns,
                spot_price_micro_usd=int(self.spot_price[future, slot]),
                on_demand_price_micro_usd=self.on_demand_price,
                spot_available=Count(
                    instances=left.spot if self.spot_known else 0,
                    provenance=known,
                ),
                on_demand_available=Count(instances=left.on_demand, provenance=Provenance.INFERRED),
            ),
            age_s=0,
        )

    def forecast(self, future: int, slot: int) -> OfferingForecast | None:
        """What its law says from a slot of a future on; the price is taken to stay."""
        if self.law_state is None:
            return None
        price = int(self.spot_price[future, slot])
        return OfferingForecast(
            offering_id=self.offering.offering_id,
            steps=tuple(
                ForecastStep(spot_price_micro_usd=price, counts=counts)
                for counts in self.outlooks[int(self.law_state[future, slot])]
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What other jobs hold of an offering: instances in every slot of the futures, shape (slots,)."""

    spot: IntArray
    on_demand: IntArray


def future_places(
    state: SelectorState,
    job: Job,
    programs: Mapping[str, JobProgram],
    market: MarketFutures,
    tables: Mapping[str, JobTable],
    taken: Mapping[str, Taken],
) -> dict[str, FuturePlace]:
    """Every offering that the job can run on, by id; `state` is of the slot before the futures."""
    found = {}
    for offering_id, program in programs.items():
        of = market.offerings[offering_id]
        offering = state.offerings[offering_id]
        spot, on_demand = of.spot, of.on_demand
        if offering_id in taken:
            spot = np.maximum(0, spot - taken[offering_id].spot[None, :])
            on_demand = np.maximum(0, on_demand - taken[offering_id].on_demand[None, :])
        if offering.reservation is not None:
            on_demand = _until_it_ends(state, offering, on_demand)
        frozen = _frozen(state, job, offering)
        held = _held(state, job, offering_id)
        if CapacityType.SPOT in frozen:
            spot = np.minimum(spot, held.spot)
        if CapacityType.ON_DEMAND in frozen:
            on_demand = np.minimum(on_demand, held.on_demand)
        past = state.counts.get(offering_id, [])
        table = tables.get(offering_id)
        named = state.laws.get(offering_id)
        law_state = None if named is None or not of.spot_known else _states(named.law, past, spot)
        run_state = None
        if table is not None:
            same = named is not None and named.law_id == table.named.law_id
            run_state = law_state if same else _states(table.named.law, past, spot)
        reserve_slots, rescue = state.stock_ahead(job.allowed_counts, offering_id)
        found[offering_id] = FuturePlace(
            offering=offering,
            program=program,
            spot=spot,
            on_demand=on_demand,
            spot_price=of.spot_price,
            on_demand_price=of.on_demand_price,
            # What may not be bought is not there, however little is known of the market.
            spot_known=of.spot_known or CapacityType.SPOT in frozen,
            lead_s=state.lead_s(job, offering_id),
            reserve_slots=reserve_slots,
            rescue_instances=rescue,
            table=table,
            run_state=run_state,
            outlooks={} if named is None else _outlooks(named.law),
            law_state=law_state,
        )
    return found


def _frozen(state: SelectorState, job: Job, offering: Offering) -> set[CapacityType]:
    """What the job cannot buy there until somebody ends a stop; when, nobody knows.

    A mere doubt about the market is taken to be over with the next slot.
    """
    if not state.freezes.by_id:
        return set()
    frozen = set()
    for kind in CapacityType:
        freeze = state.freezes.blocking(
            Purchase(
                job_id=job.job_id,
                tenant=job.tenant,
                offering_id=offering.offering_id,
                account=offering.account_key,
                capacity_type=kind,
            )
        )
        if freeze is not None and not freeze.yields_to_deadlines:
            frozen.add(kind)
    return frozen


def _held(state: SelectorState, job: Job, offering_id: str) -> Holding:
    """What the job holds there: that stays."""
    run = state.runs.get(job.job_id)
    if run is None or run.offering_id != offering_id:
        return Holding()
    return run.state.holding


def _until_it_ends(state: SelectorState, offering: Offering, on_demand: IntArray) -> IntArray:
    """What may be held of a reservation: nothing from its end on."""
    opened = state.current
    reservation = offering.reservation
    if reservation is None:
        return on_demand
    next_ns = opened.ts_event_ns + opened.slot_s * NS_PER_S
    covered = reservation.whole_slots(next_ns, opened.slot_s)
    left = on_demand.copy()
    if covered is not None:
        left[:, covered:] = 0
    return left


def _states(law: MarketLaw, past: Sequence[int], spot: IntArray) -> IntArray:
    """The run state of every slot of every future, which goes on from the past."""
    begun = np.asarray(past, dtype=np.int64)
    rows = [run_states(law.space, np.concatenate((begun, row)))[begun.size :] for row in spot]
    return np.stack(rows)


def _outlooks(law: MarketLaw) -> dict[int, tuple[tuple[CountProbability, ...], ...]]:
    """By run state: the law's own distribution of the count 1, 2, ... slots later."""
    matrix = law.run_matrix()
    levels = len(law.space.level_starts)
    power = np.eye(matrix.shape[0])
    steps: list[list[tuple[CountProbability, ...]]] = [[] for _ in range(matrix.shape[0])]
    for _ in range(_WINDOW):
        power = power @ matrix
        by_level = power.reshape(matrix.shape[0], levels, -1).sum(axis=2)
        for row, probability in enumerate(by_level):
            steps[row].append(_probabilities(law, probability))
    return {row: tuple(ahead) for row, ahead in enumerate(steps)}


def _probabilities(law: MarketLaw, probability: FloatArray) -> tuple[CountProbability, ...]:
    ppm = np.floor(probability * PPM).astype(np.int64)
    ppm[int(ppm.argmax())] += PPM - int(ppm.sum())
    by_count: dict[int, int] = {}
    for count, share in zip(law.level_counts, ppm.tolist(), strict=True):
        by_count[count] = by_count.get(count, 0) + share
    return tuple(
        CountProbability(instances=count, probability_ppm=share)
        for count, share in sorted(by_count.items())
        if share
    )
