"""Tokens that others sign: JWTs (RFC 7519) of configured issuers, checked by PyJWT."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jwt

from spotline.adapters.identity.issuer_keys import Fetch, IssuerKeys, fetch_keys, read_keys_file
from spotline.adapters.identity.issuers import Issuer, read_issuers
from spotline.adapters.identity.wall_clock import Now, utc_now
from spotline.application.identity.credentials import ProvedCaller
from spotline.application.identity.grants import RoleGrant
from spotline.contracts.access import Caller
from spotline.contracts.errors import Unauthenticated
from spotline.contracts.limits import name_problem

# Three parts in base64url; the first begins with `{"`.
_FORM = re.compile(r"eyJ[\w-]*\.[\w-]+\.[\w-]*", re.ASCII)
# However long a token lasts, its groups are looked at again, and a key that is withdrawn ends it.
_REMEMBERED_S = 300.0
_SHOWN = 80


class JwtTokens:
    """A `TokenReader` of the JWTs of some issuers."""

    def __init__(
        self, issuers: Sequence[Issuer], *, fetch: Fetch = fetch_keys, now: Now = utc_now
    ) -> None:
        self._now = now
        self._issuers = tuple(issuers)
        self._keys = {
            (issuer.issuer, issuer.audience): IssuerKeys(issuer, fetch=fetch, now=now)
            for issuer in self._issuers
        }

    @classmethod
    def of_file(cls, path: Path, *, now: Now = utc_now) -> JwtTokens:
        """Tokens of the issuers in a file (`identity.yaml`).

        Raises
        ------
        BadFile
            The file is not as expected: names each field.
        ConfigError
            A file of keys that it names cannot be used.
        """
        issuers = read_issuers(path)
        for issuer in issuers:
            if issuer.keys_file is not None:
                read_keys_file(issuer.keys_file)
        return cls(issuers, now=now)

    def recognises(self, token: str) -> bool:
        """Whether a token has the form of a JWT."""
        return _FORM.fullmatch(token) is not None

    def state(self) -> object:
        """Another one whenever an issuer's keys changed."""
        return tuple(keys.version for keys in self._keys.values())

    async def read(self, token: str) -> ProvedCaller:
        """Whom a JWT proves.

        Raises
        ------
        Unauthenticated
            It was not signed by an issuer of ours, or not so, or for another audience, or is not in
            time, or none of its groups is known here.
        """
        header, claimed = _unchecked(token)
        issuer = self._issuer_of(claimed)
        algorithm = header.get("alg")
        if algorithm not in issuer.algorithms:
            raise _refused(
                f"expected the algorithm {' or '.join(issuer.algorithms)}, found {_shown(algorithm)}"
            )
        key_id = header.get("kid", "")
        if not isinstance(key_id, str):
            raise _refused("its key id is no text")
        key = await self._keys[issuer.issuer, issuer.audience].key(key_id, algorithm)
        claims = _checked(token, key, algorithm, issuer)
        until_s = self._in_time(claims, issuer)
        caller = _caller(claims, issuer)
        now_s = self._now().timestamp()
        return ProvedCaller(caller=caller, good_until_s=min(until_s, now_s + _REMEMBERED_S))

    def _issuer_of(self, claimed: Mapping[str, Any]) -> Issuer:
        """The issuer that the token claims, of several audiences the one it is for."""
        of_it = [issuer for issuer in self._issuers if issuer.issuer == claimed.get("iss")]
        if not of_it:
            raise _refused(f"its issuer {_shown(claimed.get('iss'))} is not configured here")
        said = claimed.get("aud")
        audiences = said if isinstance(said, list) else [said]
        fitting = [issuer for issuer in of_it if issuer.audience in audiences]
        if not fitting:
            wanted = " or ".join(issuer.audience for issuer in of_it)
            raise _refused(f"expected the audience {wanted}, found {_shown(said)}")
        return fitting[0]

    def _in_time(self, claims: Mapping[str, Any], issuer: Issuer) -> float:
        """Until when it is good; seconds since the epoch."""
        now_s, leeway_s = self._now().timestamp(), issuer.leeway_s
        expires_s = _seconds(claims, "exp")
        if expires_s is None:
            raise _refused("it never expires (no exp)")
        if expires_s + leeway_s <= now_s:
            raise _refused("it has expired")
        for claim in ("nbf", "iat"):
            begins_s = _seconds(claims, claim)
            if begins_s is not None and begins_s - leeway_s > now_s:
                raise _refused(f"it is not good yet ({claim})")
        return expires_s + leeway_s


def _unchecked(token: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Header and claims as they are said: only to choose who has to have signed them."""
    try:
        said = jwt.decode_complete(token, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        # Its cause may quote the token.
        raise _refused("it cannot be read") from None
    return said["header"], said["payload"]


def _checked(token: str, key: jwt.PyJWK, algorithm: str, issuer: Issuer) -> Mapping[str, Any]:
    """The claims, once signature, issuer and audience are as they must be."""
    try:
        # Times are judged by our own clock, which is the same for every kind of token.
        return jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            audience=issuer.audience,
            issuer=issuer.issuer,
            options={
                "require": ["iss", "sub", "aud", "exp"],
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
            },
        )
    except jwt.InvalidSignatureError:
        raise _refused("its signature is wrong") from None
    except jwt.MissingRequiredClaimError as error:
        raise _refused(f"it states no {error.claim}") from None
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
        raise _refused(f"it is not as it must be ({type(error).__name__})") from None


def _caller(claims: Mapping[str, Any], issuer: Issuer) -> Caller:
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject or name_problem(subject):
        raise _refused("its sub is no name")
    said = claims.get("jti")
    token_id = said if isinstance(said, str) and not name_problem(said) else ""
    grant = _grant(claims, issuer)
    return Caller(
        subject=subject,
        role=grant.role,
        tenant=grant.tenant,
        credential_id=f"{issuer.issuer} {token_id}".strip(),
    )


def _grant(claims: Mapping[str, Any], issuer: Issuer) -> RoleGrant:
    said = claims.get(issuer.groups_claim, [])
    groups = {said} if isinstance(said, str) else set()
    if isinstance(said, list):
        groups = {group for group in said if isinstance(group, str)}
    for name, grant in issuer.groups.items():
        if name in groups:
            return grant
    raise _refused(
        f"none of its groups is known here (claim {issuer.groups_claim}, {len(groups)} groups)"
    )


def _seconds(claims: Mapping[str, Any], claim: str) -> float | None:
    value = claims.get(claim)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _refused(f"its {claim} is no time")
    return float(value)


def _shown(value: Any) -> str:
    """A claim that anybody may have written, in one short line."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _refused(why: str) -> Unauthenticated:
    return Unauthenticated(f"the token is refused: {why}")
