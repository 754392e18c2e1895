"""Whether a market can go on where a log stopped: it must be the one that the log began with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from spotline.application.market_ingest.observing import observations
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.events.placement import LinkObserved, RegionObserved
from spotline.domain.market.grid import AnyMarket
from spotline.domain.market.market import Market
from spotline.domain.market.offering import Offering, Quote
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.placement.geography import Geography
from spotline.domain.units import utc_iso

_MOST_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketOfLog:
    """What a log says of its market: how it opened, and the slots that are compared.

    `seen` are the regions and links that were shown with the first slot.
    """

    opened: MarketOpened
    slots: Sequence[SlotOpened]
    seen: Sequence[RegionObserved | LinkObserved] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketIdentity:
    """What tells one market from another.

    `first_slot_ns` is since the epoch. `offerings` are by id what they are; `places` says in a line
    each the regions and links of its geography. `source` names the market and is not compared: a
    file may be moved.
    """

    source: str
    slot_s: int
    first_slot_ns: int
    offerings: Mapping[str, str]
    places: tuple[str, ...] = ()


def identity_of(market: AnyMarket, geography: Geography | None) -> MarketIdentity:
    """What tells a market and its geography from others."""
    return MarketIdentity(
        source=market.source,
        slot_s=market.slot_s,
        first_slot_ns=market.start_ns,
        offerings=_kinds(market.offerings),
        places=_places_of(geography, market.start_ns),
    )


def identity_differences(
    before: MarketIdentity, given: MarketIdentity, *, from_now: bool = False
) -> Iterator[str]:
    """Say in what a market differs from another of before, nothing where it goes on with it.

    Parameters
    ----------
    from_now
        The market given begins when this process did, so its beginning says nothing.
    """
    yield from _of_grid(before, given, from_now=from_now)
    yield from _of_offerings(before.offerings, given.offerings)
    if before.places != given.places:
        yield f"geography: expected {_listed(before.places)}, found {_listed(given.places)}"


def differences(log: MarketOfLog, market: AnyMarket, geography: Geography | None) -> Iterator[str]:
    """Say in what a market and a geography differ from those of a log, nothing where they go on."""
    opened = log.opened
    given = identity_of(market, geography)
    before = MarketIdentity(
        source=opened.source,
        slot_s=opened.slot_s,
        first_slot_ns=opened.first_slot_start_ns,
        offerings=_kinds(opened.offerings),
        # Where no slot was opened, none of it was shown.
        places=_places(log.seen) if log.slots else given.places,
    )
    problems = list(identity_differences(before, given))
    if not isinstance(market, Market):
        if opened.ends_ns:
            yield f"end: expected {utc_iso(opened.ends_ns)}, found none: a live market has no end"
    elif all(problem.startswith("geography: ") for problem in problems):
        yield from _of_slots(log.slots, market)
    yield from problems


def _of_grid(before: MarketIdentity, given: MarketIdentity, *, from_now: bool) -> Iterator[str]:
    if before.slot_s != given.slot_s:
        yield f"slot length: expected {before.slot_s} s, found {given.slot_s} s"
    elif not from_now and before.first_slot_ns != given.first_slot_ns:
        began, begins = utc_iso(before.first_slot_ns), utc_iso(given.first_slot_ns)
        yield f"first slot: expected {began}, found {begins}"


def _of_offerings(recorded: Mapping[str, str], given: Mapping[str, str]) -> Iterator[str]:
    if set(recorded) != set(given):
        yield f"offerings: expected {_named(recorded)}, found {_named(given)}"
        return
    for offering_id, before in sorted(recorded.items()):
        if before != given[offering_id]:
            yield f"offering {offering_id}: expected {before}, found {given[offering_id]}"


def _kinds(offerings: Sequence[Offering]) -> dict[str, str]:
    return {offering.offering_id: _kind(offering) for offering in offerings}


def _kind(offering: Offering) -> str:
    # Prices of others take what is stated by now; what a reservation costs is told by its offering.
    disks = offering.disks if offering.reservation is not None else None
    return (
        f"{offering.gpus_per_instance} x {offering.gpu_model} as {offering.instance_type} "
        f"in {offering.quota_pool}"
    ) + ("" if disks is None else f" with disks for {disks.micro_usd_per_hour / 1e6:.6f} USD/h")


def _named(offerings: Mapping[str, str]) -> str:
    names = sorted(offerings)
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _of_slots(slots: Sequence[SlotOpened], market: Market) -> Iterator[str]:
    for recorded in slots:
        if recorded.slot >= market.slots:
            yield (
                f"slots: expected more than the {recorded.slot + 1} that were opened, "
                f"found {market.slots}"
            )
            return
        given = {quote.offering_id: quote for quote in market.quotes(recorded.slot)}
        for entry in recorded.quotes:
            before, after = _as_said(entry), given[entry.quote.offering_id]
            if entry.doubted:
                # What stood for a price that was never believed has no instances.
                after = replace(
                    after,
                    spot_available=before.spot_available,
                    on_demand_available=before.on_demand_available,
                )
            if _price(before) != _price(after):
                yield (
                    f"slot {recorded.slot}: expected {before.offering_id} at {_price(before)}, "
                    f"found {_price(after)}"
                )
                return


def _as_said(entry: SlotQuote) -> Quote:
    """A quote as it came, with the prices that were not believed."""
    quote = entry.listed
    return replace(
        quote,
        spot_price_micro_usd=entry.quarantined_spot_price_micro_usd or quote.spot_price_micro_usd,
        on_demand_price_micro_usd=entry.quarantined_on_demand_price_micro_usd
        or quote.on_demand_price_micro_usd,
    )


def _price(quote: Quote) -> str:
    there = str(quote.spot_available.instances) if quote.spot_available.known else "unknown"
    return (
        f"{quote.spot_price_micro_usd / 1e6:.6f} USD spot ({there} available) and "
        f"{quote.on_demand_price_micro_usd / 1e6:.6f} USD on-demand"
    )


def _places_of(geography: Geography | None, start_ns: int) -> tuple[str, ...]:
    if geography is None:
        return ()
    return _places(observations(geography, at_s=0.0, before_s=None, ts_event_ns=start_ns))


def _places(seen: Sequence[RegionObserved | LinkObserved]) -> tuple[str, ...]:
    said = (
        f"{entry.region.region_id} of {entry.region.gpus} GPUs at "
        f"{entry.region.energy_usd_per_kwh:g} USD/kWh"
        if isinstance(entry, RegionObserved)
        else f"{entry.link.source} to {entry.link.destination} at {entry.link.bytes_per_s:g} B/s"
        for entry in seen
    )
    return tuple(sorted(said))


def _listed(places: Sequence[str]) -> str:
    return ", ".join(places) if places else "none"
