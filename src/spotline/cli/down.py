"""`spotline down`: ends what `spotline up` runs, and says or ends what goes on costing."""

# What the command uses is imported inside: it costs more than `--help` should.

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotline.cli.calls import EXIT_BAD_INPUT, EXIT_REFUSED, fail
from spotline.cli.configuring import ConfigFile, config_of
from spotline.cli.stores import StoreOption, store_folder
from spotline.cli.tables import print_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spotline.bootstrap.running_process import RunningProcess
    from spotline.bootstrap.standing_costs import StandingCost

_PATIENCE_S = 60.0
_LOOK_EVERY_S = 0.1


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(down)


def down(
    context: typer.Context,
    config: ConfigFile = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave instances running, and costing.")
    ] = False,
    release: Annotated[
        bool, typer.Option("--release", help="End all instances; jobs go on when it is up again.")
    ] = False,
    store: StoreOption = None,
) -> None:
    """End a running system. Say what becomes of its instances: --keep or --release.

    Settings of its cloud (SPOTLINE_CLOUD_<NAME>_*, --config) must be those that it was started with.
    Exits 1 where instances are still there after a minute.
    """
    import asyncio

    from spotline.bootstrap.clouds import cloud_of
    from spotline.bootstrap.running_process import RunningProcess
    from spotline.bootstrap.standing_costs import (
        noted_cloud,
        noted_mode,
        release_store,
        standing_costs,
    )
    from spotline.cli.failures import explained

    if keep == release:
        found = "both" if keep else "neither"
        fail(EXIT_BAD_INPUT, f"down: expected --keep or --release, found {found}", as_json=False)
    store = store_folder(store, quiet=True)
    with explained():
        # Stores of before 0.3.0 note none, and were on the simulated one.
        name = noted_cloud(store) or "simulated"
        chosen = cloud_of(os.environ, name, noted_mode(store), config_of(context))
        running = RunningProcess.of(store)
        if running is not None and running.is_alive:
            _end(running)
        if keep:
            say_standing(asyncio.run(standing_costs(store)), store)
            return
        done = asyncio.run(release_store(store, chosen, patience_s=_PATIENCE_S))
    typer.echo(f"released {len(done.instance_ids)} instances")
    if done.unheard:
        print_line(
            f"nobody knows what came of {len(done.unheard)} launches, which nothing shows: run it "
            "again in five minutes",
            err=True,
            style="yellow",
        )
    if done.still_there:
        fail(EXIT_REFUSED, f"still there: {', '.join(done.still_there)}", as_json=False)


def say_standing(costs: Sequence[StandingCost], store: Path) -> None:
    """Say what goes on costing, and how to end it."""
    if not costs:
        typer.echo("no instance goes on costing", err=True)
        return
    total = sum(cost.instances for cost in costs)
    print_line(f"{total} instances go on running, and costing:", err=True, style="yellow")
    for cost in costs:
        print_line(
            f"  job {cost.job_id[:12]}  {cost.instances} x {cost.capacity_type} of "
            f"{cost.offering_id}",
            err=True,
        )
    typer.echo(f"end them with: spotline down --release --store {store}", err=True)


def _end(running: RunningProcess) -> None:
    os.kill(running.pid, signal.SIGTERM)
    give_up_s = time.monotonic() + _PATIENCE_S
    while running.is_alive:
        if time.monotonic() > give_up_s:
            fail(EXIT_REFUSED, f"process {running.pid} has not ended in a minute", as_json=False)
        time.sleep(_LOOK_EVERY_S)
