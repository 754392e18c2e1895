"""Whether two submissions state the same, where the server or the clock filled something in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import DeadlineKind, Job

JobT = TypeVar("JobT", Job, JobDraft)


def stated_again(recorded: Job, asked: JobT) -> JobT:
    """What is asked for, with what was filled in for the recorded job where both state the same.

    A deadline stated as a time after the submission is one whatever the clock said then; a value
    that is left to the on-demand quote is left to it, whatever that was. Anything else stays as it
    is asked for, and so differs from what is recorded where it does.
    """
    asked = _at_recorded_times(recorded, asked)
    if not (recorded.value_from_quote and asked.value_from_quote) or asked.value_micro_usd:
        return asked
    budget = asked.budget_micro_usd
    if not budget and recorded.budget_micro_usd == recorded.value_micro_usd:
        budget = recorded.budget_micro_usd
    filled: dict[str, Any] = {
        "value_micro_usd": recorded.value_micro_usd,
        "budget_micro_usd": budget,
    }
    if isinstance(asked, Job):
        filled["on_demand_quote_micro_usd"] = recorded.on_demand_quote_micro_usd
    return replace(asked, **filled)


def unattended_again(recorded: Job, asked: JobT) -> JobT:
    """What is asked for, as a run on paper records it: nobody starts its program."""
    if asked.run is None:
        return replace(asked, awaits_exit=False)
    budget = recorded.egress_budget_micro_usd
    return replace(asked, run=None, awaits_exit=False, egress_budget_micro_usd=budget)


def _at_recorded_times(recorded: Job, asked: JobT) -> JobT:
    """The same with the recorded deadline's times where both state the same seconds."""
    then, now = recorded.deadline, asked.deadline
    at_ns, expires_ns = now.at_ns, now.expires_ns
    if now.after_s and now.after_s == then.after_s:
        at_ns = then.at_ns
    if now.expires_after_s and now.expires_after_s == then.expires_after_s:
        expires_ns = then.expires_ns
    if now.kind is DeadlineKind.HARD:
        expires_ns = at_ns
    try:
        return replace(asked, deadline=replace(now, at_ns=at_ns, expires_ns=expires_ns))
    except ValueError:
        # The rest is another statement, and does not fit these times: it differs as it is.
        return asked
