"""What a geography shows when a slot opens, as observations."""

from __future__ import annotations

from dataclasses import replace

from spotline.domain.events.placement import LinkObserved, RegionObserved
from spotline.domain.placement.geography import Geography


def observations(
    geography: Geography, *, at_s: float, before_s: float | None, ts_event_ns: int
) -> tuple[RegionObserved | LinkObserved, ...]:
    """The regions and links that differ from how they were seen last.

    Parameters
    ----------
    at_s, before_s
        Seconds since the first slot, now and when the geography was seen last (None: never).
    ts_event_ns
        When that is. All but the last observation say that more follow.
    """
    seen: list[RegionObserved | LinkObserved] = []
    for region_id in sorted(geography.regions):
        now = geography.region_at(region_id, at_s)
        if before_s is not None and now == geography.region_at(region_id, before_s):
            continue
        seen.append(
            RegionObserved(
                ts_event_ns=ts_event_ns,
                region=now.region,
                down=now.down,
                energy_ahead_usd_per_kwh=now.ahead,
                more_follow=True,
            )
        )
    for ends in sorted(geography.links):
        link = geography.link_at(*ends, at_s)
        if before_s is None or link != geography.link_at(*ends, before_s):
            seen.append(LinkObserved(ts_event_ns=ts_event_ns, link=link, more_follow=True))
    if seen:
        seen[-1] = replace(seen[-1], more_follow=False)
    return tuple(seen)
