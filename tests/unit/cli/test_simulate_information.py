"""What `spotline simulate` lets policies know: all counts, or none but those that they believe."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from spotline.application.selector.options import SelectorOptions, where_uncounted
from spotline.cli import simulate as simulating
from spotline.cli.main import app
from spotline.cli.simulate_view import Simulation
from spotline.replay.clouds import Information


@pytest.mark.parametrize(
    ("options", "information", "selector"),
    [
        ((), Information.FULL, SelectorOptions(even_cells=True)),
        (
            ("--censored",),
            Information.CENSORED,
            where_uncounted(SelectorOptions(even_cells=True)),
        ),
    ],
)
def test_counts_that_are_hidden_are_believed(monkeypatch, options, information, selector):
    asked: list[Simulation] = []
    monkeypatch.setattr(simulating, "run_simulation", lambda asks, *_: asked.append(asks))
    done = CliRunner().invoke(app, ["simulate", "--market", "cloud-zones", "--jobs", "2", *options])

    assert done.exit_code == 0, done.output
    assert asked[0].options.information is information
    assert asked[0].options.selector == selector
    assert bool(asked[0].options.selector.beliefs) is (information is Information.CENSORED)
