"""A chain in files: what it says is written is there, in whatever state a process died."""

from __future__ import annotations

import errno
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from spotline.adapters.audit import chain_file
from spotline.adapters.audit.chain_file import (
    ChainFile,
    chains_in,
    copy_chains,
    lines_of,
    segments_of,
)
from spotline.application.identity.audit import DONE, Act, AuditDoor, verified_chain
from spotline.contracts.errors import AuditUnavailable
from tests.eventually import PATIENCE_S

ACT = Act(ts_ns=1, door=AuditDoor.COMMAND, action="a test", outcome=DONE, subject="ann")


@pytest.fixture
def opened(tmp_path):
    made: list[ChainFile] = []

    def make(chain: str = "allocator", **options: int) -> ChainFile:
        made.append(ChainFile(tmp_path / "audit", chain, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def holds(folder: Path, chain: str = "allocator") -> int:
    """How many records a chain has, all as they were written."""
    report = verified_chain(chain, lines_of(folder, chain))
    assert report.broken is None, report.broken
    return report.head.seq


def test_a_chain_goes_on_where_another_process_ended(opened, tmp_path):
    first = opened()
    first.append([ACT, ACT])
    first.close()

    (record,) = opened().append([ACT])

    assert record.seq == 3
    assert holds(tmp_path / "audit") == 3


def test_a_copy_is_whole_while_the_chain_is_appended_to_and_put_away(opened, tmp_path):
    source, ended, appended = tmp_path / "audit", threading.Event(), threading.Semaphore(0)
    writing = opened(segment_bytes=2_000)
    writing.append([ACT])

    def append() -> None:
        while not ended.is_set():
            writing.append([ACT] * 5)
            appended.release()

    writer = threading.Thread(target=append)
    writer.start()
    try:
        held = []
        for number in range(5):
            assert appended.acquire(timeout=PATIENCE_S)
            copy_chains(source, tmp_path / f"copy-{number}")
            held.append(holds(tmp_path / f"copy-{number}"))
    finally:
        ended.set()
        writer.join()

    assert held == sorted(held)
    assert held[-1] > 5
    assert (tmp_path / "copy-0").stat().st_mode & 0o777 == 0o700


def test_where_nothing_is_recorded_nothing_is_copied(tmp_path):
    copy_chains(tmp_path / "audit", tmp_path / "copy")

    assert not (tmp_path / "copy").exists()


def test_only_its_owner_may_read_it(opened, tmp_path):
    opened().append([ACT])

    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "audit").iterdir()}

    assert modes["allocator.jsonl"] == 0o600
    assert (tmp_path / "audit").stat().st_mode & 0o777 == 0o700


def test_half_a_line_that_a_crash_left_is_cut(opened, tmp_path):
    chain = opened()
    chain.append([ACT])
    chain.close()
    path = tmp_path / "audit" / "allocator.jsonl"
    path.write_bytes(path.read_bytes() + b'{"action":"a te')

    assert holds(tmp_path / "audit") == 1
    assert opened().append([ACT])[0].seq == 2
    assert holds(tmp_path / "audit") == 2


def test_two_that_write_at_once_share_one_chain(opened, tmp_path):
    def write(chain: ChainFile) -> None:
        for _ in range(20):
            chain.append([ACT, ACT])

    threads = [threading.Thread(target=write, args=(opened(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert holds(tmp_path / "audit") == 120


def test_a_full_segment_is_followed_by_another(opened, tmp_path):
    chain = opened(segment_bytes=1_000)
    for _ in range(12):
        chain.append([ACT])
    chain.close()
    folder = tmp_path / "audit"

    assert len(segments_of(folder, "allocator")) > 2
    assert chains_in(folder) == ["allocator"]
    assert holds(folder) == 12
    # A process may die between the name of the full one and the first line of the next.
    (folder / "allocator.jsonl").unlink(missing_ok=True)
    before = holds(folder)
    assert opened().append([ACT])[0].seq == before + 1


def test_a_full_disk_refuses_all_and_leaves_the_chain_whole(opened, tmp_path, monkeypatch):
    chain = opened()
    chain.append([ACT])
    real = os.write

    def full(file: int, text: bytes) -> int:
        real(file, bytes(text[:10]))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(chain_file.os, "write", full)
        with pytest.raises(AuditUnavailable, match="No space left on device"):
            chain.append([ACT, ACT])

    assert holds(tmp_path / "audit") == 1
    assert chain.append([ACT])[0].seq == 2
    assert holds(tmp_path / "audit") == 2


def test_a_sync_that_failed_is_no_record(opened, tmp_path, monkeypatch):
    chain = opened()
    chain.append([ACT])

    def fails(file: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(chain_file.os, "fsync", fails)
        with pytest.raises(AuditUnavailable, match="Input/output error"):
            chain.append([ACT])

    assert holds(tmp_path / "audit") == 1
    assert chain.append([ACT])[0].seq == 2


def test_nothing_goes_on_from_what_is_no_record(opened, tmp_path):
    chain = opened()
    chain.append([replace(ACT, subject="bob")])
    chain.close()
    path = tmp_path / "audit" / "allocator.jsonl"
    path.write_text(path.read_text().replace("bob", "eve"))

    with pytest.raises(AuditUnavailable, match="spotline audit verify"):
        opened().append([ACT])


def test_a_segment_whose_beginning_is_no_record_is_not_put_away(opened, tmp_path):
    opened().append([ACT, ACT])
    path = tmp_path / "audit" / "allocator.jsonl"
    first, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"\xff" + first[1:] + b"".join(rest))
    damaged = path.read_bytes()

    with pytest.raises(AuditUnavailable, match="expected a record at its beginning"):
        opened(segment_bytes=1).append([ACT])

    assert path.read_bytes() == damaged
