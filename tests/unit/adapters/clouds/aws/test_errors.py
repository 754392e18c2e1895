"""Every code of AWS has one class; that class decides what follows."""

import pytest
from botocore import exceptions

from spotline.adapters.clouds.aws.api import translated
from spotline.adapters.clouds.aws.errors import (
    AwsRefused,
    NoAnswer,
    NotReached,
    lacks_spot_role,
    refusal_class_of,
)
from spotline.domain.events.capacity import RefusalClass as Class

TABLE = {
    "InsufficientInstanceCapacity": Class.NO_CAPACITY,
    "UnfulfillableCapacity": Class.NO_CAPACITY,
    "SpotMaxPriceTooLow": Class.NO_CAPACITY,
    "MaxSpotInstanceCountExceeded": Class.QUOTA,
    "VcpuLimitExceeded": Class.QUOTA,
    "InstanceLimitExceeded": Class.QUOTA,
    "MaxFleetCountExceeded": Class.QUOTA,
    "ReservationCapacityExceeded": Class.QUOTA,
    "Unsupported": Class.UNSUPPORTED,
    "InvalidParameterValue": Class.UNSUPPORTED,
    "InvalidParameterCombination": Class.UNSUPPORTED,
    "InvalidLaunchTemplateId.NotFound": Class.UNSUPPORTED,
    "InvalidAMIID.NotFound": Class.UNSUPPORTED,
    "PendingVerification": Class.UNSUPPORTED,
    "UnauthorizedOperation": Class.UNAUTHORISED,
    "AccessDenied": Class.UNAUTHORISED,
    "AuthFailure": Class.UNAUTHORISED,
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": Class.UNAUTHORISED,
    "ExpiredToken": Class.UNAUTHORISED,
    "RequestExpired": Class.UNAUTHORISED,
    "ServiceLinkedRoleCreationNotPermitted": Class.UNAUTHORISED,
    "RequestLimitExceeded": Class.THROTTLED,
    "SlowDown": Class.THROTTLED,
    "ThrottlingException": Class.THROTTLED,
    "InternalError": Class.SERVER,
    "ServiceUnavailable": Class.SERVER,
    "Unavailable": Class.SERVER,
    "InsufficientFreeAddressesInSubnet": Class.NETWORK,
    "IdempotentParameterMismatch": Class.TOKEN_MISMATCH,
    "IdempotentInstanceTerminated": Class.TOKEN_MISMATCH,
}


@pytest.mark.parametrize(("code", "expected"), TABLE.items())
def test_a_code_has_its_class(code, expected):
    assert refusal_class_of(code) is expected


def test_an_unknown_code_is_the_servers_only_where_the_status_says_so():
    assert refusal_class_of("NeverHeardOf", 503) is Class.SERVER
    assert refusal_class_of("NeverHeardOf", 400) is Class.UNSUPPORTED


def test_the_role_of_the_spot_service_is_a_matter_of_spot_alone():
    assert lacks_spot_role("AuthFailure.ServiceLinkedRoleCreationNotPermitted")
    assert not lacks_spot_role("AuthFailure")


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (exceptions.ConnectTimeoutError(endpoint_url="u"), NotReached),
        (exceptions.EndpointConnectionError(endpoint_url="u"), NotReached),
        (exceptions.SSLError(endpoint_url="u", error="e"), NotReached),
        (exceptions.ReadTimeoutError(endpoint_url="u"), NoAnswer),
        (exceptions.ConnectionClosedError(endpoint_url="u"), NoAnswer),
        (exceptions.HTTPClientError(error="reset"), NoAnswer),
        (exceptions.IncompleteReadError(actual_bytes=1, expected_bytes=2), NoAnswer),
        (ConnectionResetError(), NoAnswer),
    ],
    ids=lambda one: getattr(one, "__name__", type(one).__name__),
)
def test_only_what_was_never_sent_is_known_to_have_done_nothing(raised, expected):
    assert type(translated(exceptions, "create_fleet", raised)) is expected


def test_a_refusal_keeps_its_words_and_how_long_to_wait():
    said = exceptions.ClientError(
        {
            "Error": {"Code": "RequestLimitExceeded", "Message": "slower"},
            "ResponseMetadata": {"HTTPStatusCode": 503, "HTTPHeaders": {"retry-after": "7"}},
        },
        "CreateFleet",
    )

    refused = translated(exceptions, "create_fleet", said)

    assert isinstance(refused, AwsRefused)
    assert (refused.refusal_class, refused.retry_after_s) == (Class.THROTTLED, 7)
    assert str(refused) == "RequestLimitExceeded: slower"


@pytest.mark.parametrize(
    "raised",
    [
        exceptions.NoCredentialsError(),
        exceptions.CredentialRetrievalError(provider="p", error_msg="m"),
    ],
    ids=lambda raised: type(raised).__name__,
)
def test_without_credentials_the_account_is_closed_to_us(raised):
    refused = translated(exceptions, "describe_instances", raised)

    assert refused.refusal_class is Class.UNAUTHORISED


def test_an_error_that_nobody_knows_is_not_hidden():
    bug = KeyError("oops")

    assert translated(exceptions, "create_fleet", bug) is bug
