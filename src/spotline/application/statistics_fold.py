"""Statistics as a fold over the log: what every entry adds, closes and revises.

An observation that is made of several events (a bill needs its slot's quote, and the policy its job
had drawn) is complete with the last of them. It belongs to its slot: bills and quotes cover it, all
else happened at its opening.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from spotline.application.spec import derive_id
from spotline.application.statistics import (
    NEVER,
    SPEC,
    Issue,
    LateCounts,
    Observation,
    Statistics,
    StatisticsOptions,
    StatisticsStore,
    counts,
    essence,
    issue_key,
    load_issued,
)
from spotline.contracts.subjects import KINDS
from spotline.domain.events import (
    AllocationDecided,
    CostAccrued,
    Event,
    ForecastIssued,
    JobAdmitted,
    JobClosed,
    JobOutcome,
    JobSubmitted,
    MarketStatisticsIssued,
    PipelineSubmitted,
    PlacementDecided,
    PlacementEnded,
    PlatformStatisticsIssued,
    PolicyWeightsUpdated,
    SlotDecided,
    SlotOpened,
)
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

# Feedback follows when the slot after a job's last or its deadline's opens, whichever is later.
_FEEDBACK_SLOTS = 2

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
    """What is known of a job; `over_s` is when nothing of it can follow any more."""

    hard: bool = False
    submitted: Observation | None = None
    admitted: Observation | None = None
    closed: Observation | None = None
    over_s: int | None = None


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
        self._load()

    def _load(self) -> None:
        """Derive everything from the observations in the store."""
        self._market: dict[str, Panes[MarketPiece, MarketTally]] = {}
        self._platform: dict[str, Panes[PlatformPiece, PlatformTally]] = {}
        self._slots: dict[int, _Slot] = {}
        self._slot_of_event: dict[str, int] = {}
        self._openings: list[tuple[int, int]] = []  # start_s and slot, by time
        self._forecast: dict[int, Observation] = {}
        self._decided: dict[int, Observation] = {}
        self._jobs: dict[str, _Job] = {}
        self._waiting: dict[tuple[str, str], list[Observation]] = {}
        self._marks: list[_Mark] = []
        self._late: list[_Late] = []
        # When nothing needs an observation any more; of a job's own events, its job says.
        self._expires_s: dict[str, int] = {}
        self._forgotten_s = NEVER
        self._taken_seq = -1
        loaded = [Observation.load(*item) for item in self._store.observations.items()]
        for observation in sorted(loaded, key=lambda one: (one.seq, one.event_id)):
            self._place(observation)
            self._taken_seq = observation.seq

    @property
    def watermark_s(self) -> int:
        """As of the last entry known; `NEVER` before the first slot."""
        return self._marks[-1].watermark_s if self._marks else NEVER

    @property
    def late(self) -> LateCounts:
        """How much came late so far."""
        dumped = self._store.counters.get("late")
        if dumped is None:
            return LateCounts()
        seq, merged, dropped = (int(one) for one in dumped.split())
        return LateCounts(seq=seq, merged=merged, dropped=dropped)

    def sizes(self) -> dict[str, int]:
        """How much is kept."""
        return {
            "observations": len(self._expires_s) + 3 * len(self._jobs),
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
        if not counts(event):
            return ()
        if seq <= self._taken_seq:
            self._rewind(seq)
        self._taken_seq = seq
        known = self._store.observations.get(event_id)
        observation = Observation(
            event_id=event_id,
            seq=seq,
            stored_ns=stored_ns,
            watermark_s=self.watermark_s,
            causation_id=causation_id,
            event=essence(event),
        )
        # First of all: what came twice, and is forgotten, looks as if it came late.
        if self._too_late(observation):
            self._count_late(seq, too_late=1)
            return ()
        if known is not None or self._repeated_slot(observation):
            return ()
        self._store.observations[event_id] = observation.dump()
        self._place(observation)
        self._count_late(seq)
        if isinstance(event, SlotOpened):
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
        for job_id in [j for j, job in self._jobs.items() if self._gone(job, watermark_s)]:
            job = self._jobs.pop(job_id)
            for one in (job.submitted, job.admitted, job.closed):
                if one is not None:
                    self._store.observations.pop(one.event_id, None)
        kept_s = watermark_s - self._options.history_s
        for key in [one for one in self._store.issued if int(one.split(" ", 4)[3]) <= kept_s]:
            self._store.issued.pop(key, None)

    def _rewind(self, seq: int) -> None:
        """Be as before the entry `seq`, whatever of those behind it was kept."""
        kept = self._store.observations
        for event_id in [one for one in kept if int(kept[one].partition(b" ")[0]) >= seq]:
            kept.pop(event_id, None)
        self._load()

    # --- placing observations -----------------------------------------------------------------

    def _place(self, observation: Observation) -> None:
        """Work an observation into what is derived from the store."""
        event = observation.event
        match event:
            case SlotOpened():
                self._place_slot(observation, event)
            case JobSubmitted():
                job = self._jobs.setdefault(event.job.job_id, _Job())
                job.submitted = job.submitted or observation
                job.hard = event.job.deadline.kind is DeadlineKind.HARD
                self._found(("job", event.job.job_id))
            case JobAdmitted():
                job = self._jobs.setdefault(event.job_id, _Job())
                job.admitted = job.admitted or observation
                self._found(("job", event.job_id))
            case PipelineSubmitted():
                job = self._jobs.setdefault(event.pipeline.job_id, _Job())
                job.admitted = job.admitted or observation
                self._found(("job", event.pipeline.job_id))
            case PlacementDecided() | PlacementEnded():
                job = self._jobs.setdefault(event.job_id, _Job())
                job.closed = job.closed or observation
                job.over_s = event.ts_event_ns // NS_PER_S
            case ForecastIssued():
                self._forecast.setdefault(event.slot, observation)
                self._expire(observation, self._slots.get(event.slot))
            case SlotDecided():
                self._decided.setdefault(event.slot, observation)
                self._expire(observation, self._slots.get(event.slot))
                self._found(("decided", str(event.slot)))
            case _:
                self._resolve(observation)

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
        self._slots[event.slot] = slot
        self._slot_of_event[observation.event_id] = event.slot
        bisect.insort(self._openings, (start_s, event.slot))
        self._mark(observation.seq, start_s - self._options.delay_slots * event.slot_s, start_s)
        arrival = self._arrival(observation, slot)
        for one in (observation, self._forecast.get(event.slot), self._decided.get(event.slot)):
            if one is not None:
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
            self._resolve(observation)

    def _resolve(self, observation: Observation) -> None:
        """Turn an observation into pieces, or let it wait for what it lacks."""
        try:
            slot, tenant, pieces = self._pieces(observation)
        except _Missing as missing:
            self._waiting.setdefault(missing.what, []).append(observation)
            self._expire(observation, None)
            return
        if not isinstance(observation.event, JobClosed):
            self._expire(observation, slot)
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
                slot, job = self._slot_of(observation.causation_id), self._admitted(event.job_id)
                admitted = _admission(job)
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
            self._arrival(observation, slot, job.admitted),
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
        job = self._jobs[event.job_id]
        job.closed = job.closed or observation
        over_s = slot.end_s
        if job.admitted is not None and isinstance(job.admitted.event, JobAdmitted):
            # Feedback comes at the deadline where the job was done before.
            left = _admission(job).deadline_slot - event.slot
            over_s += (max(0, left) + _FEEDBACK_SLOTS) * slot.slot_s
        job.over_s = over_s
        self._expires_s.pop(observation.event_id, None)

    def _slot(self, number: int) -> _Slot:
        found = self._slots.get(number)
        if found is None:
            raise _Missing(("slot", str(number)))
        return found

    def _slot_of(self, event_id: str) -> _Slot:
        number = self._slot_of_event.get(event_id)
        if number is None:
            raise _Missing(("event", event_id))
        return self._slots[number]

    def _decision(self, number: int) -> Observation:
        found = self._decided.get(number)
        if found is None or not self._met(found, self._slots[number]):
            raise _Missing(("decided", str(number)))
        return found

    def _admitted(self, job_id: str) -> _Job:
        job = self._jobs.get(job_id)
        if job is None or job.admitted is None:
            raise _Missing(("job", job_id))
        return job

    def _submitted(self, job_id: str) -> _Job:
        job = self._jobs.get(job_id)
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
        end_s = observation.watermark_s if slot is None else slot.end_s
        if end_s == NEVER:
            end_s = -NEVER  # there is no time yet; a few entries of the log's beginning
        self._expires_s[observation.event_id] = end_s + self._options.horizon_s

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

    def _repeated_slot(self, observation: Observation) -> bool:
        event = observation.event
        return isinstance(event, SlotOpened) and event.slot in self._slots

    def _too_late(self, observation: Observation) -> bool:
        """Whether no window can hold it any more, wherever it belongs."""
        end_s = self._end_s(observation.event)
        return end_s is not None and (end_s + self._options.horizon_s <= observation.watermark_s)

    def _end_s(self, event: Event) -> int | None:
        """When the slot of an event ends, by the grid; None where that is not known."""
        if isinstance(event, SlotOpened):
            return event.ts_event_ns // NS_PER_S + event.slot_s
        if not self._slots or not isinstance(
            event, CostAccrued | JobClosed | AllocationDecided | SlotDecided | ForecastIssued
        ):
            return None
        number, slot = max(self._slots.items())
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
        before = self.late
        if before.seq >= seq:
            return
        came = [one.dropped for one in self._late_between(seq - 1, seq)]
        if came or too_late:
            merged = before.merged + came.count(False)
            dropped = before.dropped + came.count(True) + too_late
            self._store.counters["late"] = f"{seq} {merged} {dropped}".encode()

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
        first = bisect.bisect_left(self._openings, (window.start_s, -1))
        for start_s, number in self._openings[first:]:
            if start_s >= window.end_s:
                return False
            met_s = self._slots[number].observation.watermark_s
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

    def _gone(self, job: _Job, watermark_s: int) -> bool:
        return job.over_s is not None and job.over_s + self._options.horizon_s <= watermark_s

    def _forget_derived(self, watermark_s: int) -> None:
        kept = self._expires_s
        self._slots = {n: s for n, s in self._slots.items() if s.observation.event_id in kept}
        self._slot_of_event = {e: n for e, n in self._slot_of_event.items() if e in kept}
        self._openings = [one for one in self._openings if one[1] in self._slots]
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


def _admission(job: _Job) -> JobAdmitted:
    admitted = job.admitted.event if job.admitted is not None else None
    if not isinstance(admitted, JobAdmitted):
        raise TypeError("the job is not admitted")
    return admitted


def _policy_of(job: _Job) -> str:
    """The policy a job drew; a pipeline draws none."""
    event = job.admitted.event if job.admitted is not None else None
    return event.policy_id if isinstance(event, JobAdmitted) else ""


def _point(
    arrival: Arrival, policy_id: str, said: Ending | JobFeedback | SlotLatency
) -> Iterator[PlatformPiece]:
    yield PlatformPiece(arrival=arrival, start_s=arrival.at_s, policy_id=policy_id, said=said)
