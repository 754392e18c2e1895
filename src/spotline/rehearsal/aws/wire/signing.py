"""Who signed a request: AWS's signature version 4, computed again and compared."""

from __future__ import annotations

import datetime
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from spotline.rehearsal.aws.service import AwsError

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/,\s]+)/(?P<date>\d{8})/(?P<region>[^/,\s]+)"
    r"/(?P<service>[^/,\s]+)/aws4_request,\s*SignedHeaders=(?P<headers>[^,\s]+),"
    r"\s*Signature=(?P<signature>[0-9a-f]{64})"
)
_TIME = "%Y%m%dT%H%M%SZ"
# "A request must reach AWS within five minutes of its time stamp": IAM user guide, "Signature
# Version 4 request signing", on protection against reuse.
SKEW_S = 300
# What the hash of the body is called when it was not signed.
_UNSIGNED = "UNSIGNED-PAYLOAD"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """An access key, and whose it is.

    Parameters
    ----------
    session_token
        Of a session of an assumed role; empty: a key of its own.
    expires_wall_ns
        When a session ends, in wall time: those who sign go by their own clocks. 0: never.
    """

    access_key: str
    secret_key: str
    account_id: str
    arn: str
    user_id: str
    session_token: str = ""
    expires_wall_ns: int = 0


class KeyRing(Protocol):
    """Who knows which keys there are."""

    def find(self, access_key: str, session_token: str) -> Credentials | None:
        """The credentials of a key; None: there is no such key, or the token is not its own."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRequest:
    """An HTTP request as far as its signature goes; header names in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureScope:
    """What the header says of a signature, before anything of it is believed."""

    access_key: str
    date: str
    region: str
    signing_name: str
    signed_headers: tuple[str, ...]
    signature: str


def read_scope(request: SignedRequest) -> SignatureScope:
    """Read the header `Authorization`.

    Raises
    ------
    AwsError
        There is none, or it is none of signature version 4.
    """
    header = request.headers.get("authorization", "")
    if not header:
        raise AwsError(
            "MissingAuthenticationToken", "Request is missing Authentication Token", status=403
        )
    found = _AUTHORIZATION.fullmatch(header.strip())
    if found is None:
        raise AwsError(
            "IncompleteSignature", "Authorization header must be one of AWS4-HMAC-SHA256 with "
            "Credential, SignedHeaders and Signature", status=400,
        )  # fmt: skip
    return SignatureScope(
        access_key=found["key"],
        date=found["date"],
        region=found["region"],
        signing_name=found["service"],
        signed_headers=tuple(found["headers"].split(";")),
        signature=found["signature"],
    )


# What each service calls the same refusal, with its HTTP status; "" stands for those of `json`.
_UNKNOWN_KEY = {
    "ec2": ("AuthFailure", 401),
    "sts": ("InvalidClientTokenId", 403),
    "sqs": ("InvalidClientTokenId", 403),
    "iam": ("InvalidClientTokenId", 403),
    "": ("UnrecognizedClientException", 400),
}
_WRONG = {
    "ec2": ("SignatureDoesNotMatch", 403),
    "sts": ("SignatureDoesNotMatch", 403),
    "sqs": ("SignatureDoesNotMatch", 403),
    "iam": ("SignatureDoesNotMatch", 403),
    "": ("InvalidSignatureException", 400),
}
_SESSION_OVER = {
    "ec2": ("RequestExpired", 400),
    "sts": ("ExpiredToken", 403),
    "sqs": ("ExpiredToken", 403),
    "iam": ("ExpiredToken", 403),
    "": ("ExpiredTokenException", 400),
}
_SKEWED = {**_WRONG, "ec2": ("RequestExpired", 400)}


def verify(
    request: SignedRequest, scope: SignatureScope, service: str, keys: KeyRing, wall_ns: int
) -> Credentials:
    """Find whose signature it is.

    Parameters
    ----------
    service
        The service's name, for the words of a refusal.
    wall_ns
        Wall time now.

    Raises
    ------
    AwsError
        The key is unknown, the signature or body is not what was signed, the request is too old or
        too new, or the session is over.
    """
    token = request.headers.get("x-amz-security-token", "")
    credentials = keys.find(scope.access_key, token)
    if credentials is None:
        raise _refuse(_UNKNOWN_KEY, service, _unknown_sentence(service))
    signed_at = _time(request, scope, service)
    if not hmac.compare_digest(_signature(request, scope, credentials), scope.signature):
        raise _refuse(
            _WRONG, service, "The request signature we calculated does not match the signature you "
            "provided. Check your AWS Secret Access Key and signing method.",
        )  # fmt: skip
    away_s = abs(wall_ns / 1e9 - signed_at.timestamp())
    if away_s > SKEW_S:
        raise _refuse(
            _SKEWED, service, f"Signature expired: {signed_at.strftime(_TIME)} is {away_s:.0f} s from "
            f"the server's time, {SKEW_S} s are allowed",
        )  # fmt: skip
    if credentials.expires_wall_ns and wall_ns >= credentials.expires_wall_ns:
        raise _refuse(
            _SESSION_OVER, service, "The security token included in the request is expired"
        )
    return credentials


def _refuse(codes: Mapping[str, tuple[str, int]], service: str, sentence: str) -> AwsError:
    code, status = codes.get(service, codes[""])
    return AwsError(code, sentence, status=status)


def _unknown_sentence(service: str) -> str:
    if service == "ec2":
        return "AWS was not able to validate the provided access credentials"
    return "The security token included in the request is invalid."


def _time(request: SignedRequest, scope: SignatureScope, service: str) -> datetime.datetime:
    text = request.headers.get("x-amz-date", "")
    try:
        moment = datetime.datetime.strptime(text, _TIME).replace(tzinfo=datetime.UTC)
    except ValueError as error:
        raise _refuse(
            _WRONG, service, f"X-Amz-Date must be like 20260101T000000Z, was {text!r}"
        ) from error
    if text[:8] != scope.date:
        raise _refuse(_WRONG, service, f"the scope's date must be that of X-Amz-Date ({text[:8]})")
    signed_hash = request.headers.get("x-amz-content-sha256", "")
    if signed_hash not in ("", _UNSIGNED, hashlib.sha256(request.body).hexdigest()):
        raise _refuse(_WRONG, service, "the body is not that of X-Amz-Content-SHA256")
    if "host" not in scope.signed_headers:
        raise _refuse(_WRONG, service, "'Host' must be a 'SignedHeader' in the AWS Authorization")
    return moment


def _signature(request: SignedRequest, scope: SignatureScope, credentials: Credentials) -> str:
    """The signature that the owner of the secret gives this request: botocore computes it."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials as SigningCredentials

    signer = SigV4Auth(
        SigningCredentials(
            credentials.access_key, credentials.secret_key, credentials.session_token or None
        ),
        scope.signing_name,
        scope.region,
    )
    url = f"http://{request.headers.get('host', '')}{request.path}"
    if request.query:
        url = f"{url}?{request.query}"
    signed = {name: request.headers.get(name, "") for name in scope.signed_headers}
    again = AWSRequest(method=request.method, url=url, headers=signed, data=request.body)
    again.context["timestamp"] = request.headers["x-amz-date"]
    if request.headers.get("x-amz-content-sha256") == _UNSIGNED:
        again.headers["X-Amz-Content-SHA256"] = _UNSIGNED
    text = signer.string_to_sign(again, signer.canonical_request(again))
    return str(signer.signature(text, again))
