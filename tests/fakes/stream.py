"""A stream in memory, for tests of what follows one."""

import asyncio
import re

from spotline.application.health.flow import LogFacts, PlaceFacts
from spotline.contracts.batch import MOST_EVENTS
from spotline.contracts.envelope import StoredEntry


class FakeStream:
    """Holds entries from seq 1 on; durable places remember what was acknowledged."""

    def __init__(self, *, most_events=MOST_EVENTS):
        self.most_events = most_events
        self.entries = []
        self.places = {}
        self.grew = asyncio.Event()

    async def publish(self, envelopes):
        for envelope in envelopes:
            self.entries.append(
                StoredEntry(
                    seq=len(self.entries) + 1,
                    stored_ns=1_000 + len(self.entries),
                    subject=envelope.subject,
                    headers=envelope.headers(),
                    payload=envelope.payload,
                )
            )
        self.grew.set()
        return [entry.seq for entry in self.entries[-len(envelopes) :]]

    async def facts(self, places=()):
        last = len(self.entries)
        known = {name: self.places[name] for name in places if name in self.places}
        return LogFacts(
            first_seq=1,
            last_seq=last,
            storage_bytes=sum(len(entry.payload) for entry in self.entries),
            places={
                name: PlaceFacts(floor_seq=floor, waiting=max(0, last - floor))
                for name, floor in known.items()
            },
        )

    async def last_seq(self):
        return len(self.entries)

    async def first_seq_since(self, stored_ns):
        before = [entry for entry in self.entries if entry.stored_ns < stored_ns]
        return len(before) + 1

    async def read(self, subjects, *, first_seq=1, last_seq):
        assert first_seq >= 1, "a broker refuses this"
        for entry in self.entries[first_seq - 1 : last_seq]:
            if on_any(subjects, entry.subject):
                yield entry

    async def subscribe(self, name, subjects, *, first_seq=1):
        self.places.setdefault(name, first_seq - 1)
        return FakeSubscription(self, name, subjects)


class FakeSubscription:
    def __init__(self, stream, name, subjects):
        self.stream = stream
        self.name = name
        self.subjects = subjects
        self.floor_seq = stream.places[name]
        self.next_seq = self.floor_seq + 1
        self.closed = False
        self.rebased = False

    async def fetch(self, *, limit, timeout_s):
        if self.next_seq > len(self.stream.entries):
            self.stream.grew.clear()
            try:
                await asyncio.wait_for(self.stream.grew.wait(), min(timeout_s, 0.01))
            except TimeoutError:
                return []
        batch = self.stream.entries[self.next_seq - 1 : self.next_seq - 1 + limit]
        self.next_seq += len(batch)
        return [entry for entry in batch if on_any(self.subjects, entry.subject)]

    @property
    def waiting(self):
        return len(self.stream.entries) + 1 - self.next_seq

    async def ack(self, entry):
        self.stream.places[self.name] = max(self.stream.places[self.name], entry.seq)

    async def close(self):
        self.closed = True


def on_any(subjects, subject):
    """Whether a subject matches one of the filters; no filter lets all pass."""
    patterns = [re.escape(one).replace(r"\*", "[^.]+").replace(">", ".+") for one in subjects]
    return not patterns or any(re.fullmatch(pattern, subject) for pattern in patterns)
