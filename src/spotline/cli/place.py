"""`spotline place`: where a pipeline could run, what that would cost, and which way is taken."""

# Imports of what the command uses are inside it: solvers and gRPC cost more than `--help` should.

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotline.cli.calls import EXIT_REFUSED, AsJson, answered
from spotline.cli.pipelines import DEFAULT_PLACER_ADDRESS, PlacerAddress
from spotline.cli.tables import Column, Kind, number_columns, print_line, print_table
from spotline.contracts.errors import ContractError

if TYPE_CHECKING:
    from spotline.application.placer.messages import ExplainedPath, Explanation, ExplanationRequest
    from spotline.domain.placement.submission import Pipeline

_NOBODY = "nobody"
_BYTES_PER_S_PER_GBIT = 1e9 / 8


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(place)


def place(
    file: Annotated[
        Path,
        typer.Argument(metavar="JOB.YAML", help="The pipeline; docs/pipeline-file.md shows one."),
    ],
    geography: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Regions and links, all of them free (docs/geography-format.md); else the "
            "placer is asked.",
        ),
    ] = None,
    cost: Annotated[
        str | None, typer.Option(help="What a GPU costs: energy or rent. Default: energy.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="Who chooses, such as spotline or bace_pipe.")
    ] = None,
    address: PlacerAddress = DEFAULT_PLACER_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show the paths a pipeline could take, with bottleneck and cost. Nothing is held.

    The chosen one is marked. Exits 1 if there is none.
    """
    from spotline.adapters.files.pipeline_file import read_stated_pipeline
    from spotline.application.placer.messages import ExplanationRequest
    from spotline.application.placer.options import named_basis
    from spotline.cli.failures import explained
    from spotline.cli.job_files import tenant_of_token
    from spotline.cli.jobs_view import plain, print_json
    from spotline.domain.placement.interface import CostBasis
    from spotline.domain.placement.methods.registry import METHODS

    with explained():
        stated = read_stated_pipeline(file)
        _check_choice("--cost", cost, [basis.value for basis in CostBasis])
        _check_choice("--method", method, METHODS)
        basis = named_basis(cost) if cost else None
        if geography is not None:
            # Nobody is asked, and nothing held: it does not matter whose it is.
            answer = _worked_out(stated.of_tenant(_NOBODY), method, cost, geography)
    if geography is None:
        tenant = tenant_of_token(address, as_json=as_json) if stated.needs_tenant else ""
        with explained():
            pipeline = stated.of_tenant(tenant)
        request = ExplanationRequest(pipeline=pipeline, method_id=method or "", basis=basis)
        answer = answered(_asked(request, address), as_json=as_json, sent=[(file, pipeline)])
    if as_json:
        print_json(plain(answer))
    else:
        _print(answer)
    if not any(path.chosen for path in answer.paths):
        raise typer.Exit(EXIT_REFUSED)


def _check_choice(option: str, chosen: str | None, known: Iterable[str]) -> None:
    """Refuse a name that is none of those."""
    names = list(known)
    if chosen and chosen not in names:
        raise ContractError(option, f"expected one of {', '.join(names)}, found {chosen!r}")


def _worked_out(
    pipeline: Pipeline, method: str | None, cost: str | None, file: Path
) -> Explanation:
    from spotline.adapters.files.geography.geography_file import read_geography
    from spotline.application.placer.messages import explain
    from spotline.application.placer.options import PlacerOptions, named_method
    from spotline.domain.placement.cost import usd_per_gpu_hour
    from spotline.domain.placement.interface import PlacementMoment, Residual

    default = PlacerOptions()
    options = PlacerOptions(method=method or default.method, cost=cost or default.cost)
    graph = read_geography(file).graph_at(0.0)
    moment = PlacementMoment(
        now_s=0.0,
        usd_per_gpu_hour=usd_per_gpu_hour(graph, options.basis),
        residual=Residual.of(graph),
    )
    return explain(pipeline.job(0.0), moment, named_method(options.method), options.basis)


async def _asked(request: ExplanationRequest, address: str) -> Explanation:
    from spotline.adapters.grpc.placer.client import PlacerClient

    async with PlacerClient(address) as client:
        return await client.explain(request)


_COLUMNS = (
    Column(""),
    Column("path (GPUs)", Kind.ID),
    Column("bottleneck", rank=3),
    Column("Gbit/s", Kind.NUMBER, 2),
    Column("s", Kind.NUMBER, 4),
    *number_columns("GPUs $", "egress $", "risk $", rank=5),
    Column("job h", Kind.NUMBER, 1),
    Column("job $", Kind.NUMBER),
)


def _print(answer: Explanation) -> None:
    styles = ["bold green" if path.chosen else "" for path in answer.paths]
    if answer.paths:
        print_table(_COLUMNS, [_row(path) for path in answer.paths], styles=styles)
    print_line(
        f"method {answer.method_id}, cost {answer.basis.value}; s, GPUs, egress, risk: an iteration"
    )
    chosen = any(path.chosen for path in answer.paths)
    verdict = f"{'chosen' if chosen else 'none chosen'}: {answer.reason}"
    if answer.earliest_finish_s:
        verdict += f"; it could be done in {answer.earliest_finish_s:.0f} s"
    print_line(verdict)


def _row(path: ExplainedPath) -> tuple[str, ...]:
    shares = " > ".join(f"{share.region_id} ({share.gpus})" for share in path.placement.path)
    joined = bool(path.bottleneck_source)
    return (
        "*" if path.chosen else "",
        shares,
        f"{path.bottleneck_source} > {path.bottleneck_destination}" if joined else "-",
        f"{path.bottleneck_bytes_per_s / _BYTES_PER_S_PER_GBIT:.3g}" if joined else "-",
        f"{path.placement.iteration_s:.3g}",
        f"{path.gpu_usd:.2g}",
        f"{path.egress_usd:.2g}",
        f"{path.risk_usd:.2g}",
        f"{path.expected_job_s / 3600:.3g}",
        f"{path.expected_job_usd:.4g}",
    )
