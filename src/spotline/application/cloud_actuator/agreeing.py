"""The comparison of log, ledger and cloud, and what follows: before anything is bought, and since.

What log and cloud prove is mended first (`mending.py`); what stays undecided is not bought, from
this moment on and not only when the event that says so comes round; what belongs to no job is told,
and ended only by the rules or by a person (`domain/ledger/orphans.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from spotline.application.cloud_actuator.lives import LivesInHand
from spotline.application.cloud_actuator.log_fold import LogView
from spotline.application.cloud_actuator.mending import carried_charges, mended, missing_admissions
from spotline.application.cloud_actuator.messages import ApplyRevisionRequest, Moment
from spotline.application.cloud_actuator.ports import (
    CloudProvider,
    Instance,
    InstanceState,
    Ledger,
    LedgerEnd,
    LedgerEntry,
)
from spotline.domain.events.agreement import (
    AgreementChecked,
    Disagreement,
    OrphanFound,
    OrphanSettled,
)
from spotline.domain.events.event import Event
from spotline.domain.events.freeze import BuyingFrozen, BuyingUnfrozen
from spotline.domain.events.lifecycle import JobClosed
from spotline.domain.ledger.agreement import (
    CloudShows,
    LedgerSays,
    Stranger,
    compare,
    freezes_of,
    lags,
    overdue,
)
from spotline.domain.ledger.caps import Permit, limited
from spotline.domain.ledger.instance_life import Graces, LifeInput, LifeState
from spotline.domain.ledger.intents import HeldInstance
from spotline.domain.ledger.orphans import Orphan, ReapRules, to_reap
from spotline.domain.limits.freezes import Freeze, FreezeReason, Freezes, Purchase
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S

ORPHAN = "orphan"
ENDED = "its job had ended, says the ledger"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementRules:
    """How often log, ledger and cloud are compared, in slots, and what is done about orphans."""

    every_slots: int = 6
    reap: ReapRules = field(default_factory=ReapRules)

    def __post_init__(self) -> None:
        if self.every_slots < 1:
            raise ValueError(f"every_slots must be >= 1, was {self.every_slots}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreed:
    """What a comparison came to: the events that tell it, and the instances that it ended.

    `orphans` is how many instances are left that belong to no job.
    """

    events: tuple[Event, ...] = ()
    reaped: tuple[str, ...] = ()
    orphans: int = 0

    @property
    def disagreements(self) -> tuple[Disagreement, ...]:
        """In what they differ."""
        checked = [event for event in self.events if isinstance(event, AgreementChecked)]
        return checked[-1].disagreements if checked else ()


class Agreeing:
    """Compares, mends, freezes and reaps; one at a time, between the actuator's calls."""

    def __init__(
        self, cloud: CloudProvider, ledger: Ledger, rules: AgreementRules, graces: Graces
    ) -> None:
        self._cloud, self._ledger = cloud, ledger
        self._rules, self._graces = rules, graces
        self._checked_slot: int | None = None
        self._freezes: Mapping[str, Freeze] = {}

    def is_due(self, slot: int) -> bool:
        """Whether to compare in this slot: the first time, and every so many slots."""
        last = self._checked_slot
        return last is None or not last <= slot < last + self._rules.every_slots

    async def check(
        self, at: Moment, log: LogView, lives: LivesInHand, first_unbilled: int
    ) -> Agreed:
        """Compare what is known once `lives` have looked at the cloud, and act on it.

        Everything is recorded when it returns; done again after a crash it finds what is left.

        Parameters
        ----------
        first_unbilled
            The first slot that was not charged yet.

        Raises
        ------
        ProviderUnavailable
            The cloud does not answer: nothing was decided.
        """
        shown = await self._cloud.list(self._ledger.owner.name)
        before = await self._compare(log, lives, shown)
        ledger_lags = lags(log.says, await self._says(log))
        held = await self._ledger.held()
        known = await self._ledger.lives_of(sorted(log.ended))
        entry = mended(
            log, lives, shown, held, at, first_unbilled, lagging=ledger_lags, known=known.keys()
        )
        await self._ledger.admit(missing_admissions(log, await self._ledger.admitted_ids()))
        charges = carried_charges(log, await self._charged_by_slot(log), self._ledger.owner.epoch)
        await self._ledger.record(replace(entry, charges=charges, transitions=lives.drain()))
        says, shows = await self._says(log), _shows(lives, shown)
        after = compare(log.says, says, shows)
        if over := overdue(log.says, says, shows):
            await self._release(over, ENDED, at, lives)
            after = await self._compare(log, lives, shown)
        mending = [one for one in before if not one.continue_with and one not in after]
        disagreements = (*mending, *after)
        orphans = await self._orphans(log, lives, shown, at)
        # Nothing is ended before it was told: there must be time to say no.
        told = [orphan for orphan in orphans if orphan.instance_id in log.orphans]
        reaped = to_reap(told, self._rules.reap, at.ts_ns)
        await self._release([one.instance_id for one in reaped], ORPHAN, at, lives)
        self._checked_slot = at.slot
        checked = AgreementChecked(
            slot=at.slot,
            ts_event_ns=at.ts_ns,
            last_seq=log.says.last_seq,
            disagreements=disagreements,
        )
        gone = {orphan.instance_id for orphan in reaped}
        left = [orphan for orphan in orphans if orphan.instance_id not in gone]
        return Agreed(
            events=(
                checked,
                *self._freeze(disagreements, log, at),
                *self._found(left, log, at),
                *(_settled(orphan, at, "ended after its grace") for orphan in reaped),
                *self._over(orphans, log, at),
            ),
            reaped=tuple(sorted(gone)),
            orphans=len(left),
        )

    async def reap(
        self,
        instance_ids: Sequence[str],
        by: str,
        at: Moment,
        log: LogView,
        lives: LivesInHand,
    ) -> Agreed:
        """End those orphans that a person names, where nothing forbids it."""
        shown = await self._cloud.list(self._ledger.owner.name)
        orphans = await self._orphans(log, lives, shown, at)
        named = [orphan for orphan in orphans if orphan.instance_id in set(instance_ids)]
        forbidden = [orphan for orphan in named if orphan.forbidden(self._rules.reap)]
        reaped = [orphan for orphan in named if not orphan.forbidden(self._rules.reap)]
        await self._release([one.instance_id for one in reaped], ORPHAN, at, lives)
        # Told again with what stands against it: that is the answer.
        found = [self._event_of(orphan, at) for orphan in forbidden]
        settled = [
            _settled(orphan, at, "ended by request", by=by or "a person") for orphan in reaped
        ]
        return Agreed(
            events=(*found, *settled), reaped=tuple(orphan.instance_id for orphan in reaped)
        )

    def bars(
        self, request: ApplyRevisionRequest, log: LogView
    ) -> dict[tuple[str, CapacityType], Permit]:
        """What may not be launched because of what the last comparison found, and why.

        What the log tells is in the request already; this holds until it does.
        """
        freezes = Freezes(
            {
                freeze.freeze_id: freeze
                for freeze in self._freezes.values()
                if log.accepted.get(freeze.freeze_id) != freeze.detail
            }
        )
        bars: dict[tuple[str, CapacityType], Permit] = {}
        for command in request.commands:
            offering_id = command.target.offering_id
            for kind in CapacityType:
                purchase = Purchase(
                    job_id=command.job_id,
                    tenant=command.tenant,
                    offering_id=offering_id,
                    account=log.accounts.get(offering_id, ""),
                    capacity_type=kind,
                )
                freeze = freezes.blocking(purchase)
                if freeze is not None:
                    stopped = f"buying is stopped ({freeze.freeze_id}): {freeze.detail}"
                    bars[command.command_id, kind] = limited(stopped, scope=freeze.scope)
        return bars

    # --- what each of them says ---------------------------------------------------------------

    async def _compare(
        self, log: LogView, lives: LivesInHand, shown: Sequence[Instance]
    ) -> tuple[Disagreement, ...]:
        return compare(log.says, await self._says(log), _shows(lives, shown))

    async def _says(self, log: LogView) -> LedgerSays:
        by_slot = await self._charged_by_slot(log)
        held = await self._ledger.held()
        spent = await self._ledger.spend_by_job()
        admitted = frozenset(await self._ledger.admitted_ids())
        return LedgerSays(
            latest_slot=await self._ledger.latest_slot(),
            charged=by_slot[log.says.complete_slot],
            spent=spent,
            admitted=admitted,
            ended=await self._ended(log, admitted | spent.keys()),
            held={instance.instance_id: instance.job_id for instance in held},
        )

    async def _ended(self, log: LogView, job_ids: Iterable[str]) -> frozenset[str]:
        """Jobs that ended, by the ledger: asked where the log may have lost that they did."""
        if log.says.incarnation <= 1 and all(log.says.knows(job_id) for job_id in job_ids):
            return frozenset()
        records = await self._ledger.job_records()
        return frozenset(record.job_id for record in records if isinstance(record.event, JobClosed))

    async def _charged_by_slot(self, log: LogView) -> dict[int, dict[str, int]]:
        """Micro-USD by job: up to the log's complete slot, and of each slot after it."""
        complete = log.says.complete_slot
        charged: dict[int, dict[str, int]] = {complete: dict(await self._ledger.spend_by_job())}
        for charge in await self._ledger.charges_since(complete + 1):
            job_id, cost = charge.cost.job_id, charge.cost.cost_micro_usd
            slot = charged.setdefault(charge.cost.slot, {})
            slot[job_id] = slot.get(job_id, 0) + cost
            charged[complete][job_id] -= cost
        return charged

    # --- freezes ------------------------------------------------------------------------------

    def _freeze(
        self, disagreements: Iterable[Disagreement], log: LogView, at: Moment
    ) -> list[Event]:
        """Begin what is wanted and not in force, and end what is in force and wanted no more."""
        wanted = {
            freeze_id: freeze
            for freeze_id, freeze in freezes_of(
                disagreements, slot=at.slot, ts_event_ns=at.ts_ns
            ).items()
            if log.accepted.get(freeze_id) != freeze.detail
        }
        self._freezes = wanted
        begun: list[Event] = [
            BuyingFrozen(freeze=freeze)
            for freeze_id, freeze in sorted(wanted.items())
            if freeze_id not in log.freezes
        ]
        ended: list[Event] = []
        for freeze_id, freeze in sorted(log.freezes.items()):
            if freeze.reason is not FreezeReason.UNDECIDED or freeze_id in wanted:
                continue
            # What a cloud hides for a while is not there the moment after.
            if at.ts_ns - freeze.ts_event_ns < self._graces.unknown_s * NS_PER_S:
                self._freezes = {**self._freezes, freeze_id: freeze}
                continue
            ended.append(
                BuyingUnfrozen(
                    freeze_id=freeze_id,
                    detail="log, ledger and cloud agree about it",
                    slot=at.slot,
                    ts_event_ns=at.ts_ns,
                )
            )
        return [*begun, *ended]

    # --- orphans ------------------------------------------------------------------------------

    async def _orphans(
        self, log: LogView, lives: LivesInHand, shown: Sequence[Instance], at: Moment
    ) -> list[Orphan]:
        """What runs and belongs to no job: strangers seen long enough, and what a gone job holds."""
        held = {one.instance_id: one for one in await self._ledger.held()}
        orphans = []
        for instance in shown:
            if instance.state is InstanceState.ENDED:
                continue
            known = log.orphans.get(instance.instance_id)
            ours = held.get(instance.instance_id)
            life = lives.get(instance.instance_id)
            if ours is not None:
                if log.says.may_hold(ours.job_id):
                    continue
                since_ns = at.ts_ns
            elif life is not None and _is_strange(lives, instance.instance_id):
                since_ns = life.since_ns
                if at.ts_ns - since_ns < self._graces.apart_s * NS_PER_S:
                    continue
            else:
                continue
            orphans.append(
                Orphan(
                    instance_id=instance.instance_id,
                    offering_id=instance.offering_id,
                    account=log.accounts.get(instance.offering_id, ""),
                    installation_id=instance.installation_id,
                    hold=instance.hold,
                    since_ns=since_ns if known is None else known.ts_event_ns,
                    job_id=instance.job_id,
                    tenant=instance.tenant,
                )
            )
        return orphans

    async def _release(
        self, instance_ids: Sequence[str], reason: str, at: Moment, lives: LivesInHand
    ) -> None:
        """End instances: first on record, then asked of the cloud; looks ask again."""
        if not instance_ids:
            return
        held: dict[str, HeldInstance] = {one.instance_id: one for one in await self._ledger.held()}
        for instance_id in instance_ids:
            if instance_id in lives:
                lives.learn(instance_id, LifeInput.STOP_ASKED)
        latest_slot = await self._ledger.latest_slot()
        slot, offset_s = at.slot, at.offset_s
        if slot < latest_slot:
            # A log that begins anew is behind its ledger: what is billed stays so.
            slot, offset_s = latest_slot + 1, 0
        ended = tuple(
            LedgerEnd(instance_id=instance_id, slot=slot, offset_s=offset_s, reason=reason)
            for instance_id in instance_ids
            if instance_id in held
        )
        await self._ledger.record(LedgerEntry(slot=at.slot, ended=ended, transitions=lives.drain()))
        await self._cloud.terminate(self._ledger.owner, instance_ids)

    def _found(self, orphans: Sequence[Orphan], log: LogView, at: Moment) -> list[Event]:
        """Those that are not told yet, or of which something else must be said by now."""
        events: list[Event] = []
        for orphan in orphans:
            event = self._event_of(orphan, at)
            known = log.orphans.get(orphan.instance_id)
            if known is None or (known.detail, known.reap_after_ns) != (
                event.detail,
                event.reap_after_ns,
            ):
                events.append(event)
        return events

    def _event_of(self, orphan: Orphan, at: Moment) -> OrphanFound:
        rules = self._rules.reap
        after_ns = orphan.reap_after_ns(rules)
        forbidden = orphan.forbidden(rules)
        detail = "it will be ended by the rules"
        if forbidden:
            detail = f"it is not ended: {forbidden}"
        elif not after_ns:
            detail = (
                f"it is ended when a person says so: spotline orphans reap {orphan.instance_id}"
            )
        return OrphanFound(
            instance_id=orphan.instance_id,
            offering_id=orphan.offering_id,
            slot=at.slot,
            ts_event_ns=orphan.since_ns,
            reap_after_ns=after_ns,
            detail=detail,
            job_id=orphan.job_id,
            tenant=orphan.tenant,
        )

    def _over(self, orphans: Sequence[Orphan], log: LogView, at: Moment) -> list[Event]:
        still = {orphan.instance_id for orphan in orphans}
        return [
            OrphanSettled(
                instance_id=instance_id,
                reaped=False,
                detail="it is gone, or belongs to a job again",
                slot=at.slot,
                ts_event_ns=at.ts_ns,
            )
            for instance_id in sorted(log.orphans.keys() - still)
        ]


def _shows(lives: LivesInHand, shown: Sequence[Instance]) -> CloudShows:
    """What the cloud shows, as a comparison takes it."""
    running = [one for one in shown if one.state is not InstanceState.ENDED]
    strangers = tuple(
        Stranger(
            instance_id=one.instance_id,
            job_id=one.job_id,
            tenant=one.tenant,
            offering_id=one.offering_id,
        )
        for one in running
        if _is_strange(lives, one.instance_id)
    )
    return CloudShows(
        shown=frozenset(one.instance_id for one in running),
        withheld=frozenset(one.instance_id for one in running if one.hold),
        strangers=strangers,
    )


def _is_strange(lives: LivesInHand, instance_id: str) -> bool:
    """Whether the ledger never ordered it, and nobody has asked for its end."""
    life = lives.get(instance_id)
    return life is not None and not life.ours and life.state is LifeState.UNKNOWN


def _settled(orphan: Orphan, at: Moment, detail: str, *, by: str = "") -> OrphanSettled:
    return OrphanSettled(
        instance_id=orphan.instance_id,
        reaped=True,
        detail=detail,
        slot=at.slot,
        ts_event_ns=at.ts_ns,
        by=by,
    )
