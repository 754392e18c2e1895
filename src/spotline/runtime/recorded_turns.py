"""The turns of a service that has a past: what it recorded of an input stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import structlog

from spotline.application.spec import Context
from spotline.application.turn import Output, Turn, Turns, output_of
from spotline.application.unfit import Unfit, Unproven
from spotline.contracts.envelope import Envelope, StoredEntry
from spotline.domain.events.event import Event
from spotline.runtime.own_records import OwnRecords
from spotline.runtime.watched import HostCounters

_log = structlog.get_logger(__name__)

StateT = TypeVar("StateT")

StoredOutputs = Mapping[int, StoredEntry]
"""What the log holds already of the outputs of an input, by index."""


class RecordedTurns(Generic[StateT]):
    """Takes each input as it was taken, where the log says how: decided, or parked."""

    def __init__(self, turns: Turns[StateT], own: OwnRecords, counters: HostCounters) -> None:
        self._turns = turns
        self._own = own
        self._counters = counters

    def awaits(self, envelope: Envelope) -> bool:
        """Whether an event is for this service, and was not taken before."""
        service = self._turns.service
        return envelope.is_for(service) and not self._turns.has_applied(envelope.event_id)

    def take(self, event: Event, ctx: Context, envelope: Envelope) -> tuple[Turn, StoredOutputs]:
        """Take an input up, or again behind the floor: decide what is not recorded yet."""
        stored, parked = self._recorded(envelope)
        if parked is not None:
            return self._turns.leave_out(ctx, parked), stored
        turn = self._turns.take(event, ctx, _outputs_of(stored))
        self._tell(turn, envelope, ctx)
        # What is parked now is stored nowhere yet, whatever an earlier version decided on it.
        return turn, {} if turn.parked is not None else stored

    def refold(self, event: Event, ctx: Context, envelope: Envelope) -> tuple[Turn, StoredOutputs]:
        """Apply an acknowledged input, and what is recorded of it; decide nothing."""
        stored, parked = self._recorded(envelope)
        if parked is not None:
            return self._turns.leave_out(ctx, parked), stored
        turn = self._turns.refold(event, ctx, _outputs_of(stored))
        self._tell(turn, envelope, ctx)
        # What is parked now is stored nowhere yet, whatever an earlier version decided on it.
        return turn, {} if turn.parked is not None else stored

    def _recorded(self, envelope: Envelope) -> tuple[StoredOutputs, Output | None]:
        parked = self._own.take_parked(envelope.event_id)
        stored = self._own.take_decisions(envelope.event_id)
        return (stored, None) if parked is None else ({0: parked}, output_of(parked))

    def _tell(self, turn: Turn, envelope: Envelope, ctx: Context) -> None:
        """Count and log what is left out from now on."""
        error = turn.error
        if error is None:
            return
        self._counters.parked[envelope.kind] += 1
        details: dict[str, Any] = {"job_id": turn.parked.job_id} if turn.parked else {}
        if isinstance(error, Unproven):
            self._counters.not_believed += 1
            # Whose name it came in, which need not be who wrote it.
            details["source"] = envelope.source
        _log.error(
            "parked",
            service=self._turns.service,
            kind=envelope.kind,
            seq=ctx.seq,
            event_id=envelope.event_id,
            error=str(error),
            # An event that does not fit says all itself; of a fault of ours the place is wanted.
            exc_info=None if isinstance(error, Unfit) else error,
            **details,
        )


def _outputs_of(stored: StoredOutputs) -> dict[int, Output]:
    return {index: output_of(entry) for index, entry in stored.items()}
