"""AWS as a cloud: instances of the user's launch templates, in all accounts and regions named."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from spotline.adapters.clouds.aws.api import AwsApi, AwsPlace
from spotline.adapters.clouds.aws.ends import Ends
from spotline.adapters.clouds.aws.launches import FleetLaunches
from spotline.adapters.clouds.aws.listing import described
from spotline.adapters.clouds.aws.parse import Shown
from spotline.adapters.clouds.aws.places import Failure, everywhere, placed
from spotline.adapters.clouds.aws.plan_use import Bought
from spotline.adapters.clouds.aws.queues import Queues, state_told
from spotline.adapters.clouds.aws.quotas import VcpuQuota, read_quotas
from spotline.adapters.clouds.aws.requests import MOST_VALUES, among, batches, owned_by
from spotline.adapters.clouds.aws.settings import AwsSettings
from spotline.adapters.clouds.aws.store import AwsStore
from spotline.adapters.clouds.aws.zones import ZoneHealth
from spotline.application.cloud_actuator.listings import PartialListing
from spotline.application.cloud_actuator.messages import Moment
from spotline.application.cloud_actuator.ports import (
    CloudClock,
    CloudEvent,
    Grant,
    Instance,
    InstanceState,
    LaunchRequest,
    Owner,
)
from spotline.contracts.errors import ProviderUnavailable
from spotline.domain.ledger.billing_rules import BilledLife
from spotline.domain.units import NS_PER_S

_log = structlog.get_logger(__name__)

# What was told of an instance that no listing has shown as ours by then is another's.
_STRANGER_S = 900
# What is over is kept for so long, and looked for so often: SQS tells again for 14 days at most.
KEPT_S, _SWEPT_S = 30 * 86_400, 86_400
# Where there is no queue, instances are looked at so often, in wall time.
LOOK_S = 60.0
QUOTAS_S = 3600
# Wall seconds that their reading may take: notices are waited for only after it.
QUOTAS_WITHIN_S = 10.0


class AwsCloud:
    """Implements `CloudProvider` on EC2 and SQS.

    It fences nobody: AWS knows no epochs. They are in the tags, and the ledger's is read before each
    call that changes anything.

    Parameters
    ----------
    path
        The file of what it must not forget.
    api
        Performs its calls; it is closed with the cloud.
    clock
        The present in market time.
    """

    def __init__(self, path: Path, settings: AwsSettings, api: AwsApi, clock: CloudClock) -> None:
        self._api, self._settings, self._clock = api, settings, clock
        self._store = AwsStore(path)
        self._zones = ZoneHealth(api, clock)
        # What runs where nothing is offered any more is looked at, and ended, until it is over.
        self._places = tuple(sorted({*placed(settings), *self._store.places()}))
        self._launches = FleetLaunches(api, self._store, settings, clock, self._zones)
        self._ends = Ends(api, self._store, self._places, self._zones, clock)
        self._queues = Queues(api, self._store, settings, clock)
        self._blind = tuple(place for place in self._places if place not in self._queues.places)
        self._looked_s: float | None = None
        self._swept_ns = 0
        self._quotas: tuple[VcpuQuota, ...] = ()
        self._quotas_ns: int | None = None

    @property
    def notice_lead_s(self) -> int:
        """None: AWS announces two minutes on a best effort basis, and guarantees nothing."""
        return 0

    @property
    def clock(self) -> CloudClock:
        """The present in market time."""
        return self._clock

    @property
    def quotas(self) -> Sequence[VcpuQuota]:
        """The quotas that offerings count in, and their use, as they were last read."""
        return self._quotas

    async def read_quotas(self) -> None:
        """Read the quotas, once an hour of market time; a place that fails is left out."""
        now_ns = self._clock.now_ns()
        if self._quotas_ns is not None and now_ns - self._quotas_ns < QUOTAS_S * NS_PER_S:
            return
        self._quotas_ns = now_ns
        try:
            async with asyncio.timeout(QUOTAS_WITHIN_S):
                found = await everywhere(
                    self._places,
                    lambda place: read_quotas(self._api, self._settings, place),
                    "quotas",
                )
        except ProviderUnavailable as error:
            _log.warning("quotas_not_read", error=str(error))
            return
        except TimeoutError:
            _log.warning("quotas_not_read", error=f"no answer within {QUOTAS_WITHIN_S:g} s")
            return
        answers = (answer for answer in found.values() if not isinstance(answer, Failure))
        self._quotas = tuple(quota for answer in answers for quota in answer)

    def counts(self) -> Mapping[str, int]:
        """What was counted: messages, malformed ones, failures of queues, recommendations."""
        return self._store.counts()

    def never_ran(self, instance_ids: Iterable[str]) -> set[str]:
        """Those of these instances that were ended while they were pending: they are not billed."""
        return self._store.never_ran(instance_ids)

    def ran(self, instance_ids: Iterable[str]) -> set[str]:
        """Those of these instances that were seen running."""
        return self._store.ran(instance_ids)

    def note_ends(self, *, ran: Iterable[str], never_ran: Iterable[str]) -> None:
        """Note what was learnt since of instances that have ended."""
        self._store.note_ran(ran)
        self._store.note_never_ran(never_ran)

    def bought_on_demand(self) -> Sequence[Bought]:
        """All instances on demand that are known, but for those that never ran."""
        return self._store.bought_on_demand()

    def ended_lives(self, instance_ids: Iterable[str]) -> Mapping[str, BilledLife]:
        """From when until when these were billed, of those that were seen as they ended."""
        return self._store.ended_lives(instance_ids)

    def unread(self) -> Sequence[tuple[str, str]]:
        """Messages that could not be read, and why."""
        return self._store.unread()

    def close(self) -> None:
        """Let go of files and connections; instances live on."""
        self._queues.close()
        self._api.close()
        self._store.close()

    async def launch(self, request: LaunchRequest) -> Grant:
        """Launch; what makes no useful count is asked to end before the grant is given."""
        grant = await self._launches.launch(request)
        await self._ends.release([one.instance_id for one in grant.released])
        return grant

    async def terminate(self, owner: Owner, instance_ids: Sequence[str]) -> None:
        """Ask for the end of instances that carry the owner's tag."""
        await self._ends.terminate(owner, instance_ids)

    async def list(self, owner_name: str) -> Sequence[Instance]:
        """What EC2 shows in all places.

        Of a place that does not answer, or whose zone is impaired, what was last shown stands: that
        nothing is shown there must not look as if nothing were there.
        """
        return await self._look(owner_name, self._places)

    async def events(self, token: str, at: Moment) -> Sequence[CloudEvent]:
        """Take what the queues and the listings told of our instances.

        What comes of an instance that was not shown yet is told once it is.
        """
        await self._queues.drain()
        await self._explain()
        forgotten = self._store.forget_strangers(self._clock.now_ns() - _STRANGER_S * NS_PER_S)
        if forgotten:
            self._store.count("events_of_strangers", forgotten)
        if self._clock.now_ns() - self._swept_ns >= _SWEPT_S * NS_PER_S:
            self._swept_ns = self._clock.now_ns()
            self._store.forget_over(self._swept_ns - KEPT_S * NS_PER_S)
        return self._store.take(token)

    async def pushed(self) -> None:
        """Return when a queue, or a look where there is none, has told of an instance of ours."""
        await self.read_quotas()
        while not self._store.any_news:
            if not self._blind:
                await self._queues.wait()
                continue
            try:
                async with asyncio.timeout(self._until_look_s()):
                    await self._queues.wait()
            except TimeoutError:
                self._looked_s = asyncio.get_running_loop().time()
                for owner_name in self._store.owners():
                    await self._look(owner_name, self._blind)

    def _until_look_s(self) -> float:
        now_s = asyncio.get_running_loop().time()
        if self._looked_s is None:
            self._looked_s = now_s
        return max(0.0, self._looked_s + LOOK_S - now_s)

    # --- looks --------------------------------------------------------------------------------

    async def _look(self, owner_name: str, places: Sequence[AwsPlace]) -> Sequence[Instance]:
        async def ask(place: AwsPlace) -> list[Shown]:
            shown = await described(self._api, place, owned_by(owner_name))
            await self._zones.look(place)
            return shown

        listed: list[Instance] = []
        stopped: list[str] = []
        silent: set[str] = set()
        for place, shown in (await everywhere(places, ask, "list")).items():
            silent |= self._silent_in(owner_name, place, answers=isinstance(shown, list))
            if isinstance(shown, list):
                listed += self._learnt(owner_name, place, shown)
                stopped += [one.instance.instance_id for one in shown if one.stopped]
            else:
                listed += [one.instance for one in self._store.living_in(owner_name, place)]
        # It was not we who stopped them; they cost their disks, and might be started again.
        await self._ends.release(stopped)
        order = self._store.order_of([one.instance_id for one in listed])
        listed.sort(key=lambda one: order[one.instance_id])
        return PartialListing(listed, silent) if silent else tuple(listed)

    def _silent_in(self, owner_name: str, place: AwsPlace, *, answers: bool) -> set[str]:
        """The offerings of a place of which nothing new is known: it is silent, or not believed."""
        offered = {
            offering.offering_id
            for offering in self._settings.offerings
            if (offering.account, offering.region) == (place.account, place.region)
            and not (answers and not self._zones.is_impaired(place, offering.zone))
        }
        if answers:
            return offered
        living = self._store.living_in(owner_name, place, shown_only=False)
        return offered | {known.instance.offering_id for known in living}

    def _learnt(
        self, owner_name: str, place: AwsPlace, shown: Sequence[Shown]
    ) -> Sequence[Instance]:
        """Note what a place shows, and tell what it shows for the first time."""
        now_ns = self._clock.now_ns()
        before = {one.instance.instance_id: one for one in self._store.living_in(owner_name, place)}
        impaired = self._zones.impaired(place)
        believed = [one for one in shown if one.zone not in impaired]
        self._store.seen(believed, now_ns)
        self._store.heard(
            [
                state_told(one.instance.instance_id, one.instance.state, one.changed_ns or now_ns)
                for one in believed
                if one.instance.state is InstanceState.ENDED and one.instance.instance_id in before
            ],
            now_ns,
        )
        states = self._store.known([one.instance.instance_id for one in believed])
        learnt = [
            replace(one.instance, state=states[one.instance.instance_id].instance.state)
            for one in believed
        ]
        return *learnt, *(one.instance for one in before.values() if one.zone in impaired)

    async def _explain(self) -> None:
        """Ask why instances ended of which nothing else says so."""
        unexplained = self._store.unexplained()
        if not unexplained:
            return

        async def ask(place: AwsPlace) -> list[Shown]:
            found: list[Shown] = []
            for batch in batches(unexplained, MOST_VALUES):
                found += await described(self._api, place, among(batch))
            return found

        for shown in (await everywhere(self._places, ask, "explain")).values():
            if isinstance(shown, list):
                self._store.seen(shown, self._clock.now_ns())
