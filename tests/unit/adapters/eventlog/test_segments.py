"""A recorded log whose stream lost entries: each incarnation is kept whole, in a folder of its own."""

from dataclasses import replace

from spotline.adapters.eventlog.manifest import LogStatus, read_manifest
from spotline.adapters.eventlog.reader import EventLogReader
from spotline.adapters.eventlog.segments import recorded_end, segments_of, set_aside
from spotline.adapters.eventlog.writer import EventLogWriter
from spotline.contracts.envelope import StoredEntry
from tests.fakes.events import envelope, overdue
from tests.fakes.recorded_run import manifest_of


def entries(first, last):
    return [
        StoredEntry(
            seq=seq,
            stored_ns=seq,
            subject=said.subject,
            headers=said.headers(),
            payload=said.payload,
        )
        for seq in range(first, last + 1)
        for said in (envelope(overdue(seq), event_id=f"e{seq}"),)
    ]


def written(folder, incarnation, some):
    writer = EventLogWriter(folder, replace(manifest_of(entries(1, 1)), incarnation=incarnation))
    writer.append(some)
    writer.close(LogStatus.ENDED)


def test_a_newer_incarnation_is_recorded_anew_and_the_older_one_is_kept(tmp_path):
    written(tmp_path, 1, entries(1, 9))

    written(tmp_path, 2, entries(1, 4))

    older, log = segments_of(tmp_path)
    assert log == tmp_path
    assert [entry.seq for entry in EventLogReader(older)] == list(range(1, 10))
    assert [entry.seq for entry in EventLogReader(log)] == [1, 2, 3, 4]
    assert (recorded_end(older), recorded_end(log)) == ((1, 9), (2, 4))


def test_the_same_incarnation_is_continued(tmp_path):
    written(tmp_path, 2, entries(1, 4))
    written(tmp_path, 2, entries(5, 6))

    assert segments_of(tmp_path) == (tmp_path,)
    assert recorded_end(tmp_path) == (2, 6)


def test_a_log_that_is_set_aside_may_have_a_torn_last_line(tmp_path):
    written(tmp_path, 1, entries(1, 3))
    path = tmp_path / "entries.jsonl"
    path.write_bytes(path.read_bytes()[:-7])

    aside = set_aside(tmp_path, 2)

    assert [entry.seq for entry in EventLogReader(aside)] == [1, 2]
    assert read_manifest(aside).status is LogStatus.CRASHED
    assert recorded_end(tmp_path) == (1, 0)
