"""What can be held, and what it is quoted at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from spotline.domain.canonical import canonical_as
from spotline.domain.units import MICRO_USD_PER_USD, NS_PER_S

# What no `notice_lead_s` of an offering stands for: before 0.3.0 this was assumed everywhere.
ASSUMED_NOTICE_LEAD_S = 120

# A million USD per instance-hour: above any price of a machine, far below what int64 micro-USD
# times counts and seconds could bear.
MOST_PRICE_MICRO_USD = 1_000_000 * MICRO_USD_PER_USD

# There is no spot on a reservation: its price says nothing, but prices are > 0. With 1 no product
# or ratio of it is ever large. No spot that is sold costs so little: it tells reservations apart.
NO_SPOT_PRICE_MICRO_USD = 1


class CapacityType(Enum):
    """How an instance is bought."""

    SPOT = "spot"
    ON_DEMAND = "on_demand"


@canonical_as("Provenance")
class Provenance(Enum):
    """How a count is known: no cloud publishes its spare capacity, traces do."""

    OBSERVED = "observed"
    INFERRED = "inferred"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Capacity that is paid for whether it is used or not: an offering of its own.

    `instances` are certain to be had until `ends_ns` (0: it does not end). Each costs
    `sunk_price_micro_usd` per instance-hour, used or not: to use one costs nothing more.

    A savings plan, by its name in `plan`, is money that several offerings share: so many instances fit
    at the plan's own price, `sunk_price_micro_usd`, where nothing else uses it. What is paid is
    `plan_micro_usd_per_hour`, used or not. It promises prices, no capacity.
    """

    instances: int
    ends_ns: int = 0
    sunk_price_micro_usd: int = 0
    plan: str = ""
    plan_micro_usd_per_hour: int = 0

    def __post_init__(self) -> None:
        if self.instances < 1:
            raise ValueError(f"reservation.instances must be >= 1, was {self.instances}")
        for name in ("ends_ns", "sunk_price_micro_usd"):
            if getattr(self, name) < 0:
                raise ValueError(f"reservation.{name} must be >= 0, was {getattr(self, name)}")
        most = self.instances * self.sunk_price_micro_usd
        if self.plan and not 0 < most <= self.plan_micro_usd_per_hour:
            raise ValueError(
                f"reservation.plan_micro_usd_per_hour must pay for all instances ({most}), "
                f"was {self.plan_micro_usd_per_hour}"
            )
        if self.plan_micro_usd_per_hour and not self.plan:
            raise ValueError("reservation.plan must name the plan whose money is stated, was empty")

    def instances_until(self, until_ns: int) -> int:
        """Instances that are certain to be there until then: all or none."""
        return self.instances if self.ends_ns == 0 or until_ns <= self.ends_ns else 0

    def whole_slots(self, from_ns: int, slot_s: int) -> int | None:
        """How many slots from one that opens at `from_ns` it covers whole, None where it does not end."""
        if self.ends_ns == 0:
            return None
        return max(0, (self.ends_ns - from_ns) // (slot_s * NS_PER_S))


@dataclass(frozen=True, slots=True, kw_only=True)
class BillingRules:
    """How a provider bills one instance: by the second, at the price in force in each.

    Parameters
    ----------
    least_s
        An instance that runs for less is billed for so many seconds.
    free_if_taken_within_s
        Spot that the provider itself takes back within so many seconds costs nothing; what we end
        costs what it ran for. 0: what is taken back is billed like all else.
    """

    least_s: int = 0
    free_if_taken_within_s: int = 0

    def __post_init__(self) -> None:
        for name in ("least_s", "free_if_taken_within_s"):
            if getattr(self, name) < 0:
                raise ValueError(f"billing.{name} must be >= 0, was {getattr(self, name)}")


# A minimum of 60 s: aws.amazon.com/ec2/pricing/on-demand, "per second, with a minimum of 60
# seconds". Nothing for Linux spot that is interrupted in its first hour, the seconds used where the
# user ends it: docs.aws.amazon.com/AWSEC2/latest/UserGuide/billing-for-interrupted-spot-instances.html
AWS_BILLING = BillingRules(least_s=60, free_if_taken_within_s=3600)
"""Linux instances of EC2."""


# An hour's price of what is sold by the month, as providers quote it; bills go by the month itself.
HOURS_PER_MONTH = 730


@dataclass(frozen=True, slots=True, kw_only=True)
class Disks:
    """The disks of one instance: made as it is launched, gone with it, billed beside it.

    Parameters
    ----------
    gb
        Their size together.
    micro_usd_per_gb_month
        What a gigabyte of them costs a month.
    """

    gb: int
    micro_usd_per_gb_month: int

    def __post_init__(self) -> None:
        if not 1 <= self.gb <= 1_000_000:
            raise ValueError(f"disks.gb must lie in 1..1000000, was {self.gb}")
        if not 1 <= self.micro_usd_per_gb_month <= 1_000 * MICRO_USD_PER_USD:
            raise ValueError(
                "disks.micro_usd_per_gb_month must lie in 1..1000000000, "
                f"was {self.micro_usd_per_gb_month}"
            )

    @property
    def micro_usd_per_hour(self) -> int:
        """What they add to an instance-hour, rounded up: the rate that decisions and limits go by."""
        return -(-self.gb * self.micro_usd_per_gb_month // HOURS_PER_MONTH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offering:
    """One instance type in one zone of one account.

    `offering_id` is unique in a market; `native_price_unit` and `currency` say in what the
    provider quotes (prices here are always converted to USD per instance-hour). `notice_lead_s` are
    the seconds of notice that the provider guarantees before it takes spot back; None, in logs from
    before 0.3.0, stands for the two minutes that were assumed everywhere. Prices of `disks` are beside
    what sources quote; slots show both together.
    """

    offering_id: str
    provider: str
    account: str
    region: str
    zone: str
    instance_type: str
    gpu_model: str
    gpus_per_instance: int
    quota_pool: str
    native_price_unit: str = "usd_per_instance_hour"
    currency: str = "USD"
    notice_lead_s: int | None = None
    reservation: Reservation | None = None
    billing: BillingRules | None = None
    disks: Disks | None = None

    @property
    def disk_micro_usd_per_hour(self) -> int:
        """What an instance's disks add to its hour; 0 where none are stated."""
        return 0 if self.disks is None else self.disks.micro_usd_per_hour

    @property
    def account_key(self) -> str:
        """The account as scopes and modes name it: "provider/account"."""
        return f"{self.provider}/{self.account}"

    def __post_init__(self) -> None:
        if (self.notice_lead_s or 0) < 0:
            raise ValueError(f"notice_lead_s must be >= 0, was {self.notice_lead_s}")
        for name in ("offering_id", "provider", "region", "zone", "instance_type"):
            if not getattr(self, name):
                raise ValueError(f"{name} of an offering must not be empty")
        if self.gpus_per_instance < 1:
            raise ValueError(f"gpus_per_instance must be >= 1, was {self.gpus_per_instance}")


@canonical_as("Count", "instances provenance")
@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """A number of instances and how it is known; 0 and meaningless when unknown."""

    instances: int
    provenance: Provenance

    def __post_init__(self) -> None:
        if self.instances < 0:
            raise ValueError(f"instances must be >= 0, was {self.instances}")

    @property
    def known(self) -> bool:
        """Whether the count says anything."""
        return self.provenance is not Provenance.UNKNOWN


# GetSpotPlacementScores: "scored from 1 to 10".
BEST_PLACEMENT_SCORE = 10

UNKNOWN_COUNT = Count(instances=0, provenance=Provenance.UNKNOWN)


@canonical_as(
    "Quote",
    "offering_id ts_event_ns spot_price_micro_usd on_demand_price_micro_usd "
    "spot_available on_demand_available",
    later="placement_score scored_ns",
)
@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """An offering's prices (micro-USD per instance-hour) and availability at a time.

    What is paid for already, a reservation, costs nothing more but its disks: an on-demand price of
    0, or theirs. Who knows the offering refuses it of any other, see `check_price`. No price is above
    `MOST_PRICE_MICRO_USD`.

    `placement_score` is the provider's advice on how likely spot is to be had, 1 to 10, as it was given
    at `scored_ns`; 0: none. Beliefs of counts count on it as far as launches have shown what it tells.

    Raises
    ------
    ValueError
        A price or a score is out of its range; names the field.
    """

    offering_id: str
    ts_event_ns: int
    spot_price_micro_usd: int
    on_demand_price_micro_usd: int
    spot_available: Count
    on_demand_available: Count
    placement_score: int = 0
    scored_ns: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.placement_score <= BEST_PLACEMENT_SCORE:
            raise ValueError(
                f"placement_score must lie in 0..{BEST_PLACEMENT_SCORE}, was {self.placement_score}"
            )
        if self.scored_ns < 0 or (self.scored_ns and not self.placement_score):
            raise ValueError(f"scored_ns must be of a placement_score, was {self.scored_ns}")
        if self.spot_price_micro_usd <= 0:
            raise ValueError(f"spot_price_micro_usd must be > 0, was {self.spot_price_micro_usd}")
        if self.on_demand_price_micro_usd < 0:
            raise ValueError(
                f"on_demand_price_micro_usd must be >= 0, was {self.on_demand_price_micro_usd}"
            )
        for name in ("spot_price_micro_usd", "on_demand_price_micro_usd"):
            if getattr(self, name) > MOST_PRICE_MICRO_USD:
                raise ValueError(
                    f"{name} must be <= {MOST_PRICE_MICRO_USD}, was {getattr(self, name)}: "
                    "is its unit micro-USD per instance-hour?"
                )

    def age_s(self, now_ns: int) -> int:
        """Seconds between this quote and `now_ns`, at least 0."""
        return max(0, (now_ns - self.ts_event_ns) // NS_PER_S)


def is_reserved(quote: Quote) -> bool:
    """Whether a quote is of a reservation: what it offers costs nothing more, but for its disks.

    The rule of `domain.jobs.offer.is_paid_for`, on a quote.
    """
    spot = quote.spot_available
    return quote.on_demand_price_micro_usd == 0 or (
        quote.spot_price_micro_usd == NO_SPOT_PRICE_MICRO_USD and spot.known and not spot.instances
    )


def check_price(offering: Offering, quote: Quote) -> None:
    """Refuse an on-demand price that cannot be of `offering`.

    Raises
    ------
    ValueError
        It is 0, and the offering is no reservation; or it is one, and costs more than its disks.
    """
    price = quote.on_demand_price_micro_usd
    if offering.reservation is None and price == 0:
        raise ValueError("on_demand_price_micro_usd must be > 0, was 0")
    if offering.reservation is not None and price not in (0, offering.disk_micro_usd_per_hour):
        raise ValueError(f"on_demand_price_micro_usd of a reservation must be 0, was {price}")
