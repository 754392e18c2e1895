"""Pipelines as the commands print them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spotline.cli.tables import Column, Kind, print_facts, print_table
from spotline.cli.wording import NOTHING, clock_time, moment, short_ids, short_moment, usd

if TYPE_CHECKING:
    from spotline.application.placer.messages import PlacementStatus


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
        parts.append(f"done at {moment(status.finish_ns)}")
    return ", ".join(parts)


def change_line(status: PlacementStatus, wall_ns: int) -> str:
    """One change of a watched pipeline, as it was seen at a wall time."""
    return (
        f"{clock_time(wall_ns)} wall  {phase_line(status)}  {_share(status)}  "
        f"{usd(status.cost_micro_usd)} USD"
    )


def print_pipelines(found: Sequence[PlacementStatus]) -> None:
    """One row per pipeline."""
    ids = short_ids([status.pipeline.job_id for status in found])
    print_table(
        (
            Column("job", Kind.ID),
            Column("model", Kind.SENTENCE, 4),
            Column("phase"),
            Column("done", Kind.NUMBER, 1),
            Column("path (GPUs)", Kind.ID, 3),
            Column("ends", rank=2),
            Column("cost USD", Kind.NUMBER, 1),
            Column("moves", Kind.NUMBER, 5),
            Column("tenant", rank=6),
        ),
        [
            (
                ids[status.pipeline.job_id],
                status.pipeline.model_name or NOTHING,
                status.phase.value,
                _share(status),
                path_text(status),
                short_moment(status.finish_ns),
                usd(status.cost_micro_usd),
                str(status.moves),
                status.pipeline.tenant,
            )
            for status in found
        ],
    )


def print_pipeline(status: PlacementStatus) -> None:
    """Everything of one pipeline."""
    pipeline, placement = status.pipeline, status.placement
    deadline_ns = status.submitted_ns + round(pipeline.deadline_s * 1e9)
    rows = [
        ("job", pipeline.job_id),
        ("model", pipeline.model_name or "-"),
        ("tenant", pipeline.tenant),
        ("request", pipeline.client_request_id),
        ("phase", status.phase.value),
        ("submitted", moment(status.submitted_ns)),
        ("deadline", moment(deadline_ns) if pipeline.deadline_s else "-"),
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
        ("ended" if status.phase.over else "ends", moment(status.finish_ns)),
        ("moves", str(status.moves)),
        ("cost so far", f"{usd(status.cost_micro_usd)} USD"),
    ]
    if status.ledger_micro_usd:
        rows.append(("in the ledger", f"{usd(status.ledger_micro_usd)} USD"))
    if status.earliest_finish_ns:
        rows.append(("possible", f"{moment(status.earliest_finish_ns)} at the earliest"))
    rows.append(("why", status.reason or "-"))
    print_facts(rows)


def _share(status: PlacementStatus) -> str:
    return f"{100 * status.iterations_done / status.pipeline.iterations:.0f} %"
