"""What it is worth to ask an offering for spot that nobody keeps, and how often that is done.

A probe is a launch of spot, where nothing is held, that is ended in the slot in which it was made. It
is billed the provider's least time, and its only use is what it tells: a job that would move there
knows in the next slot whether it finds what it wants.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from spotline.domain.units import PPM, S_PER_HOUR, cost_micro_usd

BILLED_S = 60
"""What a granted probe is billed, seconds: the least time of large providers, which bill by second."""

# A gain is an estimate: a probe is sent for one of at least this multiple of its price.
MARGIN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOdds:
    """What a probe of an offering would tell a job, parts per million.

    As many as it wants are there now with a chance of `granted_ppm`. In the next slot they are not,
    with a chance of `risk_if_granted_ppm` where the probe found them, of `risk_if_refused_ppm` where
    not. `run_state` is the likeliest state of the offering's law with them.
    """

    granted_ppm: int
    risk_if_granted_ppm: int
    risk_if_refused_ppm: int
    run_state: int

    def __post_init__(self) -> None:
        for name in ("granted_ppm", "risk_if_granted_ppm", "risk_if_refused_ppm"):
            if not 0 <= getattr(self, name) <= PPM:
                raise ValueError(f"{name} must lie in 0..{PPM}, was {getattr(self, name)}")
        if self.run_state < 0:
            raise ValueError(f"run_state must be >= 0, was {self.run_state}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeWorth:
    """What a job expects to gain by knowing whether an offering has `instances` of spot, micro-USD."""

    offering_id: str
    job_id: str
    instances: int
    gain_micro_usd: int

    def __post_init__(self) -> None:
        if self.instances < 1 or self.gain_micro_usd < 0:
            raise ValueError(
                f"instances must be >= 1 and gain_micro_usd >= 0, were {self.instances}, "
                f"{self.gain_micro_usd}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospects:
    """What a job is worth by what it does, in one unit; what a move costs is taken off already.

    `stays` where it is, `goes` if it moves now, not knowing what it finds. If it moves a slot later,
    `there` is where it finds the spot it wants, `missed` where it finds none.
    """

    stays: float
    goes: float
    there: float
    missed: float


def expected_gain(odds: ProbeOdds, prospects: Prospects) -> float:
    """What asking first, and moving a slot later where that is better then, saves a job; >= 0.

    Notes
    -----
    The value of information (Howard, IEEE Transactions on Systems Science and Cybernetics 2(1),
    1966): the best action where it is known what the probe says, less the best one without. Ours
    differs: the answer comes a slot late, when the market may have moved on.
    """

    def later(risk_ppm: int) -> float:
        goes = prospects.there + (prospects.missed - prospects.there) * risk_ppm / PPM
        return max(prospects.stays, goes)

    granted = odds.granted_ppm / PPM
    known = granted * later(odds.risk_if_granted_ppm)
    known += (1.0 - granted) * later(odds.risk_if_refused_ppm)
    return max(0.0, known - max(prospects.stays, prospects.goes))


def probe_price(spot_price_micro_usd: int, instances: int) -> int:
    """What a probe costs if all of it is granted, micro-USD; the price is per instance-hour."""
    return cost_micro_usd(spot_price_micro_usd, instances, BILLED_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRation:
    """The most probes in a slot, the slots that an offering rests between two, the most money in an hour."""

    most_per_slot: int
    rest_slots: int
    micro_usd_per_hour: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedProbe:
    """A probe that could be sent, and what it costs at most."""

    worth: ProbeWorth
    price_micro_usd: int

    @property
    def pays(self) -> bool:
        """Whether it gains more than `MARGIN` times its price."""
        return self.worth.gain_micro_usd > MARGIN * self.price_micro_usd


@dataclass(slots=True)
class ProbeBook:
    """The probes that were sent, as far back as the ration reaches: (slot, offering, price)."""

    sent: list[tuple[int, str, int]] = field(default_factory=list)

    def note(self, slot: int, offering_id: str, price_micro_usd: int) -> None:
        """Keep a probe, at the most that it can cost."""
        self.sent.append((slot, offering_id, price_micro_usd))

    def forget(self, slot: int, ration: ProbeRation, slot_s: int) -> None:
        """Let go of what no ration of `slot` or later counts."""
        kept = max(ration.rest_slots, -(-S_PER_HOUR // slot_s))
        self.sent = [each for each in self.sent if each[0] > slot - kept]

    def has_rested(self, offering_id: str, ration: ProbeRation, slot: int) -> bool:
        """Whether an offering may be asked again in this slot."""
        after = slot - ration.rest_slots
        return all(name != offering_id or at <= after for at, name, _ in self.sent)

    def chosen(
        self, offered: Iterable[PricedProbe], ration: ProbeRation, slot: int, slot_s: int
    ) -> tuple[PricedProbe, ...]:
        """The probes of this slot within the ration: what gains most beyond its price comes first.

        Only those that pay are sent; `offered` has at most one of an offering. Ties go to the smaller
        offering id.
        """
        hour = -(-S_PER_HOUR // slot_s)
        left = ration.micro_usd_per_hour
        left -= sum(price for at, _, price in self.sent if at > slot - hour)
        most = ration.most_per_slot - sum(at == slot for at, _, _ in self.sent)
        found: list[PricedProbe] = []
        for probe in sorted(
            offered,
            key=lambda each: (
                each.price_micro_usd - each.worth.gain_micro_usd,
                each.worth.offering_id,
            ),
        ):
            fits = len(found) < most and probe.price_micro_usd <= left
            name = probe.worth.offering_id
            if fits and probe.pays and self.has_rested(name, ration, slot):
                found.append(probe)
                left -= probe.price_micro_usd
        return tuple(found)
