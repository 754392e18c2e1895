"""The keys of agents: made once, shared, renewed; tokens and sessions that nobody else can make."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from spotline.adapters.agents.enrolment import SignedEnrolment, read_token
from spotline.adapters.agents.keys import AgentKeys
from spotline.adapters.identity.instances import (
    Identity,
    InstanceSessions,
    JoinedStanding,
    sha256_of,
)
from spotline.adapters.identity.signing import ForgedStatement, Signer
from spotline.contracts.errors import ConfigError, Unauthenticated
from tests.fakes.handshakes import shake_hands
from tests.fakes.signed_tokens import MovedClock

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def user_data(keys, *, now=lambda: NOW):
    enrolment = SignedEnrolment(keys, advertise="gpu-head:7443", now=now)
    return enrolment.user_data(instance_id="i-1", job_id="j-1", tenant="acme")


def test_keys_are_made_once_and_only_their_owner_may_read_them(tmp_path):
    folder = tmp_path / "store" / "agents"
    token = user_data(AgentKeys(folder))["SPOTLINE_JOIN_TOKEN"]

    again = AgentKeys(folder)

    assert read_token(again.signer, token).identity == Identity(instance_id="i-1", job_id="j-1")
    assert folder.stat().st_mode & 0o777 == 0o700
    again.server_identity(["gpu-head"])
    names = {path.name for path in folder.iterdir()} - {"lock"}
    assert names == {"hmac.key", "ca.key", "ca.pem", "server.key", "server.pem"}
    assert all((folder / name).stat().st_mode & 0o077 == 0 for name in names)


def test_user_data_holds_what_an_agent_needs_and_no_lasting_secret(tmp_path):
    keys = AgentKeys(tmp_path)
    data = user_data(keys)

    assert set(data) == {
        *("SPOTLINE_CONTROL", "SPOTLINE_CONTROL_CA", "SPOTLINE_INSTANCE_ID"),
        *("SPOTLINE_JOB_ID", "SPOTLINE_JOIN_TOKEN"),
    }
    assert data["SPOTLINE_CONTROL"] == "gpu-head:7443"
    assert "PRIVATE" not in data["SPOTLINE_CONTROL_CA"]
    assert x509.load_pem_x509_certificate(data["SPOTLINE_CONTROL_CA"].encode())


def test_a_token_says_that_it_expires_in_a_day(tmp_path):
    keys = AgentKeys(tmp_path)
    token = user_data(keys)["SPOTLINE_JOIN_TOKEN"]

    assert read_token(keys.signer, token).expires_s == (NOW + timedelta(days=1)).timestamp()


def test_nothing_that_was_changed_or_signed_for_something_else_is_taken(tmp_path):
    keys = AgentKeys(tmp_path / "ours")
    other = AgentKeys(tmp_path / "theirs")
    token = user_data(keys)["SPOTLINE_JOIN_TOKEN"]
    standing = JoinedStanding(nonce_sha256=sha256_of("n" * 32), generation=0)
    sessions = InstanceSessions(keys.signer, lambda _: None, lasts_s=600, now=lambda: NOW)
    session = sessions.open(Identity(instance_id="i-1", job_id="j-1"), standing)
    purpose, payload, mac = token.split(".")
    # Keys are drawn: no letter of what they sign is known before.
    other_letter = "B" if mac[0] == "A" else "A"

    for forged in (
        user_data(other)["SPOTLINE_JOIN_TOKEN"],
        session,
        f"{purpose}.{payload}",
        f"{purpose}.{payload}.{other_letter}{mac[1:]}",
        f"{purpose}.{payload}.é",
        f"{purpose}.{'A' + payload[1:]}.{mac}",
        "",
    ):
        with pytest.raises(ForgedStatement):
            read_token(keys.signer, forged)
    with pytest.raises(Unauthenticated, match="it is no session"):
        sessions.caller(token)


def test_the_certificate_is_renewed_before_it_runs_out_and_for_another_host(tmp_path):
    def certificate(days, host="gpu-head"):
        keys = AgentKeys(tmp_path, now=lambda: NOW + timedelta(days=days))
        _, chain = keys.server_identity([host])
        return x509.load_pem_x509_certificates(chain)[0]

    first = certificate(0)

    assert certificate(20) == first
    assert certificate(40) != first
    renewed = certificate(41)
    other = certificate(42, host="10.0.0.7")
    assert other != renewed
    names = other.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "10.0.0.7" in [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]


def test_an_authority_that_is_renewed_keeps_its_key(tmp_path):
    first = x509.load_pem_x509_certificate(AgentKeys(tmp_path, now=lambda: NOW).ca_pem.encode())
    late = AgentKeys(tmp_path, now=lambda: NOW + timedelta(days=3400))
    renewed = x509.load_pem_x509_certificate(late.ca_pem.encode())

    assert renewed != first
    assert renewed.public_key() == first.public_key()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_stock_client_trusts_it_by_name_and_no_other_authority(tmp_path, host):
    keys = AgentKeys(tmp_path / "ours")
    shown = keys.server_identity(["localhost"])

    shake_hands(shown, keys.ca_pem, tmp_path / "tls", host=host)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(shown, AgentKeys(tmp_path / "theirs").ca_pem, tmp_path / "tls", host=host)


def test_a_folder_that_holds_something_else_is_refused(tmp_path):
    (tmp_path / "hmac.key").write_bytes(b"short")

    with pytest.raises(ConfigError, match="key must have 32 bytes, had 5"):
        AgentKeys(tmp_path)


def test_the_keys_of_a_store_of_before_stay_as_they_are(tmp_path):
    """Releases before 0.4 made authorities that sign no other one."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Spotline agents")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=30))
        .not_valid_after(now + timedelta(days=3000))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path / "agents"
    folder.mkdir()
    (folder / "hmac.key").write_bytes(b"k" * 32)
    (folder / "ca.key").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    (folder / "ca.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    token = Signer(b"k" * 32).sign(
        "join", {"instance": "i-1", "job": "j-1", "tenant": "acme", "expires_s": 1 << 40}
    )

    keys = AgentKeys(folder)

    assert keys.ca_pem.encode() == certificate.public_bytes(Encoding.PEM)
    shake_hands(keys.server_identity(["gpu-head"]), keys.ca_pem, tmp_path / "tls", host="gpu-head")
    assert read_token(keys.signer, token).identity.instance_id == "i-1"


# --- rotation ---------------------------------------------------------------------------------


def test_what_was_signed_before_a_rotation_counts_for_its_grace(tmp_path):
    clock = MovedClock()
    running, rotating = AgentKeys(tmp_path, now=clock), AgentKeys(tmp_path, now=clock)
    before = user_data(running)["SPOTLINE_JOIN_TOKEN"]
    rotating.rotate(clock() + timedelta(hours=1))

    # A process that runs signs with the new key at once, and reads both.
    after = user_data(running)["SPOTLINE_JOIN_TOKEN"]
    assert before != after
    for token in (before, after):
        assert read_token(running.signer, token).identity.instance_id == "i-1"
    clock.pass_s(3600)
    with pytest.raises(ForgedStatement, match="not signed here"):
        read_token(running.signer, before)
    assert read_token(running.signer, after)
    assert (tmp_path / "hmac.former.json").stat().st_mode & 0o077 == 0


def test_after_a_theft_nothing_of_the_former_key_counts(tmp_path):
    running = AgentKeys(tmp_path)
    once = user_data(running)["SPOTLINE_JOIN_TOKEN"]
    AgentKeys(tmp_path).rotate(datetime.now(UTC) + timedelta(hours=1))
    twice = user_data(running)["SPOTLINE_JOIN_TOKEN"]
    AgentKeys(tmp_path).rotate(None)

    for token in (once, twice):
        with pytest.raises(ForgedStatement, match="not signed here"):
            read_token(running.signer, token)


def test_a_former_key_that_cannot_be_read_is_named(tmp_path):
    AgentKeys(tmp_path)
    (tmp_path / "hmac.former.json").write_text('{"format_version": 1, "key": "x", "until_s": 1}')

    with pytest.raises(ConfigError, match=r"hmac\.former\.json: key"):
        AgentKeys(tmp_path)
