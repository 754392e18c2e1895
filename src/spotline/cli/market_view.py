"""Markets as text: what they offer, how they behave, and what spot they have for a job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spotline.cli.tables import Column, Kind, print_line, print_table
from spotline.domain.units import NS_PER_S, utc_iso

# numpy loads inside the commands: --help must not wait for it.
if TYPE_CHECKING:
    from spotline.domain.market.market import Market
    from spotline.domain.market.statistics import OfferingStatistics
    from spotline.domain.market.supply import MarketSupply, OfferingSupply
    from spotline.replay.pictures.market import DescribedMarket

_MOST_LISTED = 8
_OFFERING = Column("offering", Kind.ID)


def summary(market: Market, path: Path) -> dict[str, Any]:
    """What a market file holds, by name."""
    end_ns = market.start_ns + market.slots * market.slot_s * NS_PER_S
    return {
        "path": str(path),
        "source": market.source,
        "start": utc_iso(market.start_ns),
        "end": utc_iso(end_ns),
        "slots": market.slots,
        "slot_s": market.slot_s,
        "offerings": [asdict(offering) for offering in market.offerings],
    }


def listing(names: Iterable[str]) -> str:
    """Names in a row; of many the first, and how many more there are."""
    known = list(dict.fromkeys(names))
    more = len(known) - _MOST_LISTED
    return ", ".join(known[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def print_offerings(market: Market) -> None:
    """Print what a market offers: GPUs, prices in USD per instance-hour, counts."""
    from spotline.domain.market.offering import Provenance

    columns = (
        _OFFERING,
        Column("GPUs", rank=1),
        Column("spot USD/h", Kind.NUMBER),
        Column("on-demand USD/h", Kind.NUMBER),
        Column("spot instances", Kind.NUMBER),
        Column("counts", rank=2),
    )
    rows = []
    for place, offering in enumerate(market.offerings):
        spot = market.spot_price_micro_usd[:, place]
        first = market.quote(0, place)
        unknown = first.spot_available.provenance is Provenance.UNKNOWN
        counts = market.spot_available[:, place]
        rows.append(
            (
                offering.offering_id,
                f"{offering.gpus_per_instance}x {offering.gpu_model}",
                f"{spot.min() / 1e6:.3f}..{spot.max() / 1e6:.3f}",
                f"{first.on_demand_price_micro_usd / 1e6:.3f}",
                "-" if unknown else f"{counts.min()}..{counts.max()}",
                first.spot_available.provenance.value,
            )
        )
    print_table(columns, rows)


def print_statistics(described: DescribedMarket) -> None:
    """Print how a market behaves, and what spot it has for a job."""
    from spotline.domain.market.statistics import measure

    market = described.market
    statistics = measure(market)
    print_line(
        f"{described.name}: {market.slots} slots of {market.slot_s} s "
        f"({statistics.duration_h / 24:.1f} days) from {utc_iso(market.start_ns)}"
    )
    print_line(f"source: {market.source}")
    print_line()
    _print_prices(statistics.offerings)
    print_line()
    known = [offering for offering in statistics.offerings if offering.availability is not None]
    if not known:
        print_line("availability: counts unknown")
        return
    _print_availability(known)
    print_line(
        "1 h error: mean absolute change over an hour (prices: % of the mean; counts: instances); "
        "ac: autocorrelation"
    )
    if statistics.any_up_fraction is not None and len(known) > 1:
        print_line(f"at least one offering up: {statistics.any_up_fraction:.1%} of slots")
    print_line()
    _print_supply(described.supply, len(market.offerings))


def _print_prices(offerings: Sequence[OfferingStatistics]) -> None:
    print_line("Spot price, USD per instance-hour")
    columns = (
        _OFFERING,
        Column("mean", Kind.NUMBER),
        Column("min", Kind.NUMBER, rank=1),
        Column("max", Kind.NUMBER, rank=1),
        Column("of on-demand", Kind.NUMBER),
        Column("moves/day", Kind.NUMBER, rank=2),
        Column("1 h error", Kind.NUMBER, rank=2),
        Column("ac 1 h", Kind.NUMBER, rank=3),
        Column("ac 24 h", Kind.NUMBER, rank=3),
    )
    rows = []
    for offering in offerings:
        price = offering.price
        rows.append(
            (
                offering.offering_id,
                f"{price.mean_usd:.3f}",
                f"{price.min_usd:.3f}",
                f"{price.max_usd:.3f}",
                f"{price.mean_fraction_of_on_demand:.0%}",
                f"{price.changes_per_day:.1f}",
                _or_dash(price.persistence_error_1h_percent, ".2f", "%"),
                _or_dash(price.autocorrelation_1h, ".2f"),
                _or_dash(price.autocorrelation_24h, ".2f"),
            )
        )
    print_table(columns, rows)


def _print_availability(offerings: Sequence[OfferingStatistics]) -> None:
    print_line("Available spot instances (up: at least one; full: the most seen)")
    columns = (
        _OFFERING,
        Column("mean/most", Kind.NUMBER),
        Column("up", Kind.NUMBER),
        Column("full", Kind.NUMBER, rank=2),
        Column("1 h error", Kind.NUMBER, rank=2),
        Column("ac 1 h", Kind.NUMBER, rank=3),
        Column("ac 24 h", Kind.NUMBER, rank=3),
        Column("up h mean/p95", Kind.NUMBER, rank=1),
        Column("down h mean/p95", Kind.NUMBER, rank=1),
    )
    rows = []
    for offering in offerings:
        counts = offering.availability
        if counts is None:
            continue
        runs = [
            "-" if run is None else f"{run.mean_h:.1f}/{run.p95_h:.0f}"
            for run in (counts.up_runs, counts.down_runs)
        ]
        rows.append(
            (
                offering.offering_id,
                f"{counts.mean_instances:.1f}/{counts.most_instances}",
                f"{counts.up_fraction:.0%}",
                f"{counts.full_fraction:.0%}",
                _or_dash(counts.persistence_error_1h_instances, ".2f"),
                _or_dash(counts.autocorrelation_1h, ".2f"),
                _or_dash(counts.autocorrelation_24h, ".2f"),
                *runs,
            )
        )
    print_table(columns, rows)


def _print_supply(supply: MarketSupply, total: int) -> None:
    few = len(supply.offerings)
    chosen = f"{few} of {total} offerings" if few < total else "all offerings"
    plural = "s" if supply.instances > 1 else ""
    print_line(f"Spot for a job of {supply.instances} instance{plural}, {chosen}")
    if not supply.offerings:
        print_line("no spot: all offerings are reservations")
        return
    columns = (
        _OFFERING,
        Column("there", Kind.NUMBER),
        Column("median stay", Kind.NUMBER),
        Column("p10 stay", Kind.NUMBER),
        Column("longest", Kind.NUMBER, rank=2),
        Column("stays", Kind.NUMBER, rank=3),
        Column("cut", Kind.NUMBER, rank=3),
        Column("of on-demand", Kind.NUMBER, rank=4),
        Column("discount", Kind.NUMBER, rank=1),
    )
    print_table(columns, [_supply_row(offering) for offering in supply.offerings])
    print_line(
        "there: share of the time; median and p10 stay: half and a tenth of the stays are over by "
        "then; cut: lasted at least as long as was seen"
    )
    if few > 1 and supply.share_any is not None and supply.share_all is not None:
        print_line(
            f"any of the {few} has enough {supply.share_any:.1%} of the time, all at once "
            f"{supply.share_all:.1%} ({supply.if_independent[0]:.1%} and "
            f"{supply.if_independent[-1]:.1%} if each came and went by itself)"
        )


def _supply_row(offering: OfferingSupply) -> tuple[str, ...]:
    from spotline.replay.pictures.style import duration

    curve, stays = offering.survival, offering.stays
    lengths = ["-", "-", "-"]
    if curve is not None:
        lengths = [
            f"> {duration(curve.longest_h)}" if hours is None else duration(hours)
            for hours in (curve.median_h, curve.p10_h, curve.longest_h)
        ]
    return (
        offering.offering_id,
        _or_dash(offering.share_there, ".1%"),
        *lengths,
        str(len(stays.hours)),
        str(stays.cut),
        f"{offering.mean_price_ratio:.1%}",
        f"{1.0 - offering.mean_price_ratio:.1%}",
    )


def _or_dash(value: float | None, form: str, unit: str = "") -> str:
    return "-" if value is None else f"{value:{form}}{unit}"
