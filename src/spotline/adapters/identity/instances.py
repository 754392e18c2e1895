"""Sessions of instances: signed, for one instance of one job in one generation, good for minutes.

A session is no secret that lasts. Who has a stolen one reports for that instance's own allocation
until it ends, or until the program is started anew, whichever comes first; only the agent itself,
which knows the nonce that it joined with, gets the next one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from spotline.adapters.identity.signing import ForgedStatement, Signer
from spotline.adapters.identity.wall_clock import Now, utc_now
from spotline.application.identity.credentials import ProvedCaller
from spotline.contracts.access import Caller, Role
from spotline.contracts.errors import Unauthenticated

_PURPOSE = "session"
_EARLIER = "an earlier release opened it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One instance of one job."""

    instance_id: str
    job_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedStanding:
    """What is known of an agent that has joined: its nonce's digest, and the present generation."""

    nonce_sha256: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """What a session says: whose it is, as it stood when it was opened; a generation of -1: unsaid."""

    identity: Identity
    standing: JoinedStanding
    expires_s: int


Joined = Callable[[Identity], JoinedStanding | None]
"""How an instance stands now, None where no agent of it has joined."""


class InstanceSessions:
    """Opens sessions, and is a `TokenReader` of them.

    Parameters
    ----------
    joined
        How an instance stands, asked at every call.
    lasts_s
        How long a session is good, seconds of wall time.
    """

    def __init__(
        self, signer: Signer, joined: Joined, *, lasts_s: float, now: Now = utc_now
    ) -> None:
        self._signer = signer
        self._joined = joined
        self._now = now
        self.lasts_s = lasts_s

    def open(self, identity: Identity, standing: JoinedStanding) -> str:
        """A session that begins now, for an agent as it stands now."""
        return self._signer.sign(
            _PURPOSE,
            {
                "instance": identity.instance_id,
                "job": identity.job_id,
                "nonce_sha256": standing.nonce_sha256,
                "generation": standing.generation,
                "expires_s": int(self._now().timestamp() + self.lasts_s),
            },
        )

    def recognises(self, token: str) -> bool:
        """Whether a token claims to be a session."""
        return token.startswith(f"{_PURPOSE}.")

    def state(self) -> object:
        """Nothing of a session is remembered."""
        return None

    async def read(self, token: str) -> ProvedCaller:
        """Whom a session proves; as `caller`."""
        return ProvedCaller(caller=self.caller(token))

    def caller(self, session: str) -> Caller:
        """The instance that a session is of.

        Raises
        ------
        Unauthenticated
            It was not opened here, has ended, its agent has not joined, or the program was started
            anew since; says which.
        """
        said = self._said(session)
        if said.expires_s <= self._now().timestamp():
            ended = datetime.fromtimestamp(said.expires_s, UTC).isoformat(timespec="seconds")
            raise _refused(f"it ended at {ended}" if said.expires_s else _EARLIER)
        if said.standing.generation < 0:
            raise _refused(_EARLIER)
        identity, standing = said.identity, self._joined(said.identity)
        if standing is None or standing.nonce_sha256 != said.standing.nonce_sha256:
            raise _refused("no such agent has joined")
        if standing.generation != said.standing.generation:
            raise _refused(
                f"it is of generation {said.standing.generation}, and the present one is "
                f"{standing.generation}"
            )
        return Caller(
            subject=identity.instance_id,
            role=Role.INSTANCE,
            credential_id=sha256_of(session)[:12],
            job_id=identity.job_id,
            generation=standing.generation,
        )

    def seconds_left(self, session: str) -> float:
        """Until a session ends; not positive when it has. `Unauthenticated` as `caller`."""
        return self._said(session).expires_s - self._now().timestamp()

    def _said(self, session: str) -> _Said:
        try:
            said = self._signer.read(_PURPOSE, session)
        except ForgedStatement as error:
            raise _refused(str(error)) from error
        identity = Identity(instance_id=str(said["instance"]), job_id=str(said["job"]))
        standing = JoinedStanding(
            nonce_sha256=str(said["nonce_sha256"]), generation=int(said.get("generation", -1))
        )
        return _Said(identity=identity, standing=standing, expires_s=int(said.get("expires_s", 0)))


def sha256_of(text: str) -> str:
    """SHA-256 of a text, hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def _refused(why: str) -> Unauthenticated:
    return Unauthenticated(f"the session is refused: {why}")
