"""What owners do: hand a job in, change it, end it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from spotline.application.allocator.messages import PlanAnswer, PlanRequest
from spotline.application.allocator.updates import JobChange, changed, left_of
from spotline.application.page.acting_ports import Acts
from spotline.application.page.acts import ActDone, ActField, Follows, FormSaid
from spotline.application.read_model.ports import InputProblem, refused_input
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import Deadline, Job
from spotline.domain.units import PPM, utc_iso

_MOST_FILE = 60_000
_JOB = ActField(name="job_id", label="Job", note="its id", required=True)

ReadJob = Callable[[str, str, int | None], Job | JobDraft]
"""Reads a job file's text, as a tenant's where it says of none, at a market time; `ViewRefused`."""


@dataclass(frozen=True, slots=True)
class Submit:
    """Hand a job in."""

    read: ReadJob
    name: str = "submit"
    title: str = "Hand in a job"
    says: str = "Paste a job file. Nothing is bought before you have seen its quote."
    fields: tuple[ActField, ...] = (
        ActField(name="file", label="Job file (YAML)", kind="long", required=True),
    )

    async def follows(self, acts: Acts, said: FormSaid) -> Follows:
        """Its quote."""
        job = await self._job(acts, said)
        answer = await acts.jobs.plan(
            PlanRequest(job=job) if isinstance(job, Job) else PlanRequest(draft=job)
        )
        planned = job if answer.completion is None else answer.completion.job
        name = f"{job.name or job.client_request_id} of tenant {job.tenant}"
        return _quoted(
            f"{name} is handed in, and bought for from the next slot on.", answer, planned
        )

    async def do(self, acts: Acts, said: FormSaid, request_id: str) -> ActDone:
        """Submit it; equal files are the same job."""
        receipt = await acts.jobs.submit(await self._job(acts, said))
        done = "was there already" if receipt.already_submitted else "is handed in"
        return ActDone(
            says=f"Job {receipt.job_id[:8]} {done}.",
            path=f"/jobs/{receipt.job_id}",
            see="See the job",
        )

    async def _job(self, acts: Acts, said: FormSaid) -> Job | JobDraft:
        text = said.text("file", required=True, longest=_MOST_FILE)
        clock = (await acts.jobs.market()).clock
        return self.read(text, said.tenant, None if clock is None else clock.market_ns)


@dataclass(frozen=True, slots=True)
class Update:
    """Change deadline, budget or value of a job."""

    name: str = "update"
    title: str = "Change a job"
    says: str = "A new deadline, budget or value for a job that goes on. What is empty stays."
    fields: tuple[ActField, ...] = (
        _JOB,
        ActField(
            name="deadline",
            label="Deadline",
            note="a time such as 2026-03-01T12:00:00Z; a soft one keeps how long it lasts",
        ),
        ActField(name="budget_usd", label="Budget, USD", note="the most it may cost; 0: no bound"),
        ActField(name="value_usd", label="Value, USD", note="what finishing on time is worth"),
    )

    async def follows(self, acts: Acts, said: FormSaid) -> Follows:
        """A new quote for the work that is left."""
        status = await acts.jobs.get(said.text("job_id", required=True))
        change = self._change(status.job, status.etag, said)
        try:
            job = changed(status.job, change)
        except ValueError as error:
            raise refused_input(
                InputProblem(field="", expected="values that fit the job", found=str(error))
            ) from error
        says = f"{_name(status.job)}: {', '.join(_changes(status.job, job))}."
        left, keeps = left_of(job, status.progress_ppm), {"etag": status.etag}
        if left is None:
            return Follows(says=(says, "All of its work is done."), keeps=keeps)
        answer = await acts.jobs.plan(PlanRequest(job=left))
        before = None if status.view is None else status.view.outlook
        found = _quoted(says, answer, left)
        # What is left is quoted; what was spent before is of no account to what is decided now.
        more = f"Of its work {100 - status.progress_ppm * 100 / PPM:.1f} % is left: that is quoted."
        return replace(found, says=(*found.says, more), before=before, keeps=keeps)

    async def do(self, acts: Acts, said: FormSaid, request_id: str) -> ActDone:
        """Change it, unless it has changed since the page was made."""
        job_id = said.text("job_id", required=True)
        status = await acts.jobs.get(job_id)
        change = self._change(status.job, said.text("etag") or status.etag, said)
        receipt = await acts.jobs.update(replace(change, request_id=request_id))
        return ActDone(
            says=f"{_name(receipt.status.job)} is changed.",
            path=f"/jobs/{receipt.status.job.job_id}",
            see="See the job",
        )

    def _change(self, job: Job, etag: str, said: FormSaid) -> JobChange:
        values: dict[str, Any] = {}
        at_ns = said.time_ns("deadline")
        if at_ns is not None:
            values["deadline"] = _moved(job.deadline, at_ns)
        for name, into in (("budget_usd", "budget_micro_usd"), ("value_usd", "value_micro_usd")):
            micro_usd = said.micro_usd(name)
            if micro_usd is not None:
                values[into] = micro_usd
        if not values:
            raise refused_input(
                InputProblem(field="", expected="a deadline, a budget or a value", found="none")
            )
        return JobChange(job_id=job.job_id, mask=tuple(values), etag=etag, **values)


@dataclass(frozen=True, slots=True)
class Cancel:
    """End a job."""

    name: str = "cancel"
    title: str = "End a job"
    says: str = "Withdraw a job: what it holds is given back, and it is not taken up again."
    fields: tuple[ActField, ...] = (_JOB,)

    async def follows(self, acts: Acts, said: FormSaid) -> Follows:
        """What is given up."""
        status = await acts.jobs.get(said.text("job_id", required=True))
        if status.state.over:
            said_so = f"{_name(status.job)} is over already: {status.state.value}."
            return Follows(says=(said_so,), can_be=False)
        done = f"{status.progress_ppm * 100 / PPM:.1f} % of its work is done"
        spent = f"{status.cost_micro_usd / 1e6:,.2f} USD were spent on it"
        return Follows(
            says=(
                f"{_name(status.job)} ends. {done}, and {spent}.",
                "What it holds is given back. It cannot be taken up again; its checkpoints stay.",
            )
        )

    async def do(self, acts: Acts, said: FormSaid, request_id: str) -> ActDone:
        """Cancel it."""
        job_id = said.text("job_id", required=True)
        over = await acts.jobs.cancel(job_id, request_id=request_id)
        return ActDone(
            says=f"Job {job_id[:8]} {'was over already' if over else 'is withdrawn'}.",
            path=f"/jobs/{job_id}",
            see="See the job",
        )


def _quoted(says: str, answer: PlanAnswer, job: Job | JobDraft) -> Follows:
    lines = [says]
    if not answer.feasible:
        lines.append(f"It would be refused: {answer.infeasible_reason}.")
        if answer.earliest_feasible_deadline_ns:
            lines.append(f"Ask for {utc_iso(answer.earliest_feasible_deadline_ns)} or later.")
    return Follows(
        says=tuple(lines),
        outlook=answer.outlook,
        deadline_ns=job.deadline.at_ns,
        on_demand_micro_usd=answer.on_demand_quote_micro_usd,
        can_be=answer.feasible,
    )


def _changes(before: Job, after: Job) -> list[str]:
    said = []
    if before.deadline != after.deadline:
        said.append(
            f"deadline {utc_iso(before.deadline.at_ns)} becomes {utc_iso(after.deadline.at_ns)}"
        )
    if before.budget_micro_usd != after.budget_micro_usd:
        said.append(
            f"budget {_bound(before.budget_micro_usd)} becomes {_bound(after.budget_micro_usd)}"
        )
    if before.value_micro_usd != after.value_micro_usd:
        said.append(
            f"value {before.value_micro_usd / 1e6:,.2f} USD becomes "
            f"{after.value_micro_usd / 1e6:,.2f} USD"
        )
    return said or ["nothing changes"]


def _bound(micro_usd: int) -> str:
    return f"{micro_usd / 1e6:,.2f} USD" if micro_usd else "no bound"


def _name(job: Job) -> str:
    return f"{job.name or 'Job'} ({job.job_id[:8]})"


def _moved(before: Deadline, at_ns: int) -> Deadline:
    """The deadline at another time; a soft one loses its value over as long as before."""
    return replace(before, at_ns=at_ns, expires_ns=at_ns + before.expires_ns - before.at_ns)
