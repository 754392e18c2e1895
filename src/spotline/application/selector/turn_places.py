"""Where jobs of a crowd may go that are served in turn: to spot that is idle, or to cheaper on-demand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from spotline.application.allocation.messages import Alternative
from spotline.application.selector.egress import held_back
from spotline.application.selector.job_run import JobRun
from spotline.application.selector.leaving import alternative_to, can_stay
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.rescuing import RescueRoom
from spotline.application.selector.state import SelectorState
from spotline.domain.jobs.job import Job
from spotline.domain.market.lasting import lasting_of
from spotline.domain.market.offering import Quote

# Places with idle spot that a job is told of, the best first, and places to buy on-demand.
_MOST_PLACES, _MOST_RESORTS = 4, 2
# Slots of slack from which on a job need not be told where on-demand is cheaper: it can wait for spot.
_NO_HURRY_SLOTS = 4
# What says where a job can run: offerings and instance types that it names, and those of its rates.
_RunsOn = tuple[tuple[str, ...], tuple[str, ...]]
# Slots of a stay by which places are put in order.
_RANKED_SLOTS = 8


def serves_in_turn(state: SelectorState, options: SelectorOptions) -> bool:
    """Whether more jobs run than bid together."""
    most = options.most_bidders
    return bool(state.clearing and most and len(state.running()) > most)


@dataclass(slots=True, kw_only=True)
class TurnPlaces:
    """What is left of spot while jobs take turns, as the selector foresees it."""

    quotes: dict[str, Quote] = field(default_factory=dict)
    idle: dict[str, int] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    _slots: dict[tuple[str, int], float] = field(default_factory=dict)
    # Jobs that run at the same places are told of them in the same order.
    _by_costs: dict[tuple[int, int, _RunsOn], tuple[str, ...]] = field(default_factory=dict)
    _by_prices: dict[_RunsOn, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, state: SelectorState, options: SelectorOptions) -> TurnPlaces:
        """Before the first turn: what is held is kept, and the rest is idle."""
        if not options.moves or state.offset_s:
            return cls()
        residual = state.residual()
        places = cls(
            quotes={
                quoted.quote.offering_id: quoted.quote
                for quoted in state.current.quotes
                if quoted.quote.spot_available.known
            }
        )
        places.left = {offering_id: residual.spot(offering_id) for offering_id in places.quotes}
        for job_id in state.in_order():
            run = state.runs[job_id]
            held = run.state.holding.spot
            if held <= places.left.get(run.offering_id, 0):
                places.left[run.offering_id] -= held
                places.kept.add(job_id)
        places.idle = dict(places.left)
        return places

    def places(
        self, state: SelectorState, run: JobRun, options: SelectorOptions, room: RescueRoom
    ) -> Iterator[Alternative]:
        """Where the job whose turn it is could go, if it finds no spot at home: the best first."""
        home = self.quotes.get(run.offering_id)
        if home is None or run.elapsed_slots(state.slot) >= run.compiled.deadline_slots:
            return
        if self._finds_at_home(run):
            return
        found = self._open_to(state, run, options, room, self._ranked(state, run), _MOST_PLACES)
        if found and not run.state.holding.on_demand:
            # Those whose turn comes later find that much less.
            self.left[found[0]] -= run.job.max_instances
        bought = run.state.holding.on_demand >= run.job.max_instances
        if not bought and run.slack_slots(state.slot) < _NO_HURRY_SLOTS:
            resorts = self._resorts(state, run, home)
            cheaper = [offering_id for offering_id in resorts if offering_id not in found]
            found += self._open_to(state, run, options, room, cheaper, _MOST_RESORTS)
        for offering_id in found:
            room.claim(state, run, offering_id)
            yield alternative_to(state, run, offering_id, options)

    @staticmethod
    def _open_to(
        state: SelectorState,
        run: JobRun,
        options: SelectorOptions,
        room: RescueRoom,
        among: Iterable[str],
        most: int,
    ) -> list[str]:
        """The first `most` offerings that a job may go to."""
        # One after the other: of a hundred offerings few are looked at.
        may_go = (
            offering_id
            for offering_id in among
            if not room.full_for(state, run, (offering_id,))
            and not held_back(state, run, offering_id, options)
            and can_stay(state, run, offering_id, options)
        )
        return list(islice(may_go, most))

    def _finds_at_home(self, run: JobRun) -> bool:
        held = run.state.holding.spot if run.job.job_id in self.kept else 0
        count = self._most(run, held + self.left[run.offering_id])
        if count > held and not run.state.holding.on_demand:
            self.left[run.offering_id] -= count - held
        return count == run.job.max_instances

    def _ranked(self, state: SelectorState, run: JobRun) -> Iterator[str]:
        """Offerings whose idle spot is enough for a job, those first where a slot of work costs least."""
        count, by_cost = run.job.max_instances, self._by_cost(state, run.job)
        elsewhere = [offering_id for offering_id in by_cost if offering_id != run.offering_id]
        # What others will have taken by then, they may not take.
        yield from (each for each in elsewhere if self.left[each] >= count)
        yield from (each for each in elsewhere if self.left[each] < count)

    def _by_cost(self, state: SelectorState, job: Job) -> tuple[str, ...]:
        """Those with enough idle spot in order of what a slot of work costs, the way there spread over the stay."""
        count, migrate_s = job.max_instances, job.overheads.migrate_s
        key = count, migrate_s, _runs_on(job)
        found = self._by_costs.get(key)
        if found is None:
            way = migrate_s / state.current.slot_s
            costs = []
            for offering_id in self._where_it_runs(state, job):
                if self.idle[offering_id] < count:
                    continue
                lasts = self._expected_slots(state, offering_id, count)
                price = self.quotes[offering_id].spot_price_micro_usd
                costs.append((price * lasts / max(lasts - way, 0.1 * lasts), offering_id))
            found = self._by_costs[key] = tuple(offering_id for _, offering_id in sorted(costs))
        return found

    def _resorts(self, state: SelectorState, run: JobRun, home: Quote) -> Iterator[str]:
        """Places that are cheaper than on-demand at home, the cheapest first."""
        for offering_id in self._by_price(state, run.job):
            if self.quotes[offering_id].on_demand_price_micro_usd >= home.on_demand_price_micro_usd:
                return
            if offering_id != run.offering_id:
                yield offering_id

    def _by_price(self, state: SelectorState, job: Job) -> tuple[str, ...]:
        found = self._by_prices.get(_runs_on(job))
        if found is None:
            prices = (
                (self.quotes[offering_id].on_demand_price_micro_usd, offering_id)
                for offering_id in self._where_it_runs(state, job)
            )
            found = tuple(offering_id for _, offering_id in sorted(prices))
            self._by_prices[_runs_on(job)] = found
        return found

    def _where_it_runs(self, state: SelectorState, job: Job) -> Iterator[str]:
        for offering_id in self.quotes:
            offering = state.offerings[offering_id]
            if offering.reservation is not None:
                continue
            if job.throughput_on(offering_id, offering.instance_type) is not None:
                yield offering_id

    @staticmethod
    def _most(run: JobRun, spot: int) -> int:
        return max((count for count in run.job.allowed_counts if count <= spot), default=0)

    def _expected_slots(self, state: SelectorState, offering_id: str, count: int) -> float:
        """Slots that `count` instances are expected to stay; the most that counts where no law is known."""
        found = self._slots.get((offering_id, count))
        if found is None:
            found, named = float(_RANKED_SLOTS), state.laws.get(offering_id)
            if named is not None:
                run_state = state.run_state(offering_id, named.law.space)
                found = lasting_of(named.law).expected_slots(run_state, count, _RANKED_SLOTS)
            self._slots[offering_id, count] = found
        return found


def _runs_on(job: Job) -> _RunsOn:
    return job.offerings, tuple(throughput.offering for throughput in job.throughputs)
