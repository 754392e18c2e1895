"""Draws what jobs did beside what they would have done: what they held, and what that cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from spotline.adapters.page.charts import ChartMark, ChartSeries, Colour, TimeChart
from spotline.adapters.page.formats import seconds_of_ns
from spotline.adapters.page.making.job import places_of
from spotline.application.page.gantt import Gantt, Span, gantt
from spotline.application.page.holdings import ON_DEMAND, RESERVED, SPOT, LotSpan
from spotline.application.page.replaying import JobBeside, RunBeside, SlotLived
from spotline.application.page.state import PageState
from spotline.domain.units import MICRO_USD_PER_USD

_HALF = 640
"""How wide each of two drawings is that stand side by side."""

AS_IT_WAS, OTHERWISE = "as it was", "as it would have been"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnBeside:
    """One job as it was and as it would have been, on one axis of time."""

    job: JobBeside
    was: Gantt
    other: Gantt
    cost: TimeChart
    progress: TimeChart


def job_beside(state: PageState, found: RunBeside, job_id: str) -> DrawnBeside | None:
    """The job of this id; of no id, the one that would have cost the most more or less."""
    jobs = {job.job_id: job for job in found.compared}
    job = jobs.get(job_id)
    if job is None and not job_id:
        job = max(jobs.values(), key=lambda each: (abs(each.more_micro_usd or 0), each.job_id))
    if job is None or not (job.slots or job.other_slots):
        return None
    lived = [*job.slots, *job.other_slots]
    begin_ns = state.start_ns(min(each.slot for each in lived))
    deadlines = [at for at in (job.deadline_ns, job.other_deadline_ns) if at]
    end_ns = max(state.start_ns(max(each.slot for each in lived) + 1), *deadlines)
    names = places_of(state)

    def drawn(slots: Sequence[SlotLived], deadline_ns: int) -> Gantt:
        span = Span(
            begin_ns=begin_ns,
            end_ns=end_ns + (end_ns - begin_ns) // 50,
            now_ns=end_ns,
            deadline_ns=deadline_ns,
            over=True,
        )
        return gantt(spans_of(state, slots), (), span, names, width=_HALF)

    marks = [ChartMark(at_s=seconds_of_ns(at), name="deadline", colour="bad") for at in deadlines]
    return DrawnBeside(
        job=job,
        was=drawn(job.slots, job.deadline_ns),
        other=drawn(job.other_slots, job.other_deadline_ns),
        cost=_two_lines(
            state,
            ("job-cost", f"Cost so far of {job.name}, USD", "usd"),
            _course(job.slots, cost=True),
            _course(job.other_slots, cost=True),
        ),
        progress=_two_lines(
            state,
            ("job-progress", f"Work done of {job.name}, percent of all work", "percent"),
            _course(job.slots, cost=False),
            _course(job.other_slots, cost=False),
            marks[:1] if len(set(deadlines)) == 1 else marks,
        ),
    )


def spans_of(state: PageState, slots: Sequence[SlotLived]) -> list[LotSpan]:
    """What a job held from slot to slot; what goes on unchanged is one span."""
    reserved = {
        each.offering_id for each in state.jobs.recent.offerings if each.reservation is not None
    }
    spans: list[LotSpan] = []
    going: dict[tuple[str, str], LotSpan] = {}
    for lived in slots:
        begin_ns, end_ns = state.start_ns(lived.slot), state.start_ns(lived.slot + 1)
        held: dict[tuple[str, str], LotSpan] = {}
        for lot in lived.lots:
            bought = RESERVED if lot.offering_id in reserved else ON_DEMAND
            for paid, count in ((SPOT, lot.spot), (bought, lot.on_demand)):
                if not count:
                    continue
                key = lot.offering_id, paid
                before = going.get(key)
                goes_on = before is not None and (before.instances, before.until_ns) == (
                    count,
                    begin_ns,
                )
                held[key] = LotSpan(
                    offering_id=lot.offering_id,
                    paid=paid,
                    instances=count,
                    from_ns=before.from_ns if before is not None and goes_on else begin_ns,
                    until_ns=end_ns,
                )
        spans.extend(
            span
            for key, span in going.items()
            if key not in held or held[key].from_ns != span.from_ns
        )
        going = held
    spans.extend(going.values())
    return sorted(spans, key=lambda span: (span.from_ns, span.offering_id, span.paid))


def fleet_cost_chart(state: PageState, found: RunBeside) -> TimeChart:
    """What all jobs that were run again had cost by the end of each slot."""
    return _two_lines(
        state,
        ("fleet-cost", "Cost so far of all jobs that were run again, USD", "usd"),
        _summed([job.slots for job in found.compared]),
        _summed([job.other_slots for job in found.compared]),
    )


_Course = Sequence[tuple[int, float]]


def _summed(lives: Sequence[Sequence[SlotLived]]) -> _Course:
    by_slot: dict[int, int] = {}
    for life in lives:
        before = 0
        for lived in life:
            by_slot[lived.slot] = by_slot.get(lived.slot, 0) + lived.cost_micro_usd - before
            before = lived.cost_micro_usd
    total = 0
    course = []
    for slot in sorted(by_slot):
        total += by_slot[slot]
        course.append((slot, total / MICRO_USD_PER_USD))
    return course


def _course(slots: Sequence[SlotLived], *, cost: bool) -> _Course:
    return [
        (each.slot, each.cost_micro_usd / MICRO_USD_PER_USD if cost else each.progress_ppm / 1e4)
        for each in slots
    ]


def _two_lines(
    state: PageState,
    named: tuple[str, str, Literal["usd", "percent"]],
    was: _Course,
    other: _Course,
    marks: Sequence[ChartMark] = (),
) -> TimeChart:
    """Two courses by slot, from nothing on; a course that is over stays where it is."""
    moments = sorted({slot for slot, _ in (*was, *other)})
    begin = moments[0] - 1 if moments else 0
    lines: tuple[tuple[str, _Course, Colour], ...] = (
        (AS_IT_WAS, was, "spot"),
        (OTHERWISE, other, "line-2"),
    )
    name, title, unit = named
    return TimeChart(
        name=name,
        title=title,
        unit=unit,
        at_s=[seconds_of_ns(state.start_ns(slot + 1)) for slot in (begin, *moments)],
        series=[
            ChartSeries(
                name=called,
                colour=colour,
                values=_carried(course, (begin, *moments)),
                dashed=called == OTHERWISE,
            )
            for called, course, colour in lines
        ],
        marks=tuple(marks),
    )


def _carried(course: _Course, slots: Sequence[int]) -> list[float | None]:
    by_slot = dict(course)
    value = 0.0
    values: list[float | None] = []
    for slot in slots:
        value = by_slot.get(slot, value)
        values.append(value)
    return values
