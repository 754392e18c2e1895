"""`spotline demo`: the main job, end to end, in about a minute."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spotline.cli.doubts import PriceSanity, without_pause
from spotline.cli.identities import AskIdentity, asked_identity
from spotline.cli.priors import Priors, WarmStart
from spotline.cli.tables import print_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from spotline.bootstrap.system import SystemOptions
    from spotline.demo.run import DemoProgress, DemoRun
    from spotline.domain.market.market import Market

_SEED = 7
SIMULATED = "simulated"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(demo)


def demo(
    market: Annotated[
        Path | None, typer.Option(help="Market file to replay; a generated one by default.")
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(
            min=1,
            help="Jobs to submit; one of several states only model, tokens, deadline and value.",
        ),
    ] = 60,
    out: Annotated[
        Path | None, typer.Option(help="Folder for log, picture and stores; new each run.")
    ] = None,
    json_out: Annotated[
        str, typer.Option("--json", help="Also write the result as JSON to this file (- : stdout).")
    ] = "",
    seed: Annotated[int, typer.Option(help="Seed of the generated market and jobs.")] = _SEED,
    slot: Annotated[
        int,
        typer.Option(
            min=0, help="Slot length, seconds; 0: half an hour, or the market's own if longer."
        ),
    ] = 0,
    slots: Annotated[int, typer.Option(min=16, help="Slots of the market to run at most.")] = 600,
    nats_url: Annotated[
        str, typer.Option(envvar="SPOTLINE_NATS_URL", help="An external NATS; embedded by default.")
    ] = "",
    forecaster: Annotated[str, typer.Option(help="Forecaster by name; empty: the default.")] = "",
    warm_start: WarmStart = None,
    priors: Priors = True,
    price_sanity: PriceSanity = True,
    explain: Annotated[
        bool, typer.Option("--explain", help="Also show rules, weights, drafts and accounts.")
    ] = False,
    identity: AskIdentity = True,
    cloud: Annotated[
        str,
        typer.Option(help="simulated, or rehearsal-aws: AWS's own calls, to a rehearsal of it."),
    ] = SIMULATED,
    fail: Annotated[
        float, typer.Option(min=0, max=1, help="Of a rehearsal: share of calls that fail.")
    ] = 0.10,
    slot_wall: Annotated[
        float, typer.Option(min=0.2, help="Of a rehearsal: seconds of wall time in a slot.")
    ] = 3.5,
    disk_gb: Annotated[
        int,
        typer.Option(min=0, help="Of a rehearsal: GB of disks of an instance, if none are stated."),
    ] = 200,
    savings_plan: Annotated[
        int,
        typer.Option(
            min=0, help="Of a rehearsal: a plan that pays for so many of the dearest instances."
        ),
    ] = 0,
) -> None:
    """Run jobs with deadlines on a market, end to end, and show what it saved.

    Market events go over a real NATS JetStream, jobs over gRPC, provisioning to a simulated cloud.
    Then each simple rule runs the same jobs by itself, without the broker, for comparison.
    """
    if cloud != SIMULATED:
        from spotline.cli.demo_rehearsed import AskedRehearsal, rehearsed_demo

        asked = AskedRehearsal(
            cloud=cloud,
            market=market,
            jobs=jobs,
            out=out,
            json_out=json_out,
            seed=seed,
            slot_s=slot,
            slots=slots,
            warm_start=warm_start,
            priors=priors,
            identity=identity,
            fail=fail,
            slot_wall_s=slot_wall,
            disk_gb=disk_gb,
            plan_instances=savings_plan,
        )
        return rehearsed_demo(asked)
    from spotline.cli.accounts_view import beside_json
    from spotline.cli.demo_view import compile_once, opening, write_result
    from spotline.cli.failures import explained
    from spotline.demo.run import run_demo
    from spotline.demo.setup import demo_jobs, demo_market
    from spotline.domain.forecasting.registry import DEFAULT_FORECASTER, forecaster_factory
    from spotline.runtime.log import configure_logging

    configure_logging("warning")
    began, started_ns = time.monotonic(), time.time_ns()
    run_id, folder = _named(started_ns, out)
    with explained():
        traded = demo_market(market, seed=seed, slot_s=slot, most_slots=slots)
        todo = demo_jobs(traded, jobs, seed)
        forecaster_factory(named := forecaster or DEFAULT_FORECASTER)
        begun = (warm_start, priors)
        options = _options(traded, folder, begun, sanity=price_sanity, identity=identity)
        options = replace(options, nats_url=nats_url, forecaster=named)
    with beside_json(json_out):
        compile_once()
        print_line(opening(traded, jobs, run_id))
        run = _ran(
            lambda told: run_demo(
                options,
                todo,
                folder / "log",
                run_id=run_id,
                started_ns=started_ns,
                seeds={"market": seed, "jobs": seed, "platform": seed},
                told=told,
            ),
            traded,
            stderr=json_out == "-",
        )
        if isinstance(run, int):
            raise _stopped(run, folder)
        with explained():
            result = _report(run, folder, began, explain=explain)
    write_result(json_out, result)


def _named(started_ns: int, out: Path | None) -> tuple[str, Path]:
    """The run's id and folder."""
    run_id = time.strftime("demo-%Y%m%dT%H%M%SZ", time.gmtime(started_ns // 1_000_000_000))
    return run_id, out or Path("runs") / run_id


def _stopped(code: int, folder: Path) -> typer.Exit:
    print_line(f"stopped before the end; what was recorded is in {folder / 'log'}")
    return typer.Exit(code or 1)


def _options(
    market: Market,
    folder: Path,
    begun: tuple[Path | None, bool],
    *,
    sanity: bool,
    identity: bool,
) -> SystemOptions:
    """How the demo's system runs; `begun` are a file of weights, and whether priors are wanted."""
    from spotline.adapters.files.weights_file import weights_or_priors
    from spotline.application.selector.options import SelectorOptions, for_crowds
    from spotline.bootstrap.system import SystemOptions

    (store := folder / "store").mkdir(parents=True, exist_ok=True)
    warm_start, priors = begun
    weights = weights_or_priors(warm_start, priors=priors)
    return SystemOptions(
        market=market,
        store=store,
        ingest=without_pause(price_sanity=sanity),
        selector=for_crowds(SelectorOptions(warm_start=weights, limits=True, even_cells=True)),
        priors=priors,
        outlooks=False,  # there is no time between its slots to look ahead
        identity=asked_identity(store, asked=identity),
    )


def _ran(
    begin: Callable[[Callable[[DemoProgress], None]], Awaitable[DemoRun]],
    market: Market,
    *,
    stderr: bool,
) -> DemoRun | int:
    """Run to the end and return what was left, or the exit code of a run that was stopped."""
    from rich.console import Console

    from spotline.bootstrap.process import run_to_exit_code
    from spotline.cli.demo_view import ProgressShown

    ended: list[DemoRun] = []

    async def work() -> None:
        with ProgressShown(Console(stderr=stderr), market) as told:
            ended.append(await begin(told))

    code = run_to_exit_code(work())
    return code if code or not ended else ended[0]


def _report(run: DemoRun, folder: Path, began: float, *, explain: bool) -> dict[str, Any]:
    """Say what became of a run; returns it as JSON has it."""
    from spotline.adapters.eventlog.reader import EventLogReader
    from spotline.cli.accounts_view import result_lines
    from spotline.cli.demo_view import print_detail
    from spotline.replay.account import account, read_recorded, reconciled
    from spotline.replay.plots import plot_job

    made = account(read_recorded(run.log))
    picture = folder / "job.png"
    plot_job(EventLogReader(run.log), picture)
    agreed = reconciled(made, run.log, run.ledger)
    result = {
        **run.as_json(made.report),
        **made.as_json(),
        "reconciliation": agreed.as_json(),
        "wall_s": round(time.monotonic() - began, 1),
        "picture": str(picture),
    }
    for name, reason in sorted(run.refused.items()):
        print_line(f"{name} could not be completed: {reason}")
    if explain:
        print_detail(made, agreed, run, result)
    for line in result_lines(made, run.log):
        print_line(line)
    return result
