"""How long a whole Complete takes over gRPC: the real server on loopback, a generated market.

The market holds two instance types over five offerings; the knowledge is generated runs. Drafts
differ in model, work, deadline and what they state. The server keeps a slot's sampled futures, so
the first draft after a slot opened waits longer: that is measured apart, over several slots.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from time import perf_counter_ns

import numpy as np

from spotline.adapters.grpc.configurator.client import ConfiguratorClient
from spotline.adapters.grpc.configurator.server import ConfiguratorServer
from spotline.adapters.grpc.configurator.servicer import SharedKnowledge, runs_measured
from spotline.adapters.grpc.kit.errors import RpcFailed
from spotline.application.configurator.completion import warm_up
from spotline.application.configurator.handler import ConfiguratorState, ConfigureHandler
from spotline.application.configurator.knowledge import KnowledgeBase
from spotline.application.configurator.messages import CompletionRequest
from spotline.bench.knowledge.generated import WORLD_MODELS, generate_runs
from spotline.contracts.errors import ProviderUnavailable
from spotline.domain.configuration.configuration import Method
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import Deadline, DeadlineKind
from spotline.domain.market.forecast import CountProbability, ForecastStep, OfferingForecast
from spotline.domain.market.generate import generate
from spotline.domain.market.market import Market
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.units import NS_PER_S, PPM
from spotline.runtime.applied import AppliedFeed

_PRESETS = ("mixed", "cloud-gang")
_SLOT_S = 600
_SLOTS = 192
_START_NS = 1_772_323_200 * NS_PER_S
_HORIZON = 6
# Deadlines as fine-tuning jobs have them, hours; work in tokens; of models that fit one node.
_HOURS = (6.0, 48.0)
_TOKENS_LOG10 = (6.5, 8.0)
_LARGEST_MODEL_B = 14.0
_SMALL_MODEL = "granite-4.0-350m"
_SOFT_SHARE = 0.25
_SOFT_HOURS = 12
_STATED_SHARE = 0.3
_NS_PER_MS = 1e6
# A refusal is an answer too: a deadline that nothing meets takes as long to find out.
_ANSWERS = ("INVALID_ARGUMENT", "FAILED_PRECONDITION")


class _InMemoryHost:
    """A configurator that has folded a market and stores nothing."""

    def __init__(self) -> None:
        self._handler = ConfigureHandler()
        self.state: ConfiguratorState = self._handler.initial()

    def fold(self, event: Event) -> None:
        self._handler.evolve(self.state, event)

    async def publish_observation(self, event: Event, *, event_id: str, correlation_id: str) -> int:
        raise ProviderUnavailable("the benchmark's host stores nothing")


def measure_complete(
    calls: int = 500,
    *,
    runs: int = 2_000,
    seed: int = 1,
    source_id: str = "",
    new_slots: int = 5,
) -> dict[str, float]:
    """Time `calls` completions, one after the other, in one process with the server.

    Parameters
    ----------
    runs
        Generated runs that the sources have learned.
    seed
        Of runs, market and drafts.
    source_id
        The knowledge source asked; empty: the default.
    new_slots
        Slots whose first call is timed apart.

    Returns
    -------
    dict
        `p50`, `p99` and `max` of the calls in ms, `new_slot` (median of the first calls after a
        slot opened, ms), `calls`, `runs`, `completed` (the others were refused), and
        `options_considered` (median).

    Raises
    ------
    ValueError
        `calls` or `new_slots` is not > 0.
    """
    for name, number in (("calls", calls), ("new_slots", new_slots)):
        if number < 1:
            raise ValueError(f"{name} must be > 0, was {number}")
    return asyncio.run(_measure(calls, runs, seed, source_id, new_slots))


async def _measure(
    calls: int, runs: int, seed: int, source_id: str, new_slots: int
) -> dict[str, float]:
    markets = _markets(seed, _SLOTS + new_slots)
    host = _InMemoryHost()
    _open(host, markets)
    knowledge = SharedKnowledge(
        KnowledgeBase(generate_runs(runs, seed)), host, AppliedFeed(runs_measured)
    )
    server = ConfiguratorServer(host, knowledge, address="127.0.0.1:0")
    warm_up()
    await knowledge.ready((source_id,))
    address = await server.start()
    try:
        async with ConfiguratorClient(address) as client:
            drafts = _drafts(calls, seed)
            # Every length of futures is asked for once before the clock starts.
            for draft in _of_all_lengths(drafts):
                await _time_ms(client, draft, source_id)
            timed = [await _time_ms(client, draft, source_id) for draft in drafts]
            first_ms = []
            for slot in range(_SLOTS, _SLOTS + new_slots):
                _fold_slot(host, markets, slot)
                first_ms.append((await _time_ms(client, drafts[slot % calls], source_id))[0])
    finally:
        await server.stop(grace_s=0.0)
        knowledge.close()
    took = [ms for ms, _ in timed]
    considered = [options for _, options in timed if options]
    return {
        "calls": float(calls),
        "runs": float(runs),
        "completed": float(len(considered)),
        "p50": float(np.percentile(took, 50)),
        "p99": float(np.percentile(took, 99)),
        "max": max(took),
        "new_slot": median(first_ms),
        "options_considered": float(median(considered)) if considered else 0.0,
    }


async def _time_ms(
    client: ConfiguratorClient, draft: JobDraft, source_id: str
) -> tuple[float, int]:
    """Milliseconds of one call, and the options it considered (0: refused)."""
    request = CompletionRequest(draft=draft, source_id=source_id)
    begun_ns = perf_counter_ns()
    try:
        considered = (await client.complete(request)).considered
    except RpcFailed as refused:
        if refused.code not in _ANSWERS:
            raise
        considered = 0
    return (perf_counter_ns() - begun_ns) / _NS_PER_MS, considered


# --- the market -------------------------------------------------------------------------------


def _markets(seed: int, slots: int) -> tuple[Market, ...]:
    return tuple(
        generate(
            preset,
            seed=seed,
            slots=slots,
            slot_s=_SLOT_S,
            start_ns=_START_NS,
        )
        for preset in _PRESETS
    )


def _open(host: _InMemoryHost, markets: Sequence[Market]) -> None:
    host.fold(
        MarketOpened(
            offerings=tuple(one for market in markets for one in market.offerings),
            slot_s=_SLOT_S,
            first_slot_start_ns=_START_NS,
            source="; ".join(market.source for market in markets),
        )
    )
    for slot in range(_SLOTS):
        _fold_slot(host, markets, slot)


def _fold_slot(host: _InMemoryHost, markets: Sequence[Market], slot: int) -> None:
    host.fold(
        SlotOpened(
            slot=slot,
            ts_event_ns=_START_NS + slot * _SLOT_S * NS_PER_S,
            slot_s=_SLOT_S,
            quotes=tuple(
                SlotQuote(quote=quote, age_s=0)
                for market in markets
                for quote in market.quotes(slot)
            ),
            last=False,
        )
    )
    if slot >= _SLOTS - 1:
        forecasts = tuple(
            _climatology(market, column, slot)
            for market in markets
            for column in range(len(market.offerings))
        )
        host.fold(ForecastIssued(slot=slot, model_id="climatology", forecasts=forecasts, scores=()))


def _climatology(market: Market, column: int, slot: int) -> OfferingForecast:
    """Counts as often as they have been seen: what is forecast matters little to the clock."""
    seen, times = np.unique(market.spot_available[: slot + 1, column], return_counts=True)
    shares = (times * PPM // times.sum()).tolist()
    shares[0] += PPM - sum(shares)
    step = ForecastStep(
        spot_price_micro_usd=int(market.spot_price_micro_usd[slot, column]),
        counts=tuple(
            CountProbability(instances=int(count), probability_ppm=int(share))
            for count, share in zip(seen.tolist(), shares, strict=True)
        ),
    )
    return OfferingForecast(
        offering_id=market.offerings[column].offering_id, steps=(step,) * _HORIZON
    )


# --- drafts -----------------------------------------------------------------------------------


def _drafts(calls: int, seed: int) -> list[JobDraft]:
    rng = np.random.default_rng([seed, 14])
    models = [model.name for model in WORLD_MODELS if model.size_b <= _LARGEST_MODEL_B]
    now_ns = _START_NS + _SLOTS * _SLOT_S * NS_PER_S
    drafts = []
    for index in range(calls):
        hours = rng.uniform(*_HOURS)
        at_ns = now_ns + int(hours * 3600) * NS_PER_S
        soft = rng.random() < _SOFT_SHARE
        draft = JobDraft(
            tenant="bench",
            client_request_id=f"draft-{index}",
            model_name=models[int(rng.integers(len(models)))],
            tokens=float(round(10 ** rng.uniform(*_TOKENS_LOG10))),
            deadline=Deadline(
                kind=DeadlineKind.SOFT if soft else DeadlineKind.HARD,
                at_ns=at_ns,
                expires_ns=at_ns + (_SOFT_HOURS * 3600 * NS_PER_S if soft else 0),
            ),
            value_micro_usd=1_000_000_000,
        )
        if rng.random() < _STATED_SHARE:
            draft = replace(draft, batch_size=int(2 ** rng.integers(3, 7)))
        if rng.random() < _STATED_SHARE:
            draft = replace(draft, method=Method.FULL if rng.random() < 0.5 else Method.LORA)
        drafts.append(draft)
    return drafts


def _of_all_lengths(drafts: Sequence[JobDraft]) -> list[JobDraft]:
    """A small job for every power of two of slots until the drafts' ends: none is refused."""
    found: dict[int, JobDraft] = {}
    for draft in drafts:
        slots = (draft.deadline.expires_ns - _START_NS) // (_SLOT_S * NS_PER_S) - _SLOTS
        small = replace(draft, tokens=1e6, model_name=_SMALL_MODEL, batch_size=0, method=None)
        found.setdefault((slots - 1).bit_length(), small)
    return [found[key] for key in sorted(found)]
