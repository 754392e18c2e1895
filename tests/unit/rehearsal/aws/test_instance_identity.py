"""What an instance proves of itself is verified as AWS's documentation says."""

from __future__ import annotations

import base64
import json

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.serialization import pkcs7

from spotline.rehearsal.aws.identity import CERTIFICATE, IdentitySigner, document_of

DOCUMENT = document_of({"instanceId": "i-0123456789abcdef0", "region": "us-east-1"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("state")
    IdentitySigner(folder)
    return folder


def verify(folder, document, signature):
    certificate = x509.load_pem_x509_certificate((folder / CERTIFICATE).read_bytes())
    certificate.public_key().verify(
        base64.b64decode(signature), document, padding.PKCS1v15(), hashes.SHA256()
    )


def test_signature_is_of_the_documents_bytes_by_the_certificate(folder):
    signature = IdentitySigner(folder).signature(DOCUMENT)

    verify(folder, DOCUMENT, signature)
    with pytest.raises(InvalidSignature):
        verify(folder, DOCUMENT.replace(b"i-0", b"i-1"), signature)


def test_restart_signs_with_the_same_key(folder):
    before = (folder / CERTIFICATE).read_bytes()

    verify(folder, DOCUMENT, IdentitySigner(folder).signature(DOCUMENT))

    assert (folder / CERTIFICATE).read_bytes() == before


def test_document_has_awss_fields():
    told = json.loads(DOCUMENT)

    assert told["version"] == "2017-09-30"
    assert told["marketplaceProductCodes"] is None
    assert told["instanceId"] == "i-0123456789abcdef0"


def test_pkcs7_holds_the_document_and_the_certificate(folder):
    signed = base64.b64decode(IdentitySigner(folder).pkcs7(DOCUMENT))

    (certificate,) = pkcs7.load_der_pkcs7_certificates(signed)
    assert certificate == x509.load_pem_x509_certificate((folder / CERTIFICATE).read_bytes())
    assert DOCUMENT in signed


def test_key_is_for_its_owner_only(folder):
    assert (folder / "instance-identity.key").stat().st_mode & 0o077 == 0
