"""`spotline limits`: the limits on money in force, what is used of them, and setting one."""

# Imports of what the commands use are inside them: gRPC costs more than `--help` should.

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Annotated

import typer

from spotline.cli.calls import DEFAULT_ADDRESS, EXIT_BAD_INPUT, Address, AsJson, answered, fail
from spotline.cli.jobs_view import plain, print_json
from spotline.cli.modes_view import paper_lines
from spotline.cli.tables import Column, Kind, print_line, print_table
from spotline.domain.units import PPM, utc_iso

if TYPE_CHECKING:
    from spotline.application.operations.messages import LimitNowSet, LimitsInForce, SpendUse
    from spotline.domain.limits.raised import LimitAt

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


@limits_app.command("set")
def set_limit(
    what: Annotated[
        str, typer.Argument(help="total, spot, on-demand, every-tenant, tenant, job or quota.")
    ],
    key: Annotated[str, typer.Argument(help="Which tenant, or which quota pool.")] = "",
    span: Annotated[
        str, typer.Option(metavar="hour|day|month", help="The time, of what is spent in one.")
    ] = "",
    usd: Annotated[
        float | None, typer.Option(min=0, help="The most, in USD; of all but a quota pool.")
    ] = None,
    instances: Annotated[
        int | None, typer.Option(min=0, help="The most instances of a quota pool.")
    ] = None,
    reason: Annotated[
        str, typer.Option("--reason", metavar="WHY", help="Why; stands in the event log.")
    ] = "",
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Raise or lower a limit that settings state, while the system runs.

    It counts from the next slot on, over restarts, and until settings state another limit there.
    """
    at = _limit_at(what, key, span, as_json=as_json)
    most = _most(at, usd, instances, as_json=as_json)
    if not reason:
        fail(EXIT_BAD_INPUT, "limits set: expected --reason WHY", as_json=as_json)

    async def run() -> LimitNowSet:
        from spotline.adapters.grpc.operations.client import OperationsClient
        from spotline.application.operations.messages import LimitWanted

        wanted = LimitWanted(
            request_id=uuid.uuid4().hex,
            kind=at.kind,
            key=at.key,
            span_s=at.span_s,
            most=most,
            reason=reason,
        )
        async with OperationsClient(address) as client:
            return await client.set_limit(wanted)

    done = answered(run(), as_json=as_json).set
    if as_json:
        print_json(plain(done))
        return
    before, now = _amount(done.at, done.before), _amount(done.at, done.most)
    print_line(f"{done.at.says}: {before} became {now}, from the next slot on")


def _limit_at(what: str, key: str, span: str, *, as_json: bool) -> LimitAt:
    """Which limit is meant."""
    from spotline.domain.limits.raised import LimitAt, LimitKind
    from spotline.domain.limits.spending import SPANS_S

    kinds = {kind.value: kind for kind in LimitKind}
    if what not in kinds:
        expected = f"one of {', '.join(kinds)}, found {what!r}"
    elif span and span not in SPANS_S:
        expected = f"--span {', '.join(SPANS_S)}, found {span!r}"
    elif kinds[what].in_a_time is not bool(span):
        expected = "--span hour, day or month" if kinds[what].in_a_time else f"no --span for {what}"
    elif kinds[what].has_key is not bool(key):
        expected = f"which {what}" if kinds[what].has_key else f"nothing after {what}"
    else:
        return LimitAt(kind=kinds[what], key=key, span_s=SPANS_S.get(span, 0))
    fail(EXIT_BAD_INPUT, f"limits set: expected {expected}", as_json=as_json)


def _most(at: LimitAt, usd: float | None, instances: int | None, *, as_json: bool) -> int:
    """How much, micro-USD or instances."""
    from spotline.domain.limits.raised import LimitKind
    from spotline.domain.units import micro_usd_from_usd

    if at.kind is LimitKind.QUOTA and instances is not None and usd is None:
        return instances
    if at.kind is not LimitKind.QUOTA and usd is not None and instances is None:
        return micro_usd_from_usd(usd)
    wanted = "--instances" if at.kind is LimitKind.QUOTA else "--usd"
    fail(EXIT_BAD_INPUT, f"limits set: expected {wanted} of {at.says}", as_json=as_json)


def _amount(at: LimitAt, most: int) -> str:
    return f"{most} instances" if at.kind.value == "quota" else f"{_usd(most)} USD"


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
