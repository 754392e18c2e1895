"""The selector's own fold over a log, stopped where a decision was made."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from spotline.application.allocation.allocate import allocate
from spotline.application.allocation.messages import AllocateRequest
from spotline.application.explaining.facts import DecidedTurn, jobs_facts, market_facts
from spotline.application.explaining.ports import LogBeginsLate
from spotline.application.selector.asking import fallback_request
from spotline.application.selector.handler import SPEC, SelectHandler
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.recomputing import recomputed_answer
from spotline.application.selector.state import SelectorState
from spotline.application.spec import Call, Context, Handler, Outcome, Timer
from spotline.application.turn import Output, Turns, context_of, output_of
from spotline.contracts.batch import unpacked
from spotline.contracts.build import event_of, is_dead_letter
from spotline.contracts.envelope import Envelope, StoredEntry
from spotline.contracts.errors import ContractError
from spotline.contracts.mapping import digest
from spotline.contracts.subjects import EVENT_TYPES
from spotline.domain.events.allocation import AllocationAnswered, AllocationDecided, CallOutcome
from spotline.domain.events.capacity import SlotDecided
from spotline.domain.events.event import Event
from spotline.domain.events.parking import EntryParked
from spotline.domain.policies.answer import JobAnswer
from spotline.replay.explain_index import FoundDecision
from spotline.replay.verify import is_decision

# How many moments of deciding are kept: of them, other jobs are explained without folding again.
_MOST_TURNS = 8


@dataclass(frozen=True, slots=True)
class _Input:
    event: Event
    envelope: Envelope
    context: Context


class _Watched(Handler[SelectorState]):
    """The selector, showing its state between an event and what follows from it."""

    spec = SPEC

    def __init__(self, options: SelectorOptions) -> None:
        self._handler = SelectHandler(options, digest=digest)
        self.options = options
        self.outcome: Outcome | None = None
        self.turn: DecidedTurn | None = None
        self.asked: Call | None = None

    def initial(self) -> SelectorState:
        return self._handler.initial()

    def evolve(self, state: SelectorState, event: Event) -> None:
        self._handler.evolve(state, event)

    def decide(self, state: SelectorState, event: Event, ctx: Context) -> Outcome:
        outcome = self._handler.decide(state, event, ctx)
        self.asked = outcome.calls[0] if outcome.calls else self.asked
        decisions = tuple(
            decided for decided in outcome.events if isinstance(decided, AllocationDecided)
        )
        if decisions:
            self.turn = self._turn(state, event, decisions)
        return outcome

    def due(self, state: SelectorState) -> Sequence[Timer]:
        return ()

    def _turn(
        self, state: SelectorState, event: Event, decisions: tuple[AllocationDecided, ...]
    ) -> DecidedTurn:
        request: AllocateRequest | None = None
        answers: tuple[JobAnswer, ...] = ()
        answered = event if isinstance(event, AllocationAnswered) else None
        if answered is not None and answered.outcome is CallOutcome.ANSWERED:
            asked = self.asked.request if self.asked is not None else None
            request = asked if isinstance(asked, AllocateRequest) else None
            answers = answered.answers
        elif answered is not None:
            request = fallback_request(state, self.options)
            answers = allocate(request).answers
        return DecidedTurn(
            market=market_facts(state),
            jobs=jobs_facts(state),
            request=request,
            digest="" if self.asked is None else self.asked.digest,
            answered=answered,
            answers=answers,
            decisions=decisions,
        )


class SelectorRefold:
    """A selector's state at a place in the log, moved on from decision to decision.

    Outputs that the log holds stand for what would be decided; only the moment that is asked for
    is decided again. It goes forward alone: `can_reach` says whether a decision is still ahead.
    """

    def __init__(self, options: SelectorOptions) -> None:
        self._handler = _Watched(options)
        self._turns: Turns[SelectorState] = Turns(self._handler)
        self._waiting: deque[_Input] = deque()
        self._outputs: dict[str, dict[int, Output]] = {}
        self._known: OrderedDict[str, DecidedTurn] = OrderedDict()
        self._wanted: tuple[str, str] = ("", "")
        self._folded_seq = 0
        self.next_seq = 1

    def known(self, found: FoundDecision) -> DecidedTurn | None:
        """The moment of a decision, if it was reached before."""
        return self._known.get(found.cause_id)

    def can_reach(self, found: FoundDecision) -> bool:
        """Whether what the decision follows from is still ahead."""
        ids = {waiting.envelope.event_id for waiting in self._waiting}
        first = found.asked_id or found.cause_id
        return (
            not self._turns.has_applied(first)
            and (first in ids or found.mark.seq >= self.next_seq)
            and self._folded_seq <= found.mark.seq
        )

    def reach(self, found: FoundDecision, entries: Iterable[StoredEntry]) -> DecidedTurn | None:
        """Fold on until a decision is made, None where it is not made again.

        `entries` go on from `next_seq`; what follows the decision in them may be left unread.

        Raises
        ------
        LogBeginsLate
            They do not.
        """
        self._wanted = (found.asked_id, found.cause_id)
        self._handler.turn = self._handler.asked = None
        for entry in entries:
            if self.known(found) is not None:
                break
            self._take(entry)
        while self._waiting and self.known(found) is None:
            # The log ends before it shows all that followed: the rest is decided here.
            self._fold(self._waiting.popleft(), whole=False)
        return self.known(found)

    def _take(self, entry: StoredEntry) -> None:
        if entry.seq != self.next_seq:
            raise LogBeginsLate(entry.seq)
        self.next_seq = entry.seq + 1
        try:
            events = unpacked(entry)
        except ContractError:
            return
        for stored in events:
            try:
                if not is_dead_letter(stored):
                    self._take_event(stored, stored.envelope())
            except ContractError:
                # What cannot be read was dead-lettered then.
                continue

    def _take_event(self, stored: StoredEntry, envelope: Envelope) -> None:
        if envelope.source != SPEC.service and not _is_consumed(envelope):
            return
        event = event_of(stored)
        own = envelope.source == SPEC.service
        if own and isinstance(event, EntryParked):
            self._leave_out(output_of(stored))
        if own and is_decision(SPEC, event, envelope):
            self._take_output(event, envelope)
        elif (
            self._turns.consumes(event)
            and envelope.is_for(SPEC.service)
            and not self._is_waiting(envelope.event_id)
        ):
            self._waiting.append(_Input(event, envelope, context_of(stored, envelope)))

    def _is_waiting(self, event_id: str) -> bool:
        return any(waiting.envelope.event_id == event_id for waiting in self._waiting)

    def _leave_out(self, parked: Output) -> None:
        """Do without an input that the selector left out; all before it are complete by now."""
        cause = parked.causation_id
        if not self._is_waiting(cause):
            return
        while self._waiting[0].envelope.event_id != cause:
            self._fold(self._waiting.popleft(), whole=True)
        self._turns.leave_out(self._waiting.popleft().context, parked)

    def _take_output(self, event: Event, envelope: Envelope) -> None:
        """Keep what followed from an input; all inputs before that one are complete by now."""
        cause = envelope.causation_id
        if not self._is_waiting(cause):
            return
        while self._waiting[0].envelope.event_id != cause:
            self._fold(self._waiting.popleft(), whole=True)
        self._outputs.setdefault(cause, {})[envelope.index] = Output(
            event=event,
            event_id=envelope.event_id,
            causation_id=cause,
            correlation_id=envelope.correlation_id,
            index=envelope.index,
        )
        if isinstance(event, SlotDecided):
            self._fold(self._waiting.popleft(), whole=True)

    def _fold(self, waiting: _Input, *, whole: bool) -> None:
        event_id = waiting.envelope.event_id
        recorded = self._outputs.pop(event_id, {})
        self._folded_seq = waiting.context.seq
        if event_id not in self._wanted and whole:
            self._turns.refold(waiting.event, waiting.context, recorded)
            return
        event = waiting.event
        if isinstance(event, AllocationAnswered) and self._handler.asked is not None:
            event = _again(self._handler.asked, event)
        self._turns.take(event, waiting.context, recorded)
        if event_id == self._wanted[1] and self._handler.turn is not None:
            turn = self._handler.turn
            if isinstance(waiting.event, AllocationAnswered):
                turn = replace(turn, answered=waiting.event)
            self._known[event_id] = turn
            while len(self._known) > _MOST_TURNS:
                self._known.popitem(last=False)


def _again(call: Call, answered: AllocationAnswered) -> AllocationAnswered:
    """What the allocator must have answered."""
    answer = recomputed_answer(call, answered).answer
    return answer if isinstance(answer, AllocationAnswered) else answered


_CONSUMED = frozenset(SPEC.consumes)


def _is_consumed(envelope: Envelope) -> bool:
    return EVENT_TYPES.get(envelope.kind) in _CONSUMED
