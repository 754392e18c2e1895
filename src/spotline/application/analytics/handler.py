"""Statistics as a fold over the log: what every entry adds, closes and revises."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from spotline.application.analytics.known import Known, MissingObservation, job_id_of
from spotline.application.analytics.observations import Observation, counts, essence, place_of
from spotline.application.analytics.options import StatisticsOptions
from spotline.application.analytics.pieces import arrival_of, pieces_of
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
from spotline.application.analytics.tallies import Tallies
from spotline.application.analytics.watermarks import LateObservation, Watermarks
from spotline.application.market_view import ClockReading
from spotline.application.spec import Spec, derive_id
from spotline.contracts.subjects import KINDS
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CostAccrued, SlotDecided
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.lifecycle import JobAdmitted, JobClosed, JobSubmitted
from spotline.domain.events.market import SlotOpened
from spotline.domain.events.placement import PipelineSubmitted, PlacementDecided, PlacementEnded
from spotline.domain.events.selection import PolicyWeightsUpdated
from spotline.domain.events.statistics import MarketStatisticsIssued, PlatformStatisticsIssued
from spotline.domain.statistics.windows import pane_s_of

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

_CONSUMED = frozenset(SPEC.consumes)

# How many observations are loaded between two chances for others to run; some 10 ms.
_SLICE = 256


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
        self._known = Known(self._options.horizon_s)
        self._marks = Watermarks(self._options)
        self._tallies = Tallies(self._pane_s)
        self._waiting: dict[tuple[str, str], list[Observation]] = {}
        self._forgotten_s = NEVER
        self._taken = (-1, 0)
        self._late_here: tuple[int, frozenset[LateObservation]] = (-1, frozenset())
        self._counted = LateCounts.of(self._store)
        order: list[tuple[tuple[int, int], str]] = []
        observations = self._store.observations
        for number, event_id in enumerate(list(observations)):
            at = place_of(observations[event_id])
            if before_seq is None or at[0] < before_seq:
                order.append((at, event_id))
            else:
                observations.pop(event_id, None)
            if number % (8 * _SLICE) == 0:
                yield
        order.sort()
        for number, (at, event_id) in enumerate(order):
            self._place(Observation.load(event_id, observations[event_id]))
            self._taken = at
            if number % _SLICE == 0:
                yield

    @property
    def watermark_s(self) -> int:
        """As of the last entry known; `NEVER` before the first slot."""
        return self._marks.watermark_s

    @property
    def clock(self) -> ClockReading | None:
        """Market time by the latest slot that is kept, None without one."""
        return self._known.clock()

    @property
    def late(self) -> LateCounts:
        """How much came late so far."""
        return self._counted

    def sizes(self) -> dict[str, int]:
        """How much is kept."""
        return {
            **self._known.sizes(),
            "panes": len(self._tallies),
            "waiting": sum(map(len, self._waiting.values())),
        }

    def take(
        self,
        event: Event,
        *,
        event_id: str,
        seq: int,
        stored_ns: int,
        causation_id: str = "",
        place: int = 0,
    ) -> Sequence[Issue]:
        """Take the log's next event, at `place` of the entry `seq`; what is to be issued for it.

        They come in that order. An earlier one than the last means that they are taken again from
        its entry on, as after a restart: what is known from there on is let go, and what was issued
        already is not returned. The caller that issues what is returned says so by `issued`,
        and only when it is stored.
        """
        if type(event) not in _CONSUMED or not counts(event):
            return ()
        if (seq, place) <= self._taken:
            for _ in self.load(before_seq=seq):
                pass
        self._taken = (seq, place)
        observation = Observation(
            event_id=event_id,
            seq=seq,
            stored_ns=stored_ns,
            watermark_s=self.watermark_s,
            causation_id=causation_id,
            event=essence(event),
            place=place,
        )
        self._known.now_s = observation.watermark_s
        # First of all: what came twice, and is forgotten, looks as if it came late.
        if self._known.is_too_late(observation):
            self._count_late(seq, place, too_late=1)
            return ()
        if self._has(event_id) or self._known.is_repeated(observation):
            return ()
        self._store.observations[event_id] = observation.dump()
        self._place(observation)
        self._count_late(seq, place)
        if isinstance(event, SlotOpened):
            note_watermark(self._store, self.watermark_s)
            return list(self._advance(seq, event_id))
        return ()

    def issued(self, issues: Iterable[Issue]) -> None:
        """Note that `issues` are stored: they are not returned again."""
        for issue in issues:
            self._store.issued[issue.key] = issue.dump()

    def forget(self, seq: int) -> None:
        """Drop what no entry behind `seq` can need.

        After a restart entries are taken again from some entry on: `seq` must lie before it.
        """
        watermark_s = self._marks.before(seq + 1)
        if watermark_s < self._forgotten_s + self._pane_s:
            return
        self._forgotten_s = watermark_s
        for event_id in self._known.drop_expired(watermark_s):
            self._store.observations.pop(event_id, None)
        kept = self._known.expires_s
        self._waiting = {
            what: left
            for what, waiting in self._waiting.items()
            if (left := [observation for observation in waiting if observation.event_id in kept])
        }
        self._marks.forget_before(watermark_s)
        self._tallies.forget_before(watermark_s - self._options.horizon_s)
        kept_s = watermark_s - self._options.history_s
        for key in [key for key in self._store.issued if int(key.split(" ", 4)[3]) <= kept_s]:
            self._store.issued.pop(key, None)

    # --- placing observations -----------------------------------------------------------------

    def _place(self, observation: Observation) -> None:
        """Work an observation into what is derived from the store."""
        event, known = observation.event, self._known
        known.now_s = observation.watermark_s
        match event:
            case SlotOpened():
                slot = known.open_slot(observation, event)
                arrival = arrival_of(observation, slot)
                self._marks.open_slot(arrival, event.slot_s)
                self._tallies.add_quotes(arrival, event)
                self._marks.note_late(arrival, slot.end_s)
                self._found(("slot", str(event.slot)))
                self._found(("event", observation.event_id))
            case JobSubmitted() | JobAdmitted() | PipelineSubmitted():
                self._found(("job", known.begin(observation, event)))
            case PlacementDecided() | PlacementEnded():
                known.end_pipeline(observation, event)
            case ForecastIssued():
                known.forecast_slot(event.slot, observation)
            case SlotDecided():
                known.decide_slot(event.slot, observation)
                self._found(("decided", str(event.slot)))
            case _:
                self._resolve(observation)

    def _found(self, what: tuple[str, str]) -> None:
        """Resolve what waited."""
        for observation in self._waiting.pop(what, ()):
            if not self._known.is_expired(observation.event_id):
                self._resolve(observation)

    def _resolve(self, observation: Observation) -> None:
        """Turn an observation into pieces, or let it wait for what it lacks."""
        known = self._known
        try:
            slot, tenant, pieces = pieces_of(observation, known, self._pane_s)
        except MissingObservation as missing:
            self._waiting.setdefault(missing.what, []).append(observation)
            known.expire(observation, None)
            return
        known.expire(observation, slot)
        known.touch(observation, slot)
        parts = list(pieces)
        arrival = parts[0].arrival
        if known.is_usable(observation, arrival, slot):
            self._tallies.add(tenant, parts)
            self._marks.note_late(arrival, slot.end_s)

    def _has(self, event_id: str) -> bool:
        """Whether an entry is one that counts already."""
        if event_id in self._known.expires_s:
            return not self._known.is_expired(event_id)
        dumped = self._store.observations.get(event_id)
        if dumped is None:
            return False
        # It is one of a job's own.
        event = Observation.load(event_id, dumped).event
        return self._known.live_job(job_id_of(event)) is not None

    def _count_late(self, seq: int, place: int, *, too_late: int = 0) -> None:
        before = self._counted
        known_at, known = self._late_here
        late = frozenset(self._marks.late_between(seq - 1, seq))
        # Of this entry's, those that an event before this one has shown are counted.
        came = late - known if known_at == seq else late
        self._late_here = (seq, late)
        if (before.seq, before.place) >= (seq, place):
            return
        if came or too_late:
            dropped = sum(observation.dropped for observation in came)
            self._counted = LateCounts(
                seq=seq,
                merged=before.merged + len(came) - dropped,
                dropped=before.dropped + dropped + too_late,
                place=place,
            )
            self._counted.note(self._store)

    # --- closing windows ----------------------------------------------------------------------

    def _advance(self, seq: int, event_id: str) -> Iterator[Issue]:
        """Put together what a slot closes, and what late observations changed before it."""
        for window in self._marks.closed_by(seq):
            for event in self._tallies.statistics(window, self._options.grace_s):
                yield from self._revised(event, seq, event_id)

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
