"""Whose signature a request carries, and which requests carry none of anybody's."""

from __future__ import annotations

import datetime
from dataclasses import replace

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as SigningCredentials

from spotline.rehearsal.aws.service import AwsError
from spotline.rehearsal.aws.sts import RehearsedKeys, RehearsedRole
from spotline.rehearsal.aws.wire.signing import Credentials, SignedRequest, read_scope, verify

OWNER = Credentials(
    access_key="AKIAOWNER",
    secret_key="a secret",
    account_id="000000000001",
    arn="arn:aws:iam::000000000001:user/owner",
    user_id="AIDAOWNER",
)
KEYS = RehearsedKeys([OWNER], secret=b"of the rehearsal")
ROLE = RehearsedRole(arn="arn:aws:iam::000000000002:role/spotline", external_id="said")
BODY = b"Action=DescribeRegions&Version=2016-11-15"


def signed(*, access_key="AKIAOWNER", secret="a secret", token=None, service="ec2", path="/"):
    request = AWSRequest(
        method="POST",
        url=f"http://127.0.0.1:8080{path}?a=b&c=d%20e",
        data=BODY,
        headers={"Host": "127.0.0.1:8080", "Content-Type": "application/x-www-form-urlencoded"},
    )
    SigV4Auth(SigningCredentials(access_key, secret, token), service, "us-east-1").add_auth(request)
    headers = {name.lower(): value for name, value in request.headers.items()}
    return SignedRequest(method="POST", path=path, query="a=b&c=d%20e", headers=headers, body=BODY)


def when(request, later_s=0):
    moment = datetime.datetime.strptime(request.headers["x-amz-date"] + "+0000", "%Y%m%dT%H%M%SZ%z")
    return (int(moment.timestamp()) + later_s) * 10**9


def check(request, service="ec2", later_s=0, keys=KEYS):
    return verify(request, read_scope(request), service, keys, when(request, later_s))


def test_signature_of_the_owner_is_known():
    request = signed()

    assert check(request) == OWNER
    assert read_scope(request).region == "us-east-1"
    assert read_scope(request).signing_name == "ec2"


def test_path_counts_as_it_was_sent():
    assert check(signed(path="/000000000001/a%20queue")) == OWNER


@pytest.mark.parametrize(
    "changed",
    [
        {"body": BODY + b"&DryRun=true"},
        {"method": "PUT"},
        {"query": "a=b&c=x"},
        {"path": "/other"},
    ],
)
def test_what_was_changed_on_the_way_is_not_what_was_signed(changed):
    with pytest.raises(AwsError) as refusal:
        check(replace(signed(), **changed))

    assert (refusal.value.code, refusal.value.status) == ("SignatureDoesNotMatch", 403)


@pytest.mark.parametrize(
    ("service", "unknown", "wrong"),
    [
        ("ec2", "AuthFailure", "SignatureDoesNotMatch"),
        ("sts", "InvalidClientTokenId", "SignatureDoesNotMatch"),
        ("sqs", "InvalidClientTokenId", "SignatureDoesNotMatch"),
        ("events", "UnrecognizedClientException", "InvalidSignatureException"),
    ],
)
def test_each_service_has_its_words_for_strangers(service, unknown, wrong):
    with pytest.raises(AwsError) as refusal:
        check(signed(access_key="AKIANOBODY", service=service), service)
    assert refusal.value.code == unknown

    with pytest.raises(AwsError) as refusal:
        check(signed(secret="guessed", service=service), service)
    assert refusal.value.code == wrong


def test_request_older_than_five_minutes_is_refused():
    request = signed()

    assert check(request, later_s=299) == OWNER
    for later_s in (301, -301):
        with pytest.raises(AwsError, match="RequestExpired"):
            check(request, later_s=later_s)


def test_request_that_is_not_signed_is_refused():
    bare = replace(signed(), headers={"host": "127.0.0.1"})
    with pytest.raises(AwsError, match="MissingAuthenticationToken"):
        read_scope(bare)

    odd = replace(bare, headers={"authorization": "Basic bWU6bWU="})
    with pytest.raises(AwsError, match="IncompleteSignature"):
        read_scope(odd)


def test_session_signs_until_it_ends_and_survives_a_restart():
    request = signed()
    ends_ns = when(request, later_s=100)
    session = KEYS.begin_session(ROLE, "me", ends_ns, "nonce")
    request = signed(
        access_key=session.access_key, secret=session.secret_key, token=session.session_token
    )
    restarted = RehearsedKeys([OWNER], secret=b"of the rehearsal")

    assert check(request, keys=restarted).account_id == "000000000002"
    assert restarted.owner(session.access_key).arn.endswith(":assumed-role/spotline/me")
    with pytest.raises(AwsError, match="RequestExpired"):
        check(request, later_s=110)
    with pytest.raises(AwsError, match="ExpiredTokenException"):
        check(request, "events", later_s=110)


def test_session_token_cannot_be_made_up_or_moved_to_another_key():
    session = KEYS.begin_session(ROLE, "me", 2**62, "nonce")
    payload, _, proof = session.session_token.partition(".")

    assert KEYS.find(session.access_key, session.session_token) == session
    assert KEYS.find("ASIAOTHER", session.session_token) is None
    assert KEYS.find(session.access_key, f"{payload}.{proof[::-1]}") is None
    assert KEYS.find(session.access_key, "no token") is None
