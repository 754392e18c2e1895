"""`spotline market status`: what time it is in the market that a running allocator sees."""

# Imports of what the command uses are inside it: gRPC costs more than `--help` should.

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from spotline.cli.calls import DEFAULT_ADDRESS, Address, AsJson, answered
from spotline.cli.jobs_view import plain, print_json
from spotline.cli.market import market_app
from spotline.cli.modes_view import paper_facts
from spotline.cli.wording import lasting
from spotline.domain.units import NS_PER_S, usd_from_micro_usd, utc_iso

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spotline.application.market_view import MarketStatus
    from spotline.domain.market.slot_quote import SlotQuote
    from spotline.domain.policies.answer import SpotWorth


def register(app: typer.Typer) -> None:
    """Add the command to those of `spotline market`."""
    market_app.command("status")(market_status)


def market_status(address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Show what time it is in the market, and whether that goes on. Deadlines are in this time."""
    from spotline.adapters.grpc.allocator.client import JobClient

    async def run() -> MarketStatus:
        async with JobClient(address) as client:
            return await client.market()

    status = answered(run(), as_json=as_json)
    if as_json:
        said = plain(status)
        # Nobody asked for them.
        del said["offerings"]
        print_json(said)
        return
    for name, fact in _said(status):
        typer.echo(f"{name:<12}{fact}")


def _quotes(quotes: Sequence[SlotQuote]) -> str:
    """How many there are, how old, and what of them is not simply what is listed."""
    oldest = max(quotes, key=lambda quoted: (quoted.age_s, quoted.quote.offering_id))
    said = [
        f"{len(quotes)}, the oldest {lasting(oldest.age_s)} old ({oldest.quote.offering_id})",
        *_counted(sum(quoted.unquoted for quoted in quotes), "never quoted"),
        *_counted(
            sum(quoted.doubted and not quoted.unquoted for quoted in quotes), "with a doubted price"
        ),
        *_counted(sum(quoted.listed != quoted.quote for quoted in quotes), "at own prices"),
    ]
    return ", ".join(said)


def _scores(quotes: Sequence[SlotQuote], market_ns: int) -> str:
    """The provider's advice where it gave any, each with its age."""
    return ", ".join(
        f"{quote.offering_id} {quote.placement_score}/10"
        f" ({lasting(max(0, market_ns - quote.scored_ns) // NS_PER_S)} old)"
        for quote in (quoted.quote for quoted in quotes)
        if quote.placement_score
    )


def _worths(prices: Sequence[SpotWorth]) -> str:
    """What spot is worth to all jobs beyond its price, the dearest first."""
    dearest = sorted(
        prices, key=lambda price: (-price.micro_usd_per_instance_hour, price.offering_id)
    )
    return ", ".join(
        f"{price.offering_id} {usd_from_micro_usd(price.micro_usd_per_instance_hour):+.2f} USD/h"
        for price in dearest
    )


def _counted(count: int, what: str) -> Iterator[str]:
    if count:
        yield f"{count} {what}"


def _said(status: MarketStatus) -> list[tuple[str, str]]:
    said = [("state", status.state.value.replace("_", " "))]
    clock = status.clock
    if clock is not None:
        said += paper_facts(clock.mode)
        said.append(("now", utc_iso(clock.market_ns)))
        said.append(("slot", f"{clock.slot} (of {clock.slot_s} s)"))
    if status.next_slot_start_ns:
        said.append(("next slot", utc_iso(status.next_slot_start_ns)))
    if status.quotes:
        said.append(("quotes", _quotes(status.quotes)))
    scores = _scores(status.quotes, 0 if clock is None else clock.market_ns)
    if scores:
        said.append(("advice", f"{scores}; worth what launches have shown"))
    if status.shadow_prices:
        said.append(("spot worth", _worths(status.shadow_prices)))
    if status.ends_ns:
        said.append(("ends", utc_iso(status.ends_ns)))
    if status.source:
        said.append(("source", status.source))
    return said
