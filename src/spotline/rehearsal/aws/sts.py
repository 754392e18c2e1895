"""STS: who a caller is, and roles that it may take on.

A session's secret and expiry are computed from its token, so sessions outlive the process that gave
them, as AWS's do. They end by wall time: an SDK renews them by its own clock.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spotline.rehearsal.aws.service import AwsCall, AwsError
from spotline.rehearsal.aws.wire.protocols import unknown_action
from spotline.rehearsal.aws.wire.signing import Credentials

_ROLE_ARN = re.compile(r"arn:aws:iam::(?P<account>\d{12}):role/(?P<name>[\w+=,.@/-]+)")
# AssumeRole: "The value specified can range from 900 seconds up to the maximum session duration set
# for the role"; the default of both is an hour.
_LEAST_S, _DEFAULT_S = 900, 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedRole:
    """A role that may be assumed.

    Parameters
    ----------
    external_id
        What has to be said with it; empty: nothing.
    trusted_account_ids
        Whose callers may assume it; empty: all.
    most_s
        How long a session may last.
    """

    arn: str
    external_id: str = field(default="", repr=False)
    trusted_account_ids: tuple[str, ...] = ()
    most_s: int = _DEFAULT_S

    def __post_init__(self) -> None:
        if not _ROLE_ARN.fullmatch(self.arn):
            raise ValueError(
                f"arn must be like arn:aws:iam::123456789012:role/NAME, was {self.arn!r}"
            )


class RehearsedKeys:
    """The access keys and sessions that the rehearsal knows.

    Parameters
    ----------
    secret
        What sessions are proved with; the same after a restart.
    """

    def __init__(self, owners: Iterable[Credentials], *, secret: bytes) -> None:
        self._owners = {owner.access_key: owner for owner in owners}
        self._secret = secret
        self._seen: dict[str, Credentials] = {}

    def find(self, access_key: str, session_token: str) -> Credentials | None:
        """The credentials of a key; None: there is no such key, or the token is not its own."""
        if not session_token:
            return self._owners.get(access_key)
        payload, _, proof = session_token.partition(".")
        if not hmac.compare_digest(self._digest(payload), proof):
            return None
        said = json.loads(base64.urlsafe_b64decode(payload))
        session = self._session(said, payload)
        if session.access_key != access_key:
            return None
        self._seen[access_key] = session
        return session

    def owner(self, access_key: str) -> Credentials:
        """Whose a key is that has been found before.

        Raises
        ------
        KeyError
            It never was.
        """
        return self._owners.get(access_key) or self._seen[access_key]

    def begin_session(
        self, role: RehearsedRole, name: str, expires_wall_ns: int, nonce: str
    ) -> Credentials:
        """Credentials of a session of a role."""
        said = {"arn": role.arn, "name": name, "expires_wall_ns": expires_wall_ns, "nonce": nonce}
        payload = base64.urlsafe_b64encode(json.dumps(said, sort_keys=True).encode()).decode(
            "ascii"
        )
        return self._session(said, payload)

    def _session(self, said: Mapping[str, Any], payload: str) -> Credentials:
        account, role_name = _parts(said["arn"])
        key_id = self._letters("key", payload)
        return Credentials(
            access_key=f"ASIA{key_id}",
            secret_key=self._digest(f"secret {payload}")[:40],
            account_id=account,
            arn=f"arn:aws:sts::{account}:assumed-role/{role_name}/{said['name']}",
            user_id=f"{role_id(said['arn'])}:{said['name']}",
            session_token=f"{payload}.{self._digest(payload)}",
            expires_wall_ns=said["expires_wall_ns"],
        )

    def _digest(self, text: str) -> str:
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()

    def _letters(self, purpose: str, payload: str) -> str:
        raw = hmac.new(self._secret, f"{purpose} {payload}".encode(), hashlib.sha256).digest()
        return base64.b32encode(raw).decode("ascii")[:16]


def role_id(arn: str) -> str:
    """The id of a role, as IAM gives one; of its ARN."""
    return "AROA" + base64.b32encode(hashlib.sha256(arn.encode()).digest()).decode("ascii")[:17]


def _parts(arn: str) -> tuple[str, str]:
    found = _ROLE_ARN.fullmatch(arn)
    if found is None:
        raise ValueError(f"arn must be a role's, was {arn!r}")
    return found["account"], found["name"].rpartition("/")[2]


class Sts:
    """The service.

    Parameters
    ----------
    wall_ns
        Wall time.
    """

    name = "sts"

    def __init__(
        self,
        keys: RehearsedKeys,
        roles: Iterable[RehearsedRole],
        *,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._keys = keys
        self._roles = {role.arn: role for role in roles}
        self._wall_ns = wall_ns

    async def answer(self, call: AwsCall) -> Mapping[str, Any]:
        """Answer a call of STS."""
        if call.operation == "GetCallerIdentity":
            return self._who(call)
        if call.operation == "AssumeRole":
            return self._assume(call)
        raise unknown_action(call.operation, "2011-06-15")

    def _who(self, call: AwsCall) -> Mapping[str, Any]:
        caller = self._keys.owner(call.access_key)
        return {"UserId": caller.user_id, "Account": caller.account_id, "Arn": caller.arn}

    def _assume(self, call: AwsCall) -> Mapping[str, Any]:
        wanted = call.params["RoleArn"]
        role = self._roles.get(wanted)
        allowed = (
            role is not None
            and (not role.trusted_account_ids or call.account_id in role.trusted_account_ids)
            and hmac.compare_digest(role.external_id, call.params.get("ExternalId", ""))
        )
        if role is None or not allowed:
            # AWS tells nobody which of these it was.
            raise AwsError(
                "AccessDenied",
                f"User: {self._keys.owner(call.access_key).arn} is not authorized to perform: sts:AssumeRole on "
                f"resource: {wanted}",
                status=403,
            )
        lasting_s = call.params.get("DurationSeconds", min(_DEFAULT_S, role.most_s))
        if not _LEAST_S <= lasting_s <= role.most_s:
            raise AwsError(
                "ValidationError",
                "The requested DurationSeconds exceeds the MaxSessionDuration set for this role "
                f"({_LEAST_S} to {role.most_s} s), was {lasting_s}",
            )
        ends_ns = self._wall_ns() // 10**9 * 10**9 + lasting_s * 10**9
        name = call.params["RoleSessionName"]
        session = self._keys.begin_session(role, name, ends_ns, call.request_id)
        return {
            "Credentials": {
                "AccessKeyId": session.access_key,
                "SecretAccessKey": session.secret_key,
                "SessionToken": session.session_token,
                "Expiration": datetime.datetime.fromtimestamp(ends_ns // 10**9, tz=datetime.UTC),
            },
            "AssumedRoleUser": {"AssumedRoleId": session.user_id, "Arn": session.arn},
        }
