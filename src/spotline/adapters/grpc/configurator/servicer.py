"""ConfigurationService: completes drafts, predicts, learns."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import grpc
import structlog
from google.protobuf.message import Message

from spotline.adapters.grpc.kit.answering import RequestLog, answers
from spotline.adapters.grpc.kit.errors import RpcRefused, ServerContext, invalid, refusal_of
from spotline.adapters.grpc.kit.filling_in import name_draft
from spotline.api.v1 import configuration_service_pb2 as pb
from spotline.api.v1 import configuration_service_pb2_grpc
from spotline.application.admission import Refused
from spotline.application.configurator.completion import complete
from spotline.application.configurator.handler import ConfiguratorHost
from spotline.application.configurator.knowledge import (
    MOST_LEARNED_RUNS,
    FitPlan,
    KnowledgeBase,
    why_not_learned,
)
from spotline.application.configurator.messages import (
    Completion,
    CompletionRequest,
    KnownSources,
    LessonReceipt,
    PredictionAnswers,
    PredictionRequest,
    RefusedRun,
)
from spotline.application.market_view import ClockReading
from spotline.application.spec import derive_id
from spotline.contracts.errors import ContractError
from spotline.contracts.mapping import digest, from_message
from spotline.contracts.reasons import Reason
from spotline.domain.configuration.configuration import MeasuredRun
from spotline.domain.configuration.registry import source_names
from spotline.domain.events.event import Event
from spotline.domain.events.knowledge import RunMeasured
from spotline.runtime.applied import AppliedFeed

_log = structlog.get_logger(__name__)

AnswerT = TypeVar("AnswerT")

_MOST_PER_CALL = 10_000
_MOST_OPTIONS = 1_000
# So many runs are on their way to the bus at a time.
_STORED_TOGETHER = 64
_APPLY_TIMEOUT_S = 30.0
RUNS = "runs"


def runs_measured(event: Event) -> str | None:
    """One key for every measured run, as a feed of what is applied asks."""
    return RUNS if isinstance(event, RunMeasured) else None


class SharedKnowledge:
    """A knowledge base asked in one thread and taught again in another: the loop stays responsive.

    What `host` has folded is known to every question that is asked after it.
    """

    def __init__(self, base: KnowledgeBase, host: ConfiguratorHost, feed: AppliedFeed) -> None:
        self._base = base
        self._host = host
        self._feed = feed
        self._seen = 0
        self._unseen: deque[MeasuredRun] = deque()
        self._fitting = asyncio.Lock()
        self._lessons = 0
        self._no_lesson = asyncio.Event()
        self._no_lesson.set()
        self._asking = ThreadPoolExecutor(1, thread_name_prefix="spotline-knowledge")
        self._learning = ThreadPoolExecutor(1, thread_name_prefix="spotline-fit")

    async def applied(self, runs: Sequence[MeasuredRun]) -> None:
        """Wait until all of `runs` are known."""
        await self._feed.until(RUNS, lambda: all(run in self._host.state.runs for run in runs))

    async def ask(self, work: Callable[[KnowledgeBase], AnswerT]) -> AnswerT:
        """Do `work` with the base, which knows everything applied so far."""
        unseen = self._host.state.runs.behind(self._seen)
        self._seen += len(unseen)
        # Not handed to this very question: it may be cancelled before its turn.
        self._unseen.extend(unseen)

        def asked() -> AnswerT:
            while self._unseen:
                self._base.observe(self._unseen.popleft())
            return work(self._base)

        return await asyncio.get_running_loop().run_in_executor(self._asking, asked)

    async def start(self) -> None:
        """Teach the default source where there is something to learn.

        Without any run nothing is loaded before a question comes: libraries take seconds.
        """
        if await self.ask(lambda base: bool(base.runs)):
            await self.ready()

    async def ready(self, source_ids: Sequence[str] = ("",)) -> None:
        """Teach these sources (empty: the default) what is known, if they were never asked.

        Raises
        ------
        ValueError
            There is no such source.
        """
        await self._fit(lambda base: base.plan_first_fit(source_ids))

    async def keep_learning(self) -> None:
        """Teach the sources again whenever enough has been added; runs until cancelled."""
        seen = 0

        def more() -> bool:
            return len(self._host.state.runs) > seen

        while True:
            await self._feed.until(RUNS, more)
            seen = len(self._host.state.runs)
            # What is fitted to half a lesson may leave too little over to be fitted again for.
            await self._no_lesson.wait()
            while await self._fit(KnowledgeBase.plan_refit):
                _log.info("knowledge_refitted")

    async def _fit(self, plan_of: Callable[[KnowledgeBase], FitPlan | None]) -> bool:
        # Who has nothing to learn does not wait for those who do.
        if await self.ask(plan_of) is None:
            return False
        # One at a time: who comes second finds the first one's sources taught.
        async with self._fitting:
            plan = await self.ask(plan_of)
            if plan is None:
                return False
            fit = await asyncio.get_running_loop().run_in_executor(self._learning, plan.fit)
            await self.ask(lambda base: base.adopt(fit))
            return True

    @contextmanager
    def lesson(self) -> Iterator[None]:
        """Have `keep_learning` wait until what is taught inside is there as a whole."""
        self._lessons += 1
        self._no_lesson.clear()
        try:
            yield
        finally:
            self._lessons -= 1
            if not self._lessons:
                self._no_lesson.set()

    def close(self) -> None:
        """Let go of the threads; what they are at ends on its own."""
        self._asking.shutdown(wait=False, cancel_futures=True)
        self._learning.shutdown(wait=False, cancel_futures=True)


class ConfigurationServicer(configuration_service_pb2_grpc.ConfigurationServiceServicer):
    """Serves `ConfigurationService` from the host's state and the shared knowledge."""

    def __init__(self, host: ConfiguratorHost, knowledge: SharedKnowledge) -> None:
        self._host = host
        self._knowledge = knowledge
        self._requests = RequestLog()

    def clock(self) -> ClockReading | None:
        """Market time, None before a market is known."""
        return self._host.state.recent.clock()

    @answers
    async def Complete(self, request: pb.CompleteRequest, context: ServerContext) -> Completion:
        """Fill in what a draft leaves out."""
        name_draft(request.draft)
        asked = from_message(CompletionRequest, request)
        if asked.most_options > _MOST_OPTIONS:
            raise _too_many("most_options", asked.most_options, _MOST_OPTIONS)
        # Taken on the loop: a thread must not read what the host is changing.
        market = self._host.state.market()
        if market is None:
            raise RpcRefused(
                grpc.StatusCode.UNAVAILABLE,
                "no market is open yet; try again when one is",
                reason=Reason.MARKET_NOT_OPEN,
            )
        await self._ready(asked.source_id)
        answer = await self._knowledge.ask(lambda base: complete(asked, market, base))
        if isinstance(answer, Refused):
            raise refusal_of(answer)
        return answer

    @answers
    async def Predict(
        self, request: pb.PredictRequest, context: ServerContext
    ) -> PredictionAnswers:
        """Say how configurations would run."""
        asked = from_message(PredictionRequest, request)
        if len(asked.configurations) > _MOST_PER_CALL:
            raise _too_many("configurations", len(asked.configurations), _MOST_PER_CALL)
        await self._ready(asked.source_id)
        return await self._knowledge.ask(lambda base: base.answer(asked))

    @answers
    async def Learn(self, request: pb.LearnRequest, context: ServerContext) -> LessonReceipt:
        """Record measured runs, and answer when they are known."""
        if len(request.runs) > _MOST_PER_CALL:
            raise _too_many("runs", len(request.runs), _MOST_PER_CALL)
        return await self._requests.once(request, "", lambda: self._learn(request))

    async def _learn(self, request: pb.LearnRequest) -> LessonReceipt:
        taken: dict[MeasuredRun, None] = {}
        refused: list[RefusedRun] = []
        recorded = 0
        room = MOST_LEARNED_RUNS - len(self._host.state.runs)
        for index, message in enumerate(request.runs):
            run, reason = _readable(message)
            if run is not None and not reason and run not in taken:
                known = run in self._host.state.runs
                if not known and len(taken) >= room:
                    reason = f"the log holds {MOST_LEARNED_RUNS} runs; import more from a file"
                elif not known:
                    taken[run] = None
            if reason:
                refused.append(RefusedRun(index=index, reason=reason))
            else:
                recorded += 1
        await self._record(tuple(taken))
        return LessonReceipt(recorded=recorded, refused=tuple(refused))

    async def _record(self, runs: Sequence[MeasuredRun]) -> None:
        try:
            with self._knowledge.lesson():
                for start in range(0, len(runs), _STORED_TOGETHER):
                    await asyncio.gather(
                        *(self._publish(run) for run in runs[start : start + _STORED_TOGETHER])
                    )
                async with asyncio.timeout(_APPLY_TIMEOUT_S):
                    await self._knowledge.applied(runs)
        except TimeoutError:
            raise RpcRefused(
                grpc.StatusCode.UNAVAILABLE,
                f"recorded, but not learned within {_APPLY_TIMEOUT_S:g} s; send it again to learn "
                "more (nothing is recorded twice)",
                reason=Reason.NOT_APPLIED_YET,
            ) from None

    async def _publish(self, run: MeasuredRun) -> None:
        event_id = derive_id(digest(run), "measured")
        await self._host.publish_observation(
            RunMeasured(run=run), event_id=event_id, correlation_id=event_id
        )

    @answers
    async def Sources(self, request: pb.SourcesRequest, context: ServerContext) -> KnownSources:
        """Say what every source has learned from."""
        await self._knowledge.ready()
        await self._knowledge.ready(await self._knowledge.ask(KnowledgeBase.own_describers))
        return await self._knowledge.ask(KnowledgeBase.describe)

    async def _ready(self, source_id: str) -> None:
        # Asked for beforehand: what fails inside a source may be a ValueError too, and is ours.
        names = source_names()
        if source_id and source_id not in names:
            raise invalid(
                ValueError(f"source_id must be one of {', '.join(names)}, was {source_id!r}")
            )
        await self._knowledge.ready((source_id,))


def _readable(message: Message) -> tuple[MeasuredRun | None, str]:
    """The run of a message, or None; and why it is not taken, empty if it is."""
    try:
        run = from_message(MeasuredRun, message)
    except ContractError as error:
        field = error.where.partition(" ")[2]
        return None, f"{field}: {error.problem}" if field else error.problem
    return run, why_not_learned(run)


def _too_many(field: str, number: int, most: int) -> RpcRefused:
    return RpcRefused(
        grpc.StatusCode.INVALID_ARGUMENT,
        f"{field} must be <= {most}, was {number}",
        reason=Reason.TOO_MANY_ITEMS,
        field=field,
    )
