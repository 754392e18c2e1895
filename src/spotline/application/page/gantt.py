"""Where bars and marks of a job's life are drawn: pure geometry, in units of the drawing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from spotline.application.page.holdings import JobSign, LotSpan, SignKind
from spotline.domain.units import NS_PER_S

WIDTH = 1080
LEFT, RIGHT = 210, 16
LANE, LANE_GAP, TOP = 26, 6, 26
MOST_LANES = 16
MOST_MARKS = 400
_TICKS = 8
_STEPS_S = (600, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800)

_Place = Callable[[int], float]

GLYPHS: Mapping[SignKind, str] = {
    SignKind.NOTICED: "▽",
    SignKind.LOST: "✕",
    SignKind.WITHDRAWN: "△",
    SignKind.REFUSED: "□",
    SignKind.MOVED: "◆",
    SignKind.SAFETY_NET: "✚",
    SignKind.LIMITED: "▬",
    SignKind.SAVED: "●",
    SignKind.NOT_SAVED: "⊗",
    SignKind.EXITED: "✖",
    SignKind.RETRIED: "↻",
    SignKind.SILENT: "○",
    SignKind.CHANGED: "✎",
}
"""The sign of each kind: shapes differ, so that colour is not needed."""

BAD = frozenset(
    {SignKind.LOST, SignKind.NOTICED, SignKind.NOT_SAVED, SignKind.EXITED, SignKind.LIMITED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GanttBar:
    """Instances held for a time; `text` is empty where it would not fit."""

    x: float
    y: float
    width: float
    height: float
    paid: str
    text: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """Something that happened, as a sign on its lane."""

    x: float
    y: float
    glyph: str
    bad: bool
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GanttLane:
    """A row and what it is called."""

    y: float
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A moment of the axis."""

    x: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gantt:
    """A drawing of `width` by `height`; `deadline_x` and `now_x` are None where out of it.

    `left_out` says how many lanes or marks are only in the tables.
    """

    width: int
    height: float
    left: int
    lanes: tuple[GanttLane, ...]
    bars: tuple[GanttBar, ...]
    signs: tuple[Sign, ...]
    ticks: tuple[Tick, ...]
    deadline_x: float | None
    now_x: float | None
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What is drawn: from `begin_ns` to `end_ns`; bars that still go on end at `now_ns`.

    `over` says that the job is: no moment is marked as the present one then.
    """

    begin_ns: int
    end_ns: int
    now_ns: int
    deadline_ns: int
    over: bool = False


def gantt(
    spans: Sequence[LotSpan],
    marks: Sequence[JobSign],
    span: Span,
    names: Mapping[str, str],
    *,
    width: int = WIDTH,
) -> Gantt:
    """Lay out what a job held, a lane for each offering and kind, and what happened below.

    Parameters
    ----------
    names
        What an offering is called, by its id.
    width
        Of the drawing.
    """
    scale = (width - LEFT - RIGHT) / max(1, span.end_ns - span.begin_ns)

    def x_of(at_ns: int) -> float:
        inside = min(max(at_ns, span.begin_ns), span.end_ns)
        return round(LEFT + (inside - span.begin_ns) * scale, 1)

    keys = list(dict.fromkeys((each.offering_id, each.paid) for each in spans))
    kinds = [kind for kind in SignKind if any(mark.kind is kind for mark in marks)]
    shown = keys[: max(0, MOST_LANES - len(kinds))]
    most = max((each.instances for each in spans), default=1)
    pitch = LANE + LANE_GAP
    lanes: list[GanttLane] = []
    bars: list[GanttBar] = []
    for row, key in enumerate(shown):
        top = TOP + row * pitch
        offering_id, paid = key
        lanes.append(
            GanttLane(y=top + LANE / 2, name=f"{names.get(offering_id, offering_id)}, {paid}")
        )
        of_lane = [held for held in spans if (held.offering_id, held.paid) == key]
        bars.extend(_bar(held, top, most, x_of, span) for held in of_lane)
    signs: list[Sign] = []
    for row, kind in enumerate(kinds, start=len(shown)):
        middle = TOP + row * pitch + LANE / 2
        of_kind = [mark for mark in marks if mark.kind is kind]
        lanes.append(GanttLane(y=middle, name=f"{GLYPHS[kind]} {kind.value} ({len(of_kind)})"))
        signs.extend(_sign(mark, x_of(mark.at_ns), middle) for mark in of_kind[:MOST_MARKS])
    inside = span.begin_ns <= span.deadline_ns <= span.end_ns
    goes_on = not span.over and span.begin_ns < span.now_ns < span.end_ns
    left_out = len(keys) - len(shown)
    return Gantt(
        width=width,
        height=TOP + max(1, len(lanes)) * pitch,
        left=LEFT,
        lanes=tuple(lanes),
        bars=tuple(bars),
        signs=tuple(signs),
        ticks=tuple(
            Tick(x=x_of(at), text=text) for at, text in _ticks(span, _TICKS * width // WIDTH)
        ),
        deadline_x=x_of(span.deadline_ns) if inside else None,
        now_x=x_of(span.now_ns) if goes_on else None,
        left_out=left_out + sum(max(0, _count(marks, kind) - MOST_MARKS) for kind in kinds),
    )


def _sign(mark: JobSign, x: float, y: float) -> Sign:
    return Sign(
        x=x,
        y=y,
        glyph=GLYPHS[mark.kind],
        bad=mark.kind in BAD,
        title=f"{_clock(mark.at_ns)}: {mark.kind.value} {mark.detail}".strip(),
    )


def _count(marks: Sequence[JobSign], kind: SignKind) -> int:
    return sum(mark.kind is kind for mark in marks)


def _bar(held: LotSpan, top: float, most: int, x_of: _Place, span: Span) -> GanttBar:
    until_ns = held.until_ns or span.now_ns
    begin, end = x_of(held.from_ns), x_of(until_ns)
    height = round(LANE * (0.4 + 0.6 * held.instances / most), 1)
    text = str(held.instances)
    goes_on = "" if held.until_ns else " and still does"
    return GanttBar(
        x=begin,
        y=round(top + LANE - height, 1),
        width=max(1.5, round(end - begin, 1)),
        height=height,
        paid=held.paid,
        text=text if end - begin >= 9 * len(text) + 4 else "",
        title=(
            f"{held.instances} {held.paid} from {_clock(held.from_ns)} to {_clock(until_ns)}"
            f"{goes_on}"
        ),
    )


def _clock(at_ns: int) -> str:
    return f"{datetime.fromtimestamp(at_ns // NS_PER_S, tz=UTC):%Y-%m-%d %H:%M UTC}"


def _ticks(span: Span, most: int) -> list[tuple[int, str]]:
    """Round moments inside, at most about `most`; a new day is named by its date."""
    length_s = max(1, (span.end_ns - span.begin_ns) // NS_PER_S)
    step_s = next((step for step in _STEPS_S if length_s / step <= most), length_s // most + 1)
    first_s = -(-(span.begin_ns // NS_PER_S) // step_s) * step_s
    ticks = []
    day = ""
    for at_s in range(first_s, span.end_ns // NS_PER_S + 1, step_s):
        at = datetime.fromtimestamp(at_s, tz=UTC)
        named = f"{at:%m-%d}"
        text = f"{at:%H:%M}" if step_s < 86_400 and named == day else f"{at:%m-%d %H:%M}"
        day = named
        ticks.append((at_s * NS_PER_S, text))
    return ticks
