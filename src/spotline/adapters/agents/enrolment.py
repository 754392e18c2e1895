"""How an instance gets to speak for itself: a token in its user data, traded for a session.

Sessions are in `spotline.adapters.identity.instances`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from spotline.adapters.agents.keys import AgentKeys
from spotline.adapters.identity.instances import Identity
from spotline.adapters.identity.signing import Signer
from spotline.adapters.identity.wall_clock import Now, utc_now

_TOKEN = "join"  # noqa: S105 - what a statement is for
# From the order of an instance until its agent joins: images are pulled, queues are waited in.
_TOKEN_LASTS = timedelta(hours=24)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinToken:
    """Whose a join token is, and until when an agent can join with it; seconds since the epoch."""

    identity: Identity
    expires_s: int


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


def read_token(signer: Signer, token: str) -> JoinToken:
    """Whose a token is, in time or not.

    Raises
    ------
    ForgedStatement
        It is not one of ours; says in which way.
    """
    said = signer.read(_TOKEN, token)
    return JoinToken(
        identity=Identity(instance_id=str(said["instance"]), job_id=str(said["job"])),
        expires_s=int(said.get("expires_s", 0)),
    )
