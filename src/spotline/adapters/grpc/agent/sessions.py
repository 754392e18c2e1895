"""Who calls: the session in a call's metadata, and how a token is traded for one."""

from __future__ import annotations

from dataclasses import dataclass

import grpc

from spotline.adapters.agents.enrolment import (
    Identity,
    open_session,
    read_session,
    read_token,
    sha256_of,
)
from spotline.adapters.grpc.kit.errors import RpcRefused, ServerContext
from spotline.adapters.identity.signing import ForgedStatement, Signer
from spotline.adapters.identity.wall_clock import Now, utc_now
from spotline.application.allocator.agent_messages import JoinAsked
from spotline.application.allocator.gang import Gang, Gangs, JoinedAgent
from spotline.contracts.reasons import Reason

METADATA_KEY = "authorization"
_BEARER = "bearer "
_LONGEST_SESSION = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GangMember:
    """An agent that has joined, and the gang of its job."""

    instance_id: str
    gang: Gang


class Sessions:
    """Checks tokens and sessions; what is used up is in the log."""

    def __init__(self, signer: Signer, *, now: Now = utc_now) -> None:
        self._signer = signer
        self._now = now

    def identity_of(self, asked: JoinAsked) -> Identity:
        """Whose token this is.

        Raises
        ------
        RpcRefused
            PERMISSION_DENIED: it is not one of ours, has expired, or is another instance's.
        """
        try:
            identity = read_token(self._signer, asked.join_token, now=self._now)
        except ForgedStatement as error:
            raise _denied("join_token", f"join_token is refused: {error}") from error
        if identity.instance_id != asked.instance_id:
            raise _denied("instance_id", "join_token is refused: it was made for another instance")
        return identity

    @staticmethod
    def refuse_another(asked: JoinAsked, before: JoinedAgent) -> None:
        """Refuse a caller that is not the agent which joined; `RpcRefused`: PERMISSION_DENIED."""
        if before.nonce_sha256 != sha256_of(asked.nonce):
            raise RpcRefused(
                grpc.StatusCode.PERMISSION_DENIED,
                f"join_token is used up: an agent of instance {asked.instance_id} has joined with "
                "another nonce; if that was not yours, end the instance",
                reason=Reason.TOKEN_USED,
                field="join_token",
            )

    def open(self, identity: Identity, nonce: str) -> str:
        """The session of an agent that has joined."""
        return open_session(self._signer, identity, nonce)

    def caller(self, context: ServerContext, gangs: Gangs) -> GangMember:
        """Who calls.

        Raises
        ------
        RpcRefused
            UNAUTHENTICATED: there is no session, or none that was opened here.
        """
        try:
            identity, nonce_sha256 = read_session(self._signer, _said(context))
        except ForgedStatement as error:
            raise _unknown(f"the session is refused: {error}") from error
        gang = gangs.get(identity.job_id)
        joined = None if gang is None else gang.joined.get(identity.instance_id)
        if gang is None or joined is None or joined.nonce_sha256 != nonce_sha256:
            raise _unknown("the session is refused: no such agent has joined")
        return GangMember(instance_id=identity.instance_id, gang=gang)


def _said(context: ServerContext) -> str:
    for key, value in context.invocation_metadata() or ():
        if key == METADATA_KEY and isinstance(value, str):
            if not value.lower().startswith(_BEARER) or len(value) > _LONGEST_SESSION:
                raise ForgedStatement("authorization must be `Bearer SESSION`")
            return value[len(_BEARER) :].strip()
    raise ForgedStatement("authorization metadata is missing")


def _denied(field: str, message: str) -> RpcRefused:
    return RpcRefused(
        grpc.StatusCode.PERMISSION_DENIED, message, reason=Reason.TOKEN_REFUSED, field=field
    )


def _unknown(message: str) -> RpcRefused:
    return RpcRefused(
        grpc.StatusCode.UNAUTHENTICATED,
        f"{message}; join with the instance's token",
        reason=Reason.SESSION_REFUSED,
        field=METADATA_KEY,
    )
