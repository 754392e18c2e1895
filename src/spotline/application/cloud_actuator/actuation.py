"""The actuator's doing half: performs calls against a cloud, the ledger always one step ahead.

Order of one revision: intents into the ledger, releases, launches (by token), what the cloud takes
back, then everything that happened into the ledger together with the answers. Killed between any
two of these and asked again, it resumes from the intents and ends with the same instances, the
same ledger and the same answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from spotline.application.cloud_actuator.messages import (
    ApplyRevisionRequest,
    Moment,
    OpenSlotRequest,
)
from spotline.application.cloud_actuator.ports import (
    ActuatorMode,
    CloudProvider,
    CloudSignal,
    Instance,
    LaunchRequest,
    Ledger,
    LedgerEnd,
    LedgerEntry,
    LedgerLaunch,
)
from spotline.application.cloud_actuator.reporting import (
    held_after,
    holdings,
    ledger_launch,
    losses,
    notices,
    released,
    result_of,
    transfers,
)
from spotline.application.spec import Call
from spotline.contracts.errors import InvariantViolation
from spotline.domain.events.capacity import CapacityReported, LaunchRefused
from spotline.domain.events.event import Event
from spotline.domain.ledger.billing import Charge, HeldInterval, SlotPrices, bill
from spotline.domain.ledger.caps import JOB_CAP, Caps
from spotline.domain.ledger.intents import (
    HeldInstance,
    Intent,
    IntentResult,
    RevisionPlan,
    plan_revision,
)
from spotline.domain.units import NS_PER_S

_MINUTE_NS = 60 * NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """Instance ids: `reaped` ran without our ledger's knowing, `missing` are held but gone."""

    reaped: tuple[str, ...]
    missing: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class _Done:
    """What carrying out a revision's intents came to."""

    results: list[IntentResult]
    launched: list[LedgerLaunch]
    refusals: list[LaunchRefused]
    ended: dict[str, LedgerEnd]


class CloudActuation:
    """Performs the actuator's calls.

    The caller performs one at a time, in the order of their causes, and none before `start`.
    """

    def __init__(
        self,
        cloud: CloudProvider,
        ledger: Ledger,
        *,
        caps: Caps | None = None,
        mode: ActuatorMode = ActuatorMode.LIVE,
    ) -> None:
        self._cloud = cloud
        self._ledger = ledger
        self._caps = caps or Caps()
        self._forbidden = "observe mode" if mode is ActuatorMode.OBSERVE else ""

    async def start(self) -> Reconciliation:
        """Reconcile before the first call is performed."""
        if not self._forbidden:
            # Shows the cloud our epoch: from here on it refuses the ledger's former holder.
            await self._cloud.terminate(self._ledger.owner, ())
        return await self._reconcile()

    async def perform(self, call: Call) -> Sequence[Event]:
        """Do what `call` asks and return what to publish. Idempotent by the call's digest.

        Raises
        ------
        ProviderUnavailable
            The cloud does not answer: perform the call again later.
        OwnerFenced
            Another process has taken over.
        """
        key = f"{call.name}:{call.digest}"
        answers = await self._ledger.answers(key)
        if answers is not None:
            return answers
        if isinstance(call.request, OpenSlotRequest):
            return await self._open_slot(key, call.request)
        if isinstance(call.request, ApplyRevisionRequest):
            return await self._apply(key, call.request)
        raise InvariantViolation(f"no such call of the actuator: {call.name}")

    # --- a slot opens -------------------------------------------------------------------------

    async def _open_slot(self, key: str, request: OpenSlotRequest) -> Sequence[Event]:
        await self._give_up_pending(request.at)
        wanted_back = await self._cloud.observe(request.at, request.quotes)
        await self._reconcile()
        charges: list[Charge] = []
        for prices in request.unbilled:
            charges += bill(await self._intervals(prices), prices)
        held = {instance.instance_id for instance in await self._ledger.held()}
        noticed = [instance for instance in wanted_back if instance.instance_id in held]
        answers: tuple[Event, ...] = (
            *(charge.cost for charge in charges),
            *notices(noticed, request.at, 0, self._cloud.notice_lead_s),
        )
        await self._record(
            LedgerEntry(
                call_key=key,
                slot=request.at.slot,
                answers=answers,
                noticed=tuple(instance.instance_id for instance in noticed),
                charges=tuple(charges),
            )
        )
        return answers

    async def _give_up_pending(self, at: Moment) -> None:
        """Close attempts whose revision never came again: its command is lost from the log.

        Calls are performed in order, so at the opening of a slot nothing is under way. What those
        attempts did launch is billed until now and ended.
        """
        pending = await self._ledger.pending()
        if not pending:
            return
        running = await self._cloud.list_instances(self._ledger.owner.name)
        launched: list[LedgerLaunch] = []
        results: list[IntentResult] = []
        for intent in pending:
            tokens = {launch.token for launch in intent.launches}
            ours = [instance for instance in running if instance.token in tokens]
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
        await self._record(
            LedgerEntry(results=tuple(results), launched=tuple(launched), ended=tuple(ended))
        )
        if ended:
            await self._cloud.terminate(self._ledger.owner, [end.instance_id for end in ended])

    # --- a revision was decided ---------------------------------------------------------------

    async def _apply(self, key: str, request: ApplyRevisionRequest) -> Sequence[Event]:
        at = request.at
        held = await self._ledger.held()
        intents = await self._intents(request, held)
        done = await self._carry_out(intents, at)
        running = held_after(held, done.launched, done.ended)
        dropped = {
            instance_id for intent in intents if intent.dropped for instance_id in intent.release
        }
        lost = [instance for instance in held if instance.instance_id in dropped]
        signals: Sequence[CloudSignal] = ()
        if not lost and not done.refusals:
            # Something that needs a decision now is decided now; later losses come after it.
            signals = await self._cloud.signals(key, at)
        lost_s = signals[0].lost_s if signals else at.offset_s
        # Gone is what the cloud has just taken and what vanished without a word. Nobody knows when
        # the latter went; one report has one moment.
        listed = await self._cloud.list_instances(self._ledger.owner.name)
        listed_ids = {instance.instance_id for instance in listed}
        lost += [instance for instance in running if instance.instance_id not in listed_ids]
        unannounced = [signal.instance for signal in signals if not signal.announced]
        noticed_s = min((signal.noticed_s for signal in signals), default=0)
        for instance in lost:
            end = LedgerEnd(
                instance_id=instance.instance_id, slot=at.slot, offset_s=lost_s, reason="lost"
            )
            done.ended.setdefault(instance.instance_id, end)
        gone_ids = {instance.instance_id for instance in lost}
        survivors = [instance for instance in running if instance.instance_id not in gone_ids]
        settled = not lost and not done.refusals
        report = CapacityReported(
            slot=at.slot,
            revision=request.revision,
            offset_s=lost_s,
            settled=settled,
            holdings=holdings(survivors),
        )
        entry = LedgerEntry(
            call_key=key,
            slot=at.slot,
            results=tuple(done.results),
            launched=tuple(done.launched),
            ended=tuple(done.ended.values()),
        )
        # Who may not launch copies nothing either.
        charges = () if self._forbidden else transfers(request)
        if settled and request.last:
            await self._record(replace(entry, call_key=""))
            entry = LedgerEntry(call_key=key, slot=at.slot)
            charges += bill(await self._intervals(request.prices), request.prices)
        answers: tuple[Event, ...] = (
            *done.refusals,
            *notices(unannounced, at, noticed_s, lost_s - noticed_s),
            *losses(lost, at, lost_s),
            report,
            *(charge.cost for charge in charges),
        )
        await self._record(replace(entry, answers=answers, charges=charges))
        return answers

    async def _intents(
        self, request: ApplyRevisionRequest, held: Sequence[HeldInstance]
    ) -> list[Intent]:
        """The intents of this revision: those a former life wrote, else new ones, written now."""
        at = request.at
        pending = [
            intent
            for intent in await self._ledger.pending()
            if (intent.slot, intent.revision) == (at.slot, request.revision)
        ]
        if pending:
            return pending
        known = await self._ledger.intents([command.command_id for command in request.commands])
        attempts: dict[str, int] = {}
        commands = []
        for command in request.commands:
            earlier = known.get(command.command_id)
            if earlier is not None and earlier.result is not None:
                if not earlier.result.refused:
                    continue  # done in full under another call: once is enough
                attempts[command.command_id] = earlier.intent.attempt + 1
            commands.append(command)
        intents = plan_revision(
            RevisionPlan(
                slot=at.slot,
                revision=request.revision,
                offset_s=at.offset_s,
                slot_s=at.slot_s,
                ts_ns=at.ts_ns,
                prices=request.prices.by_offering(),
                caps=self._caps,
                spent_micro_usd=await self._spent(request),
                launches_last_minute=await self._ledger.launches_since(at.ts_ns - _MINUTE_NS),
                attempts=attempts,
                forbidden=self._forbidden,
            ),
            commands,
            held,
        )
        if intents:
            await self._ledger.write_intents(intents)
        return list(intents)

    async def _carry_out(self, intents: Sequence[Intent], at: Moment) -> _Done:
        done = _Done(results=[], launched=[], refusals=[], ended={})
        owner = self._ledger.owner
        for intent in intents:
            reason = JOB_CAP if intent.dropped else "released"
            for instance_id in intent.release:
                done.ended[instance_id] = released(instance_id, intent, reason)
        if done.ended:
            await self._cloud.terminate(owner, list(done.ended))
        for intent in intents:
            granted: list[Instance] = []
            details: list[str] = []
            for launch in intent.launches:
                got: tuple[Instance, ...] = ()
                detail = launch.detail
                if launch.permitted:
                    grant = await self._cloud.launch(
                        LaunchRequest(
                            token=launch.token,
                            owner=owner,
                            job_id=intent.job_id,
                            tenant=intent.tenant,
                            quota_pool=intent.quota_pool,
                            offering_id=intent.offering_id,
                            capacity_type=launch.capacity_type,
                            instances=launch.permitted,
                            at=at,
                        )
                    )
                    got = grant.instances
                    detail = "; ".join(filter(None, (launch.detail, grant.detail)))
                granted += got
                if len(got) < launch.requested:
                    details.append(detail)
                    done.refusals.append(
                        LaunchRefused(
                            command_id=intent.command_id,
                            job_id=intent.job_id,
                            tenant=intent.tenant,
                            offering_id=intent.offering_id,
                            capacity_type=launch.capacity_type,
                            slot=at.slot,
                            requested=launch.requested,
                            granted=len(got),
                            detail=detail,
                        )
                    )
            done.launched += [ledger_launch(intent, instance) for instance in granted]
            requested = sum(launch.requested for launch in intent.launches)
            refused = requested - len(granted)
            done.results.append(
                result_of(intent, granted, refused=refused, detail="; ".join(details))
            )
        return done

    async def _spent(self, request: ApplyRevisionRequest) -> dict[str, int]:
        """Each job's bill up to now, the open slot included; empty where no cap needs it."""
        if self._caps.micro_usd_per_job is None:
            return {}
        spent = dict(await self._ledger.spend_by_job())
        intervals = await self._intervals(request.prices)
        for charge in bill(intervals, request.prices, until_s=request.at.offset_s):
            job_id = charge.cost.job_id
            spent[job_id] = spent.get(job_id, 0) + charge.cost.cost_micro_usd
        return spent

    # --- shared -------------------------------------------------------------------------------

    async def _reconcile(self) -> Reconciliation:
        """End what runs under our tag without the ledger's knowing; name what is gone."""
        held = {instance.instance_id for instance in await self._ledger.held()}
        pending = await self._ledger.pending()
        tokens = {launch.token for intent in pending for launch in intent.launches}
        listed = await self._cloud.list_instances(self._ledger.owner.name)
        orphans = [
            instance.instance_id
            for instance in listed
            if instance.instance_id not in held and instance.token not in tokens
        ]
        if orphans and not self._forbidden:
            await self._cloud.terminate(self._ledger.owner, orphans)
        missing = held - {instance.instance_id for instance in listed}
        return Reconciliation(reaped=tuple(orphans), missing=tuple(sorted(missing)))

    async def _intervals(self, prices: SlotPrices) -> Sequence[HeldInterval]:
        return await self._ledger.intervals(prices.slot, prices.slot_s)

    async def _record(self, entry: LedgerEntry) -> None:
        await self._ledger.record(entry)
