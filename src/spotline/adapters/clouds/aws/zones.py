"""Zones that AWS says are impaired: there nothing is launched, described or ended for now.

What a zone in trouble says of its instances is not believed: what was known before is shown
(Karpenter does so during a zonal shift, `pkg/providers/instance/instance.go`).
"""

from __future__ import annotations

import structlog

from spotline.adapters.clouds.aws.api import AwsApi, AwsPlace
from spotline.adapters.clouds.aws.errors import AwsRefused, NoAnswer, NotReached
from spotline.application.cloud_actuator.ports import CloudClock
from spotline.domain.units import NS_PER_S

_log = structlog.get_logger(__name__)

_KNOWN_FOR_S = 300
# https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_AvailabilityZone.html
_IMPAIRED = ("impaired", "unavailable")


class ZoneHealth:
    """The states of zones, by place, read every five minutes of market time at most."""

    def __init__(self, api: AwsApi, clock: CloudClock) -> None:
        self._api, self._clock = api, clock
        self._impaired: dict[AwsPlace, frozenset[str]] = {}
        self._read_ns: dict[AwsPlace, int] = {}

    def is_impaired(self, place: AwsPlace, zone: str) -> bool:
        """Whether AWS said so of a zone, by id or name, when it was last asked."""
        return zone in self.impaired(place)

    def impaired(self, place: AwsPlace) -> frozenset[str]:
        """The zones of a place that are in trouble, by id and by name, as they were last read."""
        return self._impaired.get(place, frozenset())

    async def look(self, place: AwsPlace) -> None:
        """Read the states of a place's zones, if that is due; what cannot be read stays as it was."""
        now_ns = self._clock.now_ns()
        read_ns = self._read_ns.get(place)
        if read_ns is None or now_ns - read_ns >= _KNOWN_FOR_S * NS_PER_S:
            self._read_ns[place] = now_ns
            self._impaired[place] = await self._read(place)

    async def _read(self, place: AwsPlace) -> frozenset[str]:
        try:
            answer = await self._api.read(
                place, "ec2", "describe_availability_zones", AllAvailabilityZones=False
            )
        except (AwsRefused, NotReached, NoAnswer) as error:
            _log.warning(
                "zones_not_read", account=place.account, region=place.region, error=str(error)
            )
            return self.impaired(place)
        troubled = [
            zone for zone in answer.get("AvailabilityZones", ()) if zone.get("State") in _IMPAIRED
        ]
        names = (zone.get(key, "") for zone in troubled for key in ("ZoneId", "ZoneName"))
        return frozenset(filter(None, names))
