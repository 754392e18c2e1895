"""`spotline bench`: what is claimed, measured."""

from __future__ import annotations

import typer

from spotline.cli import (
    bench_cant_be_late,
    bench_decision,
    bench_forecast,
    bench_knowledge,
    bench_placement,
    bench_quality,
    bench_stream,
)

bench_app = typer.Typer(name="bench", help="Measure decisions.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(bench_app, name="bench")


@bench_app.callback()
def root() -> None:
    """Measure decisions: their quality, their speed, forecasts, configuration knowledge, placement, streams."""


for module in (
    bench_quality,
    bench_cant_be_late,
    bench_decision,
    bench_forecast,
    bench_knowledge,
    bench_placement,
    bench_stream,
):
    module.register(bench_app)
