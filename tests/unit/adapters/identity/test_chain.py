"""Every kind of token at one authenticator: who is let in, who is not, and what is remembered."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.adapters.identity.api_keys import ApiKeys
from spotline.adapters.identity.chain import AuthenticatorChain
from spotline.adapters.identity.instances import (
    Identity,
    InstanceSessions,
    JoinedStanding,
    sha256_of,
)
from spotline.adapters.identity.jwt_tokens import JwtTokens
from spotline.adapters.identity.signing import Signer
from spotline.application.identity.grants import RoleGrant
from spotline.application.identity.permission import role_denial
from spotline.contracts.access import GRPC_ACTIONS, Reach, Role
from spotline.contracts.errors import Unauthenticated
from tests.fakes.signed_tokens import NOW, MovedClock, TokenIssuer, trusted

SIGNER = Signer(b"k" * 32)
NONCE = sha256_of("n" * 32)
MEMBER = Identity(instance_id="i-1", job_id="job-1")
STANDING = JoinedStanding(nonce_sha256=NONCE, generation=3)
RESEARCH = RoleGrant(role=Role.OWNER, tenant="research")


class CountedReader:
    """Counts how often a reader is asked."""

    def __init__(self, reader) -> None:
        self._reader = reader
        self.reads = 0

    def recognises(self, token):
        return self._reader.recognises(token)

    def state(self):
        return self._reader.state()

    async def read(self, token):
        self.reads += 1
        return await self._reader.read(token)


class Doorway:
    """An authenticator of everything, on a clock that a test moves."""

    def __init__(self, folder) -> None:
        self.clock = MovedClock()
        self.issuer = TokenIssuer()
        self.keys = ApiKeys(folder, now=self.clock)
        self.counted = CountedReader(self.keys)
        self.joined = {MEMBER: STANDING}
        self.sessions = InstanceSessions(SIGNER, self.joined.get, lasts_s=600, now=self.clock)
        self.jwts = JwtTokens([trusted()], fetch=self.issuer.fetch, now=self.clock)
        readers = (self.counted, self.jwts, self.sessions)
        self.chain = AuthenticatorChain(readers, now=self.clock)

    async def caller(self, token):
        return await self.chain.caller(token)

    async def refusal(self, token):
        with pytest.raises(Unauthenticated) as caught:
            await self.chain.caller(token)
        assert len(token) < 20 or token not in str(caught.value)
        return str(caught.value)


@pytest.fixture
def doorway(tmp_path):
    return Doorway(tmp_path)


async def test_each_kind_of_token_proves_its_caller(doorway):
    key = doorway.keys.create("ann", RESEARCH)

    assert (await doorway.caller(key)).role is Role.OWNER
    assert (await doorway.caller(doorway.issuer.sign())).subject == "ann"
    member = await doorway.caller(doorway.sessions.open(MEMBER, STANDING))
    assert (member.role, member.subject, member.job_id) == (Role.INSTANCE, "i-1", "job-1")
    assert member.generation == 3


async def test_what_is_no_token_is_refused_in_words(doorway):
    for token in ("", " ", "\n", "hunter2", "Bearer x", "é", "\0", "a.b.c", "x" * 8192):
        assert await doorway.refusal(token)
    assert await doorway.refusal("hunter2") == (
        "the token is of no kind that is known here: an API key (spl_...), a JWT of a configured "
        "issuer, or the session of an instance"
    )


async def test_an_oversized_token_is_refused_unread(doorway):
    long = doorway.keys.create("ann", RESEARCH) + "0" * 8192

    assert await doorway.refusal(long) == "the token is refused unread: it has over 8192 bytes"
    assert doorway.counted.reads == 0
    padded = doorway.issuer.sign(padding="x" * 8192)
    assert "refused unread" in await doorway.refusal(padded)
    assert doorway.issuer.fetches == 0


# --- memory -------------------------------------------------------------------------------------


async def test_what_was_proved_is_remembered_and_not_read_again(doorway):
    token = doorway.keys.create("ann", RESEARCH)

    callers = [await doorway.caller(token) for _ in range(5)]

    assert len(set(map(str, callers))) == 1
    assert doorway.counted.reads == 1


async def test_a_revoked_key_that_is_replayed_is_refused_though_it_was_remembered(doorway):
    token = doorway.keys.create("ann", RESEARCH)
    await doorway.caller(token)

    doorway.keys.revoke("ann")

    assert "was revoked" in await doorway.refusal(token)


async def test_an_expired_key_that_is_replayed_is_refused_though_it_was_remembered(doorway):
    token = doorway.keys.create("ann", RESEARCH, expires=NOW + timedelta(seconds=60))
    await doorway.caller(token)
    doorway.clock.pass_s(60)

    assert "expired at" in await doorway.refusal(token)


async def test_an_expired_jwt_that_is_replayed_is_refused_though_it_was_remembered(doorway):
    token = doorway.issuer.sign(exp=int(NOW.timestamp()) + 60)
    await doorway.caller(token)
    doorway.clock.pass_s(60 + 30)

    assert "it has expired" in await doorway.refusal(token)


async def test_a_jwt_of_a_key_that_was_withdrawn_is_refused_though_it_was_remembered(doorway):
    doorway.issuer.draw("leaked")
    token = doorway.issuer.sign("leaked", exp=int(NOW.timestamp()) + 100_000)
    await doorway.caller(token)
    del doorway.issuer.keys["leaked"]
    doorway.clock.pass_s(3_601)

    assert "its key id is none of" in await doorway.refusal(token)


async def test_a_refusal_is_not_remembered(doorway):
    token = doorway.issuer.sign(nbf=int(NOW.timestamp()) + 100)
    assert "not good yet" in await doorway.refusal(token)
    doorway.clock.pass_s(100)

    assert (await doorway.caller(token)).subject == "ann"


# --- instances ----------------------------------------------------------------------------------


async def test_a_stolen_session_reports_for_its_own_allocation_and_does_nothing_else(doorway):
    thief = await doorway.caller(doorway.sessions.open(MEMBER, STANDING))

    allowed = {name for name, action in GRPC_ACTIONS.items() if role_denial(action, thief) is None}
    assert allowed
    assert {GRPC_ACTIONS[name].reach for name in allowed} <= {Reach.ALLOCATION, Reach.SYSTEM}
    assert all("AgentService" in name or "WhoAmI" in name for name in allowed)
    assert (thief.subject, thief.job_id) == ("i-1", "job-1")


async def test_a_stolen_session_ends_in_minutes_and_no_call_makes_it_longer(doorway):
    stolen = doorway.sessions.open(MEMBER, STANDING)
    for _ in range(9):
        doorway.clock.pass_s(60)
        await doorway.caller(stolen)
        doorway.sessions.open(MEMBER, STANDING)  # the agent itself goes on
    doorway.clock.pass_s(60)

    assert "it ended at 2026-03-01T00:10:00+00:00" in await doorway.refusal(stolen)


async def test_a_session_counts_only_while_its_own_agent_has_joined(doorway):
    session = doorway.sessions.open(MEMBER, STANDING)
    await doorway.caller(session)

    doorway.joined[MEMBER] = JoinedStanding(nonce_sha256=sha256_of("another"), generation=3)
    assert "no such agent has joined" in await doorway.refusal(session)
    del doorway.joined[MEMBER]
    assert "no such agent has joined" in await doorway.refusal(session)


async def test_a_stolen_session_says_nothing_once_the_program_was_started_anew(doorway):
    stolen = doorway.sessions.open(MEMBER, STANDING)
    await doorway.caller(stolen)

    doorway.joined[MEMBER] = replace(STANDING, generation=4)
    assert "it is of generation 3, and the present one is 4" in await doorway.refusal(stolen)
    assert (
        await doorway.caller(doorway.sessions.open(MEMBER, doorway.joined[MEMBER]))
    ).generation == 4


async def test_a_session_of_a_generation_that_the_log_does_not_have_is_refused(doorway):
    ahead = doorway.sessions.open(MEMBER, replace(STANDING, generation=5))

    assert "it is of generation 5" in await doorway.refusal(ahead)


async def test_a_session_without_a_generation_of_an_earlier_release_is_refused(doorway):
    said = {"instance": "i-1", "job": "job-1", "nonce_sha256": NONCE, "expires_s": 1 << 40}

    assert "an earlier release opened it" in await doorway.refusal(SIGNER.sign("session", said))


async def test_a_session_without_an_end_of_an_earlier_release_is_refused(doorway):
    old = SIGNER.sign("session", {"instance": "i-1", "job": "job-1", "nonce_sha256": NONCE})

    assert "an earlier release opened it" in await doorway.refusal(old)


async def test_a_join_token_is_no_session_and_another_store_signs_none(doorway):
    said = {"instance": "i-1", "job": "job-1", "nonce_sha256": NONCE, "expires_s": 1 << 40}
    join, foreign = SIGNER.sign("join", said), Signer(b"o" * 32).sign("session", said)

    assert "of no kind that is known" in await doorway.refusal(join)
    assert "it was not signed here" in await doorway.refusal(foreign)
    assert await doorway.refusal("session." + join.partition(".")[2])


# --- whatever comes -----------------------------------------------------------------------------


@given(
    kind=st.sampled_from(["", "spl_", "session.", "eyJ"]),
    rest=st.text(st.characters(codec="utf-8"), max_size=300),
)
async def test_any_text_is_refused_by_an_error_of_its_own(tmp_path_factory, kind, rest):
    await Doorway(tmp_path_factory.mktemp("door")).refusal(kind + rest)
