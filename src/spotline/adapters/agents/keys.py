"""What agents are recognised by, and recognise us by: a folder of keys, made at the first start.

`hmac.key` signs tokens and sessions; `ca.key` and `ca.pem` sign the certificate of the port that
agents dial, `server.key` and `server.pem`. Allocator and actuator share the folder.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from spotline.adapters.agents.signing import KEY_BYTES, Signer
from spotline.adapters.whole_file import replacing
from spotline.contracts.errors import ConfigError

_CA_LASTS = timedelta(days=3650)
_SERVER_LASTS = timedelta(days=397)
# Clocks differ; a certificate is used long before it runs out.
_BACKDATED = timedelta(minutes=5)
_CA_LEFT = timedelta(days=365)
# It is read when a server starts, which may then run for a year.
_SERVER_LEFT = timedelta(days=366)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

Now = Callable[[], datetime]


def utc_now() -> datetime:
    """The wall clock, with its zone."""
    return datetime.now(UTC)


class AgentKeys:
    """The keys in a folder, made where they are missing.

    Parameters
    ----------
    folder
        Only its owner may look into it (0700).
    now
        The wall clock.

    Raises
    ------
    ConfigError
        The folder cannot be used, or holds something else.
    """

    def __init__(self, folder: Path, *, now: Now = utc_now) -> None:
        self._folder = folder
        self._now = now
        try:
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
            with self._locked():
                self.signer = Signer(self._hmac_key())
                self._ca()
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(
                f"the keys of agents in {folder} cannot be used ({error}); name another folder, or "
                "remove it: agents that run then cannot be heard any more"
            ) from error

    @property
    def ca_pem(self) -> str:
        """The certificate that agents check ours against, PEM."""
        return (self._folder / "ca.pem").read_text()

    def server_identity(self, hosts: Sequence[str]) -> tuple[bytes, bytes]:
        """Key and certificate chain, PEM, of a server that is reached as any of `hosts`.

        Renewed where it has less than a year left, or is of other hosts.

        Raises
        ------
        ConfigError
            The folder cannot be used any more.
        """
        try:
            with self._locked():
                return self._server(tuple(dict.fromkeys((*_LOOPBACK, *hosts))))
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(
                f"the keys of agents in {self._folder} cannot be used: {error}"
            ) from error

    # --- inside the lock ------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self._folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _hmac_key(self) -> bytes:
        path = self._folder / "hmac.key"
        if not path.exists():
            _write(path, secrets.token_bytes(KEY_BYTES))
        return path.read_bytes()

    def _ca(self) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
        """The authority; renewed, it keeps its key: what it signed before stays good."""
        key, path = _key_in(self._folder / "ca.key"), self._folder / "ca.pem"
        if path.exists():
            certificate = x509.load_pem_x509_certificate(path.read_bytes())
            if certificate.not_valid_after_utc - self._now() > _CA_LEFT:
                return key, certificate
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Spotline agents")])
        certificate = (
            self._certificate(name, name, key.public_key(), _CA_LASTS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .sign(key, hashes.SHA256())
        )
        _write(path, certificate.public_bytes(serialization.Encoding.PEM))
        return key, certificate

    def _server(self, hosts: tuple[str, ...]) -> tuple[bytes, bytes]:
        key_path, path = self._folder / "server.key", self._folder / "server.pem"
        key, (ca_key, ca) = _key_in(key_path), self._ca()
        names = x509.SubjectAlternativeName([_san(host) for host in hosts])
        if not path.exists() or not self._lasts(path.read_bytes(), names, ca):
            subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Spotline allocator")])
            certificate = (
                self._certificate(subject, ca.subject, key.public_key(), _SERVER_LASTS)
                .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
                .add_extension(_usage(signs=False), critical=True)
                .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
                .add_extension(names, critical=False)
                .add_extension(
                    x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), False
                )
                .sign(ca_key, hashes.SHA256())
            )
            _write(path, certificate.public_bytes(serialization.Encoding.PEM))
        return key_path.read_bytes(), path.read_bytes() + (self._folder / "ca.pem").read_bytes()

    def _lasts(self, pem: bytes, names: x509.SubjectAlternativeName, ca: x509.Certificate) -> bool:
        certificate = x509.load_pem_x509_certificate(pem)
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        left = certificate.not_valid_after_utc - self._now()
        return found == names and left > _SERVER_LEFT and certificate.issuer == ca.subject

    def _certificate(
        self,
        subject: x509.Name,
        issuer: x509.Name,
        public_key: ec.EllipticCurvePublicKey,
        lasts: timedelta,
    ) -> x509.CertificateBuilder:
        now = self._now()
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BACKDATED)
            .not_valid_after(now + lasts)
        )


def _key_in(path: Path) -> ec.EllipticCurvePrivateKey:
    if not path.exists():
        made = ec.generate_private_key(ec.SECP256R1())
        _write(
            path,
            made.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"{path.name} must be a key on an elliptic curve")
    return key


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _san(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    with replacing(path) as unfinished:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
