"""A job on one offering and one slot grid, in the integers the deciding programs use."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spotline.domain.canonical import canonical_as
from spotline.domain.jobs.job import DeadlineKind, Job, Throughput
from spotline.domain.market.offering import ASSUMED_NOTICE_LEAD_S
from spotline.domain.units import NS_PER_S, WorkScale


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Instances held of one offering."""

    spot: int = 0
    on_demand: int = 0

    def __post_init__(self) -> None:
        if self.spot < 0 or self.on_demand < 0:
            raise ValueError(f"counts must be >= 0, were {self.spot}, {self.on_demand}")

    @property
    def instances(self) -> int:
        """Spot and on-demand together."""
        return self.spot + self.on_demand


IDLE = Holding()


@canonical_as(
    "JobProgram",
    "slot_s work_quanta rate_quanta_per_s allowed_counts launch_s grow_s shrink_s "
    "interrupted_s deadline_slots end_slots hard value_micro_usd budget_micro_usd",
    later="lost_s",
)
@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgram:
    """Work, rates, overheads and value of a job in whole slots from its first one.

    `rate_quanta_per_s[n]` is the progress of n instances per second, shape (N_max + 1,), 0 at 0
    and 0 for counts that are not allowed. Slots are counted from 1: the job is on time when it
    finishes in slot `deadline_slots` or before, and is worth nothing after slot `end_slots`.
    `value_micro_usd[T]` is what finishing in slot T is worth, shape (end_slots + 1,).

    An interruption throws away the work of up to `lost_s` seconds, at the rate at which it was made,
    and then costs `interrupted_s` seconds. Where the cloud's notice was only assumed, `lost_s` is 0
    and `interrupted_s` holds what is lost, in seconds of whatever runs next.
    """

    slot_s: int
    work_quanta: int
    rate_quanta_per_s: tuple[int, ...]
    allowed_counts: tuple[int, ...]
    launch_s: int
    grow_s: int
    shrink_s: int
    interrupted_s: int
    deadline_slots: int
    end_slots: int
    hard: bool
    value_micro_usd: tuple[int, ...]
    budget_micro_usd: int = 0
    lost_s: int = 0

    def __hash__(self) -> int:
        # Caches are asked several times per decision: a few fields tell programs apart as well.
        return hash((self.work_quanta, self.deadline_slots, self.end_slots, self.budget_micro_usd))

    @property
    def max_instances(self) -> int:
        """The largest allowed count."""
        return self.allowed_counts[-1]

    @property
    def planned(self) -> JobProgram:
        """The same for planners that lose time but no work: lost work is work of as many seconds."""
        return replace(self, interrupted_s=self.interrupted_s + self.lost_s, lost_s=0)

    def slots_on_demand(
        self, work_quanta: int, first_overhead_s: int, *, instances: int = 0
    ) -> int:
        """Slots that `work_quanta` take after one overhead, on the largest count or `instances`."""
        if work_quanta <= 0:
            return 0
        rate = self.rate_quanta_per_s[instances or self.max_instances]
        busy_s = -(-work_quanta // rate) + first_overhead_s
        return -(-busy_s // self.slot_s)


# One slot of one instance: what kernels are compiled with before they are needed.
SMALLEST_PROGRAM = JobProgram(
    slot_s=60,
    work_quanta=60,
    rate_quanta_per_s=(0, 1),
    allowed_counts=(1,),
    launch_s=0,
    grow_s=0,
    shrink_s=0,
    interrupted_s=0,
    deadline_slots=1,
    end_slots=1,
    hard=True,
    value_micro_usd=(1, 1),
)


def compile_program(
    job: Job,
    throughput: Throughput,
    *,
    slot_s: int,
    first_slot_start_ns: int,
    notice_lead_s: int | None = None,
) -> JobProgram:
    """Lay `job` onto the slot grid from the slot that opens at `first_slot_start_ns`.

    Deadlines round down to whole slots: a job is never called on time because of the grid.
    `notice_lead_s` is that of the offering.
    """
    scale = WorkScale.for_amount(job.work.amount)
    rates = [0] * (job.max_instances + 1)
    for count in job.allowed_counts:
        rates[count] = scale.rate_quanta_per_s(throughput.rate_per_hour(count))
    slot_ns = slot_s * NS_PER_S
    hard = job.deadline.kind is DeadlineKind.HARD
    deadline_slots = max(0, (job.deadline.at_ns - first_slot_start_ns) // slot_ns)
    end_slots = max(0, (job.deadline.expires_ns - first_slot_start_ns) // slot_ns)
    interrupted_s, lost_s = interruption_s(job, notice_lead_s)
    return JobProgram(
        slot_s=slot_s,
        work_quanta=scale.quanta_from_work(job.work.amount),
        rate_quanta_per_s=tuple(rates),
        allowed_counts=job.allowed_counts,
        launch_s=job.overheads.launch_s,
        grow_s=job.overheads.grow_s,
        shrink_s=job.overheads.shrink_s,
        interrupted_s=interrupted_s,
        lost_s=lost_s,
        deadline_slots=deadline_slots,
        end_slots=end_slots,
        hard=hard,
        value_micro_usd=tuple(
            _value_micro_usd(job, first_slot_start_ns + slot * slot_ns)
            for slot in range(end_slots + 1)
        ),
        budget_micro_usd=job.budget_micro_usd,
    )


def interruption_s(job: Job, notice_lead_s: int | None) -> tuple[int, int]:
    """Seconds that an interruption costs, and seconds of work that it throws away before.

    Where the lead is only assumed (None), what is lost is in the first and the second is 0.
    """
    overheads = job.overheads
    assumed_s = lost_s = 0
    if notice_lead_s is None:
        assumed_s = job.checkpoint.lost_s(ASSUMED_NOTICE_LEAD_S)
    elif job.run is not None and notice_lead_s == 0:
        # Even a save that takes no time needs to be told to begin.
        lost_s = job.checkpoint.interval_s
    else:
        lost_s = job.checkpoint.lost_s(notice_lead_s)
    # An interruption is never cheaper than growing: the survivors must be regrouped too.
    return max(overheads.interrupted_s + assumed_s, overheads.grow_s), lost_s


def _value_micro_usd(job: Job, finished_ns: int) -> int:
    deadline = job.deadline
    if finished_ns <= deadline.at_ns:
        return job.value_micro_usd
    if finished_ns >= deadline.expires_ns:
        return 0
    left = deadline.expires_ns - finished_ns
    return job.value_micro_usd * left // (deadline.expires_ns - deadline.at_ns)
