"""Why a decision was what it was, worked out again from the log that holds it."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import closing
from typing import Protocol

from spotline.application.explaining.explain import explained
from spotline.application.explaining.facts import DecidedTurn
from spotline.application.explaining.messages import DecisionExplanation, DecisionQuery
from spotline.application.explaining.ports import UnknownDecision
from spotline.application.explaining.trail import LogMark, Trail, TrailEvent
from spotline.application.selector.options import SelectorOptions
from spotline.contracts.envelope import StoredEntry
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.law import ValueTableRequested
from spotline.domain.events.lifecycle import JobAdmitted, JobProgressReported
from spotline.domain.events.training import CheckpointCommitted
from spotline.replay.divergence import field_differences
from spotline.replay.explain_fold import SelectorRefold
from spotline.replay.explain_index import DecisionIndex, FoundDecision
from spotline.replay.recorded import readable_events

Entries = Generator[StoredEntry, None, None]


class LogEntries(Protocol):
    """A log that can be read from any place on, more than once."""

    def read(self, first_seq: int, last_seq: int | None = None) -> Entries:
        """The entries from `first_seq` to `last_seq` (None: the last there is), in order.

        The caller closes what it does not read to the end.
        """
        ...


class RecordedEntries:
    """The entries of a recorded log, read once and kept."""

    def __init__(self, entries: Iterable[StoredEntry]) -> None:
        self._entries = list(entries)

    def read(self, first_seq: int, last_seq: int | None = None) -> Entries:
        """See `LogEntries`; a recorded log has no gaps."""
        if not self._entries:
            return
        begins = self._entries[0].seq
        end = len(self._entries) if last_seq is None else max(0, last_seq - begins + 1)
        yield from self._entries[max(0, first_seq - begins) : end]


class LogExplainer:
    """Explains decisions of one log, one at a time; a later one goes on from where it was.

    Parameters
    ----------
    options
        The selector's, as the log was made with. With others a decision may not be reproduced, and
        its explanation says so.
    """

    def __init__(self, options: SelectorOptions) -> None:
        self._options = options
        self._index = DecisionIndex()
        self._refold = SelectorRefold(options)

    @property
    def index(self) -> DecisionIndex:
        """Where the decisions are, as far as the log was read."""
        return self._index

    def follow(self, log: LogEntries) -> None:
        """Read what the log holds beyond what was read before.

        Raises
        ------
        LogBeginsLate
            Its beginning is gone.
        """
        with closing(log.read(self._index.last_seq + 1)) as entries:
            self._index.take_all(entries)

    def explain(self, log: LogEntries, query: DecisionQuery) -> DecisionExplanation:
        """Explain a decision of the log as far as it goes now.

        Raises
        ------
        UnknownDecision
            There is no such job or decision.
        LogBeginsLate
            The log's beginning is gone.
        """
        self.follow(log)
        found = self._index.find(query)
        trail = self._trail(log, found)
        turn = self._turn(log, found)
        return explained(trail, turn, _differences(trail, turn))

    def differences(self, log: LogEntries, query: DecisionQuery) -> tuple[str, ...]:
        """In what a decision, made again, differs from the recorded one; errors as `explain`."""
        self.follow(log)
        found = self._index.find(query)
        return _differences(self._trail(log, found), self._turn(log, found))

    def _turn(self, log: LogEntries, found: FoundDecision) -> DecidedTurn:
        turn = self._refold.known(found)
        if turn is not None:
            return turn
        if not self._refold.can_reach(found):
            self._refold = SelectorRefold(self._options)
        refold = self._refold
        with closing(log.read(refold.next_seq, self._index.last_seq)) as entries:
            turn = refold.reach(found, entries)
        if turn is None:
            self._refold = SelectorRefold(self._options)
            raise UnknownDecision(
                "folding the log does not lead to this decision: it was made by another release, "
                "or with other settings",
                job_known=True,
            )
        return turn

    def _trail(self, log: LogEntries, found: FoundDecision) -> Trail:
        first, last = self._index.slot_range(found.slot)
        events = [
            TrailEvent(
                event=recorded.event,
                kind=recorded.envelope.kind,
                mark=LogMark(
                    seq=recorded.seq,
                    event_id=recorded.envelope.event_id,
                    ts_event_ns=recorded.envelope.ts_event_ns,
                ),
                causation_id=recorded.envelope.causation_id,
            )
            for recorded in readable_events(log.read(first, last))
        ]
        decision = next(
            event.event for event in events if event.mark.event_id == found.mark.event_id
        )
        if not isinstance(decision, AllocationDecided):
            raise UnknownDecision("the decision cannot be read again", job_known=True)
        index, job_id, seq = self._index, found.job_id, found.mark.seq
        return Trail(
            decision=decision,
            mark=found.mark,
            cause_id=found.cause_id,
            events=events,
            admitted=index.latest(JobAdmitted, job_id, seq),
            progress=index.latest(JobProgressReported, job_id, seq),
            checkpoint=index.latest(CheckpointCommitted, job_id, seq),
            capacity=index.report_before(seq),
            table=index.latest(ValueTableRequested, job_id, seq),
            laws=index.laws,
        )


def _differences(trail: Trail, turn: DecidedTurn) -> tuple[str, ...]:
    found: list[str] = []
    answered = turn.answered
    if answered is not None and answered.request_digest != turn.digest:
        found.append(
            f"request: {answered.request_digest[:12]} recorded, {turn.digest[:12]} recomputed"
        )
    again = turn.decision_of(trail.decision.job_id)
    if again is None:
        return (*found, "it is not made again")
    return (*found, *field_differences(trail.decision, again))
