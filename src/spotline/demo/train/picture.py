"""The proof as a picture: who ran when and was disturbed how, the loss, the work lost, the money."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from spotline.demo.train.diary import Page
from spotline.demo.train.report import JobFared, TrainReport
from spotline.demo.train.scenario import LENGTH
from spotline.domain.events.capacity import CapacityLost, InterruptionNoticed
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobClosed

# A palette that stays distinct for colour-blind readers and in grey.
_SIZES = {1: "#8fb8de", 2: "#2a78b5", 3: "#174a75", 4: "#0d2c47"}
_LOST, _NOTICED, _SUDDEN, _DEADLINE, _GREY = "#b3262e", "#e07b28", "#b3262e", "#222222", "#9a9a9a"
_DPI = 110


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """All that is drawn: the report, every job's diary pages, the log, when slots opened.

    `slots_opened_s` are wall seconds by slot, `slot_s` its market seconds.
    """

    report: TrainReport
    pages: Sequence[Sequence[Page]]
    events: Sequence[Event]
    slots_opened_s: Sequence[float]
    slot_s: int

    def wall_s(self, slot: int, offset_s: float) -> float:
        """Seconds since the first slot opened, of a moment in market time."""
        opened = self.slots_opened_s
        length = (opened[-1] - opened[0]) / max(1, len(opened) - 1)
        begins = (
            opened[slot] if slot < len(opened) else opened[-1] + length * (slot - len(opened) + 1)
        )
        return begins - opened[0] + length * offset_s / self.slot_s


def draw(drawn: Drawn, path: Path) -> None:
    """Draw it to a PNG.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    jobs = drawn.report.jobs
    figure = plt.figure(figsize=(11, 8.2), layout="constrained")
    grid = figure.add_gridspec(3, len(jobs), height_ratios=(1.5, 1.2, 1.0))
    _timeline(figure.add_subplot(grid[0, :]), drawn)
    for index, job in enumerate(jobs):
        _losses(figure.add_subplot(grid[1, index]), job, first=index == 0)
    half = max(1, len(jobs) // 2)
    _money(figure.add_subplot(grid[2, :half]), jobs)
    _work(figure.add_subplot(grid[2, half:]), jobs)
    figure.savefig(path, dpi=_DPI)
    plt.close(figure)


def _timeline(axes: Any, drawn: Drawn) -> None:
    jobs = drawn.report.jobs
    begin = drawn.slots_opened_s[0]
    for row, (job, pages) in enumerate(zip(jobs, drawn.pages, strict=True)):
        for page in pages:
            if page.rank == 0:
                _draw_page(axes, job, page, row, begin)
        deadline = drawn.wall_s(job.task.first_slot + job.task.deadline_slots, 0)
        axes.plot([deadline] * 2, [row - 0.42, row + 0.42], color=_DEADLINE, lw=2)
        _draw_interruptions(axes, drawn, job, row)
    axes.set_yticks(range(len(jobs)), [job.task.name for job in jobs])
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel("wall seconds since the market opened")
    axes.set_title("Who trained when, on how many instances, and what was taken back", loc="left")
    sizes = {
        began["world"] for pages in drawn.pages for page in pages for began in page.of("began")
    }
    _legend(axes, sorted(sizes))


def _draw_page(axes: Any, job: JobFared, page: Page, row: int, begin: float) -> None:
    """One generation: a bar from its begin to its last note, what was lost of it in red."""
    began = next(page.of("began"), None)
    if began is None:
        return
    kept = next(
        (span.kept for span in job.account.generations if span.generation == page.generation), 0
    )
    first_s, height = began["at_s"] - begin, 0.22 + 0.2 * began["world"]
    kept_s = max(
        (note["at_s"] for note in page.notes if note.get("step", 0) <= kept), default=began["at_s"]
    )
    last_s = page.notes[-1]["at_s"] - begin
    colour = _SIZES.get(began["world"], _SIZES[4])
    axes.barh(row, kept_s - begin - first_s, left=first_s, height=height, color=colour)
    if last_s > kept_s - begin:
        axes.barh(
            row,
            last_s - kept_s + begin,
            left=kept_s - begin,
            height=height,
            color=_LOST,
            alpha=0.55,
        )


def _draw_interruptions(axes: Any, drawn: Drawn, job: JobFared, row: int) -> None:
    for event in drawn.events:
        if getattr(event, "job_id", "") != job.job.job_id:
            continue
        if isinstance(event, InterruptionNoticed):
            axes.plot(
                drawn.wall_s(event.slot, event.offset_s), row - 0.4, "v", color=_NOTICED, ms=6
            )
        elif isinstance(event, CapacityLost) and set(event.instance_ids) - job.evidence.noticed:
            axes.plot(drawn.wall_s(event.slot, event.offset_s), row - 0.4, "x", color=_SUDDEN, ms=7)
        elif isinstance(event, JobClosed):
            axes.plot(drawn.wall_s(event.slot + 1, 0), row, "D", color="#1d7a46", ms=5)


def _legend(axes: Any, sizes: Sequence[int]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [
        *(
            Patch(color=_SIZES.get(size, _SIZES[4]), label=f"{size} instance{'s' * (size > 1)}")
            for size in sizes
        ),
        Patch(color=_LOST, alpha=0.55, label="lost, trained again"),
        Line2D([], [], marker="v", ls="", color=_NOTICED, label="notice"),
        Line2D([], [], marker="x", ls="", color=_SUDDEN, label="gone without notice"),
        Line2D([], [], marker="D", ls="", color="#1d7a46", label="done"),
        Line2D([], [], color=_DEADLINE, lw=2, label="deadline"),
    ]
    axes.legend(
        handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=7, fontsize=8
    )


def _losses(axes: Any, job: JobFared, *, first: bool) -> None:
    per_step = job.task.batch * LENGTH / 1000
    for run in job.undisturbed:
        curve = run.losses
        axes.plot([step * per_step for step in curve], list(curve.values()), color=_GREY, lw=0.8)
    curve = job.account.losses
    axes.plot([step * per_step for step in curve], list(curve.values()), color=_SIZES[2], lw=1.3)
    for before, after in pairwise(job.account.generations):
        if after.resumed:
            axes.axvline(after.resumed * per_step, color=_NOTICED, lw=0.6, ls=":")
        del before
    axes.set_title(f"{job.task.name}: {job.loss_gap:+.2%}", fontsize=9, loc="left")
    axes.set_xlabel("thousand tokens", fontsize=8)
    axes.tick_params(labelsize=8)
    if first:
        axes.set_ylabel("training loss, nats/token\n(grey: undisturbed)", fontsize=8)


def _money(axes: Any, jobs: Sequence[JobFared]) -> None:
    bars = (
        ("Spotline", [job.cost_micro_usd / 1e6 for job in jobs], _SIZES[2]),
        ("MSU", [job.msu_micro_usd / 1e6 for job in jobs], _SIZES[1]),
        ("on demand", [job.on_demand_micro_usd / 1e6 for job in jobs], _NOTICED),
    )
    for index, (label, values, colour) in enumerate(bars):
        places = [place + 0.27 * (index - 1) for place in range(len(jobs))]
        axes.bar(places, values, width=0.25, label=label, color=colour)
    axes.set_xticks(range(len(jobs)), [job.task.name for job in jobs], fontsize=8)
    axes.set_ylabel("USD", fontsize=8)
    axes.set_title("Cost", fontsize=9, loc="left")
    axes.margins(y=0.3)
    axes.legend(fontsize=8, loc="upper right", ncols=3)


def _work(axes: Any, jobs: Sequence[JobFared]) -> None:
    kept = [job.account.steps for job in jobs]
    lost = [job.account.steps_lost for job in jobs]
    places = range(len(jobs))
    axes.bar(places, kept, width=0.5, color=_SIZES[1], label="kept")
    axes.bar(places, lost, width=0.5, bottom=kept, color=_LOST, alpha=0.55, label="lost")
    for place, job in zip(places, jobs, strict=True):
        evidence = job.evidence
        words = (
            f"{lost[place]} lost\nnotices saved: {evidence.saves_completed}/{evidence.saves_tried}"
        )
        axes.text(place, kept[place] + lost[place], words, ha="center", va="bottom", fontsize=7)
    axes.set_xticks(places, [job.task.name for job in jobs], fontsize=8)
    axes.set_ylim(0, 1.6 * max(kept[place] + lost[place] for place in places))
    axes.set_ylabel("updates", fontsize=8)
    axes.set_title("Work", fontsize=9, loc="left")
    axes.legend(fontsize=8, loc="upper right", ncols=2)
