"""Refusals over HTTP: `application/problem+json` (RFC 9457), in the words that gRPC uses."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

from starlette.responses import Response

from spotline.adapters.web.encoding import json_text
from spotline.application.read_model.ports import ViewRefused
from spotline.contracts.reasons import Reason

PROBLEM_JSON = "application/problem+json"

_STATUS: Mapping[Reason, HTTPStatus] = MappingProxyType(
    {
        Reason.FIELD_INVALID: HTTPStatus.BAD_REQUEST,
        Reason.UNAUTHENTICATED: HTTPStatus.UNAUTHORIZED,
        Reason.ROLE_DENIED: HTTPStatus.FORBIDDEN,
        Reason.TENANT_DENIED: HTTPStatus.FORBIDDEN,
        Reason.UNKNOWN_JOB: HTTPStatus.NOT_FOUND,
        Reason.MARKET_NOT_OPEN: HTTPStatus.SERVICE_UNAVAILABLE,
        Reason.SERVER_STOPPING: HTTPStatus.SERVICE_UNAVAILABLE,
        Reason.AUDIT_UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
        Reason.VIEWS_UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
        Reason.TOO_MANY_REQUESTS: HTTPStatus.TOO_MANY_REQUESTS,
        Reason.WATCH_TOO_SLOW: HTTPStatus.GONE,
    }
)
_RETRY_S = 1


def status_of(refused: ViewRefused) -> HTTPStatus:
    """The status that a refusal is answered with."""
    return _STATUS.get(refused.reason, HTTPStatus.INTERNAL_SERVER_ERROR)


def problem_of(refused: ViewRefused) -> dict[str, Any]:
    """What a refusal says, as an object."""
    status = status_of(refused)
    return {
        "type": f"urn:spotline:reason:{refused.reason.name.lower()}",
        # What follows it speaks of gRPC's details, or of what `detail` says.
        "title": refused.reason.value.partition(";")[0],
        "status": status.value,
        "detail": str(refused),
        "reason": refused.reason.name,
        "problems": [
            {"field": problem.field, "expected": problem.expected, "found": problem.found}
            for problem in refused.problems
        ],
    }


def refusal(refused: ViewRefused) -> Response:
    """Answer with a refusal."""
    return _response(problem_of(refused))


def plain_problem(
    status: HTTPStatus, detail: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Answer with a problem of HTTP's own, such as a method that is not served."""
    return _response(
        {
            "type": "about:blank",
            "title": status.phrase,
            "status": status.value,
            "detail": detail,
            "reason": None,
            "problems": [],
        },
        headers,
    )


def _response(problem: dict[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    status: int = problem["status"]
    more = dict(headers or {})
    if status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS):
        more.setdefault("Retry-After", str(_RETRY_S))
    if status == HTTPStatus.UNAUTHORIZED:
        more.setdefault("WWW-Authenticate", 'Bearer realm="spotline"')
    return Response(json_text(problem), status, more, PROBLEM_JSON)
