"""Trading the instance's token for a session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from spotline.adapters.grpc.agent.client import AgentCallFailed
from spotline.adapters.grpc.agent.messages import Enrolled
from spotline.agent.ports import AgentClock, AgentControl
from spotline.agent.timing import RetryPauses
from spotline.contracts.errors import SpotlineError

JOIN_LIMIT_S = 300.0

_log = structlog.get_logger()


class NotJoined(SpotlineError):
    """The control plane refused the token, or was not reached in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """What an agent says when it joins; the nonce is its own secret, >= 32 characters."""

    join_token: str = field(repr=False)
    instance_id: str
    nonce: str
    host: str
    release: str
    identity_document: str = field(default="", repr=False)
    identity_signature: str = field(default="", repr=False)

    async def ask(self, control: AgentControl) -> Enrolled:
        """Join once."""
        return await control.join(
            join_token=self.join_token,
            instance_id=self.instance_id,
            nonce=self.nonce,
            host=self.host,
            release=self.release,
            identity_document=self.identity_document,
            identity_signature=self.identity_signature,
        )


async def join(
    control: AgentControl,
    joining: Joining,
    clock: AgentClock,
    uniform: Callable[[], float],
    *,
    limit_s: float = JOIN_LIMIT_S,
) -> Enrolled:
    """Join, and try again for `limit_s` seconds while there is no answer.

    Raises
    ------
    NotJoined
        It was refused, or the time is over.
    """
    begun_s = clock.elapsed_s()
    pauses = RetryPauses(uniform)
    while True:
        try:
            return await joining.ask(control)
        except AgentCallFailed as error:
            if error.refused or error.unknown_caller:
                raise NotJoined(f"the control plane refused to let it join: {error}") from error
            tried_s = clock.elapsed_s() - begun_s
            pause_s = pauses.next_s()
            if tried_s + pause_s > limit_s:
                raise NotJoined(f"could not join within {limit_s:.0f} s: {error}") from error
            _log.warning("join_failed", error=str(error), tried_s=round(tried_s, 1))
            await clock.sleep(pause_s)
