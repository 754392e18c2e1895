"""Statistics as a fold over the log: what every entry adds, closes and revises.

An observation that is made of several events (a bill needs its slot's quote, and the policy its job
had drawn) is complete with the last of them. It belongs to its slot: bills and quotes cover it, all
else happened at its opening.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from spotline.application.analytics.observations import LONGEST_SLOT_S, Observation, counts, essence
from spotline.application.analytics.options import StatisticsOptions
from spotline.application.analytics.store import (
    NEVER,
    Issue,
    LateCounts,
    Statistics,
    StatisticsStore,
    issue_key,
    load_issued,
    note_watermark,
)
from spotline.application.spec import Spec, derive_id
from spotline.contracts.subjects import KINDS
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CostAccrued, SlotDecided
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.lifecycle import JobAdmitted, JobClosed, JobOutcome, JobSubmitted
from spotline.domain.events.market import SlotOpened
from spotline.domain.events.placement import PipelineSubmitted, PlacementDecided, PlacementEnded
from spotline.domain.events.selection import PolicyWeightsUpdated
from spotline.domain.events.statistics import MarketStatisticsIssued, PlatformStatisticsIssued
from spotline.domain.jobs.job import DeadlineKind
from spotline.domain.market.offering import CapacityType
from spotline.domain.statistics.figures import ALL_TENANTS
from spotline.domain.statistics.market import UNKNOWN, MarketLaw, MarketPiece, MarketTally
from spotline.domain.statistics.market import market_pieces as cut_quote
from spotline.domain.statistics.panes import Arrival, Panes
from spotline.domain.statistics.platform import (
    BillPart,
    Ending,
    JobFeedback,
    PlatformLaw,
    PlatformPiece,
    PlatformTally,
    SlotLatency,
    bill_pieces,
)
from spotline.domain.statistics.windows import Window, pane_s_of
from spotline.domain.units import NS_PER_S, cost_micro_usd

SPEC = Spec(
    service="analytics",
    consumes=(
        SlotOpened,
        ForecastIssued,
        JobSubmitted,
        JobAdmitted,
        JobClosed,
        AllocationDecided,
        SlotDecided,
        CostAccrued,
        PolicyWeightsUpdated,
        PipelineSubmitted,
        PlacementDecided,
        PlacementEnded,
    ),
    produces=(MarketStatisticsIssued, PlatformStatisticsIssued),
    decides=(MarketStatisticsIssued, PlatformStatisticsIssued),
)

# Feedback follows when the slot after a job's last or its deadline's opens, whichever is later.
_FEEDBACK_SLOTS = 2

_CONSUMED = frozenset(SPEC.consumes)

# How many observations are loaded between two chances for others to run; some 10 ms.
_SLICE = 256

_HITS = {
    JobOutcome.COMPLETED: True,
    JobOutcome.COMPLETED_LATE: False,
    JobOutcome.MISSED_DEADLINE: False,
    JobOutcome.EXPIRED: False,
    JobOutcome.CANCELLED: None,
}

# --- what is derived from it ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slot:
    observation: Observation
    start_s: int
    slot_s: int
    on_demand_price: Mapping[str, int]

    @property
    def end_s(self) -> int:
        return self.start_s + self.slot_s


@dataclass(slots=True)
class _Job:
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
        """What says whose its bills are."""
        return self.admitted or self.pipeline

    @property
    def expires_s(self) -> int:
        """From which watermark on it is as if it had never been."""
        return max(self.touched_s, self.open_s if self.over_s is None else self.over_s)

    @property
    def own(self) -> list[Observation]:
        """The observations that are kept as long as it is."""
        every = (self.submitted, self.admitted, self.pipeline, self.closed)
        return [one for one in every if one is not None]


@dataclass(frozen=True, slots=True, order=True)
class _Late:
    seq: int
    event_id: str
    start_s: int
    end_s: int
    watermark_s: int
    dropped: bool


@dataclass(frozen=True, slots=True)
class _Mark:
    """The watermark from the entry `seq` on, and the latest opening behind it."""

    seq: int
    watermark_s: int
    opened_s: int


# A job keeps the first of each.
_OWN = (JobSubmitted, JobAdmitted, PipelineSubmitted, PlacementDecided, PlacementEnded, JobClosed)


class _Missing(Exception):
    """An observation waits for another one."""

    def __init__(self, what: tuple[str, str]) -> None:
        super().__init__()
        self.what = what


class StatisticsFold:
    """Takes the log's entries in order and says what to issue.

    Parameters
    ----------
    options
        What is issued.
    store
        What an earlier fold over the same log left, or an empty one.
    """

    def __init__(self, options: StatisticsOptions, store: StatisticsStore | None = None) -> None:
        self._options = options
        self._store = store or StatisticsStore()
        self._pane_s = pane_s_of(options.windows)
        for _ in self.load():
            pass

    @classmethod
    def unloaded(cls, options: StatisticsOptions, store: StatisticsStore) -> StatisticsFold:
        """One that is of no use before its `load` has come to an end."""
        fold = cls(options)
        fold._store = store
        return fold

    def load(self, *, before_seq: int | None = None) -> Iterator[None]:
        """Derive everything from the observations in the store, slice by slice.

        What was observed from the entry `before_seq` on is dropped first: it is taken again. The
        store must be left alone until the iterator ends.
        """
        self._market: dict[str, Panes[MarketPiece, MarketTally]] = {}
        self._platform: dict[str, Panes[PlatformPiece, PlatformTally]] = {}
        self._slots: dict[int, _Slot] = {}
        self._slot_of_event: dict[str, int] = {}
        self._openings: list[tuple[int, int]] = []  # start_s and the watermark met, by time
        self._forecast: dict[int, Observation] = {}
        self._decided: dict[int, Observation] = {}
        self._jobs: dict[str, _Job] = {}
        self._waiting: dict[tuple[str, str], list[Observation]] = {}
        self._marks: list[_Mark] = []
        self._late: list[_Late] = []
        # When nothing needs an observation any more; of a job's own events, its job says.
        self._expires_s: dict[str, int] = {}
        self._grid: tuple[int, _Slot] | None = None
        # The watermark that what is placed now meets, or what it waited for.
        self._now_s = NEVER
        self._forgotten_s = NEVER
        self._taken_seq = -1
        self._counted = LateCounts.of(self._store)
        order: list[tuple[int, str]] = []
        observations = self._store.observations
        for number, event_id in enumerate(list(observations)):
            seq = int(observations[event_id].partition(b" ")[0])
            if before_seq is None or seq < before_seq:
                order.append((seq, event_id))
            else:
                observations.pop(event_id, None)
            if number % (8 * _SLICE) == 0:
                yield
        order.sort()
        for number, (seq, event_id) in enumerate(order):
            self._place(Observation.load(event_id, observations[event_id]))
            self._taken_seq = seq
            if number % _SLICE == 0:
                yield

    @property
    def watermark_s(self) -> int:
        """As of the last entry known; `NEVER` before the first slot."""
        return self._marks[-1].watermark_s if self._marks else NEVER

    @property
    def late(self) -> LateCounts:
        """How much came late so far."""
        return self._counted

    def sizes(self) -> dict[str, int]:
        """How much is kept."""
        own = sum(len(job.own) for job in self._jobs.values())
        return {
            "observations": len(self._expires_s) + own,
            "panes": sum(map(len, self._market.values())) + sum(map(len, self._platform.values())),
            "slots": len(self._slots),
            "jobs": len(self._jobs),
            "waiting": sum(len(one) for one in self._waiting.values()),
        }

    def take(
        self, event: Event, *, event_id: str, seq: int, stored_ns: int, causation_id: str = ""
    ) -> Sequence[Issue]:
        """Take the log's next entry; what is to be issued for it.

        Entries come in `seq` order. An earlier one than the last means that they are taken again
        from there on, as after a restart: what is known from beyond it is let go, and what was
        issued already is not returned. Whoever issues what is returned says so by `issued`, and
        only when it is stored.
        """
        if type(event) not in _CONSUMED or not counts(event):
            return ()
        if seq <= self._taken_seq:
            for _ in self.load(before_seq=seq):
                pass
        self._taken_seq = seq
        observation = Observation(
            event_id=event_id,
            seq=seq,
            stored_ns=stored_ns,
            watermark_s=self.watermark_s,
            causation_id=causation_id,
            event=essence(event),
        )
        self._now_s = observation.watermark_s
        # First of all: what came twice, and is forgotten, looks as if it came late.
        if self._too_late(observation):
            self._count_late(seq, too_late=1)
            return ()
        if self._known(event_id) or self._repeated(observation):
            return ()
        self._store.observations[event_id] = observation.dump()
        self._place(observation)
        self._count_late(seq)
        if isinstance(event, SlotOpened):
            note_watermark(self._store, self.watermark_s)
            return self._advance(seq, event_id)
        return ()

    def issued(self, issues: Iterable[Issue]) -> None:
        """Note that `issues` are stored: they are not returned again."""
        for issue in issues:
            self._store.issued[issue.key] = issue.dump()

    def forget(self, seq: int) -> None:
        """Drop what no entry behind `seq` can need.

        After a restart entries are taken again from some entry on: `seq` must lie before it.
        """
        watermark_s = self._before(seq + 1).watermark_s
        if watermark_s < self._forgotten_s + self._pane_s:
            return
        self._forgotten_s = watermark_s
        gone = [one for one, expires_s in self._expires_s.items() if expires_s <= watermark_s]
        for event_id in gone:
            del self._expires_s[event_id]
            self._store.observations.pop(event_id, None)
        self._forget_derived(watermark_s)
        for job_id in [j for j, job in self._jobs.items() if job.expires_s <= watermark_s]:
            for one in self._jobs.pop(job_id).own:
                self._store.observations.pop(one.event_id, None)
        kept_s = watermark_s - self._options.history_s
        for key in [one for one in self._store.issued if int(one.split(" ", 4)[3]) <= kept_s]:
            self._store.issued.pop(key, None)

    # --- placing observations -----------------------------------------------------------------
    # What has expired counts no more, whether `forget` has dropped it by now or not.

    def _place(self, observation: Observation) -> None:
        """Work an observation into what is derived from the store."""
        event = observation.event
        self._now_s = observation.watermark_s
        match event:
            case SlotOpened():
                self._place_slot(observation, event)
            case JobSubmitted() | JobAdmitted() | PipelineSubmitted():
                self._place_begin(observation, event)
            case PlacementDecided() | PlacementEnded():
                job = self._job(event.job_id)
                job.closed = observation
                over_s = max(event.ts_event_ns // NS_PER_S, observation.watermark_s)
                job.over_s = over_s + self._options.horizon_s
            case ForecastIssued():
                self._place_once(self._forecast, event.slot, observation)
            case SlotDecided():
                self._place_once(self._decided, event.slot, observation)
                self._found(("decided", str(event.slot)))
            case _:
                self._resolve(observation)

    def _place_begin(
        self, observation: Observation, event: JobSubmitted | JobAdmitted | PipelineSubmitted
    ) -> None:
        """Note what a job begins with; of each kind, `_repeated` lets through the first."""
        until_s = self._kept_from(observation)
        match event:
            case JobSubmitted():
                job_id = event.job.job_id
                job = self._job(job_id)
                job.submitted = observation
                job.hard = event.job.deadline.kind is DeadlineKind.HARD
                until_s = max(until_s, event.job.deadline.expires_ns // NS_PER_S)
            case JobAdmitted():
                job_id = event.job_id
                job = self._job(job_id)
                job.admitted = observation
            case PipelineSubmitted():
                job_id = event.pipeline.job_id
                job = self._job(job_id)
                job.pipeline = observation
        job.open_s = max(job.open_s, until_s + self._options.horizon_s)
        self._found(("job", job_id))

    def _place_once(
        self, places: dict[int, Observation], number: int, observation: Observation
    ) -> None:
        """Note the first one of its slot."""
        before = places.get(number)
        if before is None or self._is_expired(before.event_id):
            places[number] = observation
        self._expire(observation, self._live_slot(number))

    def _job(self, job_id: str) -> _Job:
        """The job, as new where it has expired."""
        job = self._live_job(job_id)
        if job is None:
            job = self._jobs[job_id] = _Job()
        return job

    def _live_job(self, job_id: str) -> _Job | None:
        job = self._jobs.get(job_id)
        if job is None or job.expires_s > self._now_s or not job.own:
            return job
        # Nothing of it is found any more; `forget` finds what is to be dropped.
        del self._jobs[job_id]
        self._expires_s.update({one.event_id: job.expires_s for one in job.own})
        return None

    def _live_slot(self, number: int) -> _Slot | None:
        slot = self._slots.get(number)
        if slot is None or self._is_expired(slot.observation.event_id):
            return None
        return slot

    def _is_expired(self, event_id: str) -> bool:
        return self._expires_s.get(event_id, NEVER) <= self._now_s

    def _known(self, event_id: str) -> bool:
        """Whether an entry is one that counts already."""
        if event_id in self._expires_s:
            return not self._is_expired(event_id)
        dumped = self._store.observations.get(event_id)
        if dumped is None:
            return False
        # It is one of a job's own.
        event = Observation.load(event_id, dumped).event
        return self._live_job(_job_id_of(event)) is not None

    def _repeated(self, observation: Observation) -> bool:
        """Whether an entry says again, under another id, what is known."""
        event = observation.event
        if isinstance(event, SlotOpened):
            return self._live_slot(event.slot) is not None
        if not isinstance(event, _OWN) or isinstance(event, JobClosed):
            return False
        job = self._live_job(_job_id_of(event))
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

    def _place_slot(self, observation: Observation, event: SlotOpened) -> None:
        start_s = event.ts_event_ns // NS_PER_S
        slot = _Slot(
            observation=observation,
            start_s=start_s,
            slot_s=event.slot_s,
            on_demand_price={
                one.quote.offering_id: one.quote.on_demand_price_micro_usd for one in event.quotes
            },
        )
        before = self._slots.pop(event.slot, None)
        if before is not None:
            self._slot_of_event.pop(before.observation.event_id, None)
        self._slots[event.slot] = slot
        self._slot_of_event[observation.event_id] = event.slot
        self._grid = None
        bisect.insort(self._openings, (start_s, observation.watermark_s))
        self._mark(observation.seq, start_s - self._options.delay_slots * event.slot_s, start_s)
        arrival = self._arrival(observation, slot)
        self._expire(observation, slot)
        for one in (self._forecast.get(event.slot), self._decided.get(event.slot)):
            if one is not None and not self._is_expired(one.event_id):
                self._expire(one, slot)
        for quoted in event.quotes:
            quote = quoted.quote
            panes = self._market.setdefault(quote.offering_id, Panes(self._pane_s, MarketLaw()))
            count = quote.spot_available
            for piece in cut_quote(
                arrival,
                slot_s=event.slot_s,
                spot_price=quote.spot_price_micro_usd,
                on_demand_price=quote.on_demand_price_micro_usd,
                available=count.instances if count.known else UNKNOWN,
                pane_s=self._pane_s,
            ):
                panes.add(piece)
        self._note_late(arrival, slot)
        self._found(("slot", str(event.slot)))
        self._found(("event", observation.event_id))

    def _found(self, what: tuple[str, str]) -> None:
        """Resolve what waited."""
        for observation in self._waiting.pop(what, ()):
            if not self._is_expired(observation.event_id):
                self._resolve(observation)

    def _resolve(self, observation: Observation) -> None:
        """Turn an observation into pieces, or let it wait for what it lacks."""
        try:
            slot, tenant, pieces = self._pieces(observation)
        except _Missing as missing:
            self._waiting.setdefault(missing.what, []).append(observation)
            self._expire(observation, None)
            return
        self._expire(observation, slot)
        self._touch(observation, slot)
        parts = list(pieces)
        arrival = parts[0].arrival
        if not self._usable(observation, arrival, slot):
            return
        for name in {tenant, ALL_TENANTS}:
            panes = self._platform.setdefault(name, Panes(self._pane_s, PlatformLaw()))
            for piece in parts:
                panes.add(piece)
        self._note_late(arrival, slot)

    def _pieces(self, observation: Observation) -> tuple[_Slot, str, Iterable[PlatformPiece]]:
        event = observation.event
        match event:
            case CostAccrued():
                slot, job = self._slot(event.slot), self._admitted(event.job_id)
                return slot, event.tenant, self._bill(observation, event, slot, job)
            case JobClosed():
                slot, job = self._slot(event.slot), self._submitted(event.job_id)
                self._close(observation, event, slot)
                said = Ending(hard=job.hard, hit=_HITS[event.outcome])
                arrival = self._arrival(observation, slot, job.submitted)
                return slot, event.tenant, _point(arrival, event.policy_id, said)
            case PolicyWeightsUpdated():
                slot = self._slot_of(observation.causation_id)
                job, admitted = self._admission(event.job_id)
                utilities = {one.policy_id: one.utility_micro_usd for one in event.weights}
                feedback = JobFeedback(
                    utilities=utilities, drawn_micro_usd=utilities.get(admitted.policy_id, 0)
                )
                arrival = self._arrival(observation, slot, job.admitted)
                return slot, admitted.tenant, _point(arrival, admitted.policy_id, feedback)
            case AllocationDecided():
                slot, decided = self._slot(event.slot), self._decision(event.slot)
                latency = self._latency(event.slot, slot, decided)
                arrival = self._arrival(observation, slot, decided)
                return slot, event.tenant, _point(arrival, event.policy_id, latency)
        raise TypeError(f"{type(event).__name__} is no observation")

    def _bill(
        self, observation: Observation, event: CostAccrued, slot: _Slot, job: _Job
    ) -> Iterator[PlatformPiece]:
        spot = event.capacity_type is CapacityType.SPOT
        instance_s = event.instances * event.held_s
        # Copying a checkpoint has no instances, and whoever stays on demand does not copy.
        price = slot.on_demand_price.get(event.offering_id, event.price_micro_usd)
        bill = BillPart(
            spend=event.cost_micro_usd,
            on_demand_equivalent=cost_micro_usd(price, event.instances, event.held_s),
            spot_s=instance_s if spot else 0,
            on_demand_s=0 if spot else instance_s,
        )
        return bill_pieces(
            self._arrival(observation, slot, job.begun),
            _policy_of(job),
            bill,
            slot_s=slot.slot_s,
            pane_s=self._pane_s,
        )

    def _latency(self, number: int, slot: _Slot, decided: Observation) -> SlotLatency:
        forecast = self._forecast.get(number)
        after_forecast_ns = None
        # One that came behind the decision was overdue and is not what it waited for.
        if forecast is not None and forecast.seq < decided.seq and self._met(forecast, slot):
            after_forecast_ns = max(0, decided.stored_ns - forecast.stored_ns)
        return SlotLatency(
            slot=number,
            after_slot_ns=max(0, decided.stored_ns - slot.observation.stored_ns),
            after_forecast_ns=after_forecast_ns,
        )

    def _close(self, observation: Observation, event: JobClosed, slot: _Slot) -> None:
        job = self._job(event.job_id)
        if job.closed is not None:
            return
        job.closed = observation
        over_s = slot.end_s
        if job.admitted is not None and isinstance(job.admitted.event, JobAdmitted):
            # Feedback comes at the deadline where the job was done before.
            left = job.admitted.event.deadline_slot - event.slot
            over_s += (max(0, left) + _FEEDBACK_SLOTS) * slot.slot_s
        job.over_s = over_s + self._options.horizon_s

    def _touch(self, observation: Observation, slot: _Slot) -> None:
        """Keep the job of an observation as long as that."""
        job = self._live_job(_job_id_of(observation.event))
        if job is not None:
            if job.closed is observation:
                self._expires_s.pop(observation.event_id, None)
            job.touched_s = max(job.touched_s, slot.end_s + self._options.horizon_s)

    def _slot(self, number: int) -> _Slot:
        found = self._live_slot(number)
        if found is None:
            raise _Missing(("slot", str(number)))
        return found

    def _slot_of(self, event_id: str) -> _Slot:
        number = self._slot_of_event.get(event_id)
        found = None if number is None else self._live_slot(number)
        if found is None:
            raise _Missing(("event", event_id))
        return found

    def _decision(self, number: int) -> Observation:
        found = self._decided.get(number)
        if found is None or not self._met(found, self._slots[number]):
            raise _Missing(("decided", str(number)))
        return found

    def _admitted(self, job_id: str) -> _Job:
        job = self._live_job(job_id)
        if job is None or job.begun is None:
            raise _Missing(("job", job_id))
        return job

    def _admission(self, job_id: str) -> tuple[_Job, JobAdmitted]:
        """The job and its admission; a pipeline of that id has none."""
        job = self._admitted(job_id)
        event = job.admitted.event if job.admitted is not None else None
        if not isinstance(event, JobAdmitted):
            raise _Missing(("job", job_id))
        return job, event

    def _submitted(self, job_id: str) -> _Job:
        job = self._live_job(job_id)
        if job is None or job.submitted is None:
            raise _Missing(("job", job_id))
        return job

    # --- time ---------------------------------------------------------------------------------

    def _mark(self, seq: int, watermark_s: int, opened_s: int) -> None:
        """Note that the slot stored as `seq` moves the watermark there, if it does."""
        marks = self._marks
        place = bisect.bisect_left(marks, seq, key=_seq_of)
        if place and marks[place - 1].watermark_s >= watermark_s:
            return
        behind = [one for one in marks[place:] if one.watermark_s > watermark_s]
        marks[place:] = [_Mark(seq, watermark_s, opened_s), *behind]

    def _before(self, seq: int) -> _Mark:
        """The watermark that the entry `seq` meets."""
        place = bisect.bisect_left(self._marks, seq, key=_seq_of)
        return self._marks[place - 1] if place else _Mark(-1, NEVER, NEVER)

    def _arrival(
        self, observation: Observation, slot: _Slot, other: Observation | None = None
    ) -> Arrival:
        """When an observation was complete: with the last of what it is made of."""
        parts = [observation, slot.observation, *([other] if other is not None else [])]
        return Arrival(
            event_id=observation.event_id,
            seq=max(one.seq for one in parts),
            watermark_s=max(one.watermark_s for one in parts),
            at_s=slot.start_s,
        )

    def _expire(self, observation: Observation, slot: _Slot | None) -> None:
        """Keep an observation as long as it matters; what waits, as if it had happened now."""
        end_s = self._kept_from(observation) if slot is None else slot.end_s
        self._expires_s[observation.event_id] = end_s + self._options.horizon_s

    def _kept_from(self, observation: Observation) -> int:
        """What counts as the time of an observation that has no slot yet."""
        met_s = observation.watermark_s
        # There is no time before the first slot; a few entries of the log's beginning.
        return -NEVER if met_s == NEVER else met_s

    def _met(self, observation: Observation, slot: _Slot) -> bool:
        """Whether an observation of a slot was still kept when the slot came."""
        met_s, came_s = observation.watermark_s, slot.observation.watermark_s
        return met_s == NEVER or came_s < met_s + self._options.horizon_s

    def _usable(self, observation: Observation, arrival: Arrival, slot: _Slot) -> bool:
        """Whether an observation is complete before it, or what it waited for, is forgotten."""
        horizon_s = self._options.horizon_s
        met_s = observation.watermark_s
        if met_s != NEVER and arrival.watermark_s >= met_s + horizon_s:
            return False
        return arrival.watermark_s < slot.end_s + horizon_s

    def _too_late(self, observation: Observation) -> bool:
        """Whether no window can hold it any more, wherever it belongs."""
        end_s = self._end_s(observation.event)
        return end_s is not None and (end_s + self._options.horizon_s <= observation.watermark_s)

    def _end_s(self, event: Event) -> int | None:
        """When the slot of an event ends, by the grid; None where that is not known."""
        if isinstance(event, SlotOpened):
            return event.ts_event_ns // NS_PER_S + event.slot_s
        if not isinstance(
            event, CostAccrued | JobClosed | AllocationDecided | SlotDecided | ForecastIssued
        ):
            return None
        if self._grid is None or self._is_expired(self._grid[1].observation.event_id):
            live = [one for one in self._slots.items() if not self._is_expired(_id_of(one[1]))]
            self._grid = max(live, default=None, key=lambda one: one[0])
        if self._grid is None:
            return None
        number, slot = self._grid
        return slot.end_s + (event.slot - number) * slot.slot_s

    def _note_late(self, arrival: Arrival, slot: _Slot) -> None:
        """Remember an observation that at least one window had closed without."""
        end_s = min(spec.first_end_s(arrival.at_s) for spec in self._options.windows)
        if arrival.watermark_s >= end_s:
            late = _Late(
                arrival.seq,
                arrival.event_id,
                arrival.at_s,
                slot.end_s,
                arrival.watermark_s,
                arrival.watermark_s >= end_s + self._options.grace_s,
            )
            bisect.insort(self._late, late)

    def _count_late(self, seq: int, *, too_late: int = 0) -> None:
        before = self._counted
        if before.seq >= seq:
            return
        came = [one.dropped for one in self._late_between(seq - 1, seq)]
        if came or too_late:
            merged = before.merged + came.count(False)
            dropped = before.dropped + came.count(True) + too_late
            self._counted = LateCounts(seq=seq, merged=merged, dropped=dropped)
            self._counted.note(self._store)

    def _late_between(self, after_seq: int, until_seq: int) -> list[_Late]:
        first = bisect.bisect_left(self._late, after_seq + 1, key=_seq_of)
        last = bisect.bisect_left(self._late, until_seq + 1, key=_seq_of)
        return self._late[first:last]

    # --- closing windows ----------------------------------------------------------------------

    def _advance(self, seq: int, event_id: str) -> Sequence[Issue]:
        """Put together what a slot closes, and what late observations changed before it."""
        place = bisect.bisect_left(self._marks, seq, key=_seq_of)
        if not 0 < place < len(self._marks) or self._marks[place].seq != seq:
            return ()
        before, now = self._marks[place - 1], self._marks[place]
        windows: set[Window] = set()
        for spec in self._options.windows:
            # Nothing begins in a window that begins behind the latest slot.
            until_s = min(now.watermark_s, before.opened_s + spec.size_s)
            windows.update(spec.closed_between(before.watermark_s, until_s))
            for late in self._late_between(before.seq, seq):
                # A window right behind it sees what changed at its beginning.
                for window in spec.over(late.start_s, late.end_s + 1):
                    closed = window.end_s <= before.watermark_s
                    if closed and late.watermark_s < window.end_s + self._options.grace_s:
                        windows.add(window)
        issues: list[Issue] = []
        for window in sorted(windows, key=lambda one: (one.end_s, one.size_s, one.hop_s)):
            issues.extend(self._put_together(window, seq, event_id))
        return issues

    def _put_together(self, window: Window, seq: int, event_id: str) -> Iterator[Issue]:
        grace_s = self._options.grace_s
        if not self._opens_in(window):
            return
        when = {
            "ts_event_ns": window.end_s * NS_PER_S,
            "window_s": window.size_s,
            "hop_s": window.hop_s,
            "revision": 0,
        }
        for offering_id, market in sorted(self._market.items()):
            quoted = market.combine(window, grace_s)
            if quoted is not None:
                figures = quoted.tally.figures()
                event: Statistics = MarketStatisticsIssued(
                    offering_id=offering_id, late=quoted.late, figures=figures, **when
                )
                yield from self._revised(event, seq, event_id)
        for tenant, platform in sorted(self._platform.items()):
            done = platform.combine(window, grace_s)
            if done is not None:
                event = PlatformStatisticsIssued(
                    tenant=tenant,
                    late=done.late,
                    total=done.tally.total(),
                    policies=done.tally.policies(),
                    **when,
                )
                yield from self._revised(event, seq, event_id)

    def _opens_in(self, window: Window) -> bool:
        """Whether a slot opens in a window; one in which none does says nothing new."""
        first = bisect.bisect_left(self._openings, (window.start_s, NEVER))
        for start_s, met_s in self._openings[first:]:
            if start_s >= window.end_s:
                return False
            if met_s < window.end_s + self._options.grace_s:
                return True
        return False

    def _revised(self, event: Statistics, seq: int, event_id: str) -> Iterator[Issue]:
        """The next revision of a result, unless it is what was issued already."""
        key = issue_key(event)
        dumped = self._store.issued.get(key)
        if dumped is not None:
            issued_seq, last = load_issued(dumped)
            event = replace(event, revision=last.revision)
            # This very entry led to it before a restart, or one behind it.
            if issued_seq >= seq or event == last:
                return
            event = replace(event, revision=last.revision + 1)
        kind = KINDS[type(event)]
        yield Issue(
            key=key,
            event_id=derive_id(f"{SPEC.service} {key}", kind, event.revision),
            seq=seq,
            causation_id=event_id,
            event=event,
        )

    # --- forgetting ---------------------------------------------------------------------------

    def _forget_derived(self, watermark_s: int) -> None:
        kept = self._expires_s
        self._slots = {n: s for n, s in self._slots.items() if s.observation.event_id in kept}
        self._slot_of_event = {e: n for e, n in self._slot_of_event.items() if e in kept}
        first_s = watermark_s - self._options.horizon_s - LONGEST_SLOT_S
        self._openings = [one for one in self._openings if one[0] > first_s]
        self._grid = None
        self._forecast = {n: o for n, o in self._forecast.items() if o.event_id in kept}
        self._decided = {n: o for n, o in self._decided.items() if o.event_id in kept}
        self._waiting = {
            what: left
            for what, waiting in self._waiting.items()
            if (left := [one for one in waiting if one.event_id in kept])
        }
        before_s = watermark_s - self._options.horizon_s
        for market in self._market.values():
            market.forget_before(before_s)
        for platform in self._platform.values():
            platform.forget_before(before_s)
        self._market = {key: panes for key, panes in self._market.items() if len(panes)}
        self._platform = {key: panes for key, panes in self._platform.items() if len(panes)}
        first = bisect.bisect_left(self._marks, watermark_s, key=lambda one: one.watermark_s)
        del self._marks[: max(0, first - 1)]
        horizon_s = self._options.horizon_s
        self._late = [one for one in self._late if one.end_s + horizon_s > watermark_s]


def _seq_of(one: _Mark | _Late) -> int:
    return one.seq


def _id_of(slot: _Slot) -> str:
    return slot.observation.event_id


def _job_id_of(event: Event) -> str:
    """The job or pipeline that an event is about."""
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


def _policy_of(job: _Job) -> str:
    """The policy a job drew; a pipeline draws none."""
    event = job.admitted.event if job.admitted is not None else None
    return event.policy_id if isinstance(event, JobAdmitted) else ""


def _point(
    arrival: Arrival, policy_id: str, said: Ending | JobFeedback | SlotLatency
) -> Iterator[PlatformPiece]:
    yield PlatformPiece(arrival=arrival, start_s=arrival.at_s, policy_id=policy_id, said=said)
