"""A certification: the actuator's own adapter, tried in the user's account on a cheap type.

Everything it launches carries an owner's tag of its own, and is ended at the end, whatever happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from spotline.adapters.clouds.aws.api import AwsPlace
from spotline.adapters.clouds.aws.calling import AwsReader
from spotline.adapters.clouds.aws.certify.budget import TrialBudget
from spotline.adapters.clouds.aws.certify.interruption import interrupted
from spotline.adapters.clouds.aws.certify.looks import ended, of_token, runs
from spotline.adapters.clouds.aws.certify.record import HeldForTrial, TrialRecord
from spotline.adapters.clouds.aws.certify.volumes import volumes_of
from spotline.adapters.clouds.aws.feeds.feed import FeedWall
from spotline.adapters.clouds.aws.feeds.offerings import market_offering
from spotline.adapters.clouds.aws.settings import AwsOffering
from spotline.adapters.clouds.aws.tags import OWNER
from spotline.application.cloud_actuator.messages import Moment
from spotline.application.cloud_actuator.ports import (
    CloudEventKind,
    CloudProvider,
    Grant,
    Instance,
    InstanceState,
    LaunchRequest,
    Owner,
)
from spotline.application.cloud_checks import CloudCheck, failed, left_open, ok, warning
from spotline.contracts.errors import ProviderUnavailable, SpotlineError, UnknownOutcome
from spotline.domain.market.market_clock import MarketClock
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S
from spotline.runtime.time_limit import time_limit

SeenT = TypeVar("SeenT")

LOST = "create_fleet"
"""The operation whose answer is dropped."""

# One by a launch, one by a lost answer, one to be interrupted.
LAUNCHES, INTERRUPTED_LAUNCHES = 2, 3
_JOB = "certify"
# Looks in a row, apart, that show nothing of ours alive, and all ended that we know of.
_QUIET_LOOKS = 3


class TrialCloud(CloudProvider, Protocol):
    """The adapter, as it is opened for a trial."""

    def close(self) -> None:
        """Let go of files and connections."""
        ...


Opened = Callable[[str, str], TrialCloud]
"""Opens the adapter as a process of that name would, which knows nothing of any other; of the operation
that is named the first answer is lost, none of an empty name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPlan:
    """What is tried.

    Parameters
    ----------
    token
        Unlike any other trial's.
    price_micro_usd
        List price of the offering per instance-hour.
    most_micro_usd
        What it may cost, at most.
    account_id
        Of the offering.
    lease_s
        Seconds of market time until everything is ended.
    poll_s
        Wall seconds between two looks.
    ending_s
        Wall seconds that ending everything may take.
    interruption_role
        The role by which FIS interrupts; empty: no interruption is tried.
    """

    offering: AwsOffering
    token: str
    price_micro_usd: int
    most_micro_usd: int
    account_id: str
    installation_id: str = ""
    lease_s: int = 1800
    poll_s: float = 2.0
    ending_s: float = 300.0
    interruption_role: str = ""

    @property
    def budget(self) -> TrialBudget:
        """What it may cost."""
        return TrialBudget(
            launches=INTERRUPTED_LAUNCHES if self.interruption_role else LAUNCHES,
            lease_s=self.lease_s,
            price_micro_usd=self.price_micro_usd
            + market_offering(self.offering).disk_micro_usd_per_hour,
        )


class NotShown(Exception):
    """A step did not show what it is for."""


class AwsTrial:
    """One certification; `record` is what was seen so far, also of one that was cut off."""

    def __init__(
        self,
        plan: TrialPlan,
        opened: Opened,
        reader: AwsReader,
        wall: FeedWall,
        clock: MarketClock,
    ) -> None:
        self._plan, self._opened, self._reader = plan, opened, reader
        self._wall, self._clock = wall, clock
        self._owner = Owner(name=f"spotline-certify-{plan.token}", epoch=1)
        self._site = AwsPlace(plan.offering.account, plan.offering.region)
        self._offering = market_offering(plan.offering)
        self._checks: list[CloudCheck] = []
        self._held: dict[str, HeldForTrial] = {}
        # Instances that were shown ended, and tokens of launches that may have been made.
        self._over: set[str] = set()
        self._unanswered: set[str] = set()
        # When each launch was first asked for: AWS bills from no earlier, and often before it answers.
        self._asked_ns: dict[str, int] = {}
        self._began_ns = self._now_ns()

    async def run(self) -> None:
        """Show everything there is to show, and end all of it.

        Raises
        ------
        TooDear
            It could cost more than is allowed: nothing was launched.
        """
        self._plan.budget.check(self._plan.most_micro_usd)
        lease_wall_s = self._plan.lease_s / self._clock.market_s_per_s
        try:
            async with asyncio.timeout(lease_wall_s):
                await self._steps()
        except TimeoutError:
            self._checks.append(
                failed(
                    "lease",
                    self._plan.offering.offering_id,
                    f"it was not over within {self._plan.lease_s} s",
                    "see which step waited, and give it a longer --lease",
                )
            )
        finally:
            # Whoever interrupts us must not leave instances behind.
            await self._end_all()

    def record(self) -> TrialRecord:
        """What was seen and held so far."""
        return TrialRecord(
            owner=self._owner.name,
            offering_id=self._plan.offering.offering_id,
            began_ns=self._began_ns,
            ended_ns=self._now_ns(),
            most_micro_usd=self._plan.most_micro_usd,
            worst_micro_usd=self._plan.budget.worst_micro_usd,
            checks=tuple(self._checks),
            held=tuple(self._held.values()),
        )

    # --- steps --------------------------------------------------------------------------------

    async def _steps(self) -> None:
        first = self._opened("first", "")
        try:
            await self._step("launch", self._launched(first))
            await self._step("same token", self._repeated())
            await self._step("lost answer", self._lost())
            await self._step("interruption", self._interrupted(first))
            await self._step("orphan", self._found_again())
            await self._step("terminate", self._terminated(first))
        finally:
            first.close()

    async def _step(self, name: str, work: Awaitable[str]) -> None:
        where = self._plan.offering.offering_id
        try:
            said = await work
            await self._see_volumes()
        except NotShown as error:
            step = "see what AWS said, put it right, and certify again"
            self._checks.append(failed(name, where, str(error), step))
        except NotTried as error:
            self._checks.append(left_open(name, where, str(error), error.next_step))
        except SpotlineError as error:
            step = "spotline cloud doctor aws says what is missing"
            self._checks.append(failed(name, where, str(error), step))
        else:
            self._checks.append(ok(name, where, said))

    async def _launched(self, cloud: TrialCloud) -> str:
        grant = await self._granted(cloud, "launch", CapacityType.ON_DEMAND)
        (instance_id,) = self._hold(grant, CapacityType.ON_DEMAND)
        began_ns = self._now_ns()
        shown = await self._until(cloud, lambda found: found.get(instance_id))
        running = await self._until(cloud, runs(instance_id))
        waited_s = (self._now_ns() - began_ns) // NS_PER_S
        return f"{shown.instance_id} is {running.state.value} after {waited_s} s, with our tags"

    async def _repeated(self) -> str:
        known = set(self._held)
        if not known:
            raise NotTried("nothing was launched")
        another = self._opened("second", "")
        try:
            grant = await self._asked(another, self._request("launch", CapacityType.ON_DEMAND))
        finally:
            another.close()
        found = {instance.instance_id for instance in grant.instances}
        if found != known:
            self._hold(grant, CapacityType.ON_DEMAND)
            raise NotShown(f"the same token gave {sorted(found)} instead of {sorted(known)}")
        return f"another process got {', '.join(sorted(found))} again by the same token"

    async def _lost(self) -> str:
        request = self._request("lost", CapacityType.ON_DEMAND)
        losing, before = self._opened("losing", LOST), set(self._held)
        try:
            grant = await self._asked(losing, request)
            self._hold(grant, CapacityType.ON_DEMAND)
            raise NotShown("the launch was answered although its answer was dropped")
        except UnknownOutcome:
            found = await self._until(losing, of_token(request.token))
        finally:
            losing.close()
        self._note(found, CapacityType.ON_DEMAND)
        again = self._opened("after", "")
        try:
            grant = await self._asked(again, request)
        finally:
            again.close()
        ids = self._hold(grant, CapacityType.ON_DEMAND)
        if ids != (found.instance_id,) or len(set(self._held) - before) != 1:
            raise NotShown(f"asked again, it gave {', '.join(ids)} beside {found.instance_id}")
        return f"{found.instance_id} was found by its tag, and the same token gave it again"

    async def _interrupted(self, cloud: TrialCloud) -> str:
        plan = self._plan
        if not plan.interruption_role:
            raise NotTried(
                "no --interruption-role was named",
                "create one with deploy/aws/notices.yaml, WithInterruptionRole: yes",
            )
        grant = await self._granted(cloud, "interrupted", CapacityType.SPOT)
        (instance_id,) = self._hold(grant, CapacityType.SPOT)
        await self._until(cloud, runs(instance_id))
        await self._see_volumes()
        arn = f"arn:aws:ec2:{plan.offering.region}:{plan.account_id}:instance/{instance_id}"
        async with interrupted(
            self._reader,
            self._site,
            arn,
            plan.interruption_role,
            plan.token,
            stays=self._note_template,
        ):
            lead_s = await self._noticed(cloud, instance_id)
            await self._seen_ended(cloud, instance_id)
        self._end(instance_id)
        return f"{instance_id} was noticed {lead_s} s ahead, and taken back"

    def _note_template(self, template_id: str, why: str) -> None:
        self._checks.append(
            warning(
                "interruption template",
                self._plan.offering.offering_id,
                f"{template_id} stays: {why}",
                f"aws fis delete-experiment-template --id {template_id} --region "
                f"{self._site.region}",
            )
        )

    async def _noticed(self, cloud: TrialCloud, instance_id: str) -> int:
        """The lead of the notice, once it comes."""
        taking = 0
        while True:
            taking += 1
            for event in await cloud.events(f"{self._owner.name}-{taking}", self._at()):
                ours = event.instance.instance_id == instance_id
                if ours and event.kind is CloudEventKind.NOTICE:
                    return event.lead_s
            await self._wall.sleep(self._plan.poll_s)

    async def _found_again(self) -> str:
        alive = {each for each, held in self._held.items() if not held.ended_ns}
        if not alive:
            raise NotTried("nothing was launched")
        stranger = self._opened("stranger", "")
        try:
            await self._until(stranger, lambda found: True if alive <= found.keys() else None)
        finally:
            stranger.close()
        return f"a process that knows nothing found {', '.join(sorted(alive))} by the owner's tag"

    async def _terminated(self, cloud: TrialCloud) -> str:
        alive = sorted(each for each, held in self._held.items() if not held.ended_ns)
        if not alive:
            raise NotTried("nothing was launched")
        await cloud.terminate(self._owner, alive)
        for instance_id in alive:
            self._end(instance_id)
        for instance_id in alive:
            await self._seen_ended(cloud, instance_id)
        return f"{', '.join(alive)} were asked to end, and seen ended"

    # --- the end ------------------------------------------------------------------------------

    async def _end_all(self) -> None:
        """End whatever carries our tag, and look until nothing of it is alive."""
        name, where = "nothing left", self._plan.offering.offering_id
        cloud = self._opened("last", "")
        left: set[str] = set(self._held)
        try:
            async with time_limit(self._plan.ending_s):
                quiet = 0
                while quiet < _QUIET_LOOKS:
                    left = await self._end_shown(cloud)
                    quiet = 0 if left or self._unanswered else quiet + 1
                    await self._wall.sleep(self._plan.poll_s)
            self._checks.append(ok(name, where, f"{len(self._held)} were launched, none is alive"))
        except TimeoutError:
            self._checks.append(self._left(name, where, left))
        finally:
            cloud.close()

    def _left(self, name: str, where: str, left: set[str]) -> CloudCheck:
        said = [f"not seen ended within {self._plan.ending_s:g} s: {', '.join(sorted(left))}"]
        steps = [
            f"aws ec2 terminate-instances --region {self._site.region} "
            f"--instance-ids {' '.join(sorted(left))}"
        ]
        if not left:
            said, steps = [], []
        if self._unanswered:
            said.append(f"nobody knows what came of {', '.join(sorted(self._unanswered))}")
            steps.append(
                f"aws ec2 describe-instances --region {self._site.region} --filters "
                f"Name=tag:{OWNER},Values={self._owner.name}, and terminate what is alive"
            )
        return failed(name, where, "; ".join(said), "; ".join(steps))

    async def _end_shown(self, cloud: TrialCloud) -> set[str]:
        """Ask for the end of what is shown alive; those ids, and all that was not seen to end."""
        alive: set[str] = set()
        try:
            shown = await cloud.list(self._owner.name)
            for each in shown:
                self._unanswered.discard(each.token)
                self._note(each, each.capacity_type)
                if each.state is InstanceState.ENDED:
                    self._over.add(each.instance_id)
                    self._end(each.instance_id)
                else:
                    alive.add(each.instance_id)
            if alive:
                await cloud.terminate(self._owner, sorted(alive))
        except ProviderUnavailable:
            # Asked again until the time for ending is over, which is then told.
            return alive | (self._held.keys() - self._over)
        for instance_id in sorted(alive):
            self._end(instance_id)
        # What is not shown may be there: it is shown late, or we have lost the right to look.
        return alive | (self._held.keys() - self._over)

    # --- parts --------------------------------------------------------------------------------

    async def _granted(self, cloud: TrialCloud, what: str, kind: CapacityType) -> Grant:
        grant = await self._asked(cloud, self._request(what, kind))
        if not grant.instances:
            refusal = grant.refusal
            said = f"{refusal.refusal_class.value}: {refusal.detail}" if refusal else "no reason"
            raise NotShown(f"AWS granted none: {said}")
        return grant

    async def _asked(self, cloud: TrialCloud, request: LaunchRequest) -> Grant:
        self._unanswered.add(request.token)
        self._asked_ns.setdefault(request.token, self._now_ns())
        grant = await cloud.launch(request)
        self._unanswered.discard(request.token)
        return grant

    def _request(self, what: str, kind: CapacityType) -> LaunchRequest:
        return LaunchRequest(
            token=f"{self._owner.name}-{what}",
            owner=self._owner,
            job_id=_JOB,
            tenant=_JOB,
            quota_pool=self._offering.quota_pool,
            offering_id=self._offering.offering_id,
            capacity_type=kind,
            instances=1,
            at=self._at(),
            installation_id=self._plan.installation_id,
        )

    async def _until(
        self, cloud: TrialCloud, seen: Callable[[Mapping[str, Instance]], SeenT | None]
    ) -> SeenT:
        """Look until something is seen; the lease ends a wait that is too long."""
        while True:
            try:
                listed: Sequence[Instance] = await cloud.list(self._owner.name)
            except ProviderUnavailable:
                # It may answer the next time; the lease bounds how often.
                listed = ()
            found = seen({each.instance_id: each for each in listed})
            if found is not None:
                return found
            await self._wall.sleep(self._plan.poll_s)

    async def _seen_ended(self, cloud: TrialCloud, instance_id: str) -> None:
        await self._until(cloud, ended(instance_id))
        # AWS shows it no more within an hour.
        self._over.add(instance_id)

    def _hold(self, grant: Grant, kind: CapacityType) -> tuple[str, ...]:
        for instance in grant.instances:
            self._note(instance, kind)
        return tuple(instance.instance_id for instance in grant.instances)

    def _note(self, instance: Instance, kind: CapacityType) -> None:
        """Hold an instance since it was asked for, if it is not known to be held."""
        self._held.setdefault(
            instance.instance_id,
            HeldForTrial(
                instance_id=instance.instance_id,
                offering_id=self._offering.offering_id,
                capacity_type=kind.value,
                began_ns=self._asked_ns.get(instance.token, self._now_ns()),
                price_micro_usd=self._plan.price_micro_usd,
                disks=self._offering.disks,
            ),
        )

    async def _see_volumes(self) -> None:
        """Note the volumes of what is held: an export has their lines by their own ids."""
        unseen = [
            each.instance_id
            for each in self._held.values()
            if each.disks is not None and not each.volume_ids and not each.ended_ns
        ]
        if not unseen:
            return
        try:
            found = await volumes_of(self._reader, self._site, unseen)
        except ProviderUnavailable:
            # What was not seen is said where the bill is compared.
            return
        for instance_id, ids in found.items():
            self._held[instance_id] = replace(self._held[instance_id], volume_ids=ids)

    def _end(self, instance_id: str) -> None:
        self._held[instance_id] = self._held[instance_id].ended(self._now_ns())

    def _at(self) -> Moment:
        return Moment(slot=0, slot_s=3600, offset_s=0, ts_ns=self._now_ns())

    def _now_ns(self) -> int:
        return self._clock.market_at(self._wall.now_ns())


class NotTried(Exception):
    """A step was not tried."""

    def __init__(self, why: str, next_step: str = "") -> None:
        super().__init__(why)
        self.next_step = next_step
