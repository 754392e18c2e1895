"""Ledgers and clouds of v0.1.0, killed between any two steps of the actuator, are continued."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from spotline.domain.events.capacity import (
    CapacityReported,
    InstancesEnded,
    LaunchRefused,
    RefusalClass,
)
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


def refused_before(directory):
    """The commands whose refusal the ledger in `directory` holds an answer of."""
    with closing(sqlite3.connect(directory / "ledger.sqlite")) as ledger:
        texts = [text for (text,) in ledger.execute("SELECT events FROM answers")]
    events = [event for text in texts for event in json.loads(text)]
    return {fields["command_id"] for kind, fields in events if kind == "LaunchRefused"}


def as_answered(event, answered):
    """`event` as v0.1.0 answered it if it did: a refusal without a class is given again so."""
    if isinstance(event, LaunchRefused) and event.command_id in answered:
        return replace(event, refusal_class=None, retry_after_s=0)
    return event


def without_names(event):
    """A report as v0.1.0 made it: it did not name instances, or all those of a holding."""
    if not isinstance(event, CapacityReported):
        return event
    for holding in event.holdings:
        held = sum(lot.spot + lot.on_demand for lot in holding.lots)
        assert len(holding.instance_ids) in (0, held)
    holdings = tuple(replace(holding, instance_ids=()) for holding in event.holdings)
    return replace(event, holdings=holdings)


@pytest.mark.slow
async def test_a_store_of_v0_1_0_that_was_killed_at_any_step_ends_with_its_bill(tmp_path):
    expected = json.loads((STORED / "story-end.json").read_text(encoding="utf-8"))
    unpack(STORED / "actuator-stores.tar.xz", tmp_path / "killed")
    # Read in a copy: to open and close a store of SQLite tidies it up.
    unpack(STORED / "actuator-stores.tar.xz", tmp_path / "copies")
    stores = sorted((tmp_path / "killed").iterdir())

    published, ledger = await told_to_its_end(tmp_path / "calm")

    assert ledger == expected
    assert len(stores) > 60
    refusals = {event for event in published if isinstance(event, LaunchRefused)}
    assert {event.refusal_class for event in refusals} == {RefusalClass.NO_CAPACITY}
    given_again = 0
    for store in stores:
        answers, continued = await told_to_its_end(store)
        assert continued == expected, f"killed at {store.name}"
        answered = refused_before(tmp_path / "copies" / store.name)
        given_again += bool(answered)
        wanted = [without_names(as_answered(event, answered)) for event in published]
        # That what was released before the kill has ended is told beside; no answer knew it then.
        told = [event for event in answers if not isinstance(event, InstancesEnded)]
        assert [*map(without_names, told)] == wanted, f"killed at {store.name}"
    assert 0 < given_again < len(stores)
