"""Instance identity documents, and the key that the rehearsal signs them with.

AWS's own forms: `signature` is the base64 of an RSA-SHA256 signature (PKCS #1 v1.5) of the document's
bytes; `pkcs7` and `rsa2048` are PKCS #7 messages that hold the document. AWS signs `pkcs7` with DSA;
here it is RSA, too.
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/verify-signature.html
"""

from __future__ import annotations

import base64
import datetime
import json
import os
from collections.abc import Mapping
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import pkcs7
from cryptography.x509.oid import NameOID

CERTIFICATE = "instance-identity.pem"
"""Name of the certificate in the folder of state; what a verifier is given."""
_KEY = "instance-identity.key"


class IdentitySigner:
    """Signs documents of instances.

    Parameters
    ----------
    folder
        Where its key and certificate are, or will be; so a restart signs with the same.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.certificate_path = folder / CERTIFICATE
        key_path = folder / _KEY
        if not (key_path.exists() and self.certificate_path.exists()):
            _make(key_path, self.certificate_path)
        key = serialization.load_pem_private_key(key_path.read_bytes(), password=None)
        if not isinstance(key, rsa.RSAPrivateKey):
            raise TypeError(f"{key_path} must hold an RSA key, was {type(key).__name__}")
        self._key = key
        self._certificate = x509.load_pem_x509_certificate(self.certificate_path.read_bytes())

    def signature(self, document: bytes) -> str:
        """The base64 signature, in lines as AWS breaks them."""
        return _lines(self._key.sign(document, padding.PKCS1v15(), hashes.SHA256()))

    def pkcs7(self, document: bytes) -> str:
        """The document within its PKCS #7 signature, base64, without header and footer."""
        builder = pkcs7.PKCS7SignatureBuilder().set_data(document)
        signed = builder.add_signer(self._certificate, self._key, hashes.SHA256()).sign(
            serialization.Encoding.DER, [pkcs7.PKCS7Options.Binary]
        )
        return _lines(signed)


def document_of(told: Mapping[str, str]) -> bytes:
    """The document's bytes: AWS's fields, those of no use here null; the same each time."""
    nothing = dict.fromkeys(
        (
            "billingProducts",
            "devpayProductCodes",
            "marketplaceProductCodes",
            "kernelId",
            "ramdiskId",
        )
    )
    said = {**nothing, **told, "version": "2017-09-30"}
    return json.dumps(said, sort_keys=True, indent=2, separators=(",", " : ")).encode()


def _make(key_path: Path, certificate_path: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Rehearsal of AWS"),
            x509.NameAttribute(NameOID.COMMON_NAME, "instance identity"),
        ]
    )
    # Market time may be any; AWS's own certificates last for decades.
    begins = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins.replace(year=2199))
        .sign(key, hashes.SHA256())
    )
    with os.fdopen(os.open(key_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
    certificate_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _lines(raw: bytes) -> str:
    text = base64.b64encode(raw).decode("ascii")
    return "\n".join(text[at : at + 64] for at in range(0, len(text), 64))
