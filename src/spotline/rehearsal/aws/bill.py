"""The bill, computed from the state log alone: what AWS would charge for each instance.

Per second from `running` to `shutting-down`, at least 60 s; spot at the price in force in each second,
on demand at the list price; a spot instance that EC2 takes within its first hour costs nothing.
https://aws.amazon.com/ec2/pricing/on-demand/ (seconds, minimum),
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/billing-for-interrupted-spot-instances.html
Volumes stand beside (`disk_bill`); savings plans pay for what runs on demand (`plans`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spotline.domain.units import NS_PER_S, S_PER_HOUR
from spotline.rehearsal.aws.disk_bill import volume_id, volume_micro_usd
from spotline.rehearsal.aws.opening import LOG, made, places_of
from spotline.rehearsal.aws.places import ON_DEMAND, SPOT, Places
from spotline.rehearsal.aws.plans import PlanUse, Span, at_list_price
from spotline.rehearsal.aws.state_log import BrokenLog, records_of

MINIMUM_S = 60
FREE_S = 3600
_TAKEN = "Server.SpotInstanceTermination"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What an instance costs, and what its volume does. `open`: it runs on, and this is so far.

    One that never ran has a line for its volume alone: `running_ns` is when it was launched.
    """

    instance_id: str
    account_id: str
    region: str
    zone: str
    instance_type: str
    lifecycle: str
    tags: Mapping[str, str]
    foreign: bool
    running_ns: int
    ended_ns: int
    billed_s: int
    micro_usd: int
    taken: bool
    open: bool
    volume_id: str = ""
    disk_micro_usd: int = 0

    @property
    def total_micro_usd(self) -> int:
        """The instance with its disks."""
        return self.micro_usd + self.disk_micro_usd


@dataclass(slots=True, kw_only=True)
class _Life:
    launched: Mapping[str, Any]
    tags: dict[str, str] = field(default_factory=dict)
    running_ns: int | None = None
    ended_ns: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Billed:
    """A life with when it is billed: for so many seconds from its begin."""

    life: _Life
    begins_ns: int
    ended_ns: int
    billed_s: int

    @property
    def span(self) -> Span:
        begins_s = self.begins_ns // NS_PER_S
        return begins_s, begins_s + self.billed_s


def bill_of(state: Path, until_ns: int | None = None) -> list[Line]:
    """The bill of a rehearsal's folder, one line for each instance that ran, in order of launch.

    `until_ns` is when those that run on are counted to; None: to the last record.

    Raises
    ------
    BrokenLog
        The folder holds no log of a rehearsal.
    """
    records = list(records_of(state / LOG))
    if not records or records[0]["kind"] != "started":
        raise BrokenLog(f"{state / LOG}: expected the log of a rehearsal")
    last_ns = max(record["at_ns"] for record in records)
    return lines(records, places_of(state, made(records[0])), until_ns or last_ns)


def lines(records: Iterable[Mapping[str, Any]], places: Places, until_ns: int) -> list[Line]:
    """The bill of records on prices."""
    billed = [_billed(life, until_ns) for life in _lives(records).values() if _is_billed(life)]
    on_demand = [
        PlanUse(
            instance_id=entry["instance_id"],
            place=(entry["account_id"], entry["region"], entry["instance_type"]),
            span=one.span,
            list_micro_usd=places.price_micro_usd(entry["offering_id"], ON_DEMAND, one.begins_ns),
        )
        for one in billed
        if (entry := one.life.launched)["lifecycle"] == ON_DEMAND
        and not entry.get("capacity_reservation_id")
    ]
    listed = at_list_price(places.plans, on_demand)
    return [
        _line(one, places, listed.get(one.life.launched["instance_id"], [one.span]))
        for one in billed
    ]


def total_micro_usd(bill: Iterable[Line]) -> int:
    """What our instances cost together, those of others in the account aside."""
    return sum(line.total_micro_usd for line in bill if not line.foreign)


def _is_billed(life: _Life) -> bool:
    """Whether it ran, or had a volume and is not pending still."""
    return life.running_ns is not None or (
        life.ended_ns is not None and bool(life.launched.get("disk_gb"))
    )


def _lives(records: Iterable[Mapping[str, Any]]) -> dict[str, _Life]:
    lives: dict[str, _Life] = {}
    for record in records:
        kind = record["kind"]
        if kind == "launched":
            for entry in record["instances"]:
                lives[entry["instance_id"]] = _Life(launched=entry, tags=dict(entry["tags"]))
        elif kind == "running":
            lives[record["instance_id"]].running_ns = record["at_ns"]
        elif kind == "shutting-down":
            life = lives[record["instance_id"]]
            life.ended_ns, life.reason = record["at_ns"], record["reason"]
        elif kind == "tagged":
            for instance_id in record["instance_ids"]:
                tags = lives[instance_id].tags
                for key in record["removed"]:
                    tags.pop(key, None)
                tags.update(record["tags"])
    return lives


def _billed(life: _Life, until_ns: int) -> _Billed:
    entry, ran = life.launched, life.running_ns is not None
    begins_ns = life.running_ns if life.running_ns is not None else entry["launched_ns"]
    ended_ns = max(begins_ns, until_ns if life.ended_ns is None else life.ended_ns)
    held_s = (ended_ns - begins_ns) // NS_PER_S
    is_free = life.reason == _TAKEN and entry["lifecycle"] == SPOT and held_s < FREE_S
    billed_s = max(MINIMUM_S, held_s) if ran and not is_free else 0
    return _Billed(life=life, begins_ns=begins_ns, ended_ns=ended_ns, billed_s=billed_s)


def _line(billed: _Billed, places: Places, at_list: Sequence[Span]) -> Line:
    """`at_list` is when no savings plan pays for it."""
    life, entry = billed.life, billed.life.launched
    disk_gb = entry.get("disk_gb", 0)
    rate = places.places[entry["offering_id"]].disk_micro_usd_per_gb_month
    return Line(
        instance_id=entry["instance_id"],
        account_id=entry["account_id"],
        region=entry["region"],
        zone=entry["zone"],
        instance_type=entry["instance_type"],
        lifecycle=entry["lifecycle"],
        tags=life.tags,
        foreign=entry["foreign"],
        running_ns=billed.begins_ns,
        ended_ns=billed.ended_ns,
        billed_s=billed.billed_s,
        micro_usd=_micro_usd(places, entry, at_list),
        taken=life.reason == _TAKEN,
        open=life.ended_ns is None,
        volume_id=volume_id(entry["instance_id"]) if disk_gb else "",
        disk_micro_usd=volume_micro_usd(disk_gb, rate, billed.begins_ns, billed.ended_ns),
    )


def _micro_usd(places: Places, entry: Mapping[str, Any], spans: Sequence[Span]) -> int:
    """Price times seconds, added up over prices, rounded half up once."""
    owed = 0
    for from_s, until_s in spans:
        begins_ns, until_ns = from_s * NS_PER_S, until_s * NS_PER_S
        where = entry["offering_id"], entry["lifecycle"]
        changes = places.price_changes(*where, begins_ns, until_ns)
        ends = [at_ns for at_ns, _ in changes[1:]] + [until_ns]
        for (_, price), ends_ns in zip(changes, ends, strict=True):
            # The last change of all may be the very moment of the end: of it nothing is owed.
            upto_ns = min(max(ends_ns, begins_ns), until_ns)
            owed += price * ((upto_ns - begins_ns) // NS_PER_S)
            begins_ns = upto_ns
    return (owed + S_PER_HOUR // 2) // S_PER_HOUR
