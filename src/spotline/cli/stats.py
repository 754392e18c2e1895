"""`spotline stats`: what the analytics say of market and platform, window by window."""

# Imports of what the command uses are inside it: tables and gRPC cost more than `--help` should.

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Annotated

import typer

from spotline.cli.calls import AsJson
from spotline.cli.modes_view import paper_lines
from spotline.cli.tables import Column, Kind, number_columns, print_line, print_table
from spotline.cli.wording import moment

if TYPE_CHECKING:
    from spotline.application.analytics.messages import (
        KeysPage,
        StatisticsKey,
        StatisticsPage,
        StatisticsQuery,
    )
    from spotline.domain.events.statistics import MarketStatisticsIssued, PlatformStatisticsIssued
    from spotline.domain.statistics.figures import PlatformFigures

_DEFAULT_ADDRESS = "127.0.0.1:7073"
_LENGTH = re.compile(r"(\d+)(s|m|h|d)")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(stats)


def stats(
    offering: Annotated[str, typer.Option(metavar="ID", help="Of this offering.")] = "",
    tenant: Annotated[
        str, typer.Option(metavar="NAME", help="Of this tenant; * for all together.")
    ] = "",
    policy: Annotated[
        str, typer.Option(metavar="ID", help="Of this policy, of one tenant with --tenant.")
    ] = "",
    window: Annotated[
        str, typer.Option(metavar="LENGTH", help="Windows of this length: 5m, 1h, 24h; all: any.")
    ] = "1h",
    hopping: Annotated[
        bool, typer.Option("--hopping", help="Hopping windows, too; tumbling ones by default.")
    ] = False,
    latest: Annotated[int, typer.Option(min=1, help="The last so many windows.")] = 12,
    since: Annotated[
        str,
        typer.Option("--from", metavar="TIME", help="Windows that end at or after, ISO 8601."),
    ] = "",
    until: Annotated[
        str, typer.Option("--until", metavar="TIME", help="Windows that end before, ISO 8601.")
    ] = "",
    address: Annotated[
        str,
        typer.Option(
            envvar="SPOTLINE_ANALYTICS_ADDRESS",
            help="The analytics' gRPC address.",
            metavar="HOST:PORT",
        ),
    ] = _DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show statistics of an offering, a tenant or a policy; without one, of whom there are any.

    --from or --until show every window of the range, else the latest ones are shown.
    """
    from spotline.cli.failures import explained
    from spotline.cli.jobs_view import plain, print_json

    with explained():
        query = _query(
            offering=offering,
            tenant=tenant,
            policy=policy,
            window_s=_window_s(window),
            tumbling_only=not hopping,
            since=since,
            until=until,
            latest=latest,
        )
        if query is None:
            keys = asyncio.run(_keys(address))
            if as_json:
                print_json(plain(keys))
            else:
                _print_keys(keys)
            return
        page = asyncio.run(_windows(address, query, latest=0 if since or until else latest))
    if as_json:
        print_json(plain(page))
    else:
        _print(page, query)


def _query(
    *,
    offering: str,
    tenant: str,
    policy: str,
    window_s: int,
    tumbling_only: bool,
    since: str,
    until: str,
    latest: int,
) -> StatisticsQuery | None:
    from spotline.application.analytics.messages import StatisticsQuery, StatisticsScope

    if offering and (tenant or policy):
        raise ValueError("--offering goes without --tenant and --policy: the market has none")
    if offering:
        scope, key = StatisticsScope.OFFERING, offering
    elif policy:
        scope, key = StatisticsScope.POLICY, policy
    elif tenant:
        scope, key = StatisticsScope.TENANT, tenant
    else:
        return None
    ranged = bool(since or until)
    return StatisticsQuery(
        scope=scope,
        key=key,
        tenant=tenant if policy else "",
        window_s=window_s,
        tumbling_only=tumbling_only,
        from_ns=_ns("--from", since),
        until_ns=_ns("--until", until),
        latest_first=not ranged,
        page_size=0 if ranged else latest,
    )


def _window_s(text: str) -> int:
    if text == "all":
        return 0
    found = _LENGTH.fullmatch(text)
    if found is None:
        raise ValueError(f"--window must be a length such as 5m, 1h or 24h, or all, was {text!r}")
    return int(found[1]) * _UNITS_S[found[2]]


def _ns(option: str, text: str) -> int:
    from datetime import datetime

    from spotline.domain.units import ns_from_datetime

    if not text:
        return 0
    try:
        return ns_from_datetime(datetime.fromisoformat(text))
    except ValueError as error:
        raise ValueError(f"{option} must be a time such as 2026-01-01T00:00:00Z: {error}") from None


async def _keys(address: str) -> tuple[StatisticsKey, ...]:
    from spotline.adapters.grpc.analytics.client import AnalyticsClient
    from spotline.application.analytics.messages import KeysQuery

    found: list[StatisticsKey] = []
    token = ""
    async with AnalyticsClient(address) as client:
        while True:
            page: KeysPage = await client.keys(KeysQuery(page_token=token))
            found.extend(page.keys)
            token = page.next_page_token
            if not token:
                return tuple(found)


async def _windows(address: str, query: StatisticsQuery, *, latest: int) -> StatisticsPage:
    """Every window asked for, or the `latest` ones, page after page."""
    from dataclasses import replace

    from spotline.adapters.grpc.analytics.client import AnalyticsClient

    async with AnalyticsClient(address) as client:
        page = await client.query(query)
        while page.next_page_token:
            shown = len(page.market) + len(page.platform)
            if latest and shown >= latest:
                break
            following = await client.query(
                replace(
                    query,
                    page_token=page.next_page_token,
                    page_size=latest - shown if latest else 0,
                )
            )
            page = replace(
                following,
                market=page.market + following.market,
                platform=page.platform + following.platform,
            )
    if not latest:
        return page
    # Asked for from the latest on, shown by time.
    return replace(page, market=page.market[::-1], platform=page.platform[::-1], next_page_token="")


def _print_keys(keys: tuple[StatisticsKey, ...]) -> None:
    if not keys:
        print_line("no window has closed yet")
        return
    columns = (Column("of"), Column("key", Kind.ID), *number_columns("windows"))
    print_table(
        (*columns, Column("first ends", rank=3), Column("last ends", rank=2)),
        [
            (
                key.scope.value,
                key.key,
                f"{key.windows:,}",
                moment(key.first_end_ns),
                moment(key.last_end_ns),
            )
            for key in keys
        ],
    )


def _print(page: StatisticsPage, query: StatisticsQuery) -> None:
    for line in paper_lines(page.clock):
        print_line(line, style="yellow")
    if page.market:
        print_table(_MARKET_COLUMNS, [_market_row(window) for window in page.market])
    elif page.platform:
        by_policy = query.scope.value == "policy"
        rows = [_platform_row(window, by_policy=by_policy) for window in page.platform]
        print_table(_PLATFORM_COLUMNS, rows)
    else:
        print_line(f"no such window of {query.key} has closed yet")
    watermark = moment(page.watermark_ns) if page.watermark_ns else "no slot yet"
    late = f"{page.late_merged:,} late merged, {page.late_dropped:,} too late"
    print_line(f"closed up to {watermark}; {late}")


_WINDOW = (Column("window ends"), Column("length"))
_MARKET_COLUMNS = (
    *_WINDOW,
    Column("spot $/h", Kind.NUMBER),
    Column("spread", Kind.NUMBER, 8),
    Column("change", Kind.NUMBER, 7),
    Column("on-dem. $/h", Kind.NUMBER, 2),
    Column("change", Kind.NUMBER, 9),
    Column("available", Kind.NUMBER, 1),
    *number_columns("mean count", "run up", "run down", "ups", "downs", rank=3),
    Column("rev.", Kind.NUMBER, 10),
)


def _market_row(window: MarketStatisticsIssued) -> tuple[str, ...]:
    figures = window.figures
    counted = sum(part.instances * part.held_s for part in figures.counts)
    return (
        moment(window.ts_event_ns),
        _length(window.window_s),
        _usd(figures.spot_price.mean_micro_usd, 4),
        _usd(figures.spot_price.spread_micro_usd, 4),
        _percent(figures.spot_price.change_ppm),
        _usd(figures.on_demand_price.mean_micro_usd, 4),
        _percent(figures.on_demand_price.change_ppm),
        _percent(figures.available_ppm) if figures.known_s else "unknown",
        f"{counted / figures.known_s:.2f}" if figures.known_s else "unknown",
        _length(figures.mean_available_run_s),
        _length(figures.mean_unavailable_run_s),
        str(figures.ups),
        str(figures.downs),
        str(window.revision),
    )


_PLATFORM_COLUMNS = (
    *_WINDOW,
    Column("spend $", Kind.NUMBER),
    Column("on-dem. $", Kind.NUMBER, 2),
    Column("saved $", Kind.NUMBER, 3),
    Column("saved", Kind.NUMBER, 1),
    *number_columns("hard hit/miss", "soft hit/miss", "regret $", "jobs", rank=4),
    *number_columns("decided p50 ms", "p99", "max", "rev.", rank=8),
)


def _platform_row(window: PlatformStatisticsIssued, *, by_policy: bool) -> tuple[str, ...]:
    figures = window.policies[0].figures if by_policy else window.total
    return (
        moment(window.ts_event_ns),
        _length(window.window_s),
        *_platform_cells(figures),
        str(window.revision),
    )


def _platform_cells(figures: PlatformFigures) -> tuple[str, ...]:
    spend, deadlines, latency = figures.spend, figures.deadlines, figures.decision_after_slot
    same = spend.on_demand_equivalent_micro_usd
    return (
        _usd(spend.spend_micro_usd, 2),
        _usd(same, 2),
        _usd(spend.saving_micro_usd, 2),
        f"{spend.saving_micro_usd / same:.1%}" if same else "-",
        f"{deadlines.hard_hits}/{deadlines.hard_misses}",
        f"{deadlines.soft_hits}/{deadlines.soft_misses}",
        _usd(figures.regret.regret_micro_usd, 2),
        str(figures.regret.jobs),
        *(_ms(ns, latency.samples) for ns in (latency.p50_ns, latency.p99_ns, latency.max_ns)),
    )


def _ms(ns: int, samples: int) -> str:
    return f"{ns / 1e6:.1f}" if samples else "-"


def _usd(micro_usd: int, digits: int) -> str:
    return f"{micro_usd / 1e6:,.{digits}f}"


def _percent(ppm: int) -> str:
    return f"{ppm / 1e4:.1f} %"


def _length(seconds: int) -> str:
    if not seconds:
        return "-"
    for unit, size_s in (("h", 3600), ("m", 60)):
        if seconds % size_s == 0:
            return f"{seconds // size_s}{unit}"
    return f"{seconds}s"
