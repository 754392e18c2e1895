"""Reports as files that stand alone: HTML with its picture inside, CSV with a row for each job."""

from __future__ import annotations

import base64
import csv
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from spotline.adapters.page.rendering import templates
from spotline.adapters.whole_file import replacing
from spotline.application.page.summary import PeriodSummary
from spotline.application.page.waterfall import bars
from spotline.domain.units import utc_iso


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportAbout:
    """What a report is of, in words: `source` says what the money is, `command` makes it again."""

    title: str
    version: str
    log: str
    entries: str
    source: str
    command: str
    job: str = ""
    month: str = ""


COLUMNS = (
    *("job_id", "name", "tenant", "phase", "on_time", "deadline_kind", "deadline"),
    *("cost_micro_usd", "on_demand_micro_usd", "instance_hours", "interruptions"),
)


def write_csv(path: Path, told: PeriodSummary) -> None:
    """Write a row for each job; money in whole micro-USD, `on_time` empty where nobody can say.

    Raises
    ------
    OSError
        The folder is absent, not writable, or full.
    """
    with replacing(path) as unfinished, unfinished.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\r\n")
        table.writerow(COLUMNS)
        for job in told.jobs:
            on_time = "" if job.on_time is None else str(job.on_time).lower()
            table.writerow(
                (
                    *(job.job_id, _cell(job.name), _cell(job.tenant), job.phase.value, on_time),
                    *(job.deadline_kind.value, utc_iso(job.deadline_ns)),
                    *(job.cost_micro_usd, job.on_demand_micro_usd),
                    *(f"{job.instance_hours:.6f}", job.interruptions),
                )
            )


def write_html(path: Path, told: PeriodSummary, about: ReportAbout, picture: bytes = b"") -> None:
    """Write a page that needs nothing else; `picture` is a PNG, empty for none.

    Raises
    ------
    OSError
        The folder is absent, not writable, or full.
    """
    says = f"what {'the job' if about.job else 'each job'} held, progress, and cost over time"
    environment = templates("spotline.adapters.report")
    text = environment.get_template("report.html").render(
        told=told,
        about=about,
        bars=bars(told.waterfall),
        ways=(("tenant", told.by_tenant), ("offering", told.by_offering), ("kind", told.by_kind)),
        css=files("spotline.adapters.page").joinpath("static/page.css").read_text("utf-8"),
        parts=environment.get_template("macros.html").module,
        picture=base64.b64encode(picture).decode(),
        picture_says=says,
    )
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def _cell(text: str) -> str:
    """A name that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
