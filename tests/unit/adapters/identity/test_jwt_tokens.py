"""JWTs of configured issuers: what proves a caller, and all that does not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st

from spotline.adapters.identity.jwt_tokens import JwtTokens
from spotline.contracts.access import Caller, Role
from spotline.contracts.errors import Unauthenticated
from tests.fakes.signed_tokens import ISSUER, NOW, MovedClock, TokenIssuer, claims_of, trusted

NOW_S = int(NOW.timestamp())


def tokens_of(issuer, clock=None, **changes):
    return JwtTokens([trusted(**changes)], fetch=issuer.fetch, now=clock or (lambda: NOW))


async def refusal(tokens, token):
    with pytest.raises(Unauthenticated) as caught:
        await tokens.read(token)
    for part in token.split("."):
        assert len(part) < 20 or part not in str(caught.value)
    return str(caught.value)


def base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


@pytest.fixture
def issuer():
    return TokenIssuer()


@pytest.mark.parametrize("algorithm", ["ES256", "RS256", "EdDSA"])
async def test_a_token_of_the_issuer_proves_its_subject_with_the_role_of_its_group(algorithm):
    issuer = TokenIssuer(algorithm)

    proved = await tokens_of(issuer).read(issuer.sign(f"key-{algorithm}", jti="t-1"))

    assert proved.caller == Caller(
        subject="ann", role=Role.OWNER, tenant="research", credential_id=f"{ISSUER} t-1"
    )
    assert proved.good_until_s == NOW_S + 300


async def test_of_several_groups_the_first_of_the_file_counts(issuer):
    tokens = tokens_of(issuer)

    both = await tokens.read(issuer.sign(groups=["research", "sre"]))
    text = await tokens.read(issuer.sign(groups="sre"))

    assert (both.caller.role, both.caller.tenant) == (Role.OPERATOR, "")
    assert text.caller.role is Role.OPERATOR


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"exp": NOW_S - 31}, "it has expired"),
        ({"exp": None}, "it states no exp"),
        ({"exp": "soon"}, "it is not as it must be|its exp is no time"),
        ({"exp": True}, "its exp is no time"),
        ({"nbf": NOW_S + 31}, r"it is not good yet \(nbf\)"),
        ({"iat": NOW_S + 31}, r"it is not good yet \(iat\)"),
        ({"aud": "billing"}, "expected the audience spotline, found 'billing'"),
        ({"aud": None}, "expected the audience spotline, found None"),
        ({"aud": ["billing", "x"]}, "expected the audience spotline"),
        ({"iss": "https://evil.example.com/"}, "its issuer 'https://evil.* is not configured"),
        ({"iss": None}, "its issuer None is not configured"),
        ({"sub": None}, "it states no sub"),
        ({"sub": ""}, "its sub is no name"),
        ({"sub": "a\nb"}, "its sub is no name"),
        ({"groups": None}, "none of its groups is known here"),
        ({"groups": ["interns"]}, "none of its groups is known here"),
        ({"groups": {"research": True}}, "none of its groups is known here"),
        ({"groups": [["research"]]}, "none of its groups is known here"),
    ],
)
async def test_what_is_wrong_with_its_claims_is_said(issuer, claims, said):
    message = await refusal(tokens_of(issuer), issuer.sign(**claims))

    assert re.search(said, message), message


async def test_clocks_may_differ_by_the_leeway(issuer):
    tokens = tokens_of(issuer)

    await tokens.read(issuer.sign(exp=NOW_S - 29))
    await tokens.read(issuer.sign(nbf=NOW_S + 29))


# --- algorithms ---------------------------------------------------------------------------------


async def test_an_unsigned_token_is_refused(issuer):
    for name in ("none", "None", "NONE", "nOnE", ""):
        header = base64url(json.dumps({"alg": name, "kid": "key-ES256"}).encode())
        payload = base64url(json.dumps(claims_of()).encode())

        message = await refusal(tokens_of(issuer), f"{header}.{payload}.")

        assert "expected the algorithm ES256 or" in message or "cannot be read" in message


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
async def test_a_public_key_is_no_shared_secret(algorithm):
    """CVE-2015-9235: HS256 under the public key, which everybody has."""
    issuer = TokenIssuer(algorithm)
    public = issuer.keys[f"key-{algorithm}"][1].public_key()
    pem = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    header = base64url(json.dumps({"alg": "HS256", "kid": f"key-{algorithm}"}).encode())
    payload = base64url(json.dumps(claims_of()).encode())
    for secret in (pem, pem.strip(), issuer.jwks()):
        mac = hmac.new(secret, f"{header}.{payload}".encode(), hashlib.sha256).digest()

        message = await refusal(tokens_of(issuer), f"{header}.{payload}.{base64url(mac)}")

        assert "expected the algorithm" in message
        assert "found 'HS256'" in message


async def test_an_algorithm_that_the_issuer_does_not_use_is_refused():
    issuer = TokenIssuer("RS256")

    message = await refusal(tokens_of(issuer, algorithms=("ES256",)), issuer.sign("key-RS256"))

    assert "expected the algorithm ES256, found 'RS256'" in message


async def test_a_key_checks_only_what_it_is_for():
    issuer = TokenIssuer("ES256", "RS256")
    signed_rs = issuer.sign("key-RS256", header={"kid": "key-ES256"})
    message = await refusal(tokens_of(issuer), signed_rs)
    assert "its key cannot check RS256" in message

    bound = {**issuer.jwk("key-RS256"), "alg": "PS256"}
    issuer.jwks = lambda: json.dumps({"keys": [bound]}).encode()
    message = await refusal(tokens_of(issuer), issuer.sign("key-RS256"))
    assert "its key is for PS256, it says RS256" in message


async def test_a_symmetric_key_or_one_for_encryption_among_the_keys_is_none(issuer):
    secret = {"kty": "oct", "kid": "s", "k": base64url(b"s" * 32)}
    sealing = {**issuer.jwk("key-ES256"), "kid": "enc", "use": "enc"}
    known = issuer.jwks()
    issuer.jwks = lambda: json.dumps(
        {"keys": [secret, sealing, *json.loads(known)["keys"]]}
    ).encode()
    tokens = tokens_of(issuer)

    await tokens.read(issuer.sign())
    for key_id in ("s", "enc"):
        message = await refusal(tokens, issuer.sign(header={"kid": key_id}))
        assert "its key id is none of" in message


async def test_a_signature_of_another_key_is_wrong(issuer):
    other = TokenIssuer()

    assert "its signature is wrong" in await refusal(tokens_of(issuer), other.sign())


async def test_a_short_rsa_key_is_refused():
    issuer = TokenIssuer("RS256")
    issuer.keys["key-RS256"] = ("RS256", rsa.generate_private_key(65537, 1024))

    with pytest.warns(jwt.warnings.InsecureKeyLengthWarning):
        token = issuer.sign("key-RS256")

    assert "its key has under 2048 bits" in await refusal(tokens_of(issuer), token)


# --- keys ---------------------------------------------------------------------------------------


async def test_an_unknown_key_is_looked_for_at_most_every_refetch(issuer):
    clock = MovedClock()
    tokens = tokens_of(issuer, clock, refetch_s=60)
    await tokens.read(issuer.sign())
    assert issuer.fetches == 1

    issuer.draw("new")
    for _ in range(5):
        await refusal(tokens, issuer.sign("new"))
    assert issuer.fetches == 1
    clock.pass_s(61)
    assert (await tokens.read(issuer.sign("new"))).caller.subject == "ann"
    assert issuer.fetches == 2


async def test_a_fetch_that_fails_keeps_the_old_keys(issuer):
    clock = MovedClock()
    tokens = tokens_of(issuer, clock, refresh_s=600)
    await tokens.read(issuer.sign())
    issuer.reached = False
    clock.pass_s(601)

    assert (await tokens.read(issuer.sign())).caller.subject == "ann"
    assert issuer.fetches == 2


async def test_keys_that_the_issuer_withdrew_count_no_more_once_they_are_fetched_again(issuer):
    clock = MovedClock()
    tokens = tokens_of(issuer, clock, refresh_s=600)
    issuer.draw("leaked")
    token = issuer.sign("leaked")
    await tokens.read(token)
    before = tokens.state()
    del issuer.keys["leaked"]
    clock.pass_s(601)

    assert "its key id is none of" in await refusal(tokens, token)
    assert tokens.state() != before


async def test_what_is_no_jwks_is_no_key(issuer):
    for content in (b"", b"[]", b'{"keys": {}}', b'{"keys": []}', b"[" * 100_000, b"\xff"):
        issuer.jwks = lambda content=content: content

        assert "its key id is none of" in await refusal(tokens_of(issuer), issuer.sign())


# --- forgeries ----------------------------------------------------------------------------------


@given(part=st.integers(0, 2), at=st.integers(0, 10_000), letter=st.sampled_from("ABCxyz019-_"))
async def test_a_token_that_was_changed_anywhere_proves_nobody(part, at, letter):
    parts = _TOKEN.split(".")
    place = at % len(parts[part])
    changed = parts[part][:place] + letter + parts[part][place + 1 :]
    same = _bytes(changed) == _bytes(parts[part])
    parts[part] = changed
    if not same:
        with pytest.raises(Unauthenticated):
            await tokens_of(_ISSUER).read(".".join(parts))


@given(st.text(max_size=200))
async def test_any_text_is_answered_by_an_error_of_its_own(text):
    with pytest.raises(Unauthenticated):
        await tokens_of(_ISSUER).read(text)


def _bytes(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


_ISSUER = TokenIssuer()
_TOKEN = _ISSUER.sign()
