"""What AWS says when it refuses, and the class that decides the reaction.

The codes: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html, Karpenter's
`pkg/errors/errors.go`, SkyPilot's `FailoverCloudErrorHandlerV2`.
"""

from __future__ import annotations

from spotline.contracts.errors import SpotlineError
from spotline.domain.events.capacity import RefusalClass

_CLASSES: dict[RefusalClass, tuple[str, ...]] = {
    RefusalClass.NO_CAPACITY: (
        *("InsufficientInstanceCapacity", "UnfulfillableCapacity", "SpotMaxPriceTooLow"),
        *("InsufficientHostCapacity", "InsufficientReservedInstanceCapacity"),
        *("InsufficientCapacity", "InsufficientCapacityOnHost", "MinTargetCapacityNotMet"),
    ),
    RefusalClass.QUOTA: (
        *("MaxSpotInstanceCountExceeded", "VcpuLimitExceeded", "InstanceLimitExceeded"),
        *("MaxFleetCountExceeded", "ReservationCapacityExceeded", "InstanceCreditLimitExceeded"),
        *("VolumeLimitExceeded", "MaxIOPSLimitExceeded", "FleetLimitExceeded"),
    ),
    RefusalClass.UNSUPPORTED: (
        *("Unsupported", "UnsupportedOperation", "UnsupportedInstanceType", "PendingVerification"),
        *("OptInRequired", "InvalidAction", "MissingParameter", "UnknownParameter"),
    ),
    RefusalClass.UNAUTHORISED: (
        *("UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "AuthFailure"),
        *("ExpiredToken", "ExpiredTokenException", "RequestExpired", "InvalidClientTokenId"),
        *("UnrecognizedClientException", "SignatureDoesNotMatch", "IncompleteSignature"),
        *("Blocked", "InvalidSecurityToken", "OptInRequiredException"),
    ),
    RefusalClass.THROTTLED: (
        *("RequestLimitExceeded", "SlowDown", "Throttling", "ThrottlingException"),
        *("ThrottledException", "TooManyRequestsException", "RequestThrottled"),
        *("RequestThrottledException", "BandwidthLimitExceeded", "LimitExceededException"),
    ),
    RefusalClass.SERVER: (
        *("InternalError", "InternalFailure", "InternalServerError", "ServiceUnavailable"),
        *("ServiceUnavailableException", "Unavailable", "ServerInternal", "RequestTimeout"),
    ),
    RefusalClass.NETWORK: ("InsufficientFreeAddressesInSubnet", "PrivateIpAddressLimitExceeded"),
    # The call is looked up by its tag; the next command brings another token.
    RefusalClass.TOKEN_MISMATCH: (
        *("IdempotentParameterMismatch", "IdempotentInstanceTerminated"),
        *("IdempotentParameterMismatchException",),
    ),
}
_BY_CODE = {code: kind for kind, codes in _CLASSES.items() for code in codes}
_BY_PREFIX = (
    ("AuthFailure.", RefusalClass.UNAUTHORISED),
    ("InvalidParameter", RefusalClass.UNSUPPORTED),
    ("InvalidLaunchTemplate", RefusalClass.UNSUPPORTED),
    # An id in a launch template, such as InvalidAMIID.NotFound, InvalidSubnetID.NotFound.
    ("Invalid", RefusalClass.UNSUPPORTED),
)
_SERVER_STATUS = 500

# AWS wants one role in an account before it sells any spot there:
# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/service-linked-roles-spot-instance-requests.html
_SPOT_ROLE = (
    "ServiceLinkedRoleCreationNotPermitted",
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
)


class AwsRefused(SpotlineError):
    """AWS answered no. `retry_after_s` is what it asks us to wait, 0 where it says nothing."""

    def __init__(
        self, code: str, message: str, *, status: int = 400, retry_after_s: int = 0
    ) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code
        self.message = message
        self.status = status
        self.retry_after_s = retry_after_s

    @property
    def refusal_class(self) -> RefusalClass:
        """What decides the reaction."""
        return refusal_class_of(self.code, self.status)


class NotReached(SpotlineError):
    """A call never got there: it did nothing."""


class NoAnswer(SpotlineError):
    """A call was sent and not answered: only AWS knows what it did."""


def is_passing(error: Exception) -> bool:
    """Whether the same reading call is worth another try at once: nothing says that it is not."""
    if isinstance(error, AwsRefused):
        return error.refusal_class is RefusalClass.SERVER
    return isinstance(error, NotReached | NoAnswer)


def refusal_class_of(code: str, status: int = 400) -> RefusalClass:
    """The class of an error's code; one that nobody knows is the server's from status 500 on.

    Of a code that is not known below that the offering is not asked again until somebody has looked.
    """
    if code in _SPOT_ROLE:
        return RefusalClass.UNAUTHORISED
    known = _BY_CODE.get(code)
    if known is not None:
        return known
    for prefix, kind in _BY_PREFIX:
        if code.startswith(prefix):
            return kind
    return RefusalClass.SERVER if status >= _SERVER_STATUS else RefusalClass.UNSUPPORTED


def lacks_spot_role(code: str) -> bool:
    """Whether an account may buy no spot at all, for want of the role of the spot service."""
    return code in _SPOT_ROLE
