"""Asking for the end of instances: of ours alone, in batches, and nothing else is ever done to them.

Termination is the one way out: a stopped instance goes on costing its disks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

import structlog

from spotline.adapters.clouds.aws.api import AwsApi, AwsPlace, Reply
from spotline.adapters.clouds.aws.errors import AwsRefused
from spotline.adapters.clouds.aws.listing import described
from spotline.adapters.clouds.aws.parse import Shown
from spotline.adapters.clouds.aws.places import everywhere
from spotline.adapters.clouds.aws.requests import MOST_IDS, MOST_VALUES, among, batches, owned_by
from spotline.adapters.clouds.aws.store import AwsStore, KnownInstance
from spotline.adapters.clouds.aws.zones import ZoneHealth
from spotline.application.cloud_actuator.ports import CloudClock, InstanceState, Owner

# What says no to a whole call because of some of its instances. Of those that are protected against
# their end EC2 leaves all of their zone alive: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/
# API_TerminateInstances.html
_PROTECTED = "OperationNotPermitted"
_OF_SOME = ("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed", _PROTECTED)
_log = structlog.get_logger(__name__)

_ID = re.compile(r"i-[0-9a-zA-Z-]+")
_OVER = (InstanceState.STOPPING, InstanceState.ENDED)


class Ends:
    """Asks for ends, wherever instances are."""

    def __init__(
        self,
        api: AwsApi,
        store: AwsStore,
        places: Sequence[AwsPlace],
        zones: ZoneHealth,
        clock: CloudClock,
    ) -> None:
        self._api, self._store, self._places = api, store, tuple(places)
        self._zones, self._clock = zones, clock

    async def terminate(self, owner: Owner, instance_ids: Sequence[str]) -> None:
        """Ask for the end of an owner's instances; errors and idempotence as the port says.

        What is another's, unknown or ending already is left alone, as is a zone in trouble. A place
        that fails is told in the log while others do not: the actuator asks again until it sees the
        end.
        """
        known = self._store.known(instance_ids)
        unknown = [instance_id for instance_id in instance_ids if instance_id not in known]
        if unknown:
            known |= await self._looked_up(owner, unknown)
        await self._end(
            [
                one
                for one in known.values()
                if one.owner == owner.name and one.instance.state not in _OVER
            ]
        )

    async def release(self, instance_ids: Sequence[str]) -> None:
        """Ask for the end of known instances, unless that was done."""
        if instance_ids:
            known = self._store.known(instance_ids)
            await self._end([one for one in known.values() if not one.asked])

    async def _looked_up(
        self, owner: Owner, instance_ids: Sequence[str]
    ) -> dict[str, KnownInstance]:
        """Those that AWS shows with the owner's tag: this store may be younger than they are."""

        async def ask(place: AwsPlace) -> list[Shown]:
            found: list[Shown] = []
            for batch in batches(instance_ids, MOST_VALUES):
                filters = [*owned_by(owner.name), *among(batch)]
                found += await described(self._api, place, filters)
            return found

        for shown in (await everywhere(self._places, ask, "look_up")).values():
            if isinstance(shown, list):
                self._store.seen(shown, self._clock.now_ns())
        return self._store.known(instance_ids)

    async def _end(self, ending: Sequence[KnownInstance]) -> None:
        by_place: dict[AwsPlace, list[str]] = defaultdict(list)
        for one in ending:
            if not self._zones.is_impaired(one.place, one.zone):
                by_place[one.place].append(one.instance.instance_id)

        async def ask(place: AwsPlace) -> None:
            for batch in batches(by_place[place], MOST_IDS):
                self._store.asked(await self._ask(place, batch))

        if by_place:
            await everywhere(sorted(by_place), ask, "terminate")

    async def _ask(self, place: AwsPlace, instance_ids: Sequence[str]) -> Sequence[str]:
        """Ask for these; those that AWS does not find, or may not end, are left out: they stop no others."""
        left = list(instance_ids)
        while left:
            try:
                answer = await self._api.call(place, "ec2", "terminate_instances", InstanceIds=left)
                self._store.note_never_ran(in_state_before(answer, "pending"))
                self._store.note_ran(in_state_before(answer, "running"))
                return left
            except AwsRefused as error:
                if error.code not in _OF_SOME:
                    raise
                if error.code == _PROTECTED:
                    _log.error(
                        "instance_protected",
                        error=error.message,
                        continue_with="aws ec2 modify-instance-attribute --no-disable-api-termination",
                    )
                named = set(_ID.findall(error.message)) & set(left)
                if not named and len(left) > 1:
                    half = len(left) // 2
                    first = await self._ask(place, left[:half])
                    return [*first, *await self._ask(place, left[half:])]
                left = [one for one in left if named and one not in named]
        return left


def in_state_before(answer: Reply, state: str) -> list[str]:
    """The instances of an answer to TerminateInstances that were in a state until then."""
    return [
        str(one["InstanceId"])
        for one in answer.get("TerminatingInstances", ())
        if one.get("PreviousState", {}).get("Name") == state
    ]
