"""Pipelines as the commands print them."""

# Imports of what is printed with are inside: tables cost more than `--help` should.

from __future__ import annotations

from typing import TYPE_CHECKING

from spotline.cli.jobs_view import console

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from spotline.application.placer.messages import PlacementStatus

_MICRO_USD_PER_USD = 1e6
_S_PER_HOUR = 3600


def path_text(status: PlacementStatus) -> str:
    """Where a pipeline runs, in the order of its stages: `ireland (24) > virginia (16)`."""
    if status.placement is None:
        return "-"
    return " > ".join(f"{share.region_id} ({share.gpus})" for share in status.placement.path)


def phase_line(status: PlacementStatus) -> str:
    """One line on where a pipeline stands."""
    parts = [status.phase.value]
    if status.placement is not None:
        parts.append(f"on {path_text(status)}")
    if status.finish_ns and not status.phase.over:
        parts.append(f"done at {_time(status.finish_ns)}")
    return ", ".join(parts)


def pipelines_table(found: tuple[PlacementStatus, ...]) -> Table:
    """One row per pipeline."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("job", "tenant", "model", "phase"):
        table.add_column(name, overflow="fold")
    for name in ("done", "cost USD", "moves"):
        table.add_column(name, justify="right")
    table.add_column("path (GPUs)", overflow="fold")
    table.add_column("ends")
    for status in found:
        table.add_row(
            status.pipeline.job_id[:12],
            _as_written(status.pipeline.tenant),
            _as_written(status.pipeline.model_name or "-"),
            status.phase.value,
            _share(status),
            _usd(status),
            str(status.moves),
            _as_written(path_text(status)),
            _time(status.finish_ns),
        )
    return table


def print_pipeline(status: PlacementStatus) -> None:
    """Everything of one pipeline."""
    from rich.table import Table

    pipeline, placement = status.pipeline, status.placement
    deadline_ns = status.submitted_ns + round(pipeline.deadline_s * 1e9)
    rows = [
        ("job", pipeline.job_id),
        ("model", pipeline.model_name or "-"),
        ("tenant", pipeline.tenant),
        ("request", pipeline.client_request_id),
        ("phase", status.phase.value),
        ("submitted", _time(status.submitted_ns)),
        ("deadline", _time(deadline_ns) if pipeline.deadline_s else "-"),
        ("GPUs", f"{pipeline.min_gpus}..{pipeline.max_gpus}"),
        (
            "done",
            f"{status.iterations_done} of {pipeline.iterations} iterations ({_share(status)})",
        ),
        ("path (GPUs)", path_text(status)),
    ]
    if placement is not None:
        rows += [
            ("iteration", f"{placement.iteration_s:.4g} s"),
            ("reserved", f"{placement.reserved_bytes_per_s * 8 / 1e9:.3g} Gbit/s on each link"),
        ]
    rows += [
        ("ended" if status.phase.over else "ends", _time(status.finish_ns)),
        ("moves", str(status.moves)),
        ("cost so far", f"{_usd(status)} USD"),
    ]
    if status.ledger_micro_usd:
        billed = status.ledger_micro_usd / _MICRO_USD_PER_USD
        rows.append(("in the ledger", f"{billed:,.2f} USD"))
    if status.earliest_finish_ns:
        rows.append(("possible", f"{_time(status.earliest_finish_ns)} at the earliest"))
    rows.append(("why", status.reason or "-"))
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, _as_written(value))
    console().print(table)


def _as_written(text: str) -> Text:
    """What others wrote, brackets included."""
    from rich.text import Text

    return Text(text)


def _share(status: PlacementStatus) -> str:
    return f"{100 * status.iterations_done / status.pipeline.iterations:.0f} %"


def _usd(status: PlacementStatus) -> str:
    return f"{status.cost_micro_usd / _MICRO_USD_PER_USD:,.2f}"


def _time(ns: int) -> str:
    from spotline.domain.units import utc_iso

    return utc_iso(ns) if ns else "-"
