"""The asynchronous ledger: off the loop, and many admissions in one transaction."""

import asyncio
import inspect
import threading

from sqlalchemy import event

from spotline.adapters.ledger.sql import SqlLedger
from spotline.adapters.ledger.threaded import ThreadedLedger, opened_ledger
from spotline.application.cloud_actuator.agreed_mark import AgreedMark
from spotline.application.cloud_actuator.ports import Admission, Ledger, LedgerEntry
from spotline.domain.events.lifecycle import JobCancelled
from spotline.domain.ledger.bills import BillSource, Settlement
from spotline.domain.ledger.job_records import JobRecord
from tests.fakes.actuator import OWNER
from tests.fakes.ledgers import instance_launch, intent

# Every method of the port, with something to ask.
MARK = AgreedMark(
    created="c",
    incarnation=1,
    seq=1,
    stored_ns=1,
    records=0,
    slot=0,
    charges=0,
    micro_usd=0,
    unrecorded=0,
)
CANCELLED = JobRecord(
    event_id="e",
    correlation_id="c",
    job_id="j",
    event=JobCancelled(job_id="j", tenant="t"),
)
ARGUMENTS = {
    "answers": ("k",),
    "intents": (["c"],),
    "pending": (),
    "held": (),
    "intervals": (0, 3600),
    "spend_by_job": (),
    "launches_since": (0,),
    "lives": (),
    "lives_of": (["i1"],),
    "cooldowns": (),
    "taken": (["e"],),
    "latest_ns": (),
    "latest_slot": (),
    "check_epoch": (),
    "admit": ([Admission(job_id="j", tenant="t", digest="d")],),
    "admitted": (["j"],),
    "admitted_ids": (),
    "agreed": (),
    "note_agreed": (MARK,),
    "job_records": (),
    "note_jobs": ([CANCELLED],),
    "charges_since": (0,),
    "raise_epoch": (2,),
    "bills": (),
    "settled": (["i"],),
    "unsettled": (0,),
    "settle": ([Settlement(instance_id="i", source=BillSource.PROVIDER, micro_usd=1, ts_ns=1)],),
    "write_intents": ([intent()],),
    "record": (LedgerEntry(call_key="k", launched=(instance_launch("i1"),)),),
}


async def test_no_statement_of_any_method_runs_on_the_loops_thread(ledger_database):
    threads = set()
    async with opened_ledger(ledger_database, OWNER) as opened:
        # Whoever runs a statement takes a connection first.
        event.listen(opened._engine, "checkout", lambda *_: threads.add(threading.get_ident()))
        ledger = ThreadedLedger(opened)
        for name, arguments in ARGUMENTS.items():
            threads.clear()
            await getattr(ledger, name)(*arguments)
            assert threads, f"{name} asked the database nothing"
            assert threading.get_ident() not in threads, f"{name} blocks the loop"


def test_every_method_of_the_port_is_tried():
    methods = {name for name, _ in inspect.getmembers(Ledger, inspect.isfunction)}

    assert {name for name in methods if not name.startswith("_")} == ARGUMENTS.keys()


async def test_a_ledger_is_opened_and_closed_off_the_loop(tmp_path, monkeypatch):
    threads = []

    class Noted(SqlLedger):
        def __init__(self, *arguments):
            threads.append(threading.get_ident())
            super().__init__(*arguments)

        def close(self):
            threads.append(threading.get_ident())
            super().close()

    monkeypatch.setattr("spotline.adapters.ledger.threaded.SqlLedger", Noted)

    async with opened_ledger(f"sqlite:///{tmp_path / 'ledger.sqlite'}", OWNER):
        pass

    assert len(threads) == 2
    assert threading.get_ident() not in threads


def admission(number):
    return Admission(job_id=f"j{number}", tenant="t", digest=f"d{number}")


class SlowLedger:
    """Writes admissions when it is let, and notes each transaction."""

    def __init__(self):
        self.groups, self.go, self.fails = [], threading.Event(), 0
        self.begun = threading.Semaphore(0)

    def admit(self, admissions):
        self.begun.release()
        self.go.wait(timeout=30)
        if self.fails:
            self.fails -= 1
            raise OSError("disk")
        self.groups.append([each.job_id for each in admissions])


async def begun(slow):
    assert await asyncio.to_thread(slow.begun.acquire, timeout=30)


async def test_admissions_that_come_while_one_is_written_share_the_next_transaction():
    slow = SlowLedger()
    ledger = ThreadedLedger(slow)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(ledger.admit([admission(0)]))
        await begun(slow)
        for number in range(1, 200):
            tasks.create_task(ledger.admit([admission(number)]))
        await asyncio.sleep(0)
        slow.go.set()

    assert slow.groups == [["j0"], [f"j{number}" for number in range(1, 200)]]


async def test_an_admission_returns_when_it_is_stored(ledger_database):
    async with opened_ledger(ledger_database, OWNER) as opened:
        ledger = ThreadedLedger(opened)

        async def admit(number):
            await ledger.admit([admission(number)])
            held = await ledger.admitted([f"j{number}"])
            assert held == {f"j{number}": admission(number)}

        async with asyncio.TaskGroup() as tasks:
            for number in range(50):
                tasks.create_task(admit(number))


async def test_who_waits_for_a_writer_that_was_cancelled_writes_itself():
    slow = SlowLedger()
    ledger = ThreadedLedger(slow)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(ledger.admit([admission(0)]))
        await begun(slow)
        writer = tasks.create_task(ledger.admit([admission(1)]))
        waiting = tasks.create_task(ledger.admit([admission(2)]))
        await asyncio.sleep(0)
        writer.cancel()
        slow.go.set()

    assert waiting.done()
    assert slow.groups == [["j0"], ["j1", "j2"]]


async def test_each_who_waits_is_told_of_a_failure_or_stored():
    slow = SlowLedger()
    slow.fails = 2
    ledger = ThreadedLedger(slow)

    async def let_go():
        await begun(slow)
        slow.go.set()

    *ended, _ = await asyncio.gather(
        *(ledger.admit([admission(number)]) for number in range(3)),
        let_go(),
        return_exceptions=True,
    )

    assert [type(each) for each in ended] == [OSError, OSError, type(None)]
    assert slow.groups == [["j1", "j2"]]
