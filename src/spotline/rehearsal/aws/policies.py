"""Resource policies, as far as a queue's goes that lets EventBridge send to it."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class PolicyError(ValueError):
    """A policy is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRequest:
    """What somebody wants to do: principals such as `events.amazonaws.com`, and what is known of it.

    `context` has the keys of conditions in lower case, such as `aws:sourcearn`.
    """

    principal: str
    action: str
    resource: str
    context: Mapping[str, str]


def read_policy(text: str) -> tuple[Mapping[str, Any], ...]:
    """The statements of a policy.

    Raises
    ------
    PolicyError
        It is no JSON, or a statement lacks what each has.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise PolicyError(f"must be JSON: {error}") from error
    if not isinstance(document, dict) or "Statement" not in document:
        raise PolicyError("must be an object with Statement")
    statements = _listed(document["Statement"])
    for statement in statements:
        missing = {"Effect", "Principal", "Action", "Resource"} - set(statement)
        if missing:
            raise PolicyError(f"a statement must have {', '.join(sorted(missing))}")
        if statement["Effect"] not in ("Allow", "Deny"):
            raise PolicyError(f"Effect must be Allow or Deny, was {statement['Effect']!r}")
    return tuple(statements)


def allows(statements: tuple[Mapping[str, Any], ...], request: AccessRequest) -> bool:
    """Whether some statement allows it and none denies it."""
    effects = {one["Effect"] for one in statements if _applies(one, request)}
    return effects == {"Allow"}


def _applies(statement: Mapping[str, Any], request: AccessRequest) -> bool:
    return (
        _is_of(statement["Principal"], request.principal)
        and any(
            _like(action.lower(), request.action.lower()) for action in _listed(statement["Action"])
        )
        and any(_like(resource, request.resource) for resource in _listed(statement["Resource"]))
        and all(
            _holds(operator, tests, request.context, denies=statement["Effect"] == "Deny")
            for operator, tests in statement.get("Condition", {}).items()
        )
    )


def _is_of(principal: Any, wanted: str) -> bool:
    if principal == "*":
        return True
    return isinstance(principal, Mapping) and wanted in _listed(principal.get("Service", []))


def _holds(
    operator: str, tests: Mapping[str, Any], context: Mapping[str, str], *, denies: bool
) -> bool:
    if operator in ("ArnEquals", "ArnLike", "StringLike"):
        match = _like
    elif operator in ("StringEquals", "Bool"):
        match = _same
    else:
        # What cannot be judged is judged against who asks.
        return denies
    return all(
        any(match(pattern, context.get(key.lower(), "")) for pattern in _listed(patterns))
        for key, patterns in tests.items()
    )


def _same(pattern: object, text: str) -> bool:
    # A policy may say true for "true".
    return (str(pattern).lower() if isinstance(pattern, bool) else pattern) == text


def _like(pattern: str, text: str) -> bool:
    # `[` is a letter like any other in a policy.
    return fnmatch.fnmatchcase(text, pattern.replace("[", "[[]"))


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]
