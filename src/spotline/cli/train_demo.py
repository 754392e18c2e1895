"""`spotline train-demo`: jobs trained for real on this machine, interrupted, resized, resumed."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from spotline.demo.train.proof import Proof
    from spotline.demo.train.report import JobFared, TrainReport
    from spotline.demo.train.run import TrainProgress

_SEED = 2026
_SPEED = 60.0
_LOCAL, _REHEARSED = "local", "rehearsal-aws"
_NEEDED = ("torch", "transformers", "peft", "accelerate")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="train-demo")(train_demo)


def train_demo(
    json_out: Annotated[
        str, typer.Option("--json", help="Also write the result as JSON to this file (- : stdout).")
    ] = "",
    out: Annotated[
        Path | None, typer.Option(help="Folder for log, picture and stores; new each run.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            envvar="SPOTLINE_DATA",
            help="Folder of recorded traces; a generated market where there are none.",
        ),
    ] = None,
    cache: Annotated[
        Path, typer.Option(help="Folder of the base model and of undisturbed runs, kept.")
    ] = Path("runs/train-cache"),
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the window, and of what is taken back when.")
    ] = _SEED,
    speed: Annotated[
        float, typer.Option(min=1.0, help="Market seconds in a second of wall time.")
    ] = _SPEED,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "error",
    cloud: Annotated[
        str,
        typer.Option(help="local, or rehearsal-aws: processes of a rehearsed AWS (spotline[aws])."),
    ] = _LOCAL,
) -> None:
    """Train four small models by their deadlines on this machine, whatever is taken away meanwhile.

    A Llama of a million parameters is LoRA-tuned by the Hugging Face Trainer. Instances are
    processes with a share of a core; a recorded market takes them back, most of them without notice.
    Ends with 1 where something that is to be proved does not hold.
    """
    from rich.console import Console

    from spotline.bootstrap.planners import compile_planners, planners_compiled
    from spotline.bootstrap.process import run_to_exit_code
    from spotline.cli.failures import explained
    from spotline.contracts.errors import ConfigError
    from spotline.runtime.log import configure_logging

    console = Console(stderr=json_out == "-")
    configure_logging(log_level)
    with explained():
        if cloud not in (_LOCAL, _REHEARSED):
            raise ConfigError(f"--cloud must be {_LOCAL} or {_REHEARSED}, was {cloud!r}")
        if cloud == _REHEARSED and find_spec("boto3") is None:
            raise ConfigError("boto3 must be installed: pip install 'spotline[aws]'")
        missing = [name for name in _NEEDED if find_spec(name) is None]
        if missing:
            raise ConfigError(
                f"{', '.join(missing)} must be installed: run `make train-demo`, which makes an "
                "environment of its own, or install spotline[train]"
            )
    from spotline.demo.train.proof import ProofOptions, prove

    if not planners_compiled():
        console.print("compiling the planners: once per release, about a minute")
        compile_planners()
    options = ProofOptions(
        folder=out or _new_folder(),
        cache=cache.resolve(),
        data=data,
        seed=seed,
        speed=speed,
        rehearsed=cloud == _REHEARSED,
    )
    proofs: list[Proof] = []

    async def work() -> None:
        proofs.append(
            await prove(
                options,
                say=lambda words: console.print(
                    words, markup=False, highlight=False, soft_wrap=True
                ),
                told=_Teller(console),
            )
        )

    with explained():
        code = run_to_exit_code(work())
    if code or not proofs:
        console.print("[yellow]stopped before the end; what was recorded is in[/]", options.folder)
        raise typer.Exit(code or 1)
    failures = _told(proofs[0], json_out, console)
    if failures:
        raise typer.Exit(1)


def _told(proof: Proof, json_out: str, console: Any) -> list[str]:
    """Show what came of it; returns what does not hold."""
    _show(proof.report, console)
    console.print(
        f"picture  {proof.picture}\nlog      {proof.run.log}  "
        f"(spotline replay verify {proof.run.log})",
        highlight=False,
        soft_wrap=True,
    )
    result = json.dumps(proof.report.as_json(), indent=2) + "\n"
    if json_out == "-":
        sys.stdout.write(result)
    elif json_out:
        Path(json_out).write_text(result, encoding="utf-8")
    failures = proof.report.failures()
    for failure in failures:
        console.print(
            f"does not hold: {failure}", style="red", markup=False, highlight=False, soft_wrap=True
        )
    return failures


def _new_folder() -> Path:
    import time

    return Path("runs") / time.strftime("train-%Y%m%dT%H%M%SZ", time.gmtime())


class _Teller:
    """Says now and then how the run stands."""

    def __init__(self, console: Any) -> None:
        self._console = console
        self._said = -1

    def __call__(self, progress: TrainProgress) -> None:
        if progress.slot <= self._said or progress.slot % 5:
            return
        self._said = progress.slot
        self._console.print(
            f"slot {progress.slot}/{progress.slots}: {len(progress.closed)}/{progress.jobs} jobs "
            f"over, {progress.held} instances held",
            highlight=False,
        )


def _show(report: TrainReport, console: Any) -> None:
    from spotline.replay.tables import plain_table

    # A column for each job: four of them fit into 80 characters, a row for each does not.
    table = plain_table("Trained for real", "")
    rows: dict[str, list[str]] = {}
    for job in report.jobs:
        table.add_column(job.task.name, justify="right", no_wrap=True)
        for name, value in _rows(job):
            rows.setdefault(name, []).append(value)
    for name, values in rows.items():
        table.add_row(name, *values)
    console.print(table)
    numbers = report.as_json()
    console.print(
        f"{numbers['interruptions']} interruptions, {numbers['without_notice']} without notice; "
        f"{numbers['steps_lost']} of {numbers['steps_total']} updates made again; "
        f"{_compared(numbers['saving_percent'])}; {numbers['wall_s']} s",
        highlight=False,
    )


def _compared(saving_percent: Any) -> str:
    how = "cheaper" if saving_percent >= 0 else "dearer"
    return f"{abs(saving_percent):.1f} % {how} than on demand"


def _rows(job: JobFared) -> Iterator[tuple[str, str]]:
    """How a job fared, measure by measure."""
    evidence, account = job.evidence, job.account
    yield "on time", "yes" if job.on_time else "NO"
    yield "updates", str(account.steps)
    yield "made again", str(account.steps_lost)
    yield "starts", str(len(evidence.generations))
    yield "resizes", str(account.resizes)
    yield "instances taken back", str(len(evidence.taken_back))
    yield "of them without notice", str(evidence.without_notice)
    yield "saves on notice", f"{evidence.saves_completed} of {evidence.saves_tried}"
    gap = job.loss_gap
    yield "held-out loss, % off", "no result" if math.isnan(gap) else f"{100 * gap:+.2f}"
    yield "spread of seeds, %", f"{100 * job.spread:.2f}"
    yield "cost, USD", f"{job.cost_micro_usd / 1e6:.2f}"
    yield "MSU, simulated", f"{job.msu_micro_usd / 1e6:.2f}"
    yield "on demand, simulated", f"{job.on_demand_micro_usd / 1e6:.2f}"
