"""From what was decided of pipelines to the commands for the cloud actuator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spotline.application.placer.pipeline_run import PipelineRun
from spotline.application.placer.renting import Rental, lots_of
from spotline.application.placer.state import PlacerState, micro_usd
from spotline.application.spec import Context
from spotline.domain.events.placement import (
    PipelineProvisioningCommanded,
    PlacementDecided,
    PlacementEnded,
    PlacementOutcome,
)
from spotline.domain.jobs.lot import Lot


def commands_for(
    state: PlacerState, settled: Sequence[PlacementDecided | PlacementEnded], ctx: Context
) -> list[PipelineProvisioningCommanded]:
    """What must be held differently from now on, and copies to be paid; by pipeline, offering."""
    rentals = state.rentals()
    last = {decision.job_id: decision for decision in settled}
    commands = []
    for job_id, one in sorted(last.items()):
        run = state.runs[job_id]
        placement = one.placement if isinstance(one, PlacementDecided) else None
        wanted = lots_of(placement, rentals)
        copied = _copied(state, run, one, rentals)
        for offering_id in sorted(wanted.keys() | run.told.keys() | run.held.keys()):
            target = wanted.get(offering_id, Lot(offering_id=offering_id))
            told = run.told.get(offering_id)
            transfer = copied.get(offering_id, 0)
            same = told is not None and target == told.lot and not run.broken
            if same and not transfer:
                continue
            pool = state.quota_pool(offering_id) if told is None else told.quota_pool
            commands.append(
                PipelineProvisioningCommanded(
                    command_id=ctx.derive_id(f"pipeline:{job_id}:{offering_id}"),
                    job_id=job_id,
                    tenant=run.pipeline.tenant,
                    quota_pool=pool,
                    target=target,
                    transfer_cost_micro_usd=transfer,
                )
            )
    return commands


def corrections_for(
    state: PlacerState, told: set[str], ctx: Context
) -> list[PipelineProvisioningCommanded]:
    """Command again a pipeline that holds more than it was told to: nothing else releases it."""
    commands = []
    for job_id, run in sorted(state.renting.items()):
        if job_id in told:
            continue
        for offering_id in run.surplus():
            known = run.told.get(offering_id)
            commands.append(
                PipelineProvisioningCommanded(
                    command_id=ctx.derive_id(f"surplus:{job_id}:{offering_id}"),
                    job_id=job_id,
                    tenant=run.pipeline.tenant,
                    quota_pool=state.quota_pool(offering_id) if known is None else known.quota_pool,
                    target=Lot(offering_id=offering_id) if known is None else known.lot,
                )
            )
    return commands


def _copied(
    state: PlacerState,
    run: PipelineRun,
    one: PlacementDecided | PlacementEnded,
    rentals: Mapping[str, Rental],
) -> dict[str, int]:
    """What copying the checkpoint costs, on the offering it goes to, once the job begins there."""
    if isinstance(one, PlacementEnded) or one.placement is None or not one.iterations_done:
        return {}
    if one.outcome is not PlacementOutcome.STARTED and run.waits_for(
        lots_of(one.placement, rentals)
    ):
        return {}  # only when its instances are there
    first = one.placement.path[0].region_id
    rental, usd = rentals.get(first), state.copy_usd(run, first)
    return {rental.offering.offering_id: micro_usd(usd)} if rental is not None and usd else {}
