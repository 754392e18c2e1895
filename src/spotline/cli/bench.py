"""`spotline bench`: what is claimed, measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import typer

from spotline.bench.cant_be_late.command import cant_be_late
from spotline.bench.decision.command import decision
from spotline.bench.faults.command import faults
from spotline.bench.fleet.command import fleet
from spotline.bench.forecast.command import forecast
from spotline.bench.headline.command import headline
from spotline.bench.knowledge.command import knowledge
from spotline.bench.placement.command import placement
from spotline.bench.quality.command import quality
from spotline.bench.quote.command import quote
from spotline.bench.skynomad.command import skynomad
from spotline.bench.stream.command import stream
from spotline.cli.failures import explained
from spotline.cli.identity_bench import identity
from spotline.cli.slot_bench import slot

bench_app = typer.Typer(name="bench", help="Measure decisions.", no_args_is_help=True)

_COMMANDS: Mapping[str, Callable[..., None]] = MappingProxyType(
    {
        "quality": quality,
        "quote": quote,
        "cant-be-late": cant_be_late,
        "decision": decision,
        "faults": faults,
        "fleet": fleet,
        "forecast": forecast,
        "headline": headline,
        "identity": identity,
        "knowledge": knowledge,
        "placement": placement,
        "skynomad": skynomad,
        "slot": slot,
        "stream": stream,
    }
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(bench_app, name="bench")


@bench_app.callback()
def root() -> None:
    """Measure decisions: their quality, their speed, those of whole fleets, quotes, the front page's numbers, forecasts, configuration knowledge, placement, streams; what identity costs; and what faults do."""


for _name, _command in _COMMANDS.items():
    bench_app.command(_name)(explained()(_command))
