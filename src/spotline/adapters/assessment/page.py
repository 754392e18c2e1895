"""An assessment as a page that needs nothing else: no script, no font, no picture from elsewhere."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment

from spotline.adapters.assessment.drawn import picture_of
from spotline.adapters.assessment.sources import AssessmentSources
from spotline.adapters.page.rendering import templates
from spotline.adapters.whole_file import replacing
from spotline.application.assessment.answer import Assessment
from spotline.application.assessment.words import (
    break_even_words,
    factor,
    money,
    rests_on,
    verdict,
)
from spotline.domain.market.prior_laws import shipped_card
from spotline.domain.units import NS_PER_S

MOST_JOBS = 50


def write_page(path: Path, told: Assessment, sources: AssessmentSources) -> None:
    """Write the page; of more than `MOST_JOBS` jobs those that cost most are shown.

    Raises
    ------
    OSError
        The folder is absent, not writable, or full.
    """
    dearest = sorted(
        told.jobs, key=lambda line: (-line.assessed.job.paid_micro, line.assessed.job.job_id)
    )
    environment = _environment()
    text = environment.get_template("assessment.html").render(
        told=told,
        bill=told.bill,
        verdict=verdict(told),
        picture=picture_of(told) if told.jobs else None,
        rests=rests_on(told),
        jobs=dearest[:MOST_JOBS],
        sources=sources,
        learned=shipped_card()["sources"],
        css=files("spotline.adapters.page").joinpath("static/page.css").read_text("utf-8"),
        parts=environment.get_template("macros.html").module,
    )
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


@cache
def _environment() -> Environment:
    """As pages are rendered, with what only an assessment says."""
    environment = templates("spotline.adapters.assessment")
    environment.filters.update(
        factor=factor, money=money, even=break_even_words, at_s=lambda at_s: at_s * NS_PER_S
    )
    return environment
