"""What goes wrong over gRPC: refusals as a server states them, failures as a client sees them.

A refusal carries a `google.rpc.Status` with exactly one `ErrorInfo`, and where they fit
`BadRequest` (every field that is wrong), `PreconditionFailure`, `QuotaFailure` and `RetryInfo`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2 as details  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from spotline.application.admission import Refused
from spotline.contracts.errors import ContractError, FieldViolation, SpotlineError
from spotline.contracts.reasons import ERROR_DOMAIN, Reason
from spotline.domain.problems import problems_of
from spotline.domain.units import utc_iso

# Trailing metadata. Every refusal of ours names a field (perhaps ""): without it, the status is
# gRPC's own, such as a connection that failed. The first two stay until 0.4.0.
FIELD_KEY = "spotline-field"
EARLIEST_DEADLINE_KEY = "earliest-feasible-deadline"
STATUS_KEY = "grpc-status-details-bin"

_EARLIEST_DETAIL = "earliestFeasibleDeadline"

# A caller takes 8 KB of metadata unless it says otherwise. The message (three for a byte, where it
# is percent-encoded) and the details (four for three, in base64) share them.
_MESSAGE_BYTES = 1200
_DETAIL_BYTES = 300
_VIOLATIONS_BYTES = 2000

_RETRY_S = 1.0

ServerContext = grpc.aio.ServicerContext[Any, Any]


class RpcRefused(SpotlineError):
    """The server will not do what was asked; raised inside, sent as a status.

    Parameters
    ----------
    field
        The field at fault, empty for none; the first of `violations` where these are given.
    violations
        Every field that is wrong; by default `field` and the message.
    retry_s
        When it is worth trying again, for what passes by itself.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        message: str,
        *,
        reason: Reason,
        field: str = "",
        violations: Sequence[FieldViolation] = (),
        earliest_feasible_deadline_ns: int = 0,
        retry_s: float = _RETRY_S,
    ) -> None:
        super().__init__(_shortened(message, _MESSAGE_BYTES))
        self.code = code
        self.reason = reason
        self.field = field or (violations[0].field if violations else "")
        self.violations = tuple(violations)
        self.earliest_feasible_deadline_ns = earliest_feasible_deadline_ns
        self.retry_s = retry_s

    def trailing_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        """The status with its details; field and earliest deadline as before 0.3.0, too."""
        metadata: list[tuple[str, str | bytes]] = [
            (FIELD_KEY, self.field.encode("ascii", "replace").decode()),
            (STATUS_KEY, self._status().SerializeToString()),
        ]
        if self.earliest_feasible_deadline_ns:
            metadata.append((EARLIEST_DEADLINE_KEY, utc_iso(self.earliest_feasible_deadline_ns)))
        return tuple(metadata)

    def _status(self) -> Status:
        told = _shortened(str(self), _DETAIL_BYTES)
        status = Status(code=self.code.value[0], message=told)
        for detail in (self._error_info(), *self._further_details()):
            packed = AnyMessage()
            packed.Pack(detail)
            status.details.append(packed)
        return status

    def _error_info(self) -> details.ErrorInfo:
        metadata = {}
        if self.field:
            metadata["field"] = _shortened(self.field, _DETAIL_BYTES)
        if self.earliest_feasible_deadline_ns:
            metadata[_EARLIEST_DETAIL] = utc_iso(self.earliest_feasible_deadline_ns)
        return details.ErrorInfo(reason=self.reason.name, domain=ERROR_DOMAIN, metadata=metadata)

    def _further_details(self) -> Sequence[Message]:
        said: list[Message] = []
        fields = self._fields_at_fault()
        if fields:
            said.append(details.BadRequest(field_violations=fields))
        if self.code is grpc.StatusCode.FAILED_PRECONDITION:
            violation = details.PreconditionFailure.Violation(
                type=self.reason.name,
                subject=self.field,
                description=_shortened(str(self), _DETAIL_BYTES),
            )
            said.append(details.PreconditionFailure(violations=[violation]))
        if self.code is grpc.StatusCode.RESOURCE_EXHAUSTED:
            quota = details.QuotaFailure.Violation(
                subject=self.reason.name, description=_shortened(str(self), _DETAIL_BYTES)
            )
            said.append(details.QuotaFailure(violations=[quota]))
        if self.code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED):
            delay = Duration()
            delay.FromNanoseconds(round(self.retry_s * 1e9))
            said.append(details.RetryInfo(retry_delay=delay))
        return said

    def _fields_at_fault(self) -> list[details.BadRequest.FieldViolation]:
        """Every field that is wrong, as far as a caller's metadata have room."""
        given = self.violations
        if not given and self.field:
            given = (FieldViolation(field=self.field, description=str(self)),)
        found: list[details.BadRequest.FieldViolation] = []
        room = _VIOLATIONS_BYTES
        for number, violation in enumerate(given):
            said = details.BadRequest.FieldViolation(
                field=_shortened(violation.field, _DETAIL_BYTES),
                description=_shortened(violation.description, _DETAIL_BYTES),
            )
            room -= said.ByteSize()
            if found and room < 0:
                more = f"{len(given) - number} more are wrong"
                found.append(details.BadRequest.FieldViolation(description=more))
                break
            found.append(said)
        return found


def _shortened(text: str, most_bytes: int) -> str:
    # What a caller wrote comes back to whoever shows it: nothing in it moves a terminal's cursor.
    text = "".join(mark if mark.isprintable() else repr(mark)[1:-1] for mark in text)
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= most_bytes:
        return encoded.decode()
    return encoded[: most_bytes - 3].decode("utf-8", "ignore") + "..."


def refusal_of(refused: Refused) -> RpcRefused:
    """Turn an admission refusal into a status: input that can be mended is INVALID_ARGUMENT."""
    earliest_ns = refused.earliest_feasible_deadline_ns
    lasting = refused.permanent or earliest_ns
    message = f"{refused.field} {refused.message}"
    if earliest_ns:
        message = f"{message}; ask for {utc_iso(earliest_ns)} or later"
    return RpcRefused(
        grpc.StatusCode.FAILED_PRECONDITION if lasting else grpc.StatusCode.INVALID_ARGUMENT,
        _and_more(message, len(refused.others)),
        reason=refused.reason,
        field=refused.field,
        violations=[
            FieldViolation(field=wrong.field, description=wrong.message)
            for wrong in (refused, *refused.others)
        ],
        earliest_feasible_deadline_ns=earliest_ns,
    )


def invalid(error: ValueError) -> RpcRefused:
    """Turn a value error, whose problems begin with their fields, into INVALID_ARGUMENT."""
    problems = problems_of(error)
    violations = []
    for problem in problems:
        field, _, said = problem.partition(" ")
        violations.append(FieldViolation(field=field.rstrip(":"), description=said))
    return RpcRefused(
        grpc.StatusCode.INVALID_ARGUMENT,
        _and_more(problems[0], len(problems) - 1),
        reason=Reason.FIELD_INVALID,
        violations=violations,
    )


def unreadable(error: ContractError) -> RpcRefused:
    """Turn a request that breaks the contract into INVALID_ARGUMENT, with every such field."""
    # "SubmitRequest job.work": the message's name means nothing to the caller.
    field = error.where.partition(" ")[2]
    message = f"{field}: {error.problem}" if field else error.problem
    if not field and not error.violations:
        field = error.where
    return RpcRefused(
        grpc.StatusCode.INVALID_ARGUMENT,
        _and_more(message, len(error.violations) - 1),
        reason=Reason.FIELD_INVALID,
        field=field,
        violations=error.violations,
    )


def _and_more(message: str, others: int) -> str:
    if others < 1:
        return message
    return f"{message} (and {others} more field{'s are' if others > 1 else ' is'} wrong)"


# --- as a client sees it ----------------------------------------------------------------------


class RpcFailed(SpotlineError):
    """A call failed. `code` is the status's name, `field` the first that the server found at fault.

    `violations` are all such fields, `reason` why in one word (a `Reason`'s name where the server
    is of this release), `unreachable` says that there was no answer, as opposed to one that
    refuses, `retry_s` when the server says that it is worth trying again, 0 where it does not.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        field: str = "",
        reason: str = "",
        violations: Sequence[FieldViolation] = (),
        earliest_feasible_deadline: str = "",
        unreachable: bool = False,
        retry_s: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.field = field
        self.reason = reason
        self.violations = tuple(violations)
        self.earliest_feasible_deadline = earliest_feasible_deadline
        self.unreachable = unreachable
        self.retry_s = retry_s

    @property
    def bad_input(self) -> bool:
        """Whether the request itself was wrong."""
        return self.code == grpc.StatusCode.INVALID_ARGUMENT.name


def failure_of(
    error: grpc.aio.AioRpcError, address: str, *, service: str = "allocator"
) -> RpcFailed:
    """Read what a failed call to a service says."""
    metadata: Any = error.trailing_metadata() or ()
    trailing = {str(key): value for key, value in metadata}
    code = error.code()
    message = error.details() or code.name
    answered = FIELD_KEY in trailing
    unreachable = not answered and code in (
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        # The server ended; to cancel is the caller's, and raises no such error.
        grpc.StatusCode.CANCELLED,
    )
    if unreachable:
        late = code is grpc.StatusCode.DEADLINE_EXCEEDED
        what = "did not answer in time" if late else "cannot be reached"
        message = f"the {service} at {address} {what} ({in_words(message)})"
    reason, violations, retry_s = _read_details(trailing)
    return RpcFailed(
        code.name,
        message,
        field=str(trailing.get(FIELD_KEY, "")),
        reason=reason,
        violations=violations,
        earliest_feasible_deadline=str(trailing.get(EARLIEST_DEADLINE_KEY, "")),
        unreachable=unreachable,
        retry_s=retry_s,
    )


# What TLS says on this side, by what gRPC makes of it; the first that fits is told.
_TLS_WORDS = (
    (
        "certificate has expired",
        "its certificate has expired: restart it, it then shows a new one, or set this machine's clock",
    ),
    (
        "certificate is not yet valid",
        "its certificate is not valid yet: set this machine's clock, or the server's",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "no authority that is trusted here signed its certificate: name the server's own "
        "(SPOTLINE_CA, or spotline context add --ca)",
    ),
    (
        "Hostname Verification Check failed",
        "its certificate is for another name: dial it by that name, or state the name in a context",
    ),
    (
        "WRONG_VERSION_NUMBER",
        "it speaks in the clear where TLS was expected: it runs without identity, or another server "
        "is there; unset SPOTLINE_TOKEN and SPOTLINE_CA, or use another context",
    ),
    (
        "Socket closed",
        "it closed the connection: it asks for TLS, or for a client's certificate; name its "
        "authority and a token (SPOTLINE_CA and SPOTLINE_TOKEN, or spotline context add)",
    ),
)
_NO_CONNECTION = "failed to connect to all addresses"


def was_hung_up(message: str) -> bool:
    """Whether gRPC says of a call that it was never sent, though somebody listened."""
    return _NO_CONNECTION in message and "refused" not in message.lower()


def in_words(message: str) -> str:
    """What gRPC says of a connection that failed, with what to do about it where that is known."""
    if _NO_CONNECTION not in message:
        return message
    for mark, words in _TLS_WORDS:
        if mark in message:
            return words
    return message


def reason_told(trailing_metadata: Iterable[tuple[str, Any]]) -> str:
    """The reason in one word that a status of ours goes out with, empty for another's."""
    return _read_details({str(key): value for key, value in trailing_metadata})[0]


def _read_details(trailing: Mapping[str, Any]) -> tuple[str, Sequence[FieldViolation], float]:
    """Reason, fields at fault, and when to try again; nothing where a server is another's."""
    try:
        status = Status.FromString(trailing.get(STATUS_KEY, b""))
    except DecodeError:
        return "", (), 0.0
    reason, violations, retry_s = "", [], 0.0
    for packed in status.details:
        info, bad, retry = details.ErrorInfo(), details.BadRequest(), details.RetryInfo()
        if packed.Unpack(info) and info.domain == ERROR_DOMAIN:
            reason = info.reason
        elif packed.Unpack(bad):
            violations = [
                FieldViolation(field=said.field, description=said.description)
                for said in bad.field_violations
            ]
        elif packed.Unpack(retry):
            retry_s = retry.retry_delay.ToNanoseconds() / 1e9
    return reason, violations, retry_s
