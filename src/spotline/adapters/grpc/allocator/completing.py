"""How the allocator has drafts completed, and what its own callers are told when that fails."""

from __future__ import annotations

from datetime import datetime

import grpc

from spotline.adapters.grpc.kit.errors import RpcFailed, RpcRefused
from spotline.application.allocator.ports import ConfiguratorPort
from spotline.application.configurator.messages import Completion, CompletionRequest
from spotline.contracts.errors import ContractError
from spotline.contracts.reasons import Reason
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.units import ns_from_datetime

# A source that is asked for the first time learns before it answers.
COMPLETE_TIMEOUT_S = 45.0


async def completed(configurator: ConfiguratorPort | None, draft: JobDraft) -> Completion:
    """Have a draft completed.

    Raises
    ------
    RpcRefused
        There is no configurator, it does not answer, or it refuses the draft.
    """
    if configurator is None:
        raise RpcRefused(
            grpc.StatusCode.FAILED_PRECONDITION,
            "draft cannot be completed: this allocator has no configurator; start one and name its "
            "address, or state the job's instances and throughput",
            reason=Reason.NO_CONFIGURATOR,
            field="draft",
        )
    try:
        return await configurator.complete(
            CompletionRequest(draft=draft), timeout_s=COMPLETE_TIMEOUT_S
        )
    except RpcFailed as error:
        raise _refusal(error) from error
    except ContractError as error:
        # Not the caller's mistake: the two are of different versions, most likely.
        raise RpcRefused(
            grpc.StatusCode.INTERNAL,
            f"the configurator's answer cannot be read: {error}",
            reason=Reason.CONFIGURATOR_UNREADABLE,
        ) from error


def _refusal(error: RpcFailed) -> RpcRefused:
    if error.unreachable:
        return RpcRefused(
            grpc.StatusCode.UNAVAILABLE,
            f"{error}; nothing was recorded, try again, or state the job's instances and "
            "throughput",
            reason=Reason.CONFIGURATOR_UNAVAILABLE,
            field="draft",
        )
    earliest = error.earliest_feasible_deadline
    return RpcRefused(
        grpc.StatusCode[error.code],
        str(error),
        reason=_reason(error.reason),
        field=error.field,
        violations=error.violations,
        earliest_feasible_deadline_ns=(
            ns_from_datetime(datetime.fromisoformat(earliest)) if earliest else 0
        ),
    )


def _reason(name: str) -> Reason:
    """The configurator's reason as ours; it may be of another release, or have failed."""
    known = {reason.name: reason for reason in Reason}
    return known.get(name, Reason.CONFIGURATOR_UNREADABLE)
