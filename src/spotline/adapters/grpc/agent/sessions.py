"""Who calls: the session in a call's metadata, and how a token is traded for one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import grpc

from spotline.adapters.agents.enrolment import JoinToken, read_token
from spotline.adapters.agents.identity_documents import IdentityDocuments, SignedDocument
from spotline.adapters.grpc.kit.errors import RpcRefused, ServerContext
from spotline.adapters.identity.instances import (
    Identity,
    InstanceSessions,
    JoinedStanding,
    sha256_of,
)
from spotline.adapters.identity.signing import ForgedStatement, Signer
from spotline.adapters.identity.wall_clock import Now, utc_now
from spotline.application.allocator.agent_messages import JoinAsked
from spotline.application.allocator.gang import Gang, Gangs, JoinedAgent
from spotline.application.allocator.gang_facts import DEFAULT_SESSION_S
from spotline.contracts.errors import Unauthenticated
from spotline.contracts.reasons import Reason
from spotline.runtime.callers import answer_for

METADATA_KEY = "authorization"
_BEARER = "bearer "
_LONGEST_SESSION = 4_000
# An instance joins within a day of its launch: images are pulled.
_DOCUMENT_LASTS_S = 86_400.0
# A cloud's clock may be ahead of ours.
_AHEAD_S = 3_600.0
# What was launched just now is told to us a little later than to itself.
_TOLD_WITHIN_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GangMember:
    """An agent that has joined, and the gang of its job.

    Its session ends after `left_s`, or when the gang's generation is another than `generation`.
    """

    instance_id: str
    gang: Gang
    generation: int
    left_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsTaken:
    """How identity documents are taken: `age_s` gives wall seconds since a moment of market time."""

    documents: IdentityDocuments
    age_s: Callable[[int], float]


class Sessions:
    """Checks tokens, documents and sessions; what is used up is in the log.

    Parameters
    ----------
    gangs
        Gives the gangs of this allocator as its log has them now.
    lasts_s
        How long a session is good, seconds of wall time.
    taken
        By what identity documents of instances are believed; None: none is.
    """

    def __init__(
        self,
        signer: Signer,
        gangs: Callable[[], Gangs],
        *,
        lasts_s: float = DEFAULT_SESSION_S,
        now: Now = utc_now,
        taken: DocumentsTaken | None = None,
    ) -> None:
        self._taken = taken
        self._signer = signer
        self._gangs = gangs
        self._now = now
        self.tokens = InstanceSessions(signer, self._standing, lasts_s=lasts_s, now=now)

    def _standing(self, identity: Identity) -> JoinedStanding | None:
        gang = self._gangs().get(identity.job_id)
        joined = None if gang is None else gang.joined.get(identity.instance_id)
        if gang is None or joined is None:
            return None
        return JoinedStanding(nonce_sha256=joined.nonce_sha256, generation=gang.generation)

    def token_of(self, asked: JoinAsked) -> JoinToken:
        """What is shown to join, in time or not.

        Raises
        ------
        RpcRefused
            PERMISSION_DENIED: it is not one of ours, or is another instance's. UNAVAILABLE: the
            instance was launched so lately that its job may be told still.
        """
        if asked.identity_document:
            return self._of_document(asked)
        try:
            token = read_token(self._signer, asked.join_token)
        except ForgedStatement as error:
            known = self._joined_with(asked)
            if known is None:
                raise _denied("join_token", f"join_token is refused: {error}") from error
            return known
        if token.identity.instance_id != asked.instance_id:
            raise _denied("instance_id", "join_token is refused: it was made for another instance")
        return token

    def _of_document(self, asked: JoinAsked) -> JoinToken:
        """A document counts as a token that was made when its instance was launched."""
        if self._taken is None:
            raise _doubted("this server takes none: clouds.aws.identity_certificates is not set")
        try:
            said = self._taken.documents.read(asked.identity_document, asked.identity_signature)
        except ForgedStatement as error:
            raise _doubted(str(error)) from error
        if said.instance_id != asked.instance_id:
            raise _doubted("it is of another instance")
        age_s = self._taken.age_s(said.pending_ns)
        if age_s < -_AHEAD_S:
            raise _doubted("its instance is launched in time to come")
        expires_s = int(self._now().timestamp() + _DOCUMENT_LASTS_S - age_s)
        identity = Identity(instance_id=said.instance_id, job_id=self._holder_of(said, age_s))
        return JoinToken(identity=identity, expires_s=expires_s)

    def _holder_of(self, said: SignedDocument, age_s: float) -> str:
        """The job whose instance it is, or was when its agent joined."""
        for job_id, gang in self._gangs().by_job.items():
            if said.instance_id in gang.joined or said.instance_id in gang.held:
                return job_id
        if age_s < _TOLD_WITHIN_S:
            raise RpcRefused(
                grpc.StatusCode.UNAVAILABLE,
                f"no job is known to hold instance {said.instance_id} so far; try again",
                reason=Reason.NOT_HELD_YET,
                field="identity_document",
            )
        raise _doubted("no job holds its instance")

    def _joined_with(self, asked: JoinAsked) -> JoinToken | None:
        """The token that this very agent has joined with, though its key was rotated since.

        The log has the digests of both: of the token, and of the nonce that only the agent knows.
        """
        for job_id, gang in self._gangs().by_job.items():
            joined = gang.joined.get(asked.instance_id)
            if (
                joined is not None
                and joined.token_sha256 == sha256_of(asked.join_token)
                and joined.nonce_sha256 == sha256_of(asked.nonce)
            ):
                identity = Identity(instance_id=asked.instance_id, job_id=job_id)
                return JoinToken(identity=identity, expires_s=0)
        return None

    def refuse_expired(self, token: JoinToken) -> None:
        """Refuse a token of a day ago, with which no agent has joined; `RpcRefused` as before."""
        if token.expires_s <= self._now().timestamp():
            raise _denied("join_token", "what it joins with is refused: it has expired")

    @staticmethod
    def refuse_another(asked: JoinAsked, before: JoinedAgent) -> None:
        """Refuse a caller that is not the agent which joined; `RpcRefused`: PERMISSION_DENIED."""
        if before.nonce_sha256 != sha256_of(asked.nonce):
            raise RpcRefused(
                grpc.StatusCode.PERMISSION_DENIED,
                f"{asked.shown_as} is used up: an agent of instance {asked.instance_id} has joined "
                "with another nonce; if that was not yours, end the instance",
                reason=Reason.TOKEN_USED,
                field=asked.shown_as,
            )

    @staticmethod
    def refuse_late(asked: JoinAsked, lease_s: float) -> None:
        """Refuse an agent that was away for its lease, in which it had to end; `RpcRefused`."""
        raise _denied(
            asked.shown_as,
            f"{asked.shown_as} is refused: nothing was heard of instance {asked.instance_id} for its lease "
            f"of {lease_s:g} s; end the instance",
        )

    def open(self, identity: Identity, nonce: str) -> str:
        """A session, from now, of an agent that has joined, for its gang's present generation."""
        gang = self._gangs().get(identity.job_id)
        generation = 0 if gang is None else gang.generation
        standing = JoinedStanding(nonce_sha256=sha256_of(nonce), generation=generation)
        return self.tokens.open(identity, standing)

    def caller(self, context: ServerContext) -> GangMember:
        """Who calls.

        Raises
        ------
        RpcRefused
            UNAUTHENTICATED: there is no session, or none that was opened here and is in time.
        """
        try:
            session = _said(context)
            caller = self.tokens.caller(session)
        except Unauthenticated as error:
            raise _unknown(str(error)) from error
        answer_for(caller)
        gang = self._gangs().get(caller.job_id)
        if gang is None:
            raise _unknown("the session is refused: no such agent has joined")
        left_s = self.tokens.seconds_left(session)
        return GangMember(
            instance_id=caller.subject, gang=gang, generation=caller.generation, left_s=left_s
        )


def _said(context: ServerContext) -> str:
    for key, value in context.invocation_metadata() or ():
        if key == METADATA_KEY and isinstance(value, str):
            if not value.lower().startswith(_BEARER) or len(value) > _LONGEST_SESSION:
                raise Unauthenticated(
                    "the session is refused: authorization must be `Bearer SESSION`"
                )
            return value[len(_BEARER) :].strip()
    raise Unauthenticated("the session is refused: authorization metadata is missing")


def _denied(field: str, message: str) -> RpcRefused:
    return RpcRefused(
        grpc.StatusCode.PERMISSION_DENIED, message, reason=Reason.TOKEN_REFUSED, field=field
    )


def _doubted(why: str) -> RpcRefused:
    return RpcRefused(
        grpc.StatusCode.PERMISSION_DENIED,
        f"identity_document is refused: {why}",
        reason=Reason.DOCUMENT_REFUSED,
        field="identity_document",
    )


def _unknown(message: str) -> RpcRefused:
    return RpcRefused(
        grpc.StatusCode.UNAUTHENTICATED,
        f"{message}; join with the instance's token",
        reason=Reason.SESSION_REFUSED,
        field=METADATA_KEY,
    )
