"""Bugs that wrong prices bring out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spotline.application.market_ingest.handler import IngestOptions
from spotline.bench.faults.plants.interface import Plant, Replacement


def _prices_are_not_judged() -> Sequence[Replacement]:
    rules = IngestOptions.rules

    def unjudged(self: IngestOptions) -> object:
        return replace(rules(self), price=None)

    return (Replacement(where=IngestOptions, name="rules", value=unjudged),)


def _a_thousandfold_is_within_the_bounds() -> Sequence[Replacement]:
    rules = IngestOptions.rules

    def wide(self: IngestOptions) -> object:
        found = rules(self)
        if found.price is None:
            return found
        price = replace(found.price, highest_percent=10**9, dearest_gpu_micro_usd=10**15)
        return replace(found, price=price)

    return (Replacement(where=IngestOptions, name="rules", value=wide),)


def _what_is_said_twice_is_believed() -> Sequence[Replacement]:
    rules = IngestOptions.rules

    def credulous(self: IngestOptions) -> object:
        found = rules(self)
        if found.price is None:
            return found
        price = replace(
            found.price, sustained_quotes=2, sustained_s=0, sustained_rise_percent=10**9
        )
        return replace(found, price=price)

    return (Replacement(where=IngestOptions, name="rules", value=credulous),)


PLANTS = (
    Plant(
        name="prices_are_not_judged",
        what="prices are shown as they come",
        replacements=_prices_are_not_judged,
    ),
    Plant(
        name="a_thousandfold_is_within_the_bounds",
        what="the bounds are so wide that nothing lies outside",
        replacements=_a_thousandfold_is_within_the_bounds,
    ),
    Plant(
        name="what_is_said_twice_is_believed",
        what="a wrong price is believed as soon as it is repeated",
        replacements=_what_is_said_twice_is_believed,
    ),
)
