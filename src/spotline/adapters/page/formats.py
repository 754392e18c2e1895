"""How numbers and times are written on pages: each with its unit, none rounded to nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from spotline.domain.jobs.lot import Lot
from spotline.domain.units import NS_PER_S, PPM

NOTHING = "\N{EN DASH}"
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


def usd(micro_usd: int | None, decimals: int = 2) -> str:
    """An amount: `$1,234.50`; less than a cent to the part that shows; None: a dash."""
    if micro_usd is None:
        return NOTHING
    sign = "-" if micro_usd < 0 else ""
    amount = abs(micro_usd) / 1e6
    if amount and amount < 0.5 * 10**-decimals:
        return f"{sign}${amount:.6f}".rstrip("0")
    return f"{sign}${amount:,.{decimals}f}"


def usd_per_hour(micro_usd: int | None) -> str:
    """A price per instance-hour: `$1.2040/h`."""
    return NOTHING if micro_usd is None else f"{usd(micro_usd, 4)}/h"


def percent(ppm: int | None, decimals: int = 1) -> str:
    """A share in parts per million: `97.3 %`."""
    return NOTHING if ppm is None else f"{100 * ppm / PPM:.{decimals}f} %"


def chance(ppm: int | None) -> str:
    """A probability that was counted in futures: never quite 0 or 100 %."""
    if ppm is None:
        return NOTHING
    if ppm >= PPM:
        return "> 99.9 %"
    if ppm <= 0:
        return "< 0.1 %"
    return percent(ppm)


def duration(seconds: float | None) -> str:
    """A length of time in its two largest units: `2 d 3 h`, `-45 min`."""
    if seconds is None:
        return NOTHING
    sign, whole = ("-" if seconds < 0 else ""), abs(round(seconds))
    if whole < 2 * _MINUTE:
        return f"{sign}{whole} s"
    if whole < 2 * _HOUR:
        return f"{sign}{whole // _MINUTE} min"
    if whole < 2 * _DAY:
        hours, minutes = divmod(whole // _MINUTE, 60)
        return f"{sign}{hours} h{f' {minutes} min' if minutes else ''}"
    days, hours = divmod(whole // _HOUR, 24)
    return f"{sign}{days} d{f' {hours} h' if hours else ''}"


def count(number: float | None) -> str:
    """A number of things: `12,345`."""
    return NOTHING if number is None else f"{number:,}"


def amount(number: float | None) -> str:
    """An amount of work: at most four digits that say something."""
    return NOTHING if number is None else f"{number:,.4g}"


def moment(ts_ns: int | None) -> Markup:
    """A time as `<time>`: UTC to the minute; the page shows local time where it is asked to."""
    if not ts_ns:
        return Markup(NOTHING)  # noqa: S704 - a constant
    at = datetime.fromtimestamp(ts_ns // NS_PER_S, tz=UTC)
    iso = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return Markup('<time datetime="{}">{}</time>').format(iso, at.strftime("%Y-%m-%d %H:%M UTC"))


def lots(held: tuple[Lot, ...], names: Mapping[str, str] | None = None) -> str:
    """What is held: `4 spot + 1 on-demand in zone-a`; nothing: `nothing`."""
    said = []
    for lot in held:
        kinds = ((lot.spot, "spot"), (lot.on_demand, "on-demand"))
        told = " + ".join(f"{number} {kind}" for number, kind in kinds if number)
        if told:
            said.append(f"{told} in {(names or {}).get(lot.offering_id, lot.offering_id)}")
    return " and ".join(said) or "nothing"


def word(value: Any) -> str:
    """An enumeration's member, or a name of ours, as people read it: `on_demand` is `on-demand`."""
    text = getattr(value, "value", value)
    if text is None:
        return NOTHING
    return str(text).lower().replace("on_demand", "on-demand").replace("_", " ")


def short_id(name: str) -> str:
    """The beginning of an id that is told apart by it."""
    return name[:8]


def seconds_of_ns(ts_ns: int) -> float:
    """A time as charts have it: seconds since the epoch."""
    return ts_ns / NS_PER_S


FILTERS: Mapping[str, Callable[..., Any]] = {
    "usd": usd,
    "usd_per_hour": usd_per_hour,
    "percent": percent,
    "chance": chance,
    "duration": duration,
    "count": count,
    "amount": amount,
    "moment": moment,
    "lots": lots,
    "word": word,
    "short_id": short_id,
}
