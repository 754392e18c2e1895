"""What the log has said of one job, as far as people are told of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from spotline.application.board.messages import JobCounts
from spotline.domain.events.capacity import RefusalClass
from spotline.domain.events.lifecycle import JobOutcome
from spotline.domain.jobs.lot import Lot
from spotline.domain.jobs.outlook import JobOutlook
from spotline.domain.policies.answer import DecisionReason, Yielded


@dataclass(slots=True, kw_only=True)
class BoardEntry:
    """One job on the board; only `BoardState.fold` changes it. Times are market ns, 0: not yet.

    Parameters
    ----------
    is_run, awaits_exit
        Whether Spotline runs its program, and whether done work is not the end of it.
    first_slot, first_slot_start_ns
        The slot in which it was admitted (-1: not yet), and when that opened.
    offering_id
        Its home: where it runs or ran last; empty before it is admitted.
    name
        What its owner calls it; may be empty.
    wanted, wanted_ns, reason, explanation
        What was decided last, when, and why.
    yielded, yielded_to
        Spot that it left to another job then, and that job's name or id (empty: it is another
        tenant's).
    held, instance_ids, held_ns
        What the cloud said last that it holds, and since when it has held something.
    idle_ns
        Since when it holds nothing, which it does from its submission on.
    trains_ns
        Since when it trains, 0 while it does not: by what its program says where Spotline runs it.
    lost_ns, lost
        When instances were taken back last, and which, while it has not trained since. How often
        that happened is in `times_interrupted`, of how many instances in `counts`.
    moved_ns, moved_from
        The same for a change of its offering.
    notices
        Instances that are about to be taken back, and when they will be gone.
    refused, refusal
        Whether launches were refused since the last decision, of which class the last was.
    settled_ns
        When the cloud last answered a decision.
    saves_ns
        Since when it has been told of an end.
    progress_ppm, progress_ns, done
        Share of its work done by the decisions, as of when; what its program said last, in the
        job's own unit.
    parked
        Entries about it that a service left out and nobody has dealt with: what each is, by the
        service and the event's id.
    unseen
        The last event about it that the board itself could not take; empty for none.
    """

    tenant: str
    is_run: bool
    awaits_exit: bool
    work_amount: float
    submitted_ns: int
    name: str = ""
    policy_id: str = ""
    offering_id: str = ""
    first_slot: int = -1
    first_slot_start_ns: int = 0
    outcome: JobOutcome | None = None
    closed_ns: int = 0
    cancelled_ns: int = 0
    wanted: tuple[Lot, ...] = ()
    wanted_ns: int = 0
    reason: DecisionReason | None = None
    explanation: str = ""
    yielded: Yielded | None = None
    yielded_to: str = ""
    held: tuple[Lot, ...] = ()
    instance_ids: tuple[str, ...] = ()
    held_ns: int = 0
    idle_ns: int = 0
    launched: bool = False
    settled_ns: int = 0
    trains_ns: int = 0
    lost_ns: int = 0
    lost: tuple[Lot, ...] = ()
    times_interrupted: int = 0
    moved_ns: int = 0
    moved_from: str = ""
    notices: dict[str, int] = field(default_factory=dict)
    noticed_ids: set[str] = field(default_factory=set)
    saves_ns: int = 0
    refused: bool = False
    refusal: RefusalClass | None = None
    failed_ns: int = 0
    failure: str = ""
    not_before_ns: int = 0
    finished_ns: int = 0
    progress_ppm: int = 0
    progress_ns: int = 0
    done: float | None = None
    generation: int = 0
    last_report_ns: int = 0
    has_reported: bool = False
    silent: set[str] = field(default_factory=set)
    parked: dict[tuple[str, str], str] = field(default_factory=dict)
    unseen: str = ""
    spent_micro_usd: int = 0
    billed_micro_usd: int = 0
    egress_micro_usd: int = 0
    quoted: JobOutlook | None = None
    counts: JobCounts = field(default_factory=JobCounts)

    @property
    def over(self) -> bool:
        """Whether it is closed."""
        return self.outcome is not None

    def tally(self, **more: int) -> None:
        """Add to what is counted."""
        counts = {name: getattr(self.counts, name) + count for name, count in more.items()}
        self.counts = replace(self.counts, **counts)
