"""The public keys of an issuer (JWKS, RFC 7517): fetched off the loop, kept, fetched again."""

from __future__ import annotations

import asyncio
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any

import jwt
import structlog

from spotline.adapters.identity.issuers import Issuer
from spotline.adapters.identity.wall_clock import Now, utc_now
from spotline.contracts.errors import ConfigError, ProviderUnavailable, Unauthenticated

_MOST_BYTES = 1 << 20
_TIMEOUT_S = 10.0
# RSA keys below are broken; JWA asks for as many (RFC 7518 3.3).
_LEAST_RSA_BITS = 2048

_log = structlog.get_logger()

Fetch = Callable[[Issuer], bytes]


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Keys are at the address that was stated, and nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        return None


def fetch_keys(issuer: Issuer) -> bytes:
    """Fetch the keys of an issuer. Blocks, for ten seconds at most.

    Raises
    ------
    ProviderUnavailable
        They cannot be had now.
    """
    try:
        if issuer.keys_file is not None:
            return _bounded(issuer.keys_file.read_bytes())
        ca = None if issuer.keys_ca is None else str(issuer.keys_ca)
        context = ssl.create_default_context(cafile=ca)
        opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=context), _NoRedirects
        )
        with opener.open(issuer.keys_url, timeout=_TIMEOUT_S) as answer:
            return _bounded(answer.read(_MOST_BYTES + 1))
    except (OSError, HTTPException, ValueError) as error:
        raise ProviderUnavailable(f"the keys of {issuer.issuer} cannot be had: {error}") from error


def _bounded(content: bytes) -> bytes:
    if len(content) > _MOST_BYTES:
        raise ValueError(f"expected at most {_MOST_BYTES} bytes of keys, found more")
    return content


class IssuerKeys:
    """The keys of one issuer.

    Keys that are older than `refresh_s` are fetched again, and so they are for an id that is not
    known, but never within `refetch_s` of the last try: whoever makes up ids makes us fetch no more
    often. A fetch that fails keeps what is known.
    """

    def __init__(self, issuer: Issuer, *, fetch: Fetch = fetch_keys, now: Now = utc_now) -> None:
        self._issuer = issuer
        self._fetch = fetch
        self._now = now
        self._keys: Mapping[str, Mapping[str, Any]] = {}
        self._tried_s = float("-inf")
        self._fetched_s = float("-inf")
        self._turn = asyncio.Lock()
        self.version = 0

    async def key(self, key_id: str, algorithm: str) -> jwt.PyJWK:
        """The key that may check a signature; without an id the only key there is.

        Raises
        ------
        Unauthenticated
            There is none of that id, or it is for something else, or keys cannot be had now.
        """
        if self._due(key_id):
            async with self._turn:
                # Another call may have fetched while this one waited for its turn.
                if self._due(key_id):
                    await self._refetch()
        found = self._found(key_id)
        if found is None:
            raise Unauthenticated(
                f"the token is refused: its key id is none of {self._issuer.issuer} that is known here"
            )
        return _usable(found, algorithm)

    def _found(self, key_id: str) -> Mapping[str, Any] | None:
        if key_id:
            return self._keys.get(key_id)
        return next(iter(self._keys.values())) if len(self._keys) == 1 else None

    def _due(self, key_id: str) -> bool:
        now_s = self._now().timestamp()
        if now_s - self._tried_s < self._issuer.refetch_s:
            return False
        return now_s - self._fetched_s >= self._issuer.refresh_s or self._found(key_id) is None

    async def _refetch(self) -> None:
        self._tried_s = self._now().timestamp()
        try:
            keys = keys_in(await asyncio.to_thread(self._fetch, self._issuer))
        except (ProviderUnavailable, ConfigError) as error:
            _log.warning("issuer_keys_not_fetched", issuer=self._issuer.issuer, error=str(error))
            return
        self._fetched_s = self._now().timestamp()
        if keys != self._keys:
            self._keys = keys
            self.version += 1


def read_keys_file(path: Path) -> Mapping[str, Mapping[str, Any]]:
    """The keys in a file; `ConfigError` where it holds none that can be used."""
    try:
        return keys_in(_bounded(path.read_bytes()))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: expected a JWKS, found: {error}") from error


def keys_in(content: bytes) -> Mapping[str, Mapping[str, Any]]:
    """The public keys for signatures in a JWKS, by id; others are left out.

    Raises
    ------
    ConfigError
        It is no JWKS, or holds no such key.
    """
    try:
        said = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"expected a JWKS, found no JSON: {error}") from error
    listed = said.get("keys") if isinstance(said, dict) else None
    if not isinstance(listed, list):
        raise ConfigError("expected a JWKS: an object with a list of keys, found another one")
    keys: dict[str, Mapping[str, Any]] = {}
    for key in listed:
        if not isinstance(key, dict) or key.get("kty") not in ("RSA", "EC", "OKP"):
            continue  # a symmetric key has no place in public, and signs nothing here
        if key.get("use", "sig") == "sig" and isinstance(key.get("kid", ""), str):
            keys.setdefault(key.get("kid", ""), key)
    if not keys:
        raise ConfigError("expected a JWKS with a public key for signatures, found none")
    return keys


def _usable(key: Mapping[str, Any], algorithm: str) -> jwt.PyJWK:
    """A key as PyJWT takes it, bound to one algorithm."""
    if key.get("alg", algorithm) != algorithm:
        raise Unauthenticated(
            f"the token is refused: its key is for {key['alg']!s:.20}, it says {algorithm}"
        )
    try:
        made = jwt.PyJWK(dict(key), algorithm=algorithm)
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        raise Unauthenticated(f"the token is refused: its key cannot check {algorithm}") from error
    if getattr(made.key, "key_size", _LEAST_RSA_BITS) < _LEAST_RSA_BITS and key["kty"] == "RSA":
        raise Unauthenticated(f"the token is refused: its key has under {_LEAST_RSA_BITS} bits")
    return made
