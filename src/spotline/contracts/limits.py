"""What callers are bound by, at every door alike: files, gRPC, HTTP, and the bus.

What a log or a store holds already is read whatever it is: doors are for what comes in.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

LONGEST_NAME = 200
"""As many characters a name or an id may have."""

MESSAGE_BYTES = 8 << 20
"""As large a message may be: over gRPC in and out, and on the bus (`max_payload`)."""

JOB_BYTES = 1 << 20
"""As large a job may be that is submitted: wherever jobs go together, many must fit."""

_SHOWN = 80


def name_problem(text: str) -> str:
    """What is wrong with a name or an id, empty where nothing is."""
    if len(text) > LONGEST_NAME:
        return f"must have at most {LONGEST_NAME} characters, had {len(text):,}"
    if not text.isprintable():
        return f"must be one line without control characters, was {text[:_SHOWN]!r}"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerLimits:
    """How much a server takes at a time; what is more is told when to come again.

    Parameters
    ----------
    most_calls, most_calls_a_tenant
        In flight, of all and of one tenant: one tenant leaves room for the others.
    most_streams, most_streams_a_tenant
        Open, such as watches.
    most_allocations
        Calls of `Allocate` in flight: the selector's have places of their own.
    most_open_jobs_a_tenant
        Jobs of one tenant that are not over.
    """

    most_calls: int = 1_024
    most_calls_a_tenant: int = 256
    most_streams: int = 4_096
    most_streams_a_tenant: int = 1_024
    most_allocations: int = 64
    most_open_jobs_a_tenant: int = 10_000

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value < 1:
                raise ValueError(f"{field.name} must be >= 1, was {value}")
