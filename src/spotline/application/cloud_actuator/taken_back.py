"""Spot under notice that is left to its provider, where to end it ourselves would cost money.

AWS charges nothing for spot that it takes back within its first hour, and the seconds used where
the user ends it. So what is released while it is under such notice is held no more and not
ended: its provider takes it. What it does not take in time is ended after all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from spotline.application.cloud_actuator.lives import LivesInHand
from spotline.application.cloud_actuator.messages import Moment
from spotline.domain.ledger.billing_rules import costs_nothing_if_taken_at
from spotline.domain.ledger.cooldowns import OfferingPlace
from spotline.domain.ledger.instance_life import LifeState
from spotline.domain.ledger.intents import HeldInstance
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S

# Notices are best effort: a provider may be this much later than it said.
LATE_S = 60

LEFT = "left to be taken back"
"""Why the ledger holds it no more."""


class LeftToProvider:
    """What is left to be taken; a process that starts anew ends it instead."""

    def __init__(self) -> None:
        self._until_ns: dict[str, int] = {}

    @property
    def next_look_ns(self) -> int | None:
        """Market time from which one of them is to be ended after all; None: there is none."""
        return min(self._until_ns.values(), default=None)

    def free(
        self,
        held: Sequence[HeldInstance],
        lives: LivesInHand,
        places: Mapping[str, OfferingPlace],
        at: Moment,
    ) -> Mapping[str, int]:
        """What costs nothing if its provider takes it, and until when that is waited for (ns)."""
        found: dict[str, int] = {}
        opened_ns = at.ts_ns - at.offset_s * NS_PER_S
        for instance in held:
            place, life = places.get(instance.offering_id), lives.get(instance.instance_id)
            if place is None or place.billing is None or life is None or instance.start_slot < 0:
                continue
            spot = instance.capacity_type is CapacityType.SPOT
            if not spot or life.state is not LifeState.NOTICED:
                continue
            # From when it was asked for: it began to run after that, so this errs for ending it.
            before_s = (at.slot - instance.start_slot) * at.slot_s - instance.start_offset_s
            begun_ns = opened_ns - before_s * NS_PER_S
            taken_ns = life.since_ns + place.announced_s * NS_PER_S
            if costs_nothing_if_taken_at(place.billing, begun_ns, taken_ns):
                found[instance.instance_id] = taken_ns + LATE_S * NS_PER_S
        return found

    def leave(self, until_ns: Mapping[str, int]) -> None:
        """Leave these until then."""
        self._until_ns |= until_ns

    def left(self, lives: LivesInHand) -> Collection[str]:
        """What is not to be ended now; forgets what is over."""
        self._until_ns = {
            instance_id: until_ns
            for instance_id, until_ns in self._until_ns.items()
            if lives.now_ns < until_ns and not lives.is_gone(instance_id)
        }
        return self._until_ns.keys()
