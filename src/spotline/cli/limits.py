"""`spotline limits`: the limits on money that are in force, and what is used of them."""

# Imports of what the commands use are inside them: gRPC costs more than `--help` should.

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from spotline.cli.calls import DEFAULT_ADDRESS, Address, AsJson, answered
from spotline.cli.jobs_view import plain, print_json
from spotline.cli.modes_view import paper_lines
from spotline.cli.tables import Column, Kind, print_line, print_table
from spotline.domain.units import PPM, utc_iso

if TYPE_CHECKING:
    from spotline.application.operations.messages import LimitsInForce, SpendUse

# The limits on what is spent in a time, by their names in `Spending`.
_ON_SPENDING = ("total", "spot", "on_demand", "every_tenant", "tenants")

limits_app = typer.Typer(
    name="limits",
    help="Limits on money, on a running allocator.",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.add_typer(limits_app, name="limits")


@limits_app.callback()
def limits() -> None:
    """Limits on money, on a running allocator."""


@limits_app.command()
def show(address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Show what may be spent and what is used of it, and the jobs that are at a limit.

    An hour, a day and a month (30 days) end with the open slot of the market. What is used is
    what the selector and the actuator hold the limits against: bills, and of what is not billed
    yet (not settled) the selector's reckoning.
    """

    async def run() -> LimitsInForce:
        from spotline.adapters.grpc.operations.client import OperationsClient

        async with OperationsClient(address) as client:
            return await client.limits()

    found = answered(run(), as_json=as_json)
    if as_json:
        print_json(plain(found))
        return
    _print(found)


def _print(found: LimitsInForce) -> None:
    at = "" if found.clock is None else f", at {utc_iso(found.clock.market_ns)} of the market"
    judged = "by what they still cost and gain" if found.jobs_judged else "by nothing (--no-limits)"
    for line in paper_lines(found.clock):
        print_line(line, style="yellow")
    print_line(f"jobs are judged {judged}{at}")
    _print_terms(found)
    _print_uses(found)
    if not found.jobs:
        print_line("no job is at a limit")
        return
    print_table(
        (
            Column("job", Kind.ID),
            Column("tenant", rank=3),
            Column("limit"),
            Column("what follows"),
            Column("spent USD", Kind.NUMBER, rank=2),
            Column("why", Kind.SENTENCE, rank=1),
        ),
        [
            (
                said.job_id,
                said.tenant,
                said.limit,
                said.action.value.replace("_", " "),
                _usd(said.spent_micro_usd),
                said.detail,
            )
            for said in found.jobs
        ],
    )


def _print_terms(found: LimitsInForce) -> None:
    """The limits that are not on what is spent in a time."""
    if found.jobs_judged:
        print_line(
            "limit of a job: its budget, or max(value, 1.5 x on-demand cost at admission) (default)"
        )
    per_job = found.micro_usd_per_job
    print_line(
        "limit on each job, that none goes beyond: "
        f"{'none' if per_job is None else f'{_usd(per_job)} USD'}"
        f"{_default(found, 'micro_usd_per_job')}"
    )
    launches = found.launches_per_minute
    print_line(
        f"launches per minute: {'no limit' if launches is None else f'at most {launches}'}"
        f"{_default(found, 'launches_per_minute')}; "
        f"least discount of spot: {100 * found.least_spot_discount_ppm / PPM:g} %"
        f"{_default(found, 'least_spot_discount_ppm')}"
    )


def _print_uses(found: LimitsInForce) -> None:
    """What is used of the limits on what is spent in a time, and of quotas."""
    print_table(
        (
            Column("limit on"),
            Column("tenant", rank=1),
            Column("time", rank=2),
            Column("not settled USD", Kind.NUMBER, rank=3),
            Column("used USD", Kind.NUMBER),
            Column("limit USD", Kind.NUMBER),
            Column("left USD", Kind.NUMBER),
        ),
        [
            (
                use.what,
                use.tenant,
                use.span,
                _usd(use.unsettled_micro_usd) if use.unsettled_micro_usd else "",
                _usd(use.used_micro_usd),
                "none" if use.limit_micro_usd is None else _usd(use.limit_micro_usd),
                _left(use),
            )
            for use in found.uses
        ],
    )
    print_line(
        "used: as billed; not settled: of slots that are not billed yet, as the selector reckons"
    )
    if not set(found.stated) & set(_ON_SPENDING):
        print_line("no limit on what is spent in a time is stated (default: none)")
    for quota in found.quotas:
        print_line(
            f"quota of {quota.quota_pool}: {quota.held_instances} of at most "
            f"{quota.most_instances} instances held"
        )


def _default(found: LimitsInForce, name: str) -> str:
    """Says so of a limit that is the default one, where limits are on."""
    return " (default)" if found.jobs_judged and name not in found.stated else ""


def _usd(micro_usd: int) -> str:
    return f"{micro_usd / 1e6:,.2f}"


def _left(use: SpendUse) -> str:
    if use.limit_micro_usd is None:
        return ""
    # More is spent than may be where the limit was lowered, or prices rose in the open slot.
    return _usd(max(0, use.limit_micro_usd - use.used_micro_usd))
