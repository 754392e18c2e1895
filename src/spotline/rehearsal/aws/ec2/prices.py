"""Spot prices as EC2 has them: points at which a price changed; and placement scores, as advice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from spotline.domain.units import MICRO_USD_PER_USD, NS_PER_S
from spotline.rehearsal.aws.ec2.asking import (
    Fields,
    dry_run,
    filtered,
    missing,
    moment,
    ns_of,
    paged,
    with_token,
    wrong,
)
from spotline.rehearsal.aws.places import SPOT, SoldPlace
from spotline.rehearsal.aws.service import AwsCall
from spotline.rehearsal.aws.world import RehearsedWorld

# What prices stand for here; of the same machine in a VPC AWS says the shorter name, too.
_PRODUCT = "Linux/UNIX"
_ALSO = "Linux/UNIX (Amazon VPC)"
_KEPT_S = 90 * 86_400
_MOST_RESULTS = 1000
_BEST_SCORE = 10


class _Point(NamedTuple):
    """Since when a price is in force in a place."""

    zone: str
    instance_type: str
    at_ns: int
    micro_usd: int


_FIELDS: Fields[_Point] = {
    "availability-zone": lambda point: (point.zone,),
    "availability-zone-id": lambda point: (point.zone,),
    "instance-type": lambda point: (point.instance_type,),
    "product-description": lambda _: (_PRODUCT, _ALSO),
    "spot-price": lambda point: (_usd(point.micro_usd),),
    "timestamp": lambda point: (f"{moment(point.at_ns):%Y-%m-%dT%H:%M:%S.000Z}",),
}


def describe_spot_price_history(world: RehearsedWorld, call: AwsCall) -> dict[str, Any]:
    """The changes of spot prices, latest first, with the last one before the time asked for."""
    dry_run(call)
    params, now_ns = call.params, world.now_ns()
    since_ns, until_ns = now_ns - _KEPT_S * NS_PER_S, now_ns
    if "StartTime" in params:
        since_ns = max(since_ns, ns_of(params["StartTime"]))
    if "EndTime" in params:
        until_ns = min(until_ns, ns_of(params["EndTime"]))
    if "StartTime" in params and "EndTime" in params and params["EndTime"] < params["StartTime"]:
        raise wrong("EndTime must not be before StartTime")
    points = [
        point
        for place in _places(world, call)
        for point in _points(world, place, since_ns, until_ns)
    ]
    products = params.get("ProductDescriptions")
    if products and not {_PRODUCT, _ALSO}.intersection(products):
        points = []
    # Latest first, and no two have the same key.
    points.sort(key=_key)
    page, token = paged(filtered(points, params, _FIELDS), params, _key, 1, _MOST_RESULTS)
    return with_token("SpotPriceHistory", [_said(point) for point in page], token)


def get_spot_placement_scores(world: RehearsedWorld, call: AwsCall) -> dict[str, Any]:
    """How likely a request is met, 1 to 10: the share of it that is there now."""
    dry_run(call)
    params = call.params
    target = params.get("TargetCapacity")
    if not target or target < 1:
        raise missing("TargetCapacity")
    kinds = params.get("InstanceTypes")
    if not kinds:
        raise missing("InstanceTypes")
    by_zone = bool(params.get("SingleAvailabilityZone"))
    regions = params.get("RegionNames") or sorted(
        {place.region for place in world.places.places.values()}
    )
    free: dict[tuple[str, str], int] = {}
    for region in regions:
        for place in world.offered(call.account_id, region):
            if place.instance_type in kinds and not place.reservation:
                where = place.region, place.zone if by_zone else ""
                free[where] = free.get(where, 0) + world.free(place.offering_id, SPOT)
    scores = [
        {
            "Region": region,
            **({"AvailabilityZoneId": zone} if zone else {}),
            "Score": max(1, min(_BEST_SCORE, _BEST_SCORE * count // target)),
        }
        for (region, zone), count in free.items()
    ]
    scores.sort(key=lambda one: (-one["Score"], one["Region"], one.get("AvailabilityZoneId", "")))
    most = params.get("MaxResults", len(scores) or 1)
    return {"SpotPlacementScores": scores[:most]}


def _places(world: RehearsedWorld, call: AwsCall) -> Iterable[SoldPlace]:
    params = call.params
    kinds = params.get("InstanceTypes")
    zones = {params[name] for name in ("AvailabilityZone", "AvailabilityZoneId") if name in params}
    for place in world.offered(call.account_id, call.region):
        if place.reservation or (kinds and place.instance_type not in kinds):
            continue
        if zones <= {place.zone}:
            yield place


def _points(
    world: RehearsedWorld, place: SoldPlace, since_ns: int, until_ns: int
) -> Iterable[_Point]:
    if until_ns < world.places.start_ns:
        return
    for at_ns, micro_usd in world.places.price_changes(place.offering_id, SPOT, since_ns, until_ns):
        yield _Point(
            zone=place.zone, instance_type=place.instance_type, at_ns=at_ns, micro_usd=micro_usd
        )


def _key(point: _Point) -> str:
    # Of a page's last key only the order counts: later times come first.
    return f"{2**63 - point.at_ns:020d} {point.zone} {point.instance_type}"


def _usd(micro_usd: int) -> str:
    return f"{micro_usd // MICRO_USD_PER_USD}.{micro_usd % MICRO_USD_PER_USD:06d}"


def _said(point: _Point) -> dict[str, Any]:
    return {
        "AvailabilityZone": point.zone,
        "AvailabilityZoneId": point.zone,
        "InstanceType": point.instance_type,
        "ProductDescription": _PRODUCT,
        "SpotPrice": _usd(point.micro_usd),
        "Timestamp": moment(point.at_ns),
    }
