"""Makes the page of replays."""

from __future__ import annotations

from spotline.adapters.page.app import Model
from spotline.adapters.page.asked import PageAsked
from spotline.application.page.about import About
from spotline.application.page.replaying import (
    PAGE_SIZE,
    EntryVerdict,
    ReplayAsked,
    Verdict,
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
        "verdicts": verdicts[(page - 1) * PAGE_SIZE : page * PAGE_SIZE],
        "found": len(verdicts),
        "page": page,
        "pages": pages,
        "only": only,
        "choices": tuple(Verdict),
    }


def _wanted(verified: Verified, only: str) -> list[EntryVerdict]:
    return [each for each in verified.verdicts if only in ("", each.verdict.value)]
