"""The actuator's deciding half: collect a revision's commands, then ask for them to be done.

All it produces are observations of a cloud, so it decides no events; it asks for calls, one when a
slot opens, one when a revision is complete, one when the cloud has something to say in between, and
one to have the ledger hold a submitted job. Commands wait for their revision so that releases of
one job come before launches of another.

What pipelines are to hold is commanded without regard to slots. Such commands wait for the next
revision of the open slot and are carried out with it: a slot is settled once, by its own author.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from spotline.application.account_modes import note_mode
from spotline.application.cloud_actuator.charging import charged_by, resumed_behind
from spotline.application.cloud_actuator.log_fold import FOLDED, LogFold, LogView
from spotline.application.cloud_actuator.messages import (
    AdmitRequest,
    ApplyRevisionRequest,
    Moment,
    NoteJobRequest,
    OpenSlotRequest,
    ReapRequest,
    SignalRequest,
    StoppedLaunch,
)
from spotline.application.cloud_actuator.probing import command_of
from spotline.application.cloud_actuator.proof import PROVEN_BY, Proofs
from spotline.application.slot_checks import check_slot, slot_of
from spotline.application.spec import NOTHING, Call, CallSpec, Context, Outcome, Spec, Timer
from spotline.application.unfit import Unfit
from spotline.contracts.mapping import digest
from spotline.domain.canonical import canonical_v1
from spotline.domain.events.agreement import (
    AgreementChecked,
    IncarnationBegun,
    OrphanFound,
    OrphanReapRequested,
    OrphanSettled,
)
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    CapacitySignalled,
    CostAccrued,
    InstancesEnded,
    InterruptionNoticed,
    InterruptionWithdrawn,
    LaunchRefused,
    OfferingProbed,
    ProbeCommanded,
    ProvisioningCommanded,
    SlotDecided,
)
from spotline.domain.events.event import Event
from spotline.domain.events.freeze import BuyingExcepted, BuyingFrozen, BuyingUnfrozen
from spotline.domain.events.lifecycle import (
    AdmissionRecorded,
    JobAdmitted,
    JobCancelled,
    JobClosed,
    JobSubmitted,
    JobUpdated,
)
from spotline.domain.events.limits import LimitSet
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.events.modes import AccountModeSet
from spotline.domain.events.parking import EntryParked
from spotline.domain.events.placement import (
    PipelineProvisioningCommanded,
    PipelineSubmitted,
    PlacementDecided,
    PlacementEnded,
    RegionObserved,
)
from spotline.domain.ledger.billing import OfferingPrice, SlotPrices
from spotline.domain.ledger.cooldowns import OfferingPlace
from spotline.domain.ledger.job_records import JobEvent, JobRecord
from spotline.domain.limits.freezes import Freezes, Purchase
from spotline.domain.limits.raised import LimitAt
from spotline.domain.market.notice import announced_notice_s
from spotline.domain.market.offering import CapacityType, Offering
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.units import NS_PER_S

AnyCommand = TypeVar("AnyCommand", ProvisioningCommanded, ProbeCommanded)

OPEN_SLOT = "cloud.open_slot"
APPLY_REVISION = "cloud.apply_revision"
SIGNALLED = "cloud.signalled"
ADMIT = "ledger.admit"
NOTE_JOB = "ledger.note_job"
REAP = "cloud.reap"

_OBSERVED = (
    LaunchRefused,
    InterruptionNoticed,
    InterruptionWithdrawn,
    CapacityLost,
    InstancesEnded,
    CapacityReported,
    OfferingProbed,
    CostAccrued,
)

_TOLD = (AgreementChecked, BuyingFrozen, BuyingUnfrozen, OrphanFound, OrphanSettled)

SPEC = Spec(
    service="cloud_actuator",
    consumes=(
        MarketOpened,
        SlotOpened,
        ProvisioningCommanded,
        ProbeCommanded,
        SlotDecided,
        PipelineProvisioningCommanded,
        CapacitySignalled,
        JobSubmitted,
        JobUpdated,
        JobCancelled,
        JobClosed,
        IncarnationBegun,
        BuyingFrozen,
        BuyingUnfrozen,
        AccountModeSet,
        LimitSet,
        OrphanReapRequested,
        # Beside what it acts on, what log, ledger and cloud are compared by.
        *(CapacityReported, CapacityLost, CostAccrued, OrphanFound, OrphanSettled),
        # What a command is proved by.
        *(JobAdmitted, AllocationDecided),
        *(RegionObserved, PipelineSubmitted, PlacementDecided, PlacementEnded),
    ),
    produces=(
        *(*_OBSERVED, CapacitySignalled, AdmissionRecorded, BuyingExcepted, *_TOLD),
        EntryParked,
    ),
    calls=(
        CallSpec(name=OPEN_SLOT, answers=(*_OBSERVED, *_TOLD)),
        CallSpec(name=APPLY_REVISION, answers=(*_OBSERVED, BuyingExcepted, *_TOLD)),
        CallSpec(
            name=SIGNALLED,
            answers=(
                *(InterruptionNoticed, InterruptionWithdrawn, CapacityLost, InstancesEnded),
                *(CapacityReported, BuyingFrozen),
            ),
        ),
        CallSpec(name=ADMIT, answers=(AdmissionRecorded,)),
        CallSpec(name=NOTE_JOB, answers=()),
        CallSpec(name=REAP, answers=(OrphanFound, OrphanSettled)),
    ),
)


@dataclass(slots=True, kw_only=True)
class ActuateState:
    """The open slot with its prices, the slots still to be billed, the waiting commands and probes.

    `pipelines` are commands that wait for a revision, by job and offering; `carried` those that go
    with the revision decided last. `freezes` say where nothing is bought, `log` is what ledger and
    cloud are compared with, `proofs` what commands are proved by, `limits_set` the limits that people
    have set since. `revision` is the open slot's last one, -1 before its first.
    `resumed_slot` is the last slot that was open in a part of the log that is lost, -1 once the
    next one has opened.
    """

    opened: SlotOpened | None = None
    revision: int = -1
    resumed_slot: int = -1
    places: dict[str, OfferingPlace] = field(default_factory=dict)
    prices: dict[str, OfferingPrice] = field(default_factory=dict)
    unbilled: tuple[SlotPrices, ...] = ()
    commands: list[ProvisioningCommanded] = field(default_factory=list)
    probes: list[ProbeCommanded] = field(default_factory=list)
    pipelines: dict[tuple[str, str], PipelineProvisioningCommanded] = field(default_factory=dict)
    carried: tuple[ProvisioningCommanded, ...] = ()
    freezes: Freezes = field(default_factory=Freezes)
    log: LogFold = field(default_factory=LogFold)
    proofs: Proofs = field(default_factory=Proofs)
    limits_set: dict[LimitAt, LimitSet] = field(default_factory=dict)


class ActuateHandler:
    """Turns slots and decided revisions into calls."""

    spec = SPEC

    def initial(self) -> ActuateState:
        """No slot yet."""
        return ActuateState()

    def check(self, state: ActuateState, event: Event) -> None:
        """Refuse what the log does not bear out; see `Checks`."""
        state.proofs.check(event, state.commands, state.log.closed)

    def evolve(self, state: ActuateState, event: Event) -> None:
        """Apply `event` to `state`."""
        _note(state, event)
        if isinstance(event, MarketOpened):
            state.places |= {offering.offering_id: _place(offering) for offering in event.offerings}
        elif isinstance(event, SlotOpened):
            before = state.opened
            if before is None or event.slot > before.slot:
                check_slot(event, *slot_of(before))
                _open(state, event)
        elif isinstance(event, IncarnationBegun):
            state.resumed_slot = resumed_behind(state.opened, state.resumed_slot, event)
        elif isinstance(event, ProvisioningCommanded | ProbeCommanded):
            _take_command(state, event)
        elif isinstance(event, PipelineProvisioningCommanded):
            _put_off(state, event)
        elif isinstance(event, BuyingFrozen):
            state.freezes.begin(event.freeze)
        elif isinstance(event, BuyingUnfrozen):
            state.freezes.end(event.freeze_id)
        elif isinstance(event, AccountModeSet):
            note_mode(state.freezes, event)
        elif isinstance(event, LimitSet):
            state.limits_set[event.at] = event
        elif isinstance(event, SlotDecided) and _of_open_slot(state, event):
            state.carried = tuple(
                _with_revision(waiting, event) for _, waiting in sorted(state.pipelines.items())
            )
            state.pipelines = {}
            state.revision = event.revision

    def decide(self, state: ActuateState, event: Event, ctx: Context) -> Outcome:
        """Ask for the call that a new slot or a complete revision needs.

        A revision of a slot that is over is not carried out: that slot is billed, and the
        selector decides the present one against what is held.
        """
        opened = state.opened
        # Itself, not its like: told again under another id, it would be billed in the log again.
        if isinstance(event, SlotOpened) and event is opened:
            opening = OpenSlotRequest(
                at=_moment(event, 0),
                quotes=tuple(quoted.quote for quoted in event.quotes),
                unbilled=state.unbilled,
            )
            return _call_beside_log(OPEN_SLOT, opening, _log_view(state, ctx))
        if isinstance(event, JobSubmitted):
            job = event.job
            admit = AdmitRequest(job_id=job.job_id, tenant=job.tenant, job_digest=digest(job))
            return _noted(ADMIT, admit, _record_of(event, job.job_id, ctx))
        if isinstance(event, JobUpdated | JobCancelled | JobClosed):
            note = NoteJobRequest(event_id=ctx.event_id, job_id=event.job_id)
            return _noted(NOTE_JOB, note, _record_of(event, event.job_id, ctx))
        if isinstance(event, CapacitySignalled):
            # A signal of another slot is dealt with when that one opens, or was.
            if opened is None or event.slot != opened.slot:
                return NOTHING
            at = _moment(opened, event.offset_s)
            signal = SignalRequest(at=at, revision=state.revision)
            return _call_beside_log(SIGNALLED, signal, _log_view(state, ctx))
        if isinstance(event, OrphanReapRequested) and opened is not None:
            reaping = ReapRequest(
                at=_moment(opened, 0),
                request_id=ctx.event_id,
                instance_ids=event.instance_ids,
                by=event.by,
            )
            return _call_beside_log(REAP, reaping, _log_view(state, ctx))
        if isinstance(event, SlotDecided):
            return self._apply(state, event, _log_view(state, ctx))
        return NOTHING

    def _apply(self, state: ActuateState, event: SlotDecided, log: LogView) -> Outcome:
        opened = state.opened
        if opened is None or event.slot > opened.slot:
            last = "none has opened" if opened is None else f"<= {opened.slot}"
            raise Unfit("slot", f"one that has opened ({last})", event.slot)
        if event.slot < opened.slot:
            return NOTHING
        commands = tuple(_of_revision(state.commands, event.slot, event.revision))
        if len(commands) != event.commands:
            came = f"{len(commands)}, as many as came of revision {event.revision} before it"
            raise Unfit("commands", came, event.commands)
        commands = (*commands, *state.carried)
        probes = tuple(_of_revision(state.probes, event.slot, event.revision))
        launches = (*commands, *map(command_of, probes))
        commanded = sorted({command.target.offering_id for command in launches})
        request = ApplyRevisionRequest(
            revision=event.revision,
            at=_moment(opened, event.offset_s),
            prices=_slot_prices(state, opened.slot, opened.slot_s),
            commands=commands,
            # What comes after a market's end is billed already.
            last=opened.last and event.offset_s < opened.slot_s,
            probes=probes,
        )
        places = tuple(state.places[name] for name in commanded if name in state.places)
        call = _called(APPLY_REVISION, request)
        request = replace(
            request,
            places=places,
            stops=_stops(state, launches),
            log=log,
            urgent=_urgent(state, commands),
            limits=tuple(event.limit for event in state.limits_set.values()),
        )
        return Outcome(calls=(replace(call, request=request),))

    def due(self, state: ActuateState) -> Sequence[Timer]:
        """Wait for nothing."""
        return ()


def _note(state: ActuateState, event: Event) -> None:
    """Keep what commands are proved by, and what ledger and cloud are compared with."""
    if isinstance(event, PROVEN_BY):
        state.proofs.fold(event, state.log.closed)
    if isinstance(event, FOLDED):
        state.log.fold(event)


def _stops(
    state: ActuateState, commands: Sequence[ProvisioningCommanded]
) -> tuple[StoppedLaunch, ...]:
    """What stands against buying, by command and capacity type."""
    if not state.freezes.by_id:
        return ()
    found = []
    for command in commands:
        offering_id = command.target.offering_id
        place = state.places.get(offering_id)
        for kind in CapacityType:
            freeze = state.freezes.blocking(
                Purchase(
                    job_id=command.job_id,
                    tenant=command.tenant,
                    offering_id=offering_id,
                    account=place.account if place is not None else "",
                    capacity_type=kind,
                )
            )
            if freeze is not None:
                found.append(
                    StoppedLaunch(
                        command_id=command.command_id,
                        capacity_type=kind,
                        freeze_id=freeze.freeze_id,
                        detail=freeze.detail,
                        yields=freeze.yields_to_deadlines,
                        scope=freeze.scope,
                    )
                )
    return tuple(found)


def _urgent(state: ActuateState, commands: Sequence[ProvisioningCommanded]) -> frozenset[str]:
    """The commands of jobs whose slack is used up: their safety net is on-demand now."""
    nets = {
        job_id
        for job_id, decided in state.proofs.decided.items()
        if decided.reason is DecisionReason.SAFETY_NET
    }
    return frozenset(command.command_id for command in commands if command.job_id in nets)


def _put_off(state: ActuateState, event: PipelineProvisioningCommanded) -> None:
    """Keep a command for the next revision; copies are paid whatever is held afterwards."""
    where = event.job_id, event.target.offering_id
    before = state.pipelines.get(where)
    owed = 0 if before is None else before.transfer_cost_micro_usd
    state.pipelines[where] = replace(
        event, transfer_cost_micro_usd=event.transfer_cost_micro_usd + owed
    )


def _take_command(state: ActuateState, event: ProvisioningCommanded | ProbeCommanded) -> None:
    """Keep a command of the open slot; what an earlier revision left was never decided, nor will be."""
    if state.opened is not None and event.slot < state.opened.slot:
        return
    if isinstance(event, ProbeCommanded):
        state.probes = [*_of_revision(state.probes, event.slot, event.revision), event]
    else:
        state.commands = [*_of_revision(state.commands, event.slot, event.revision), event]


def _of_revision(commands: Sequence[AnyCommand], slot: int, revision: int) -> list[AnyCommand]:
    return [each for each in commands if (each.slot, each.revision) == (slot, revision)]


def _of_open_slot(state: ActuateState, decided: SlotDecided) -> bool:
    return state.opened is not None and decided.slot == state.opened.slot


def _with_revision(
    waiting: PipelineProvisioningCommanded, decided: SlotDecided
) -> ProvisioningCommanded:
    return ProvisioningCommanded(
        command_id=waiting.command_id,
        job_id=waiting.job_id,
        tenant=waiting.tenant,
        quota_pool=waiting.quota_pool,
        slot=decided.slot,
        revision=decided.revision,
        offset_s=decided.offset_s,
        target=waiting.target,
        transfer_cost_micro_usd=waiting.transfer_cost_micro_usd,
    )


def _open(state: ActuateState, opened: SlotOpened) -> None:
    slots, of = charged_by(state.opened, state.resumed_slot, opened), state.opened
    if state.resumed_slot >= 0 or of is None:
        # What was quoted last is lost: from there on prices are those known now.
        _quote(state, opened)
        of = opened
    state.unbilled = tuple(_slot_prices(state, slot, of.slot_s) for slot in slots)
    state.resumed_slot = -1
    state.opened = opened
    state.revision = -1
    _quote(state, opened)


def _quote(state: ActuateState, opened: SlotOpened) -> None:
    for quoted in opened.quotes:
        quote = quoted.quote
        state.prices[quote.offering_id] = OfferingPrice(
            offering_id=quote.offering_id,
            spot_micro_usd=quote.spot_price_micro_usd,
            on_demand_micro_usd=quote.on_demand_price_micro_usd,
        )


def _slot_prices(state: ActuateState, slot: int, slot_s: int) -> SlotPrices:
    prices = tuple(price for _, price in sorted(state.prices.items()))
    return SlotPrices(slot=slot, slot_s=slot_s, prices=prices)


def _moment(opened: SlotOpened, offset_s: int) -> Moment:
    return Moment(
        slot=opened.slot,
        slot_s=opened.slot_s,
        offset_s=offset_s,
        ts_ns=opened.ts_event_ns + offset_s * NS_PER_S,
    )


def _place(offering: Offering) -> OfferingPlace:
    account = offering.account_key
    return OfferingPlace(
        offering_id=offering.offering_id,
        zone=f"{account}/{offering.region}/{offering.zone}",
        account=account,
        billing=offering.billing,
        announced_s=announced_notice_s(offering),
    )


def _record_of(event: JobEvent, job_id: str, ctx: Context) -> JobRecord:
    return JobRecord(
        event_id=ctx.event_id, correlation_id=ctx.correlation_id, job_id=job_id, event=event
    )


def _noted(name: str, request: AdmitRequest | NoteJobRequest, record: JobRecord) -> Outcome:
    """Ask for `request` with what the log said, which the call is not told apart by."""
    call = _called(name, request)
    return Outcome(calls=(replace(call, request=replace(request, record=record)),))


def _log_view(state: ActuateState, ctx: Context) -> LogView:
    accounts = {name: place.account for name, place in state.places.items()}
    return state.log.view(ctx.seq, accounts, (*state.commands, *state.carried))


_Request = (
    OpenSlotRequest
    | ApplyRevisionRequest
    | SignalRequest
    | AdmitRequest
    | NoteJobRequest
    | ReapRequest
)


def _call_beside_log(
    name: str, request: OpenSlotRequest | SignalRequest | ReapRequest, log: LogView
) -> Outcome:
    """Ask for a call that is the same call whatever the log says."""
    call = _called(name, request)
    return Outcome(calls=(replace(call, request=replace(request, log=log)),))


def _call(name: str, request: _Request) -> Outcome:
    return Outcome(calls=(_called(name, request),))


def _called(name: str, request: _Request) -> Call:
    identity = hashlib.sha256(f"{name}\x1f{canonical_v1(request)}".encode()).hexdigest()[:32]
    return Call(name=name, digest=identity, request=request)
