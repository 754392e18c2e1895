import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.adapters.eventlog.lines import entry_of, line_of
from spotline.adapters.eventlog.manifest import (
    Environment,
    LogStatus,
    Manifest,
    UnreadableLog,
    environment,
    read_manifest,
    write_manifest,
)
from spotline.adapters.eventlog.reader import EventLogReader
from spotline.adapters.eventlog.writer import EventLogWriter, record
from spotline.contracts.build import envelope_for, event_of
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.errors import ConfigError
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.jobs.lot import Lot
from tests.eventually import eventually
from tests.fakes.stream import FakeStream
from tests.samples.events import SAMPLES

HERE = Environment(
    spotline="0.1.0", python="3.11", platform="Linux x86_64", packages={"numpy": "2.4.6"}
)
MANIFEST = Manifest(
    run_id="run-1",
    stream="SPOTLINE_0",
    started_ns=5,
    environment=HERE,
    settings={"selector": {"slot_s": 600}},
    seeds={"market": 7},
)


def envelopes():
    return [
        envelope_for(
            event, event_id=f"e{index}", source="test", causation_id="c", correlation_id="k"
        )
        for index, event in enumerate(SAMPLES)
    ]


def entries():
    return [
        StoredEntry(
            seq=index + 1,
            stored_ns=1_000 + index,
            subject=envelope.subject,
            headers={**envelope.headers(), "traceparent": "00-ab-cd-01"},
            payload=envelope.payload,
        )
        for index, envelope in enumerate(envelopes())
    ]


def undeduplicated(entry):
    headers = {name: value for name, value in entry.headers.items() if name != "Nats-Msg-Id"}
    return replace(entry, headers=headers)


def written(directory, some, status=LogStatus.ENDED):
    writer = EventLogWriter(directory, MANIFEST)
    writer.append(some)
    writer.close(status)
    return directory


def edit_line(directory, seq, edit):
    path = directory / "entries.jsonl"
    lines = path.read_text().splitlines()
    line = json.loads(lines[seq - 1])
    edit(line)
    lines[seq - 1] = json.dumps(line)
    path.write_text("\n".join(lines) + "\n")


def test_a_log_reads_back_as_it_was_written(tmp_path):
    log = EventLogReader(written(tmp_path, entries()))

    assert list(log) == [undeduplicated(entry) for entry in entries()]
    assert [event_of(entry) for entry in log] == list(SAMPLES)
    assert log.manifest.status is LogStatus.ENDED
    assert (log.manifest.first_seq, log.manifest.last_seq) == (1, len(SAMPLES))
    assert log.manifest.seeds == {"market": 7}
    assert log.manifest.environment == HERE


def test_events_are_written_so_that_people_can_read_them(tmp_path):
    written(tmp_path, entries())

    lines = [json.loads(line) for line in (tmp_path / "entries.jsonl").read_text().splitlines()]

    assert all("event" in line for line in lines)
    decision = next(line for line in lines if line["subject"].startswith("spotline.v1.decision."))
    assert decision["event"]["lots"][0]["on_demand"] == "2"
    assert decision["event"]["reason"] == "DECISION_REASON_INTERRUPTED"


@settings(deadline=None)
@given(
    st.binary(max_size=40),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    st.text(max_size=12),
)
def test_any_message_comes_back_whatever_is_in_it(payload, headers, subject):
    entry = StoredEntry(seq=3, stored_ns=4, subject=subject, headers=headers, payload=payload)

    line = line_of(entry)

    assert line.count("\n") == 1
    assert entry_of(line.encode(), "line 1") == undeduplicated(entry)


def test_an_unreadable_payload_is_kept_byte_by_byte(tmp_path):
    broken = replace(entries()[0], payload=b"\xff\xfe")

    (entry,) = EventLogReader(written(tmp_path, [broken]))

    assert entry.payload == b"\xff\xfe"


def test_a_hand_edited_event_is_a_different_event(tmp_path):
    decided = next(e for e in entries() if event_of(e).__class__ is AllocationDecided)
    written(tmp_path, entries())

    def more_spot(line):
        line["event"]["lots"][0]["spot"] = 7

    edit_line(tmp_path, decided.seq, more_spot)
    edited = next(e for e in EventLogReader(tmp_path) if e.seq == decided.seq)

    assert event_of(edited) == replace(
        event_of(decided), lots=(Lot(**{**lot_fields(event_of(decided)), "spot": 7}),)
    )


def lot_fields(decided):
    lot = decided.lots[0]
    return {"offering_id": lot.offering_id, "spot": lot.spot, "on_demand": lot.on_demand}


def test_a_missing_entry_is_named(tmp_path):
    written(tmp_path, entries())
    path = tmp_path / "entries.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:4] + lines[5:]))

    with pytest.raises(UnreadableLog, match=r"entries\.jsonl:5: seq must be 5, was 6"):
        list(EventLogReader(tmp_path))


def test_a_missing_first_entry_is_named(tmp_path):
    written(tmp_path, entries())
    path = tmp_path / "entries.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))

    with pytest.raises(UnreadableLog, match="seq must be 1, was 2"):
        list(EventLogReader(tmp_path))


def test_a_missing_last_entry_of_an_ended_log_is_an_error(tmp_path):
    written(tmp_path, entries())
    path = tmp_path / "entries.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))

    with pytest.raises(UnreadableLog, match=f"ends at seq {len(SAMPLES) - 1}, the manifest says"):
        list(EventLogReader(tmp_path))


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (lambda line: line.pop("subject"), "subject is missing"),
        (lambda line: line.update(seq="two"), "invalid literal"),
        (lambda line: line["event"].update(colour="red"), "colour"),
        (lambda line: line.update(headers={"ce-type": "spotline.v1.rumour"}), "unknown kind"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(tmp_path, edit, problem):
    written(tmp_path, entries())
    edit_line(tmp_path, 2, edit)

    with pytest.raises(UnreadableLog, match=r"entries\.jsonl:2: .*" + problem):
        list(EventLogReader(tmp_path))


def test_a_line_that_is_not_json_is_named(tmp_path):
    written(tmp_path, entries())
    path = tmp_path / "entries.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], '{"seq": \n', *lines[3:]]))

    with pytest.raises(UnreadableLog, match=r"entries\.jsonl:3: Expecting value"):
        list(EventLogReader(tmp_path))


def test_a_directory_that_is_no_log_is_refused(tmp_path):
    with pytest.raises(UnreadableLog, match=r"found no manifest\.json"):
        EventLogReader(tmp_path)


def test_an_unknown_format_version_is_refused(tmp_path):
    written(tmp_path, entries())
    path = tmp_path / "manifest.json"
    path.write_text(path.read_text().replace('"format_version": 1', '"format_version": 2'))

    with pytest.raises(UnreadableLog, match="format_version: expected 1, found 2"):
        EventLogReader(tmp_path)


def test_a_manifest_without_a_field_is_refused(tmp_path):
    written(tmp_path, entries())
    path = tmp_path / "manifest.json"
    text = json.loads(path.read_text())
    del text["seeds"]
    path.write_text(json.dumps(text))

    with pytest.raises(UnreadableLog, match="seeds"):
        EventLogReader(tmp_path)


def test_entries_that_are_missing_altogether_are_an_error(tmp_path):
    write_manifest(tmp_path, MANIFEST)

    with pytest.raises(UnreadableLog, match=r"entries\.jsonl is missing"):
        list(EventLogReader(tmp_path))


def test_a_log_cut_mid_line_reads_up_to_there_and_is_continued(tmp_path):
    all_entries = entries()
    written(tmp_path, all_entries[:6], LogStatus.CRASHED)
    path = tmp_path / "entries.jsonl"
    path.write_bytes(path.read_bytes()[:-11])

    assert [entry.seq for entry in EventLogReader(tmp_path)] == [1, 2, 3, 4, 5]

    writer = EventLogWriter(tmp_path, MANIFEST)
    assert writer.last_seq == 5
    writer.append(all_entries[5:])
    writer.close(LogStatus.ENDED)
    assert list(EventLogReader(tmp_path)) == [undeduplicated(entry) for entry in all_entries]


@pytest.mark.parametrize("kept", [0, 1, 50])
def test_a_log_cut_within_its_first_line_starts_anew(tmp_path, kept):
    written(tmp_path, entries()[:1], LogStatus.RUNNING)
    path = tmp_path / "entries.jsonl"
    path.write_bytes(path.read_bytes()[:kept])

    writer = EventLogWriter(tmp_path, MANIFEST)
    writer.append(entries())
    writer.close(LogStatus.ENDED)

    assert writer.last_seq == len(SAMPLES)
    assert len(list(EventLogReader(tmp_path))) == len(SAMPLES)


def test_the_last_entry_is_found_behind_a_very_long_line(tmp_path):
    long = replace(entries()[1], headers={"note": "x" * 200_000})
    writer = EventLogWriter(tmp_path, MANIFEST)
    writer.append([entries()[0], long])
    writer.close(LogStatus.CRASHED)

    reopened = EventLogWriter(tmp_path, MANIFEST)
    reopened.close(LogStatus.ENDED)

    assert reopened.last_seq == 2
    assert reopened.entries == 2


def test_a_log_may_start_behind_seq_1(tmp_path):
    written(tmp_path, entries()[4:])

    assert [entry.seq for entry in EventLogReader(tmp_path)][:2] == [5, 6]
    assert read_manifest(tmp_path).first_seq == 5


def test_redelivered_entries_are_passed_over_and_a_hole_is_an_error(tmp_path):
    writer = EventLogWriter(tmp_path, MANIFEST)
    writer.append(entries()[:3])
    writer.append(entries()[1:4])

    with pytest.raises(UnreadableLog, match="seq must be 5, was 6"):
        writer.append(entries()[5:])

    writer.close(LogStatus.ENDED)
    assert [entry.seq for entry in EventLogReader(tmp_path)] == [1, 2, 3, 4]


def test_the_log_of_another_run_is_not_continued(tmp_path):
    written(tmp_path, entries())

    with pytest.raises(ConfigError, match="holds the log of run run-1"):
        EventLogWriter(tmp_path, replace(MANIFEST, run_id="run-2"))


def test_settings_hash_the_same_however_they_are_ordered():
    one = replace(MANIFEST, settings={"a": 1, "b": 2})

    assert one.settings_sha256 == replace(MANIFEST, settings={"b": 2, "a": 1}).settings_sha256
    assert one.settings_sha256 != MANIFEST.settings_sha256


def test_environments_say_what_differs():
    other = replace(HERE, python="3.13", packages={"numpy": "2.5.0", "numba": "0.68.1"})

    assert HERE.differences(HERE) == ()
    assert HERE.differences(other) == (
        "numba: absent there, 0.68.1 here",
        "numpy: 2.4.6 there, 2.5.0 here",
        "python: 3.11 there, 3.13 here",
    )


def test_this_environment_knows_what_computes_here():
    here = environment()

    assert here.python == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert {"numpy", "numba", "ortools"} <= here.packages.keys()


async def test_a_recording_follows_the_stream_until_told_where_to_stop(tmp_path):
    stream = FakeStream()
    stop_at = asyncio.get_running_loop().create_future()
    await stream.publish(envelopes()[:5])

    async with asyncio.TaskGroup() as tasks:
        recording = tasks.create_task(record(stream, tmp_path, MANIFEST, stop_at=stop_at))
        await stream.publish(envelopes()[5:])
        stop_at.set_result(await stream.last_seq())

    assert recording.result() == len(SAMPLES)
    assert list(EventLogReader(tmp_path)) == [undeduplicated(entry) for entry in stream.entries]


async def test_a_recording_stops_at_the_seq_it_was_told(tmp_path):
    stream = FakeStream()
    await stream.publish(envelopes())
    stop_at = asyncio.get_running_loop().create_future()
    stop_at.set_result(4)

    await record(stream, tmp_path, MANIFEST, stop_at=stop_at)

    assert [entry.seq for entry in EventLogReader(tmp_path)] == [1, 2, 3, 4]


async def test_what_a_log_lacks_is_read_again_though_it_was_acknowledged(tmp_path):
    stream = FakeStream()
    await stream.publish(envelopes()[:6])
    stop_at = asyncio.get_running_loop().create_future()
    stop_at.set_result(6)
    await record(stream, tmp_path, MANIFEST, stop_at=stop_at)
    path = tmp_path / "entries.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    await stream.publish(envelopes()[6:])
    stop_at = asyncio.get_running_loop().create_future()
    stop_at.set_result(len(SAMPLES))

    await record(stream, tmp_path, MANIFEST, stop_at=stop_at)

    assert list(EventLogReader(tmp_path)) == [undeduplicated(entry) for entry in stream.entries]


async def test_a_stream_that_ends_too_early_is_an_error_and_a_crashed_log(tmp_path):
    stream = FakeStream()
    await stream.publish(envelopes()[:3])
    stop_at = asyncio.get_running_loop().create_future()
    stop_at.set_result(9)

    with pytest.raises(UnreadableLog, match="fell silent at seq 3, 9 was to be the last"):
        await record(stream, tmp_path, MANIFEST, stop_at=stop_at, drain_timeout_s=1.0)

    assert read_manifest(tmp_path).status is LogStatus.CRASHED
    assert len(list(EventLogReader(tmp_path))) == 3


async def test_a_cancelled_recording_leaves_a_readable_log(tmp_path):
    stream = FakeStream()
    await stream.publish(envelopes()[:3])
    stop_at = asyncio.get_running_loop().create_future()

    recording = asyncio.create_task(record(stream, tmp_path, MANIFEST, stop_at=stop_at))
    path = tmp_path / "entries.jsonl"
    await eventually(lambda: path.exists() and path.read_bytes().count(b"\n") == 3)
    recording.cancel()
    with pytest.raises(asyncio.CancelledError):
        await recording

    assert read_manifest(tmp_path).status is LogStatus.CRASHED
    assert len(list(EventLogReader(tmp_path))) == 3


def test_a_killed_recorder_leaves_a_log_that_is_continued(tmp_path):
    program = """
        import sys
        from pathlib import Path
        from spotline.adapters.eventlog.writer import EventLogWriter
        from tests.unit.adapters.eventlog.test_eventlog import MANIFEST, entries
        writer = EventLogWriter(Path(sys.argv[1]), MANIFEST)
        first = entries()[0]
        from dataclasses import replace
        seq = 0
        while True:
            seq += 1
            writer.append([replace(first, seq=seq)])
            print(seq, flush=True)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as recorder:
        while int(recorder.stdout.readline()) < 200:
            pass
        recorder.send_signal(signal.SIGKILL)

    seqs = [entry.seq for entry in EventLogReader(tmp_path)]
    reopened = EventLogWriter(tmp_path, MANIFEST)
    reopened.close(LogStatus.ENDED)

    assert seqs[:200] == list(range(1, 201))
    assert reopened.last_seq == seqs[-1]
