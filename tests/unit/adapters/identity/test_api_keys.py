"""Our own API keys: the file holds no secret, and what it says counts with the next call."""

from __future__ import annotations

import json
import threading
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.adapters.identity.api_keys import FILE, ApiKeys
from spotline.application.identity.grants import RoleGrant
from spotline.contracts.access import Caller, Role
from spotline.contracts.errors import ConfigError, ContractError, Unauthenticated
from tests.fakes.signed_tokens import NOW, MovedClock

RESEARCH = RoleGrant(role=Role.OWNER, tenant="research")


@pytest.fixture
def clock():
    return MovedClock()


@pytest.fixture
def keys(tmp_path, clock):
    return ApiKeys(tmp_path, now=clock)


async def refusal(keys, token):
    with pytest.raises(Unauthenticated) as caught:
        await keys.read(token)
    secret = token.rpartition("_")[2]
    assert not secret or secret not in str(caught.value)
    return str(caught.value)


async def test_a_key_proves_its_holder_and_the_file_holds_no_secret(keys, tmp_path):
    token = keys.create("ann", RESEARCH, expires=NOW + timedelta(days=1))

    proved = await keys.read(token)

    (kept,) = keys.listed()
    assert proved.caller == Caller(
        subject="ann", role=Role.OWNER, tenant="research", credential_id=kept.key_id
    )
    assert proved.good_until_s == (NOW + timedelta(days=1)).timestamp()
    assert token.startswith(f"spl_{kept.key_id}_")
    secret = token.rpartition("_")[2]
    assert secret not in (tmp_path / FILE).read_text()
    assert secret not in repr(kept)
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


async def test_what_one_process_revokes_another_refuses_with_the_next_call(keys, tmp_path, clock):
    server = ApiKeys(tmp_path, now=clock)
    token, kept = keys.create("ann", RESEARCH), keys.listed()[0]
    await server.read(token)
    before = server.state()

    keys.revoke("ann")

    assert server.state() != before
    said = f"the API key {kept.key_id} (ann) was revoked at 2026-03-01T00:00:00Z"
    assert await refusal(server, token) == said
    assert keys.revoke(kept.key_id).revoked == NOW  # again: as it was


async def test_a_key_expires(keys, clock):
    token = keys.create("ann", RESEARCH, expires=NOW + timedelta(hours=1))
    clock.pass_s(3599)
    await keys.read(token)
    clock.pass_s(1)

    assert "(ann) expired at 2026-03-01T01:00:00Z" in await refusal(keys, token)


async def test_why_a_key_counts_no_more_is_told_only_to_who_knows_its_secret(keys):
    token = keys.create("ann", RESEARCH)
    keys.revoke("ann")
    guessed = token[:-64] + "0" * 64

    assert await refusal(keys, guessed) == f"the API key {token[4:16]} is unknown here"
    assert "is unknown here" in await refusal(keys, f"spl_{'0' * 12}_{'0' * 64}")


@pytest.mark.parametrize("form", ["spl_", "spl_1_2", "spl_{0}", "spl_" + "G" * 12 + "_" + "0" * 64])
async def test_what_has_not_the_form_of_a_key_is_none(keys, form):
    assert "has not the form" in await refusal(keys, form)


async def test_a_file_that_cannot_be_read_lets_nobody_in(keys, tmp_path):
    token = keys.create("ann", RESEARCH)
    await keys.read(token)
    whole = (tmp_path / FILE).read_text()

    (tmp_path / FILE).write_text(whole[:-20])
    assert "the file of keys cannot be read" in await refusal(keys, token)
    with pytest.raises(ContractError, match="expected JSON"):
        keys.create("bob", RESEARCH)
    (tmp_path / FILE).write_text(whole)
    assert (await keys.read(token)).caller.subject == "ann"


def test_a_name_of_several_keys_revokes_none_of_them(keys):
    keys.create("ann", RESEARCH)
    keys.create("ann", RESEARCH)

    with pytest.raises(ConfigError, match="expected the id or the name of one key, found 'ann'"):
        keys.revoke("ann")
    with pytest.raises(ConfigError, match="found 'bob', of none"):
        keys.revoke("bob")
    assert not any(key.revoked for key in keys.listed())


def test_a_key_that_has_expired_is_not_made(keys):
    with pytest.raises(ContractError, match="expires: expected a time that is to come, found 2026"):
        keys.create("ann", RESEARCH, expires=NOW)


def test_of_several_writers_none_loses_a_key(tmp_path, clock):
    def make(number: int) -> None:
        ApiKeys(tmp_path, now=clock).create(f"user-{number}", RESEARCH)

    threads = [threading.Thread(target=make, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    names = {key.name for key in ApiKeys(tmp_path, now=clock).listed()}
    assert names == {f"user-{number}" for number in range(12)}


# --- the file -----------------------------------------------------------------------------------

KEPT = {
    "id": "0123456789ab",
    "name": "ann",
    "role": "owner",
    "tenant": "research",
    "created": "2026-03-01T00:00:00Z",
    "sha256": "0" * 64,
}


def read_with(tmp_path, *kept, **top):
    (tmp_path / FILE).write_text(json.dumps({"format_version": 1, "keys": [*kept], **top}))
    return ApiKeys(tmp_path).listed()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"role": "instance"}, "keys[0].role: expected one of owner, operator, viewer or service"),
        ({"role": "root"}, "keys[0].role: expected one of owner"),
        ({"tenant": ""}, "tenant must be a tenant's name for the role owner"),
        ({"role": "operator"}, "tenant must be empty for the role operator"),
        ({"id": "xyz"}, "keys[0].id: expected 12 hexadecimal digits, found 'xyz'"),
        ({"sha256": "0" * 63}, "keys[0].sha256: expected 64 hexadecimal digits"),
        ({"created": "yesterday"}, "keys[0].created: expected a time with its UTC offset"),
        ({"expires": "2026-03-01T00:00:00"}, "keys[0].expires: expected a time with its UTC"),
        ({"name": "a\nb"}, "keys[0].name: expected text of one line"),
        ({"secret": "x"}, "keys[0].secret: expected a known field"),
    ],
)
def test_a_file_that_was_edited_says_which_field_is_wrong(tmp_path, changes, said):
    with pytest.raises(ContractError) as caught:
        read_with(tmp_path, {**KEPT, **changes})

    assert said in str(caught.value)


def test_an_id_comes_once(tmp_path):
    with pytest.raises(ContractError, match=r"keys\[1\]\.id: expected each id once"):
        read_with(tmp_path, KEPT, KEPT)


@given(
    names=st.lists(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=30).filter(str.isprintable),
        max_size=5,
    ),
    role=st.sampled_from([Role.OWNER, Role.OPERATOR, Role.VIEWER, Role.SERVICE]),
)
async def test_what_is_made_is_read_again_as_it_was(tmp_path_factory, names, role):
    keys = ApiKeys(tmp_path_factory.mktemp("keys"), now=lambda: NOW)
    grant = RoleGrant(role=role, tenant="research" if role is Role.OWNER else "")
    made = []
    for name in names:
        try:
            made.append((name, keys.create(name, grant)))
        except ContractError:
            assert any(not (" " <= mark <= "~") for mark in name)

    assert [key.name for key in keys.listed()] == [name for name, _ in made]
    for name, token in made:
        caller = (await keys.read(token)).caller
        assert (caller.subject, caller.role) == (name, role)
