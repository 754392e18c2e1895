"""A decision's page has the forecast that was there then, and nothing that came later."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.application.explaining.messages import (
    AlternativeCut,
    CauseLink,
    ConsideredAlternative,
    DecisionExplanation,
    DecisionInput,
)
from spotline.application.page.applied import Applied
from spotline.application.page.book import PageBook
from spotline.application.page.decision import (
    cause_steps,
    decision_place,
    forecast_then,
    reproduced,
    value_points,
)
from spotline.application.page.decisions import MOST_DECISIONS
from spotline.application.read_model.ports import ViewRefused
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.jobs.lot import Lot
from tests.fakes.page_log import small_log


@pytest.fixture(scope="module")
def told() -> list[Applied]:
    return list(small_log())


@pytest.fixture(scope="module")
def book(told: list[Applied]) -> PageBook:
    read = PageBook()
    for event in told:
        read.apply(event)
    return read


def decisions(told: list[Applied]) -> list[AllocationDecided]:
    return [each.event for each in told if isinstance(each.event, AllocationDecided)]


def test_every_decision_is_found_between_its_neighbours(
    told: list[Applied], book: PageBook
) -> None:
    for job_id in book.head.jobs.statuses:
        of_job = [each for each in decisions(told) if each.job_id == job_id]
        assert 1 < len(of_job) <= MOST_DECISIONS
        for at, event in enumerate(of_job):
            place = decision_place(book.head, job_id, event.slot, event.revision)
            assert place.made.event == event
            assert (place.before is None) == (at == 0)
            assert (place.after is None) == (at == len(of_job) - 1)
            assert place.made in place.revisions


def test_the_forecast_is_the_one_that_was_issued_then(told: list[Applied], book: PageBook) -> None:
    issued = {
        each.event.slot: each.event for each in told if isinstance(each.event, ForecastIssued)
    }
    compared = 0
    for made in (m for of_job in book.head.decisions.of_job.values() for m in of_job.values()):
        forecast = forecast_then(book.head, made)
        found = issued.get(made.event.slot)
        own = [f for f in (found.forecasts if found else ()) if f.offering_id == made.home]
        if not own:
            continue
        assert forecast is not None
        assert [step.spot_price_micro_usd for step in forecast.ahead] == [
            step.spot_price_micro_usd for step in own[0].steps
        ]
        for kept, step in zip(forecast.ahead, own[0].steps, strict=True):
            below = sum(
                count.probability_ppm for count in step.counts if count.instances <= kept.middle
            )
            assert below >= 500_000
            assert kept.low <= kept.middle <= kept.high
        compared += 1
    assert compared


def test_in_the_past_nothing_has_come_that_came_later(book: PageBook) -> None:
    slot = book.last_slot // 2
    then = book.at(slot)
    made = [m for of_job in then.decisions.of_job.values() for m in of_job.values()]
    forecasts = [forecast for each in made if (forecast := forecast_then(then, each))]

    assert all(each.event.slot <= slot for each in made)
    assert all(quote.slot <= slot for forecast in forecasts for quote in forecast.came)
    assert any(forecast.came for forecast in forecasts)
    for forecast in forecasts:
        hits, known = forecast.inside
        assert 0 <= hits <= known <= len(forecast.came)


def test_a_slot_without_a_decision_names_the_nearest(book: PageBook) -> None:
    job_id = next(iter(book.head.jobs.statuses))
    last = list(book.head.decisions.of_job[job_id].values())[-1].event

    with pytest.raises(ViewRefused, match=f"of slot {last.slot}"):
        decision_place(book.head, job_id, 99_999, None)
    with pytest.raises(ViewRefused, match="nothing has been decided"):
        decision_place(PageBook().head, job_id, 0, None)


def test_the_chain_ends_where_the_log_did_and_leads_to_the_jobs_own_entries(
    told: list[Applied],
) -> None:
    links = tuple(
        CauseLink(kind=kind, seq=seq, event_id=f"e{seq}", ts_event_ns=seq, text=kind)
        for seq, kind in enumerate(
            ("market.slot", "forecast.issued", "decision", "provisioning.command", "bill"), start=1
        )
    )
    explanation = DecisionExplanation(
        decision=decisions(told)[0],
        seq=3,
        ts_event_ns=3,
        summary="",
        alternatives=(),
        method="",
        inputs=(),
        chain=links,
    )
    whole = cause_steps(explanation, until_seq=9, pages={"e3": 1, "e5": 2})

    assert [step.role for step in whole] == ["quote", "forecast", "decision", "command", "bill"]
    assert [step.page for step in whole] == [0, 0, 1, 0, 2]
    assert cause_steps(explanation, until_seq=4, pages={"e3": 1, "e5": 2}) == whole[:4]
    assert value_points(explanation) == []
    assert reproduced(explanation)


def test_worth_is_drawn_from_the_least_to_the_most(told: list[Applied]) -> None:
    worths = {0: 5, 2: 9, 4: 1}
    alternatives = tuple(
        ConsideredAlternative(
            lots=(Lot(offering_id="a", spot=count),) if count else (),
            chosen=count == 2,
            immediate_cost_micro_usd=0,
            cost_to_go_micro_usd=0,
            utility_micro_usd=worth,
            on_time_probability_ppm=0,
            worse_by_micro_usd=9 - worth,
            cut=AlternativeCut.AVAILABILITY if count == 4 else None,
        )
        for count, worth in worths.items()
    )
    elsewhere = replace(alternatives[1], lots=(Lot(offering_id="b", spot=3),), chosen=False)
    explanation = DecisionExplanation(
        decision=decisions(told)[0],
        seq=1,
        ts_event_ns=1,
        summary="",
        alternatives=(*alternatives, elsewhere),
        method="",
        inputs=(DecisionInput(kind="divergence", id="", seq=1, age_s=0, text="other lots"),),
        chain=(),
    )
    points = value_points(explanation)

    assert [(point.x, point.y) for point in points] == [(0.0, 50.0), (50.0, 0.0), (100.0, 100.0)]
    assert [point.chosen for point in points] == [False, True, False]
    assert [point.could for point in points] == [True, True, False]
    assert not reproduced(explanation)
