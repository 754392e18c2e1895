"""What a buyer pays where that is not what is listed: private prices, discounts, savings plans.

Sources say what everybody pays. An override says of some offerings, for some time, what this
buyer does. What is listed stays beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from spotline.domain.market.offering import MOST_PRICE_MICRO_USD, Offering
from spotline.domain.market.slot_quote import SlotQuote

_PPM = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingsPlan:
    """So much is paid each hour, used or not, for on-demand at a discount until it is used up.

    The hour's money, `micro_usd_per_hour`, pays for instances at (1 - `discount_ppm` / 10^6) of
    their list price; what is held beyond that costs the list price.
    """

    micro_usd_per_hour: int
    discount_ppm: int

    def __post_init__(self) -> None:
        if self.micro_usd_per_hour < 1:
            raise ValueError(
                f"savings_plan.micro_usd_per_hour must be > 0, was {self.micro_usd_per_hour}"
            )
        _check_share("savings_plan.discount_ppm", self.discount_ppm)

    @property
    def covers_micro_usd(self) -> int:
        """The list price of what it pays for in an hour."""
        return self.micro_usd_per_hour * _PPM // (_PPM - self.discount_ppm)

    def price(self, listed: int, used: int) -> int:
        """What an instance-hour costs on average while so much is held, micro-USD.

        Times what is held, it is the hour's bill of the provider: the discounted price while the
        plan is not used up, then more, and less than the list price always. What somebody else uses
        of the plan is not known here.

        Parameters
        ----------
        listed
            The list price of the instance.
        used
            The list price of all that is held and that the plan covers, per hour; less than one
            instance is taken as one.
        """
        held = max(used, listed)
        beyond = max(0, held - self.covers_micro_usd)
        discounted = (held - beyond) * (_PPM - self.discount_ppm)
        # Rounded up: a price is never said to be lower than it is, and never 0.
        return min(listed, max(1, -(-listed * (discounted + beyond * _PPM) // (held * _PPM))))


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceOverride:
    """What some offerings cost this buyer, from `from_ns` to before `until_ns` (0: without end).

    `offerings` is a pattern with `*` and `?` over offering ids, or over
    `provider:account:region:zone:instance_type`. 0 and None say nothing of a price.

    Raises
    ------
    ValueError
        It says nothing, says an on-demand price twice, or a value is out of range; names the field.
    """

    offerings: str
    on_demand_micro_usd: int = 0
    on_demand_discount_ppm: int = 0
    spot_discount_ppm: int = 0
    savings_plan: SavingsPlan | None = None
    from_ns: int = 0
    until_ns: int = 0

    def __post_init__(self) -> None:
        if not self.offerings:
            raise ValueError("offerings must be a pattern, was empty")
        if not 0 <= self.on_demand_micro_usd <= MOST_PRICE_MICRO_USD:
            raise ValueError(
                f"on_demand_micro_usd must lie in 0..{MOST_PRICE_MICRO_USD}, "
                f"was {self.on_demand_micro_usd}"
            )
        for name in ("on_demand_discount_ppm", "spot_discount_ppm"):
            _check_share(name, getattr(self, name))
        if self.on_demand_micro_usd and self.on_demand_discount_ppm:
            raise ValueError(
                "on_demand_micro_usd and on_demand_discount_ppm: expected one of them, found both"
            )
        if not (self.on_demand or self.spot_discount_ppm or self.savings_plan is not None):
            raise ValueError(f"override of {self.offerings} must say a price, says none")
        if self.from_ns < 0 or self.until_ns < 0:
            raise ValueError("from_ns and until_ns must be >= 0")
        if self.until_ns and self.until_ns <= self.from_ns:
            raise ValueError(f"until_ns must be > from_ns {self.from_ns}, was {self.until_ns}")

    @property
    def on_demand(self) -> bool:
        """Whether it says an on-demand price, but for a plan's."""
        return bool(self.on_demand_micro_usd or self.on_demand_discount_ppm)

    def is_of(self, offering: Offering, at_ns: int) -> bool:
        """Whether it is about an offering at a moment of market time; of a reservation none is."""
        if offering.reservation is not None or at_ns < self.from_ns:
            return False
        if self.until_ns and at_ns >= self.until_ns:
            return False
        place = (
            f"{offering.account_key.replace('/', ':', 1)}:{offering.region}:{offering.zone}:"
            f"{offering.instance_type}"
        )
        return fnmatchcase(offering.offering_id, self.offerings) or fnmatchcase(
            place, self.offerings
        )

    def described(self) -> str:
        """In a line what it says."""
        said = []
        if self.on_demand_micro_usd:
            said.append(f"on-demand {self.on_demand_micro_usd / 1e6:g} USD")
        if self.on_demand_discount_ppm:
            said.append(f"on-demand -{self.on_demand_discount_ppm / 1e4:g} %")
        if self.spot_discount_ppm:
            said.append(f"spot -{self.spot_discount_ppm / 1e4:g} %")
        if self.savings_plan is not None:
            plan = self.savings_plan
            said.append(
                f"savings plan of {plan.micro_usd_per_hour / 1e6:g} USD an hour at "
                f"-{plan.discount_ppm / 1e4:g} %"
            )
        until = f" until {self.until_ns}" if self.until_ns else ""
        return f"{self.offerings}: {', '.join(said)} from {self.from_ns}{until}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceOverrides:
    """The overrides of a buyer: of those that say a price of an offering the first one counts.

    A savings plan discounts the on-demand price that is listed or overridden.
    """

    stated: tuple[PriceOverride, ...] = ()

    def applied(
        self,
        offerings: Sequence[Offering],
        quotes: Sequence[SlotQuote],
        at_ns: int,
        held: Mapping[str, int],
    ) -> tuple[SlotQuote, ...]:
        """What a slot's quotes are for this buyer, with what is listed beside what differs.

        Parameters
        ----------
        quotes
            One for each of `offerings`, in their order.
        held
            On-demand instances that are held, by offering id.
        """
        if not self.stated:
            return tuple(quotes)
        before_plans = [
            self._priced(offering, quoted, at_ns)
            for offering, quoted in zip(offerings, quotes, strict=True)
        ]
        plans = [
            self._first(offering, at_ns, lambda each: each.savings_plan is not None)
            for offering in offerings
        ]
        used = _used(zip(plans, before_plans, strict=True), held)
        return tuple(
            quoted if override is None else _planned(quoted, override, used[override])
            for override, quoted in zip(plans, before_plans, strict=True)
        )

    def _priced(self, offering: Offering, quoted: SlotQuote, at_ns: int) -> SlotQuote:
        quote = quoted.quote
        spot, on_demand = quote.spot_price_micro_usd, quote.on_demand_price_micro_usd
        of_spot = self._first(offering, at_ns, lambda each: bool(each.spot_discount_ppm))
        of_on_demand = self._first(offering, at_ns, lambda each: each.on_demand)
        if of_spot is not None:
            spot = _less(spot, of_spot.spot_discount_ppm)
        if of_on_demand is not None:
            on_demand = of_on_demand.on_demand_micro_usd or _less(
                on_demand, of_on_demand.on_demand_discount_ppm
            )
        return _repriced(quoted, spot, on_demand)

    def _first(
        self, offering: Offering, at_ns: int, says: Callable[[PriceOverride], bool]
    ) -> PriceOverride | None:
        return next(
            (each for each in self.stated if says(each) and each.is_of(offering, at_ns)), None
        )


NO_OVERRIDES = PriceOverrides()


def _used(
    planned: Iterable[tuple[PriceOverride | None, SlotQuote]], held: Mapping[str, int]
) -> dict[PriceOverride, int]:
    """By the override of a plan, the list price of all that is held under it, per hour."""
    used: dict[PriceOverride, int] = {}
    for override, quoted in planned:
        if override is not None:
            count = held.get(quoted.quote.offering_id, 0)
            price = count * quoted.quote.on_demand_price_micro_usd
            used[override] = used.get(override, 0) + price
    return used


def _planned(quoted: SlotQuote, override: PriceOverride, used: int) -> SlotQuote:
    quote = quoted.quote
    if override.savings_plan is None:
        return quoted
    price = override.savings_plan.price(quote.on_demand_price_micro_usd, used)
    return _repriced(quoted, quote.spot_price_micro_usd, price)


def _repriced(quoted: SlotQuote, spot: int, on_demand: int) -> SlotQuote:
    if quoted.unquoted:
        # What stands there is nobody's price.
        return quoted
    quote = quoted.quote
    changed = replace(quote, spot_price_micro_usd=spot, on_demand_price_micro_usd=on_demand)
    if changed == quote:
        return quoted
    listed = quoted.listed
    return replace(
        quoted,
        quote=changed,
        listed_spot_price_micro_usd=_beside(listed.spot_price_micro_usd, spot),
        listed_on_demand_price_micro_usd=_beside(listed.on_demand_price_micro_usd, on_demand),
    )


def _beside(listed: int, price: int) -> int:
    return 0 if listed == price else listed


def _less(price: int, discount_ppm: int) -> int:
    """A price less a discount, rounded up, at least a millionth."""
    return max(1, -(-price * (_PPM - discount_ppm) // _PPM))


def _check_share(name: str, ppm: int) -> None:
    if not 0 <= ppm < _PPM:
        raise ValueError(f"{name} must lie in 0..{_PPM - 1}, was {ppm}")
