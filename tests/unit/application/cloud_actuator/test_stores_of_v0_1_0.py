"""Ledgers and clouds of v0.1.0, killed between any two steps of the actuator, are continued."""

import json

from tests.fakes.actuator import Rig
from tests.samples.stored_runs import STORED, readable, rig_options, story, unpack


async def told_to_its_end(directory):
    """Start on what lies in `directory`, be told all from the beginning, and give the ledger."""
    rig = Rig(directory, **rig_options())
    try:
        await rig.actuation.start()
        await story(rig)
        return rig.published, json.loads(readable(rig.ledger.comparable()))
    finally:
        rig.close()


async def test_a_store_of_v0_1_0_that_was_killed_at_any_step_ends_with_its_bill(tmp_path):
    expected = json.loads((STORED / "story-end.json").read_text(encoding="utf-8"))
    unpack(STORED / "actuator-stores.tar.xz", tmp_path / "killed")
    stores = sorted((tmp_path / "killed").iterdir())

    published, ledger = await told_to_its_end(tmp_path / "calm")

    assert ledger == expected
    assert len(stores) > 60
    for store in stores:
        answers, continued = await told_to_its_end(store)
        assert continued == expected, f"killed at {store.name}"
        assert answers == published, f"killed at {store.name}"
