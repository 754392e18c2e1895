"""A signer of identity documents, as a region of AWS is one."""

import base64
import json
from datetime import UTC, datetime
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

ACCOUNT, REGION = "000000000001", "us-east-1"


@cache
def _key(number):
    return rsa.generate_private_key(public_exponent=65537, key_size=1024)


class RegionSigner:
    """Signs as AWS does; `number` tells one key from another."""

    def __init__(self, number=0):
        self.key = _key(number)

    def certificate(self):
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "instance identity")])
        begins = datetime(2000, 1, 1, tzinfo=UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self.key.public_key())
            .serial_number(7)
            .not_valid_before(begins)
            .not_valid_after(begins.replace(year=2199))
            .sign(self.key, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM)

    def sign(self, document):
        text = base64.b64encode(
            self.key.sign(document.encode(), padding.PKCS1v15(), hashes.SHA256())
        ).decode()
        return "\n".join(text[at : at + 64] for at in range(0, len(text), 64))


def document(instance_id="i-1", pending_s=0, **changes):
    said = {
        "accountId": ACCOUNT,
        "architecture": "x86_64",
        "availabilityZone": f"{REGION}a",
        "billingProducts": None,
        "instanceId": instance_id,
        "instanceType": "p4d.24xlarge",
        "pendingTime": f"{datetime.fromtimestamp(pending_s, tz=UTC):%Y-%m-%dT%H:%M:%SZ}",
        "region": REGION,
        "version": "2017-09-30",
    }
    return json.dumps(said | changes, indent=2, separators=(",", " : "))
