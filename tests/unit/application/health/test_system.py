"""The system as a whole: what the log tells of it, and what its services tell."""

from __future__ import annotations

from spotline.application.health.conditions import (
    OF_THE_SYSTEM,
    STOPS_EVENTS,
    ConditionKind,
    HealthLimits,
    Judged,
)
from spotline.application.health.system import (
    NEEDED,
    Heard,
    agreement,
    as_heard,
    freezes,
    orphans,
    parked,
    system_status,
)
from spotline.application.market_view import ClockReading
from spotline.application.operations.fold import OperationsState
from spotline.application.operations.messages import Condition, ServiceStatus
from spotline.domain.events.agreement import (
    AgreementChecked,
    Disagreement,
    DisagreementKind,
    OrphanFound,
    OrphanSettled,
)
from spotline.domain.events.event import Event
from spotline.domain.events.freeze import BuyingFrozen, BuyingUnfrozen
from spotline.domain.events.parking import EntryParked, ParkedEntryDropped
from spotline.domain.limits.freezes import Freeze, FreezeReason, FreezeScope

LIMITS = HealthLimits(agreement_slots=24, freeze_slots=6, heard_s=15.0)
WIPED = Disagreement(
    kind=DisagreementKind.LOG_WIPED,
    scope=FreezeScope.SYSTEM,
    key="",
    detail="the log is empty, the ledger holds 12 jobs",
    continue_with="spotline store repair",
)


def folded(*events: Event) -> OperationsState:
    state = OperationsState()
    for event in events:
        state.fold(event)
    return state


def checked(slot: int, *disagreements: Disagreement) -> AgreementChecked:
    return AgreementChecked(
        slot=slot, ts_event_ns=0, last_seq=1, disagreements=tuple(disagreements)
    )


def frozen(freeze_id: str, slot: int, continue_with: str = "") -> BuyingFrozen:
    freeze = Freeze(
        freeze_id=freeze_id,
        scope=FreezeScope.OFFERING,
        key="a:b:c",
        reason=FreezeReason.STALE_QUOTES,
        detail="no quote for an hour",
        continue_with=continue_with,
        slot=slot,
    )
    return BuyingFrozen(freeze=freeze)


def entry_parked(event_id: str) -> EntryParked:
    return EntryParked(
        service="selector",
        seq=5,
        place=0,
        event_id=event_id,
        kind="market.slot",
        error="slot must be 7,\nwas 10000000",
        error_type="InvariantViolation",
    )


# --- what the log tells -----------------------------------------------------------------------


def test_what_was_compared_lately_and_agreed_is_well() -> None:
    assert agreement(folded(checked(10)), 33, LIMITS).healthy
    late = agreement(folded(checked(10)), 34, LIMITS)
    assert not late.healthy
    assert late.detail == "log, ledger and cloud agreed 24 slots ago"


def test_what_was_never_compared_is_not_well_after_as_many_slots() -> None:
    assert agreement(folded(), -1, LIMITS).healthy
    assert agreement(folded(), 22, LIMITS).healthy
    assert not agreement(folded(), 23, LIMITS).healthy


def test_what_differs_is_told_with_the_command_that_continues() -> None:
    found = agreement(folded(checked(10, WIPED, WIPED)), 10, LIMITS)
    assert not found.healthy
    assert found.detail == "the log is empty, the ledger holds 12 jobs; and 1 more"
    assert found.continue_with == "spotline store repair"
    assert agreement(folded(checked(10, WIPED), checked(11)), 11, LIMITS).healthy


def test_parked_entries_are_not_well_until_somebody_deals_with_them() -> None:
    assert parked(folded()).healthy
    found = parked(folded(entry_parked("a"), entry_parked("b")))
    assert not found.healthy
    assert found.condition().detail == (
        "2 parked; the first by selector: slot must be 7, was 10000000"
    )
    dropped = ParkedEntryDropped(service="selector", event_id="a")
    assert parked(folded(entry_parked("a"), dropped)).healthy


def test_a_freeze_is_not_well_when_it_is_old() -> None:
    young = freezes(folded(frozen("x", 10)), 15, LIMITS)
    assert young.healthy
    assert young.figure == 1
    old = freezes(folded(frozen("x", 10, "spotline resume"), frozen("y", 12)), 16, LIMITS)
    assert not old.healthy
    assert old.detail == (
        "2 in force, 1 of them for 6 slots or longer; the oldest, of offering a:b:c: "
        "no quote for an hour"
    )
    assert old.continue_with == "spotline resume"
    assert freezes(folded(frozen("x", 10), BuyingUnfrozen(freeze_id="x")), 99, LIMITS).healthy


def test_orphans_are_not_well_until_they_are_settled() -> None:
    found = OrphanFound(
        instance_id="i-1",
        offering_id="a:b:c",
        slot=3,
        ts_event_ns=0,
        reap_after_ns=0,
        detail="its job is not in the log",
    )
    settled = OrphanSettled(instance_id="i-1", reaped=True, detail="", slot=4, ts_event_ns=0)
    assert not orphans(folded(found)).healthy
    assert orphans(folded(found, settled)).healthy


# --- what services tell -----------------------------------------------------------------------


def heard(name: str, at_s: float, *, ready: bool = True) -> dict[str, Heard]:
    status = ServiceStatus(service=name, ready=ready, heard_s_ago=0)
    return {name: Heard(status=status, at_s=at_s)}


def all_heard(at_s: float) -> dict[str, Heard]:
    return {name: said for each in NEEDED for name, said in heard(each, at_s).items()}


def test_a_service_that_must_be_and_was_never_heard_is_not_ready() -> None:
    found = as_heard({}, now_s=40.0, since_s=10.0, limits=LIMITS)
    assert [status.service for status in found] == sorted(NEEDED)
    for status in found:
        assert not status.ready
        assert status.heard_s_ago == -1
        assert status.conditions[0].detail == "not heard for 30 s, never before"


def test_a_service_that_is_silent_is_not_ready_whatever_it_said_last() -> None:
    said = all_heard(100.0)
    before = as_heard(said, now_s=114.9, since_s=0.0, limits=LIMITS)
    assert all(status.ready and status.heard_s_ago == 14 for status in before)
    after = as_heard(said, now_s=115.0, since_s=0.0, limits=LIMITS)
    assert not any(status.ready for status in after)
    assert after[0].conditions[-1] == Condition(
        name="heard",
        healthy=False,
        detail="not heard for 15 s",
        continue_with="start it, or see its own log",
    )


def test_a_service_that_need_not_be_is_told_once_it_was_heard() -> None:
    found = as_heard(
        {**all_heard(0.0), **heard("read_model", 0.0)}, now_s=1.0, since_s=0.0, limits=LIMITS
    )
    assert "read_model" in [status.service for status in found]


def test_the_system_is_well_only_where_all_of_it_is() -> None:
    clock = ClockReading(market_ns=0, slot=3, slot_s=600)
    state = folded(checked(3))
    services = as_heard(all_heard(0.0), now_s=1.0, since_s=0.0, limits=LIMITS)

    def well(state: OperationsState, services: tuple[ServiceStatus, ...]) -> bool:
        return system_status(state, clock=clock, services=services, limits=LIMITS).healthy

    assert well(state, services)
    assert not well(folded(checked(3), entry_parked("a")), services)
    for at in range(len(services)):
        unready = ServiceStatus(service=services[at].service, ready=False, heard_s_ago=0)
        assert not well(state, (*services[:at], unready, *services[at + 1 :]))
        unwell = ServiceStatus(
            service=services[at].service,
            ready=True,
            heard_s_ago=0,
            conditions=(Condition(name="loop", healthy=False, detail=""),),
        )
        assert not well(state, (*services[:at], unwell, *services[at + 1 :]))


def test_the_status_holds_what_the_log_tells() -> None:
    state = folded(checked(3, WIPED), entry_parked("a"), frozen("x", 0))
    status = system_status(state, clock=None, services=(), limits=LIMITS)
    assert status.parked == 1
    assert [freeze.freeze_id for freeze in status.freezes] == ["x"]
    assert status.agreement == checked(3, WIPED)
    assert {condition.name for condition in status.conditions} == {
        kind.value for kind in OF_THE_SYSTEM
    }


# --- the form ---------------------------------------------------------------------------------


def test_a_condition_is_one_line_that_is_not_endless_and_says_no_more_than_needed() -> None:
    long = Judged(
        kind=ConditionKind.LOG,
        healthy=True,
        detail="one\ntwo " + "x" * 10_000,
        continue_with="spotline store check",
    ).condition()
    assert long.detail.startswith("one two xxx")
    assert len(long.detail) < 500
    # What is well needs nothing.
    assert long.continue_with == ""


def test_what_is_of_the_system_stops_no_service() -> None:
    assert not STOPS_EVENTS & OF_THE_SYSTEM
