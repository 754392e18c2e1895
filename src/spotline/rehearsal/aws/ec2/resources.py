"""What a user has set up before: launch templates, subnets, placement groups, each with its id."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.rehearsal.aws.drawn import hexadecimal
from spotline.rehearsal.aws.places import SoldPlace
from spotline.rehearsal.aws.world import RehearsedWorld

# A /20: https://docs.aws.amazon.com/vpc/latest/userguide/subnet-sizing.html, five are reserved.
ADDRESSES = 4091

IMAGE_ID = "ami-" + hexadecimal(17, "image")
"""What all instances boot from."""

ROOT_DEVICE = "/dev/sda1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A launch template with one version.

    `reservation` is the one that it targets, or empty; `disk_gb` its one volume, 0: the image's.
    """

    template_id: str
    name: str
    instance_type: str
    reservation: str = ""
    disk_gb: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Subnet:
    """The subnet of a zone."""

    subnet_id: str
    vpc_id: str
    zone: str
    number: int

    @property
    def cidr(self) -> str:
        """Its addresses."""
        return f"10.{self.number // 16}.{self.number % 16 * 16}.0/20"

    def address(self, index: int) -> str:
        """One of them."""
        within = 4 + index % ADDRESSES
        return f"10.{self.number // 16}.{self.number % 16 * 16 + within // 256}.{within % 256}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementGroup:
    """A cluster placement group; it may hold instances of one zone."""

    name: str
    group_id: str
    zone: str


def template_of(place: SoldPlace) -> Template:
    """The launch template by which a place is bought."""
    suffix = f"-{place.reservation}" if place.reservation else ""
    named = "template", place.account_id, place.region, place.instance_type, place.reservation
    return Template(
        template_id="lt-" + hexadecimal(17, *named),
        name=f"spotline-{place.instance_type}{suffix}",
        instance_type=place.instance_type,
        reservation=place.reservation,
        disk_gb=place.disk_gb,
    )


def templates(world: RehearsedWorld, account_id: str, region: str) -> dict[str, Template]:
    """The launch templates of an account in a region, by id."""
    made = [template_of(place) for place in world.offered(account_id, region)]
    return {one.template_id: one for one in sorted(made, key=lambda one: one.name)}


def vpc_id(account_id: str, region: str) -> str:
    """The network of an account in a region."""
    return "vpc-" + hexadecimal(17, "vpc", account_id, region)


def subnets(world: RehearsedWorld, account_id: str, region: str) -> dict[str, Subnet]:
    """The subnets of an account in a region, one for each zone, by id."""
    made = [
        Subnet(
            subnet_id="subnet-" + hexadecimal(17, "subnet", account_id, zone),
            vpc_id=vpc_id(account_id, region),
            zone=zone,
            number=number,
        )
        for number, zone in enumerate(zones(world, region))
    ]
    return {one.subnet_id: one for one in made}


def subnet_of(world: RehearsedWorld, place: SoldPlace) -> Subnet:
    """The subnet of a place's zone."""
    there = subnets(world, place.account_id, place.region).values()
    return next(subnet for subnet in there if subnet.zone == place.zone)


def groups(world: RehearsedWorld, account_id: str, region: str) -> dict[str, PlacementGroup]:
    """The placement groups of an account in a region, one for each zone, by name."""
    return {
        f"spotline-{zone}": PlacementGroup(
            name=f"spotline-{zone}",
            group_id="pg-" + hexadecimal(17, "group", account_id, zone),
            zone=zone,
        )
        for zone in zones(world, region)
    }


def zones(world: RehearsedWorld, region: str) -> list[str]:
    """The zones of a region, in order of their names."""
    return sorted({one.zone for one in world.places.places.values() if one.region == region})


def regions(world: RehearsedWorld) -> list[str]:
    """The regions that there are."""
    return sorted({one.region for one in world.places.places.values()})
