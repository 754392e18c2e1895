"""What a log proves of a job's training."""

from __future__ import annotations

from spotline.demo.train.evidence import evidence_of
from spotline.domain.events.capacity import (
    CapacityLost,
    InterruptionKind,
    InterruptionNoticed,
    InterruptionWithdrawn,
)
from spotline.domain.events.training import (
    CheckpointCommitted,
    CheckpointKind,
    GenerationFormed,
    NoticeAcknowledged,
    NoticeAction,
    TrainingRestarted,
)

OF = {"job_id": "j", "tenant": "t"}


def noticed(*instance_ids):
    return InterruptionNoticed(
        **OF,
        offering_id="o",
        instance_ids=instance_ids,
        slot=1,
        offset_s=0,
        lead_s=120,
        kind=InterruptionKind.CAPACITY_RECLAIMED,
    )


def lost(*instance_ids):
    return CapacityLost(**OF, offering_id="o", instance_ids=instance_ids, slot=1, offset_s=5)


def formed(generation, *instance_ids):
    return GenerationFormed(
        **OF, generation=generation, instance_ids=instance_ids, detail="", ts_event_ns=1
    )


def answered(notice_id, action):
    return NoticeAcknowledged(
        **OF, instance_id="i-1", notice_id=notice_id, action=action, after_s=3, ts_event_ns=1
    )


def committed(sha256, done):
    return CheckpointCommitted(
        **OF,
        generation=1,
        step=3,
        done=done,
        uri="file:///c",
        sha256=sha256,
        size_bytes=10,
        kind=CheckpointKind.PERIODIC,
        save_s=1,
        ts_event_ns=1,
    )


def restarted(generation, sha256, done):
    return TrainingRestarted(
        **OF,
        generation=generation,
        restart_s=9,
        load_s=1,
        resumed_done=done,
        resumed_sha256=sha256,
        ts_event_ns=1,
    )


def of(*events):
    return evidence_of(events, ["j"])["j"]


def test_instances_that_were_noticed_or_are_gone_were_taken_back() -> None:
    found = of(
        noticed("i-1", "i-2"),
        InterruptionWithdrawn(**OF, offering_id="o", instance_ids=("i-2",), slot=1, offset_s=3),
        lost("i-1"),
        lost("i-3", "i-4"),
    )

    assert found.taken_back == {"i-1", "i-3", "i-4"}
    assert found.without_notice == 2


def test_a_job_that_releases_what_was_noticed_was_interrupted_all_the_same() -> None:
    found = of(noticed("i-1"))

    assert found.taken_back == {"i-1"}
    assert found.without_notice == 0


def test_only_the_last_word_on_a_notice_counts() -> None:
    found = of(
        answered("a", NoticeAction.FORWARDED),
        answered("a", NoticeAction.SAVED),
        answered("b", NoticeAction.FORWARDED),
        answered("b", NoticeAction.NOT_SAVED),
        answered("c", NoticeAction.SKIPPED),
        answered("d", NoticeAction.FORWARDED),
    )

    assert (found.saves_tried, found.saves_completed) == (2, 1)


def test_resizes_are_changes_of_the_number_of_members() -> None:
    found = of(formed(1, "i-1"), formed(2, "i-1", "i-2"), formed(3, "i-2", "i-3"), formed(4, "i-3"))

    assert found.resizes == 2


def test_what_is_resumed_must_have_been_committed_and_hold_as_much() -> None:
    found = of(
        committed("aa", 300.0),
        restarted(1, "", 0.0),
        restarted(2, "aa", 300.0),
        restarted(3, "aa", 200.0),
        restarted(4, "bb", 300.0),
    )

    assert found.problems() == [
        "generation 3 resumed at 200, its checkpoint holds 300",
        "generation 4 resumed from bb, which no committed checkpoint has",
    ]


def test_a_checkpoint_whose_writer_was_killed_before_it_said_so_is_known_from_the_store() -> None:
    found = of(restarted(1, "bb", 300.0))

    assert found.problems({"bb": 300.0}) == []
    assert found.problems({"bb": 200.0}) == [
        "generation 1 resumed at 300, its checkpoint holds 200",
    ]


def test_other_jobs_are_passed_over() -> None:
    assert evidence_of([lost("i-1")], ["other"])["other"].taken_back == set()
