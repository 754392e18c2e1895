"""A log of a crowd that is served in turn: verified as its manifest says, whatever the order of hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from spotline.adapters.eventlog.manifest import environment
from spotline.application.allocation.messages import AllocateRequest
from spotline.application.spec import Call
from spotline.contracts.envelope import StoredEntry
from spotline.replay.divergence import DIVERGED, SAME
from spotline.replay.handlers import handlers_of
from spotline.replay.jobs import generated_jobs
from spotline.replay.parts import ExactCloud, answer_in_process
from spotline.replay.verify import verify
from tests.fakes.hash_seeds import told_under_seeds
from tests.fakes.recorded_run import SETTINGS, manifest_of, play, small_market

CROWD = {"rehearsals": 2, "clearing": True, "shadow_prices": True, "keeps_spot": True}


def settings_with(most_bidders: int) -> Mapping[str, Any]:
    return {**SETTINGS, "selector": {**CROWD, "most_bidders": most_bidders}}


@cache
def run_with(most_bidders: int) -> tuple[tuple[StoredEntry, ...], int]:
    """The log of twelve jobs on a day and a half, and how many slots of it were served in turn."""
    market = small_market()
    log: list[StoredEntry] = []
    in_turn = 0

    def answer(call: Call) -> Any:
        nonlocal in_turn
        request: AllocateRequest = call.request
        in_turn += request.serves_in_turn
        return answer_in_process(call)

    handlers = [*handlers_of(settings_with(most_bidders)), ExactCloud()]
    play(handlers, market, generated_jobs(market, 12, 5), record=log.append, answer=answer)
    return tuple(log), in_turn


def exit_code(log: tuple[StoredEntry, ...], most_bidders: int) -> int:
    settings = settings_with(most_bidders)
    manifest = replace(manifest_of(log), settings=settings)
    return verify(log, handlers_of(settings), manifest, here=environment()).exit_code


def digest() -> str:
    return hashlib.sha256(b"".join(entry.payload for entry in run_with(1)[0])).hexdigest()


def test_a_log_of_turns_is_verified_as_its_manifest_says() -> None:
    log, in_turn = run_with(1)

    assert in_turn > 0
    assert exit_code(log, 1) == SAME
    assert exit_code(log, 0) == DIVERGED


@pytest.mark.timeout(300)
def test_turns_do_not_depend_on_the_hash_seed() -> None:
    told = [digest(), *told_under_seeds("tests.replay.test_turns", "digest", "1", "2")]

    assert len(set(told)) == 1
