"""How the contract suite handles a cloud: what a rig can make its cloud do, by verb.

A new cloud brings a rig here: usually its client in front of a server of recorded answers. A verb
that its cloud cannot be made to do is named in `cannot`, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from spotline.adapters.clouds.aws.cloud import AwsCloud
from spotline.adapters.clouds.aws.settings import ANNOUNCED_S
from spotline.adapters.clouds.aws.tags import HOLD
from spotline.adapters.clouds.local.cloud import LocalCloud
from spotline.adapters.clouds.local.settings import LocalCloudSettings
from spotline.adapters.clouds.simulated.cloud import SimulatedCloud
from spotline.adapters.clouds.simulated.faults import SimulatedCloudSettings
from spotline.adapters.clouds.simulated.paper import PaperCloud
from spotline.application.cloud_actuator.messages import Moment
from spotline.application.cloud_actuator.ports import (
    CloudEvent,
    CloudProvider,
    Instance,
    InstanceState,
    LaunchRequest,
)
from spotline.domain.events.capacity import RefusalClass
from spotline.domain.market.believed import PaperSettings
from spotline.domain.units import NS_PER_S
from tests.eventually import eventually
from tests.fakes.actuator import OWNER, launch, moment, quote
from tests.fakes.aws_rehearsal import (
    START_NS,
    RehearsedAws,
    SharedApi,
    lost,
    refused,
    warning,
)
from tests.fakes.troubled_cloud import (
    Answer,
    Fate,
    Lag,
    RefusalRule,
    TroubledCloud,
    TroubleMemory,
    Troubles,
    notice_of,
)

# What a rig can do beyond selling: each is a method, or has a reason in `cannot`.
VERBS = (
    *("reclaim", "take_away", "fence", "lag", "lose_answer", "refuse", "push_notice"),
    *("throttle", "double", "protect"),
)


class CloudRig:
    """One cloud in a folder. `patience` is how many listings and takings show everything.

    `examples` is how many random stories of it a property test tries. Requests are for `offering_id`.
    """

    cloud: ClassVar[str]
    examples: ClassVar[int] = 25
    cannot: ClassVar[Mapping[str, str]] = {}
    patience: ClassVar[int] = 1
    offering_id: ClassVar[str] = "a"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._takings = 0
        self._opened: list[Callable[[], None]] = []

    def another(self) -> CloudProvider:
        """Open the cloud, as another process would."""
        raise NotImplementedError

    def die(self) -> None:
        """End the processes that opened the cloud."""
        while self._opened:
            self._opened.pop()()

    def close(self) -> None:
        self.die()

    def needs(self, *verbs: str) -> None:
        """Skip the test where the cloud cannot be made to do one of these."""
        for verb in verbs:
            if verb in self.cannot:
                pytest.skip(f"{self.cloud} cannot {verb}: {self.cannot[verb]}")

    @property
    def at(self) -> Moment:
        """The present moment of the cloud."""
        raise NotImplementedError

    def stock(self, spot: int, on_demand: int | None = None) -> None:
        """Have that many instances of the offering, those that run included."""
        raise NotImplementedError

    def pass_time(self, seconds: int) -> None:
        """Let market time pass."""
        raise NotImplementedError

    def request(self, token: str, instances: int, **changes: object) -> LaunchRequest:
        asked = replace(launch(token, instances, at=self.at), offering_id=self.offering_id)
        return replace(asked, **changes)

    async def taken(self, cloud: CloudProvider) -> Sequence[CloudEvent]:
        """Take events with a token that was never used."""
        self._takings += 1
        return await cloud.events(f"taking-{self._takings}", self.at)

    async def settled(self) -> None:
        """Wait until what was done has come to pass; where it does so at once there is nothing to wait for."""

    async def told(self, cloud: CloudProvider) -> list[CloudEvent]:
        """Everything that the cloud has to tell by and by."""
        told: list[CloudEvent] = []
        for _ in range(self.patience + 1):
            told += await self.taken(cloud)
        return told

    async def shown(self, cloud: CloudProvider, owner: str = OWNER) -> Sequence[Instance]:
        """What listings show in the end."""
        for _ in range(self.patience):
            shown = await cloud.list(owner)
            self.pass_time(1)
        return shown

    async def running(self, cloud: CloudProvider, owner: str = OWNER) -> list[str]:
        shown = await self.shown(cloud, owner)
        return [
            instance.instance_id for instance in shown if instance.state is not InstanceState.ENDED
        ]

    # --- verbs: a subclass does them, or says why not ------------------------------------------

    def reclaim(self, left: int) -> None:
        """Want spot capacity back until `left` instances are left, with notice where it gives."""
        raise NotImplementedError

    def take_away(self, instance: Instance) -> None:
        """End an instance without notice."""
        raise NotImplementedError

    def fence(self) -> None:
        """Refuse older epochs: the cloud does so, there is nothing to do."""
        raise NotImplementedError

    def lag(self, listings: int, seconds: int) -> None:
        """Let listings stay behind launches and ends."""
        raise NotImplementedError

    def lose_answer(self, *, launched: bool) -> None:
        """Lose the answer of the next launch, after or before it was done."""
        raise NotImplementedError

    def refuse(self, refusal_class: RefusalClass, retry_after_s: int) -> None:
        """Refuse the next launch."""
        raise NotImplementedError

    def push_notice(self, instance: Instance, lead_s: int) -> None:
        """Tell of its own accord that the instance will be taken back."""
        raise NotImplementedError

    def throttle(self) -> None:
        """Ask the next call to slow down."""
        raise NotImplementedError

    def double(self) -> None:
        """Tell every notice twice."""
        raise NotImplementedError

    def protect(self, instance: Instance) -> None:
        """Give an instance the tag that says hands off."""
        raise NotImplementedError


class SimulatedRig(CloudRig):
    """The simulated cloud, its time played by hand."""

    cloud = "simulated"
    cannot: ClassVar[Mapping[str, str]] = {
        "lag": "its store is one file that shows what is there",
        "lose_answer": "a call is a function of this process",
        "refuse": "it refuses for lack of stock alone",
        "push_notice": "all that it does, it does when its time is played",
        "throttle": "it has no limit of calls",
        "double": "it tells everything once",
    }

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._slot = -1
        self._offset_s = 0
        self._by_hand = self._simulated()
        self.stock(8)

    def another(self) -> CloudProvider:
        cloud = self._simulated()
        self._opened.append(cloud.close)
        return cloud

    def close(self) -> None:
        super().close()
        self._by_hand.close()

    @property
    def at(self) -> Moment:
        return moment(self._slot, self._offset_s)

    def stock(self, spot: int, on_demand: int | None = None) -> None:
        self._slot, self._offset_s = self._slot + 1, 0
        self._by_hand.open_slot(self.at, [quote(spot=spot, on_demand=on_demand)])

    def pass_time(self, seconds: int) -> None:
        self._offset_s += seconds
        self._by_hand.play_on(self.at)

    async def told(self, cloud: CloudProvider) -> list[CloudEvent]:
        """What the opening of the slot tells, then what happens in it."""
        told = [*await self.taken(cloud)]
        self._by_hand.play_on(self.at)
        return told + await super().told(cloud)

    def reclaim(self, left: int) -> None:
        self.stock(left)

    def take_away(self, instance: Instance) -> None:
        self._by_hand.take_back([instance.instance_id], self.at.ts_ns)

    def fence(self) -> None:
        pass

    def protect(self, instance: Instance) -> None:
        self._by_hand.protect([instance.instance_id])

    def _simulated(self) -> SimulatedCloud:
        return SimulatedCloud(
            self.folder / "simulated_cloud.sqlite", SimulatedCloudSettings(notice_lead_s=120)
        )


class PaperRig(SimulatedRig):
    """What stands in place of a cloud on paper: it keeps the same promises."""

    examples = 5

    def _simulated(self) -> SimulatedCloud:
        return PaperCloud(self.folder / "paper.sqlite", PaperSettings(), notice_lead_s=120)


class TroubledRig(SimulatedRig):
    """The simulated cloud behind everything that a cloud may do and keep the contract."""

    cannot: ClassVar[Mapping[str, str]] = {}
    patience = 5

    def __init__(self, folder: Path) -> None:
        self.memory = TroubleMemory(
            troubles=Troubles(
                launch_lag=Lag(listings=2),
                end_lag=Lag(listings=2),
                notices=(Fate.LATE, Fate.DOUBLE, Fate.ON_TIME),
                ends=(Fate.ON_TIME, Fate.LATE, Fate.DOUBLE),
                strangers=True,
                newest_first=True,
            )
        )
        super().__init__(folder)

    def another(self) -> CloudProvider:
        return TroubledCloud(super().another(), self._by_hand.now_ns, self.memory)

    def lag(self, listings: int, seconds: int) -> None:
        behind = Lag(listings=listings, seconds=seconds)
        self._turn(launch_lag=behind, end_lag=behind)

    def lose_answer(self, *, launched: bool) -> None:
        answer = Answer.LOST_AFTER if launched else Answer.LOST_BEFORE
        answers = self.memory.troubles.answers
        self._turn(answers={**answers, self.memory.launches: answer})

    def refuse(self, refusal_class: RefusalClass, retry_after_s: int) -> None:
        rule = RefusalRule(refusal_class=refusal_class, launches=1, retry_after_s=retry_after_s)
        self._turn(refusals=(rule,))

    def push_notice(self, instance: Instance, lead_s: int) -> None:
        self.memory.push(notice_of(instance, self.at.ts_ns, lead_s))

    def throttle(self) -> None:
        self._turn(throttled=self.memory.troubles.throttled | {self.memory.calls})

    def double(self) -> None:
        self._turn(notices=(Fate.DOUBLE,))

    def _turn(self, **changes: object) -> None:
        self.memory.troubles = replace(self.memory.troubles, **changes)


class LocalRig(CloudRig):
    """Processes of this machine, 200 market seconds in one of wall time; they end with the rig."""

    cloud = "local"
    cannot: ClassVar[Mapping[str, str]] = {
        "lag": "its store is one file that shows what is there",
        "lose_answer": "a call is a function of this process",
        "refuse": "it refuses for lack of stock, and what its settings exclude",
        "throttle": "it has no limit of calls",
        "double": "it tells everything once",
    }
    examples = 12

    def __init__(self, folder: Path, **settings: object) -> None:
        super().__init__(folder)
        self._slot = -1
        self._offset_s = 0
        self._settings = LocalCloudSettings(
            **{
                "command": "sleep 300",
                "most_instances": 64,
                "notice_lead_s": 120,
                "stop_grace_s": 2,
                **settings,
            }
        )
        self.by_hand = self._local()
        self.stock(8)

    def another(self) -> LocalCloud:
        cloud = self._local()
        self._opened.append(cloud.close)
        return cloud

    def close(self) -> None:
        super().close()
        kill_local(self.by_hand)
        self.by_hand.close()

    @property
    def at(self) -> Moment:
        return moment(self._slot, self._offset_s)

    def stock(self, spot: int, on_demand: int | None = None) -> None:
        self._slot, self._offset_s = self._slot + 1, 0
        self.by_hand.open_slot(self.at, [quote(spot=spot, on_demand=on_demand)])

    def pass_time(self, seconds: int) -> None:
        self._offset_s += seconds

    async def told(self, cloud: CloudProvider) -> list[CloudEvent]:
        """All that comes until nothing is under way."""
        await self.settled()
        return [*await self.taken(cloud)]

    async def shown(self, cloud: CloudProvider, owner: str = OWNER) -> Sequence[Instance]:
        await self.settled()
        return await super().shown(cloud, owner)

    def reclaim(self, left: int) -> None:
        self.stock(left)

    def take_away(self, instance: Instance) -> None:
        self.by_hand.take_back([instance.instance_id])

    def push_notice(self, instance: Instance, lead_s: int) -> None:
        self.by_hand.take_back([instance.instance_id], lead_s=lead_s)

    def fence(self) -> None:
        pass

    def protect(self, instance: Instance) -> None:
        self.by_hand.protect([instance.instance_id])

    async def settled(self) -> None:
        await eventually(lambda: not self.by_hand.stopping())

    def _local(self) -> LocalCloud:
        return LocalCloud(self.folder / "local", self._settings, market_s_per_s=200.0)


def kill_local(cloud: LocalCloud) -> None:
    """End every process of a local cloud, so that no test leaves one behind."""
    cloud.take_back([instance.instance_id for instance in cloud.alive()])


class AwsRig(CloudRig):
    """The adapter of AWS before the rehearsal, over HTTP; time stands until it is moved."""

    cloud = "aws"
    cannot: ClassVar[Mapping[str, str]] = {
        "fence": "AWS knows no epochs: the ledger's is read before each call",
        "double": "what its queue tells twice the adapter tells once",
    }
    examples = 2
    offering_id = "aws:default:use1-az1:p4d.24xlarge"
    codes: ClassVar[Mapping[RefusalClass, tuple[str, int]]] = {
        RefusalClass.NO_CAPACITY: ("InsufficientInstanceCapacity", 400),
        RefusalClass.QUOTA: ("MaxSpotInstanceCountExceeded", 400),
        RefusalClass.UNSUPPORTED: ("Unsupported", 400),
        RefusalClass.UNAUTHORISED: ("UnauthorizedOperation", 403),
        RefusalClass.THROTTLED: ("RequestLimitExceeded", 503),
        RefusalClass.SERVER: ("InternalError", 500),
        RefusalClass.NETWORK: ("InsufficientFreeAddressesInSubnet", 400),
        RefusalClass.TOKEN_MISMATCH: ("IdempotentParameterMismatch", 400),
    }

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.aws = RehearsedAws(folder / "rehearsal")

    def another(self) -> AwsCloud:
        path = self.folder / "aws.sqlite"
        cloud = AwsCloud(path, self.aws.settings, SharedApi(self.aws.api), self.aws)
        self._opened.append(cloud.close)
        return cloud

    def close(self) -> None:
        super().close()
        self.aws.close()

    @property
    def at(self) -> Moment:
        offset_s = (self.aws.now_ns() - START_NS) // NS_PER_S
        return replace(moment(0, offset_s), ts_ns=self.aws.now_ns())

    def stock(self, spot: int, on_demand: int | None = None) -> None:
        self.aws.do(lambda: self.aws.world.set_count(self.offering_id, "spot", spot))
        if on_demand is not None:
            self.aws.do(lambda: self.aws.world.set_count(self.offering_id, "on-demand", on_demand))

    def pass_time(self, seconds: int) -> None:
        self.aws.pass_s(seconds)

    async def told(self, cloud: CloudProvider) -> list[CloudEvent]:
        """What is told now, and once the notices are over."""
        told = [*await self.taken(cloud)]
        self.pass_time(ANNOUNCED_S + 1)
        return told + await super().told(cloud)

    def reclaim(self, left: int) -> None:
        self.stock(left)

    def take_away(self, instance: Instance) -> None:
        self._if_alive(instance, 0)

    def lag(self, listings: int, seconds: int) -> None:
        self.aws.weather(hidden_s=float(seconds), ending_s=(float(seconds), float(seconds)))

    def lose_answer(self, *, launched: bool) -> None:
        self.aws.ec2.will("CreateFleet", lost(), after=launched)

    def refuse(self, refusal_class: RefusalClass, retry_after_s: int) -> None:
        code, status = self.codes[refusal_class]
        self.aws.ec2.will("CreateFleet", refused(code, status=status, retry_after_s=retry_after_s))

    def push_notice(self, instance: Instance, lead_s: int) -> None:
        """A warning that took its time: of its two minutes so much is left."""
        late_s = ANNOUNCED_S - lead_s
        self.aws.send(
            "default", warning(instance.instance_id, self.aws.now_ns() - late_s * NS_PER_S)
        )

    def throttle(self) -> None:
        self.aws.throttle()

    def protect(self, instance: Instance) -> None:
        self.aws.tag(instance.instance_id, HOLD)

    def _if_alive(self, instance: Instance, lead_s: int) -> None:
        world, instance_id = self.aws.world, instance.instance_id
        alive = world.state.here.get(instance_id)
        if alive is not None and alive.state in ("pending", "running"):
            self.aws.do(lambda: world.interrupt(instance_id, lead_s))


RIGS: dict[str, type[CloudRig]] = {
    "aws": AwsRig,
    "simulated": SimulatedRig,
    "paper": PaperRig,
    "troubled": TroubledRig,
    "local": LocalRig,
}
