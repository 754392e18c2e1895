"""What the allocator must have answered to a recorded call, for verification."""

from __future__ import annotations

from dataclasses import replace

from spotline.application.allocation.allocate import allocate
from spotline.application.allocation.messages import AllocateRequest
from spotline.application.spec import Call, Recomputed
from spotline.contracts.errors import InvariantViolation
from spotline.domain.events.allocation import AllocationAnswered, CallOutcome
from spotline.domain.events.event import Event


def recomputed_answer(call: Call, recorded: Event) -> Recomputed:
    """Allocate again where the allocator answered; that it did not is taken as recorded.

    Raises
    ------
    InvariantViolation
        This is no call of an `AllocateRequest`, or no answer to one.
    ValueError
        As `allocate`.
    """
    request = call.request
    if not isinstance(request, AllocateRequest) or not isinstance(recorded, AllocationAnswered):
        raise InvariantViolation(f"{call.name} must be an AllocateRequest and its answer")
    answer = replace(
        recorded, slot=request.slot, revision=request.revision, request_digest=call.digest
    )
    if recorded.outcome is not CallOutcome.ANSWERED:
        return Recomputed(answer=answer, performed=False)
    again = allocate(request)
    answer = replace(
        answer,
        answers=again.answers,
        spot_worth=again.spot_worth,
        fairness=again.fairness,
        probe_worths=again.probe_worths,
    )
    return Recomputed(answer=answer)
