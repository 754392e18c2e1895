"""The command that changes a job that is under way."""

# Imports of what the commands use are inside them: gRPC and tables cost more than `--help` should.

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spotline.cli.calls import (
    DEFAULT_ADDRESS,
    EXIT_BAD_INPUT,
    Address,
    AsJson,
    JobArgument,
    answered,
    fail,
    whole_job_id,
)
from spotline.cli.jobs_view import plain, print_json, print_status
from spotline.cli.plan_view import print_plan

if TYPE_CHECKING:
    from spotline.application.allocator.messages import ChangeReceipt
    from spotline.domain.jobs.job import Deadline

# In micro-USD it must fit a message's 64 bits.
_MOST_USD = 1e12


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(update)


def update(
    job: JobArgument,
    deadline: Annotated[
        str | None,
        typer.Option(
            help="New deadline, such as 2026-03-01T12:00:00Z; a soft one keeps how long it lasts.",
            metavar="TIME",
        ),
    ] = None,
    value_usd: Annotated[
        float | None, typer.Option(help="What finishing on time is worth, USD.", metavar="USD")
    ] = None,
    budget_usd: Annotated[
        float | None,
        typer.Option(help="The most that may be spent, USD; 0: no bound.", metavar="USD"),
    ] = None,
    on_limit: Annotated[
        str | None, typer.Option(help="At its limit: wait, stop or finish.")
    ] = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Change deadline, value or budget of a job, and show where it stands and a new plan.

    A deadline that cannot be met is refused with the earliest that can.
    """
    from spotline.adapters.grpc.allocator.client import JobClient
    from spotline.application.allocator.updates import JobChange
    from spotline.domain.jobs.job import OnLimit

    values: dict[str, Any] = {}
    deadline_ns = None if deadline is None else _time_ns(deadline, as_json=as_json)
    for name, usd in (("value_usd", value_usd), ("budget_usd", budget_usd)):
        if usd is not None:
            values[name.replace("_usd", "_micro_usd")] = _micro_usd(name, usd, as_json=as_json)
    if on_limit is not None:
        known = {choice.value: choice for choice in OnLimit}
        if on_limit not in known:
            said = f"--on-limit must be one of {', '.join(known)}, was {on_limit!r}"
            fail(EXIT_BAD_INPUT, said, as_json=as_json)
        values["on_limit"] = known[on_limit]
    if not values and deadline_ns is None:
        options = "--deadline, --value-usd, --budget-usd, --on-limit"
        fail(EXIT_BAD_INPUT, f"update: expected one of {options}, found none", as_json=as_json)

    async def run() -> ChangeReceipt:
        async with JobClient(address) as client:
            status = await client.get(await whole_job_id(client, job))
            if deadline_ns is not None:
                values["deadline"] = _moved(status.job.deadline, deadline_ns)
            return await client.update(
                JobChange(
                    job_id=status.job.job_id,
                    mask=tuple(values),
                    etag=status.etag,
                    request_id=uuid.uuid4().hex,
                    **values,
                )
            )

    receipt = answered(run(), as_json=as_json)
    if as_json:
        print_json(plain(receipt))
        return
    print_status(receipt.status)
    if receipt.plan is not None:
        print_plan(receipt.plan, deadline_ns=receipt.status.job.deadline.at_ns)


def _moved(before: Deadline, at_ns: int) -> Deadline:
    """The deadline at another time; a soft one loses its value over as long as before."""
    from dataclasses import replace

    return replace(before, at_ns=at_ns, expires_ns=at_ns + before.expires_ns - before.at_ns)


def _time_ns(text: str, *, as_json: bool) -> int:
    from spotline.domain.units import ns_from_rfc3339

    try:
        return ns_from_rfc3339(text)
    except ValueError as error:
        fail(EXIT_BAD_INPUT, f"--deadline: {error}", as_json=as_json)


def _micro_usd(name: str, usd: float, *, as_json: bool) -> int:
    from spotline.domain.units import micro_usd_from_usd

    if not 0 <= usd < _MOST_USD:
        option = f"--{name.replace('_', '-')}"
        said = f"{option} must be >= 0 and < {_MOST_USD:g}, was {usd:g}"
        fail(EXIT_BAD_INPUT, said, as_json=as_json)
    return micro_usd_from_usd(usd)
