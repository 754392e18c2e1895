"""The actuator's doing half: performs calls against a cloud, the ledger always one step ahead.

Order of one revision: intents into the ledger, releases, launches (by token), what the cloud tells
and shows, then everything that happened into the ledger together with the answers. Killed between
any two of these and asked again, it resumes from the intents and ends with the same instances, the
same ledger and the same answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spotline.application.cloud_actuator.absence import end_unattended
from spotline.application.cloud_actuator.agreeing import Agreeing
from spotline.application.cloud_actuator.charging import billed, unless_charged
from spotline.application.cloud_actuator.fencing import FencedCloud
from spotline.application.cloud_actuator.gangs import gangs_of
from spotline.application.cloud_actuator.gating import GatedCloud, LiveGate
from spotline.application.cloud_actuator.giving_up import give_up_pending
from spotline.application.cloud_actuator.launching import (
    Beside,
    CooldownsInHand,
    Done,
    Launching,
    barred_launches,
)
from spotline.application.cloud_actuator.lives import LivesInHand
from spotline.application.cloud_actuator.looping import Looping
from spotline.application.cloud_actuator.messages import (
    AdmitRequest,
    ApplyRevisionRequest,
    Moment,
    NoteJobRequest,
    OpenSlotRequest,
    ReapRequest,
    SignalRequest,
)
from spotline.application.cloud_actuator.options import ActuationOptions
from spotline.application.cloud_actuator.planning import RevisionPlanning
from spotline.application.cloud_actuator.ports import (
    Admission,
    CloudProvider,
    Ledger,
    LedgerEntry,
    OwnerFenced,
)
from spotline.application.cloud_actuator.probing import end_probes, with_probes
from spotline.application.cloud_actuator.reconciling import CloudNews, Reconciliation, hear, look
from spotline.application.cloud_actuator.reporting import (
    adopted_launch,
    ends_seen,
    held_after,
    holdings,
    ids_of,
    launch_outcomes,
    losses,
    lost_ends,
    notices,
    report_of,
    transfers,
    withdrawals,
)
from spotline.application.cloud_actuator.settling import Settling
from spotline.application.cloud_actuator.slots_over import bars_of, why_over
from spotline.application.cloud_actuator.taken_back import LeftToProvider
from spotline.application.cloud_actuator.turning_up import is_in_doubt, untold
from spotline.application.spec import Call
from spotline.contracts.errors import InvariantViolation
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import AdmissionRecorded
from spotline.domain.ledger.billing import Charge
from spotline.domain.ledger.instance_life import next_look_ns
from spotline.domain.ledger.intents import HeldInstance

_NOTHING_TOLD = CloudNews()
_BESIDE_LOG = (OpenSlotRequest, ApplyRevisionRequest, SignalRequest, ReapRequest)


class CloudActuation:
    """Performs the actuator's calls.

    The caller performs one at a time, in the order of their causes, and none before `start`.
    """

    def __init__(
        self, cloud: CloudProvider, ledger: Ledger, options: ActuationOptions | None = None
    ) -> None:
        self._options = options or ActuationOptions()
        self._gate = LiveGate(self._options.modes)
        self._cloud = FencedCloud(GatedCloud(cloud, self._gate), ledger)
        self._ledger = ledger
        rules = self._options.agreement
        self._launching = Launching(
            self._cloud,
            ledger,
            self._options.graces,
            "" if rules is None else rules.reap.installation_id,
        )
        self._agreeing = (
            None if rules is None else Agreeing(self._cloud, ledger, rules, self._options.graces)
        )
        self._planning = RevisionPlanning(ledger, self._options.caps)
        self._looping = Looping(ledger, self._options.crashes)
        self._left = LeftToProvider()
        biller = self._options.biller
        self._settling = None if biller is None else Settling(biller, ledger)
        self._next_look_ns: int | None = None
        # What ended while nobody was there is told lost by the next revision, as all that is lost.
        self._unattended: tuple[HeldInstance, ...] = ()

    @property
    def next_look_ns(self) -> int | None:
        """Market time at which the cloud must be looked at even if it tells nothing; None: never."""
        settling = None if self._settling is None else self._settling.next_look_ns
        looks = (self._next_look_ns, settling, self._left.next_look_ns)
        due = [ns for ns in looks if ns is not None]
        return min(due, default=None)

    async def settle(self) -> None:
        """Settle what the looks so far have shown to have ended; beside calls, at any time.

        Raises
        ------
        OwnerFenced
            Another process has taken over.
        """
        if self._settling is not None:
            settled = await self._settling.settle()
            if settled:
                self._options.on_settled(settled)

    async def start(self) -> Reconciliation:
        """Reconcile before the first call is performed."""
        if await self._ledger.pending() or any(life.ours for life in await self._ledger.lives()):
            self._gate.note_acted()
        await self._show_epoch()
        clock = self._options.clock
        latest_ns = await self._ledger.latest_ns()
        lives = await self._lives(latest_ns if clock is None else clock.now_ns())
        held = await self._ledger.held()
        # A launch that is found now is taken over by the next call: it says when.
        found = await self._look(lives, held, may_adopt=False)
        if self._settling is not None:
            await self._settling.resume(lives.now_ns)
        await self._ledger.record(LedgerEntry(transitions=lives.drain()))
        self._looked(found, lives)
        return found

    async def _show_epoch(self) -> None:
        """Show the cloud our epoch: from here on it refuses the ledger's former holder.

        A cloud that has seen a later one than a ledger that nobody took over remembers a ledger
        that was lost, or restored older: the epoch goes on from there.
        """
        try:
            await self._cloud.terminate(self._ledger.owner, ())
        except OwnerFenced as fenced:
            await self._ledger.check_epoch()
            await self._ledger.raise_epoch(fenced.epoch + 1)
            await self._cloud.terminate(self._ledger.owner, ())

    async def perform(self, call: Call) -> Sequence[Event]:
        """Do what `call` asks and return what to publish. Idempotent by the call's digest.

        Raises
        ------
        ProviderUnavailable
            The cloud does not answer: perform the call again later.
        OwnerFenced
            Another process has taken over.
        ConfigError
            The log is on paper and this process is not, or the other way round.
        """
        if isinstance(call.request, AdmitRequest):
            return await self._admit(call.request)
        if isinstance(call.request, NoteJobRequest):
            if call.request.record is not None:
                await self._ledger.note_jobs((call.request.record,))
            return ()
        key = f"{call.name}:{call.digest}"
        answers = await self._ledger.answers(key)
        if answers is not None:
            return answers
        if isinstance(call.request, _BESIDE_LOG) and call.request.log is not None:
            self._gate.note(call.request.log)
        if isinstance(call.request, OpenSlotRequest | ApplyRevisionRequest):
            agreed = await self._agree(call.request)
            if isinstance(call.request, OpenSlotRequest):
                return await self._open_slot(key, call.request, agreed)
            return await self._apply(key, call.request, agreed)
        if isinstance(call.request, ReapRequest):
            return await self._reap(key, call.request)
        if isinstance(call.request, SignalRequest):
            return await self._signalled(key, call.request)
        raise InvariantViolation(f"no such call of the actuator: {call.name}")

    async def _admit(self, request: AdmitRequest) -> Sequence[Event]:
        admission = Admission(
            job_id=request.job_id,
            tenant=request.tenant,
            digest=request.job_digest,
            record=request.record,
        )
        await self._ledger.admit((admission,))
        return (AdmissionRecorded(job_id=request.job_id, tenant=request.tenant),)

    # --- log, ledger and cloud are compared ---------------------------------------------------

    async def _agree(self, request: OpenSlotRequest | ApplyRevisionRequest) -> tuple[Event, ...]:
        """Compare before anything is bought or billed, where that is due."""
        at, log = request.at, request.log
        if self._agreeing is None or log is None or not self._gate.may_end:
            return ()
        if not self._agreeing.is_due(at.slot):
            return ()
        unbilled = request.unbilled if isinstance(request, OpenSlotRequest) else ()
        first_unbilled = unbilled[0].slot if unbilled else at.slot
        lives = await self._lives_at(at)
        found = await self._look(lives, await self._ledger.held(), may_adopt=False)
        agreed = await self._agreeing.check(at, log, lives, first_unbilled)
        self._looked(replace(found, reaped=(*found.reaped, *agreed.reaped)), lives)
        self._options.on_agreed(agreed)
        return agreed.events

    async def _reap(self, key: str, request: ReapRequest) -> Sequence[Event]:
        at, log = request.at, request.log
        answers: tuple[Event, ...] = ()
        if self._agreeing is not None and log is not None and self._gate.may_end:
            lives = await self._lives_at(at)
            found = await self._look(lives, await self._ledger.held(), may_adopt=False)
            agreed = await self._agreeing.reap(request.instance_ids, request.by, at, log, lives)
            self._looked(replace(found, reaped=(*found.reaped, *agreed.reaped)), lives)
            answers = agreed.events
            await self._ledger.record(
                LedgerEntry(call_key=key, slot=at.slot, answers=answers, transitions=lives.drain())
            )
        return answers

    # --- a slot opens -------------------------------------------------------------------------

    async def _open_slot(
        self, key: str, request: OpenSlotRequest, agreed: tuple[Event, ...]
    ) -> Sequence[Event]:
        at = request.at
        lives = await self._lives_at(at)
        await give_up_pending(self._cloud, self._ledger, at, lives)
        held = await self._ledger.held()
        told = await self._hear(key, at, lives, held)
        found = await self._look(lives, held, may_adopt=True)
        away = await end_unattended(
            self._ledger, request, lives, held, told, found.gone, self._options.lease_s
        )
        self._unattended = away.lost
        charges: Sequence[Charge] = ()
        for prices in request.unbilled:
            charges = (*charges, *await billed(self._ledger, prices))
        charges = [away.marked(charge) for charge in charges]
        fresh, charges = await unless_charged(self._ledger, charges)
        answers: tuple[Event, ...] = (
            *agreed,
            *await self._looping.over(request.log, at),
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
                noticed=told.noticed,
                charges=tuple(fresh),
                transitions=lives.drain(),
                taken=told.event_ids,
            )
        )
        self._looked(found, lives)
        return answers

    # --- a revision was decided ---------------------------------------------------------------

    async def _apply(
        self, key: str, request: ApplyRevisionRequest, agreed: tuple[Event, ...]
    ) -> Sequence[Event]:
        at = request.at
        lives = await self._lives_at(at)
        if is_in_doubt(request.commands, lives):
            await self._look_first(at, lives)
        cooldowns = await self._cooldowns(at)
        held = await self._ledger.held()
        done = await self._carry_out(with_probes(request, held), held, lives, cooldowns)
        news = untold(held, request.log, request.commands, lives) - done.ended.keys()
        running = held_after(held, done.launched, done.ended)
        lost = [instance for instance in held if instance.instance_id in done.dropped]
        lost += self._unattended
        told = _NOTHING_TOLD
        if not lost and not done.refusals and not news:
            # Something that needs a decision now is decided now; later losses come after it.
            told = await self._hear(key, at, lives, running)
        found = await self._look(lives, running, may_adopt=True)
        adopted = [adopted_launch(instance, lives, at) for instance in found.adopted]
        lost_s = max((at.offset_s, *told.ends_s))
        # Nobody knows when what vanished without a word went; one report has one moment.
        lost += [instance for instance in running if instance.instance_id in found.gone]
        ends = [done.ended.setdefault(end.instance_id, end) for end in lost_ends(lost, at, lost_s)]
        loops = await self._looping.lost(lost, request.log, at, lost_s, told.noticed)
        settled = not ends and not done.refusals and not adopted and not news
        running = held_after(running, adopted, done.ended)
        report = report_of(request, lost_s, running, settled=settled)
        entry = LedgerEntry(
            call_key=key,
            slot=at.slot,
            results=tuple(done.results),
            launched=(*done.launched, *adopted),
            ended=tuple(done.ended.values()),
            noticed=told.noticed_among(ids_of(running)),
            transitions=lives.drain(),
            cooldowns=(*cooldowns.changed, *loops.cooldowns),
            warmed=cooldowns.warmed,
        )
        charges: Sequence[Charge] = transfers(request)
        if settled and request.last:
            await self._ledger.record(replace(entry, call_key=""))
            entry = LedgerEntry(call_key=key, slot=at.slot)
            charges = (*charges, *await billed(self._ledger, request.prices))
        fresh, charges = await unless_charged(self._ledger, charges)
        answers: tuple[Event, ...] = (
            *agreed,
            *launch_outcomes(done.excepted, done.refusals, request),
            *done.probed,
            *notices(told.notices, at),
            *withdrawals(told.withdrawn, at),
            *losses(lost, at, lost_s),
            *loops.frozen,
            *(() if request.last else ends_seen(lives.left(), at)),
            report,
            *(charge.cost for charge in charges),
        )
        await self._ledger.record(
            replace(entry, answers=answers, charges=tuple(fresh), taken=told.event_ids)
        )
        self._unattended = ()
        self._looked(found, lives)
        return answers

    async def _look_first(self, at: Moment, lives: LivesInHand) -> None:
        """Take over what has turned up of launches of unknown outcome, before more is launched."""
        found = await self._look(lives, await self._ledger.held(), may_adopt=True)
        launched = tuple(adopted_launch(instance, lives, at) for instance in found.adopted)
        # Recorded at once: the intents that follow may release it.
        await self._ledger.record(
            LedgerEntry(slot=at.slot, launched=launched, transitions=lives.drain())
        )
        self._looked(found, lives)

    async def _cooldowns(self, at: Moment) -> CooldownsInHand:
        known, epoch = await self._ledger.cooldowns(), self._ledger.owner.epoch
        return CooldownsInHand(known, self._options.cooling, epoch, at)

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
        if self._agreeing is not None and request.log is not None:
            bars |= self._agreeing.bars(request, request.log)
        over = why_over(request.at, lives.now_ns)
        bars |= bars_of(request, over)
        intents = pending or await self._planning.intents(request, held, bars)
        free = self._left.free(held, lives, places, request.at)
        gangs = gangs_of(request.log, held, intents)
        done = await self._launching.carry_out(
            intents,
            request.at,
            lives,
            cooldowns,
            places,
            resumed=bool(pending),
            beside=Beside(
                gangs=gangs,
                leave=free.keys(),
                replacing=request.replacing,
                over=over,
                urgent=request.urgent,
            ),
        )
        await end_probes(self._cloud, self._ledger, request, done, lives)
        self._left.leave({name: free[name] for name in done.ended if name in free})
        return done

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
        loops = await self._looping.lost(lost, request.log, at, lost_s, told.noticed)
        ends = {end.instance_id: end for end in lost_ends(lost, at, lost_s)}
        running = held_after(held, adopted, ends)
        answers: tuple[Event, ...] = (
            *notices(told.notices, at),
            *withdrawals(told.withdrawn, at),
            *losses(lost, at, lost_s),
            *loops.frozen,
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
                noticed=told.noticed,
                transitions=lives.drain(),
                cooldowns=loops.cooldowns,
                taken=told.event_ids,
            )
        )
        self._looked(found, lives)
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
            may_stop=self._gate.may_end,
            left=self._left.left(lives),
        )
        graces = self._options.graces
        looks = ((life, next_look_ns(life, graces)) for life in lives.all())
        self._next_look_ns = min(
            # A stranger waits for a comparison, once it was seen long enough.
            (
                look_ns
                for life, look_ns in looks
                if look_ns is not None and (life.ours or look_ns > lives.now_ns)
            ),
            default=None,
        )
        return found

    def _looked(self, found: Reconciliation, lives: LivesInHand) -> None:
        """Say what a look found, once it is recorded, and note what has ended."""
        if self._settling is not None:
            self._settling.note(found.ended, lives.now_ns)
        self._options.on_look(found)
