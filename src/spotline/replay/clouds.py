"""A cloud that knows more than it tells: for runs in which information is made hard on purpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from spotline.application.spec import NOTHING, Context, Outcome, Spec, Timer
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    LaunchRefused,
    OfferingProbed,
    ProbeCommanded,
    ProvisioningCommanded,
    RefusalClass,
    SlotDecided,
)
from spotline.domain.events.event import Event
from spotline.domain.events.market import SlotOpened
from spotline.domain.jobs.lot import JobHolding, Lot
from spotline.domain.market.offering import UNKNOWN_COUNT, CapacityType, Count
from spotline.domain.policies.prediction import UNCOUNTED


class Information(Enum):
    """What jobs are told, and when.

    FULL: the quotes say what there is, and it stays so for the slot. CENSORED: counts, of on-demand
    too, are unknown; asking for more than there is gets a refusal, and what is gone is gone at once.
    DECIDE_FIRST: in the middle of every slot the market moves on to the counts of the next one.
    """

    FULL = "full"
    CENSORED = "censored"
    DECIDE_FIRST = "decide_first"


def told(opened: SlotOpened, information: Information) -> SlotOpened:
    """The slot as services get to see it."""
    if information is not Information.CENSORED:
        return opened
    quotes = tuple(
        replace(
            slot_quote,
            quote=replace(
                slot_quote.quote,
                spot_available=UNKNOWN_COUNT,
                on_demand_available=UNKNOWN_COUNT,
            ),
        )
        for slot_quote in opened.quotes
    )
    return replace(opened, quotes=quotes)


@dataclass(slots=True, kw_only=True)
class TellingCloudState:
    """What every job holds, oldest job first, and what the revision at hand has come to."""

    held: dict[str, Lot] = field(default_factory=dict)
    tenants: dict[str, str] = field(default_factory=dict)
    commands: list[ProvisioningCommanded] = field(default_factory=list)
    probes: list[ProbeCommanded] = field(default_factory=list)
    slot: int = -1
    moved: bool = False
    report: tuple[Event, ...] = ()


class TellingCloud:
    """Grants what there really is, and tells of it only by refusing and by taking back.

    Parameters
    ----------
    slots
        The market as it really goes, by slot number.
    information
        What is withheld from those who ask.
    sharing
        Whether jobs share what there is; otherwise each is alone on the market.
    """

    spec = Spec(
        service="cloud_actuator",
        consumes=(ProvisioningCommanded, ProbeCommanded, SlotDecided),
        produces=(LaunchRefused, OfferingProbed, CapacityLost, CapacityReported),
        decides=(LaunchRefused, OfferingProbed, CapacityLost, CapacityReported),
    )

    def __init__(
        self, slots: Mapping[int, SlotOpened], information: Information, *, sharing: bool
    ) -> None:
        self._slots = slots
        self._information = information
        self._sharing = sharing

    def initial(self) -> TellingCloudState:
        """Nothing is held."""
        return TellingCloudState()

    def evolve(self, state: TellingCloudState, event: Event) -> None:
        """Note a command; carry out those of a revision when it ends."""
        if isinstance(event, ProvisioningCommanded):
            state.commands.append(event)
            state.tenants[event.job_id] = event.tenant
        elif isinstance(event, ProbeCommanded):
            state.probes.append(event)
        elif isinstance(event, SlotDecided):
            if event.slot != state.slot:
                state.slot, state.moved = event.slot, False
            state.report = self._carry_out(state, event)
            state.commands, state.probes = [], []

    def decide(self, state: TellingCloudState, event: Event, ctx: Context) -> Outcome:
        """Report what became of a revision."""
        return Outcome(events=state.report) if isinstance(event, SlotDecided) else NOTHING

    def due(self, state: TellingCloudState) -> Sequence[Timer]:
        """Wait for nothing."""
        return ()

    def _carry_out(self, state: TellingCloudState, event: SlotDecided) -> tuple[Event, ...]:
        offset_s = event.offset_s
        refused: list[Event] = []
        for command in state.commands:
            refused += self._grant(state, command)
        probed = [self._probe(state, probe) for probe in state.probes]
        lost: list[Event] = []
        if not refused and not state.moved:
            # Whatever was asked for is settled; now the market does what was not told.
            state.moved = True
            if self._information is Information.DECIDE_FIRST:
                offset_s = self._slots[event.slot].slot_s // 2
            else:
                offset_s = max(offset_s, 1)
            lost = self._take_back(state, offset_s)
        report = CapacityReported(
            slot=event.slot,
            revision=event.revision,
            offset_s=offset_s if lost else event.offset_s,
            settled=not refused and not lost,
            holdings=tuple(
                JobHolding(job_id=job_id, lots=(lot,)) for job_id, lot in sorted(state.held.items())
            ),
        )
        return (*refused, *probed, *lost, report)

    def _probe(self, state: TellingCloudState, probe: ProbeCommanded) -> OfferingProbed:
        """Grant what there is beside all that is held, and take it back at once."""
        spot, _ = self._there_is(state, probe.offering_id)
        held = sum(lot.spot for lot in state.held.values() if lot.offering_id == probe.offering_id)
        granted = min(probe.instances, max(0, spot - held))
        return OfferingProbed(
            command_id=probe.command_id,
            job_id=probe.job_id,
            tenant=probe.tenant,
            offering_id=probe.offering_id,
            slot=probe.slot,
            requested=probe.instances,
            granted=granted,
            cost_micro_usd=probe.price_micro_usd * granted // probe.instances,
            refusal_class=None if granted == probe.instances else RefusalClass.NO_CAPACITY,
        )

    def _there_is(self, state: TellingCloudState, offering_id: str) -> tuple[int, int]:
        """Spot and on-demand there really are now."""
        slot = state.slot
        if state.moved and self._information is Information.DECIDE_FIRST:
            slot = slot + 1 if slot + 1 in self._slots else slot
        for slot_quote in self._slots[slot].quotes:
            if slot_quote.quote.offering_id == offering_id:
                quote = slot_quote.quote
                return _counted(quote.spot_available), _counted(quote.on_demand_available)
        raise ValueError(f"slot {slot} has no quote of {offering_id}")

    def _grant(self, state: TellingCloudState, command: ProvisioningCommanded) -> list[Event]:
        target, job_id = command.target, command.job_id
        before = state.held.get(job_id)
        if before is not None and before.offering_id != target.offering_id:
            if not target.spot and not target.on_demand:
                return []
            before = None
        spot, on_demand = self._there_is(state, target.offering_id)
        if self._sharing:
            others = [
                lot
                for other, lot in state.held.items()
                if other != job_id and lot.offering_id == target.offering_id
            ]
            spot -= sum(lot.spot for lot in others)
            on_demand -= sum(lot.on_demand for lot in others)
        # What is held already is not refused: it may be taken back, which is another matter.
        held_spot = before.spot if before else 0
        held_on_demand = before.on_demand if before else 0
        got_spot = min(target.spot, max(spot, held_spot))
        got_on_demand = min(target.on_demand, max(on_demand, held_on_demand))
        if command.keep_until_granted:
            got_on_demand += min(held_on_demand - got_on_demand, target.spot - got_spot)
        if got_spot or got_on_demand:
            state.held[job_id] = Lot(
                offering_id=target.offering_id, spot=got_spot, on_demand=got_on_demand
            )
        else:
            state.held.pop(job_id, None)
        refused: list[Event] = []
        for capacity_type, wanted, got, held in (
            (CapacityType.SPOT, target.spot, got_spot, held_spot),
            (CapacityType.ON_DEMAND, target.on_demand, got_on_demand, held_on_demand),
        ):
            if got < wanted:
                refused.append(
                    LaunchRefused(
                        command_id=command.command_id,
                        job_id=job_id,
                        tenant=command.tenant,
                        offering_id=target.offering_id,
                        capacity_type=capacity_type,
                        slot=command.slot,
                        requested=wanted - min(held, wanted),
                        granted=max(0, got - held),
                        detail="no more there",
                    )
                )
        return refused

    def _take_back(self, state: TellingCloudState, offset_s: int) -> list[Event]:
        """Take spot that is held beyond what there is, from the latest jobs first."""
        lost: list[Event] = []
        used: dict[str, int] = {}
        for job_id, lot in list(state.held.items()):
            spot, _ = self._there_is(state, lot.offering_id)
            left = max(0, spot - used.get(lot.offering_id, 0)) if self._sharing else spot
            kept = min(lot.spot, left)
            used[lot.offering_id] = used.get(lot.offering_id, 0) + kept
            if kept == lot.spot:
                continue
            lost.append(
                CapacityLost(
                    job_id=job_id,
                    tenant=state.tenants[job_id],
                    offering_id=lot.offering_id,
                    instance_ids=tuple(
                        f"{job_id}-{state.slot}-{index}" for index in range(lot.spot - kept)
                    ),
                    slot=state.slot,
                    offset_s=offset_s,
                )
            )
            if kept or lot.on_demand:
                state.held[job_id] = replace(lot, spot=kept)
            else:
                del state.held[job_id]
        return lost


def _counted(count: Count) -> int:
    return count.instances if count.known else UNCOUNTED
