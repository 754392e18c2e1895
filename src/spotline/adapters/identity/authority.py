"""A certificate authority in a folder, and the certificates that it signs.

`ca.key` and `ca.pem` sign; `former.pem` is the authority before a rotation, trusted until it is
retired; `NAME.key` and `NAME.pem` are what a server or a service shows.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from spotline.adapters.identity.private_files import locked, write_private
from spotline.adapters.identity.wall_clock import Now, utc_now
from spotline.contracts.errors import ConfigError

_CA_LASTS = timedelta(days=3650)
_LEAF_LASTS = timedelta(days=397)
# Clocks differ; a certificate is used long before it runs out.
_BACKDATED = timedelta(minutes=5)
_CA_LEFT = timedelta(days=365)
# It is read when a server starts, which may then run for a year.
_LEAF_LEFT = timedelta(days=366)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_SERVICE_URI = "spotline:service:"
_TAG_BYTES = 4

KeyAndChain = tuple[bytes, bytes]
"""A private key and the certificates that go with it, the leaf first; both PEM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Signing:
    """The authority as it signs now; `chain` is what a client of before a rotation needs, too."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    chain: bytes


class Authority:
    """The authority in a folder, made where there is none. Several processes may share it.

    Parameters
    ----------
    folder
        Is there already, and private.
    title
        What the authority calls itself; a rotated one adds a tag.
    now
        The wall clock.

    Raises
    ------
    OSError, ValueError, TypeError
        The folder cannot be used, or holds something else.
    """

    def __init__(self, folder: Path, *, title: str, now: Now = utc_now) -> None:
        self._folder = folder
        self._title = title
        self._now = now
        with locked(folder):
            self._signing()

    @property
    def ca_pem(self) -> str:
        """The certificates that clients check ours against, PEM: the present one, then a former."""
        with locked(self._folder):
            former = self._former()
            return self._read("ca.pem").decode() + ("" if former is None else _pem(former).decode())

    def server_identity(
        self, hosts: Sequence[str], *, name: str = "server", subject: str = "Spotline server"
    ) -> KeyAndChain:
        """Key and chain of a server that is reached as any of `hosts`, or by loopback.

        Renewed where it has less than a year left, or is of other hosts or another authority.

        Raises
        ------
        ConfigError
            The folder cannot be used any more.
        """
        names = [_san(host) for host in dict.fromkeys((*_LOOPBACK, *hosts))]
        return self._shown(name, subject, names, ExtendedKeyUsageOID.SERVER_AUTH)

    def service_identity(self, service: str) -> KeyAndChain:
        """Key and chain by which a service shows itself to another (mTLS).

        Raises
        ------
        ConfigError
            The folder cannot be used any more.
        """
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(_SERVICE_URI + service)]
        return self._shown(f"service-{service}", service, names, ExtendedKeyUsageOID.CLIENT_AUTH)

    def client_files(self, name: str) -> tuple[Path, Path]:
        """Where key and certificate of a client are, made where they are missing; as above."""
        self.service_identity(name)
        return self._folder / f"service-{name}.key", self._folder / f"service-{name}.pem"

    def rotate(self, *, keep_former: bool = True) -> None:
        """Draw a new key for the authority; certificates are made anew when they are asked for.

        The former stays trusted, and signs the new one, so that clients which know only the former
        trust servers that start from now on; without `keep_former` it is trusted no more.

        Raises
        ------
        ConfigError
            The folder cannot be used any more.
        """
        with self._used(), locked(self._folder):
            former = self._signing()
            key = ec.generate_private_key(ec.SECP256R1())
            certificate = self._self_signed(key, f"{self._title} {secrets.token_hex(_TAG_BYTES)}")
            if keep_former:
                crossed = self._authority(
                    certificate.subject, former.certificate.subject, key.public_key(), 0
                ).sign(former.key, hashes.SHA256())
                write_private(self._folder / "former.pem", _pem(former.certificate))
                write_private(self._folder / "crossed.pem", _pem(crossed))
            else:
                for name in ("former.pem", "crossed.pem"):
                    (self._folder / name).unlink(missing_ok=True)
            # The key first: a certificate without its key is found out, and made again.
            write_private(self._folder / "ca.key", _key_pem(key))
            write_private(self._folder / "ca.pem", _pem(certificate))

    def retire_former(self) -> bool:
        """Trust the authority of before a rotation no more; whether there was one."""
        with self._used(), locked(self._folder):
            there = (self._folder / "former.pem").exists()
            for name in ("former.pem", "crossed.pem"):
                (self._folder / name).unlink(missing_ok=True)
            return there

    # --- inside the lock ------------------------------------------------------------------------

    def _used(self) -> _Usable:
        return _Usable(self._folder)

    def _read(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def _former(self) -> x509.Certificate | None:
        path = self._folder / "former.pem"
        if not path.exists():
            return None
        former = x509.load_pem_x509_certificate(path.read_bytes())
        return former if former.not_valid_after_utc > self._now() else None

    def _signing(self) -> _Signing:
        """The authority; renewed, it keeps its key: what it signed before stays good."""
        key, path = _key_in(self._folder / "ca.key"), self._folder / "ca.pem"
        certificate, title = None, self._title
        if path.exists():
            certificate = x509.load_pem_x509_certificate(path.read_bytes())
            title = _common_name(certificate)
            if certificate.public_key() != key.public_key():
                # A rotation was broken off between its two files.
                title = f"{self._title} {secrets.token_hex(_TAG_BYTES)}"
                certificate = None
            elif certificate.not_valid_after_utc - self._now() <= _CA_LEFT:
                certificate = None
        if certificate is None:
            certificate = self._self_signed(key, title)
            write_private(path, _pem(certificate))
        return _Signing(key=key, certificate=certificate, chain=self._chain(certificate))

    def _chain(self, certificate: x509.Certificate) -> bytes:
        """The authority, by itself and as the former signed it."""
        crossed = self._folder / "crossed.pem"
        if self._former() is not None and crossed.exists():
            found = x509.load_pem_x509_certificate(crossed.read_bytes())
            same_key = found.public_key() == certificate.public_key()
            if same_key and found.subject == certificate.subject:
                return _pem(found)
        return _pem(certificate)

    def _self_signed(self, key: ec.EllipticCurvePrivateKey, title: str) -> x509.Certificate:
        name = _name(title)
        # One authority below it: that of the next rotation.
        return self._authority(name, name, key.public_key(), 1).sign(key, hashes.SHA256())

    def _authority(
        self, subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, below: int
    ) -> x509.CertificateBuilder:
        return (
            self._certificate(subject, issuer, key, _CA_LASTS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=below), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), False)
        )

    def _shown(
        self,
        stem: str,
        subject: str,
        names: Sequence[x509.GeneralName],
        purpose: x509.ObjectIdentifier,
    ) -> KeyAndChain:
        with self._used(), locked(self._folder):
            key_path, path = self._folder / f"{stem}.key", self._folder / f"{stem}.pem"
            key, signing = _key_in(key_path), self._signing()
            alternatives = x509.SubjectAlternativeName(names)
            if not path.exists() or not self._lasts(path.read_bytes(), alternatives, key, signing):
                issuer, signer = signing.certificate.subject, signing.key
                certificate = (
                    self._certificate(_name(subject), issuer, key.public_key(), _LEAF_LASTS)
                    .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
                    .add_extension(_usage(signs=False), critical=True)
                    .add_extension(x509.ExtendedKeyUsage([purpose]), False)
                    .add_extension(alternatives, critical=False)
                    .add_extension(
                        x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),
                        False,
                    )
                    .sign(signer, hashes.SHA256())
                )
                write_private(path, _pem(certificate))
            return key_path.read_bytes(), path.read_bytes() + signing.chain

    def _lasts(
        self,
        pem: bytes,
        names: x509.SubjectAlternativeName,
        key: ec.EllipticCurvePrivateKey,
        signing: _Signing,
    ) -> bool:
        certificate = x509.load_pem_x509_certificate(pem)
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        left = certificate.not_valid_after_utc - self._now()
        return (
            found == names
            and left > _LEAF_LEFT
            and certificate.issuer == signing.certificate.subject
            and certificate.public_key() == key.public_key()
        )

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


class _Usable:
    """Says of a folder that it cannot be used, where it cannot."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, OSError | ValueError | TypeError):
            raise ConfigError(
                f"the certificates in {self._folder} cannot be used: {error}"
            ) from error


def service_of(certificate_pem: bytes) -> str:
    """Which service a client's certificate is of, empty where of none.

    That it was signed by our authority, and is in time, TLS has checked.
    """
    certificate = x509.load_pem_x509_certificate(certificate_pem)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ""
    for uri in names.get_values_for_type(x509.UniformResourceIdentifier):
        if uri.startswith(_SERVICE_URI):
            return uri.removeprefix(_SERVICE_URI)
    return ""


def _key_in(path: Path) -> ec.EllipticCurvePrivateKey:
    if not path.exists():
        write_private(path, _key_pem(ec.generate_private_key(ec.SECP256R1())))
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"{path.name} must be a key on an elliptic curve")
    return key


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _common_name(certificate: x509.Certificate) -> str:
    (found,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found.value)


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
