"""The selector's options, with the limits that people have set since it was started (ADR 0077)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from spotline.application.selector.options import SelectorOptions
from spotline.domain.events.limits import LimitSet
from spotline.domain.limits.raised import LimitAt, NewLimit, in_force


def options_in_force(
    options: SelectorOptions, limits_set: Mapping[LimitAt, LimitSet]
) -> SelectorOptions:
    """The options with the limits that people have set since."""
    if not limits_set:
        return options
    return _with_limits(options, tuple(event.limit for event in limits_set.values()))


@lru_cache(maxsize=16)
def _with_limits(options: SelectorOptions, limits: tuple[NewLimit, ...]) -> SelectorOptions:
    found = in_force(options.limits_on_spending, limits)
    return replace(options, spending=found.to_json())
