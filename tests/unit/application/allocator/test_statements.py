"""The same request again: what its owner stated is compared, not what was filled in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.application.admission import Accepted, Refused
from spotline.application.allocator.handler import JobsHandler, JobsState, check_submission
from spotline.application.allocator.statements import stated_again
from spotline.domain.events.lifecycle import JobSubmitted, JobUpdated
from spotline.domain.jobs.job import Deadline, DeadlineKind, Job
from spotline.domain.units import NS_PER_S
from tests.fakes.allocator import START_NS, job, market_opened, slot_opened

HOUR_NS = 3600 * NS_PER_S


def hard(now_ns: int, hours: int = 36) -> Deadline:
    at_ns = now_ns + hours * HOUR_NS
    return Deadline(kind=DeadlineKind.HARD, at_ns=at_ns, expires_ns=at_ns, after_s=hours * 3600)


def soft(now_ns: int, hours: int = 24, *, expires_ns: int = 0) -> Deadline:
    return Deadline(
        kind=DeadlineKind.SOFT,
        at_ns=now_ns + hours * HOUR_NS,
        expires_ns=expires_ns or now_ns + 48 * HOUR_NS,
        after_s=hours * 3600,
        expires_after_s=0 if expires_ns else 48 * 3600,
    )


def unvalued(**changes) -> Job:
    return replace(job(), value_micro_usd=0, value_from_quote=True, **changes)


def recorded(one: Job, *, quote: int = 100) -> Job:
    """As a server records it: valued where it states no value."""
    if not one.value_from_quote:
        return one
    return replace(
        one,
        value_micro_usd=150,
        budget_micro_usd=one.budget_micro_usd or 150,
        on_demand_quote_micro_usd=quote,
    )


def state_with(one: Job) -> JobsState:
    handler = JobsHandler()
    state = handler.initial()
    for event in (market_opened(), slot_opened(0), JobSubmitted(job=one, ts_event_ns=START_NS)):
        handler.evolve(state, event)
    return state


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (job(), job()),
        (replace(job(), deadline=hard(START_NS)), replace(job(), deadline=hard(START_NS + 9))),
        (replace(job(), deadline=soft(START_NS)), replace(job(), deadline=soft(START_NS + 9))),
        (
            replace(job(), deadline=soft(START_NS, expires_ns=START_NS + 99 * HOUR_NS)),
            replace(job(), deadline=soft(START_NS + 9, expires_ns=START_NS + 99 * HOUR_NS)),
        ),
        (unvalued(), unvalued()),
        (unvalued(budget_micro_usd=7), unvalued(budget_micro_usd=7)),
        # As much as the server would have set.
        (unvalued(budget_micro_usd=150), unvalued(budget_micro_usd=150)),
    ],
)
def test_what_states_the_same_is_the_same_job(before, now) -> None:
    known = recorded(before)

    assert stated_again(known, now) == known
    assert check_submission(state_with(known), now) == Accepted(
        job_id=now.job_id, already_submitted=True
    )


@pytest.mark.parametrize(
    ("before", "now", "differs"),
    [
        (
            replace(job(), deadline=hard(START_NS)),
            replace(job(), deadline=hard(START_NS, 37)),
            "deadline",
        ),
        (
            replace(job(), deadline=hard(START_NS)),
            replace(job(), deadline=replace(hard(START_NS), after_s=0)),
            "deadline",
        ),
        (
            replace(job(), deadline=hard(START_NS)),
            replace(job(), deadline=soft(START_NS, 36)),
            "deadline",
        ),
        (
            replace(job(), deadline=soft(START_NS)),
            replace(
                job(),
                deadline=soft(START_NS + HOUR_NS, expires_ns=START_NS + 24 * HOUR_NS + HOUR_NS + 1),
            ),
            "deadline",
        ),
        (unvalued(), unvalued(budget_micro_usd=7), "budget_micro_usd"),
        (unvalued(budget_micro_usd=7), unvalued(), "budget_micro_usd"),
        (unvalued(), job(), "value_micro_usd, budget_micro_usd"),
        (job(), unvalued(), "value_micro_usd, value_from_quote"),
        (unvalued(), replace(unvalued(), name="other"), "name"),
    ],
)
def test_what_states_something_else_is_refused_and_said(before, now, differs) -> None:
    refused = check_submission(state_with(recorded(before)), now)

    assert isinstance(refused, Refused)
    assert f"differs in {differs}" in refused.message


def test_a_job_whose_owner_changed_it_is_still_what_was_submitted() -> None:
    known = recorded(replace(unvalued(), deadline=hard(START_NS)))
    state = state_with(known)
    moved = replace(known, deadline=hard(START_NS, 50), value_micro_usd=9)
    JobsHandler().evolve(
        state,
        JobUpdated(job_id=known.job_id, tenant=known.tenant, job=moved, ts_event_ns=START_NS),
    )

    again = replace(unvalued(), deadline=hard(START_NS + 5))

    assert check_submission(state, again) == Accepted(job_id=again.job_id, already_submitted=True)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"value_micro_usd": 5, "value_from_quote": True}, "job.value_micro_usd"),
        ({"on_demand_quote_micro_usd": 5}, "job.on_demand_quote_micro_usd"),
    ],
)
def test_a_value_beside_one_by_the_quote_and_a_quote_of_the_callers_are_refused(
    changes, field
) -> None:
    refused = check_submission(state_with(job("another")), replace(job(), **changes))

    assert isinstance(refused, Refused)
    assert refused.field == field
