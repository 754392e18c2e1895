"""A log of a crowd whose prices count on what is expected: verified, whatever the order of hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from spotline.adapters.eventlog.manifest import environment
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.subjects import KINDS
from spotline.domain.events.allocation import ShadowPricesUpdated
from spotline.replay.divergence import DIVERGED, SAME
from spotline.replay.handlers import handlers_of
from spotline.replay.jobs import generated_jobs
from spotline.replay.parts import ExactCloud, answer_in_process
from spotline.replay.verify import verify
from tests.fakes.hash_seeds import told_under_seeds
from tests.fakes.recorded_run import SETTINGS, manifest_of, play, small_market

CROWD = {"rehearsals": 2, "clearing": True, "shadow_prices": True}


def settings_with(*, ahead: bool) -> Mapping[str, Any]:
    return {**SETTINGS, "selector": {**CROWD, "prices_ahead": ahead}}


@cache
def run_with(*, ahead: bool) -> tuple[StoredEntry, ...]:
    """The log of twelve jobs on a day and a half."""
    market = small_market()
    log: list[StoredEntry] = []
    handlers = [*handlers_of(settings_with(ahead=ahead)), ExactCloud()]
    jobs = generated_jobs(market, 12, 5)
    play(handlers, market, jobs, record=log.append, answer=answer_in_process)
    return tuple(log)


def exit_code(log: tuple[StoredEntry, ...], *, ahead: bool) -> int:
    settings = settings_with(ahead=ahead)
    manifest = replace(manifest_of(log), settings=settings)
    return verify(log, handlers_of(settings), manifest, here=environment()).exit_code


def digest() -> str:
    payloads = (entry.payload for entry in run_with(ahead=True))
    return hashlib.sha256(b"".join(payloads)).hexdigest()


def prices_of(log: tuple[StoredEntry, ...]) -> list[bytes]:
    return [entry.payload for entry in log if entry.envelope().kind == KINDS[ShadowPricesUpdated]]


def test_a_log_of_prices_ahead_is_verified_as_its_manifest_says() -> None:
    log = run_with(ahead=True)

    assert prices_of(log)
    assert prices_of(log) != prices_of(run_with(ahead=False))
    assert exit_code(log, ahead=True) == SAME
    assert exit_code(log, ahead=False) == DIVERGED


@pytest.mark.timeout(300)
def test_prices_ahead_do_not_depend_on_the_hash_seed() -> None:
    told = [digest(), *told_under_seeds("tests.replay.test_prices_ahead", "digest", "1", "2")]

    assert len(set(told)) == 1
