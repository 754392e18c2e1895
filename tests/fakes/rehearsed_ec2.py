"""EC2 of the rehearsal without HTTP, its time moved by hand; every answer is held to the model."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from spotline.adapters.market.parquet import write_market
from spotline.domain.market.market import OBSERVED, UNKNOWN, Market
from spotline.domain.market.offering import Offering, Reservation
from spotline.domain.units import NS_PER_S
from spotline.rehearsal.aws.control import Control
from spotline.rehearsal.aws.ec2.service import Ec2
from spotline.rehearsal.aws.faults import Faults
from spotline.rehearsal.aws.opening import Making, opened
from spotline.rehearsal.aws.service import AwsCall
from spotline.rehearsal.aws.state import Ec2Instance
from spotline.rehearsal.aws.weather import Weather, calm
from spotline.rehearsal.aws.wire import protocols
from spotline.rehearsal.aws.wire.models import describe

ACCOUNT, OTHER = "000000000001", "000000000002"
REGION = "us-east-1"
NEAR, FAR = "use1-az1", "use1-az2"
P4D, G5 = "p4d.24xlarge", "g5.xlarge"
START_NS = 1_767_225_600 * NS_PER_S
SLOT_S = 600
CALM = calm()


def offering_id(zone: str = NEAR, kind: str = P4D, account: str = "default") -> str:
    return f"aws:{account}:{zone}:{kind}"


def made_market(
    counts: Mapping[str, Sequence[int | None]] | None = None,
    prices: Mapping[str, Sequence[float]] | None = None,
    *,
    slots: int = 12,
    reservation: Reservation | None = None,
) -> Market:
    """Three places of one account and one of another; 8 spot and 8 on demand each, but as stated.

    `counts` and `prices` (USD) are spot's by offering; the last goes on. None: nobody knows.
    """
    sold = [
        (NEAR, P4D, "default", None),
        (FAR, P4D, "default", None),
        (NEAR, G5, "default", None),
        (NEAR, P4D, "other", None),
    ]
    sold += [(FAR, P4D, "default", reservation)] if reservation else []
    offerings = tuple(
        Offering(
            offering_id=offering_id(zone, kind, account) + (":reserved" if held else ""),
            provider="aws",
            account=account,
            region=REGION,
            zone=zone,
            instance_type=kind,
            gpu_model="a10g" if kind == G5 else "a100-40gb",
            gpus_per_instance=1 if kind == G5 else 8,
            quota_pool="p",
            reservation=held,
        )
        for zone, kind, account, held in sold
    )
    shape = (slots, len(sold))
    spot = np.full(shape, 8)
    known = np.full(shape, OBSERVED)
    price = np.full(shape, 9_000_000)
    on_demand = np.full(shape, 30_000_000)
    there = np.full(shape, 8)
    for column, offering in enumerate(offerings):
        stated = (counts or {}).get(offering.offering_id, [8])
        for slot in range(slots):
            count = stated[min(slot, len(stated) - 1)]
            spot[slot, column] = count or 0
            known[slot, column] = UNKNOWN if count is None else OBSERVED
        usd = (prices or {}).get(offering.offering_id, [9.0])
        for slot in range(slots):
            price[slot, column] = round(usd[min(slot, len(usd) - 1)] * 1_000_000)
        if offering.reservation is not None:
            on_demand[:, column] = 0
            there[:, column] = offering.reservation.instances
            spot[:, column] = 0
    starts = START_NS + np.arange(slots)[:, None] * SLOT_S * NS_PER_S
    return Market(
        offerings=offerings,
        slot_s=SLOT_S,
        start_ns=START_NS,
        spot_price_micro_usd=price,
        on_demand_price_micro_usd=on_demand,
        spot_available=spot,
        spot_provenance=known,
        on_demand_available=there,
        on_demand_provenance=np.full(shape, OBSERVED),
        quoted_ns=np.repeat(starts, len(sold), axis=1),
        source="test",
    )


class RehearsedEc2:
    """A world, EC2 on it, and what was said by it."""

    def __init__(self, world, state: Path) -> None:
        self.world = world
        self.state = state
        self.faults = Faults(share=world.weather.fail_share, seed=world.seed)
        self.ec2 = Ec2(world, self.faults)
        self.control = Control(world, self.faults, self.ec2, state)
        self.events = []
        self.changes: list[tuple[str, str, int]] = []
        world.on_event(self.events.append)
        world.on_instance(
            lambda one, change, at: self.changes.append((one.instance_id, change, at))
        )

    def call(self, operation: str, *, account: str = ACCOUNT, **params):
        """Call it, and have its answer held to botocore's model, as over HTTP."""
        call = AwsCall(
            service="ec2",
            operation=operation,
            params=params,
            region=REGION,
            account_id=account,
            access_key="AKIA",
            request_id=str(uuid.uuid5(uuid.NAMESPACE_OID, operation)),
        )
        answer = asyncio.run(_answered(self.ec2, call))
        service = describe("ec2")
        protocols.write_answer(service, service.operation(operation), answer, call.request_id)
        return answer

    def pass_s(self, seconds: float) -> None:
        """Let market time pass, and what happens in it happen."""
        self.world.clock.advance(round(seconds * NS_PER_S))
        self.world.settle()

    def at_s(self, at_ns: int) -> float:
        """A time in seconds from the start."""
        return (at_ns - START_NS) / NS_PER_S

    def fleet(self, count: int, *, zone: str = NEAR, kind: str = P4D, spot: bool = True, **changes):
        """Ask for a fleet of one zone and type."""
        params = fleet_params(self, count, zone=zone, kind=kind, spot=spot)
        return self.call("CreateFleet", **{**params, **changes})

    def launched(self, count: int, **said) -> list[str]:
        """The ids of a fleet that was granted whole."""
        ids = ids_of(self.fleet(count, **said))
        assert len(ids) == count
        return ids

    def instance(self, instance_id: str) -> Ec2Instance:
        return self.world.state.instances[instance_id]

    def template(self, kind: str = P4D) -> str:
        names = [f"spotline-{kind}"]
        found = self.call("DescribeLaunchTemplates", LaunchTemplateNames=names)
        return found["LaunchTemplates"][0]["LaunchTemplateId"]


async def _answered(ec2: Ec2, call: AwsCall):
    return await ec2.answer(call)


def fleet_params(rig: RehearsedEc2, count: int, *, zone=NEAR, kind=P4D, spot=True):
    return {
        "Type": "instant",
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {
                    "LaunchTemplateId": rig.template(kind),
                    "Version": "$Default",
                },
                "Overrides": [{"InstanceType": kind, "AvailabilityZone": zone}],
            }
        ],
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": count,
            "DefaultTargetCapacityType": "spot" if spot else "on-demand",
        },
    }


def ids_of(answer) -> list[str]:
    return [name for group in answer["Instances"] for name in group["InstanceIds"]]


def codes_of(answer) -> list[str]:
    return [error["ErrorCode"] for error in answer["Errors"]]


@contextlib.contextmanager
def rehearsed_ec2(
    folder: Path, market: Market | None = None, weather: Weather = CALM, seed: int = 0
) -> Iterator[RehearsedEc2]:
    """EC2 on a folder; one that is there goes on."""
    path = folder / "traded.parquet"
    if not path.exists():
        write_market(market or made_market(), path)
    making = Making(seed=seed, market_s_per_s=0, weather=weather)
    state = folder / "state"
    with opened(state, making, path) as (world, _):
        yield RehearsedEc2(world, state)


def rough(**changes) -> Weather:
    """Calm, but for these."""
    return replace(CALM, **changes)
