"""Bugs by which spend runs away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from spotline.adapters.ledger.sql import SqlLedger
from spotline.application.cloud_actuator import actuation, reporting
from spotline.application.cloud_actuator.planning import RevisionPlanning
from spotline.application.selector import (
    commanding,
    fold,
    freezing,
    handler,
    offered_money,
    spending,
)
from spotline.bench.faults.plants.interface import Plant, Replacement
from spotline.domain.events.event import Event
from spotline.domain.ledger import intents
from spotline.domain.ledger.caps import Permit, permit
from spotline.domain.limits.breaker import Breaker
from spotline.domain.limits.spending import PoolRoom, Spending


def _spending_is_not_looked_at() -> Sequence[Replacement]:
    def nothing(self: Spending, spent: Any, tenant: str, kind: Any) -> None:
        return None

    return (Replacement(where=Spending, name="left", value=nothing),)


def _a_tenants_limit_is_everybodys_total() -> Sequence[Replacement]:
    limits_on = Spending._limits_on

    def without(self: Spending, tenant: str, kind: Any) -> Iterator[Any]:
        return (found for found in limits_on(self, tenant, kind) if found[0] != "tenant")

    return (Replacement(where=Spending, name="_limits_on", value=without),)


def _launches_are_not_counted() -> Sequence[Replacement]:
    def none(self: SqlLedger, ts_ns: int) -> int:
        return 0

    def uncounted(*_: Any) -> None:
        return None

    return (
        Replacement(where=SqlLedger, name="launches_since", value=none),
        Replacement(where=fold, name="note_launched", value=uncounted),
    )


def _what_a_job_has_spent_is_forgotten() -> Sequence[Replacement]:
    async def nothing(self: RevisionPlanning, request: Any) -> dict[str, int]:
        return {}

    def none(*_: Any) -> int:
        return 0

    return (
        Replacement(where=RevisionPlanning, name="_spent", value=nothing),
        Replacement(where=offered_money, name="spent_until_now", value=none),
    )


def _quotas_are_not_looked_at() -> Sequence[Replacement]:
    def any_number(self: PoolRoom, pool: str) -> None:
        return None

    return (Replacement(where=PoolRoom, name="instances", value=any_number),)


def _nobody_is_judged() -> Sequence[Replacement]:
    def content(*_: Any) -> tuple[Event, ...]:
        return ()

    return (Replacement(where=handler, name="judged", value=content),)


def _the_breaker_never_trips() -> Sequence[Replacement]:
    def content(self: Breaker, held: Any, now_ns: int, slot: int) -> tuple[tuple[()], tuple[()]]:
        return (), ()

    return (Replacement(where=Breaker, name="judge", value=content),)


def _nothing_is_excepted() -> Sequence[Replacement]:
    def none(*_: Any) -> Any:
        return freezing.NO_EXEMPTION

    return (
        Replacement(where=freezing, name="exemption", value=none),
        Replacement(where=commanding, name="exemption", value=none),
        Replacement(where=spending, name="exemption", value=none),
        Replacement(where=offered_money, name="exemption", value=none),
    )


def _exceptions_are_not_recorded() -> Sequence[Replacement]:
    outcomes = reporting.launch_outcomes

    def refusals_alone(excepted: Any, refusals: Any, request: Any) -> Any:
        return outcomes((), refusals, request)

    return (Replacement(where=actuation, name="launch_outcomes", value=refusals_alone),)


def _a_minute_never_ends_for_anybody() -> Sequence[Replacement]:
    launches_since = SqlLedger.launches_since

    def ever(self: SqlLedger, ts_ns: int) -> int:
        return launches_since(self, 0)

    def stern(*bounds: Any, excepted: int, **asked: Any) -> Permit:
        return permit(*bounds, **asked)

    return (
        Replacement(where=SqlLedger, name="launches_since", value=ever),
        Replacement(where=intents, name="permit", value=stern),
    )


def _the_allocator_is_believed() -> Sequence[Replacement]:
    def believed(*_: Any) -> None:
        return None

    return (Replacement(where=fold, name="check_answers", value=believed),)


PLANTS = (
    Plant(
        name="spending_is_not_looked_at",
        what="limits of an hour and a day are stated, and nobody asks them",
        replacements=_spending_is_not_looked_at,
        seed=3,
    ),
    Plant(
        name="a_tenants_limit_is_everybodys_total",
        what="limits of tenants are not among those that are asked",
        replacements=_a_tenants_limit_is_everybodys_total,
        seed=9,
    ),
    Plant(
        name="launches_are_not_counted",
        what="what was launched in the last minute is forgotten",
        replacements=_launches_are_not_counted,
        seed=3,
    ),
    Plant(
        name="what_a_job_has_spent_is_forgotten",
        what="the cap of a job counts what a slot costs, and nothing before it",
        replacements=_what_a_job_has_spent_is_forgotten,
        seed=19,
    ),
    Plant(
        name="quotas_are_not_looked_at",
        what="quotas of pools are stated, and nobody asks them",
        replacements=_quotas_are_not_looked_at,
    ),
    Plant(
        name="nobody_is_judged",
        what="a job goes on however much is still to come",
        replacements=_nobody_is_judged,
        seed=7,
    ),
    Plant(
        name="the_breaker_never_trips",
        what="instances fail one after the other, and buying goes on",
        replacements=_the_breaker_never_trips,
        seed=6,
    ),
    Plant(
        name="nothing_is_excepted",
        what="hard deadlines are given up for a limit on launches",
        replacements=_nothing_is_excepted,
    ),
    Plant(
        name="exceptions_are_not_recorded",
        what="what is bought against a stop is not told",
        replacements=_exceptions_are_not_recorded,
    ),
    Plant(
        name="a_minute_never_ends_for_anybody",
        what="launches of all time count against a minute's, and the hardest deadline yields",
        replacements=_a_minute_never_ends_for_anybody,
        seed=15,
    ),
    Plant(
        name="the_allocator_is_believed",
        what="a job is given ten times what it can use, as the allocator says",
        replacements=_the_allocator_is_believed,
        seed=1,
    ),
)
