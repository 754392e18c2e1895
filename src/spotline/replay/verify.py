"""Feed handlers their recorded inputs and demand their recorded decisions.

The log is read once, in order. Whatever a handler consumes is handled as its service handles it:
applied, decided, and the decisions applied at once. What it decided waits until the log shows the
recorded counterpart. The decisions as computed here are what the handler goes on with, so one
altered entry is one divergence, not a trail of them.

What the log says was parked is left out here, too, whatever today's code could do with it; that it
could is told. What is parked here and was not then is a divergence.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spotline.adapters.eventlog.manifest import Environment, Manifest, UnreadableLog
from spotline.application.analytics.handler import StatisticsFold
from spotline.application.incarnations import FIRST
from spotline.application.spec import Context, Handler, Spec
from spotline.application.turn import context_of
from spotline.application.unfit import NOT_BELIEVED, Forged
from spotline.contracts.batch import unpacked
from spotline.contracts.build import event_of, is_dead_letter
from spotline.contracts.codec import encode
from spotline.contracts.envelope import Envelope, StoredEntry
from spotline.contracts.errors import ContractError, SpotlineError
from spotline.contracts.publishers import why_forged
from spotline.contracts.subjects import EVENT_TYPES, KINDS
from spotline.domain.events.agreement import IncarnationBegun
from spotline.domain.events.event import Event
from spotline.replay.divergence import (
    NowTaken,
    ReplayDivergence,
    VerifyReport,
    field_differences,
    shortened,
)
from spotline.replay.parkings import ParkedBy, RecordedParking, recorded_parkings
from spotline.replay.replayed import (
    NOWHERE,
    ExpectedDecision,
    OpenCall,
    ReplayedHandler,
    UnrecordedParking,
    call_answered,
    replayed,
)
from spotline.replay.statistics import StatisticsDifference, StatisticsReplay, is_statistics

DEFAULT_MOST = 10

# What a handler raises on a state or an input that cannot be; anything else is our own bug.
_HANDLER_ERRORS = (ArithmeticError, LookupError, SpotlineError, TypeError, ValueError)


def verify(
    entries: Iterable[StoredEntry],
    handlers: Sequence[Handler[Any]],
    manifest: Manifest,
    *,
    here: Environment,
    most: int = DEFAULT_MOST,
    statistics: StatisticsFold | None = None,
    issued: Iterable[StoredEntry] = (),
) -> VerifyReport:
    """Replay a log through `handlers` and compare what they decide.

    Parameters
    ----------
    entries
        In `seq` order, to be iterated twice; that may raise `UnreadableLog`, which ends in the
        report.
    handlers
        With the options the log was recorded with (see `handlers_of`).
    here
        This process's environment: its release may be another than that of the log, what can change
        decisions may not.
    most
        Stop after this many divergences.
    statistics
        With the options the analytics had (see `statistics_of`); None: what they issued is counted
        and not recomputed.
    issued
        The recorded entries of the statistics' own stream.
    """
    elsewhere = manifest.environment.differences(here)
    if elsewhere:
        return VerifyReport(environment=elsewhere)
    if iter(entries) is entries:
        entries = list(entries)
    replay = _Replay(handlers, most, statistics, recorded_parkings(entries))
    try:
        for entry in entries:
            replay.take(entry)
            if replay.full:
                return replay.report()
        for entry in issued:
            replay.take_issued(entry)
    except UnreadableLog as error:
        return replace(replay.report(), unreadable=str(error))
    return replay.report()


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a handler may differ: at a message of this kind, led to by the input `cause_seq`."""

    hosted: ReplayedHandler
    seq: int
    kind: str
    cause_seq: int


class _Replay:
    def __init__(
        self,
        handlers: Sequence[Handler[Any]],
        most: int,
        statistics: StatisticsFold | None,
        parkings: Mapping[ParkedBy, RecordedParking],
    ) -> None:
        self._parkings = parkings
        self._not_believed = {
            event_id
            for (_, event_id), parking in parkings.items()
            if parking.reason.error_type in NOT_BELIEVED
        }
        self._now_taken: list[NowTaken] = []
        self._hosted = [replayed(handler) for handler in handlers]
        self._statistics = StatisticsReplay(statistics) if statistics is not None else None
        self._unverified = 0
        self._most = most
        self._ids: set[str] = set()
        self._incarnation = FIRST
        self._found: list[ReplayDivergence] = []
        self._entries = 0
        self._skipped = 0
        self._answers = 0

    @property
    def full(self) -> bool:
        return len(self._found) >= self._most

    def take(self, entry: StoredEntry) -> None:
        if not self._entries and entry.seq != 1:
            raise UnreadableLog(
                f"begins at seq {entry.seq}: a state cannot be folded from the middle; "
                "record from the beginning of the stream"
            )
        self._entries += 1
        try:
            events = unpacked(entry)
        except ContractError:
            self._skipped += 1
            return
        for event in events:
            self._take_event(event)

    def take_issued(self, entry: StoredEntry) -> None:
        """Take an entry of the statistics' own stream, when the log has been taken."""
        self._entries += 1
        self._take_event(entry)

    def _take_event(self, entry: StoredEntry) -> None:
        if is_dead_letter(entry):
            return
        try:
            envelope = entry.envelope()
        except ContractError:
            self._skipped += 1
            return
        if envelope.event_id in self._ids:
            return
        self._ids.add(envelope.event_id)
        try:
            event = event_of(entry)
        except ContractError as error:
            self._skip(entry, envelope, error)
            return
        if self._take_statistics(entry, envelope, event):
            return
        if isinstance(event, IncarnationBegun):
            self._take_loss(event, envelope)
        for hosted in self._hosted:
            # What came in another's batch is not its own, whatever it says.
            own = envelope.source == hosted.spec.service and not envelope.carried_by_other
            if own:
                cause = hosted.seen.get(envelope.causation_id, NOWHERE)
                hosted.last_cause = max(hosted.last_cause, cause)
            if own and is_decision(hosted.spec, event, envelope):
                self._meet(hosted, entry, envelope, event)
            elif hosted.turns.consumes(event) and envelope.is_for(hosted.spec.service):
                event_there = self._recomputed(hosted, entry, envelope, event)
                self._handle(hosted, entry, envelope, event_there)

    def _take_loss(self, begun: IncarnationBegun, envelope: Envelope) -> None:
        """Excuse what was not recorded before a cut: only who opens a store says that, and once."""
        if why_forged(begun, envelope) is not None or begun.incarnation <= self._incarnation:
            return
        self._incarnation = begun.incarnation
        for hosted in self._hosted:
            hosted.note_loss()

    # --- statistics ---------------------------------------------------------------------------

    def _take_statistics(self, entry: StoredEntry, envelope: Envelope, event: Event) -> bool:
        """Compare statistics, which no handler takes in; whether it was one."""
        if not is_statistics(event, envelope):
            if self._statistics is not None:
                self._statistics.take(entry, envelope, event)
            return False
        if self._statistics is None:
            self._unverified += 1
            return True
        different = self._statistics.meet(entry, envelope, event)
        if different is not None:
            self._found_different(different)
        return True

    def _found_different(self, found: StatisticsDifference) -> None:
        both = (found.recorded, found.recomputed)
        if not self.full:
            self._found.append(
                ReplayDivergence(
                    seq=found.seq,
                    handler="analytics",
                    kind=found.kind,
                    cause_seq=found.cause_seq,
                    recorded="nothing" if found.recorded is None else shortened(found.recorded),
                    recomputed="nothing"
                    if found.recomputed is None
                    else shortened(found.recomputed),
                    differences=() if None in both else field_differences(*both),
                )
            )

    # --- inputs -------------------------------------------------------------------------------

    def _handle(
        self, hosted: ReplayedHandler, entry: StoredEntry, envelope: Envelope, event: Event
    ) -> None:
        hosted.seen[envelope.event_id] = (entry.seq, entry.place)
        ctx = context_of(entry, envelope)
        parking = self._parkings.get((hosted.spec.service, envelope.event_id))
        if parking is not None:
            self._leave_out(hosted, parking, event, ctx)
            return
        turn = hosted.turns.take(event, ctx)
        if isinstance(turn.error, Forged):
            # Its service left it out, or never got it: nothing follows from it either way.
            return
        if turn.parked is not None:
            hosted.unrecorded.append(UnrecordedParking(turn.parked, (entry.seq, entry.place)))
            return
        for output in turn.outputs:
            hosted.expected[envelope.event_id, output.index] = ExpectedDecision(
                output, (entry.seq, entry.place)
            )
            hosted.digest.update(encode(output.event))
            hosted.decided += 1
        calls = [call for call in turn.calls if call.spec.recompute is not None]
        if calls:
            hosted.calls[envelope.event_id] = [OpenCall(call, entry.seq) for call in calls]

    def _leave_out(
        self, hosted: ReplayedHandler, parking: RecordedParking, event: Event, ctx: Context
    ) -> None:
        """Do without an event, as its service did; say so where it could be taken now."""
        if hosted.turns.attempt(event, ctx).error is None:
            reason = parking.reason
            self._now_taken.append(
                NowTaken(
                    seq=ctx.seq,
                    service=hosted.spec.service,
                    kind=reason.kind,
                    event_id=ctx.event_id,
                    error=reason.error,
                )
            )
        hosted.turns.leave_out(ctx, parking.output)

    def _recomputed(
        self, hosted: ReplayedHandler, entry: StoredEntry, envelope: Envelope, event: Event
    ) -> Event:
        """The event as the handler should get it: an answer to its own call is computed again."""
        if type(event) not in hosted.recomputed_answers or envelope.source != hosted.spec.service:
            return event
        if envelope.carried_by_other or (hosted.spec.service, envelope.event_id) in self._parkings:
            return event
        found = call_answered(hosted, envelope)
        if found is None or found.pending.spec.recompute is None:
            cause_seq, _ = hosted.seen.get(envelope.causation_id, NOWHERE)
            place = _Place(hosted, entry.seq, envelope.kind, cause_seq)
            self._diverged(place, shortened(event), "no such call")
            return event
        place = _Place(hosted, entry.seq, envelope.kind, found.cause_seq)
        try:
            again = found.pending.spec.recompute(found.pending.call, event)
        except _HANDLER_ERRORS as error:
            self._diverged(place, shortened(event), f"raised {type(error).__name__}: {error}")
            return event
        self._answers += again.performed
        self._compare(place, event, again.answer)
        return again.answer

    # --- recorded decisions -------------------------------------------------------------------

    def _meet(
        self, hosted: ReplayedHandler, entry: StoredEntry, envelope: Envelope, event: Event
    ) -> None:
        """Compare a recorded decision with the one that was recomputed."""
        at = hosted.seen.get(envelope.causation_id, NOWHERE)
        hosted.last_met = max(hosted.last_met, (at, envelope.index))
        cause_seq, _ = at
        place = _Place(hosted, entry.seq, envelope.kind, cause_seq)
        expected = hosted.expected.pop((envelope.causation_id, envelope.index), None)
        if expected is None and envelope.event_id in self._not_believed:
            # Nobody took it for a decision of that handler, and the log says so.
            return
        if expected is None:
            cause = envelope.causation_id or "(none)"
            why = "" if cause_seq else f": its cause {cause} is not among the inputs"
            self._diverged(place, shortened(event), f"nothing{why}")
            return
        self._compare(place, event, expected.output.event)
        output = expected.output
        if type(event) is type(output.event) and envelope.event_id != output.event_id:
            ids = f"id: {envelope.event_id} recorded, {output.event_id} recomputed"
            self._diverged(place, shortened(event), shortened(output.event), (ids,))

    def _skip(self, entry: StoredEntry, envelope: Envelope, error: ContractError) -> None:
        """What cannot be read was dead-lettered, unless it is a decision of our own."""
        self._skipped += 1
        event_type = EVENT_TYPES.get(envelope.kind)
        for hosted in self._hosted:
            if envelope.source != hosted.spec.service or event_type not in hosted.spec.decides:
                continue
            cause_seq, _ = hosted.seen.get(envelope.causation_id, NOWHERE)
            expected = hosted.expected.pop((envelope.causation_id, envelope.index), None)
            recomputed = shortened(expected.output.event) if expected else "nothing"
            place = _Place(hosted, entry.seq, envelope.kind, cause_seq)
            self._diverged(place, f"unreadable: {error}", recomputed)

    def _compare(self, place: _Place, recorded: Event, recomputed: Event) -> None:
        differences = field_differences(recorded, recomputed)
        if differences:
            self._diverged(place, shortened(recorded), shortened(recomputed), differences)

    def _diverged(
        self, place: _Place, recorded: str, recomputed: str, differences: tuple[str, ...] = ()
    ) -> None:
        if not self.full:
            self._found.append(
                ReplayDivergence(
                    seq=place.seq,
                    handler=place.hosted.spec.service,
                    kind=place.kind,
                    cause_seq=place.cause_seq,
                    recorded=recorded,
                    recomputed=recomputed,
                    differences=differences,
                )
            )

    def _judge_missing(self) -> None:
        """What follows is stored in order: what comes before a stored one must be stored."""
        for hosted in self._hosted:
            for unrecorded in hosted.unrecorded:
                if unrecorded.cause <= hosted.last_cause:
                    reason = unrecorded.reason
                    place = _Place(hosted, reason.seq, reason.kind, reason.seq)
                    parked = f"parked: {reason.error_type}: {reason.error}"
                    self._diverged(place, "handled", parked)
            for (cause_id, index), missing in sorted(
                hosted.expected.items(), key=lambda item: (item[1].cause, item[0][1])
            ):
                met = (missing.cause, index) <= hosted.last_met
                if not met or (cause_id, index) in hosted.may_be_lost:
                    continue
                del hosted.expected[cause_id, index]
                event = missing.output.event
                cause_seq, _ = missing.cause
                place = _Place(hosted, cause_seq, KINDS[type(event)], cause_seq)
                self._diverged(place, "nothing", shortened(event))

    def report(self) -> VerifyReport:
        if not self.full:
            self._judge_missing()
            for found in self._statistics.missing() if self._statistics is not None else ():
                self._found_different(found)
        digest = hashlib.sha256()
        for hosted in self._hosted:
            digest.update(hosted.digest.digest())
        open_inputs = {
            (hosted.spec.service, expected.cause[0])
            for hosted in self._hosted
            for expected in hosted.expected.values()
        } | {
            (hosted.spec.service, parked.cause[0])
            for hosted in self._hosted
            for parked in hosted.unrecorded
            if parked.cause > hosted.last_cause
        }
        decisions = {hosted.spec.service: hosted.decided for hosted in self._hosted}
        by_service = {hosted.spec.service: hosted.digest.hexdigest() for hosted in self._hosted}
        if self._statistics is not None:
            digest.update(self._statistics.digest())
            by_service["analytics"] = self._statistics.digest().hex()
            decisions["analytics"] = self._statistics.recomputed
            open_inputs |= {("analytics", seq) for seq in self._statistics.open_seqs()}
        return VerifyReport(
            entries=self._entries,
            decisions=decisions,
            answers=self._answers,
            skipped=self._skipped,
            unverified=self._unverified,
            open_inputs=len(open_inputs),
            parked=len(self._parkings),
            now_taken=tuple(self._now_taken),
            divergences=tuple(sorted(self._found, key=lambda divergence: divergence.seq)),
            complete=not self.full,
            decisions_sha256=digest.hexdigest(),
            sha256_by_service=by_service,
        )


def is_decision(spec: Spec, event: Event, envelope: Envelope) -> bool:
    """Whether this is a decision: what a shell observed has no cause, and its handler takes it in."""
    if type(event) not in spec.decides:
        return False
    return bool(envelope.causation_id) or type(event) not in spec.consumes
