"""What a platform may change of a job that runs, and whether the changed job can be taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spotline.application.admission import Refused, check_job
from spotline.application.market_view import MarketView
from spotline.contracts.reasons import Reason
from spotline.domain.jobs.job import Deadline, Job, OnLimit
from spotline.domain.units import PPM, utc_iso

CHANGEABLE = ("deadline", "value_micro_usd", "budget_micro_usd", "on_limit")
"""The fields of a job that an update may name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChange:
    """The fields of a job that are to change (`mask`), and their new values; others are not read.

    With an `etag` it is refused where the job has changed since.
    """

    job_id: str
    mask: tuple[str, ...]
    deadline: Deadline | None = None
    value_micro_usd: int = 0
    budget_micro_usd: int = 0
    on_limit: OnLimit | None = None
    etag: str = ""
    request_id: str = ""


def changeable(job: Job) -> Mapping[str, Any]:
    """The fields of a job that an update may change, by name."""
    return {name: getattr(job, name) for name in CHANGEABLE}


def bad_mask(mask: Sequence[str]) -> str:
    """What is wrong with an update's mask, empty for nothing."""
    known = ", ".join(CHANGEABLE)
    if not mask:
        return f"update_mask must name one or more of {known}, was empty"
    unknown = [name for name in mask if name not in CHANGEABLE]
    if unknown:
        return f"update_mask must name {known} only, was {', '.join(unknown)}"
    return ""


def changed(job: Job, change: JobChange) -> Job:
    """The job with the change.

    Raises
    ------
    ValueError
        The changed job contradicts itself; each problem begins with its field.
    """
    values = {name: getattr(change, name) for name in change.mask}
    if values.get("deadline", job.deadline) is None:
        raise ValueError("deadline must be given where update_mask names it")
    return replace(job, **values)


def left_of(job: Job, progress_ppm: int) -> Job | None:
    """The job with the work that is left of it, None where none is."""
    if progress_ppm >= PPM:
        return None
    amount = job.work.amount * (PPM - progress_ppm) / PPM
    return replace(job, work=replace(job.work, amount=amount))


def check_change(market: MarketView, left: Job | None, change: JobChange) -> Refused | None:
    """Say why a new deadline cannot be, as a submission is told; None where it can.

    `left` is the changed job with the work that is left of it, None where none is. A deadline is
    looked at only where it changes: money is the owner's to take away in any case.
    """
    if "deadline" not in change.mask or left is None:
        return None
    if left.deadline.expires_ns <= market.next_slot_start_ns - market.slot_ns:
        return Refused(
            field="deadline",
            message=f"must lie ahead, was {utc_iso(left.deadline.expires_ns)}",
            reason=Reason.FIELD_INVALID,
        )
    refused = check_job(market, left)
    return None if refused is None else _of_change(refused)


def _of_change(refused: Refused) -> Refused:
    return replace(
        refused,
        field=refused.field.removeprefix("job."),
        others=tuple(_of_change(other) for other in refused.others),
    )
