"""`spotline demo --cloud rehearsal-aws`: the main job by AWS's own calls, and its bill to compare."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from spotline.cli.identities import asked_identity
from spotline.cli.tables import fact_lines, print_line

if TYPE_CHECKING:
    from spotline.demo.rehearsed.run import RehearsedRun, Rehearsing

# About five minutes at 3.5 s a slot; a run of more is asked for by --slots.
_MOST_SLOTS = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedRehearsal:
    """What was asked for on the command line."""

    cloud: str
    market: Path | None
    jobs: int
    out: Path | None
    json_out: str
    seed: int
    slot_s: int
    slots: int
    warm_start: Path | None
    priors: bool
    identity: bool
    fail: float
    slot_wall_s: float
    disk_gb: int
    plan_instances: int


def rehearsed_demo(asked: AskedRehearsal) -> None:
    """Run it, and say what became of it; exits with 1 where bills differ or something is left."""
    from spotline.cli.failures import explained

    with explained():
        _check_cloud(asked.cloud)
    from spotline.bootstrap.process import run_to_exit_code
    from spotline.cli.accounts_view import beside_json
    from spotline.cli.demo_view import compile_once, opening, write_result
    from spotline.demo.rehearsed.run import run_rehearsed
    from spotline.runtime.log import configure_logging

    began = time.monotonic()
    run_id = time.strftime("demo-%Y%m%dT%H%M%SZ", time.gmtime())
    folder = asked.out or Path("runs") / run_id
    with explained():
        rehearsing = _rehearsing(asked, folder, run_id)
        configure_logging("warning", file=folder / "up.log")
    with beside_json(asked.json_out):
        compile_once()
        print_line(opening(rehearsing.market, len(rehearsing.jobs), run_id))
        ended: list[RehearsedRun] = []

        async def work() -> None:
            ended.append(await run_rehearsed(rehearsing))

        with explained():
            code = run_to_exit_code(work())
        if code or not ended:
            print_line(f"stopped before the end; what was recorded is in {folder}")
            raise typer.Exit(code or 1)
        with explained():
            result = _report(ended[0], folder, began)
    write_result(asked.json_out, result)
    if not (result["bills_agree"] and not result["orphans"] and not result["unsettled"]):
        raise typer.Exit(1)


def _check_cloud(name: str) -> None:
    from spotline.contracts.errors import ConfigError
    from spotline.demo.rehearsed.process import REHEARSAL_AWS

    if name != REHEARSAL_AWS:
        raise ConfigError(f"--cloud must be simulated or {REHEARSAL_AWS}, was {name!r}")


def _rehearsing(asked: AskedRehearsal, folder: Path, run_id: str) -> Rehearsing:
    from dataclasses import replace

    from spotline.adapters.files.weights_file import weights_or_priors
    from spotline.application.selector.options import SelectorOptions
    from spotline.demo.rehearsed.run import Rehearsing
    from spotline.demo.setup import demo_market
    from spotline.replay.jobs import generated_jobs

    most = min(asked.slots, _MOST_SLOTS)
    market = demo_market(asked.market, seed=asked.seed, slot_s=asked.slot_s, most_slots=most)
    (store := folder / "store").mkdir(parents=True, exist_ok=True)
    weights = weights_or_priors(asked.warm_start, priors=asked.priors)
    return replace(
        Rehearsing(
            market=market,
            jobs=generated_jobs(market, asked.jobs, asked.seed),
            folder=folder,
            run_id=run_id,
            seed=asked.seed,
            fail=asked.fail,
            slot_wall_s=asked.slot_wall_s,
            disk_gb=asked.disk_gb,
            plan_instances=asked.plan_instances,
            selector=SelectorOptions(warm_start=weights, limits=True, even_cells=True),
            priors=asked.priors,
        ),
        identity=asked_identity(store, asked=asked.identity),
    )


def _report(ended: RehearsedRun, folder: Path, began: float) -> dict[str, Any]:
    from spotline.cli.accounts_view import result_lines
    from spotline.replay.account import account, read_recorded, reconciled

    run = ended.run
    made = account(read_recorded(run.log))
    agreed = reconciled(made, run.log, run.ledger)
    result = {
        **run.as_json(made.report),
        **made.as_json(),
        "reconciliation": agreed.as_json(),
        **ended.as_json(),
        "wall_s": round(time.monotonic() - began, 1),
    }
    for line in result_lines(made, run.log):
        print_line(line)
    refused = ", ".join(f"{count} {name}" for name, count in ended.refusals.items()) or "none"
    failed = ", ".join(f"{count} {name}" for name, count in ended.calls["failed"].items())
    for line in fact_lines(
        [
            (
                "settled",
                f"{ended.settled_micro_usd / 1e6:,.6f} USD, of it "
                f"{ended.disk_micro_usd / 1e6:,.6f} USD for disks",
            ),
            ("billed", f"{ended.cloud_billed_micro_usd / 1e6:,.6f} USD by the cloud"),
            ("left", f"{len(ended.orphans)} instances, {len(ended.unsettled)} bills not settled"),
            ("calls", f"{ended.calls['made']}; failed: {failed or 'none'}"),
            ("refusals", refused),
            ("kept in", str(folder)),
        ],
        None,
    ):
        print_line(line)
    return result
