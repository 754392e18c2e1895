"""What a month of the calendar has cost so far, and may cost: market time in UTC."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from spotline.application.page.money import BilledCharge
from spotline.application.page.state import PageState
from spotline.domain.units import NS_PER_S, utc_month

PACE_S = 7 * 86_400
"""The pace is that of the last so many seconds, or of all there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthSpend:
    """A month from `begin_ns` to `end_ns`; `before_micro_usd` is what the month before cost.

    `expected_micro_usd` is what the whole month costs if it goes on at the pace of the last
    `pace_s` seconds; None where there is nothing to tell it by.
    """

    begin_ns: int
    end_ns: int
    charged_micro_usd: int
    before_micro_usd: int
    expected_micro_usd: int | None
    pace_s: int
    left_s: int


def month_spend(state: PageState, charges: Iterable[BilledCharge]) -> MonthSpend | None:
    """The month that the state's last slot lies in; None before the first slot.

    A slot counts for the month that it begins in, as a whole.
    """
    if state.slot < 0 or not state.now_ns:
        return None
    begin_ns, end_ns = utc_month(state.start_ns(state.slot))
    before_ns, _ = utc_month(begin_ns - 1)
    slot_s = (state.now_ns - state.start_ns(0)) // NS_PER_S
    pace_s = max(0, min(PACE_S, slot_s))
    paced_from_ns = state.now_ns - pace_s * NS_PER_S
    in_month = before = paced = 0
    for charge in charges:
        at_ns = state.start_ns(charge.slot)
        in_month += charge.cost_micro_usd if at_ns >= begin_ns else 0
        before += charge.cost_micro_usd if before_ns <= at_ns < begin_ns else 0
        paced += charge.cost_micro_usd if at_ns >= paced_from_ns else 0
    left_s = max(0, end_ns - state.now_ns) // NS_PER_S
    return MonthSpend(
        begin_ns=begin_ns,
        end_ns=end_ns,
        charged_micro_usd=in_month,
        before_micro_usd=before,
        expected_micro_usd=in_month + paced * left_s // pace_s if pace_s else None,
        pace_s=pace_s,
        left_s=left_s,
    )
