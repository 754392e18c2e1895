"""What a client finds for an address: in the environment, a context, or what runs on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.adapters.identity.contexts import (
    Contexts,
    ServiceContext,
    chosen_context,
    context_of,
    contexts_file,
    read_contexts,
    write_contexts,
)
from spotline.adapters.identity.endpoints import (
    ClientIdentity,
    client_identity,
    endpoint_file,
    publish_endpoint,
    withdraw_endpoint,
)
from spotline.adapters.identity.folder import IdentityFolder
from spotline.contracts.access import Role
from spotline.contracts.errors import ConfigError, ContractError

ADDRESS = "127.0.0.1:7070"
SUBMIT = "/spotline.api.v1.JobService/Submit"
PAUSE = "/spotline.api.v1.OperationsService/Pause"
STATUS = "/spotline.api.v1.OperationsService/GetSystemStatus"


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in list(os.environ):
        if name.startswith("SPOTLINE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def folder(tmp_path):
    return IdentityFolder(tmp_path / "store")


def remote(tmp_path, **changes):
    (tmp_path / "prod.token").write_text("spl_remote\n")
    (tmp_path / "prod.pem").write_text("-----BEGIN CERTIFICATE-----\nx")
    stated = {
        "allocator": "alloc.example.com:7070",
        "ca": str(tmp_path / "prod.pem"),
        "token_file": str(tmp_path / "prod.token"),
        "server_name": "spotline.internal",
        **changes,
    }
    return ServiceContext(name="prod", **stated)


def test_where_nothing_is_known_it_is_spoken_to_in_the_clear():
    assert client_identity(ADDRESS) is None


@pytest.mark.parametrize("dialled", [ADDRESS, "localhost:7070", "0.0.0.0:7070"])
def test_what_a_running_system_wrote_is_found_by_its_address(folder, dialled):
    path = publish_endpoint(ADDRESS, folder.endpoint())

    found = client_identity(dialled)

    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert found.ca_pem == folder.ca_file.read_bytes()
    owner, operator = (
        folder.token_file(name).read_text().strip() for name in ("owner", "operator")
    )
    assert found.token_for(SUBMIT) == found.token_for(STATUS) == found.token == owner
    assert found.token_for(PAUSE) == operator
    assert client_identity("127.0.0.1:7071") is None
    withdraw_endpoint(ADDRESS)
    withdraw_endpoint(ADDRESS)
    assert client_identity(ADDRESS) is None


def test_a_rotation_is_seen_with_the_next_look(folder):
    publish_endpoint(ADDRESS, folder.endpoint())
    before = client_identity(ADDRESS)

    folder.rotate()

    assert client_identity(ADDRESS).token not in (before.token, "")


def test_what_another_could_have_written_is_not_believed(folder):
    publish_endpoint(ADDRESS, folder.endpoint()).chmod(0o644)

    with pytest.raises(ConfigError, match=r"127\.0\.0\.1_7070\.json can be read by others"):
        client_identity(ADDRESS)


def test_a_store_that_is_gone_is_said(folder):
    publish_endpoint(ADDRESS, folder.endpoint())
    folder.token_file("owner").unlink()

    with pytest.raises(ConfigError, match=r"owner\.key: expected a readable file, found: No such"):
        client_identity(ADDRESS)


def test_the_environment_comes_first_and_shows_its_token_to_nobody_else(folder, tmp_path):
    publish_endpoint(ADDRESS, folder.endpoint())
    (tmp_path / "t").write_text("  from-file\n")

    stated = client_identity(ADDRESS, {"SPOTLINE_TOKEN": "mine"})
    by_file = client_identity(ADDRESS, {"SPOTLINE_TOKEN_FILE": str(tmp_path / "t")})

    assert stated == ClientIdentity(token="mine", ca_pem=folder.ca_file.read_bytes())
    assert stated.token_for(PAUSE) == "mine"
    assert by_file.token == "from-file"
    only_ca = client_identity(ADDRESS, {"SPOTLINE_CA": str(folder.ca_file)})
    assert only_ca.tokens[Role.OPERATOR] == only_ca.token_for(PAUSE)
    assert client_identity("x:1", {"SPOTLINE_TOKEN": "mine"}) == ClientIdentity(token="mine")


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"SPOTLINE_TOKEN": "a b"}, "SPOTLINE_TOKEN: expected a token of one line"),
        ({"SPOTLINE_TOKEN": "é"}, "SPOTLINE_TOKEN: expected a token of one line"),
        ({"SPOTLINE_TOKEN": "x" * 9000}, "SPOTLINE_TOKEN: expected a token of at most 8192 bytes"),
        ({"SPOTLINE_TOKEN_FILE": "/nowhere"}, "SPOTLINE_TOKEN_FILE: /nowhere: expected a readable"),
        ({"SPOTLINE_CA": "/nowhere"}, "SPOTLINE_CA: /nowhere: expected a readable file"),
        ({"SPOTLINE_CA": "/dev/null"}, "SPOTLINE_CA: /dev/null: expected certificates in PEM"),
        ({"SPOTLINE_CONTEXT": "prod"}, r"SPOTLINE_CONTEXT: expected the name of a context \(none"),
    ],
)
def test_what_the_environment_has_wrong_is_said_by_its_name(environ, said):
    with pytest.raises(ConfigError, match=said) as caught:
        client_identity(ADDRESS, environ)

    assert environ.get("SPOTLINE_TOKEN", "-") not in str(caught.value)


def test_no_token_is_shown_by_what_prints_an_identity(folder):
    publish_endpoint(ADDRESS, folder.endpoint())

    assert "spl_" not in repr(client_identity(ADDRESS))


# --- contexts -----------------------------------------------------------------------------------


def test_a_context_serves_its_own_addresses_and_no_others(tmp_path):
    context = remote(tmp_path, http="https://web.example.com:7080/v1")
    write_contexts(Contexts(current="prod", by_name={"prod": context}))

    for address in ("alloc.example.com:7070", "web.example.com:7080"):
        found = client_identity(address)
        assert (found.token, found.server_name) == ("spl_remote", "spotline.internal")
        assert found.ca_pem == (tmp_path / "prod.pem").read_bytes()
    assert client_identity("evil.example.com:7070") is None
    assert client_identity("") is None


def test_the_environment_names_another_context(tmp_path):
    write_contexts(
        Contexts(
            current="dev",
            by_name={"dev": ServiceContext(name="dev"), "prod": remote(tmp_path)},
        )
    )

    assert chosen_context().name == "dev"
    assert chosen_context({"SPOTLINE_CONTEXT": "prod"}).name == "prod"


def test_a_context_comes_before_what_runs_on_this_machine(folder, tmp_path):
    publish_endpoint(ADDRESS, folder.endpoint())
    context = remote(tmp_path, allocator=ADDRESS)
    write_contexts(Contexts(current="prod", by_name={"prod": context}))

    assert client_identity(ADDRESS).token == "spl_remote"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("current: prod\n", "current: expected one of none, found 'prod'"),
        ("contexts: {a: {allocator: nowhere}}\n", r"contexts.a.allocator: expected HOST:PORT"),
        ("contexts: {a: {allocator: 'x:99999'}}\n", r"contexts.a.allocator: expected HOST:PORT"),
        ("contexts: {a: {http: 'ftp://x'}}\n", r"contexts.a.http: expected a URL that begins"),
        ("contexts: {a: {tokn: x}}\n", r"contexts.a.tokn: expected a known field"),
        ("contexts: [a]\n", "contexts: expected a mapping of fields"),
        ("x: 1\n", "x: expected a known field"),
    ],
)
def test_a_file_of_contexts_says_which_field_is_wrong(text, said):
    contexts_file().parent.mkdir(parents=True)
    contexts_file().write_text(text)

    with pytest.raises((ConfigError, ContractError), match=said):
        read_contexts()


NAMES = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=9)
PORTS = st.one_of(st.just(""), st.builds("{}:{}".format, NAMES, st.integers(1, 65535)))


@given(
    by_name=st.dictionaries(
        NAMES,
        st.fixed_dictionaries(
            {"allocator": PORTS, "placer": PORTS, "ca": NAMES, "token_file": NAMES}
        ),
        max_size=4,
    )
)
def test_what_is_written_is_read_again(tmp_path_factory, by_name):
    path = tmp_path_factory.mktemp("contexts") / "contexts.yaml"
    made = {name: context_of(name, stated) for name, stated in by_name.items()}

    write_contexts(Contexts(current=next(iter(made), ""), by_name=made), path)

    assert read_contexts(path) == Contexts(current=next(iter(made), ""), by_name=made)


@given(host=st.text(min_size=1, max_size=40), port=st.integers(0, 99999))
def test_no_address_names_a_file_elsewhere(host, port):
    path = endpoint_file(f"{host}:{port}")

    assert path.parent.name == "endpoints"
    assert path.resolve().parent == path.parent.resolve()


def test_what_a_process_wrote_that_was_killed_is_believed_no_more(folder):
    path = publish_endpoint(ADDRESS, folder.endpoint())
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    said = json.loads(path.read_text())

    path.write_text(json.dumps({**said, "pid": ended.pid}))

    assert client_identity(ADDRESS) is None


def test_where_callers_show_a_certificate_this_users_clients_have_one(folder, monkeypatch):
    publish_endpoint(ADDRESS, folder.endpoint(mtls=True))

    key, certificate = client_identity(ADDRESS).key_and_chain
    monkeypatch.setenv("SPOTLINE_TOKEN", "spl_another")

    assert b"PRIVATE KEY" in key
    assert b"CERTIFICATE" in certificate
    assert client_identity(ADDRESS).key_and_chain == (key, certificate)
    assert "PRIVATE" not in repr(client_identity(ADDRESS))
