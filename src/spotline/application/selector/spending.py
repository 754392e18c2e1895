"""Limits on spending in the selector: what jobs are granted is cut to what may still be spent.

The neediest come first, as they are served; what is kept counts like what is bought, for its money
is still to be spent. The actuator holds launches to the same limits. A limit on launches takes
nothing away: what it does not let a job change to is no reason to release what the job holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from spotline.application.selector.asking import task_at_home
from spotline.application.selector.freezing import NO_EXEMPTION, Exemption, exemption
from spotline.application.selector.job_run import JobRun
from spotline.application.selector.limiting import waiting_for
from spotline.application.selector.offered_money import left_for_job, room_now
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.state import SelectorState
from spotline.domain.events.limits import LimitReached
from spotline.domain.jobs.lot import Lot, holding_of
from spotline.domain.jobs.program import Holding
from spotline.domain.limits.spending import PER_JOB, PoolRoom, Room, Spending, quota_limit
from spotline.domain.market.offering import CapacityType
from spotline.domain.policies.answer import DecisionReason, JobAnswer
from spotline.domain.policies.interface import START
from spotline.domain.units import NS_PER_S, cost_micro_usd

_MINUTE_NS = 60 * NS_PER_S
_RATE = "launches per minute"


@dataclass(slots=True)
class Granted:
    """Answers within the limits, what is said of those that get nothing, and who was cut.

    Of those that hold more than a quota allows, `excepted` says how much on-demand they need.
    """

    answers: list[JobAnswer] = field(default_factory=list)
    reached: list[LimitReached] = field(default_factory=list)
    cut: set[str] = field(default_factory=set)
    excepted: dict[str, Exemption] = field(default_factory=dict)


def within_limits(
    state: SelectorState, answers: Sequence[JobAnswer], options: SelectorOptions
) -> Granted:
    """Cut answers, in their order, to what may still be spent and launched."""
    spending = options.limits_on_spending
    if spending == Spending():
        return Granted(answers=list(answers))
    granting = _Granting(state, options, spending, {answer.job_id for answer in answers})
    granted = Granted()
    for answer in answers:
        run = state.runs[answer.job_id]
        copy = 0 if answer.move is None else answer.move.cost_micro_usd
        lots, limit = granting.grant(run, answer.lots, copy)
        if not limit:
            granted.answers.append(answer)
            continue
        granted.cut.add(answer.job_id)
        cut = replace(answer, lots=lots, reason=DecisionReason.BUDGET)
        stays = not lots or lots[0].offering_id == run.offering_id
        if stays and answer.move is not None:
            # No checkpoint is copied then, and what was planned is for elsewhere.
            cut = replace(cut, move=None, memory=START)
        granted.answers.append(cut)
        if not lots and (run.at_limit is None or run.at_limit.limit != limit):
            granted.reached.append(waiting_for(state, run, options, limit))
    granted.excepted = granting.excepted
    return granted


class _Granting:
    def __init__(
        self,
        state: SelectorState,
        options: SelectorOptions,
        spending: Spending,
        answered: set[str],
    ) -> None:
        self._state, self._options, self._spending = state, options, spending
        self.excepted: dict[str, Exemption] = {}
        self._rest_s = state.current.slot_s - state.offset_s
        self._quotes = {sq.quote.offering_id: sq for sq in state.current.quotes}
        self._room = room_now(state, options)
        self._pools = PoolRoom.within(spending)
        now_ns = state.current.ts_event_ns + state.offset_s * NS_PER_S
        self._launched = sum(
            count for at_ns, count in state.launched if at_ns > now_ns - _MINUTE_NS
        )
        for run in state.running():
            if run.job.job_id not in answered:
                for lot in run.held_lots:
                    self._take(self._room, run, lot)
                    self._pools.take(self._pool_of(lot.offering_id), lot.spot + lot.on_demand)

    def grant(
        self, run: JobRun, lots: tuple[Lot, ...], copy: int = 0
    ) -> tuple[tuple[Lot, ...], str]:
        """The most of what was answered that fits, and the limit that allows no more; empty: all.

        Going elsewhere costs a `copy` of the checkpoint. What is held stays where going does not fit.
        """
        if not lots:
            return lots, "" if run.held_lots else self._used_up(run)
        whole = lots[0]
        limit = self._limit(run, whole, self._exempt(run, whole), copy)
        if limit is None:
            return self._granted(run, whole, copy), ""
        if limit == _RATE:
            rescue = self._rescue(run, whole)
            if rescue is not None and self._limit(run, rescue, _bought(run, rescue)) is None:
                return self._granted(run, rescue), limit
        for lot in self._rescues_from_quota(run, whole, limit):
            if self._limit(run, lot, self._exempt(run, lot)) is None:
                return self._granted(run, lot), limit
        last = limit
        for lot in self._less(run, whole, limit):
            paid = copy if lot.offering_id == whole.offering_id else 0
            found = self._limit(run, lot, self._exempt(run, lot), paid)
            if found is None:
                return self._granted(run, lot, paid), last
            last = found
        return (), last

    def _granted(self, run: JobRun, lot: Lot, copy: int = 0) -> tuple[Lot, ...]:
        self._room.add(run.job.tenant, CapacityType.ON_DEMAND, copy)
        self._take(self._room, run, lot)
        pool, instances = self._pool_of(lot.offering_id), lot.spot + lot.on_demand
        in_pool = self._pools.instances(pool)
        if in_pool is not None and instances > in_pool:
            self.excepted[run.job.job_id] = self._exempt_from_quota(run, lot, in_pool)
        self._pools.take(pool, instances)
        self._launched += _bought(run, lot)
        return (lot,)

    def _less(self, run: JobRun, lot: Lot, limit: str) -> Iterator[Lot]:
        """What a job may get instead of a lot, most first."""
        leaves = lot.offering_id != run.offering_id
        kept = _kept(run) if limit == _RATE or leaves else None
        for smaller in _smaller(run, lot):
            if kept is not None and smaller.spot + smaller.on_demand <= kept.spot + kept.on_demand:
                yield kept
                kept = None
            yield smaller
        if kept is not None:
            yield kept

    def _rescue(self, run: JobRun, lot: Lot) -> Lot | None:
        """What is held, with the on-demand that a hard deadline needs as so little spot comes."""
        if lot.offering_id != run.offering_id or self._spending.launches_per_minute is None:
            return None
        held = run.held_at(lot.offering_id)
        left = max(0, self._spending.launches_per_minute - self._launched)
        task = task_at_home(self._state, run, self._options)
        task = replace(task, most_spot=held.spot + left)
        more = exemption(self._state, run, task).instances
        counts = [
            count
            for count in run.job.allowed_counts
            if held.instances < count <= held.instances + more
        ]
        if not counts:
            return None
        return replace(lot, spot=held.spot, on_demand=counts[-1] - held.spot)

    def _rescues_from_quota(self, run: JobRun, lot: Lot, limit: str) -> Iterator[Lot]:
        """As many as were wanted or fewer, with on-demand instead of the spot that a quota refuses."""
        pool = self._pool_of(lot.offering_id)
        in_pool = self._pools.instances(pool)
        if in_pool is None or limit != quota_limit(pool) or lot.offering_id != run.offering_id:
            return
        room = min(lot.spot, in_pool)
        for spot in dict.fromkeys((room, min(room, run.held_at(lot.offering_id).spot))):
            for count in reversed(run.job.allowed_counts):
                if spot < count <= lot.spot + lot.on_demand:
                    yield replace(lot, spot=spot, on_demand=count - spot)

    def _exempt_from_quota(self, run: JobRun, lot: Lot, in_pool: int) -> Exemption:
        """How much on-demand of a lot no quota may refuse, what the job holds of it included.

        Spot that is new has to find room beside all that is kept.
        """
        if lot.offering_id != run.offering_id or not lot.on_demand or not run.is_limited:
            return NO_EXEMPTION
        held = run.held_at(lot.offering_id)
        kept = min(held.spot, lot.spot) + min(held.on_demand, lot.on_demand)
        if lot.spot > held.spot and kept + lot.spot - held.spot > in_pool:
            return NO_EXEMPTION
        task = task_at_home(self._state, run, self._options)
        bare = replace(task, holding=replace(task.holding, on_demand=0), most_spot=in_pool)
        return exemption(self._state, run, bare)

    def _exempt(self, run: JobRun, lot: Lot) -> int:
        """How much of a lot no rate may refuse; asked only where the rate would."""
        per_minute = self._spending.launches_per_minute
        bought = _bought(run, lot)
        if per_minute is None or not bought or self._launched + bought <= per_minute:
            return 0
        task = task_at_home(self._state, run, self._options)
        return exemption(self._state, run, task).instances

    def _used_up(self, run: JobRun) -> str:
        """The limit that leaves nothing to a job whatever it wants; empty where none does."""
        least, found = run.job.allowed_counts[0], ""
        pool = self._pool_of(run.offering_id)
        in_pool = self._pools.instances(pool)
        if in_pool is not None and in_pool < least:
            return quota_limit(pool)
        if self._leaves_nothing(run, least):
            return PER_JOB
        for kind in CapacityType:
            price = self._quotes[run.offering_id].worst_price(kind)
            most, found = self._room.instances(run.job.tenant, kind, price, self._rest_s)
            if not 0 <= most < least:
                return ""
        return found

    def _leaves_nothing(self, run: JobRun, least: int) -> bool:
        """Whether the limit on each job pays for no slot of the fewest, of whatever kind."""
        left = left_for_job(self._state, run, self._options)
        quoted = self._quotes[run.offering_id]
        cheapest = min(quoted.worst_price(kind) for kind in CapacityType)
        return left is not None and cost_micro_usd(cheapest, least, self._rest_s) > max(0, left)

    def _limit(self, run: JobRun, lot: Lot, exempt: int, copy: int = 0) -> str | None:
        """The limit that a lot would pass, `exempt` instances aside; None for none."""
        pool = self._pool_of(lot.offering_id)
        in_pool = self._pools.instances(pool)
        if in_pool is not None and lot.spot + lot.on_demand > in_pool:
            exempt_here = self._exempt_from_quota(run, lot, in_pool).instances
            if lot.spot + lot.on_demand > in_pool + min(lot.on_demand, exempt_here):
                return quota_limit(pool)
        per_minute = self._spending.launches_per_minute
        bought = _bought(run, lot)
        if per_minute is not None and bought and self._launched + bought - exempt > per_minute:
            return _RATE
        if self._is_beyond_job(run, lot, copy):
            return PER_JOB
        room = Room.after(self._spending, self._room.spent)
        left = self._spending.left(room.spent, run.job.tenant, CapacityType.ON_DEMAND)
        if copy and left is not None and copy > left[0]:
            return left[1]
        room.add(run.job.tenant, CapacityType.ON_DEMAND, copy)
        for kind, count in ((CapacityType.SPOT, lot.spot), (CapacityType.ON_DEMAND, lot.on_demand)):
            price = self._quotes[lot.offering_id].worst_price(kind)
            most, name = room.instances(run.job.tenant, kind, price, self._rest_s)
            if 0 <= most < count:
                return name
            room.take(run.job.tenant, kind, price, count, self._rest_s)
        return None

    def _is_beyond_job(self, run: JobRun, lot: Lot, copy: int) -> bool:
        """Whether the limit on each job does not pay for a lot until the slot ends, and a copy."""
        left = left_for_job(self._state, run, self._options)
        if left is None:
            return False
        quoted = self._quotes[lot.offering_id]
        cost = copy
        for kind, count in ((CapacityType.SPOT, lot.spot), (CapacityType.ON_DEMAND, lot.on_demand)):
            cost += cost_micro_usd(quoted.worst_price(kind), count, self._rest_s)
        return cost > max(0, left)

    def _pool_of(self, offering_id: str) -> str:
        return self._state.offerings[offering_id].quota_pool

    def _take(self, room: Room, run: JobRun, lot: Lot) -> None:
        quoted = self._quotes.get(lot.offering_id)
        if quoted is None:
            return
        for kind, count in ((CapacityType.SPOT, lot.spot), (CapacityType.ON_DEMAND, lot.on_demand)):
            room.take(run.job.tenant, kind, quoted.worst_price(kind), count, self._rest_s)


def _kept(run: JobRun) -> Lot | None:
    """What a job holds where it is at home; None where it cannot run on that."""
    held = run.held_lots
    if len(held) != 1 or held[0].offering_id != run.offering_id:
        return None
    return held[0] if holding_of(held).instances in run.job.allowed_counts else None


def _smaller(run: JobRun, lot: Lot) -> Iterator[Lot]:
    """What is left of a lot at each smaller count that the job is allowed."""
    whole = holding_of((lot,))
    for count in reversed(run.job.allowed_counts):
        if count < whole.instances:
            spot = min(whole.spot, count)
            yield replace(lot, spot=spot, on_demand=count - spot)


def _bought(run: JobRun, lot: Lot) -> int:
    held: Holding = run.held_at(lot.offering_id)
    return max(0, lot.spot - held.spot) + max(0, lot.on_demand - held.on_demand)
