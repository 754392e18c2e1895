"""A crowd whose tables count on shadow prices: its log is reproduced, and another price is found."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest

from spotline.adapters.eventlog.manifest import environment
from spotline.contracts.build import event_of
from spotline.contracts.envelope import StoredEntry
from spotline.domain.events.allocation import ShadowPricesUpdated
from spotline.domain.events.event import Event
from spotline.domain.events.law import ValueTableRequested
from spotline.domain.market.generate import generate
from spotline.replay.divergence import DIVERGED, SAME
from spotline.replay.handlers import handlers_of
from spotline.replay.jobs import generated_jobs
from spotline.replay.parts import ExactCloud
from spotline.replay.verify import verify
from tests.fakes.recorded_run import SETTINGS, altered, manifest_of, play

CROWDED: dict[str, Any] = {
    "forecaster": {"forecaster": "persistence", "horizon_slots": 2},
    "selector": {
        **SETTINGS["selector"],
        "clearing": True,
        "shadow_prices": True,
        "rehearsals": 0,
    },
}


@lru_cache(maxsize=1)
def crowded_log() -> tuple[StoredEntry, ...]:
    market = generate(
        "cloud-gang", seed=1, slots=40, slot_s=1800, start_ns=1_767_571_200_000_000_000
    )
    log: list[StoredEntry] = []
    play(
        [*handlers_of(CROWDED), ExactCloud()],
        market,
        generated_jobs(market, 12, 1),
        record=log.append,
    )
    return tuple(log)


@pytest.mark.slow
def test_a_log_with_shadow_prices_is_reproduced() -> None:
    log = crowded_log()
    events = [event_of(entry) for entry in log]
    result = verify(log, handlers_of(CROWDED), manifest_of(log), here=environment())

    assert any(isinstance(event, ShadowPricesUpdated) and event.prices for event in events)
    assert any(
        event.table.spot_surcharge_micro_usd
        for event in events
        if isinstance(event, ValueTableRequested)
    )
    assert result.exit_code == SAME, result.divergences


@pytest.mark.slow
def test_another_price_than_the_slots_were_worth_is_found() -> None:
    def dearer(event: Event) -> Event:
        assert isinstance(event, ShadowPricesUpdated)
        return replace(
            event,
            prices=tuple(
                replace(price, micro_usd_per_instance_hour=price.micro_usd_per_instance_hour + 1)
                for price in event.prices
            ),
        )

    log, seq = altered(crowded_log(), ShadowPricesUpdated, dearer, nth=0)
    result = verify(log, handlers_of(CROWDED), manifest_of(log), here=environment())

    assert result.exit_code == DIVERGED
    assert any(divergence.seq == seq for divergence in result.divergences)
