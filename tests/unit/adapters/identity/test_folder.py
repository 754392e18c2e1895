"""`STORE/identity`: made without a step of anybody's, and closed to others."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest

from spotline.adapters.identity.folder import SERVICES, IdentityFolder
from spotline.application.identity.grants import RoleGrant
from spotline.application.identity.permission import role_denial
from spotline.contracts.access import GRPC_ACTIONS, Role
from spotline.contracts.errors import ConfigError, Unauthenticated
from tests.fakes.signed_tokens import MovedClock


@pytest.fixture
def clock():
    return MovedClock()


@pytest.fixture
def folder(tmp_path, clock):
    return IdentityFolder(tmp_path / "store", now=clock)


def token_in(folder, name):
    return folder.token_file(name).read_text().strip()


async def test_the_first_start_makes_everything_and_the_second_finds_it(folder, tmp_path, clock):
    chain = folder.authenticator()
    again = IdentityFolder(tmp_path / "store", now=clock)

    for name in ("owner", *SERVICES):
        assert token_in(again, name) == token_in(folder, name)
        caller = await chain.caller(token_in(folder, name))
        assert (caller.subject, caller.role, caller.tenant) == (name, Role.SERVICE, "")
    assert (await chain.caller(token_in(folder, "operator"))).role is Role.OPERATOR
    assert len(again.keys.listed()) == 2 + len(SERVICES)
    assert again.ca_file.read_text() == again.authority.ca_pem
    for path in (folder.path, *folder.path.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


async def test_the_person_who_runs_it_may_do_whatever_people_do(folder):
    chain = folder.authenticator()
    identity = folder.service_identity("selector")
    assert identity.token_for("/spotline.api.v1.JobService/Submit") == identity.token

    callers = [await chain.caller(token_in(folder, name)) for name in ("owner", "operator")]
    for action in GRPC_ACTIONS.values():
        if action.roles and "AgentService" not in action.name:
            assert any(role_denial(action, caller) is None for caller in callers), action.name


@pytest.mark.parametrize("what", ["", "tokens", "tokens/owner.key", "api_keys.json", "authority"])
def test_a_folder_that_others_can_read_is_refused_with_what_mends_it(folder, tmp_path, what):
    path = folder.path / what if what else folder.path
    path.chmod(path.stat().st_mode | 0o044)

    with pytest.raises(ConfigError) as caught:
        IdentityFolder(tmp_path / "store")

    assert f"chmod -R go-rwx {path}" in str(caught.value)
    assert "spotline auth keys rotate" in str(caught.value)


def test_a_folder_of_another_user_is_refused(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    with pytest.raises(ConfigError, match=r"identity belongs to user \d+, expected \d+"):
        IdentityFolder(tmp_path / "store")


async def test_keys_are_rotated_while_servers_run(folder, tmp_path, clock):
    server = IdentityFolder(tmp_path / "store", now=clock).authenticator()
    old = {name: token_in(folder, name) for name in ("owner", "operator", "selector")}
    for token in old.values():
        await server.caller(token)

    folder.rotate(overlap=timedelta(hours=1))

    for name, token in old.items():
        assert token_in(folder, name) != token
        assert (await server.caller(token_in(folder, name))).subject == name
        await server.caller(token)  # who runs has an hour to take the new one
    clock.pass_s(3600)
    for name, token in old.items():
        await server.caller(token_in(folder, name))
        with pytest.raises(Unauthenticated, match="expired at"):
            await server.caller(token)
    assert folder.ca_file.read_text().count("BEGIN CERTIFICATE") == 2


async def test_a_service_that_runs_takes_its_new_key(folder, clock):
    identity = folder.service_identity("selector")
    before = identity.token_for("/spotline.api.v1.AllocatorService/Allocate")

    folder.rotate(overlap=timedelta(0))
    clock.pass_s(1)

    after = identity.token_for("/spotline.api.v1.AllocatorService/Allocate")
    assert after != before
    assert (await folder.authenticator().caller(after)).subject == "selector"
    folder.token_file("selector").unlink()
    assert identity.token_for("") == after


async def test_keys_of_others_outlive_a_rotation(folder, clock):
    given = folder.keys.create("ann", RoleGrant(role=Role.VIEWER))

    folder.rotate(overlap=timedelta(0))
    clock.pass_s(1)

    assert (await folder.authenticator().caller(given)).subject == "ann"


def test_what_it_holds_is_said_where_it_is_nonsense(folder, tmp_path):
    (folder.path / "authority" / "ca.key").write_bytes(b"nonsense")

    with pytest.raises(ConfigError, match=r"identity cannot be used .*mend it, or remove it"):
        IdentityFolder(tmp_path / "store")


def test_it_has_a_key_of_those_it_knows_only(folder):
    with pytest.raises(ConfigError, match="expected the key of one of owner, operator, "):
        folder.token_file("mallory")
