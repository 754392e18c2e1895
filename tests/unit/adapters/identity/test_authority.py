"""The authority of a store: what it signs, how it is rotated while servers run, who is trusted."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from spotline.adapters.identity.authority import Authority, service_of
from spotline.contracts.errors import ConfigError
from tests.fakes.handshakes import shake_hands

DAY = timedelta(days=1)


def authority_in(folder, now=lambda: datetime.now(UTC)):
    folder.mkdir(exist_ok=True)
    return Authority(folder, title="Spotline authority", now=now)


def test_clients_trust_its_servers_by_their_names_and_those_of_no_other(tmp_path):
    ours, theirs = authority_in(tmp_path / "ours"), authority_in(tmp_path / "theirs")
    shown = ours.server_identity(["gpu-head"])

    for host in ("gpu-head", "localhost", "127.0.0.1"):
        shake_hands(shown, ours.ca_pem, tmp_path / "tls", host=host)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(shown, ours.ca_pem, tmp_path / "tls", host="another")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(shown, theirs.ca_pem, tmp_path / "tls")


def test_an_expired_certificate_is_refused(tmp_path):
    past = authority_in(tmp_path / "a", now=lambda: datetime.now(UTC) - 400 * DAY)

    with pytest.raises(ssl.SSLCertVerificationError, match="certificate has expired"):
        shake_hands(past.server_identity([]), past.ca_pem, tmp_path / "tls")


def test_a_service_shows_itself_by_a_certificate_of_the_authority(tmp_path):
    ours, theirs = authority_in(tmp_path / "ours"), authority_in(tmp_path / "theirs")
    server = ours.server_identity([])

    def seen(client):
        return shake_hands(
            server, ours.ca_pem, tmp_path / "tls", client=client, client_ca=ours.ca_pem
        )

    der = seen(ours.service_identity("selector"))
    assert service_of(x509.load_der_x509_certificate(der).public_bytes(Encoding.PEM)) == "selector"
    for nobody in (None, theirs.service_identity("selector"), server):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            seen(nobody)
    assert service_of(server[1]) == ""


def test_a_rotation_leaves_running_servers_and_waiting_clients_in_trust(tmp_path):
    ours = authority_in(tmp_path / "a")
    before, old_ca = ours.server_identity([]), ours.ca_pem

    ours.rotate()

    after, new_ca = ours.server_identity([]), ours.ca_pem
    assert after != before
    assert new_ca.count("BEGIN CERTIFICATE") == 2
    for shown, ca_pem in ((before, new_ca), (after, old_ca), (after, new_ca)):
        shake_hands(shown, ca_pem, tmp_path / "tls")
    # Another process sees the same.
    assert authority_in(tmp_path / "a").server_identity([]) == after


def test_a_former_authority_that_is_retired_is_trusted_no_more(tmp_path):
    ours = authority_in(tmp_path / "a")
    before, old_ca = ours.server_identity([]), ours.ca_pem
    ours.rotate()

    assert ours.retire_former()
    assert not ours.retire_former()

    after = ours.server_identity([])
    shake_hands(after, ours.ca_pem, tmp_path / "tls")
    for shown, ca_pem in ((before, ours.ca_pem), (after, old_ca)):
        with pytest.raises(ssl.SSLCertVerificationError):
            shake_hands(shown, ca_pem, tmp_path / "tls")


def test_a_rotation_after_a_theft_trusts_the_stolen_authority_no_more(tmp_path):
    ours = authority_in(tmp_path / "a")
    stolen = ours.server_identity([])

    ours.rotate(keep_former=False)

    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(stolen, ours.ca_pem, tmp_path / "tls")


def test_two_rotations_trust_the_last_two_authorities(tmp_path):
    ours = authority_in(tmp_path / "a")
    first = ours.server_identity([])
    ours.rotate()
    second = ours.server_identity([])
    ours.rotate()

    for shown in (second, ours.server_identity([])):
        shake_hands(shown, ours.ca_pem, tmp_path / "tls")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(first, ours.ca_pem, tmp_path / "tls")


def test_a_rotation_that_was_broken_off_is_mended_with_the_next_look(tmp_path):
    ours = authority_in(tmp_path / "a")
    ours.server_identity([])
    certificate = (tmp_path / "a" / "ca.pem").read_bytes()
    ours.rotate()
    (tmp_path / "a" / "ca.pem").write_bytes(certificate)  # the key is new, this is not yet

    again = authority_in(tmp_path / "a")

    shake_hands(again.server_identity([]), again.ca_pem, tmp_path / "tls")


def test_a_folder_that_holds_something_else_is_said(tmp_path):
    ours = authority_in(tmp_path / "a")
    (tmp_path / "a" / "server.key").write_bytes(b"nonsense")

    with pytest.raises(ConfigError, match=r"the certificates in .* cannot be used"):
        ours.server_identity([])
