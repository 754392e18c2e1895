"""How moments, durations, places and work are written for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from spotline.domain.jobs.job import Job
from spotline.domain.jobs.lot import Lot
from spotline.domain.market.offering import Offering
from spotline.domain.units import NS_PER_S, S_PER_HOUR, usd_from_micro_usd

_S_PER_DAY = 24 * S_PER_HOUR
_NO_SECONDS_FROM_S = 300


def moment_text(ts_ns: int, now_ns: int) -> str:
    """A moment in UTC, with its date where that is not today's."""
    moment = datetime.fromtimestamp(ts_ns // NS_PER_S, tz=UTC)
    today = datetime.fromtimestamp(now_ns // NS_PER_S, tz=UTC).date()
    return f"{moment:%H:%M} UTC" if moment.date() == today else f"{moment:%Y-%m-%d %H:%M} UTC"


def duration_text(seconds: int) -> str:
    """A duration in its two largest units: `2 h 30 min`, `45 s`; of a negative one its length.

    Seconds are left out where there are minutes enough.
    """
    left = abs(seconds)
    if left >= _NO_SECONDS_FROM_S:
        left -= left % 60
    parts = []
    for name, unit_s in (("d", _S_PER_DAY), ("h", S_PER_HOUR), ("min", 60), ("s", 1)):
        count, left = divmod(left, unit_s)
        if count:
            parts.append(f"{count} {name}")
    return " ".join(parts[:2]) or "0 s"


def usd_text(micro_usd: int) -> str:
    """An amount of money to the cent."""
    return f"{usd_from_micro_usd(micro_usd):,.2f} USD"


def lots_text(lots: Sequence[Lot], offerings: Iterable[Offering]) -> str:
    """What is held and where: `2 spot + 1 on-demand in use1-az1`; `nothing` for no lots."""
    known = {offering.offering_id: offering for offering in offerings}
    parts = []
    for lot in lots:
        counts = [
            f"{count} {kind}"
            for count, kind in ((lot.spot, "spot"), (lot.on_demand, "on-demand"))
            if count
        ]
        if counts:
            parts.append(f"{' + '.join(counts)} in {_place(lot.offering_id, known)}")
    return " and ".join(parts) or "nothing"


def place_text(offering_id: str, offerings: Iterable[Offering]) -> str:
    """The zone of an offering, with the instance type where the zone has several."""
    return _place(offering_id, {offering.offering_id: offering for offering in offerings})


def work_text(job: Job, share_ppm: int, done: float | None) -> str:
    """Work done of all work: `3 of 5 instance-hours done`."""
    amount = job.work.amount
    so_far = min(amount, amount * share_ppm / 1e6 if done is None else done)
    unit = job.work.unit.replace("_", "-")
    return f"{_number(so_far, amount)} of {_number(amount, amount)} {unit} done"


def _number(value: float, whole: float) -> str:
    """A number with as many decimals as its whole deserves; never rounded up to the whole."""
    decimals = 0 if whole >= 1000 else 1 if whole >= 10 else 2
    shown = int(value * 10**decimals) / 10**decimals if value < whole else value
    text = f"{shown:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def _place(offering_id: str, known: dict[str, Offering]) -> str:
    offering = known.get(offering_id)
    if offering is None:
        return offering_id
    alike = sum(other.zone == offering.zone for other in known.values())
    return offering.zone if alike == 1 else f"{offering.zone} ({offering.instance_type})"
