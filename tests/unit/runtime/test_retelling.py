"""What a start reads of a log to see whether it has all that the ledger holds of jobs and costs."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.adapters.ledger.sql import SqlLedger
from spotline.adapters.ledger.threaded import ThreadedLedger
from spotline.application.cloud_actuator.agreed_mark import AgreedMark, HeldOfJobs, is_all_told
from spotline.application.cloud_actuator.ports import Admission, LedgerEntry
from spotline.application.cloud_actuator.retelling import LogOfJobs
from spotline.application.incarnations import LogRemembered
from spotline.bench.faults.stream import DurablePlace, MemoryBroker, MemoryStream
from spotline.domain.events.capacity import CostAccrued, SlotDecided
from spotline.domain.events.lifecycle import JobSubmitted
from spotline.domain.ledger.billing import Charge
from spotline.domain.ledger.job_records import JobRecord
from spotline.runtime.retelling import tell_again
from tests.fakes.allocator import job
from tests.fakes.events import envelope
from tests.fakes.ledgers import cost

OURS = LogRemembered(installation_id="0" * 32)


class CountingStream(MemoryStream):
    """A stream that counts what is read of it."""

    entries_read = 0

    async def read(self, subjects, *, first_seq=1, last_seq):
        async for entry in super().read(subjects, first_seq=first_seq, last_seq=last_seq):
            self.entries_read += 1
            yield entry


class Books:
    """A log and a ledger that say the same, as long as nothing is lost."""

    def __init__(self, folder):
        self.folder = folder
        self.broker = MemoryBroker(now_ns=lambda: self.broker.last_seq)
        self.open()
        self.jobs = 0
        self.slot = 0

    def open(self):
        self.sql = SqlLedger(f"sqlite:///{self.folder / 'ledger.sqlite'}", "default")
        self.ledger = ThreadedLedger(self.sql)

    async def submit(self, *, logged=True, job_id=None):
        self.jobs += 1
        submitted = JobSubmitted(job=job(job_id or f"j{self.jobs}"), ts_event_ns=1)
        event_id = f"submitted-{self.jobs}"
        record = JobRecord(
            event_id=event_id,
            correlation_id=submitted.job.job_id,
            job_id=submitted.job.job_id,
            event=submitted,
        )
        admission = Admission(
            job_id=record.job_id, tenant=submitted.job.tenant, digest="d", record=record
        )
        await self.ledger.admit([admission])
        if logged:
            await self.log(submitted, event_id)

    async def charge(self, *, logged=True):
        self.slot += 1
        charged = replace(
            cost(self.slot, slot=self.slot, job_id=job("j1").job_id), instances=0, held_s=0
        )
        await self.ledger.record(LedgerEntry(charges=(Charge(start_s=-1, cost=charged),)))
        if logged:
            await self.log(charged, f"cost-{self.slot}")

    async def log(self, event, event_id):
        await MemoryStream(self.broker).publish([envelope(event, event_id=event_id)])

    async def start(self):
        """Start the actuator; what it said again, and how many entries it read for that."""
        stream = CountingStream(self.broker)
        await stream.look()
        told = await tell_again(stream, self.ledger, OURS)
        return told, stream.entries_read


def copied(books):
    books.sql.close()
    copy = (books.folder / "ledger.sqlite").read_bytes()
    books.open()
    return copy


def put_back(books, copy):
    books.sql.close()
    for file in books.folder.glob("ledger.sqlite*"):
        file.unlink()
    if copy is not None:
        (books.folder / "ledger.sqlite").write_bytes(copy)
    books.open()


@pytest.fixture
async def books(tmp_path):
    made = Books(tmp_path)
    for _ in range(5):
        await made.submit()
        await made.charge()
    yield made
    made.sql.close()


async def test_a_start_reads_what_came_since_the_last_one_alone(books):
    told, read = await books.start()
    assert (told, read) == ((), 10)

    read = [(await books.start())[1] for _ in range(2)]
    assert max(read) <= 2

    await books.submit()
    await books.charge()
    told, read = await books.start()
    assert told == ()
    assert read <= 4
    assert (await books.start())[1] <= 2


async def test_what_the_log_lacks_is_found_behind_a_mark(books):
    await books.start()
    await books.submit(logged=False)

    told, _ = await books.start()

    assert [one.event.job.job_id for one in told] == [job("j6").job_id]
    assert (await books.start())[0] == ()


async def test_a_log_that_lost_its_end_is_read_from_its_first_entry(books):
    await books.start()
    books.broker.cut(5)
    for number in range(7):
        await books.log(JobSubmitted(job=job(f"k{number}"), ts_event_ns=1), f"k{number}")

    told, read = await books.start()

    assert read > 10
    jobs = [one.event.job.job_id for one in told if isinstance(one.event, JobSubmitted)]
    assert jobs == [job(f"j{number}").job_id for number in (4, 5)]


async def test_an_older_ledger_goes_by_its_own_mark(books):
    await books.start()
    copy = copied(books)
    for _ in range(3):
        await books.submit()
        await books.charge()
    await books.start()
    put_back(books, copy)
    await books.submit(job_id="later", logged=False)

    told, _ = await books.start()

    assert [one.event.job.job_id for one in told] == [job("later").job_id]


async def test_an_empty_ledger_reads_nothing(books):
    put_back(books, None)

    assert await books.start() == ((), 0)


async def test_a_record_of_an_entry_before_the_mark_has_all_compared_once(books):
    late = JobSubmitted(job=job("late"), ts_event_ns=1)
    await books.log(late, "submitted-6")
    await books.charge()
    await books.start()
    books.jobs = 5
    await books.submit(job_id="late", logged=False)

    told, read = await books.start()

    assert told == ()
    assert read > 10
    assert (await books.start())[1] <= 2


@given(st.data())
def test_what_is_missing_behind_a_mark_is_never_overlooked(data):
    """Whatever the log lost of what the ledger got since: all is told, or all is compared."""
    jobs = [JobSubmitted(job=job(f"r{number}"), ts_event_ns=1) for number in range(4)]
    records = [
        JobRecord(event_id=one.job.job_id, correlation_id="", job_id=one.job.job_id, event=one)
        for one in jobs
    ]
    slots = sorted(data.draw(st.lists(st.integers(0, 3), max_size=8)))
    costs = [cost(1, slot=slot, job_id=jobs[0].job.job_id) for slot in slots]
    held = HeldOfJobs(records=records, costs=costs, admitted=[one.job_id for one in records])
    known = data.draw(st.integers(0, len(records)))
    slot = data.draw(st.integers(0, 4))
    charges, micro_usd = held.before(slot)
    mark = AgreedMark(
        created="",
        incarnation=1,
        seq=1,
        stored_ns=1,
        records=known,
        slot=slot,
        charges=charges,
        micro_usd=micro_usd,
        unrecorded=0,
    )
    since = [(one.event, one.event_id) for one in records[known:]]
    since += [(one, f"c{place}") for place, one in enumerate(costs) if one.slot >= slot]
    kept = data.draw(st.lists(st.booleans(), min_size=len(since), max_size=len(since)))
    tail = LogOfJobs()
    for (event, event_id), is_there in zip(since, kept, strict=True):
        if is_there:
            tail.fold(event, event_id)

    assert is_all_told(mark, held, tail) == all(kept)
    assert not is_all_told(replace(mark, charges=charges + 1), held, tail)
    assert not is_all_told(replace(mark, records=len(records) + 1), held, tail)


async def test_what_the_actuator_will_say_itself_is_not_said_by_others(books):
    await books.start()
    books.broker.cut(8)
    last = books.slot
    await books.log(SlotDecided(slot=last, revision=0, offset_s=0, commands=0), "decided")

    told, _ = await books.start()
    assert [type(one.event) for one in told] == [JobSubmitted], "the answer is in the ledger"

    place = DurablePlace(acked_seq=books.broker.last_seq, incarnation=2)
    books.broker.places["cloud_actuator"] = place
    told, _ = await books.start()
    assert [(type(one.event), one.event.slot) for one in told] == [(CostAccrued, last)]
