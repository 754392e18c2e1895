"""Hard deadlines on real stock-outs of on-demand: what the reserve of the safety net saves.

Whether H100 and H200 could be launched is recorded (DigitalOcean, 2026); spot is generated, as none
was recorded there. The reserve is learned on the first half of each recording, jobs run on the
second; where nobody publishes stock, it is believed by the priors in the wheel.
"""

from __future__ import annotations

import csv
import gzip
import os
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from spotline.domain.beliefs.stock_beliefs import StockBelief
from spotline.domain.beliefs.stock_laws import shipped_stock
from spotline.domain.jobs.program import JobProgram
from spotline.domain.jobs.progress import JobProgress
from spotline.domain.market.generate import generate
from spotline.domain.market.stock import reserve_slots, stock_terms
from spotline.domain.policies.decision import after_slot, decide_slot, on_demand_to_hold
from spotline.domain.policies.interface import START, Policy, PolicyView
from spotline.domain.policies.prediction import UNCOUNTED
from spotline.domain.policies.registry import policy_named
from spotline.domain.policies.replay import SlotRecord, clairvoyant_optimum, replay_policy

SLOT_S = 1800
MOST = 8
JOBS = 24
POLICIES = ("msu", "uniform_progress")
DATA = Path(
    os.environ.get("SPOTLINE_DATA", Path(__file__).resolve().parents[3] / "shared" / "data")
)
FILE = DATA / "on-demand-launchability-digitalocean" / "do_gpu_launchable_2026-04_2026-08.csv.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """On-demand stock of one offering by slot, and what its first half teaches."""

    name: str
    instances: npt.NDArray[np.int64]
    reserve: int
    longest_seen: int

    @property
    def half(self) -> int:
        return self.instances.size // 2


def recorded_stocks() -> list[Stock]:
    if not FILE.is_file():
        pytest.skip(f"no recording at {FILE} (set SPOTLINE_DATA)")
    probes: dict[str, list[tuple[float, int]]] = defaultdict(list)
    with gzip.open(FILE, "rt", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if row["sku"].startswith(("H100", "H200")):
                probed = datetime.fromisoformat(row["timestamp"]).timestamp()
                probes[f"{row['region']} {row['sku']}"].append((probed, int(row["launchable"])))
    stocks = []
    for name in sorted(probes):
        at = np.array([one for one, _ in probes[name]])
        launchable = np.array([one for _, one in probes[name]], dtype=np.int64)
        grid = np.arange(at[0], at[-1], SLOT_S)
        # A probe holds until the next.
        instances = MOST * launchable[np.searchsorted(at, grid, side="right") - 1]
        seen = instances[: instances.size // 2].tolist()
        if 0 < sum(seen) < MOST * len(seen):
            marks = "".join("x" if one < MOST else " " for one in seen)
            stocks.append(
                Stock(
                    name=name,
                    instances=instances,
                    reserve=reserve_slots(seen, MOST),
                    longest_seen=max(map(len, marks.split())),
                )
            )
    return stocks


def hard_program(*, work_slots: int, deadline: int) -> JobProgram:
    return JobProgram(
        slot_s=SLOT_S,
        work_quanta=MOST * SLOT_S * work_slots,
        rate_quanta_per_s=tuple(range(MOST + 1)),
        allowed_counts=(4, MOST),
        launch_s=180,
        grow_s=180,
        shrink_s=90,
        interrupted_s=270,
        deadline_slots=deadline,
        end_slots=deadline,
        hard=True,
        value_micro_usd=(1_000_000_000,) * (deadline + 1),
    )


def records_of(stock: Stock, first: int, slots: int, *, seed: int) -> list[SlotRecord]:
    market = generate("cloud-gang", seed=seed, slots=slots, slot_s=SLOT_S, start_ns=0)
    return [
        SlotRecord(
            spot_price=int(market.spot_price_micro_usd[slot, 0]),
            on_demand_price=int(market.on_demand_price_micro_usd[slot, 0]),
            spot_available=int(market.spot_available[slot, 0]),
            on_demand_available=int(stock.instances[first + slot]),
            forecast=None,
            reserve_slots=stock.reserve,
        )
        for slot in range(slots)
    ]


def is_on_time(
    program: JobProgram, records: list[SlotRecord], policy: Policy, *, reserve: bool
) -> bool:
    """Run a job in a world where stock-outs hit launches; the net is told of them or not."""
    state, memory = JobProgress(), START
    for slot, record in enumerate(records):
        view = PolicyView(
            program=program,
            elapsed_slots=slot,
            state=state,
            interrupted=state.holding.spot > record.spot_available,
            spot_price=record.spot_price,
            on_demand_price=record.on_demand_price,
            spot_available=record.spot_available,
            on_demand_available=on_demand_to_hold(
                record.on_demand_available, state.holding, reserve_slots=1
            ),
            forecast=None,
            slot_left_s=SLOT_S,
            reserve_slots=record.reserve_slots if reserve else 0,
        )
        decision = decide_slot(policy, view, memory)
        state, memory = after_slot(view, decision.holding), decision.memory
        if state.progress_quanta >= program.work_quanta:
            return True
    return False


def outage_at(stock: Stock, first: int, slots: int) -> int:
    """The longest outage that any of these slots lies in."""
    marks = "".join("x" if one < MOST else " " for one in stock.instances.tolist())
    longest, at = 0, 0
    for run in marks.split(" "):
        if run and at < first + slots and at + len(run) > first:
            longest = max(longest, len(run))
        at += len(run) + 1
    return longest


@pytest.mark.parametrize(("work_slots", "deadline"), [(12, 60), (24, 60), (24, 40)])
def test_with_a_reserve_fewer_hard_deadlines_are_missed(work_slots: int, deadline: int) -> None:
    program = hard_program(work_slots=work_slots, deadline=deadline)
    missed = {True: 0, False: 0}
    for stock in recorded_stocks():
        firsts = np.linspace(stock.half, stock.instances.size - deadline, JOBS).astype(int)
        for job, first in enumerate(firsts.tolist()):
            records = records_of(stock, first, deadline, seed=job)
            possible: bool | None = None
            for policy_id in POLICIES:
                policy = policy_named(policy_id)
                for reserve in (True, False):
                    if is_on_time(program, records, policy, reserve=reserve):
                        continue
                    missed[reserve] += 1
                    if not reserve:
                        continue
                    if possible is None:
                        possible = clairvoyant_optimum(program, records).result.on_time
                    longest = outage_at(stock, first, deadline)
                    assert not possible or longest > stock.longest_seen, (stock.name, first)

    assert missed[True] <= missed[False]


def is_on_time_unseen(
    program: JobProgram, records: list[SlotRecord], policy: Policy, belief: StockBelief | None
) -> bool:
    """The same where stock shows itself only in launches; without a belief only refusals count."""
    state, memory = JobProgress(), START
    seen: list[int] = []
    for slot, record in enumerate(records):
        if belief is not None and slot:
            belief.pass_slots(1)
        seen.append(UNCOUNTED)
        for on_demand in (UNCOUNTED, state.holding.on_demand):
            reserve, _ = stock_terms(seen, program.allowed_counts)
            view = PolicyView(
                program=program,
                elapsed_slots=slot,
                state=state,
                interrupted=state.holding.spot > record.spot_available,
                spot_price=record.spot_price,
                on_demand_price=record.on_demand_price,
                spot_available=record.spot_available,
                on_demand_available=on_demand,
                forecast=None,
                slot_left_s=SLOT_S,
                reserve_slots=max(reserve, 0 if belief is None else belief.reserve_slots()),
            )
            decision = decide_slot(policy, view, memory)
            if decision.holding.on_demand <= state.holding.on_demand:
                break
            granted = decision.holding.on_demand <= record.on_demand_available
            if belief is not None:
                belief.shown_out = not granted
            if granted:
                break
            seen[-1] = 0
        state, memory = after_slot(view, decision.holding), decision.memory
        if state.progress_quanta >= program.work_quanta:
            return True
    return False


@pytest.mark.slow
def test_with_priors_of_stock_fewer_hard_deadlines_are_missed_where_nobody_publishes_it() -> None:
    program, policy, priors = (
        hard_program(work_slots=24, deadline=60),
        policy_named("msu"),
        shipped_stock(),
    )
    missed = {True: 0, False: 0}
    for stock in recorded_stocks():
        firsts = np.linspace(stock.half, stock.instances.size - 60, 12).astype(int)
        for job, first in enumerate(firsts.tolist()):
            records = records_of(stock, first, 60, seed=job)
            before = StockBelief.before(priors, priors.family_of("h100"), SLOT_S)
            missed[True] += not is_on_time_unseen(program, records, policy, before)
            missed[False] += not is_on_time_unseen(program, records, policy, None)

    assert missed[True] < missed[False]


def test_a_replay_keeps_what_is_held_as_the_cloud_does() -> None:
    program = hard_program(work_slots=12, deadline=60)
    stock = recorded_stocks()[0]
    for job in range(6):
        records = records_of(stock, stock.half + 300 * job, 60, seed=job)
        for policy_id in POLICIES:
            policy = policy_named(policy_id)
            told = [replace(one, reserve_slots=max(1, one.reserve_slots)) for one in records]

            result = replay_policy(program, told, policy, policy)

            assert result.on_time == is_on_time(program, told, policy, reserve=True)
