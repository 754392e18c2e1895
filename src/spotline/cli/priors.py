"""`spotline priors`: what an installation knows before its market has shown anything."""

# Imports of what the commands use are inside them: benchmarks cost seconds.

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spotline.bench.command_options import RECORDED_DATA, DataOption, teller
from spotline.cli.failures import explained
from spotline.cli.jobs_view import print_json
from spotline.domain.units import S_PER_HOUR

if TYPE_CHECKING:
    from spotline.domain.beliefs.stock_laws import StockPriors

LAWS_FILE = "prior_laws.json"
WEIGHTS_FILE = "prior_weights.json"
STOCK_FILE = "stock_priors.json"

WarmStart = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Weights to start with, from --save-weights.")
]
Priors = Annotated[
    bool,
    typer.Option(
        envvar="SPOTLINE_PRIORS",
        help="Begin with the laws and weights in the wheel, learned on other markets.",
    ),
]

_COMMAND = "spotline priors build --out DIR"

priors_app = typer.Typer(
    name="priors",
    help="Laws and policy weights in the wheel, learned on public traces: show, build.",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.add_typer(priors_app, name="priors")


@priors_app.command()
def show(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Say what the priors in the wheel were learned from, and how they do on what they never saw."""
    from spotline.domain.beliefs.stock_laws import shipped_stock, stock_card
    from spotline.domain.market.prior_laws import shipped_card, shipped_priors

    card, stock = shipped_card(), shipped_stock()
    if as_json:
        told = {"sha256": stock.sha256, "card": stock_card()}
        print_json({"sha256": shipped_priors().sha256, "card": card, "stock": told})
        return
    _print_card(card, len(shipped_priors().laws))
    _print_stock(stock, stock_card())


@priors_app.command()
def build(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Where the files go.")],
    data: DataOption = RECORDED_DATA,
) -> None:
    """Learn priors again from the first halves of the public traces."""
    from spotline.bench.command_options import open_console
    from spotline.bench.priors.build import build_priors
    from spotline.bench.priors.stock import build_stock
    from spotline.domain.beliefs.stock_laws import stock_priors_to_json

    console = open_console()
    with explained():
        stock, stock_card = build_stock(data, command=_COMMAND)
        built = build_priors(data, command=_COMMAND, tell=teller(console))
        out.mkdir(parents=True, exist_ok=True)
        (out / STOCK_FILE).write_text(stock_priors_to_json(stock, stock_card), encoding="utf-8")
        (out / LAWS_FILE).write_text(built.laws_json, encoding="utf-8")
        (out / WEIGHTS_FILE).write_text(built.weights.to_json() + "\n", encoding="utf-8")
    laws = json.loads(built.laws_json)["laws"]
    _print_card(built.card, len(laws))
    _print_stock(stock, stock_card)


def _print_card(card: Mapping[str, Any], laws: int) -> None:
    from spotline.bench.command_options import open_console
    from spotline.replay.tables import plain_table

    console = open_console()
    sources = card["sources"]
    files = len({source["file"] for source in sources})
    console.print(
        f"{laws} laws from the first halves of {len(sources)} series in {files} files; weights from "
        f"{card['weights']['jobs']} jobs of {', '.join(card['weights']['families'])}",
        markup=False,
    )
    table = plain_table("First day told without its region, nats per slot (0 is best)", "kind")
    for column in ("series", "priors", "nothing known", "own law"):
        table.add_column(column, justify="right")
    for kind, row in card["leave_one_region_out"].items():
        table.add_row(
            kind,
            str(row["series"]),
            f"{row['nats_per_slot_priors']:.3f}",
            f"{row['nats_per_slot_nothing_known']:.3f}",
            f"{row['nats_per_slot_own_law']:.3f}",
        )
    console.print(table)


def _print_stock(stock: StockPriors, card: Mapping[str, Any]) -> None:
    from spotline.bench.command_options import open_console
    from spotline.domain.beliefs.stock_beliefs import StockBelief
    from spotline.domain.market.prior_laws import SLOT_S
    from spotline.replay.tables import plain_table

    console = open_console()
    learned = sum(series["learned"] for series in card["series"])
    console.print(
        f"on-demand stock: {learned} laws from the first half of {card['file']}, "
        f"{len(stock.laws) - learned} assumed",
        markup=False,
    )
    table = plain_table("On-demand stock before a launch has shown any", "GPU model")
    for column in ("refused, %", "reserve, h"):
        table.add_column(column, justify="right")
    for family in stock.families:
        belief = StockBelief.before(stock, family, SLOT_S)
        table.add_row(
            ", ".join(family.gpu_models) or "others",
            f"{100 * belief.out_chance():.1f}",
            f"{belief.reserve_slots() * SLOT_S / S_PER_HOUR:.1f}",
        )
    console.print(table)
