"""`spotline market`: import, generate and describe market files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spotline.cli.failures import explained, writable
from spotline.cli.market_view import listing, print_offerings, print_statistics, summary
from spotline.cli.tables import print_line
from spotline.contracts.errors import ContractError
from spotline.domain.units import S_PER_HOUR

# numpy, pyarrow and matplotlib load inside the commands: --help must not wait for them.
if TYPE_CHECKING:
    from spotline.domain.market.market import Market
    from spotline.replay.pictures.market import DescribedMarket

market_app = typer.Typer(
    name="market", help="Import, generate and describe market files.", no_args_is_help=True
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(market_app)


_DEFAULT_START = "2026-01-05T00:00:00Z"
_DEFAULT_DAYS = 14.0
MOST_FILES = 4
LONGEST_SLOT_S = 31_622_400  # a year
# Ten years of slots of five minutes.
MOST_SLOTS = 1_000_000
# 2200-01-01T00:00:00Z: a time in a file may not be later.
LATEST_NS = 7_258_118_400_000_000_000
# As many as a market file may state.
MOST_INSTANCES = 1_000_000

_Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
_Out = Annotated[Path, typer.Option("--output", "-o", help="Market file to write (Parquet).")]
_Slot = Annotated[
    int, typer.Option("--slot", min=1, max=LONGEST_SLOT_S, help="Slot length in seconds.")
]


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
        int | None,
        typer.Option(
            min=1, max=LONGEST_SLOT_S, metavar="SECONDS", help="Resample to this slot length."
        ),
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
        _check_place("--output", output, files)
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
        wanted = slots or max(1.0, days * 24 * S_PER_HOUR / slot)
        start_ns = time_ns(start, "--start")
        _check_length(start_ns, wanted, slot, "--slots" if slots else "--days")
        _check_place("--output", output)
        market = generate(preset, seed=seed, slots=round(wanted), slot_s=slot, start_ns=start_ns)
        _write(market, output)
    _print_summary(market, output, as_json)


@market_app.command("describe")
def describe_command(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Market files; up to four are drawn abreast."),
    ],
    offering: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            help="Offering to draw; repeat for several, at most eight. By default those that "
            "differ most.",
        ),
    ] = None,
    instances: Annotated[
        int, typer.Option(min=1, max=MOST_INSTANCES, help="Instances that a job needs at once.")
    ] = 1,
    png: Annotated[
        Path | None,
        typer.Option(
            "--png", "--plot", metavar="PNG", help="Picture to make; by default beside the file."
        ),
    ] = None,
    no_plot: Annotated[bool, typer.Option("--no-plot", help="Draw nothing.")] = False,
    as_json: _Json = False,
) -> None:
    """Say and draw when a market has spot, how long it stays, and what it costs of on-demand.

    Shares are of the time in which so many instances are there. A stay that an end of the file cuts
    counts as lasting at least as long (Kaplan and Meier).
    """
    drawn = None if no_plot else png or _beside(files)
    with explained(as_json=as_json):
        if drawn is not None:
            _check_place("--png", drawn, files)
        described = _described(files, offering or (), instances)
        if drawn is not None:
            from spotline.replay.pictures.market import draw_markets

            with writable(drawn):
                draw_markets(described, drawn)
    if as_json:
        print(json.dumps(_described_as_json(files, described, drawn), indent=2))
        return
    for number, each in enumerate(described):
        if number:
            print_line()
        print_statistics(each)
    if drawn is not None:
        print_line(f"drawn to {drawn}")


def _beside(files: list[Path]) -> Path:
    """Where the picture goes if nobody says: beside the first file, named after all."""
    names = "-".join(file.stem for file in files[:MOST_FILES])
    return files[0].with_name(f"{names}.png")


def _described(
    files: list[Path], offering_ids: Sequence[str], instances: int
) -> list[DescribedMarket]:
    from spotline.adapters.market.parquet import read_market
    from spotline.domain.market.supply import measure_supply
    from spotline.replay.pictures.market import DescribedMarket

    if len(files) > MOST_FILES:
        raise ContractError("FILE", f"expected at most {MOST_FILES} files, found {len(files)}")
    markets = [read_market(file) for file in files]
    chosen = _chosen(files, markets, list(dict.fromkeys(offering_ids)), instances)
    return [
        DescribedMarket(
            name=file.name, market=market, supply=measure_supply(market, columns, instances)
        )
        for file, market, columns in zip(files, markets, chosen, strict=True)
    ]


def _chosen(
    files: list[Path], markets: list[Market], wanted: list[str], instances: int
) -> list[list[int]]:
    """Of each market the offerings to draw, by position."""
    from spotline.domain.market.supply import MOST_SHOWN, most_different, spot_columns

    if not wanted:
        return [most_different(market, instances) for market in markets]
    if len(wanted) > MOST_SHOWN:
        raise ContractError(
            "--offering", f"expected at most {MOST_SHOWN} offerings, found {len(wanted)}"
        )
    ids = [[offering.offering_id for offering in market.offerings] for market in markets]
    with_spot = [
        {market.offerings[column].offering_id: column for column in spot_columns(market)}
        for market in markets
    ]
    for name in wanted:
        if any(name in found for found in with_spot):
            continue
        if any(name in found for found in ids):
            raise ContractError(
                "--offering", f"expected an offering with spot, found the reservation {name}"
            )
        listed = listing([offering_id for found in with_spot for offering_id in found])
        raise ContractError("--offering", f"expected one of {listed}, found {name}")
    chosen = [sorted(found[name] for name in wanted if name in found) for found in with_spot]
    for file, columns in zip(files, chosen, strict=True):
        if not columns:
            raise ContractError(
                "--offering", f"expected at least one that {file} has, found {listing(wanted)}"
            )
    return chosen


def _described_as_json(
    files: list[Path], described: list[DescribedMarket], drawn: Path | None
) -> dict[str, Any]:
    from spotline.domain.market.statistics import measure

    markets = [
        summary(each.market, file)
        | {"statistics": asdict(measure(each.market)), "supply": each.supply.as_json()}
        for file, each in zip(files, described, strict=True)
    ]
    # Of a single file as it always was: the market itself.
    whole: dict[str, Any] = markets[0] if len(markets) == 1 else {"markets": markets}
    return whole if drawn is None else whole | {"plot": str(drawn)}


def _check_place(option: str, output: Path, inputs: Sequence[Path] = ()) -> None:
    """Refuse what cannot be written to before any work is done for it."""
    if any(output.resolve() == path.resolve() for path in inputs):
        raise ContractError(
            option, f"expected another file than those that are read, found {output}"
        )
    if output.is_dir():
        raise ContractError(option, f"expected a file to write, found the folder {output}")
    if not output.parent.is_dir():
        raise ContractError(
            option, f"expected a file in a folder that is there, found no folder {output.parent}"
        )


def _check_length(start_ns: int, slots: float, slot_s: int, option: str) -> None:
    from spotline.domain.units import NS_PER_S, utc_iso

    # Not `slots > MOST_SLOTS`: what is not a number is no length.
    if not slots <= MOST_SLOTS:
        raise ContractError(option, f"expected at most {MOST_SLOTS:,} slots, found {slots:,.0f}")
    end_ns = start_ns + round(slots) * slot_s * NS_PER_S
    if end_ns > LATEST_NS:
        raise ContractError(
            option,
            f"expected a market that ends before {utc_iso(LATEST_NS)}, found {slots:,.0f} slots of "
            f"{slot_s:,} s from {utc_iso(start_ns)}",
        )


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


def _print_summary(market: Market, path: Path, as_json: bool) -> None:
    said = summary(market, path)
    if as_json:
        print(json.dumps(said, indent=2))
        return
    print_offerings(market)
    print_line(
        f"{path}: {market.slots} slots of {market.slot_s} s, {said['start']} to {said['end']}"
    )
    print_line(f"source: {market.source}")
