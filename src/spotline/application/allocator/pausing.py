"""A person stops buying for a scope, and lets it go on."""

from __future__ import annotations

from spotline.application.allocator.jobs_state import JobsState
from spotline.application.operations.messages import Pause, Resume
from spotline.contracts.reasons import Reason
from spotline.domain.limits.freezes import Freeze, FreezeReason, Freezes, FreezeScope

_OPTIONS = {
    FreezeScope.SYSTEM: "--all",
    FreezeScope.ACCOUNT: "--account",
    FreezeScope.OFFERING: "--offering",
    FreezeScope.TENANT: "--tenant",
    FreezeScope.JOB: "--job",
}


class CannotPause(ValueError):
    """What is to be paused or resumed cannot be; `unknown`: there is no such thing."""

    def __init__(
        self, field: str, message: str, *, unknown: bool = False, reason: Reason | None = None
    ) -> None:
        super().__init__(message)
        self.field = field
        self.unknown = unknown
        self.reason = reason or Reason.UNKNOWN_FREEZE


def pause_id(scope: FreezeScope, key: str) -> str:
    """The id of a person's stop of a scope; there is one."""
    return f"pause:{scope.value}:{key}" if key else f"pause:{scope.value}"


def pause_freeze(pause: Pause, *, slot: int, ts_event_ns: int) -> Freeze:
    """The stop that a person wants."""
    option = _OPTIONS[pause.scope]
    command = f"spotline resume {option} {pause.key}".rstrip()
    return Freeze(
        freeze_id=pause_id(pause.scope, pause.key),
        scope=pause.scope,
        key=pause.key,
        reason=FreezeReason.PAUSED,
        detail=pause.detail or "an operator paused it",
        continue_with=command,
        slot=slot,
        ts_event_ns=ts_event_ns,
    )


def check_pause(state: JobsState, pause: Pause) -> None:
    """Refuse to pause what nobody knows, so that a misspelt name stops nothing in silence.

    A tenant may be paused before it has any job.

    Raises
    ------
    CannotPause
        The scope's key is missing, superfluous or unknown; says which are known.
    """
    scope, key = pause.scope, pause.key
    if scope is FreezeScope.SYSTEM:
        if key:
            raise CannotPause("key", f"key must be empty for the whole system, was {key!r}")
        return
    if not key:
        raise CannotPause("key", f"key must name the {scope.value}, was empty")
    if scope is FreezeScope.JOB and key not in state.statuses:
        raise CannotPause(
            "key", f"there is no job {key!r}", unknown=True, reason=Reason.UNKNOWN_JOB
        )
    market = state.market()
    if market is None or scope not in (FreezeScope.OFFERING, FreezeScope.ACCOUNT):
        return
    if scope is FreezeScope.OFFERING:
        known = {offering.offering_id for offering in market.offerings}
    else:
        known = {offering.account_key for offering in market.offerings}
    if key not in known:
        raise CannotPause(
            "key",
            f"key must be a known {scope.value}, was {key!r}; known are {', '.join(sorted(known))}",
        )


def ended_by(freezes: Freezes, resume: Resume) -> tuple[Freeze, ...]:
    """The stops that a person ends: the one named, or the pause of a scope and key.

    Raises
    ------
    CannotPause
        Nothing is named, or no such stop is in force; says which are.
    """
    if not resume.freeze_id and resume.scope is None:
        raise CannotPause("freeze_id", "freeze_id or scope must be stated, neither was")
    wanted = resume.freeze_id
    if not wanted and resume.scope is not None:
        wanted = pause_id(resume.scope, resume.key)
    found = freezes.by_id.get(wanted)
    if found is None:
        there_are = ", ".join(freeze.freeze_id for freeze in freezes) or "none"
        raise CannotPause(
            "freeze_id",
            f"no stop {wanted!r} is in force; in force are: {there_are}",
            unknown=True,
        )
    if found.reason is FreezeReason.NOT_LIVE:
        raise CannotPause(
            "freeze_id", f"{found.freeze_id} is no pause: it ends with `{found.continue_with}`"
        )
    return (found,)
