"""`spotline up`: every service in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(up)


def up(
    market: Annotated[Path, typer.Option(help="Market file to replay (docs/market-format.md).")],
    store: Annotated[
        Path, typer.Option(help="Folder of broker, ledger and log; continued if it exists.")
    ] = Path("spotline-store"),
    address: Annotated[
        str,
        typer.Option(
            help="Where the allocator's gRPC listens.", envvar="SPOTLINE_ALLOCATOR_ADDRESS"
        ),
    ] = "127.0.0.1:7070",
    configurator_address: Annotated[
        str,
        typer.Option(
            help="Where the configurator's gRPC listens.",
            envvar="SPOTLINE_CONFIGURATOR_ADDRESS",
        ),
    ] = "127.0.0.1:7071",
    knowledge: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Measured runs, from `spotline knowledge import`."),
    ] = None,
    knowledge_stack: Annotated[
        str,
        typer.Option(help="Software stack to assume; by default `live`, or that of most runs."),
    ] = "",
    placer_address: Annotated[
        str,
        typer.Option(help="Where the placer's gRPC listens.", envvar="SPOTLINE_PLACER_ADDRESS"),
    ] = "127.0.0.1:7072",
    geography: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Regions and links to place pipelines on (docs/geography-format.md).",
        ),
    ] = None,
    placement_method: Annotated[
        str, typer.Option(help="How pipelines are placed, such as spotline or bace_pipe.")
    ] = "spotline",
    placement_cost: Annotated[
        str, typer.Option(help="What a GPU of a placement costs: energy or rent.")
    ] = "energy",
    analytics_address: Annotated[
        str,
        typer.Option(
            help="Where the analytics' gRPC listens.", envvar="SPOTLINE_ANALYTICS_ADDRESS"
        ),
    ] = "127.0.0.1:7073",
    nats_url: Annotated[
        str, typer.Option(envvar="SPOTLINE_NATS_URL", help="An external NATS; embedded by default.")
    ] = "",
    slots_per_s: Annotated[
        float, typer.Option(min=0.0, help="Replay speed; 0 is as fast as slots are decided.")
    ] = 0.0,
    wall_clock: Annotated[
        bool, typer.Option(help="One slot per slot length, shifted to begin now.")
    ] = False,
    wait_for_work: Annotated[
        bool, typer.Option(help="Stop market time while no job and no pipeline is under way.")
    ] = False,
    slot: Annotated[int, typer.Option(min=0, help="Slot length, seconds; 0 keeps it.")] = 0,
    health_port: Annotated[int, typer.Option(min=0, help="Port of /healthz; 0 is any.")] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the addresses as one line of JSON.")
    ] = False,
    warm_start: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Weights to start with, from --save-weights."),
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run broker and all services until Ctrl-C; a store is continued where it stopped."""
    import json
    import time
    from collections.abc import Mapping
    from dataclasses import replace

    from spotline.adapters.files.weights_file import read_weights
    from spotline.adapters.market.parquet import read_market
    from spotline.application.market_ingest.handler import IngestOptions
    from spotline.application.placer.options import PlacerOptions
    from spotline.application.selector.state import SelectorOptions
    from spotline.bootstrap.planners import compile_planners, planners_compiled
    from spotline.bootstrap.process import run_to_exit_code
    from spotline.bootstrap.system import SystemOptions
    from spotline.bootstrap.up import run_up
    from spotline.cli.failures import explained
    from spotline.runtime.log import configure_logging

    with explained():
        configure_logging(log_level)
        traded = read_market(market)
        if slot:
            traded = traded.resampled(slot)
        if wall_clock:
            shift_ns = time.time_ns() - traded.start_ns
            traded = replace(
                traded, start_ns=traded.start_ns + shift_ns, quoted_ns=traded.quoted_ns + shift_ns
            )
        store.mkdir(parents=True, exist_ok=True)
        interval_s = float(traded.slot_s) if wall_clock else 0.0
        if slots_per_s and not wall_clock:
            interval_s = 1.0 / slots_per_s
        options = SystemOptions(
            market=traded,
            store=store,
            nats_url=nats_url,
            allocator_address=address,
            configurator_address=configurator_address,
            knowledge=knowledge,
            knowledge_stack=knowledge_stack,
            placer_address=placer_address,
            geography=geography,
            analytics_address=analytics_address,
            placer=PlacerOptions(method=placement_method, cost=placement_cost),
            selector=SelectorOptions(warm_start=read_weights(warm_start)),
            ingest=IngestOptions(
                slot_interval_s=interval_s, barrier=not wall_clock, wait_for_work=wait_for_work
            ),
        )

    def told(addresses: Mapping[str, str]) -> None:
        if as_json:
            typer.echo(json.dumps(addresses))
        else:
            for name, address in addresses.items():
                typer.echo(f"{name:<12} {address}", err=True)

    if not planners_compiled():
        typer.echo("compiling the planners: once per release, about a minute", err=True)
        compile_planners()
    raise typer.Exit(run_to_exit_code(run_up(options, health_port=health_port, told=told)))
