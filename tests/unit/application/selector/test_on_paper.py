"""What is filled on paper decides as ever, and is no evidence of what policies are worth."""

import pytest

from spotline.application.market_ingest.handler import IngestHandler, IngestOptions
from spotline.domain.events.lifecycle import JobClosed
from spotline.domain.events.selection import PolicyWeightsUpdated
from spotline.domain.modes import Mode, StatedModes
from tests.fakes.selector import SelectorWorld, job_of


def run(mode: Mode) -> SelectorWorld:
    world = SelectorWorld(job_of(work_slots=2))
    world.clock = IngestHandler(world.market, IngestOptions(), modes=StatedModes(run=mode))
    (opening,) = world.clock.due(world.clock.initial())
    for event in opening.events:
        world.feed(event)
    for _ in range(world.market.slots):
        world.next_slot()
    return world


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.SHADOW])
def test_a_job_on_paper_ends_as_a_live_one_and_moves_no_weight(mode) -> None:
    paper, live = run(mode), run(Mode.LIVE)

    ended = [one for one in paper.log if isinstance(one, JobClosed)]
    assert ended
    assert ended == [one for one in live.log if isinstance(one, JobClosed)]
    assert [one for one in live.log if isinstance(one, PolicyWeightsUpdated)]
    assert [one for one in paper.log if isinstance(one, PolicyWeightsUpdated)] == []
