"""The system as a whole: its services as they tell of themselves, and what the log tells of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from spotline.application.health.conditions import (
    ConditionKind,
    HealthLimits,
    Judged,
    lasting,
)
from spotline.application.market_view import ClockReading
from spotline.application.operations.fold import OperationsState
from spotline.application.operations.messages import Condition, ServiceStatus, SystemStatus

NEEDED = ("allocator", "cloud_actuator", "forecaster", "market_ingest", "selector")
"""The services without which no slot is decided and paid for: they must be heard."""

NEVER_S = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What a service told of itself, and when that came."""

    status: ServiceStatus
    at_s: float


def agreement(state: OperationsState, slot: int, limits: HealthLimits) -> Judged:
    """Whether log, ledger and cloud say the same, as of not long ago; `slot` is -1 before any."""
    checked = state.agreement
    since = slot + 1 if checked is None else max(0, slot - checked.slot)
    healthy, continue_with = since < limits.agreement_slots, "the log of cloud_actuator"
    if checked is None:
        detail = "log, ledger and cloud were not compared yet"
    elif checked.disagreements:
        first, more = checked.disagreements[0], len(checked.disagreements) - 1
        healthy = False
        continue_with = first.continue_with
        detail = first.detail + (f"; and {more} more" if more else "")
    else:
        detail = f"log, ledger and cloud agreed {since} slots ago"
    return Judged(
        kind=ConditionKind.AGREEMENT,
        healthy=healthy,
        detail=detail,
        figure=since,
        continue_with=continue_with,
    )


def parked(state: OperationsState) -> Judged:
    """Whether every entry of the log could be taken."""
    count = len(state.parked)
    detail = "no entry is parked"
    if count:
        first = next(iter(state.parked.values()))
        detail = f"{count} parked; the first by {first.service}: {first.error}"
    return Judged(
        kind=ConditionKind.PARKED,
        healthy=not count,
        detail=detail,
        figure=count,
        continue_with="spotline parked list",
    )


def freezes(state: OperationsState, slot: int, limits: HealthLimits) -> Judged:
    """Whether buying has been stopped for long; one that is younger may end by itself."""
    begun = sorted(state.freezes, key=lambda freeze: (freeze.slot, freeze.freeze_id))
    old = [freeze for freeze in begun if slot - freeze.slot >= limits.freeze_slots]
    detail, continue_with = "buying is not stopped", ""
    if begun:
        oldest = begun[0]
        named = f"{oldest.scope.value} {oldest.key}".rstrip()
        detail = (
            f"{len(begun)} in force, {len(old)} of them for {limits.freeze_slots} slots or longer; "
            f"the oldest, of {named}: {oldest.detail}"
        )
        continue_with = oldest.continue_with or "spotline status --system --json"
    return Judged(
        kind=ConditionKind.FREEZES,
        healthy=not old,
        detail=detail,
        figure=len(begun),
        continue_with=continue_with,
    )


def orphans(state: OperationsState) -> Judged:
    """Whether every instance of ours belongs to a job."""
    count = len(state.orphans)
    detail = "every instance belongs to a job"
    if count:
        first = next(iter(state.orphans.values()))
        detail = (
            f"{count} belong to no job, and are billed; {first.instance_id} at "
            f"{first.offering_id}: {first.detail}"
        )
    return Judged(
        kind=ConditionKind.ORPHANS,
        healthy=not count,
        detail=detail,
        figure=count,
        continue_with="spotline orphans list",
    )


def heard_all(services: Sequence[ServiceStatus], limits: HealthLimits) -> Judged:
    """Whether every service that must be, and every one that was heard once, is heard still."""
    silent = [
        status.service
        for status in services
        if status.heard_s_ago == NEVER_S or status.heard_s_ago >= limits.heard_s
    ]
    return Judged(
        kind=ConditionKind.HEARD,
        healthy=not silent,
        detail=f"not heard: {', '.join(silent)}" if silent else "every service is heard",
        figure=len(silent),
        continue_with="start it, or see its own log",
    )


def of_the_log(state: OperationsState, slot: int, limits: HealthLimits) -> tuple[Judged, ...]:
    """The conditions that are folded from the log; `slot` is the open one, -1 before any."""
    return (
        agreement(state, slot, limits),
        parked(state),
        freezes(state, slot, limits),
        orphans(state),
    )


def as_heard(
    heard: Mapping[str, Heard], *, now_s: float, since_s: float, limits: HealthLimits
) -> tuple[ServiceStatus, ...]:
    """The services by name: those that were heard, and those that must be.

    One that has not told anything for too long is not ready, whatever it told last. Nobody was
    listened to before `since_s`.
    """
    found: dict[str, ServiceStatus] = {}
    for name in sorted({*heard, *NEEDED}):
        said = heard.get(name)
        if said is None:
            # It may only just have been started, but nothing vouches for it.
            found[name] = ServiceStatus(
                service=name,
                ready=False,
                heard_s_ago=NEVER_S,
                conditions=(_silent(f"not heard for {lasting(now_s - since_s)}, never before"),),
            )
            continue
        silent_s = max(0.0, now_s - said.at_s)
        status = replace(said.status, service=name, heard_s_ago=int(silent_s))
        if silent_s >= limits.heard_s:
            status = replace(
                status,
                ready=False,
                conditions=(
                    *status.conditions,
                    _silent(f"not heard for {lasting(silent_s)}"),
                ),
            )
        found[name] = status
    return tuple(found.values())


def _silent(detail: str) -> Condition:
    return Condition(
        name=ConditionKind.HEARD.value,
        healthy=False,
        detail=detail,
        continue_with="start it, or see its own log",
    )


def system_status(
    state: OperationsState,
    *,
    clock: ClockReading | None,
    services: Sequence[ServiceStatus],
    limits: HealthLimits,
) -> SystemStatus:
    """All that is known of the system; well only where every service and every condition is."""
    slot = -1 if clock is None else clock.slot
    judged = (heard_all(services, limits), *of_the_log(state, slot, limits))
    conditions = tuple(each.condition() for each in judged)
    return SystemStatus(
        healthy=all(condition.healthy for condition in conditions) and all_well(services),
        services=tuple(sorted(services, key=lambda status: status.service)),
        conditions=conditions,
        freezes=tuple(state.freezes),
        parked=len(state.parked),
        agreement=state.agreement,
        orphans=len(state.orphans),
        clock=clock,
    )


def all_well(services: Iterable[ServiceStatus]) -> bool:
    """Whether every service is ready, and every condition of each healthy."""
    return all(
        status.ready and all(condition.healthy for condition in status.conditions)
        for status in services
    )
