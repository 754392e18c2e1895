"""What has been measured of a job's saves and restarts, and the job as it is believed then.

Too small a value misses a deadline, too large a one costs little: of few samples the greatest
counts, and more than that; of many, nearly the greatest. Every other value compiles the job again,
drops plans that policies remember and asks for value tables, which decisions go without until they
are built. So values lie on a grid, rise at once, and fall by a fifth or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

from spotline.domain.jobs.job import Checkpoint, Job, Overheads

# Samples of a quantity that are kept, the latest.
KEPT = 40
# From so many on the 95th percentile counts; of fewer it would be their maximum by itself.
ENOUGH = 20

_BYTES_PER_MB = 10**6
_MB_PER_GB = 1000


class Change(Enum):
    """Which change of the held set a start of the program followed; `Overheads` names them."""

    SHRINK = "shrink"
    GROW = "grow"
    INTERRUPTED = "interrupted"
    LAUNCH = "launch"
    MIGRATE = "migrate"


def stepped(amount: int) -> int:
    """The least value >= `amount` of the grid, whose steps are an eighth of a value or less.

    Never below 1: what was measured took some time.
    """
    step = 1 << max(0, amount.bit_length() - 4)
    return max(1, -(-amount // step) * step)


def high_of(samples: tuple[int, ...]) -> int:
    """A value that few samples exceed: 5/4 of the maximum of few, the 95th percentile of many."""
    if len(samples) < ENOUGH:
        return -(-5 * max(samples) // 4)
    return sorted(samples)[-(-95 * len(samples) // 100) - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """The latest samples of a quantity, and what is believed of it (None: never measured)."""

    samples: tuple[int, ...] = ()
    believed: int | None = None

    def with_sample(self, sample: int) -> Quantity:
        """Take one more sample, >= 0."""
        samples = (*self.samples, max(0, sample))[-KEPT:]
        now = stepped(high_of(samples))
        believed = self.believed
        if believed is None or now > believed or 5 * now <= 4 * believed:
            believed = now
        return Quantity(samples=samples, believed=believed)


NEVER = Quantity()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a job's program has shown of itself.

    `save` and `restarts` are in market seconds, a restart from the change of the held set to the
    first progress after it. `size_mb` is the largest checkpoint, 10^6 bytes on the grid of
    `stepped` (0: none was seen).
    """

    save: Quantity = NEVER
    restarts: tuple[tuple[Change, Quantity], ...] = field(
        default=tuple((change, NEVER) for change in Change)
    )
    size_mb: int = 0

    def saved(self, save_s: int, size_bytes: int) -> Measured:
        """Take a checkpoint: what writing it took, and how large it is."""
        size_mb = stepped(-(-size_bytes // _BYTES_PER_MB)) if size_bytes > 0 else 0
        return replace(self, save=self.save.with_sample(save_s), size_mb=max(self.size_mb, size_mb))

    def restarted(self, change: Change, seconds: int) -> Measured:
        """Take the seconds without progress that followed a change."""
        return replace(
            self,
            restarts=tuple(
                (kind, quantity.with_sample(seconds) if kind is change else quantity)
                for kind, quantity in self.restarts
            ),
        )

    @property
    def saves_are_known(self) -> bool:
        """Whether a save was ever measured: until then a notice is taken to save nothing."""
        return self.save.believed is not None

    @property
    def believed(self) -> tuple[int | None, ...]:
        """All that a job is corrected by; where it is equal, so is the corrected job."""
        return (self.save.believed, self.size_mb, *(q.believed for _, q in self.restarts))


NOTHING = Measured()


def corrected(job: Job, stated: Job, measured: Measured) -> Job:
    """The job with what was measured in the place of what its owner `stated` of it."""
    checkpoint = _checkpoint(stated.checkpoint, measured)
    overheads = _overheads(stated.overheads, measured)
    if (checkpoint, overheads) == (job.checkpoint, job.overheads):
        return job
    return replace(job, checkpoint=checkpoint, overheads=overheads)


def planned_lead_s(job: Job, notice_lead_s: int | None, measured: Measured = NOTHING) -> int | None:
    """The notice to plan with where `notice_lead_s` is that of the offering.

    Until a save of a program that Spotline runs was measured, no notice saves anything of it.
    """
    if job.run is None or measured.saves_are_known:
        return notice_lead_s
    return 0


def _checkpoint(stated: Checkpoint, measured: Measured) -> Checkpoint:
    save_s = measured.save.believed
    return replace(
        stated,
        save_s=stated.save_s if save_s is None else save_s,
        size_gb=measured.size_mb / _MB_PER_GB if measured.size_mb else stated.size_gb,
    )


def _overheads(stated: Overheads, measured: Measured) -> Overheads:
    """Overheads as measured; the others as stated, and in the order that overheads have.

    A smaller change that was not measured takes no longer than a larger one that was. What was
    measured of a smaller one holds for the larger: each change starts the program again.
    """
    known = {change: quantity.believed for change, quantity in measured.restarts}
    migrate = known[Change.MIGRATE]
    grow = known[Change.GROW]
    if grow is None:
        grow = stated.grow_s if migrate is None else min(stated.grow_s, migrate)
    shrink = known[Change.SHRINK]
    if shrink is None:
        shrink = min(stated.shrink_s, grow)
    launch, interrupted = known[Change.LAUNCH], known[Change.INTERRUPTED]
    least = shrink if known[Change.SHRINK] is not None else 0
    grow = max(grow, shrink)
    return Overheads(
        launch_s=max(stated.launch_s, least) if launch is None else launch,
        grow_s=grow,
        shrink_s=shrink,
        migrate_s=max(stated.migrate_s if migrate is None else migrate, grow),
        interrupted_s=max(stated.interrupted_s, least) if interrupted is None else interrupted,
    )
