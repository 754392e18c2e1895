"""A log whose entries are batches says what the same log of single entries says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from spotline.adapters.eventlog.manifest import environment
from spotline.adapters.eventlog.reader import EventLogReader
from spotline.contracts.batch import is_batch, packed, repacked, unpacked
from spotline.contracts.build import event_of
from spotline.contracts.codec import encode
from spotline.contracts.envelope import StoredEntry
from spotline.domain.events.allocation import AllocationDecided
from spotline.replay.handlers import handlers_of
from spotline.replay.recorded import readable_events
from spotline.replay.verify import verify
from tests.fakes.recorded_run import SETTINGS, manifest_of, small_run, write_log


def in_batches(log: Sequence[StoredEntry], *, most_events: int = 1 << 16) -> list[StoredEntry]:
    """The log as services store it, neighbours of one cause in one entry."""
    entries: list[StoredEntry] = []
    stored_ns = iter([entry.stored_ns for entry in log])
    for one in packed([entry.envelope() for entry in log], most_events=most_events):
        first_ns, *_ = [next(stored_ns) for _ in range(one.events)]
        envelope = one.envelope
        entries.append(
            StoredEntry(
                seq=len(entries) + 1,
                stored_ns=first_ns,
                subject=envelope.subject,
                headers=envelope.headers(),
                payload=envelope.payload,
            )
        )
    return entries


@pytest.fixture(scope="module")
def log() -> list[StoredEntry]:
    return small_run()


def verified(entries: Sequence[StoredEntry]):
    return verify(entries, handlers_of(SETTINGS), manifest_of(entries), here=environment())


@pytest.fixture(scope="module")
def alone(log: list[StoredEntry]):
    """What verification says of the single entries."""
    return verified(log)


@pytest.mark.parametrize("most_events", [1, 3, 1 << 16])
def test_it_verifies_as_the_single_entries_do(log, alone, most_events):
    entries = in_batches(log, most_events=most_events)
    together = verified(entries)

    assert together.divergences == ()
    assert together.sha256_by_service == alone.sha256_by_service
    assert together.decisions == alone.decisions
    assert together.open_inputs == alone.open_inputs
    assert together.entries == len(entries)
    assert most_events == 1 or len(entries) < len(log)


def test_its_events_are_those_of_the_single_entries(log):
    entries = in_batches(log)

    assert [one.envelope for one in readable_events(entries)] == [
        one.envelope for one in readable_events(log)
    ]


def test_an_altered_decision_inside_a_batch_is_one_divergence(log):
    entries = in_batches(log)
    place, batch = next(
        (place, entry)
        for place, entry in enumerate(entries)
        if is_batch(entry)
        and any(isinstance(event_of(e), AllocationDecided) for e in unpacked(entry))
    )
    events = list(unpacked(batch))
    at = next(i for i, e in enumerate(events) if isinstance(event_of(e), AllocationDecided))
    altered = replace(event_of(events[at]), explanation="altered")
    envelope = replace(events[at].envelope(), payload=encode(altered))
    events[at] = replace(events[at], headers=envelope.headers(), payload=envelope.payload)
    entries[place] = repacked(batch, events)

    (divergence,) = verified(entries).divergences
    assert divergence.seq == batch.seq
    assert divergence.handler == "selector"
    assert divergence.kind == "decision"


def test_a_log_that_ends_between_the_inputs_of_an_entry_is_open_not_diverged(log):
    """Decisions on the first input of an entry are there, those on its second are not."""
    entries = in_batches(log)
    for cut in (len(entries) // 2, len(entries) - 5):
        assert verified(entries[:cut]).divergences == ()


def test_a_recorded_batch_is_one_line_that_people_can_read(log, tmp_path):
    entries = in_batches(log)
    write_log(tmp_path, entries)

    lines = (tmp_path / "entries.jsonl").read_text().splitlines()
    read = list(EventLogReader(tmp_path))

    assert len(lines) == len(entries)
    assert "payload_b64" not in "".join(lines)
    assert any('"events":[{"id":' in line and '"reason":' in line for line in lines)
    for entry, again in zip(entries, read, strict=True):
        assert unpacked(again)[-1].envelope() == unpacked(entry)[-1].envelope()
        assert unpacked(again) == unpacked(entry) or not is_batch(entry)
    assert verified(read).sha256_by_service == verified(log).sha256_by_service
