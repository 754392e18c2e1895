"""What the page of policies says of rounds of learning."""

from __future__ import annotations

from spotline.application.allocator.jobs_state import JobsState
from spotline.application.page.applied import Applied
from spotline.application.page.selection import (
    SelectionChapter,
    policy_rows,
    thinned,
    weights_over_time,
)
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobAdmitted, JobClosed, JobOutcome
from spotline.domain.events.selection import PolicyWeight, PolicyWeightsUpdated
from spotline.domain.selection.rules import PPB


def told(*events: Event) -> SelectionChapter:
    chapter = SelectionChapter()
    for seq, event in enumerate(events, start=1):
        applied = Applied(event=event, seq=seq, kind="", event_id="", market_ns=seq * 10**9)
        chapter.fold(applied, JobsState())
    return chapter


def learned(number: int, *, rehearsed_slot: int = -1, **weights: int) -> PolicyWeightsUpdated:
    return PolicyWeightsUpdated(
        round=number,
        job_id=f"job-{number}",
        rule="adahedge",
        weights=tuple(
            PolicyWeight(policy_id=name, weight_ppb=weight, utility_micro_usd=weight // 1000)
            for name, weight in weights.items()
        ),
        rehearsed_slot=rehearsed_slot,
        utility_floor_micro_usd=0,
        utility_ceiling_micro_usd=0,
    )


def closed(job_id: str, outcome: JobOutcome) -> JobClosed:
    return JobClosed(
        job_id=job_id,
        tenant="research",
        slot=3,
        outcome=outcome,
        policy_id="sdp",
        cost_micro_usd=5,
        value_micro_usd=9,
        progress_ppm=1,
    )


def admitted(job_id: str) -> JobAdmitted:
    return JobAdmitted(
        job_id=job_id,
        tenant="research",
        slot=0,
        policy_id="sdp",
        offering_id="east",
        deadline_slot=9,
        weight_ppb=PPB,
    )


def test_rehearsals_and_jobs_that_ended_are_told_apart() -> None:
    chapter = told(
        learned(1, sdp=PPB // 2, msu=PPB // 2),
        learned(2, rehearsed_slot=4, sdp=PPB // 4, msu=3 * PPB // 4),
    )

    rows = policy_rows(chapter)
    assert (chapter.learned, chapter.rehearsed) == (1, 1)
    assert [row.policy_id for row in rows] == ["msu", "sdp"]
    assert [row.utility_micro_usd for row in rows] == [500_000, 500_000]
    assert [row.rehearsed_micro_usd for row in rows] == [750_000, 250_000]


def test_a_late_job_is_a_miss_of_the_policy_that_it_drew() -> None:
    chapter = told(
        admitted("a"),
        admitted("b"),
        closed("a", JobOutcome.COMPLETED_LATE),
        closed("b", JobOutcome.COMPLETED),
    )

    tally = policy_rows(chapter)[0].tally
    assert (tally.drawn, tally.ended, tally.misses, tally.spent_micro_usd) == (2, 2, 1, 10)


def test_shares_of_a_round_add_up_to_one() -> None:
    names = {f"p{number}": PPB // 10 for number in range(10)}

    lines = weights_over_time(told(learned(1, **names)).rounds)
    assert lines[-1][0] == "all others"
    assert abs(sum(values[0] for _, values in lines) - 1) < 1e-9


def test_many_rounds_are_thinned_and_the_last_one_stays() -> None:
    rounds = told(*(learned(number, sdp=PPB) for number in range(1, 1_000))).rounds

    kept = thinned(rounds, most=50)
    assert len(kept) <= 50
    assert kept[-1].number == 999
