"""Whatever happens to a job is on its page, in words, and escaped."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from enum import Enum

import pytest

from spotline.adapters.page.asked import PageAsked
from spotline.adapters.page.making.decision import DecisionMaker
from spotline.adapters.page.making.job import JobMaker
from spotline.adapters.page.rendering import rendered
from spotline.adapters.page.shell import Shell
from spotline.adapters.page.sources import PageSources
from spotline.application.explaining.messages import (
    AlternativeCut,
    BidOption,
    CauseLink,
    ClearedBids,
    ConsideredAlternative,
    DecisionExplanation,
    DecisionInput,
)
from spotline.application.page.decisions import DecisionMade
from spotline.application.page.gantt import GLYPHS
from spotline.application.page.holdings import SignKind
from spotline.application.page.state import PageState
from spotline.application.page.words import said
from spotline.domain.events.capacity import RefusalClass
from spotline.domain.jobs.lot import Lot
from spotline.domain.jobs.outlook import JobOutlook
from spotline.domain.policies.answer import DecisionReason, SpotWorth
from tests.fakes.eventful_job import JOB_ID, eventful_log, quote


@pytest.fixture(scope="module")
def state() -> PageState:
    folded = PageState()
    for event in eventful_log():
        folded.fold(event)
    assert not folded.left_out
    return folded


def job_page(state: PageState, **query: str) -> str:
    asked = PageAsked(path=f"/jobs/{JOB_ID}", params={"job_id": JOB_ID}, query=query)
    model = JobMaker(PageSources()).page(state, asked, {})
    return rendered("job.html", shell=Shell(path=asked.path, query=query), state=state, **model)


def decision_page(state: PageState, made: DecisionMade, **found: object) -> str:
    event = made.event
    asked = PageAsked(
        path=f"/jobs/{JOB_ID}/decisions/{event.slot}",
        params={"job_id": JOB_ID, "slot": str(event.slot)},
        query={"revision": str(event.revision)},
    )
    model = DecisionMaker(PageSources()).page(state, asked, found)
    shell = Shell(path=asked.path, query=asked.query)
    return rendered("decision.html", shell=shell, state=state, **model)


def made_for(state: PageState, reason: DecisionReason) -> DecisionMade:
    decided = state.decisions.of_job[JOB_ID].values()
    return next(made for made in decided if made.event.reason is reason)


def test_every_kind_of_mark_is_on_the_page_with_its_sign(state: PageState) -> None:
    text = job_page(state)
    past = state.holdings.of_job[JOB_ID]
    shown = {mark.kind for mark in past.marks}

    assert shown >= set(SignKind) - {SignKind.MOVED}
    for kind in shown:
        assert f"{GLYPHS[kind]} {kind.value} (" in text


@pytest.mark.parametrize("refusal", list(RefusalClass))
def test_every_class_of_refusal_is_in_words(state: PageState, refusal: RefusalClass) -> None:
    text = job_page(state)

    assert f">{said(refusal).name}<" in text
    assert f"provider said {refusal.name}" in text


@pytest.mark.parametrize("reason", list(DecisionReason))
def test_every_reason_has_a_page(state: PageState, reason: DecisionReason) -> None:
    text = decision_page(state, made_for(state, reason))

    assert f">{said(reason).name}<" in text
    assert said(reason).means[1:] in text
    assert f"as {reason.value} says" in text


@pytest.mark.parametrize("cut", list(AlternativeCut))
def test_every_cut_is_in_words(state: PageState, cut: AlternativeCut) -> None:
    made = made_for(state, DecisionReason.POLICY)
    text = decision_page(state, made, explanation=explanation_of(made, cut))

    assert f">{said(cut).name}<" in text
    assert said(cut).means in text
    assert "comes out differently" in text
    assert "Fairness between tenants cost" in text


def explanation_of(made: DecisionMade, cut: Enum) -> DecisionExplanation:
    home = made.home
    assert isinstance(cut, AlternativeCut)
    return DecisionExplanation(
        decision=made.event,
        seq=made.seq,
        ts_event_ns=made.market_ns,
        summary="in short",
        alternatives=tuple(
            ConsideredAlternative(
                lots=(Lot(offering_id=home, spot=count),),
                chosen=count == 2,
                immediate_cost_micro_usd=1,
                cost_to_go_micro_usd=2,
                utility_micro_usd=count,
                on_time_probability_ppm=1,
                worse_by_micro_usd=2 - count,
                cut=None if count == 2 else cut,
            )
            for count in (2, 1, 0)
        ),
        method="by hand",
        inputs=(DecisionInput(kind="divergence", id="", seq=1, age_s=0, text="other lots"),),
        chain=(
            CauseLink(
                kind="decision",
                seq=made.seq,
                event_id=made.event_id,
                ts_event_ns=made.market_ns,
                text="decided",
            ),
        ),
        clearing=ClearedBids(
            jobs=2,
            options=(
                BidOption(
                    offering_id=home,
                    spot=2,
                    on_demand=0,
                    chosen=True,
                    more_micro_usd=0,
                ),
            ),
            spot_worth=(SpotWorth(offering_id=home, micro_usd_per_instance_hour=5),),
            gap_micro_usd=3,
            fairness_cost_micro_usd=4,
        ),
    )


def test_the_quote_stands_beside_what_is_not_known_now(state: PageState) -> None:
    text = job_page(state)

    assert "97.0 %" in text
    assert "the fan is the quote" in text
    assert "expected as it began, 1 in 10 has less" in text


def test_what_an_owner_writes_is_escaped(state: PageState) -> None:
    made = made_for(state, DecisionReason.POLICY)
    for text in (job_page(state), job_page(state, feed="feed"), decision_page(state, made)):
        assert "<b>eventful" not in text
        assert "&lt;b&gt;eventful" in text


def test_a_loss_without_notice_of_all_is_told_as_it_was(state: PageState) -> None:
    (loss,) = state.holdings.of_job[JOB_ID].losses

    # The notice of i-1 was withdrawn: that instance went without one.
    assert (loss.instances, loss.noticed) == (2, 1)
    assert "1 of 2" in job_page(state)


class Expecting:
    """Expects the same as the quote, now; of the past it says nothing."""

    def __init__(self, outlook: JobOutlook) -> None:
        self._outlook = outlook

    async def outlook(self, job_id: str, at: int | None, *, token: str = "") -> JobOutlook | None:
        return self._outlook if at is None and job_id == JOB_ID else None


def test_what_is_known_at_once_is_on_the_page_from_the_beginning(state: PageState) -> None:
    outlook = quote(3, state.now_ns)
    maker = JobMaker(PageSources(outlooks=Expecting(outlook)))
    now = PageAsked(path="", params={"job_id": JOB_ID})
    found = asyncio.run(maker.outlook_now(now))

    assert found == {"outlook": outlook}
    assert asyncio.run(maker.outlook_now(replace(now, at=3))) == {"outlook": None}
    model = maker.page(state, now, found)
    text = rendered("job.html", shell=Shell(path="/"), state=state, **model)
    assert 'id="expected-now"' in text
    assert 'hx-get="/jobs/e7e27fu1/outlook' not in text
