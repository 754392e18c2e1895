"""Events for people and dashboards, never part of a decision: `statistics.proto`."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.statistics.figures import MarketFigures, PlatformFigures, PolicyFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketStatisticsIssued:
    """An offering's statistics of the window of `window_s` that ended at `ts_event_ns`.

    One window begins every `hop_s`. `revision` is 0 when it closes, and rises with every issue
    that late observations led to; `late` counts those among its observations.
    """

    offering_id: str
    ts_event_ns: int
    window_s: int
    hop_s: int
    revision: int
    late: int
    figures: MarketFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformStatisticsIssued:
    """A tenant's statistics of a window, in total and by policy; `ALL_TENANTS` has one too.

    Window, revision and `late` as in `MarketStatisticsIssued`.
    """

    tenant: str
    ts_event_ns: int
    window_s: int
    hop_s: int
    revision: int
    late: int
    total: PlatformFigures
    policies: tuple[PolicyFigures, ...]
