"""What the log of a run proves about its training: interruptions, saves on notice, generations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType

from spotline.domain.events.capacity import (
    CapacityLost,
    CostAccrued,
    InterruptionNoticed,
    InterruptionWithdrawn,
)
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobClosed, JobOutcome
from spotline.domain.events.training import (
    CheckpointCommitted,
    CheckpointFailed,
    GenerationFormed,
    NoticeAcknowledged,
    NoticeAction,
    TrainingRestarted,
)

# Of what was said of a notice, the strongest counts.
_STRENGTH = (
    NoticeAction.FORWARDED,
    NoticeAction.SKIPPED,
    NoticeAction.NOT_SAVED,
    NoticeAction.SAVED,
)


NONE_SEEN: Mapping[str, float] = MappingProxyType({})


@dataclass(slots=True, kw_only=True)
class JobEvidence:
    """What the log says of one job.

    `lost` are instances that were gone, `noticed` those that the cloud said it would take.
    `accrued_micro_usd` is what it was told to cost, `answers` are what was done on each notice, by instance and notice.
    """

    outcome: JobOutcome | None = None
    closed_slot: int = -1
    lost: set[str] = field(default_factory=set)
    noticed: set[str] = field(default_factory=set)
    answers: dict[tuple[str, str], NoticeAction] = field(default_factory=dict)
    generations: dict[int, tuple[str, ...]] = field(default_factory=dict)
    committed: dict[str, CheckpointCommitted] = field(default_factory=dict)
    failed: list[CheckpointFailed] = field(default_factory=list)
    restarted: list[TrainingRestarted] = field(default_factory=list)
    accrued_micro_usd: int = 0

    @property
    def taken_back(self) -> set[str]:
        """Instances that the cloud wanted back, also where they were released upon its notice."""
        return self.lost | self.noticed

    @property
    def without_notice(self) -> int:
        """Instances that were gone without a word."""
        return len(self.lost - self.noticed)

    @property
    def resizes(self) -> int:
        """Changes of the number of members from one generation to the next."""
        sizes = [len(self.generations[number]) for number in sorted(self.generations)]
        return sum(before != after for before, after in pairwise(sizes))

    @property
    def saves_tried(self) -> int:
        """Notices on which a save was tried."""
        tried = (NoticeAction.SAVED, NoticeAction.NOT_SAVED)
        return sum(action in tried for action in self.answers.values())

    @property
    def saves_completed(self) -> int:
        """Notices on which a checkpoint was committed in time."""
        return sum(action is NoticeAction.SAVED for action in self.answers.values())

    def problems(self, seen: Mapping[str, float] = NONE_SEEN) -> list[str]:
        """Resumptions from anything but a committed checkpoint.

        `seen` are those that were found complete in the store, by digest, and what each held: of one
        whose writer was killed before it could say so, the log knows nothing.
        """
        found = []
        for restart in self.restarted:
            digest = restart.resumed_sha256
            if not digest:
                continue
            checkpoint = self.committed.get(digest)
            done = seen.get(digest) if checkpoint is None else checkpoint.done
            if done is None:
                found.append(
                    f"generation {restart.generation} resumed from {digest[:12]}, which no "
                    "committed checkpoint has"
                )
            elif done != restart.resumed_done:
                found.append(
                    f"generation {restart.generation} resumed at {restart.resumed_done:g}, its "
                    f"checkpoint holds {done:g}"
                )
        return found


def evidence_of(events: Iterable[Event], job_ids: Iterable[str]) -> Mapping[str, JobEvidence]:
    """Sort what the log says by job; events of other jobs are passed over."""
    found = {job_id: JobEvidence() for job_id in job_ids}
    for event in events:
        job = found.get(getattr(event, "job_id", ""))
        if job is not None:
            _note(job, event)
    return found


def _note(job: JobEvidence, event: Event) -> None:
    match event:
        case InterruptionNoticed():
            job.noticed |= set(event.instance_ids)
        case InterruptionWithdrawn():
            job.noticed -= set(event.instance_ids)
        case CapacityLost():
            job.lost |= set(event.instance_ids)
        case NoticeAcknowledged():
            key = (event.instance_id, event.notice_id)
            said = job.answers.get(key, NoticeAction.FORWARDED)
            job.answers[key] = max(said, event.action, key=_STRENGTH.index)
        case GenerationFormed():
            job.generations[event.generation] = event.instance_ids
        case CheckpointCommitted():
            job.committed[event.sha256] = event
        case CheckpointFailed():
            job.failed.append(event)
        case TrainingRestarted():
            job.restarted.append(event)
        case CostAccrued():
            job.accrued_micro_usd += event.cost_micro_usd
        case JobClosed():
            job.outcome, job.closed_slot = event.outcome, event.slot
        case _:
            pass
