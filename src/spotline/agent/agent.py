"""The agent of an instance: it joins, does its duty, and says with which code it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from spotline import __version__
from spotline.adapters.grpc.agent.messages import Enrolled, MarketMoment
from spotline.agent.duty import DONE, Duty
from spotline.agent.joining import JOIN_LIMIT_S, Joining, NotJoined, join
from spotline.agent.ports import AgentClock, AgentControl
from spotline.agent.settings import AgentSettings
from spotline.contracts.errors import ContractError

NOT_JOINED = 3

_log = structlog.get_logger()


class Agent:
    """Runs a job's program on one instance.

    Parameters
    ----------
    nonce
        The agent's own secret, at least 32 characters.
    uniform
        Draws from [0, 1), for pauses.
    """

    def __init__(
        self,
        settings: AgentSettings,
        *,
        clock: AgentClock,
        uniform: Callable[[], float],
        nonce: str,
        join_limit_s: float = JOIN_LIMIT_S,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._uniform = uniform
        self._join_limit_s = join_limit_s
        self._joining = Joining(
            join_token=settings.join_token,
            instance_id=settings.instance_id,
            nonce=nonce,
            host=settings.host,
            release=__version__,
            identity_document=settings.identity_document,
            identity_signature=settings.identity_signature,
        )
        self._duty: Duty | None = None
        self._moment: MarketMoment | None = None
        self._told_to_end = asyncio.Event()

    def contacted(self, moment: MarketMoment | None) -> None:
        """Note that the control plane answered, with market time where it said it."""
        self._moment = moment or self._moment
        if self._duty is not None:
            self._duty.contacted(moment)

    def end(self) -> None:
        """Have the program save within its grace, and end: somebody stops this instance."""
        self._told_to_end.set()
        if self._duty is not None:
            self._duty.leave()

    async def run(self, control: AgentControl) -> int:
        """Join and serve; the exit code: 0 not needed any more, else as docs/agent.md says."""
        settings = self._settings
        try:
            enrolled = await self._join(control)
        except (NotJoined, ContractError) as error:
            _log.error("not_joined", error=str(error))
            return NOT_JOINED
        if enrolled is None:
            return DONE
        # An instance of a cloud learns its job only now.
        structlog.contextvars.bind_contextvars(job_id=enrolled.task.job_id)
        _log.info("joined", host=settings.host, lease_s=enrolled.lease_s)
        self._duty = Duty(
            settings,
            control,
            self._joining,
            enrolled,
            clock=self._clock,
            uniform=self._uniform,
        )
        self._duty.contacted(self._moment)
        if self._told_to_end.is_set():
            self._duty.leave()
        return await self._duty.serve()

    async def _join(self, control: AgentControl) -> Enrolled | None:
        """Join; None if it is told to end before it has joined."""
        joined: list[Enrolled] = []
        refusal: BaseException | None = None

        async def joining() -> None:
            limit_s = self._join_limit_s
            joined.append(
                await join(control, self._joining, self._clock, self._uniform, limit_s=limit_s)
            )

        try:
            async with asyncio.TaskGroup() as tasks:
                trying = tasks.create_task(joining(), name="join")
                told = tasks.create_task(self._told_to_end.wait(), name="told-to-end")
                await asyncio.wait({trying, told}, return_when=asyncio.FIRST_COMPLETED)
                trying.cancel()
                told.cancel()
        except* (NotJoined, ContractError) as group:
            # Raised here, it would be in a group of its own before Python 3.11.4.
            refusal = group.exceptions[0]
        if refusal is not None:
            raise refusal
        if not joined:
            return None
        self._check_job(joined[0])
        return joined[0]

    def _check_job(self, enrolled: Enrolled) -> None:
        if self._settings.job_id not in ("", enrolled.task.job_id):
            raise NotJoined(
                f"SPOTLINE_JOB_ID is {self._settings.job_id!r}, and the token is for "
                f"{enrolled.task.job_id!r}"
            )
