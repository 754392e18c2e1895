"""How an instance gets to speak for itself: a token in its user data, traded for a session."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from spotline.adapters.agents.keys import AgentKeys
from spotline.adapters.identity.signing import ForgedStatement, Signer
from spotline.adapters.identity.wall_clock import Now, utc_now

_TOKEN = "join"  # noqa: S105 - what a statement is for
_SESSION = "session"
# From the order of an instance until its agent joins: images are pulled, queues are waited in.
_TOKEN_LASTS = timedelta(hours=24)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One instance of one job."""

    instance_id: str
    job_id: str


class SignedEnrolment:
    """The port `Enrolment`: signed tokens, each for one instance of one job.

    Parameters
    ----------
    advertise
        `HOST:PORT` under which instances reach the port of agents.
    """

    def __init__(self, keys: AgentKeys, *, advertise: str, now: Now = utc_now) -> None:
        self._keys = keys
        self._advertise = advertise
        self._now = now

    def user_data(self, *, instance_id: str, job_id: str, tenant: str) -> Mapping[str, str]:
        """Make the variables of the agent's environment; the token can be used once, in a day."""
        expires = self._now() + _TOKEN_LASTS
        token = self._keys.signer.sign(
            _TOKEN,
            {
                "instance": instance_id,
                "job": job_id,
                "tenant": tenant,
                "expires_s": int(expires.timestamp()),
            },
        )
        return {
            "SPOTLINE_CONTROL": self._advertise,
            "SPOTLINE_CONTROL_CA": self._keys.ca_pem,
            "SPOTLINE_INSTANCE_ID": instance_id,
            "SPOTLINE_JOB_ID": job_id,
            "SPOTLINE_JOIN_TOKEN": token,
        }


def read_token(signer: Signer, token: str, *, now: Now = utc_now) -> Identity:
    """Whose a token is.

    Raises
    ------
    ForgedStatement
        It is not one of ours, or has expired; says which.
    """
    said = signer.read(_TOKEN, token)
    if int(said.get("expires_s", 0)) <= now().timestamp():
        raise ForgedStatement("it has expired")
    return Identity(instance_id=str(said["instance"]), job_id=str(said["job"]))


def open_session(signer: Signer, identity: Identity, nonce: str) -> str:
    """The session of an agent: the same for the same nonce, and good until its job is over."""
    return signer.sign(
        _SESSION,
        {
            "instance": identity.instance_id,
            "job": identity.job_id,
            "nonce_sha256": sha256_of(nonce),
        },
    )


def read_session(signer: Signer, session: str) -> tuple[Identity, str]:
    """Whose a session is, and the digest of the nonce that it was opened with.

    Raises
    ------
    ForgedStatement
        It is not one of ours.
    """
    said = signer.read(_SESSION, session)
    identity = Identity(instance_id=str(said["instance"]), job_id=str(said["job"]))
    return identity, str(said["nonce_sha256"])


def sha256_of(text: str) -> str:
    """SHA-256 of a text, hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()
