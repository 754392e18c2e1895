"""Whether a market can go on where a log stopped: it must be the one that the log began with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from spotline.application.market_ingest.observing import observations
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.events.placement import LinkObserved, RegionObserved
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


def differences(log: MarketOfLog, market: Market, geography: Geography | None) -> Iterator[str]:
    """Say in what a market and a geography differ from those of a log, nothing where they go on."""
    opened = log.opened
    problems = [*_of_grid(opened, market), *_of_offerings(opened, market)]
    yield from problems or _of_slots(log.slots, market)
    if log.slots:
        yield from _of_geography(log, geography)


def _of_grid(opened: MarketOpened, market: Market) -> Iterator[str]:
    if opened.slot_s != market.slot_s:
        yield f"slot length: expected {opened.slot_s} s, found {market.slot_s} s"
    elif opened.first_slot_start_ns != market.start_ns:
        began, begins = utc_iso(opened.first_slot_start_ns), utc_iso(market.start_ns)
        yield f"first slot: expected {began}, found {begins}"


def _of_offerings(opened: MarketOpened, market: Market) -> Iterator[str]:
    recorded, given = map(_by_id, (opened.offerings, market.offerings))
    if set(recorded) != set(given):
        yield f"offerings: expected {_named(recorded)}, found {_named(given)}"
        return
    for offering_id, before in sorted(recorded.items()):
        if _kind(before) != _kind(given[offering_id]):
            yield (
                f"offering {offering_id}: expected {_kind(before)}, found {_kind(given[offering_id])}"
            )


def _by_id(offerings: Sequence[Offering]) -> dict[str, Offering]:
    return {offering.offering_id: offering for offering in offerings}


def _kind(offering: Offering) -> str:
    return (
        f"{offering.gpus_per_instance} x {offering.gpu_model} as {offering.instance_type} "
        f"in {offering.quota_pool}"
    )


def _named(offerings: dict[str, Offering]) -> str:
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
    quote = entry.quote
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


def _of_geography(log: MarketOfLog, geography: Geography | None) -> Iterator[str]:
    start_ns = log.opened.first_slot_start_ns
    given = (
        ()
        if geography is None
        else observations(geography, at_s=0.0, before_s=None, ts_event_ns=start_ns)
    )
    before, after = _places(log.seen), _places(given)
    if before != after:
        yield f"geography: expected {_listed(before)}, found {_listed(after)}"


def _places(seen: Sequence[RegionObserved | LinkObserved]) -> list[str]:
    return sorted(
        f"{entry.region.region_id} of {entry.region.gpus} GPUs at "
        f"{entry.region.energy_usd_per_kwh:g} USD/kWh"
        if isinstance(entry, RegionObserved)
        else f"{entry.link.source} to {entry.link.destination} at {entry.link.bytes_per_s:g} B/s"
        for entry in seen
    )


def _listed(places: Sequence[str]) -> str:
    return ", ".join(places) if places else "none"
