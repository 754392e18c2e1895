"""`spotline market`: import, generate and describe market files."""

from __future__ import annotations

import json
from dataclasses import asdict
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from spotline.cli.failures import explained, writable
from spotline.contracts.errors import ContractError
from spotline.domain.units import NS_PER_S, S_PER_HOUR, utc_iso

# numpy, pyarrow and matplotlib load inside the commands: --help must not wait for them.
if TYPE_CHECKING:
    from spotline.domain.market.market import Market
    from spotline.domain.market.statistics import MarketStatistics, OfferingStatistics

market_app = typer.Typer(
    name="market", help="Import, generate and describe market files.", no_args_is_help=True
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(market_app)


_DEFAULT_START = "2026-01-05T00:00:00Z"
# Of half an hour, in 57 years.
_MOST_SLOTS = 1_000_000
_DEFAULT_DAYS = 14.0

_Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
_Out = Annotated[Path, typer.Option("--output", "-o", help="Market file to write (Parquet).")]
_Slot = Annotated[int, typer.Option("--slot", min=1, help="Slot length in seconds.")]


@market_app.command("import")
def import_command(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files of the source.")],
    source_format: Annotated[
        str,
        typer.Option("--format", help="skypilot, aws-spot-price-history, prime-intellect or csv."),
    ],
    output: _Out,
    price: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|USD",
            help="Spot price: USD per instance-hour, or an AWS spot price history file.",
        ),
    ] = None,
    on_demand_usd: Annotated[
        str | None, typer.Option(metavar="USD", help="On-demand price per instance-hour.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="First slot, such as 2023-08-27T00:00:00Z."),
    ] = None,
    instance_type: Annotated[
        str | None, typer.Option(help="Instance type to import, or to look up prices of.")
    ] = None,
    slot: Annotated[
        int | None, typer.Option(min=1, metavar="SECONDS", help="Resample to this slot length.")
    ] = None,
    spot_available: Annotated[
        int | None, typer.Option(min=0, help="Constant spot count for a source without counts.")
    ] = None,
    zone: Annotated[
        list[str] | None, typer.Option(help="Zone or region to keep; repeat for several.")
    ] = None,
    as_json: _Json = False,
) -> None:
    """Import recorded market data as a market file."""
    with explained(as_json=as_json):
        from spotline.adapters.market.importing import import_market
        from spotline.adapters.market.options import ImportOptions
        from spotline.adapters.market.parse import time_ns

        options = ImportOptions(
            price=None if price is None else _price(price),
            on_demand_usd=None if on_demand_usd is None else _usd(on_demand_usd),
            start_ns=None if start is None else time_ns(start, "--start"),
            instance_type=instance_type,
            slot_s=slot,
            spot_available=spot_available,
            zones=tuple(zone or ()),
        )
        market = import_market(source_format, files, options)
        _write(market, output)
    _print_summary(market, output, as_json)


@market_app.command("generate")
def generate_command(
    output: _Out,
    preset: Annotated[
        str, typer.Option(help="mixed, cloud-gang, cloud-zones or neocloud.")
    ] = "mixed",
    seed: Annotated[int, typer.Option(min=0, help="Seed; the same seed, the same market.")] = 0,
    slot: _Slot = 1800,
    slots: Annotated[
        int | None, typer.Option(min=1, help="Number of slots, instead of --days.")
    ] = None,
    days: Annotated[float, typer.Option(min=0.01, help="Length in days.")] = _DEFAULT_DAYS,
    start: Annotated[str, typer.Option(metavar="TIME", help="First slot.")] = _DEFAULT_START,
    as_json: _Json = False,
) -> None:
    """Generate a market with the statistics of measured ones."""
    with explained(as_json=as_json):
        from spotline.adapters.market.parse import time_ns
        from spotline.domain.market.generate import PRESETS, generate

        if preset not in PRESETS:
            known = ", ".join(PRESETS)
            raise ContractError("--preset", f"expected one of {known}, found {preset!r}")
        count = slots or max(1.0, days * 24 * S_PER_HOUR / slot)
        if not count <= _MOST_SLOTS:
            option = "--slots" if slots else "--days"
            raise ContractError(
                option, f"expected at most {_MOST_SLOTS:,} slots, found {count:,.0f}"
            )
        market = generate(
            preset,
            seed=seed,
            slots=round(count),
            slot_s=slot,
            start_ns=time_ns(start, "--start"),
        )
        _write(market, output)
    _print_summary(market, output, as_json)


@market_app.command("describe")
def describe_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Market file.")],
    plot: Annotated[
        Path | None,
        typer.Option(metavar="PNG", help="Draw the market there; by default beside the file."),
    ] = None,
    no_plot: Annotated[bool, typer.Option("--no-plot", help="Draw nothing.")] = False,
    as_json: _Json = False,
) -> None:
    """Say how prices and availability in a market file behave, and draw them."""
    drawn = None if no_plot else plot or file.with_suffix(".png")
    with explained(as_json=as_json):
        from spotline.adapters.market.parquet import read_market
        from spotline.domain.market.statistics import measure

        market = read_market(file)
        statistics = measure(market)
        if drawn is not None:
            from spotline.adapters.market.plot import plot_market

            with writable(drawn):
                plot_market(market, drawn)
    if as_json:
        described = _summary(market, file) | {"statistics": asdict(statistics)}
        if drawn is not None:
            described["plot"] = str(drawn)
        print(json.dumps(described, indent=2))
        return
    console = Console()
    _print_statistics(console, market, statistics)
    if drawn is not None:
        console.print(f"drawn to {drawn}", highlight=False, soft_wrap=True)


def _usd(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise ContractError(
            "--on-demand-usd", f"expected USD per instance-hour, found {text!r}"
        ) from error


def _price(text: str) -> Path | Decimal:
    path = Path(text)
    if path.exists():
        return path
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise ContractError(
            "--price", f"expected USD per instance-hour or an existing file, found {text!r}"
        ) from error


def _write(market: Market, output: Path) -> None:
    from spotline.adapters.market.parquet import write_market

    with writable(output):
        write_market(market, output)


def _summary(market: Market, path: Path) -> dict[str, Any]:
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


def _print_summary(market: Market, path: Path, as_json: bool) -> None:
    summary = _summary(market, path)
    if as_json:
        print(json.dumps(summary, indent=2))
        return
    console = Console()
    console.print(_offerings_table(market))
    console.print(
        f"{path}: {market.slots} slots of {market.slot_s} s, "
        f"{summary['start']} to {summary['end']}",
        highlight=False,
        soft_wrap=True,
    )
    console.print(f"source: {market.source}", highlight=False, markup=False)


def _offerings_table(market: Market) -> Table:
    from spotline.domain.market.offering import Provenance

    table = _table("Offerings")
    table.add_column("GPUs")
    for heading in ("spot\nUSD/h", "on-demand\nUSD/h", "spot\ninstances"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("counts")
    for column, offering in enumerate(market.offerings):
        spot = market.spot_price_micro_usd[:, column]
        first = market.quote(0, column)
        unknown = first.spot_available.provenance is Provenance.UNKNOWN
        counts = market.spot_available[:, column]
        table.add_row(
            offering.offering_id,
            f"{offering.gpus_per_instance}x {offering.gpu_model}",
            f"{spot.min() / 1e6:.3f}..{spot.max() / 1e6:.3f}",
            f"{first.on_demand_price_micro_usd / 1e6:.3f}",
            "-" if unknown else f"{counts.min()}..{counts.max()}",
            first.spot_available.provenance.value,
        )
    return table


def _print_statistics(console: Console, market: Market, statistics: MarketStatistics) -> None:
    console.print(
        f"{market.slots} slots of {market.slot_s} s ({statistics.duration_h / 24:.1f} days) "
        f"from {utc_iso(market.start_ns)}",
        highlight=False,
    )
    console.print(f"source: {market.source}", highlight=False, markup=False)
    console.print()
    console.print(_price_table(statistics.offerings))
    known = [offering for offering in statistics.offerings if offering.availability is not None]
    if not known:
        console.print("availability: counts unknown")
        return
    console.print(_availability_table(known))
    console.print(
        "1 h error: mean absolute change over an hour (prices: % of the mean; counts: instances); "
        "ac: autocorrelation",
        highlight=False,
    )
    if statistics.any_up_fraction is not None and len(known) > 1:
        console.print(
            f"at least one offering up: {statistics.any_up_fraction:.1%} of slots", highlight=False
        )


def _table(title: str) -> Table:
    table = Table(
        title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
    )
    table.add_column("offering", overflow="fold")
    return table


def _price_table(offerings: tuple[OfferingStatistics, ...]) -> Table:
    table = _table("Spot price, USD per instance-hour")
    for heading in (
        "mean",
        "min",
        "max",
        "of on-\ndemand",
        "moves\n/day",
        "1 h\nerror",
        "ac\n1 h",
        "ac\n24 h",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for offering in offerings:
        price = offering.price
        table.add_row(
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
    return table


def _availability_table(offerings: list[OfferingStatistics]) -> Table:
    table = _table("Available spot instances (up: at least one; full: the most seen)")
    for heading in (
        "mean/\nmost",
        "up",
        "full",
        "1 h\nerror",
        "ac\n1 h",
        "ac\n24 h",
        "up h\nmean/p95",
        "down h\nmean/p95",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for offering in offerings:
        counts = offering.availability
        if counts is None:
            continue
        runs = [
            "-" if run is None else f"{run.mean_h:.1f}/{run.p95_h:.0f}"
            for run in (counts.up_runs, counts.down_runs)
        ]
        table.add_row(
            offering.offering_id,
            f"{counts.mean_instances:.1f}/{counts.most_instances}",
            f"{counts.up_fraction:.0%}",
            f"{counts.full_fraction:.0%}",
            _or_dash(counts.persistence_error_1h_instances, ".2f"),
            _or_dash(counts.autocorrelation_1h, ".2f"),
            _or_dash(counts.autocorrelation_24h, ".2f"),
            *runs,
        )
    return table


def _or_dash(value: float | None, form: str, unit: str = "") -> str:
    return "-" if value is None else f"{value:{form}}{unit}"
