"""A run to draw: six jobs, of which two have more work than time."""

from dataclasses import replace

import pytest

from spotline.application.selector.options import SelectorOptions
from spotline.replay.jobs import generated_jobs
from spotline.replay.pictures.lives import DrawnRun, drawn_run
from tests.fakes.recorded_run import recorded_run, small_market


@pytest.fixture(scope="package")
def log():
    market = small_market(slots=120)
    jobs = [
        replace(job, work=replace(job.work, amount=job.work.amount * (2.6 if n in (1, 3) else 1)))
        for n, job in enumerate(generated_jobs(market, 6, 4))
    ]
    return recorded_run(market, jobs)


@pytest.fixture(scope="package")
def options() -> SelectorOptions:
    return SelectorOptions(rehearsals=2)


@pytest.fixture(scope="package")
def run(log, options) -> DrawnRun:
    return drawn_run(log, options)


@pytest.fixture
def figures(monkeypatch):
    """Every figure that is saved, in order."""
    from spotline.replay.pictures import style

    saved = []
    save = style.save

    def kept(figure, path):
        saved.append(figure)
        save(figure, path)

    monkeypatch.setattr(style, "save", kept)
    return saved
