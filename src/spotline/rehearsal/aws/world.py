"""The rehearsed cloud: what is there, what happens, and who is told.

For the other services of the rehearsal:

- `world.now_ns()` is the time, market time in nanoseconds.
- `world.accounts` has ids, names, keys and roles with their external ids; `world.account(id)` one.
- `world.on_event(listener)`: EventBridge's source. `listener(event)` is called with an `Event` as EC2
  emits it: a late one late, a double one twice, a missing one never. Delivery is not drawn here.
- `world.on_instance(listener)`: `listener(instance, change, at_ns)` is called as an instance becomes
  `pending`, `running`, `recommended`, `noticed`, `shutting-down` or `terminated`; `instance` is a
  frozen `Ec2Instance` as it is then. One of before a restart is not told of again: see
  `world.state.instances` for what there is. While `noticed_ns` is set and `in_metadata`, the metadata
  of an instance have its `spot/instance-action` with the time `taken_ns`.
- `world.run()` is a task that lets scheduled things happen; `world.settle()` does so up to now and
  returns the time: each answer begins with it. All of it is of one thread.
- `world.quotas(account_id, region)` and `world.places` are for Service Quotas and Pricing.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spotline.domain.units import NS_PER_S
from spotline.rehearsal.aws import schedule
from spotline.rehearsal.aws.accounts import RehearsedAccount
from spotline.rehearsal.aws.catalog import Ec2Type, instance_type
from spotline.rehearsal.aws.clock import RehearsalClock
from spotline.rehearsal.aws.drawn import between
from spotline.rehearsal.aws.places import SPOT, Places, SoldPlace
from spotline.rehearsal.aws.quotas import POOLS, Quota, pool_of
from spotline.rehearsal.aws.schedule import Happening, Warned, next_happening
from spotline.rehearsal.aws.state import (
    PENDING,
    SHUTTING_DOWN,
    Ec2Instance,
    Record,
    State,
    written,
)
from spotline.rehearsal.aws.state_log import StateLog
from spotline.rehearsal.aws.weather import Weather

RECOMMENDED, NOTICED = "recommended", "noticed"

INTERRUPTION = "EC2 Spot Instance Interruption Warning"
REBALANCE = "EC2 Instance Rebalance Recommendation"
STATE_CHANGE = "EC2 Instance State-change Notification"

BY_USER = "Client.UserInitiatedShutdown"
BY_SPOT = "Server.SpotInstanceTermination"

# The task that lets things happen looks again at least so often, wall seconds.
_LONGEST_WAIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that EC2 says to EventBridge, in an account and a region, at a market time."""

    account_id: str
    region: str
    detail_type: str
    detail: Mapping[str, Any]
    resources: tuple[str, ...]
    at_ns: int


EventListener = Callable[[Event], None]
InstanceListener = Callable[[Ec2Instance, str, int], None]


class RehearsedWorld:
    """One rehearsed cloud. Its state changes by records only, and each is in the log first."""

    def __init__(
        self,
        places: Places,
        accounts: Iterable[RehearsedAccount],
        clock: RehearsalClock,
        log: StateLog,
        *,
        weather: Weather,
        seed: int,
    ) -> None:
        self.places = places
        self.accounts = tuple(accounts)
        self.clock = clock
        self.weather = weather
        self.seed = seed
        self.state = State()
        self._log = log
        self._settled_ns = clock.now_ns()
        self._events: list[EventListener] = []
        self._instances: list[InstanceListener] = []
        self._tellings: list[tuple[int, int, str]] = []
        self._told = 0
        self._changed = asyncio.Event()

    def restore(self, records: Iterable[Record]) -> None:
        """Take in what was before; what fell due meanwhile happens at the next `settle`."""
        for record in records:
            self.state.apply(record)
        if not self.state.records:
            return
        self._settled_ns = self.state.at_ns
        for instance in self.state.here.values():
            self._tell_at(instance, after_ns=self._settled_ns)

    # --- time -----------------------------------------------------------------------------------

    def now_ns(self) -> int:
        """Market time, nanoseconds since the epoch."""
        return self.clock.now_ns()

    def settle(self) -> int:
        """Let everything happen that is due, each at its own time, and say what time it is now."""
        now_ns = self.now_ns()
        while True:
            telling_ns = self._tellings[0][0] if self._tellings else None
            happening = self._next()
            due_ns = happening.at_ns if happening else None
            if telling_ns is not None and (due_ns is None or telling_ns <= due_ns):
                if telling_ns > now_ns:
                    break
                self._tell(heapq.heappop(self._tellings))
                continue
            if happening is None or happening.at_ns > now_ns:
                break
            self._settled_ns = max(self._settled_ns, happening.at_ns)
            self._let_happen(happening)
        self._settled_ns = max(self._settled_ns, now_ns)
        return now_ns

    async def run(self) -> None:
        """Let scheduled things happen when their time comes, until it is cancelled."""
        while True:
            self._changed.clear()
            self.settle()
            happening = self._next()
            coming = [happening.at_ns] if happening else []
            coming += [self._tellings[0][0]] if self._tellings else []
            wait_s = self.clock.wait_s(min(coming)) if coming else None
            try:
                async with asyncio.timeout(_LONGEST_WAIT_S if wait_s is None else wait_s):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def wake(self) -> None:
        """Have `run` look again: the clock was moved."""
        self._changed.set()

    # --- who is told ----------------------------------------------------------------------------

    def on_event(self, listener: EventListener) -> None:
        """Tell a listener of each event for EventBridge."""
        self._events.append(listener)

    def on_instance(self, listener: InstanceListener) -> None:
        """Tell a listener of each change of an instance."""
        self._instances.append(listener)

    # --- what there is --------------------------------------------------------------------------

    def account(self, account_id: str) -> RehearsedAccount:
        """The account of that id; raises KeyError."""
        return next(one for one in self.accounts if one.account_id == account_id)

    def offered(self, account_id: str, region: str) -> list[SoldPlace]:
        """What is sold in a region of an account, reservations among it, in order of the file."""
        return [
            place
            for place in self.places.places.values()
            if place.account_id == account_id and place.region == region
        ]

    def type_of(self, offering_id: str) -> Ec2Type:
        """The instance type of a place."""
        place = self.places.places[offering_id]
        return instance_type(place.instance_type, place.gpu_model, place.gpus)

    def free(self, offering_id: str, lifecycle: str) -> int:
        """How many more of a place could be had now, quota aside."""
        place = offering_id, lifecycle
        return schedule.free_at(self.state, self.places, self.weather, place, self.now_ns())

    def quotas(self, account_id: str, region: str) -> list[Quota]:
        """The vCPU quotas of an account in a region, with what is used of each by anybody."""
        used: dict[str, int] = {}
        for instance in self.state.here.values():
            if (instance.account_id, instance.region) == (account_id, region):
                # A reservation is no on-demand purchase, but counts as one.
                code = pool_of(instance.instance_type, instance.lifecycle).code
                used[code] = used.get(code, 0) + self.type_of(instance.offering_id).vcpus
        return [
            Quota(
                code=pool.code,
                name=pool.name,
                vcpus=self.state.quotas.get((account_id, region, pool.code), pool.default_vcpus),
                used_vcpus=used.get(pool.code, 0),
            )
            for pool in POOLS
        ]

    # --- what is done ---------------------------------------------------------------------------

    def record(self, kind: str, at_ns: int, **said: Any) -> None:
        """Write a record, and let the state be what it says."""
        record = {"at_ns": at_ns, "kind": kind, **said}
        self._log.append(record)
        self.state.apply(record)
        self._changed.set()

    def launch(self, instances: list[Ec2Instance], token: Mapping[str, Any] | None) -> None:
        """Have new instances, and the token they were asked for by, in one record."""
        at_ns = self.now_ns()
        self.record("launched", at_ns, instances=[written(one) for one in instances], token=token)
        for instance in instances:
            self._instance_changed(instance.instance_id, PENDING, at_ns)
        self.settle()

    def terminate(self, instance_id: str) -> None:
        """End an instance that is alive as its user asks."""
        # AWS bills whole seconds: one that has begun to run does not end before it began.
        at_ns = max(_second(self.now_ns()), self.state.instances[instance_id].launched_ns)
        self._end(instance_id, at_ns, BY_USER)
        self.settle()

    def interrupt(self, instance_id: str, lead_s: float) -> None:
        """Give an instance notice, and take it after that: as the market would, but told for sure."""
        at_ns = self.now_ns()
        taken_ns = _second(at_ns + round(lead_s * NS_PER_S))
        said = Warned(told_ns=(at_ns,) if lead_s > 0 else (), in_metadata=lead_s > 0)
        self._notice(instance_id, at_ns, max(taken_ns, 1), said)
        self.settle()

    def set_count(self, offering_id: str, lifecycle: str, count: int | None) -> None:
        """Let a place have so many, whatever the market says; None: as the market says again."""
        at_ns = self.now_ns()
        self.record("count", at_ns, offering_id=offering_id, lifecycle=lifecycle, count=count)
        if lifecycle == SPOT:
            self._reckon(offering_id, at_ns)
        self.settle()

    # --- within ---------------------------------------------------------------------------------

    def _next(self) -> Happening | None:
        return next_happening(self.state, self.places, self.weather, self._settled_ns)

    def _let_happen(self, happening: Happening) -> None:
        if happening.what == schedule.RECKONED:
            self._reckon(happening.name, happening.at_ns)
        elif happening.what == schedule.TAKEN:
            self._end(happening.name, happening.at_ns, BY_SPOT)
        else:
            self.record(happening.what, happening.at_ns, instance_id=happening.name)
            self._instance_changed(happening.name, happening.what, happening.at_ns)

    def _reckon(self, offering_id: str, at_ns: int) -> None:
        """Give notice to what is too much by the end of the lead, and recommend what will be."""
        lead_ns = self.weather.lead_s * NS_PER_S
        for instance in schedule.surplus(
            self.state, self.places, offering_id, at_ns + lead_ns, seed=self.seed
        ):
            taken_ns = _second(at_ns + lead_ns)
            said = schedule.warned(instance.instance_id, at_ns, self.weather, self.seed)
            self._notice(instance.instance_id, at_ns, taken_ns, said)
        ahead_ns = lead_ns + self.weather.rebalance_s * NS_PER_S
        for instance in schedule.surplus(
            self.state, self.places, offering_id, at_ns + ahead_ns, seed=self.seed
        ):
            name = instance.instance_id
            if not instance.recommended_ns and schedule.is_recommended(
                name, self.weather, self.seed
            ):
                self.record(RECOMMENDED, at_ns, instance_id=name)
                self._instance_changed(name, RECOMMENDED, at_ns)

    def _notice(self, instance_id: str, at_ns: int, taken_ns: int, said: Warned) -> None:
        self.record(
            NOTICED,
            at_ns,
            instance_id=instance_id,
            taken_ns=taken_ns,
            told_ns=list(said.told_ns),
            in_metadata=said.in_metadata,
        )
        instance = self.state.instances[instance_id]
        self._tell_at(instance, after_ns=at_ns - 1)
        for listener in self._instances:
            listener(instance, NOTICED, at_ns)

    def _end(self, instance_id: str, at_ns: int, reason: str) -> None:
        least, most = self.weather.ending_s
        lasts_s = round(between(least, most, self.seed, "ending", instance_id))
        self.record(
            SHUTTING_DOWN,
            at_ns,
            instance_id=instance_id,
            terminated_ns=at_ns + lasts_s * NS_PER_S,
            reason=reason,
        )
        self._instance_changed(instance_id, SHUTTING_DOWN, at_ns)

    def _tell_at(self, instance: Ec2Instance, after_ns: int) -> None:
        for told_ns in instance.told_ns:
            if told_ns > after_ns:
                self._told += 1
                heapq.heappush(self._tellings, (told_ns, self._told, instance.instance_id))

    def _tell(self, telling: tuple[int, int, str]) -> None:
        at_ns, _, instance_id = telling
        instance = self.state.instances[instance_id]
        # EC2's own documentation names the zone here, where every other event names the account.
        resource = f"arn:aws:ec2:{instance.zone}:instance/{instance_id}"
        detail = {"instance-id": instance_id, "instance-action": "terminate"}
        self._emit(instance, INTERRUPTION, detail, resource, at_ns)

    def _instance_changed(self, instance_id: str, change: str, at_ns: int) -> None:
        instance = self.state.instances[instance_id]
        for listener in self._instances:
            listener(instance, change, at_ns)
        resource = f"arn:aws:ec2:{instance.region}:{instance.account_id}:instance/{instance_id}"
        detail = {"instance-id": instance_id}
        if change == RECOMMENDED:
            self._emit(instance, REBALANCE, detail, resource, at_ns)
        else:
            self._emit(instance, STATE_CHANGE, {**detail, "state": change}, resource, at_ns)

    def _emit(
        self,
        instance: Ec2Instance,
        detail_type: str,
        detail: Mapping[str, Any],
        resource: str,
        at_ns: int,
    ) -> None:
        event = Event(
            account_id=instance.account_id,
            region=instance.region,
            detail_type=detail_type,
            detail=detail,
            resources=(resource,),
            at_ns=at_ns,
        )
        for listener in self._events:
            listener(event)


def _second(at_ns: int) -> int:
    """The whole second that a time has reached, at which AWS says that something was."""
    return at_ns // NS_PER_S * NS_PER_S
