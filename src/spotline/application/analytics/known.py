"""Slots and jobs as far as the statistics know them, and until when.

What has expired counts no more, whether `forget` has dropped it by now or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spotline.application.analytics.observations import Observation
from spotline.application.analytics.store import NEVER
from spotline.application.market_view import ClockReading
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CostAccrued, SlotDecided
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.lifecycle import JobAdmitted, JobClosed, JobSubmitted
from spotline.domain.events.market import SlotOpened
from spotline.domain.events.placement import PipelineSubmitted, PlacementDecided, PlacementEnded
from spotline.domain.events.selection import PolicyWeightsUpdated
from spotline.domain.jobs.job import DeadlineKind
from spotline.domain.statistics.panes import Arrival
from spotline.domain.units import NS_PER_S

# Feedback follows when the slot after a job's last or its deadline's opens, whichever is later.
_FEEDBACK_SLOTS = 2

# A job keeps the first of each.
_OWN = (JobSubmitted, JobAdmitted, PipelineSubmitted, PlacementDecided, PlacementEnded, JobClosed)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSlot:
    """A slot that opened, with the on-demand price of each offering in micro-USD per hour."""

    observation: Observation
    start_s: int
    slot_s: int
    on_demand_price: Mapping[str, int]

    @property
    def end_s(self) -> int:
        """When it is over, in seconds of event time."""
        return self.start_s + self.slot_s


@dataclass(slots=True)
class KnownJob:
    """What is known of a job, or of a pipeline with its id, and until when it is kept.

    While it is open, `open_s` says when nothing of it is expected any more; once it has ended,
    `over_s` does. `touched_s` is when the last of what was said of it expires. All are event time,
    with the horizon.
    """

    hard: bool = False
    submitted: Observation | None = None
    admitted: Observation | None = None
    pipeline: Observation | None = None
    closed: Observation | None = None
    open_s: int = NEVER
    touched_s: int = NEVER
    over_s: int | None = None

    @property
    def begun(self) -> Observation | None:
        """The observation that says whose the job's bills are."""
        return self.admitted or self.pipeline

    @property
    def policy_id(self) -> str:
        """The policy a job drew; a pipeline draws none."""
        event = self.admitted.event if self.admitted is not None else None
        return event.policy_id if isinstance(event, JobAdmitted) else ""

    @property
    def expires_s(self) -> int:
        """From which watermark on it is as if it had never been."""
        return max(self.touched_s, self.open_s if self.over_s is None else self.over_s)

    @property
    def own(self) -> list[Observation]:
        """The observations that are kept as long as it is."""
        every = (self.submitted, self.admitted, self.pipeline, self.closed)
        return [observation for observation in every if observation is not None]


class MissingObservation(Exception):
    """An observation waits for another one: `what` says for which."""

    def __init__(self, what: tuple[str, str]) -> None:
        super().__init__()
        self.what = what


class Known:
    """The slots, the jobs and the decisions that observations are completed with.

    Parameters
    ----------
    horizon_s
        How long an observation can matter after its end.
    """

    def __init__(self, horizon_s: int) -> None:
        self._horizon_s = horizon_s
        # The watermark that what is placed now meets, or what it waited for.
        self.now_s = NEVER
        # When nothing needs an observation any more; of a job's own events, its job says.
        self.expires_s: dict[str, int] = {}
        self._slots: dict[int, KnownSlot] = {}
        self._slot_of_event: dict[str, int] = {}
        self._forecast: dict[int, Observation] = {}
        self._decided: dict[int, Observation] = {}
        self._jobs: dict[str, KnownJob] = {}
        self._grid: tuple[int, KnownSlot] | None = None

    def sizes(self) -> dict[str, int]:
        """How much is kept."""
        own = sum(len(job.own) for job in self._jobs.values())
        return {
            "observations": len(self.expires_s) + own,
            "slots": len(self._slots),
            "jobs": len(self._jobs),
        }

    def clock(self) -> ClockReading | None:
        """Market time by the latest slot that is kept, None without one."""
        if not self._slots:
            return None
        number = max(self._slots)
        slot = self._slots[number]
        opened = slot.observation.event
        return ClockReading(
            market_ns=slot.start_s * NS_PER_S,
            slot=number,
            slot_s=slot.slot_s,
            mode=opened.runs_in if isinstance(opened, SlotOpened) else None,
        )

    def is_repeated(self, observation: Observation) -> bool:
        """Whether an entry says again, under another id, what is known."""
        event = observation.event
        if isinstance(event, SlotOpened):
            return self._live_slot(event.slot) is not None
        if not isinstance(event, _OWN) or isinstance(event, JobClosed):
            return False
        job = self.live_job(job_id_of(event))
        if job is None:
            return False
        match event:
            case JobSubmitted():
                return job.submitted is not None
            case JobAdmitted():
                return job.admitted is not None
            case PipelineSubmitted():
                return job.pipeline is not None
        return job.closed is not None

    # --- noting -------------------------------------------------------------------------------

    def open_slot(self, observation: Observation, event: SlotOpened) -> KnownSlot:
        """Note a slot, and when it and what was said of it before expire."""
        slot = KnownSlot(
            observation=observation,
            start_s=event.ts_event_ns // NS_PER_S,
            slot_s=event.slot_s,
            on_demand_price={
                quoted.quote.offering_id: quoted.quote.on_demand_price_micro_usd
                for quoted in event.quotes
            },
        )
        before = self._slots.pop(event.slot, None)
        if before is not None:
            self._slot_of_event.pop(before.observation.event_id, None)
        self._slots[event.slot] = slot
        self._slot_of_event[observation.event_id] = event.slot
        self._grid = None
        self.expire(observation, slot)
        for earlier in (self._forecast.get(event.slot), self._decided.get(event.slot)):
            if earlier is not None and not self.is_expired(earlier.event_id):
                self.expire(earlier, slot)
        return slot

    def begin(
        self, observation: Observation, event: JobSubmitted | JobAdmitted | PipelineSubmitted
    ) -> str:
        """Note what a job begins with, and return its id.

        Of each kind, `is_repeated` lets through the first.
        """
        until_s = self._kept_from(observation)
        job_id = job_id_of(event)
        job = self._job(job_id)
        match event:
            case JobSubmitted():
                job.submitted = observation
                job.hard = event.job.deadline.kind is DeadlineKind.HARD
                until_s = max(until_s, event.job.deadline.expires_ns // NS_PER_S)
            case JobAdmitted():
                job.admitted = observation
            case PipelineSubmitted():
                job.pipeline = observation
        job.open_s = max(job.open_s, until_s + self._horizon_s)
        return job_id

    def end_pipeline(
        self, observation: Observation, event: PlacementDecided | PlacementEnded
    ) -> None:
        """Note that a pipeline is over."""
        job = self._job(event.job_id)
        job.closed = observation
        over_s = max(event.ts_event_ns // NS_PER_S, observation.watermark_s)
        job.over_s = over_s + self._horizon_s

    def forecast_slot(self, number: int, observation: Observation) -> None:
        """Note the first forecast of a slot."""
        self._place_once(self._forecast, number, observation)

    def decide_slot(self, number: int, observation: Observation) -> None:
        """Note the first decision of a slot."""
        self._place_once(self._decided, number, observation)

    def close(self, observation: Observation, event: JobClosed, slot: KnownSlot) -> None:
        """Note the first end of a job."""
        job = self._job(event.job_id)
        if job.closed is not None:
            return
        job.closed = observation
        over_s = slot.end_s
        if job.admitted is not None and isinstance(job.admitted.event, JobAdmitted):
            # Feedback comes at the deadline where the job was done before.
            left = job.admitted.event.deadline_slot - event.slot
            over_s += (max(0, left) + _FEEDBACK_SLOTS) * slot.slot_s
        job.over_s = over_s + self._horizon_s

    def touch(self, observation: Observation, slot: KnownSlot) -> None:
        """Keep the job of an observation as long as that."""
        job = self.live_job(job_id_of(observation.event))
        if job is not None:
            if job.closed is observation:
                self.expires_s.pop(observation.event_id, None)
            job.touched_s = max(job.touched_s, slot.end_s + self._horizon_s)

    def expire(self, observation: Observation, slot: KnownSlot | None) -> None:
        """Keep an observation as long as it matters; what waits, as if it had happened now."""
        end_s = self._kept_from(observation) if slot is None else slot.end_s
        self.expires_s[observation.event_id] = end_s + self._horizon_s

    # --- finding ------------------------------------------------------------------------------

    def slot(self, number: int) -> KnownSlot:
        """The slot of that number; raises `MissingObservation`, as what follows."""
        found = self._live_slot(number)
        if found is None:
            raise MissingObservation(("slot", str(number)))
        return found

    def slot_of(self, event_id: str) -> KnownSlot:
        """The slot whose opening has that event id."""
        number = self._slot_of_event.get(event_id)
        found = None if number is None else self._live_slot(number)
        if found is None:
            raise MissingObservation(("event", event_id))
        return found

    def decision(self, number: int) -> Observation:
        """The first decision of a slot that is known."""
        found = self._decided.get(number)
        if found is None or not self._met(found, self._slots[number]):
            raise MissingObservation(("decided", str(number)))
        return found

    def forecast(self, number: int, slot: KnownSlot) -> Observation | None:
        """The first forecast of a slot, if it was still kept when the slot came."""
        found = self._forecast.get(number)
        return found if found is not None and self._met(found, slot) else None

    def live_job(self, job_id: str) -> KnownJob | None:
        """The job, None where there is none or where it has expired."""
        job = self._jobs.get(job_id)
        if job is None or job.expires_s > self.now_s or not job.own:
            return job
        # Nothing of it is found any more; `forget` finds what is to be dropped.
        del self._jobs[job_id]
        self.expires_s.update({observation.event_id: job.expires_s for observation in job.own})
        return None

    def admitted(self, job_id: str) -> KnownJob:
        """The job or pipeline, which has begun."""
        job = self.live_job(job_id)
        if job is None or job.begun is None:
            raise MissingObservation(("job", job_id))
        return job

    def admission(self, job_id: str) -> tuple[KnownJob, JobAdmitted]:
        """The job and its admission; a pipeline of that id has none."""
        job = self.admitted(job_id)
        event = job.admitted.event if job.admitted is not None else None
        if not isinstance(event, JobAdmitted):
            raise MissingObservation(("job", job_id))
        return job, event

    def submitted(self, job_id: str) -> KnownJob:
        """The job, which was submitted."""
        job = self.live_job(job_id)
        if job is None or job.submitted is None:
            raise MissingObservation(("job", job_id))
        return job

    # --- time ---------------------------------------------------------------------------------

    def is_expired(self, event_id: str) -> bool:
        """Whether nothing needs an observation any more."""
        return self.expires_s.get(event_id, NEVER) <= self.now_s

    def is_usable(self, observation: Observation, arrival: Arrival, slot: KnownSlot) -> bool:
        """Whether an observation is complete before it, or what it waited for, is forgotten."""
        met_s = observation.watermark_s
        if met_s != NEVER and arrival.watermark_s >= met_s + self._horizon_s:
            return False
        return arrival.watermark_s < slot.end_s + self._horizon_s

    def is_too_late(self, observation: Observation) -> bool:
        """Whether no window can hold it any more, wherever it belongs."""
        end_s = self._end_s(observation.event)
        return end_s is not None and (end_s + self._horizon_s <= observation.watermark_s)

    def _end_s(self, event: Event) -> int | None:
        """When the slot of an event ends, by the grid; None where that is not known."""
        if isinstance(event, SlotOpened):
            return event.ts_event_ns // NS_PER_S + event.slot_s
        if not isinstance(
            event, CostAccrued | JobClosed | AllocationDecided | SlotDecided | ForecastIssued
        ):
            return None
        if self._grid is None or self.is_expired(self._grid[1].observation.event_id):
            live = [
                (number, slot)
                for number, slot in self._slots.items()
                if not self.is_expired(slot.observation.event_id)
            ]
            self._grid = max(live, default=None, key=lambda numbered: numbered[0])
        if self._grid is None:
            return None
        number, slot = self._grid
        return slot.end_s + (event.slot - number) * slot.slot_s

    def _kept_from(self, observation: Observation) -> int:
        """What counts as the time of an observation that has no slot yet."""
        met_s = observation.watermark_s
        # There is no time before the first slot; a few entries of the log's beginning.
        return -NEVER if met_s == NEVER else met_s

    def _met(self, observation: Observation, slot: KnownSlot) -> bool:
        """Whether an observation of a slot was still kept when the slot came."""
        met_s, came_s = observation.watermark_s, slot.observation.watermark_s
        return met_s == NEVER or came_s < met_s + self._horizon_s

    # --- forgetting ---------------------------------------------------------------------------

    def drop_expired(self, watermark_s: int) -> list[str]:
        """Drop the observations that nothing needs from there on; return their ids."""
        gone = [
            event_id for event_id, expires_s in self.expires_s.items() if expires_s <= watermark_s
        ]
        for event_id in gone:
            del self.expires_s[event_id]
        kept = self.expires_s
        self._slots = {n: s for n, s in self._slots.items() if s.observation.event_id in kept}
        self._slot_of_event = {e: n for e, n in self._slot_of_event.items() if e in kept}
        self._grid = None
        self._forecast = {n: o for n, o in self._forecast.items() if o.event_id in kept}
        self._decided = {n: o for n, o in self._decided.items() if o.event_id in kept}
        for job_id in [j for j, job in self._jobs.items() if job.expires_s <= watermark_s]:
            gone += [observation.event_id for observation in self._jobs.pop(job_id).own]
        return gone

    # --- plumbing -----------------------------------------------------------------------------

    def _place_once(
        self, places: dict[int, Observation], number: int, observation: Observation
    ) -> None:
        before = places.get(number)
        if before is None or self.is_expired(before.event_id):
            places[number] = observation
        self.expire(observation, self._live_slot(number))

    def _job(self, job_id: str) -> KnownJob:
        """The job, as new where it has expired."""
        job = self.live_job(job_id)
        if job is None:
            job = self._jobs[job_id] = KnownJob()
        return job

    def _live_slot(self, number: int) -> KnownSlot | None:
        slot = self._slots.get(number)
        if slot is None or self.is_expired(slot.observation.event_id):
            return None
        return slot


def job_id_of(event: Event) -> str:
    """The job or pipeline that an event is about, empty where it is about none."""
    match event:
        case JobSubmitted():
            return event.job.job_id
        case PipelineSubmitted():
            return event.pipeline.job_id
        case (
            JobAdmitted()
            | JobClosed()
            | PlacementDecided()
            | PlacementEnded()
            | CostAccrued()
            | AllocationDecided()
            | PolicyWeightsUpdated()
        ):
            return event.job_id
    return ""
