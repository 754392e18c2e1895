"""The picture of an assessment: money over slack, with bands; coordinates for an SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spotline.application.assessment.answer import Assessment, MoneySpread
from spotline.application.assessment.words import factor

WIDTH, HEIGHT = 760, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 12, 12, 40
_TICKS = 4

Height = Callable[[float], float]
"""From an amount to how far down it is drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnLine:
    """One line of money over slack: its middle, and a band where futures differ; "" for none."""

    name: str
    kind: str
    middle: str
    band: str
    dots: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AssessmentPicture:
    """All of it; marks are places and what stands there."""

    width: int
    height: int
    left: int
    right: int
    bottom: int
    lines: tuple[DrawnLine, ...]
    across: tuple[tuple[float, str], ...]
    upward: tuple[tuple[float, str], ...]


def picture_of(told: Assessment) -> AssessmentPicture:
    """Lay out what an assessment says of each slack."""
    answers = told.answers
    least, most = answers[0].slack_ppm, answers[-1].slack_ppm
    span = max(1, most - least)
    room = WIDTH - _LEFT - _RIGHT
    xs = [round(_LEFT + 16 + (room - 32) * (a.slack_ppm - least) / span, 1) for a in answers]
    highest = max(
        told.paid_micro,
        told.on_demand_micro,
        *(max(a.spot_plain.p90_micro, a.spotline.p90_micro) for a in answers),
        1,
    )
    step = _step(highest / _TICKS)
    top = -(-highest // step) * step

    def y(micro: float) -> float:
        return round(_TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - micro / top), 1)

    return AssessmentPicture(
        width=WIDTH,
        height=HEIGHT,
        left=_LEFT,
        right=WIDTH - _RIGHT,
        bottom=HEIGHT - _BOTTOM,
        lines=(
            _spread_line("spot, plain recovery", "plain", xs, [a.spot_plain for a in answers], y),
            _spread_line("Spotline", "spotline", xs, [a.spotline for a in answers], y),
            _level("on demand", "demand", xs, y(told.on_demand_micro)),
            _level("paid", "paid", xs, y(told.paid_micro)),
        ),
        across=tuple((x, f"{factor(a.slack_ppm)} x") for x, a in zip(xs, answers, strict=True)),
        upward=tuple((y(at), f"{at / 1e6:,.0f}") for at in range(0, top + 1, step)),
    )


def _spread_line(
    name: str, kind: str, xs: Sequence[float], spreads: Sequence[MoneySpread], y: Height
) -> DrawnLine:
    middle = [(x, y(s.p50_micro)) for x, s in zip(xs, spreads, strict=True)]
    low = [(x, y(s.p10_micro)) for x, s in zip(xs, spreads, strict=True)]
    high = [(x, y(s.p90_micro)) for x, s in zip(xs, spreads, strict=True)]
    return DrawnLine(
        name=name,
        kind=kind,
        middle=_points(middle),
        band=_points([*high, *reversed(low)]),
        dots=tuple(middle),
    )


def _level(name: str, kind: str, xs: Sequence[float], y: float) -> DrawnLine:
    return DrawnLine(name=name, kind=kind, middle=_points([(xs[0], y), (xs[-1], y)]), band="")


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x},{y}" for x, y in points)


def _step(wanted: float) -> int:
    """A round number of micro-units, at least as much as wanted and at least one unit."""
    step = 1_000_000
    while True:
        for digit in (1, 2, 5):
            if digit * step >= wanted:
                return digit * step
        step *= 10
