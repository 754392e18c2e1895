"""The gang of a job that Spotline runs: who is held, who has joined, which start is the present.

All of it is folded from the log, so that a restarted allocator knows the members of the present
generation and which tokens are used up. What no event says is in `gang_facts.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from spotline.application.market_view import MarketFold
from spotline.application.spec import derive_id
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    InstancesEnded,
    InterruptionNoticed,
    InterruptionWithdrawn,
)
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import (
    JobClosed,
    JobExited,
    JobProgressReported,
    JobRetryScheduled,
    JobSubmitted,
)
from spotline.domain.events.training import (
    AgentJoined,
    CheckpointCommitted,
    CheckpointFailed,
    GenerationFormed,
    JobHeard,
    JobSilent,
    JobStalled,
    JobStallEnded,
    TrainingRestarted,
)
from spotline.domain.jobs.run import OnStall, Run
from spotline.domain.units import NS_PER_S

ProgramReport = JobProgressReported | TrainingRestarted | CheckpointCommitted | CheckpointFailed
"""What a program says of itself: as long as one of these comes, it is not stalled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedAgent:
    """The agent of an instance: the digests it joined with, and where others reach it."""

    token_sha256: str
    nonce_sha256: str
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingNotice:
    """An instance will be taken back at `deadline_ns` of market time."""

    notice_id: str
    deadline_ns: int


@dataclass(slots=True, kw_only=True)
class Gang:
    """The instances of one job, and the present start of its program.

    Parameters
    ----------
    held
        What the cloud holds for it, in launch order.
    gone, lost, ended
        What was held once and is not any more; of these, what went without our asking, and what was
        released and is seen to have ended.
    generation, members
        The present start of the program (0: none yet), its members in rank order.
    disturbed
        Whether a member of the present generation was lost, noticed, released or silent: what its
        program's exit codes say then is no failure.
    exited
        The latest generation whose end was recorded.
    reported_ns
        When the present generation last reported progress or a checkpoint, or was formed; market
        time.
    stall
        Since when nothing was reported of it for too long, None where that is not so.
    restarting
        Whether the present generation is to end because of that.
    """

    job_id: str
    tenant: str
    allowed_counts: tuple[int, ...]
    run: Run
    held: tuple[str, ...] = ()
    gone: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    joined: dict[str, JoinedAgent] = field(default_factory=dict)
    notices: dict[str, StandingNotice] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    generation: int = 0
    members: tuple[str, ...] = ()
    disturbed: bool = False
    exited: int = 0
    finished: bool = False
    awaits_retry: bool = False
    not_before_ns: int = 0
    over: bool = False
    newest: CheckpointCommitted | None = None
    reported_ns: int = 0
    stall: JobStalled | None = None
    restarting: bool = False

    def disturb(self, instance_ids: Sequence[str]) -> None:
        """Note that something happened to instances, which may be members."""
        if not set(self.members).isdisjoint(instance_ids):
            self.disturbed = True

    def hold(self, instance_ids: tuple[str, ...]) -> None:
        """Take what is held now; an instance that was lost does not come back."""
        held = tuple(name for name in instance_ids if name not in self.lost)
        released = [name for name in self.held if name not in held]
        self.gone.update(released)
        self.gone.difference_update(held)
        self.disturb(released)
        self.held = held
        # A notice may come before the report that first shows its instance.
        for name in [*released, *self.gone]:
            self.notices.pop(name, None)

    def lose(self, instance_ids: Sequence[str]) -> None:
        """Note that instances are gone."""
        self.lost.update(instance_ids)
        self.gone.update(instance_ids)
        self.held = tuple(name for name in self.held if name not in self.lost)
        self.disturb(instance_ids)
        for name in instance_ids:
            self.notices.pop(name, None)
            self.silent.discard(name)


@dataclass(slots=True, kw_only=True)
class Gangs:
    """The gangs of all jobs that Spotline runs, by job id; `fold` alone changes them."""

    by_job: dict[str, Gang] = field(default_factory=dict)

    def get(self, job_id: str) -> Gang | None:
        """The gang of a job, None where Spotline does not run it."""
        return self.by_job.get(job_id)

    def fold(self, event: Event, market: MarketFold) -> None:
        """Apply an event; `market` says when its slot began."""
        match event:
            case JobSubmitted():
                job = event.job
                if job.run is not None:
                    self.by_job.setdefault(
                        job.job_id,
                        Gang(
                            job_id=job.job_id,
                            tenant=job.tenant,
                            allowed_counts=job.allowed_counts,
                            run=job.run,
                        ),
                    )
            case CapacityReported():
                if self.by_job:
                    self._hold(event)
            case _:
                gang = self.by_job.get(getattr(event, "job_id", ""))
                if gang is not None:
                    _fold_own(gang, event, market)

    def _hold(self, event: CapacityReported) -> None:
        held = {holding.job_id: holding.instance_ids for holding in event.holdings}
        for gang in self.by_job.values():
            if not gang.over:
                gang.hold(held.get(gang.job_id, ()))


def _fold_own(gang: Gang, event: Event, market: MarketFold) -> None:
    """Apply an event of the gang's own job."""
    match event:
        case CapacityLost():
            gang.lose(event.instance_ids)
        case InstancesEnded():
            gang.ended.update(event.instance_ids)
        case InterruptionNoticed():
            _note_notice(gang, event, market)
        case InterruptionWithdrawn():
            for name in event.instance_ids:
                gang.notices.pop(name, None)
        case JobExited():
            _note_exit(gang, event)
        case JobRetryScheduled():
            gang.awaits_retry = False
            gang.not_before_ns = event.not_before_ns
        case JobClosed():
            gang.over = True
            gang.held = ()
            gang.notices.clear()
            gang.silent.clear()
            gang.stall = None
        case JobProgressReported():
            _note_report(gang, event, event.ts_event_ns or market.now_ns)
        case _:
            _fold_agents(gang, event)


def _fold_agents(gang: Gang, event: Event) -> None:
    """Apply what follows from what agents said."""
    match event:
        case AgentJoined():
            gang.joined.setdefault(
                event.instance_id,
                JoinedAgent(
                    token_sha256=event.token_sha256,
                    nonce_sha256=event.nonce_sha256,
                    host=event.host,
                ),
            )
        case GenerationFormed() if event.generation > gang.generation:
            gang.generation = event.generation
            gang.members = event.instance_ids
            # What was noticed before may be taken at any moment of it; what was lost, is.
            gang.disturbed = not gang.gone.union(gang.notices).isdisjoint(gang.members)
            gang.reported_ns = event.ts_event_ns
            gang.stall, gang.restarting = None, False
        case JobSilent():
            gang.silent.add(event.instance_id)
            gang.disturb((event.instance_id,))
        case JobHeard():
            gang.silent.discard(event.instance_id)
        case TrainingRestarted() | CheckpointFailed():
            _note_report(gang, event, event.ts_event_ns)
        case JobStalled() if event.generation == gang.generation:
            gang.stall = event
            # A report that came before it in the log refutes it.
            quiet = gang.reported_ns <= event.since_ns
            gang.restarting = quiet and event.on_stall is OnStall.RESTART
        case JobStallEnded() if event.generation == gang.generation:
            gang.stall = None
        case CheckpointCommitted():
            _note_report(gang, event, event.ts_event_ns)
            before = gang.newest
            if before is None or _place(event) >= _place(before):
                gang.newest = event
        case _:
            pass


def _note_notice(gang: Gang, event: InterruptionNoticed, market: MarketFold) -> None:
    notice = StandingNotice(
        notice_id=derive_id(
            gang.job_id, f"notice:{event.slot}:{event.offset_s}:{event.instance_ids}"
        ),
        deadline_ns=_moment_ns(market, event.slot, event.offset_s + event.lead_s),
    )
    gang.notices.update({name: notice for name in event.instance_ids if name not in gang.gone})
    gang.disturb(event.instance_ids)


def _note_report(gang: Gang, event: ProgramReport, ts_event_ns: int) -> None:
    """Note that the program has said something; of another start than the present it says nothing."""
    if event.generation in (0, gang.generation):
        gang.reported_ns = max(gang.reported_ns, ts_event_ns)


def _note_exit(gang: Gang, event: JobExited) -> None:
    if event.generation < gang.generation:
        # Of a start that another one has followed.
        return
    gang.exited = max(gang.exited, event.generation)
    gang.stall = None
    gang.finished = gang.finished or event.exit_code == 0
    gang.awaits_retry = event.exit_code != 0


def _place(checkpoint: CheckpointCommitted) -> tuple[int, int]:
    return checkpoint.generation, checkpoint.step


def _moment_ns(market: MarketFold, slot: int, offset_s: int) -> int:
    opened = market.opened
    first_slot, start_ns = (
        (0, market.first_slot_start_ns) if opened is None else (opened.slot, opened.ts_event_ns)
    )
    return start_ns + ((slot - first_slot) * market.slot_s + offset_s) * NS_PER_S
