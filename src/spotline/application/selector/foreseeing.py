"""What the selector knows that tells what spot will be worth to its crowd."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from spotline.application.selector.job_run import JobRun
from spotline.application.selector.state import SelectorState
from spotline.domain.crowd.arrivals import Arrivals
from spotline.domain.crowd.crowd_ahead import UNITS, CrowdAhead, OfferingNow
from spotline.domain.crowd.fluid import FluidWork
from spotline.domain.jobs.job import Job, Throughput
from spotline.domain.market.law import FloatArray

# A job's work is taken for no more than so many units: beyond all that it could do before it is due.
_MOST_WORK = 10**9


def crowd_ahead(state: SelectorState, arrivals: Arrivals) -> CrowdAhead | None:
    """What futures of the slots to come are made of; None where no offering has a count.

    Where one job runs alone, only those that may come are counted, like the `arrivals` of
    late: what it needs itself its value table knows.
    """
    speeds = _Speeds.of(state)
    offerings = _offerings_now(state, speeds)
    if not offerings:
        return None
    running = [run for run in state.running() if run.first_slot >= 0]
    left = [found for run in running if (found := _work_left(state, run, speeds)) is not None]
    if len(running) < 2:
        left = []
    return CrowdAhead(
        slot=state.slot,
        slot_s=state.current.slot_s,
        offerings=offerings,
        works=tuple(left),
        arrivals=arrivals.copied(),
    )


def note_arrival(state: SelectorState, run: JobRun) -> None:
    """Take a job that was admitted in this slot, where prices count on those to come."""
    if state.arrivals is None:
        return
    work = _work_left(state, run, _Speeds.of(state))
    if work is not None:
        state.arrivals.note(state.slot, work)


@dataclass(slots=True, kw_only=True)
class _Speeds:
    """How fast jobs are where they can run, each as a share of the most that its largest count does.

    `market` is the instance type of each offering, by id.
    """

    market: Mapping[str, str]
    _found: dict[tuple[tuple[str, ...], tuple[Throughput, ...], int], Mapping[str, float]] = field(
        default_factory=dict
    )

    @classmethod
    def of(cls, state: SelectorState) -> _Speeds:
        """On the offerings of a market."""
        return cls(
            market={name: offering.instance_type for name, offering in state.offerings.items()}
        )

    def shares(self, job: Job) -> Mapping[str, float]:
        """The job's shares, by offering; jobs of like rates have the same."""
        key = job.offerings, job.throughputs, job.max_instances
        found = self._found.get(key)
        if found is None:
            rates = {}
            for name, instance_type in self.market.items():
                throughput = job.throughput_on(name, instance_type)
                if throughput is not None:
                    rates[name] = throughput.rate_per_hour(job.max_instances)
            most = max(rates.values(), default=0.0)
            found = {name: rate / most for name, rate in rates.items() if rate > 0}
            self._found[key] = found
        return found

    def means(self, jobs: Sequence[Job], offering_ids: Sequence[str]) -> FloatArray:
        """The mean share of jobs at each offering, shape (offerings,); 1 where none can run.

        Jobs that differ in where they are fast are taken for one kind of work.
        """
        total, known = np.zeros(len(offering_ids)), np.zeros(len(offering_ids))
        for job in jobs:
            shares = self.shares(job)
            for at, name in enumerate(offering_ids):
                if name in shares:
                    total[at] += shares[name]
                    known[at] += 1
        mean: FloatArray = np.divide(total, known, out=np.ones_like(total), where=known > 0)
        return mean


def _work_left(state: SelectorState, run: JobRun, speeds: _Speeds) -> FluidWork | None:
    """What is left of a running job before its deadline; None where that has passed."""
    program = run.compiled
    left = program.work_quanta - run.state.progress_quanta
    elapsed = run.elapsed_slots(state.slot)
    if left <= 0 or elapsed >= program.deadline_slots:
        return None
    shares = speeds.shares(run.job)
    most = program.max_instances
    rate = program.rate_quanta_per_s[most] / most
    launch_s = 0 if run.state.holding.instances else program.launch_s
    idle = max(run.state.pending_overhead_s, launch_s) / program.slot_s * most
    # At home it goes on at the home's share of the greatest speed.
    busy = left / (rate * program.slot_s) * shares.get(run.offering_id, 1.0)
    return FluidWork(
        begins=0,
        due=max(1, program.deadline_slots - elapsed),
        most=most * UNITS,
        amount=min(_MOST_WORK, int(np.ceil((busy + idle) * UNITS - 1e-9))),
        where=tuple(sorted(shares)),
    )


def _offerings_now(state: SelectorState, speeds: _Speeds) -> tuple[OfferingNow, ...]:
    """Offerings of which a count is known, and that no reservation covers, in order of their ids."""
    quotes = sorted(
        (
            quoted.quote
            for quoted in state.current.quotes
            if quoted.quote.spot_available.known
            and state.offerings[quoted.quote.offering_id].reservation is None
        ),
        key=lambda quote: quote.offering_id,
    )
    jobs = [run.job for run in state.running()]
    means = speeds.means(jobs, [quote.offering_id for quote in quotes])
    found = []
    for quote, speed in zip(quotes, means.tolist(), strict=True):
        now = OfferingNow(quote=quote, speed=speed)
        named = state.laws.get(quote.offering_id)
        if named is not None:
            run_state = state.run_state(quote.offering_id, named.law.space)
            now = replace(now, run_state=run_state, law=named.law)
        found.append(now)
    return tuple(found)
