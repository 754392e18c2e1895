"""Makes the page of replays."""

from __future__ import annotations

from spotline.adapters.page.app import Model
from spotline.adapters.page.asked import PageAsked
from spotline.adapters.page.making.job import places_of
from spotline.adapters.page.making.replay_beside import fleet_cost_chart, job_beside
from spotline.application.page.about import About
from spotline.application.page.replaying import (
    PAGE_SIZE,
    EntryVerdict,
    ReplayAsked,
    ReplayShown,
    ReplayVerdict,
    Verified,
    WhatIfAsked,
)
from spotline.application.page.state import PageState

_VERIFY, _WHAT_IF = "verify", "what-if"


def replay_asked(asked: PageAsked) -> ReplayAsked:
    """What the address asks of the log. The same question has the same answer, whoever asks again."""
    run = asked.text("run")
    if run == _VERIFY:
        return ReplayAsked(verify=True)
    if run == _WHAT_IF:
        return ReplayAsked(
            what_if=WhatIfAsked(
                rule=asked.text("rule") or "spotline",
                deadline=asked.text("deadline").strip(),
                spot_factor=asked.text("spot").strip(),
                on_demand_factor=asked.text("on_demand").strip(),
                gone=asked.text("gone"),
                gone_from=asked.number("gone_from") if asked.text("gone") else None,
                gone_to=asked.number("gone_to") if asked.text("gone") else None,
                gone_cloud=asked.text("cloud"),
                counts=asked.text("counts").strip(),
            )
        )
    return ReplayAsked()


def replay_page(state: PageState, asked: PageAsked, found: Model) -> Model:
    """A recorded log verified, or beside what would have been."""
    about: About = found["about"]
    question = replay_asked(asked)
    shown = about.replay
    page = asked.number("page", least=1) or 1
    only = asked.text("only")
    verdicts = [] if shown is None or shown.verified is None else _wanted(shown.verified, only)
    pages = max(1, -(-len(verdicts) // PAGE_SIZE))
    page = min(page, pages)
    return {
        "shown": shown,
        "others": about.others,
        "question": question,
        "what_if": question.what_if or WhatIfAsked(),
        "job_id": asked.text("job"),
        "offerings": [each.offering_id for each in state.jobs.recent.offerings],
        "clouds": sorted({each.provider for each in state.jobs.recent.offerings}),
        "names": places_of(state),
        **_beside(state, shown, asked),
        "verdicts": verdicts[(page - 1) * PAGE_SIZE : page * PAGE_SIZE],
        "found": len(verdicts),
        "page": page,
        "pages": pages,
        "only": only,
        "choices": tuple(ReplayVerdict),
    }


def _beside(state: PageState, shown: ReplayShown | None, asked: PageAsked) -> Model:
    """What was and what would have been, drawn: of all jobs, and of the one that is asked for."""
    found = None if shown is None else shown.beside
    if found is None or not found.compared:
        return {"fleet_cost": None, "drawn": None}
    return {
        "fleet_cost": fleet_cost_chart(state, found),
        "drawn": job_beside(state, found, asked.text("job")),
    }


def _wanted(verified: Verified, only: str) -> list[EntryVerdict]:
    return [each for each in verified.verdicts if only in ("", each.verdict.value)]
