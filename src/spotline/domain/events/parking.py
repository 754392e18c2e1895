"""Entries of the log that a service could not take: `parking.proto`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryParked:
    """A service could not apply an entry, or not decide on it: for it, the entry is not there.

    `seq` and `place` are where the log holds it, `event_id` its id. `job_id` and `tenant` may be
    empty, `slot` is -1 where it is about none. `error` is one line; `error_type` names the fault.
    """

    service: str
    seq: int
    place: int
    event_id: str
    kind: str
    error: str
    error_type: str
    job_id: str = ""
    tenant: str = ""
    slot: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedEntryRetried:
    """The event that `service` had parked was published again, as `retried_as`."""

    service: str
    event_id: str
    retried_as: str
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedEntryDropped:
    """The event that `service` had parked is given up."""

    service: str
    event_id: str
    by: str = ""
    detail: str = ""
