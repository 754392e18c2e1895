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
from spotline.cli.plan_view import print_joint_plan, print_plan
from spotline.domain.units import utc_iso

if TYPE_CHECKING:
    from spotline.application.allocator.messages import PlanAnswer, QuotaLimit
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
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Consider this policy; repeat it for several. Default: a small set."),
    ] = None,
    steps: Annotated[bool, typer.Option("--steps", help="Show the chosen option by slot.")] = False,
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
    egress: Annotated[
        float, typer.Option(help="Copying a checkpoint between regions, USD per GB.")
    ] = 0.0,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show what could be done with a job, with cost and probability. Nothing is bought.

    What a file that names a model leaves out is filled in first, and shown with who says so.
    Several jobs, or limits on what is held and spent, are planned together over the slots that are
    forecast. Exits 1 if a deadline cannot be met.
    """
    from spotline.adapters.grpc.allocator.client import JobClient
    from spotline.application.allocator.messages import PlanRequest
    from spotline.domain.jobs.draft import JobDraft
    from spotline.domain.jobs.job import Job
    from spotline.domain.units import micro_usd_from_usd

    stated = stated_jobs(files, as_json=as_json)
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
    if together and drafts:
        fail(
            EXIT_BAD_INPUT,
            "what leaves out its throughput is planned alone, without --quota and --budget",
            as_json=as_json,
        )
    if together:
        request = PlanRequest(
            jobs=jobs,
            policy_ids=tuple(policy or ()),
            quotas=tuple(_quota(text, as_json=as_json) for text in quota or ()),
            budget_micro_usd_per_hour=micro_usd_from_usd(budget),
            egress_micro_usd_per_gb=micro_usd_from_usd(egress),
        )
    else:
        request = PlanRequest(
            job=jobs[0] if jobs else None,
            draft=drafts[0] if drafts else None,
            policy_ids=tuple(policy or ()),
        )

    async def run() -> PlanAnswer:
        async with JobClient(address) as client:
            return await client.plan(request)

    sent = [(prepared.file, prepared.job) for prepared in ready]
    answer = answered(run(), as_json=as_json, sent=sent)
    if as_json:
        print_json(plain(answer))
    elif answer.joint is not None:
        print_joint_plan(jobs, answer.joint)
    else:
        _print_one_plan(_in_files(answer, sent), read[0], steps=steps)
    if not answer.feasible:
        raise typer.Exit(EXIT_REFUSED)


def _print_one_plan(answer: PlanAnswer, job: Job | JobDraft, *, steps: bool) -> None:
    if answer.completion is not None:
        print_completion(answer.completion)
    print_plan(answer, steps=steps)
    quote, most = answer.on_demand_quote_micro_usd, answer.most_cost_micro_usd
    if quote:
        typer.echo(quote_line(quote, most, by_quote=job.value_from_quote))
    if job.run is not None:
        print_run(job.run)
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
