"""A person has another limit on money count than settings state."""

from __future__ import annotations

from spotline.application.allocator.promoting import LONGEST_REASON
from spotline.application.operations.messages import LimitWanted
from spotline.application.operations.spending import SpendingState
from spotline.application.selector.limits_set import options_in_force
from spotline.application.selector.options import SelectorOptions
from spotline.domain.events.limits import LimitSet
from spotline.domain.limits.raised import LimitAt, stated_at


class CannotSetLimit(ValueError):
    """A limit cannot be set so; `field` is at fault."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def limit_set(
    state: SpendingState, options: SelectorOptions, wanted: LimitWanted, by: str
) -> LimitSet:
    """What is recorded where somebody has a limit set; when, the caller says.

    Parameters
    ----------
    options
        The selector's, as settings state them.

    Raises
    ------
    CannotSetLimit
        There is no reason, or no such limit is stated: what was spent is kept only as far back as
        stated limits reach.
    """
    if not wanted.request_id:
        raise CannotSetLimit("request_id", "request_id must not be empty: it names the effect")
    if not wanted.reason.strip():
        raise CannotSetLimit("reason", "reason must say why, was empty")
    if len(wanted.reason) > LONGEST_REASON:
        raise CannotSetLimit(
            "reason",
            f"reason must be at most {LONGEST_REASON} characters, were {len(wanted.reason)}",
        )
    if wanted.most < 0:
        raise CannotSetLimit("most", f"most must be >= 0, was {wanted.most}")
    try:
        at = LimitAt(kind=wanted.kind, key=wanted.key, span_s=wanted.span_s)
    except ValueError as error:
        raise CannotSetLimit(str(error).partition(" ")[0], str(error)) from error
    stated = stated_at(options.limits_on_spending, at)
    before = stated_at(options_in_force(options, state.limits_set).limits_on_spending, at)
    if stated is None or before is None:
        raise CannotSetLimit(
            "kind",
            f"a limit must be stated before it can be set: nothing limits {at.says}; state it under "
            "`limits` in spotline.yaml, and start again",
        )
    return LimitSet(
        kind=at.kind,
        key=at.key,
        span_s=at.span_s,
        stated=stated,
        most=wanted.most,
        before=before,
        by=by,
        reason=wanted.reason,
    )
