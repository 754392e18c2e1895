"""An issuer of JWTs with keys of its own, and a clock that a test moves."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from spotline.adapters.identity.issuers import Issuer
from spotline.application.identity.grants import RoleGrant
from spotline.contracts.access import Role
from spotline.contracts.errors import ProviderUnavailable

NOW = datetime(2026, 3, 1, tzinfo=UTC)
ISSUER, AUDIENCE = "https://login.example.com/", "spotline"
_OF_KIND = {
    "ES256": ("EC", lambda: ec.generate_private_key(ec.SECP256R1()), jwt.algorithms.ECAlgorithm),
    "RS256": ("RSA", lambda: rsa.generate_private_key(65537, 2048), jwt.algorithms.RSAAlgorithm),
    "EdDSA": ("OKP", ed25519.Ed25519PrivateKey.generate, jwt.algorithms.OKPAlgorithm),
}
_OF_KIND["PS256"] = _OF_KIND["RS256"]


class MovedClock:
    """The wall clock as a test sets it."""

    def __init__(self) -> None:
        self.moment = NOW

    def __call__(self) -> datetime:
        return self.moment

    def pass_s(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


class TokenIssuer:
    """Signs what it is told to; its keys are fetched as `fetch`, which counts."""

    def __init__(self, *algorithms: str) -> None:
        self.keys = {}
        self.fetches = 0
        self.reached = True
        for algorithm in algorithms or ("ES256",):
            self.draw(f"key-{algorithm}", algorithm)

    def draw(self, key_id: str, algorithm: str = "ES256") -> None:
        _, make, _ = _OF_KIND[algorithm]
        self.keys[key_id] = (algorithm, make())

    def jwk(self, key_id: str) -> dict:
        algorithm, key = self.keys[key_id]
        made = json.loads(_OF_KIND[algorithm][2].to_jwk(key.public_key()))
        return {**made, "kid": key_id, "use": "sig"}

    def jwks(self) -> bytes:
        return json.dumps({"keys": [self.jwk(key_id) for key_id in self.keys]}).encode()

    def fetch(self, _: Issuer) -> bytes:
        self.fetches += 1
        if not self.reached:
            raise ProviderUnavailable("no route")
        return self.jwks()

    def sign(self, key_id: str = "key-ES256", *, header=None, **claims) -> str:
        algorithm, key = self.keys[key_id]
        said = {**claims_of(), **claims}
        return jwt.encode(
            {name: value for name, value in said.items() if value is not None},
            key,
            algorithm=algorithm,
            headers={"kid": key_id, **(header or {})},
        )


def claims_of(**changes) -> dict:
    return {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ann",
        "groups": ["research"],
        "iat": int(NOW.timestamp()),
        "exp": int(NOW.timestamp()) + 3600,
        **changes,
    }


def trusted(**changes) -> Issuer:
    stated = {
        "issuer": ISSUER,
        "audience": AUDIENCE,
        "algorithms": ("ES256", "RS256", "PS256", "EdDSA"),
        "groups": {
            "sre": RoleGrant(role=Role.OPERATOR),
            "research": RoleGrant(role=Role.OWNER, tenant="research"),
        },
        "keys_url": "https://login.example.com/keys",
        **changes,
    }
    return Issuer(**stated)
