"""What an instance of EC2 shows instead of a token: its identity document, signed by AWS.

Nothing that an instance is given is secret: its user data can be read by every process, and by all
who may describe it. The document is no secret either, but it is of this one instance, and counts
once. `signature` is the base64 of an RSA-SHA256 signature (PKCS #1 v1.5) of the document's bytes; AWS
publishes a certificate per region.
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/verify-signature.html
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from spotline.adapters.identity.signing import ForgedStatement
from spotline.contracts.errors import ConfigError
from spotline.domain.units import NS_PER_S

# Every process imports this module, and few ever read a certificate: cryptography is imported then.
if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import rsa


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRules:
    """Whose instances of EC2 may join by their identity documents.

    Parameters
    ----------
    certificates
        A folder with `REGION.pem` for each region, or one file for all of them, as a rehearsal has
        it; in each one certificate or several.
    accounts
        Ids of accounts, twelve digits each.
    """

    certificates: Path
    accounts: tuple[str, ...]
    regions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedDocument:
    """What a document says that AWS has signed; `pending_ns` is when the instance was launched."""

    instance_id: str
    account_id: str
    region: str
    pending_ns: int


class IdentityDocuments:
    """Reads documents by rules.

    Raises
    ------
    ConfigError
        There is no certificate for a region, or what is there is none of an RSA key.
    """

    def __init__(self, rules: DocumentRules) -> None:
        self._rules = rules
        self._keys = {region: _keys_of(rules.certificates, region) for region in rules.regions}

    def read(self, document: str, signature: str) -> SignedDocument:
        """What a document says.

        Raises
        ------
        ForgedStatement
            AWS did not sign it, or it is of another account or region; says in which way.
        """
        said = _fields(document)
        region, account_id = _text(said, "region"), _text(said, "accountId")
        keys = self._keys.get(region)
        if keys is None:
            raise ForgedStatement(f"region {region[:40]!r} is none of ours")
        if account_id not in self._rules.accounts:
            raise ForgedStatement(f"account {account_id[:40]!r} is none of ours")
        if not any(_signed(key, document, signature) for key in keys):
            raise ForgedStatement(f"it was not signed by AWS for region {region}")
        return SignedDocument(
            instance_id=_text(said, "instanceId"),
            account_id=account_id,
            region=region,
            pending_ns=_moment_ns(_text(said, "pendingTime")),
        )


def _fields(document: str) -> Mapping[str, object]:
    try:
        said = json.loads(document)
    except (ValueError, RecursionError) as error:
        raise ForgedStatement("it is no JSON") from error
    if not isinstance(said, dict):
        raise ForgedStatement("it is no JSON object")
    return said


def _text(said: Mapping[str, object], name: str) -> str:
    value = said.get(name)
    if not isinstance(value, str) or not value:
        raise ForgedStatement(f"{name} is missing")
    return value


def _moment_ns(text: str) -> int:
    try:
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as error:
        raise ForgedStatement(f"pendingTime is no time: {text[:40]!r}") from error
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()) * NS_PER_S


def _signed(key: rsa.RSAPublicKey, document: str, signature: str) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    try:
        given = base64.b64decode("".join(signature.split()), validate=True)
        key.verify(given, document.encode(), padding.PKCS1v15(), hashes.SHA256())
    except (binascii.Error, ValueError, InvalidSignature):
        return False
    return True


def _keys_of(certificates: Path, region: str) -> tuple[rsa.RSAPublicKey, ...]:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import rsa

    path = certificates / f"{region}.pem" if certificates.is_dir() else certificates
    try:
        found = x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path}: expected the certificate that AWS publishes for identity documents of {region}, "
            f"PEM, found: {error} (docs/agent.md)"
        ) from error
    keys = [certificate.public_key() for certificate in found]
    wrong = [type(key).__name__ for key in keys if not isinstance(key, rsa.RSAPublicKey)]
    if wrong:
        raise ConfigError(
            f"{path}: expected certificates of RSA keys, found one of {wrong[0]}: take the one for "
            "base64-encoded signatures (docs/agent.md)"
        )
    return tuple(key for key in keys if isinstance(key, rsa.RSAPublicKey))
