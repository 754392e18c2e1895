"""What an agent does from joining until its instance is not needed any more."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from spotline.adapters.grpc.agent.client import AgentCallFailed
from spotline.adapters.grpc.agent.messages import (
    Enrolled,
    MarketMoment,
    Order,
    OrderState,
    OutputPiece,
    RanksNews,
)
from spotline.agent.following import InstanceStanding, Step, next_step
from spotline.agent.generation import GenerationPorts, GenerationRun
from spotline.agent.joining import Joining
from spotline.agent.lease import InstanceLease, SessionRenewal
from spotline.agent.listening import ListenerPorts
from spotline.agent.notices import PLATFORM, LocalNotice, NoticeFolder, NoticesInForce
from spotline.agent.output import OutputSpool
from spotline.agent.ports import AgentClock, AgentControl
from spotline.agent.preparation import Preparation
from spotline.agent.program import WANTS_TO_GO_ON
from spotline.agent.progress import LineTail
from spotline.agent.ranks import RankPlace
from spotline.agent.reports import NewsQueue
from spotline.agent.settings import AgentSettings
from spotline.agent.timing import MarketTime, RetryPauses
from spotline.contracts.errors import ContractError, ProviderUnavailable

DONE = 0
LEASE_OVER = 4

# How often the cloud's notice is looked for on the machine, wall seconds.
_NOTICE_EVERY_S = 0.5
# What the last news and output get before the instance ends, wall seconds; and what they get where
# the control plane was away until the lease was over.
FLUSH_S = 10.0
LAST_TRY_S = 1.0

_METADATA = "metadata"
_AWS = "aws"

_log = structlog.get_logger()


class Duty:
    """An instance's work for its job.

    Parameters
    ----------
    joining
        What it joined with, to join again where a session counts no more.
    uniform
        Draws from [0, 1), for pauses.
    """

    def __init__(
        self,
        settings: AgentSettings,
        control: AgentControl,
        joining: Joining,
        enrolled: Enrolled,
        *,
        clock: AgentClock,
        uniform: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._control = control
        self._joining = joining
        self._enrolled = enrolled
        self._clock = clock
        self._uniform = uniform
        self._lease = InstanceLease(clock, enrolled.lease_s)
        self._market = MarketTime(clock, enrolled.market_s_per_s)
        self._news = NewsQueue()
        self._spool = OutputSpool()
        notice_file = settings.run_dir / "notice.json"
        self._board = NoticesInForce(
            instance_id=settings.instance_id,
            file=notice_file,
            post=self._news.post,
            clock=clock,
            market=self._market,
        )
        self._preparation = Preparation(
            settings,
            enrolled.task,
            _place(settings, notice_file, enrolled.market_s_per_s),
            spool=self._spool,
            clock=clock,
            marker=f"{settings.instance_id}/setup",
            uniform=uniform,
        )
        self._ports = GenerationPorts(
            settings=settings,
            task=enrolled.task,
            spool=self._spool,
            listening=ListenerPorts(
                clock=clock, market=self._market, board=self._board, post=self._news.post
            ),
            events=LineTail(settings.run_dir / "events.jsonl"),
            heartbeat_s=enrolled.heartbeat_s,
        )
        self._order: Order | None = None
        self._current: GenerationRun | None = None
        self._last = 0
        self._leaving: int | None = None
        self._changed = asyncio.Event()
        self._renewal = SessionRenewal(clock, enrolled.session_s)

    def contacted(self, moment: MarketMoment | None) -> None:
        """Note that the control plane answered."""
        self._lease.renew()
        self._market.observe(moment)

    def leave(self, exit_code: int = DONE) -> None:
        """Have the program save, and end: the instance goes."""
        if self._leaving is None:
            self._leaving = exit_code
            self._changed.set()

    async def serve(self) -> int:
        """Do what the control plane says until the instance is not needed; the exit code."""
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(work, name=name)
                for name, work in (
                    ("prepare", self._preparation.work()),
                    ("watch", self._watch()),
                    ("heartbeat", self._beat()),
                    ("news", self._news.deliver(self._control.tell, self._clock, self._pauses())),
                    ("output", self._spool.deliver(self._send, self._clock, self._pauses())),
                    ("lease", self._end_with_lease()),
                    ("notices", self._poll_folder()),
                    ("aws", self._poll_aws()),
                )
            ]
            self._preparation.want()
            await self._follow(tasks)
            await self._flush()
            for task in background:
                task.cancel()
        return DONE if self._leaving is None else self._leaving

    def _pauses(self) -> RetryPauses:
        return RetryPauses(self._uniform)

    async def _send(self, pieces: Sequence[OutputPiece]) -> None:
        await self._control.send_output(pieces, self._enrolled.task)

    # --- what to do ---------------------------------------------------------------------------

    async def _follow(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            order, current = self._order, self._current
            standing = InstanceStanding(
                running=current.generation if current else 0,
                last=self._last,
                leaving=self._leaving is not None,
            )
            step = next_step(order, standing)
            if step is Step.FINISH:
                return
            if step is Step.DISOWN and order is not None:
                self._disown(order.generation)
                continue
            if step is Step.START and order is not None:
                self._start(order, tasks)
                continue
            if step is Step.STOP and current is not None:
                current.stop()
            if step is Step.KILL and current is not None:
                current.kill()
            await self._changed.wait()
            self._changed.clear()

    def _start(self, order: Order, tasks: asyncio.TaskGroup) -> None:
        if order.node_rank(self._settings.instance_id) is None:
            _log.error("not_a_member", generation=order.generation)
            self._disown(order.generation)
            return
        self._current = GenerationRun(order, self._preparation, self._ports)
        tasks.create_task(self._run(self._current), name=f"generation-{order.generation}")

    async def _run(self, generation: GenerationRun) -> None:
        await generation.run()
        self._last = max(self._last, generation.generation)
        self._current = None
        self._changed.set()

    def _disown(self, generation: int) -> None:
        self._last = max(self._last, generation)
        self._news.post(
            RanksNews(
                generation=generation, exit_code=WANTS_TO_GO_ON, detail="it never started here"
            )
        )

    async def _flush(self) -> None:
        """Deliver what is left, for a while: nobody waits for an instance that is not needed."""
        try:
            async with asyncio.timeout(FLUSH_S if self._lease.left_s > 0 else LAST_TRY_S):
                await self._news.emptied()
                await self._spool.emptied()
        except TimeoutError:
            _log.error("not_delivered", news=len(self._news))

    # --- what the control plane says ----------------------------------------------------------

    async def _watch(self) -> None:
        pauses = self._pauses()
        while True:
            told = False
            try:
                async for order in self._control.watch():
                    told = True
                    pauses.reset()
                    self._take(order)
                if told and self._order is not None and self._order.state is not OrderState.OVER:
                    # It ended with its session, perhaps as a generation was formed that waits for us.
                    await self._join_again()
            except AgentCallFailed as error:
                _log.warning("watch_broke", error=str(error), lease_left_s=int(self._lease.left_s))
                if error.unknown_caller:
                    await self._join_again()
            except ContractError as error:
                _log.error("order_unreadable", error=str(error))
            await self._clock.sleep(pauses.next_s())

    def _take(self, order: Order) -> None:
        if order != self._order:
            state, detail = order.state.value, order.detail
            _log.info("ordered", generation=order.generation, state=state, detail=detail)
        self._order = order
        self._tell(
            PLATFORM,
            [
                LocalNotice(
                    notice_id=notice.notice_id,
                    instance_ids=notice.instance_ids,
                    deadline_s=self._market.wall_s(notice.deadline_ns),
                )
                for notice in order.notices
            ],
        )
        self._changed.set()

    async def _join_again(self) -> None:
        """Ask with the same nonce, by which the control plane knows the agent: the next session."""
        try:
            self._renewal.renew((await self._joining.ask(self._control)).session_s)
        except (AgentCallFailed, ContractError) as error:
            _log.warning("join_again_failed", error=str(error))

    async def _beat(self) -> None:
        while True:
            if self._renewal.is_due:
                await self._join_again()
            try:
                await self._control.heartbeat(self._current.generation if self._current else 0)
            except AgentCallFailed as error:
                _log.debug("heartbeat_failed", error=str(error))
            await self._clock.sleep(self._enrolled.heartbeat_s)

    async def _end_with_lease(self) -> None:
        await self._lease.ended()
        _log.error("lease_over", lease_s=self._enrolled.lease_s)
        self.leave(LEASE_OVER)

    # --- notices of the machine ---------------------------------------------------------------

    def _tell(self, source: str, notices: Sequence[LocalNotice]) -> None:
        if self._board.tell(source, notices):
            _log.info("noticed", source=source, notices=[notice.notice_id for notice in notices])
            if self._current is not None:
                self._current.disturb()

    async def _poll_folder(self) -> None:
        if self._settings.metadata_dir is None:
            return
        folder = NoticeFolder(self._settings.metadata_dir, self._settings.instance_id)
        said = ""
        while True:
            try:
                self._tell(_METADATA, folder.read())
                said = ""
            except (ContractError, OSError) as error:
                said = _log_change("notice_unreadable", str(error), said)
            await self._clock.sleep(_NOTICE_EVERY_S)

    async def _poll_aws(self) -> None:
        if self._settings.cloud_kind != _AWS:
            return
        # It takes Python's whole HTTP client, which elsewhere is not needed.
        from spotline.agent.aws_metadata import DEFAULT_ENDPOINT, POLL_S, AwsMetadata

        endpoint = self._settings.aws_endpoint or DEFAULT_ENDPOINT
        metadata = AwsMetadata(self._settings.instance_id, endpoint)
        said = ""
        while True:
            try:
                self._tell(_AWS, await asyncio.to_thread(metadata.read))
                said = ""
            except (ContractError, ProviderUnavailable) as error:
                said = _log_change("aws_metadata_unreadable", str(error), said)
            await self._clock.sleep(POLL_S)


def _log_change(event: str, error: str, before: str) -> str:
    """Log an error once, though every look repeats it; returns what was logged last."""
    if error != before:
        _log.error(event, error=error)
    return error


def _place(settings: AgentSettings, notice_file: Path, market_s_per_s: float) -> RankPlace:
    """Where the program runs; its secrets are added when they are resolved.

    Its PATH finds the Python that the agent runs on first, as in an active virtual environment.
    """
    own_bin = str(Path(sys.executable).parent)
    path = settings.environ.get("PATH", os.defpath)
    return RankPlace(
        instance_id=settings.instance_id,
        work_dir=settings.work_dir,
        run_dir=settings.run_dir,
        notice_file=notice_file,
        own_environment={**settings.environ, "PATH": f"{own_bin}{os.pathsep}{path}"},
        secrets={},
        market_s_per_s=market_s_per_s,
    )
