"""Quotas of vCPUs: what an account may have in a region, and what of it is used, by us and others.

Nobody is kept from asking by them: AWS raises them by itself, and counts what has just ended for a
while. They are for people: `doctor` and the metrics.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spotline.adapters.clouds.aws import tags
from spotline.adapters.clouds.aws.api import AwsApi, AwsPlace, Reply
from spotline.adapters.clouds.aws.listing import pages
from spotline.adapters.clouds.aws.settings import AwsSettings
from spotline.domain.market.offering import CapacityType

SERVICE_CODE = "ec2"
# https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html; spot, on-demand. Of
# spot alone, P5 and what came after it have a quota apart from the older P.
_CODES: Mapping[str, tuple[str, str]] = {
    "standard": ("L-34B43A08", "L-1216C47A"),
    "g": ("L-3819A6DF", "L-DB2E81BA"),
    "p": ("L-7212CCBC", "L-417A185B"),
    "p5": ("L-C4BD4855", "L-417A185B"),
    "f": ("L-88CF9481", "L-74FC7D96"),
    "x": ("L-E3A00192", "L-7295265B"),
    "inf": ("L-B5D1601B", "L-1945791B"),
    "trn": ("L-6B0D517C", "L-2C3B7624"),
    "dl": ("L-85EED4F7", "L-6E869C2A"),
}
_LETTERS = re.compile(r"([a-z]+)(\d*)")
_SAME = {"g": "g", "gr": "g", "vt": "g", "p": "p", "f": "f", "x": "x", "inf": "inf"}
_STANDARD = "acdhimrtz"
_P5 = 5
# Terminated instances count for a while, says AWS, but not for how long: they are left out.
_COUNTING = ("pending", "running", "shutting-down", "stopping")
_TYPES_A_CALL = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class VcpuQuota:
    """A quota and its use, in vCPUs; `ours` of what is `used` carries our tags."""

    place: AwsPlace
    code: str
    capacity_type: CapacityType
    vcpus: float
    used: int
    ours: int

    @property
    def foreign(self) -> int:
        """What others use of it."""
        return self.used - self.ours

    @property
    def left(self) -> float:
        """What is left, at least 0."""
        return max(0.0, self.vcpus - self.used)


def family_of(instance_type: str) -> str:
    """The family of quotas that a type counts in; empty for one that we know none of."""
    found = _LETTERS.match(instance_type)
    if found is None:
        return ""
    letters, generation = found.groups()
    if letters == "p" and generation and int(generation) >= _P5:
        return "p5"
    if letters in _SAME:
        return _SAME[letters]
    if letters in ("trn", "dl"):
        return letters
    return "standard" if letters[0] in _STANDARD and len(letters) <= len("im") else ""


def code_of(instance_type: str, capacity_type: CapacityType) -> str:
    """AWS's code of the quota that a type counts in; empty for one that we know none of."""
    codes = _CODES.get(family_of(instance_type))
    if codes is None:
        return ""
    return codes[0] if capacity_type is CapacityType.SPOT else codes[1]


async def read_quotas(api: AwsApi, settings: AwsSettings, place: AwsPlace) -> Sequence[VcpuQuota]:
    """The quotas that our offerings in a place count in, with their use; errors as `AwsApi.read`."""
    types = [
        offering.instance_type
        for offering in settings.offerings
        if (offering.account, offering.region) == (place.account, place.region)
    ]
    wanted = sorted(
        {(code_of(name, kind), kind.value) for name in types for kind in CapacityType} - {("", "")}
    )
    used, ours = await _used(api, place)
    found = []
    for code, kind in wanted:
        if not code:
            continue
        answer = await api.read(
            place,
            "service-quotas",
            "get_service_quota",
            ServiceCode=SERVICE_CODE,
            QuotaCode=code,
        )
        value = answer.get("Quota", {}).get("Value")
        if value is None:
            continue  # AWS does not say what it is
        found.append(
            VcpuQuota(
                place=place,
                code=code,
                capacity_type=CapacityType(kind),
                vcpus=float(value),
                used=used[code],
                ours=ours[code],
            )
        )
    return found


async def _used(api: AwsApi, place: AwsPlace) -> tuple[Counter[str], Counter[str]]:
    """Count vCPUs by code of quota: of all instances, and of those with our tags."""
    filters = [{"Name": "instance-state-name", "Values": list(_COUNTING)}]
    running = [
        instance
        for page in await pages(api, place, filters)
        for reservation in page.get("Reservations", ())
        for instance in reservation.get("Instances", ())
    ]
    vcpus = await _vcpus(api, place, sorted({one["InstanceType"] for one in running}))
    used: Counter[str] = Counter()
    ours: Counter[str] = Counter()
    for instance in running:
        name = instance["InstanceType"]
        spot = instance.get("InstanceLifecycle") == "spot"
        code = code_of(name, CapacityType.SPOT if spot else CapacityType.ON_DEMAND)
        used[code] += vcpus.get(name, 0)
        if _is_ours(instance):
            ours[code] += vcpus.get(name, 0)
    return used, ours


async def _vcpus(api: AwsApi, place: AwsPlace, types: Sequence[str]) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for first in range(0, len(types), _TYPES_A_CALL):
        answer = await api.read(
            place,
            "ec2",
            "describe_instance_types",
            InstanceTypes=list(types[first : first + _TYPES_A_CALL]),
        )
        for described in answer.get("InstanceTypes", ()):
            found[described["InstanceType"]] = int(described["VCpuInfo"]["DefaultVCpus"])
    return found


def _is_ours(instance: Reply) -> bool:
    return any(tag.get("Key") == tags.OWNER for tag in instance.get("Tags", ()))
