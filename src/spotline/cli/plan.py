"""`spotline plan`: what could be done with a job, before anything is bought."""

# Imports of what the command uses are inside it: gRPC and tables cost more than `--help` should.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotline.cli.calls import (
    DEFAULT_ADDRESS,
    EXIT_BAD_INPUT,
    EXIT_REFUSED,
    Address,
    AsJson,
    answered,
    fail,
    in_files,
)
from spotline.cli.job_files import market_ns, planned_jobs, stated_jobs
from spotline.cli.jobs_view import plain, print_completion, print_json, print_run, quote_line
from spotline.cli.likelihood import OnTime
from spotline.cli.plan_view import print_joint_plan, print_plan
from spotline.domain.units import utc_iso

if TYPE_CHECKING:
    from spotline.application.allocator.messages import PlanAnswer, PlanRequest, QuotaLimit
    from spotline.domain.jobs.draft import JobDraft
    from spotline.domain.jobs.job import Job

# In micro-USD it must fit a message's 64 bits.
_MOST_USD = 1e12


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(plan)


def plan(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="JOB.YAML...", help="Job files; several are planned together."),
    ],
    deadlines: Annotated[
        str,
        typer.Option(
            metavar="WHEN,...",
            help="Show what other deadlines would cost: durations from now in market time, such as "
            "24h,36h,48h, or times such as 2026-01-06T12:00:00Z.",
        ),
    ] = "",
    on_time: OnTime = None,
    every: Annotated[
        bool, typer.Option("--all", help="Show every policy that the job could draw, too.")
    ] = False,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Lay out this policy on every offering besides; repeat it for several."),
    ] = None,
    steps: Annotated[
        bool, typer.Option("--steps", help="Show the best --policy slot by slot.")
    ] = False,
    quota: Annotated[
        list[str] | None,
        typer.Option(
            help="Plan together, holding at most N instances of a quota pool at a time.",
            metavar="POOL=N",
        ),
    ] = None,
    budget: Annotated[
        float, typer.Option(help="Plan together, spending at most this, USD per hour; 0: any.")
    ] = 0.0,
    write_limits: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write --quota and --budget as limits that `spotline up --limits-file` enforces.",
        ),
    ] = None,
    egress: Annotated[
        float, typer.Option(help="Copying a checkpoint between regions, USD per GB.")
    ] = 0.0,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show what submitting a job now would bring: when, how likely, for how much. Nothing is bought.

    What a file that names a model leaves out is filled in first, and shown with who says so.
    Several jobs, or limits on what is held and spent, are planned together, up to the last deadline.
    Exits 1 where being on time is less likely than asked for.
    """
    from spotline.adapters.grpc.allocator.client import JobClient
    from spotline.application.allocator.messages import PlanRequest
    from spotline.domain.jobs.draft import JobDraft
    from spotline.domain.jobs.job import Job
    from spotline.domain.units import micro_usd_from_usd

    stated = stated_jobs(files, as_json=as_json, address=address)
    now_ns = market_ns(stated, address, as_json=as_json)
    ready = planned_jobs(stated, now_ns, as_json=as_json)
    read = tuple(prepared.job for prepared in ready)
    for name, usd in (("--budget", budget), ("--egress", egress)):
        if not 0 <= usd < _MOST_USD:
            said = f"{name} must be >= 0 and < {_MOST_USD:g}, was {usd:g}"
            fail(EXIT_BAD_INPUT, said, as_json=as_json)
    jobs = tuple(job for job in read if isinstance(job, Job))
    drafts = tuple(draft for draft in read if isinstance(draft, JobDraft))
    together = len(read) > 1 or bool(quota) or bool(budget)
    if together:
        _refuse_together(drafts, deadlines, as_json=as_json)
    if write_limits is not None and not (quota or budget):
        said = "--write-limits: expected --quota or --budget beside it, found neither"
        fail(EXIT_BAD_INPUT, said, as_json=as_json)
    least_ppm = 0 if on_time is None else round(on_time * 1e6)
    now = _Now(deadlines, address, now_ns, as_json=as_json)
    if together:
        request = PlanRequest(
            jobs=jobs,
            policy_ids=tuple(policy or ()),
            least_on_time_ppm=least_ppm,
            quotas=tuple(_quota(text, as_json=as_json) for text in quota or ()),
            budget_micro_usd_per_hour=micro_usd_from_usd(budget),
            egress_micro_usd_per_gb=micro_usd_from_usd(egress),
        )
    else:
        request = PlanRequest(
            job=jobs[0] if jobs else None,
            draft=drafts[0] if drafts else None,
            policy_ids=tuple(policy or ()),
            deadlines_ns=now.deadlines_ns(),
            least_on_time_ppm=least_ppm,
        )

    async def run() -> PlanAnswer:
        async with JobClient(address) as client:
            return await client.plan(request)

    sent = [(prepared.file, prepared.job) for prepared in ready]
    answer = answered(run(), as_json=as_json, sent=sent)
    if write_limits is not None and answer.feasible:
        _write_limits(write_limits, request, as_json=as_json)
    if as_json:
        print_json(plain(answer))
    elif answer.joint is not None:
        print_joint_plan(jobs, answer)
    else:
        _print_one_plan(_in_files(answer, sent), read[0], steps=steps, every=every)
    if not answer.feasible or not answer.likely_enough:
        raise typer.Exit(EXIT_REFUSED)


def _write_limits(file: Path, request: PlanRequest, *, as_json: bool) -> None:
    """Write what was planned within, beside the limits that hold where none are stated."""
    from spotline.adapters.files.limits_file import limits_text
    from spotline.domain.limits.spending import DEFAULT_SPENDING, SpendLimit

    budget = request.budget_micro_usd_per_hour
    planned = replace(
        DEFAULT_SPENDING,
        total=SpendLimit(micro_usd_per_hour=budget or None),
        quotas={limit.quota_pool: limit.instances for limit in request.quotas},
    )
    try:
        # A file that is there may hold limits that are in force.
        with file.open("x", encoding="utf-8") as opened:
            opened.write(limits_text(planned))
    except OSError as error:
        said = f"--write-limits: cannot write {file}: {error.strerror}"
        fail(EXIT_BAD_INPUT, said, as_json=as_json)
    typer.echo(f"limits written; enforce them with: spotline up --limits-file {file}", err=True)


def _refuse_together(drafts: Sequence[JobDraft], deadlines: str, *, as_json: bool) -> None:
    """End the command where something was given that is for one job alone."""
    if drafts:
        fail(
            EXIT_BAD_INPUT,
            "what leaves out its throughput is planned alone, without --quota and --budget",
            as_json=as_json,
        )
    if deadlines:
        fail(
            EXIT_BAD_INPUT,
            "--deadlines: expected one job, without --quota and --budget, found several or limits",
            as_json=as_json,
        )


class _Now:
    """What `--deadlines` says, and the market time that durations of it count from."""

    def __init__(self, text: str, address: str, now_ns: int | None, *, as_json: bool) -> None:
        self._parts = [part.strip() for part in text.split(",")] if text else []
        self._address = address
        self._now_ns = now_ns
        self._as_json = as_json

    def deadlines_ns(self) -> tuple[int, ...]:
        """Every deadline, ns since the epoch; ends the command where one is none."""
        return tuple(self._deadline_ns(part) for part in self._parts)

    def _deadline_ns(self, part: str) -> int:
        from spotline.adapters.files.units import seconds_of
        from spotline.domain.units import NS_PER_S, ns_from_rfc3339

        seconds = seconds_of(part)
        if seconds is not None and seconds > 0:
            return self._market_ns() + seconds * NS_PER_S
        try:
            return ns_from_rfc3339(part)
        except ValueError:
            said = (
                "--deadlines: expected durations > 0 such as 36h or times such as "
                f"2026-01-06T12:00:00Z, with commas between, found {part!r}"
            )
            fail(EXIT_BAD_INPUT, said, as_json=self._as_json)

    def _market_ns(self) -> int:
        from spotline.adapters.grpc.allocator.client import JobClient

        async def ask() -> int | None:
            async with JobClient(self._address) as client:
                clock = (await client.market()).clock
                return None if clock is None else clock.market_ns

        if self._now_ns is None:
            self._now_ns = answered(ask(), as_json=self._as_json)
        if self._now_ns is None:
            said = "no market is open yet that durations count from; try again when one is"
            fail(EXIT_REFUSED, said, as_json=self._as_json)
        return self._now_ns


def _print_one_plan(answer: PlanAnswer, job: Job | JobDraft, *, steps: bool, every: bool) -> None:
    if answer.completion is not None:
        print_completion(answer.completion)
    planned = job if answer.completion is None else answer.completion.job
    print_plan(answer, deadline_ns=planned.deadline.at_ns, steps=steps, every=every)
    quote, most = answer.on_demand_quote_micro_usd, answer.most_cost_micro_usd
    if quote and job.value_from_quote:
        typer.echo(quote_line(quote, most, by_quote=True))
    if job.run is not None:
        print_run(job.run)
    if answer.feasible:
        typer.echo("nothing was bought; hand it over with: spotline submit", err=True)


def _in_files(answer: PlanAnswer, sent: Sequence[tuple[Path, Job | JobDraft]]) -> PlanAnswer:
    """The answer, its reason against a plan in the words of the file that it is about."""
    reason, earliest_ns = answer.infeasible_reason, answer.earliest_feasible_deadline_ns
    earliest = utc_iso(earliest_ns) if earliest_ns else ""
    bad = in_files(sent, reason.partition(" ")[0], reason, earliest)
    return answer if bad is None else replace(answer, infeasible_reason=str(bad))


def _quota(text: str, *, as_json: bool) -> QuotaLimit:
    from spotline.application.allocator.messages import QuotaLimit

    pool, _, count = text.rpartition("=")
    if not pool or not count.isdecimal():
        fail(EXIT_BAD_INPUT, f"--quota must be POOL=N, was {text!r}", as_json=as_json)
    return QuotaLimit(quota_pool=pool, instances=int(count))
