"""Carrying out a revision's intents: releases, then launches, and the reaction to each refusal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from spotline.application.cloud_actuator.gangs import GangCounts
from spotline.application.cloud_actuator.lives import LivesInHand, launch_life
from spotline.application.cloud_actuator.messages import ApplyRevisionRequest, Moment, StoppedLaunch
from spotline.application.cloud_actuator.ports import (
    CloudProvider,
    Grant,
    Instance,
    LaunchRequest,
    Ledger,
    LedgerEnd,
    LedgerLaunch,
    Refusal,
)
from spotline.application.cloud_actuator.reporting import ledger_launch, released, result_of
from spotline.application.cloud_actuator.taken_back import LEFT
from spotline.contracts.errors import ProviderUnavailable, Throttled, UnknownOutcome
from spotline.domain.events.capacity import (
    LaunchRefused,
    OfferingProbed,
    ProvisioningCommanded,
    RefusalClass,
)
from spotline.domain.ledger.caps import JOB_CAP, Permit, excepted_from, limited, stood_against
from spotline.domain.ledger.cooldowns import (
    Cooldown,
    CooldownKey,
    CoolingRules,
    OfferingPlace,
    Wanted,
    cooldown_after,
    cooled_by,
    cooling,
)
from spotline.domain.ledger.instance_life import Graces, LifeInput
from spotline.domain.ledger.intents import Intent, IntentResult, Launch
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S

# A throttled call, or one that the provider failed, is made again this often with the same token;
# then its refusal is answered, so that no launch holds up a slot without end.
PATIENCE_CALLS = 5
_PATIENT = {RefusalClass.THROTTLED, RefusalClass.SERVER}
_FIRST_WAIT_S = 1.0
# What a cloud may have again at any moment; another permission or quota comes by a person.
_MAY_HAVE_PASSED = {RefusalClass.NO_CAPACITY, RefusalClass.NETWORK}


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What is known beside the intents: the gangs of their jobs, and whose end the cloud brings.

    What is in `leave` is released, and not asked to end. Of the commands in `replacing` as many
    releases are left out as launches are not granted. `over` says why nothing is sent for a slot
    that is over; what may have been sent for it is looked up. `urgent` are as in the request.
    """

    gangs: GangCounts = field(default_factory=GangCounts)
    leave: Collection[str] = ()
    replacing: Collection[str] = ()
    over: str = ""
    urgent: Collection[str] = ()


NOTHING_BESIDE = Beside()


class CooldownsInHand:
    """The cool-downs that a step works on: read once, changed here, recorded with it."""

    def __init__(
        self, cooldowns: Iterable[Cooldown], rules: CoolingRules, epoch: int, at: Moment
    ) -> None:
        self._known = {(cooldown.scope, cooldown.key): cooldown for cooldown in cooldowns}
        self._before = dict(self._known)
        self._rules, self._epoch, self._now_ns = rules, epoch, at.ts_ns

    @property
    def changed(self) -> tuple[Cooldown, ...]:
        """Those that are new or grew."""
        return tuple(
            cooldown for key, cooldown in self._known.items() if self._before.get(key) != cooldown
        )

    @property
    def warmed(self) -> tuple[CooldownKey, ...]:
        """Those that a grant has ended."""
        return tuple(key for key in self._before if key not in self._known)

    def bar(self, wanted: Wanted, *, urgent: bool = False) -> Permit | None:
        """Why a launch is not asked for; None if nothing cools.

        On-demand that is `urgent` is asked for though others were refused a moment ago: its slot is
        the last in which it helps, and a refusal costs a call.
        """
        urgent = urgent and wanted.capacity_type is CapacityType.ON_DEMAND
        known = [
            cooldown
            for cooldown in self._known.values()
            if not (urgent and cooldown.refusal_class in _MAY_HAVE_PASSED)
        ]
        cold = cooling(wanted, known, now_ns=self._now_ns, epoch=self._epoch)
        if cold is None:
            return None
        return Permit(
            instances=0,
            detail=f"not asked again yet: {cold.detail}",
            refusal_class=cold.refusal_class,
            retry_after_s=cold.rest_s(self._now_ns),
        )

    def note(self, wanted: Wanted, granted: int, refusal: Refusal | None) -> int:
        """Take down a cloud's answer; seconds until it is asked for the same again."""
        if granted:
            for key in cooled_by(wanted):
                self._known.pop(key, None)
        if refusal is None:
            return 0
        cooldown = cooldown_after(
            refusal.refusal_class,
            wanted,
            self._known.values(),
            now_ns=self._now_ns,
            epoch=self._epoch,
            detail=refusal.detail,
            rules=self._rules,
            spot_only=refusal.spot_only,
        )
        if cooldown is None:
            return refusal.retry_after_s
        self._known[cooldown.scope, cooldown.key] = cooldown
        return max(refusal.retry_after_s, cooldown.rest_s(self._now_ns))


@dataclass(slots=True, kw_only=True)
class Done:
    """What carrying out a revision's intents came to; `dropped` are ended though nobody asked.

    `excepted` are launches that were made against a stop or a limit, and how many came of each,
    `probed` what probes were granted.
    """

    results: list[IntentResult] = field(default_factory=list)
    launched: list[LedgerLaunch] = field(default_factory=list)
    refusals: list[LaunchRefused] = field(default_factory=list)
    ended: dict[str, LedgerEnd] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)
    excepted: list[tuple[Intent, Launch, int]] = field(default_factory=list)
    probed: list[OfferingProbed] = field(default_factory=list)


def wanted_of(
    places: Mapping[str, OfferingPlace],
    offering_id: str,
    quota_pool: str,
    capacity_type: CapacityType,
) -> Wanted:
    """What a launch asks for. Of an offering that no market named, zone and account are its own."""
    place = places.get(offering_id) or OfferingPlace(
        offering_id=offering_id, zone=offering_id, account=offering_id
    )
    return Wanted(place=place, quota_pool=quota_pool, capacity_type=capacity_type)


def barred_launches(
    request: ApplyRevisionRequest,
    places: Mapping[str, OfferingPlace],
    lives: LivesInHand,
    cooldowns: CooldownsInHand,
    graces: Graces,
) -> dict[tuple[str, CapacityType], Permit]:
    """What may not be asked for now, by command and capacity type, and why.

    Where an earlier launch for the same job and offering may still have come to something, another
    one could buy it twice. Of on-demand that a hard deadline needs so many may be launched as its
    command excepts, where what stands against it yields to that.
    """
    unknown = {
        (life.job_id, life.offering_id, life.capacity_type): life
        for life in lives.unknown_launches()
    }
    stops = {
        (stop.command_id, stop.capacity_type): _permit_under(stop, request.commands)
        for stop in request.stops
    }
    bars: dict[tuple[str, CapacityType], Permit] = {}
    for command in request.commands:
        offering_id = command.target.offering_id
        for kind in CapacityType:
            wanted = wanted_of(places, offering_id, command.quota_pool, kind)
            urgent = command.command_id in request.urgent
            bar = cooldowns.bar(wanted, urgent=urgent) or stops.get((command.command_id, kind))
            launch = unknown.get((command.job_id, offering_id, kind))
            if launch is not None:
                until_ns = launch.since_ns + graces.unknown_s * NS_PER_S
                bar = Permit(
                    instances=0,
                    detail=f"nobody knows what launch {launch.token} did",
                    refusal_class=RefusalClass.UNKNOWN_OUTCOME,
                    # Where nobody answers it stays unknown for longer than its grace.
                    retry_after_s=max(graces.apart_s, -((lives.now_ns - until_ns) // NS_PER_S)),
                )
            if bar is not None:
                bars[command.command_id, kind] = bar
    return bars


def _permit_under(stop: StoppedLaunch, commands: Sequence[ProvisioningCommanded]) -> Permit:
    excepted = 0
    if stop.yields and stop.capacity_type is CapacityType.ON_DEMAND:
        excepted = sum(
            command.excepted_on_demand
            for command in commands
            if command.command_id == stop.command_id
        )
    if excepted:
        return excepted_from(stop.freeze_id, excepted, scope=stop.scope)
    return limited(f"buying is stopped ({stop.freeze_id}): {stop.detail}", scope=stop.scope)


class Launching:
    """Carries out intents against a cloud; a launch is sent again only with the same token."""

    def __init__(
        self, cloud: CloudProvider, ledger: Ledger, graces: Graces, installation_id: str = ""
    ) -> None:
        self._cloud, self._ledger, self._graces = cloud, ledger, graces
        self._installation_id = installation_id
        self._calls: dict[str, int] = {}
        self._unanswered: dict[str, Refusal] = {}

    async def carry_out(
        self,
        intents: Sequence[Intent],
        at: Moment,
        lives: LivesInHand,
        cooldowns: CooldownsInHand,
        places: Mapping[str, OfferingPlace],
        *,
        resumed: bool,
        beside: Beside = NOTHING_BESIDE,
    ) -> Done:
        """Release, then launch; what is to be left is not asked to end.

        Intents that are `resumed` may have been sent before: each is asked for, and answered as it
        was then, whatever has been refused since.

        Raises
        ------
        ProviderUnavailable
            Perform the same intents again later; what was granted is granted again.
        """
        done = Done()
        first = [intent for intent in intents if intent.command_id not in beside.replacing]
        await self._release(first, lives, done, beside.leave)
        for intent in intents:
            granted: list[Instance] = []
            released_at_once: list[Instance] = []
            details: list[str] = []
            for launch in intent.launches:
                grant = Grant(instances=())
                if launch.permitted:
                    wanted = wanted_of(
                        places, intent.offering_id, intent.quota_pool, launch.capacity_type
                    )
                    urgent = intent.command_id in beside.urgent
                    bar = None if resumed else cooldowns.bar(wanted, urgent=urgent)
                    if beside.over:
                        unknown = Refusal(
                            refusal_class=RefusalClass.UNKNOWN_OUTCOME,
                            detail=f"nobody knows whether it was sent: {beside.over}",
                        )
                        grant = await self._look_up(launch, unknown)
                    elif bar is not None:
                        grant = _not_asked(bar)
                    else:
                        counts = beside.gangs.counts_of_use(intent, launch, len(granted))
                        request = self._request(intent, launch, at, counts)
                        grant = await self._ask(request, launch, wanted, cooldowns)
                    _take_up(lives, intent, launch, grant, intent.ts_ns if beside.over else None)
                granted += grant.instances
                released_at_once += grant.released
                if grant.instances and stood_against(launch.detail):
                    done.excepted.append((intent, launch, len(grant.instances)))
                if len(grant.instances) < launch.requested:
                    refused = _refused(intent, launch, grant, at)
                    details.append(refused.detail)
                    done.refusals.append(refused)
            done.launched += [
                ledger_launch(intent, instance) for instance in (*granted, *released_at_once)
            ]
            for instance in released_at_once:
                # It is on the provider's bill: the ledger knows it, for no time.
                done.ended[instance.instance_id] = released(
                    instance.instance_id, intent, "released"
                )
            requested = sum(launch.requested for launch in intent.launches)
            done.results.append(
                result_of(
                    intent, granted, refused=requested - len(granted), detail="; ".join(details)
                )
            )
            if intent.command_id in beside.replacing:
                short = requested - len(granted)
                replaced = intent.release[: max(0, len(intent.release) - short)]
                kept = replace(intent, release=replaced)
                await self._release([kept], lives, done, beside.leave)
        self._calls.clear()
        self._unanswered.clear()
        return done

    async def _release(
        self,
        intents: Sequence[Intent],
        lives: LivesInHand,
        done: Done,
        leave: Collection[str],
    ) -> None:
        for intent in intents:
            reason = JOB_CAP if intent.dropped else "released"
            for instance_id in intent.release:
                why = LEFT if instance_id in leave else reason
                done.ended[instance_id] = released(instance_id, intent, why)
            if intent.dropped:
                done.dropped |= set(intent.release)
        releases = [instance_id for intent in intents for instance_id in intent.release]
        ending = [instance_id for instance_id in releases if instance_id not in leave]
        if not ending:
            return
        await self._cloud.terminate(self._ledger.owner, ending)
        for instance_id in ending:
            if instance_id in lives:
                lives.learn(instance_id, LifeInput.STOP_ASKED)

    async def _ask(
        self, request: LaunchRequest, launch: Launch, wanted: Wanted, cooldowns: CooldownsInHand
    ) -> Grant:
        """Ask the cloud, and note what its answer means for later launches."""
        grant = await self._launch(request, launch)
        if grant.refusal is not None and not grant.instances:
            self._be_patient(launch, grant.refusal)
            if grant.refusal.refusal_class is RefusalClass.SERVER:
                # It may have failed once it had launched.
                grant = await self._look_up(launch, grant.refusal)
        retry_after_s = cooldowns.note(wanted, len(grant.instances), grant.refusal)
        if grant.refusal is None:
            return grant
        return replace(grant, refusal=replace(grant.refusal, retry_after_s=retry_after_s))

    def _request(
        self, intent: Intent, launch: Launch, at: Moment, counts: tuple[int, ...]
    ) -> LaunchRequest:
        return LaunchRequest(
            token=launch.token,
            owner=self._ledger.owner,
            job_id=intent.job_id,
            tenant=intent.tenant,
            quota_pool=intent.quota_pool,
            offering_id=intent.offering_id,
            capacity_type=launch.capacity_type,
            instances=launch.permitted,
            at=at,
            installation_id=self._installation_id,
            allowed_counts=counts,
        )

    async def _launch(self, request: LaunchRequest, launch: Launch) -> Grant:
        if launch.token in self._unanswered:
            return await self._look_up(launch, self._unanswered[launch.token])
        try:
            grant = await self._cloud.launch(request)
        except UnknownOutcome as error:
            unknown = Refusal(
                refusal_class=RefusalClass.UNKNOWN_OUTCOME,
                detail=error.problem,
                retry_after_s=self._graces.unknown_s,
            )
            self._unanswered[launch.token] = unknown
            return await self._look_up(launch, unknown)
        refusal = grant.refusal
        if refusal is None or refusal.refusal_class is not RefusalClass.TOKEN_MISMATCH:
            return grant
        # What the token launched before is ours; the next command comes with another one.
        return await self._look_up(launch, refusal)

    async def _look_up(self, launch: Launch, refusal: Refusal) -> Grant:
        """What the cloud shows under the token; refused as said if it is not all."""
        shown = await self._cloud.list(self._ledger.owner.name)
        found = tuple(instance for instance in shown if instance.token == launch.token)
        enough = len(found) >= launch.permitted
        return Grant(instances=found, refusal=None if enough else refusal)

    def _be_patient(self, launch: Launch, refusal: Refusal) -> None:
        """Have the same launch sent again after a while, a few times."""
        if refusal.refusal_class not in _PATIENT:
            return
        calls = self._calls.get(launch.token, 0) + 1
        self._calls[launch.token] = calls
        if calls >= PATIENCE_CALLS:
            return
        if refusal.refusal_class is RefusalClass.THROTTLED:
            wait_s = refusal.retry_after_s or _FIRST_WAIT_S * 2 ** (calls - 1)
            raise Throttled("the cloud", wait_s)
        raise ProviderUnavailable(refusal.detail)


def _not_asked(bar: Permit) -> Grant:
    return Grant(
        instances=(),
        refusal=Refusal(
            refusal_class=bar.refusal_class or RefusalClass.LIMIT,
            detail=bar.detail,
            retry_after_s=bar.retry_after_s,
        ),
    )


def _take_up(
    lives: LivesInHand, intent: Intent, launch: Launch, grant: Grant, sent_ns: int | None
) -> None:
    """Begin the lives of what was granted, or of the launch where nobody knows; sent now, or when."""
    for instance in grant.instances:
        if instance.instance_id not in lives:
            life = launch_life(intent, launch, instance_id=instance.instance_id)
            lives.begin(life, LifeInput.GRANTED)
    for instance in grant.released:
        if instance.instance_id not in lives:
            life = launch_life(intent, launch, instance_id=instance.instance_id)
            lives.begin(life, LifeInput.GRANTED)
            lives.learn(instance.instance_id, LifeInput.STOP_ASKED)
    refusal = grant.refusal
    if refusal is not None and refusal.refusal_class is RefusalClass.UNKNOWN_OUTCOME:
        lives.begin(launch_life(intent, launch), LifeInput.OUTCOME_UNKNOWN, sent_ns)


def _refused(intent: Intent, launch: Launch, grant: Grant, at: Moment) -> LaunchRefused:
    """Say why fewer were granted: the cloud's word if it has one, else ours."""
    cloud = grant.refusal
    words = "" if cloud is None else cloud.detail
    return LaunchRefused(
        command_id=intent.command_id,
        job_id=intent.job_id,
        tenant=intent.tenant,
        offering_id=intent.offering_id,
        capacity_type=launch.capacity_type,
        slot=at.slot,
        requested=launch.requested,
        granted=len(grant.instances),
        detail="; ".join(filter(None, (launch.detail, words))),
        refusal_class=launch.refusal_class if cloud is None else cloud.refusal_class,
        retry_after_s=launch.retry_after_s if cloud is None else cloud.retry_after_s,
        limit_scope=launch.limit_scope if cloud is None else None,
    )
