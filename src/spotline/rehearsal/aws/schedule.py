"""What happens next in the rehearsed cloud by itself, and when: pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spotline.domain.units import NS_PER_S
from spotline.rehearsal.aws.drawn import between, uniform
from spotline.rehearsal.aws.places import SPOT, Places
from spotline.rehearsal.aws.state import (
    PENDING,
    RUNNING,
    SHUTTING_DOWN,
    TERMINATED,
    Ec2Instance,
    State,
)
from spotline.rehearsal.aws.weather import Weather

TAKEN, RECKONED = "taken", "reckoned"
# A moment's ends come before its beginnings, and the count is taken of what is left.
_RANK = {TERMINATED: 0, TAKEN: 1, RUNNING: 2, RECKONED: 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """Something at a time: `what` of an instance, or, of an offering, that its count is looked at."""

    at_ns: int
    what: str
    name: str

    @property
    def order(self) -> tuple[int, int, str]:
        """Which of several comes first."""
        return self.at_ns, _RANK[self.what], self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """How an interruption is made known: by EventBridge at these times, and in the metadata."""

    told_ns: tuple[int, ...]
    in_metadata: bool


def next_happening(
    state: State, places: Places, weather: Weather, settled_ns: int
) -> Happening | None:
    """What comes first after all that was settled by then; None: nothing, until somebody calls."""
    coming = [*_of_instances(state), *_of_counts(state, places, weather, settled_ns)]
    return min(coming, key=lambda happening: happening.order, default=None)


def _of_instances(state: State) -> Iterator[Happening]:
    for instance in state.here.values():
        name = instance.instance_id
        if instance.state == SHUTTING_DOWN:
            yield Happening(at_ns=instance.terminated_ns, what=TERMINATED, name=name)
            continue
        if instance.state == PENDING:
            yield Happening(at_ns=instance.running_ns, what=RUNNING, name=name)
        if instance.taken_ns:
            yield Happening(at_ns=instance.taken_ns, what=TAKEN, name=name)


def _of_counts(
    state: State, places: Places, weather: Weather, settled_ns: int
) -> Iterator[Happening]:
    """EC2 looks at a place ahead of each change of its count, by the lead of its notices."""
    held = {
        instance.offering_id
        for instance in state.here.values()
        if instance.is_spot and instance.alive and not instance.taken_ns
    }
    for offering_id in sorted(held):
        if (offering_id, SPOT) in state.counts:
            continue
        for ahead_s in (weather.lead_s, weather.lead_s + weather.rebalance_s):
            change_ns = places.next_change_ns(offering_id, settled_ns + ahead_s * NS_PER_S)
            if change_ns is not None:
                at_ns = change_ns - ahead_s * NS_PER_S
                yield Happening(at_ns=at_ns, what=RECKONED, name=offering_id)


def count_at(state: State, places: Places, offering_id: str, lifecycle: str, at_ns: int) -> int:
    """How many there are in a place: what was set by hand, else what the market has."""
    by_hand = state.counts.get((offering_id, lifecycle))
    return places.count(offering_id, lifecycle, at_ns) if by_hand is None else by_hand


def free_at(
    state: State, places: Places, weather: Weather, place: tuple[str, str], at_ns: int
) -> int:
    """How many more of a place (offering, lifecycle) could be had then."""
    there = state.counts.get(place)
    if there is None:
        ahead_ns = weather.lead_s * NS_PER_S if place[1] == SPOT else 0
        there = places.least_count(*place, at_ns, at_ns + ahead_ns)
    return max(0, there - sum(1 for _ in state.living(*place)))


def surplus(
    state: State, places: Places, offering_id: str, at_ns: int, *, seed: int
) -> list[Ec2Instance]:
    """Spot instances beyond what a place has at a time, without notice so far, as EC2 picks them."""
    living = [one for one in state.living(offering_id, SPOT) if not one.taken_ns]
    living.sort(key=lambda instance: uniform(seed, "picked", instance.instance_id))
    over = len(living) - count_at(state, places, offering_id, SPOT, at_ns)
    return living[: max(0, over)]


def warned(instance_id: str, at_ns: int, weather: Weather, seed: int) -> Warned:
    """Draw how an interruption is made known: in time, late, twice, not by events, or not at all."""
    drawn = uniform(seed, "warned", instance_id)
    later_s = between(1.0, weather.late_s, seed, "told", instance_id)
    later_ns = at_ns + round(later_s * NS_PER_S)
    for share, told_ns, in_metadata in (
        (weather.late_share, (later_ns,), True),
        (weather.double_share, (at_ns, later_ns), True),
        (weather.missing_share, (), True),
        (weather.silent_share, (), False),
    ):
        if drawn < share:
            return Warned(told_ns=told_ns, in_metadata=in_metadata)
        drawn -= share
    return Warned(told_ns=(at_ns,), in_metadata=True)


def is_recommended(instance_id: str, weather: Weather, seed: int) -> bool:
    """Whether EC2 recommends to replace an instance before it gives it notice."""
    return uniform(seed, "recommended", instance_id) < weather.rebalance_share
