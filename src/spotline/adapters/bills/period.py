"""From when until when a row is, with clocks that were set back within it."""

from __future__ import annotations

from typing import Any, NamedTuple

from spotline.adapters.table_cells import Wrong, time_s
from spotline.domain.assessment.clock import may_go_back
from spotline.domain.units import S_PER_HOUR


class RowPeriod(NamedTuple):
    """Seconds since the epoch; `naive`: the row's times name no zone, and are taken as UTC."""

    begin_s: int
    end_s: int
    naive: bool


def period(begin: Any, end: Any, begin_column: str, end_column: str) -> RowPeriod:
    """The period of a row; `Wrong` where it ends before it begins.

    Local times without a zone may end no later than they began, in the hour in which a clock was set
    back: that row is an hour long.
    """
    begin_s, naive = time_s(begin, begin_column)
    end_s, _ = time_s(end, end_column)
    if naive and end_s <= begin_s and may_go_back(begin_s):
        end_s = begin_s + S_PER_HOUR
    if end_s < begin_s:
        raise Wrong(end_column, f"a time not before {begin_column}", end)
    return RowPeriod(begin_s, end_s, naive)
