"""`spotline auth` and `spotline context`: what they print, keep and refuse."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from spotline.adapters.identity.contexts import contexts_file, read_contexts
from spotline.adapters.identity.endpoints import Endpoint, publish_endpoint
from spotline.adapters.identity.folder import IdentityFolder
from spotline.cli.main import app
from spotline.contracts.access import Role
from spotline.contracts.errors import Unauthenticated


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in list(os.environ):
        if name.startswith("SPOTLINE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store"


def spotline(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def ok(*words):
    answer = spotline(*words)
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def bad(*words):
    answer = spotline(*words)
    assert answer.exit_code == 2, answer.output
    return answer.stderr


def create(store, *more, name="ann"):
    return ok("auth", "token", "create", "--name", name, "--store", store, *more)


# --- keys ---------------------------------------------------------------------------------------


def test_a_key_is_never_said_again_when_it_is_revoked(store):
    token = create(store, "--role", "owner", "--tenant", "research").strip()
    secret = token.rpartition("_")[2]

    cut = bad("auth", "token", "revoke", token[:-1], "--store", store)
    whole = ok("auth", "token", "revoke", token, "--store", store)

    assert secret[:-1] not in cut
    assert secret not in whole
    assert "(ann) was revoked" in whole
    assert secret[:-1] not in (store / "audit" / "commands.jsonl").read_text()


async def test_a_key_is_printed_once_and_counts_until_it_is_revoked(store):
    token = create(store, "--role", "owner", "--tenant", "research").strip()
    chain = IdentityFolder(store).authenticator()
    assert (await chain.caller(token)).tenant == "research"

    listed = ok("auth", "token", "list", "--store", store)
    assert "ann" in listed
    assert token.rpartition("_")[2] not in listed
    ok("auth", "token", "revoke", "ann", "--store", store)

    with pytest.raises(Unauthenticated, match="was revoked"):
        await chain.caller(token)
    assert "was revoked at" in ok("auth", "token", "list", "--store", store)


async def test_a_key_can_go_into_a_file_of_ones_own(store, tmp_path):
    out = tmp_path / "token"

    made = json.loads(create(store, "--role", "viewer", "--json", "-o", out))

    assert "token" not in made
    assert out.stat().st_mode & 0o777 == 0o600
    caller = await IdentityFolder(store).authenticator().caller(out.read_text().strip())
    assert (caller.role, caller.credential_id) == (Role.VIEWER, made["key_id"])


async def test_without_a_store_it_is_a_key_of_the_system_that_runs_here(store):
    folder = IdentityFolder(store)
    endpoint = Endpoint(ca=folder.ca_file, token_files={})
    publish_endpoint("127.0.0.1:7070", endpoint)

    token = ok("auth", "token", "create", "--name", "ann", "--role", "viewer").strip()

    assert (await folder.authenticator().caller(token)).subject == "ann"


@pytest.mark.parametrize(
    ("expires", "days"), [((), 90), (("--expires", "12h"), 0.5), (("--expires", "never"), None)]
)
def test_a_key_ends_when_it_was_said(store, expires, days):
    made = json.loads(create(store, "--role", "operator", "--json", *expires))

    if days is None:
        assert made["expires"] is None
    else:
        left = datetime.fromisoformat(made["expires"]) - datetime.now(UTC)
        assert abs(left - timedelta(days=days)) < timedelta(minutes=5)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--role", "owner"), "--tenant: expected a tenant's name for the role owner, found ''"),
        (("--role", "root"), "--role: expected one of owner, operator, viewer, service"),
        (("--role", "instance"), "--role: expected one of owner, operator, viewer, service"),
        (("--role", "service", "--tenant", "t"), "--tenant: expected empty for the role service"),
        (("--role", "viewer", "--expires", "soon"), "--expires: expected a duration such as 90d"),
        (("--role", "viewer", "--expires", "2020-01-01T00:00:00Z"), "a time that is to come"),
    ],
)
def test_what_is_wrong_is_said_by_its_option_and_makes_no_key(store, words, said):
    assert said in bad("auth", "token", "create", "--name", "x", "--store", store, *words)
    if (store / "identity").exists():
        assert "x" not in {key.name for key in IdentityFolder(store).keys.listed()}


def test_a_store_without_keys_is_said(store):
    for words in (("token", "list"), ("token", "revoke", "x"), ("keys", "rotate")):
        assert "expected a store that has keys, found none" in bad("auth", *words, "--store", store)
    assert not store.exists()


def test_an_unknown_key_is_not_revoked(store):
    create(store, "--role", "viewer")

    said = bad("auth", "token", "revoke", "bob", "--store", store)

    assert "expected the id or the name of one key, found 'bob'" in said


async def test_a_rotation_says_what_is_new_and_what_is_still_trusted(store):
    chain = IdentityFolder(store).authenticator()
    before = IdentityFolder(store).token_file("owner").read_text().strip()

    said = ok("auth", "keys", "rotate", "--overlap", "1h", "--store", store)

    assert "stays trusted until --retire" in said
    assert "the old ones count for 1h" in said
    after = IdentityFolder(store).token_file("owner").read_text().strip()
    assert after != before
    for token in (before, after):
        assert (await chain.caller(token)).subject == "owner"
    assert IdentityFolder(store).ca_file.read_text().count("BEGIN") == 2
    assert "is trusted no more" in ok("auth", "keys", "rotate", "--retire", "--store", store)
    assert IdentityFolder(store).ca_file.read_text().count("BEGIN") == 1
    assert "there was none" in ok("auth", "keys", "rotate", "--retire", "--store", store)
    assert "--overlap: expected" in bad(
        "auth", "keys", "rotate", "--overlap", "x", "--store", store
    )


# --- contexts -----------------------------------------------------------------------------------


def test_contexts_are_added_used_listed_and_removed(tmp_path):
    (tmp_path / "token").write_text("spl_x")
    assert "(in use)" in ok("context", "add", "dev", "--allocator", "dev:7070")
    assert "(in use)" not in ok(
        *("context", "add", "prod", "--allocator", "prod:7070", "--placer", "prod:7072"),
        *("--token-file", tmp_path / "token", "--server-name", "spotline.internal"),
    )
    assert "prod:7072 (in use)" in ok("context", "use", "prod")

    listed = {one["name"]: one for one in json.loads(ok("context", "list", "--json"))}
    assert [name for name, one in listed.items() if one["in_use"]] == ["prod"]
    assert listed["prod"]["token_file"] == str(tmp_path / "token")
    assert listed["dev"]["placer"] is None
    assert contexts_file().stat().st_mode & 0o777 == 0o600
    assert "no context is in use now" in ok("context", "remove", "prod")
    assert read_contexts().current == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "a", "--allocator", "x"), "context a: allocator: expected HOST:PORT"),
        (("add", "a", "--http", "x"), "context a: http: expected a URL"),
        (("add", "", "--allocator", "x:1"), "NAME: expected a name of one line, found ''"),
        (("add", "a", "--token-file", "/nowhere"), "--token-file: /nowhere: expected a readable"),
        (("use", "a"), "NAME: expected a context (none yet), found 'a'"),
        (("remove", "a"), "NAME: expected a context (none yet), found 'a'"),
    ],
)
def test_what_is_wrong_with_a_context_is_said_and_nothing_is_written(words, said):
    assert said in bad("context", *words)
    assert not contexts_file().exists()


def test_commands_take_their_address_from_the_context_in_use(monkeypatch):
    ok("context", "add", "far", "--allocator", "127.0.0.1:1", "--placer", "127.0.0.1:2")
    ok("context", "add", "further", "--allocator", "127.0.0.1:3")

    assert "the allocator at 127.0.0.1:1 cannot be reached" in bad("status")
    assert "the placer at 127.0.0.1:2 cannot be reached" in bad("pipelines", "list")
    assert "the allocator at 127.0.0.1:1 cannot be reached" in bad("auth", "whoami")
    # What is stated comes first: on the line, then by a variable, then by another context.
    assert "at 127.0.0.1:4 cannot be" in bad("status", "--address", "127.0.0.1:4")
    monkeypatch.setenv("SPOTLINE_CONTEXT", "further")
    assert "the allocator at 127.0.0.1:3 cannot be reached" in bad("status")
    monkeypatch.setenv("SPOTLINE_ALLOCATOR_ADDRESS", "127.0.0.1:5")
    assert "the allocator at 127.0.0.1:5 cannot be reached" in bad("status")


def test_a_file_of_contexts_that_is_wrong_stops_commands_that_need_it_and_no_others():
    contexts_file().parent.mkdir(parents=True)
    contexts_file().write_text("contexts: {a: {allocatr: 'x:1'}}\n")

    assert "contexts.a.allocatr: expected a known field" in bad("status")
    ok("version")
    ok("policies")
