"""The actuator's doing half: performs calls against a cloud, the ledger always one step ahead.

Order of one revision: intents into the ledger, releases, launches (by token), what the cloud tells
and shows, then everything that happened into the ledger together with the answers. Killed between
any two of these and asked again, it resumes from the intents and ends with the same instances, the
same ledger and the same answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from spotline.application.cloud_actuator.fencing import FencedCloud
from spotline.application.cloud_actuator.launching import (
    CooldownsInHand,
    Done,
    Launching,
    barred_launches,
)
from spotline.application.cloud_actuator.lives import LivesInHand, launch_life
from spotline.application.cloud_actuator.messages import (
    AdmitRequest,
    ApplyRevisionRequest,
    Moment,
    OpenSlotRequest,
    SignalRequest,
)
from spotline.application.cloud_actuator.planning import Planning
from spotline.application.cloud_actuator.ports import (
    ActuatorMode,
    Admission,
    CloudClock,
    CloudProvider,
    InstanceState,
    Ledger,
    LedgerEnd,
    LedgerEntry,
    LedgerLaunch,
)
from spotline.application.cloud_actuator.reconciling import CloudNews, Reconciliation, hear, look
from spotline.application.cloud_actuator.reporting import (
    adopted_launch,
    ends_seen,
    exceptions,
    held_after,
    holdings,
    ids_of,
    is_in,
    ledger_launch,
    losses,
    lost_ends,
    notices,
    released,
    result_of,
    transfers,
    withdrawals,
)
from spotline.application.spec import Call
from spotline.contracts.errors import InvariantViolation
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import AdmissionRecorded
from spotline.domain.ledger.billing import Charge, HeldInterval, SlotPrices, bill
from spotline.domain.ledger.caps import Caps
from spotline.domain.ledger.cooldowns import CoolingRules
from spotline.domain.ledger.instance_life import Graces, LifeInput, next_look_ns
from spotline.domain.ledger.intents import (
    HeldInstance,
    IntentResult,
)
from spotline.domain.units import NS_PER_S

_MINUTE_NS = 60 * NS_PER_S
_NOTHING_TOLD = CloudNews()


def _ignore(_: Reconciliation) -> None:
    """Do nothing with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActuationOptions:
    """How the actuator acts.

    Parameters
    ----------
    clock
        The present in market time; None where it is the moment of the call in hand.
    on_look
        Gets what each look at the cloud found, once it is recorded.
    """

    caps: Caps = field(default_factory=Caps)
    mode: ActuatorMode = ActuatorMode.LIVE
    graces: Graces = field(default_factory=Graces)
    cooling: CoolingRules = field(default_factory=CoolingRules)
    clock: CloudClock | None = None
    on_look: Callable[[Reconciliation], None] = _ignore


class CloudActuation:
    """Performs the actuator's calls.

    The caller performs one at a time, in the order of their causes, and none before `start`.
    """

    def __init__(
        self, cloud: CloudProvider, ledger: Ledger, options: ActuationOptions | None = None
    ) -> None:
        self._options = options or ActuationOptions()
        self._cloud = FencedCloud(cloud, ledger)
        self._ledger = ledger
        self._launching = Launching(self._cloud, ledger, self._options.graces)
        observes = self._options.mode is ActuatorMode.OBSERVE
        self._forbidden = "observe mode" if observes else ""
        self._planning = Planning(ledger, self._options.caps, self._forbidden)
        self._next_look_ns: int | None = None

    @property
    def next_look_ns(self) -> int | None:
        """Market time at which the cloud must be looked at even if it tells nothing; None: never."""
        return self._next_look_ns

    async def start(self) -> Reconciliation:
        """Reconcile before the first call is performed."""
        if not self._forbidden:
            # Shows the cloud our epoch: from here on it refuses the ledger's former holder.
            await self._cloud.terminate(self._ledger.owner, ())
        clock = self._options.clock
        latest_ns = await self._ledger.latest_ns()
        lives = await self._lives(latest_ns if clock is None else clock.now_ns())
        held = await self._ledger.held()
        # A launch that is found now is taken over by the next call: it says when.
        found = await self._look(lives, held, may_adopt=False)
        await self._ledger.record(LedgerEntry(transitions=lives.drain()))
        self._options.on_look(found)
        return found

    async def perform(self, call: Call) -> Sequence[Event]:
        """Do what `call` asks and return what to publish. Idempotent by the call's digest.

        Raises
        ------
        ProviderUnavailable
            The cloud does not answer: perform the call again later.
        OwnerFenced
            Another process has taken over.
        """
        if isinstance(call.request, AdmitRequest):
            return await self._admit(call.request)
        key = f"{call.name}:{call.digest}"
        answers = await self._ledger.answers(key)
        if answers is not None:
            return answers
        if isinstance(call.request, OpenSlotRequest):
            return await self._open_slot(key, call.request)
        if isinstance(call.request, ApplyRevisionRequest):
            return await self._apply(key, call.request)
        if isinstance(call.request, SignalRequest):
            return await self._signalled(key, call.request)
        raise InvariantViolation(f"no such call of the actuator: {call.name}")

    async def _admit(self, request: AdmitRequest) -> Sequence[Event]:
        admission = Admission(
            job_id=request.job_id, tenant=request.tenant, digest=request.job_digest
        )
        await self._ledger.admit((admission,))
        return (AdmissionRecorded(job_id=request.job_id, tenant=request.tenant),)

    # --- a slot opens -------------------------------------------------------------------------

    async def _open_slot(self, key: str, request: OpenSlotRequest) -> Sequence[Event]:
        at = request.at
        lives = await self._lives_at(at)
        await self._give_up_pending(at, lives)
        held = await self._ledger.held()
        told = await self._hear(key, at, lives, held)
        found = await self._look(lives, held, may_adopt=True)
        charges: list[Charge] = []
        for prices in request.unbilled:
            charges += bill(await self._intervals(prices), prices)
        answers: tuple[Event, ...] = (
            *(charge.cost for charge in charges),
            *notices(told.notices, at),
            *withdrawals(told.withdrawn, at),
            *ends_seen(lives.left(), at),
        )
        await self._ledger.record(
            LedgerEntry(
                call_key=key,
                slot=at.slot,
                answers=answers,
                launched=tuple(adopted_launch(instance, lives, at) for instance in found.adopted),
                noticed=tuple(event.instance.instance_id for event in told.notices),
                charges=tuple(charges),
                transitions=lives.drain(),
                taken=told.event_ids,
            )
        )
        self._options.on_look(found)
        return answers

    async def _give_up_pending(self, at: Moment, lives: LivesInHand) -> None:
        """Close attempts whose revision never came again: its command is lost from the log.

        Calls are performed in order, so at the opening of a slot nothing is under way. What those
        attempts did launch is billed until now and ended; what does not show yet is looked up.
        """
        pending = await self._ledger.pending()
        if not pending:
            return
        shown = await self._cloud.list(self._ledger.owner.name)
        running = [found for found in shown if found.state is not InstanceState.ENDED]
        launched: list[LedgerLaunch] = []
        results: list[IntentResult] = []
        for intent in pending:
            ours = []
            for launch in intent.launches:
                its = [instance for instance in running if instance.token == launch.token]
                for instance in its:
                    life = launch_life(intent, launch, instance_id=instance.instance_id)
                    lives.begin(life, LifeInput.FOUND)
                if len(its) < launch.permitted:
                    # Its grace began when it was sent.
                    lost = launch_life(intent, launch)
                    lives.begin(lost, LifeInput.OUTCOME_UNKNOWN, intent.ts_ns)
                ours += its
            launched += [ledger_launch(intent, instance) for instance in ours]
            requested = sum(launch.requested for launch in intent.launches)
            results.append(
                result_of(intent, ours, refused=requested - len(ours), detail="given up")
            )
        # Releases that were under way are finished, at the moment their command gave.
        ended = [
            released(instance_id, intent, "released")
            for intent in pending
            for instance_id in intent.release
        ]
        ended += [
            LedgerEnd(
                instance_id=launch.instance.instance_id, slot=at.slot, offset_s=0, reason="given up"
            )
            for launch in launched
        ]
        for end in ended:
            if end.instance_id in lives:
                lives.learn(end.instance_id, LifeInput.STOP_ASKED)
        await self._ledger.record(
            LedgerEntry(
                slot=at.slot,
                results=tuple(results),
                launched=tuple(launched),
                ended=tuple(ended),
                transitions=lives.drain(),
            )
        )
        if ended:
            await self._cloud.terminate(self._ledger.owner, [end.instance_id for end in ended])

    # --- a revision was decided ---------------------------------------------------------------

    async def _apply(self, key: str, request: ApplyRevisionRequest) -> Sequence[Event]:
        at = request.at
        lives = await self._lives_at(at)
        known = await self._ledger.cooldowns()
        epoch = self._ledger.owner.epoch
        cooldowns = CooldownsInHand(known, self._options.cooling, epoch, at)
        held = await self._ledger.held()
        done = await self._carry_out(request, held, lives, cooldowns)
        running = held_after(held, done.launched, done.ended)
        lost = [instance for instance in held if instance.instance_id in done.dropped]
        told = _NOTHING_TOLD
        if not lost and not done.refusals:
            # Something that needs a decision now is decided now; later losses come after it.
            told = await self._hear(key, at, lives, running)
        found = await self._look(lives, running, may_adopt=True)
        adopted = [adopted_launch(instance, lives, at) for instance in found.adopted]
        lost_s = max((at.offset_s, *told.ends_s))
        # Nobody knows when what vanished without a word went; one report has one moment.
        lost += [instance for instance in running if instance.instance_id in found.gone]
        ends = [done.ended.setdefault(end.instance_id, end) for end in lost_ends(lost, at, lost_s)]
        settled = not ends and not done.refusals and not adopted
        running = held_after(running, adopted, done.ended)
        report = CapacityReported(
            slot=at.slot,
            revision=request.revision,
            offset_s=lost_s,
            settled=settled,
            holdings=holdings(running),
        )
        survivors = {instance.instance_id for instance in running}
        entry = LedgerEntry(
            call_key=key,
            slot=at.slot,
            results=tuple(done.results),
            launched=(*done.launched, *adopted),
            ended=tuple(done.ended.values()),
            noticed=ids_of(event.instance for event in told.notices if is_in(event, survivors)),
            transitions=lives.drain(),
            cooldowns=cooldowns.changed,
            warmed=cooldowns.warmed,
        )
        # Who may not launch copies nothing either.
        charges = () if self._forbidden else transfers(request)
        if settled and request.last:
            await self._ledger.record(replace(entry, call_key=""))
            entry = LedgerEntry(call_key=key, slot=at.slot)
            charges += bill(await self._intervals(request.prices), request.prices)
        answers: tuple[Event, ...] = (
            *exceptions(done.excepted, request),
            *done.refusals,
            *notices(told.notices, at),
            *withdrawals(told.withdrawn, at),
            *losses(lost, at, lost_s),
            *(() if request.last else ends_seen(lives.left(), at)),
            report,
            *(charge.cost for charge in charges),
        )
        await self._ledger.record(
            replace(entry, answers=answers, charges=charges, taken=told.event_ids)
        )
        self._options.on_look(found)
        return answers

    async def _carry_out(
        self,
        request: ApplyRevisionRequest,
        held: Sequence[HeldInstance],
        lives: LivesInHand,
        cooldowns: CooldownsInHand,
    ) -> Done:
        places = {place.offering_id: place for place in request.places}
        pending = await self._planning.pending_of(request)
        bars = barred_launches(request, places, lives, cooldowns, self._options.graces)
        intents = pending or await self._planning.intents(request, held, bars)
        return await self._launching.carry_out(
            intents, request.at, lives, cooldowns, places, resumed=bool(pending)
        )

    # --- the cloud has something to tell ------------------------------------------------------

    async def _signalled(self, key: str, request: SignalRequest) -> Sequence[Event]:
        """Learn what happened between two revisions; a report then asks for another one.

        Before the slot's first revision nothing is reported lost: that revision does it.
        """
        at = request.at
        decided = request.revision >= 0
        lives = await self._lives_at(at)
        held = await self._ledger.held()
        told = await self._hear(key, at, lives, held)
        found = await self._look(lives, held, may_adopt=decided)
        adopted = [adopted_launch(instance, lives, at) for instance in found.adopted]
        lost = [instance for instance in held if decided and instance.instance_id in found.gone]
        lost_s = max((at.offset_s, *told.ends_s))
        ends = {end.instance_id: end for end in lost_ends(lost, at, lost_s)}
        running = held_after(held, adopted, ends)
        answers: tuple[Event, ...] = (
            *notices(told.notices, at),
            *withdrawals(told.withdrawn, at),
            *losses(lost, at, lost_s),
        )
        if decided and (answers or adopted):
            report = CapacityReported(
                slot=at.slot,
                revision=request.revision,
                offset_s=lost_s,
                settled=False,
                holdings=holdings(running),
            )
            answers = (*answers, report)
        answers = (*ends_seen(lives.left(), at), *answers)
        await self._ledger.record(
            LedgerEntry(
                call_key=key,
                slot=at.slot,
                answers=answers,
                launched=tuple(adopted),
                ended=tuple(ends.values()),
                noticed=ids_of(event.instance for event in told.notices),
                transitions=lives.drain(),
                taken=told.event_ids,
            )
        )
        self._options.on_look(found)
        return answers

    # --- shared -------------------------------------------------------------------------------

    async def _lives_at(self, at: Moment) -> LivesInHand:
        clock = self._options.clock
        return await self._lives(at.ts_ns if clock is None else max(at.ts_ns, clock.now_ns()))

    async def _lives(self, now_ns: int) -> LivesInHand:
        return LivesInHand(await self._ledger.lives(), self._options.graces, now_ns)

    async def _hear(
        self, key: str, at: Moment, lives: LivesInHand, held: Sequence[HeldInstance]
    ) -> CloudNews:
        events = await self._cloud.events(key, at)
        told_of = [event.instance.instance_id for event in events]
        ended = await self._ledger.lives_of([known for known in told_of if known not in lives])
        lives.remember(ended.values())
        known = await self._ledger.taken([event.event_id for event in events])
        return hear(events, known, lives, ids_of(held), at)

    async def _look(
        self, lives: LivesInHand, held: Sequence[HeldInstance], *, may_adopt: bool
    ) -> Reconciliation:
        found = await look(
            self._cloud,
            self._ledger,
            lives,
            ids_of(held),
            may_adopt=may_adopt,
            may_stop=not self._forbidden,
        )
        graces = self._options.graces
        looks = (next_look_ns(life, graces) for life in lives.all())
        self._next_look_ns = min(
            (look_ns for look_ns in looks if look_ns is not None), default=None
        )
        return found

    async def _intervals(self, prices: SlotPrices) -> Sequence[HeldInterval]:
        return await self._ledger.intervals(prices.slot, prices.slot_s)
