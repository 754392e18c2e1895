"""What withdrawing a job really does."""

# What knows gRPC is imported inside: it costs more than `--help` should.

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spotline.cli.calls import whole_job_id
from spotline.cli.jobs_view import plain
from spotline.cli.status_view import spent_micro_usd, status_phase
from spotline.cli.wording import placed_text, usd

if TYPE_CHECKING:
    from spotline.adapters.grpc.allocator.client import JobClient
    from spotline.application.allocator.messages import JobStatus
    from spotline.domain.jobs.lot import Lot

# Closing takes a turn of the selector; an open market does it at once.
_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancellation:
    """What became of a job that was to be withdrawn, in a sentence and as it stands."""

    status: JobStatus
    already_closed: bool
    said: str

    @property
    def job_id(self) -> str:
        """Which job."""
        return self.status.job.job_id

    def as_json(self) -> dict[str, Any]:
        """The same with the status as every command writes it."""
        return {
            "job_id": self.job_id,
            "already_closed": self.already_closed,
            "said": self.said,
            "status": plain(self.status),
        }


async def cancelled_job(address: str, prefix: str) -> Cancellation:
    """Withdraw a job, wait a little until it is closed, and say what that did."""
    from spotline.adapters.grpc.allocator.client import JobClient
    from spotline.application.market_view import MarketState

    async with JobClient(address) as client:
        job_id = await whole_job_id(client, prefix)
        before = await client.get(job_id)
        already = await client.cancel(job_id)
        if already:
            return Cancellation(status=before, already_closed=True, said=_was_over(before))
        ended = (await client.market()).state is MarketState.ENDED
        # In a market that has ended nothing closes it; one look is enough then.
        after = await _closed(client, job_id, patience_s=0.5 if ended else _PATIENCE_S)
    return Cancellation(
        status=after, already_closed=False, said=_said(after, _held(before), ended=ended)
    )


async def _closed(client: JobClient, job_id: str, *, patience_s: float) -> JobStatus:
    """The job once it is over, or as it stands when patience is."""
    status = await client.get(job_id)
    try:
        async with asyncio.timeout(patience_s):
            async for update in client.watch(job_id):
                status = update.status
                if status.state.over:
                    return status
    except TimeoutError:
        pass
    return await client.get(job_id)


def _held(status: JobStatus) -> tuple[Lot, ...]:
    return status.lots if status.view is None else status.view.held


def _was_over(status: JobStatus) -> str:
    return (
        f"was over already ({status_phase(status)}, {usd(spent_micro_usd(status))} USD spent); "
        "nothing changed"
    )


def _said(status: JobStatus, held: tuple[Lot, ...], *, ended: bool) -> str:
    spent = f"{usd(spent_micro_usd(status))} USD were spent"
    if status.state.over:
        what = f"{placed_text(held)} released" if held else "nothing was held"
        return f"{status_phase(status)}: {what}; {spent}"
    if ended:
        where = f"; it still holds {placed_text(held)}" if held else "; it holds nothing"
        return (
            "withdrawn, but not closed: the market has ended, so no slot follows in which "
            f"anything is decided{where}; {spent}; `spotline down --release` ends instances"
        )
    return f"withdrawn; it is closed with the next decision ({status_phase(status)} now); {spent}"
