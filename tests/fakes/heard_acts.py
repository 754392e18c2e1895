"""What people asked for by pages, and in whose name: nothing is done."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from spotline.application.allocator.messages import PlanAnswer, SubmissionReceipt
from spotline.application.operations.messages import LimitNowSet, LimitsInForce, Paused, SpendUse
from spotline.domain.events.limits import LimitSet
from spotline.domain.jobs.job import Job
from spotline.domain.limits.freezes import Freeze, FreezeReason


@dataclass(slots=True)
class HeardActs:
    """Acts of whoever has a token; remembers who asked for what."""

    token: str = ""
    heard: list[tuple[str, str, Any]] = field(default_factory=list)
    refuses: Exception | None = None

    @property
    def jobs(self) -> HeardActs:
        return self

    @property
    def operations(self) -> HeardActs:
        return self

    @asynccontextmanager
    async def of_caller(self, token: str) -> AsyncIterator[HeardActs]:
        self.token = token
        yield self

    def _hear(self, name: str, asked: Any) -> None:
        self.heard.append((name, self.token, asked))
        if self.refuses is not None:
            raise self.refuses

    async def market(self) -> Any:
        return type("Market", (), {"clock": None})

    async def plan(self, request: Any) -> PlanAnswer:
        self._hear("plan", request)
        return PlanAnswer(
            feasible=True,
            infeasible_reason="",
            earliest_feasible_deadline_ns=0,
            options=(),
            on_demand_quote_micro_usd=12_340_000,
        )

    async def submit(self, job: Job) -> SubmissionReceipt:
        self._hear("submit", job)
        return SubmissionReceipt(job_id=job.job_id, already_submitted=False)

    async def pause(self, pause: Any) -> Paused:
        self._hear("pause", pause)
        return Paused(
            freeze=Freeze(
                freeze_id="f",
                scope=pause.scope,
                key=pause.key,
                reason=FreezeReason.PAUSED,
                detail=pause.detail,
            )
        )

    async def limits(self) -> LimitsInForce:
        use = SpendUse(
            what="tenant",
            tenant="research",
            span="day",
            used_micro_usd=390_000_000,
            limit_micro_usd=400_000_000,
        )
        return LimitsInForce(jobs_judged=True, uses=(use,))

    async def set_limit(self, wanted: Any) -> LimitNowSet:
        self._hear("set_limit", wanted)
        event = LimitSet(
            kind=wanted.kind,
            key=wanted.key,
            span_s=wanted.span_s,
            stated=400_000_000,
            most=wanted.most,
            before=400_000_000,
            by="operator",
            reason=wanted.reason,
        )
        return LimitNowSet(set=event)
