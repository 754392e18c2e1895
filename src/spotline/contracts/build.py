"""From an event to the message that carries it, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter

from spotline.contracts.codec import decode_told, encode, encode_dead_letter
from spotline.contracts.envelope import Envelope, StoredEntry
from spotline.contracts.errors import ContractError
from spotline.contracts.subjects import (
    DEAD_LETTER_KIND,
    KINDS,
    ROUTES,
    dead_letter_subject,
    on_subject,
    subject_of,
)
from spotline.domain.events.event import Event
from spotline.domain.events.market import QuoteObserved


def ts_event_ns_of(event: Event) -> int:
    """When `event` happened in the market's time, 0 where it has no time of its own."""
    if isinstance(event, QuoteObserved):
        return event.quote.ts_event_ns
    return int(getattr(event, "ts_event_ns", 0))


def _job_id_of(event: Event) -> str:
    """The job or pipeline that `event` is about, empty where it is about none."""
    get = _JOB_IDS.get(type(event))
    return "" if get is None else get(event)


@dataclass(frozen=True, slots=True, kw_only=True)
class AboutJob:
    """The job or pipeline that an event is about, and whose it is; empty for none."""

    job_id: str = ""
    tenant: str = ""


def job_of(event: Event) -> AboutJob:
    """The job or pipeline that `event` is about."""
    job_id, tenant = job_and_tenant_of(event)
    return AboutJob(job_id=job_id, tenant=tenant)


def job_and_tenant_of(event: Event) -> tuple[str, str]:
    """The id of the job or pipeline that `event` is about, and its tenant; empty for none."""
    get = _JOB_IDS.get(type(event))
    if get is None:
        return "", ""
    whose = _TENANTS.get(type(event))
    return str(get(event)), "" if whose is None else str(whose(event))


def _getters(name: str) -> Mapping[type[Event], Callable[[Event], str]]:
    """How the routing field of a name is read from the events that have it."""
    return {
        event_type: attrgetter(field)
        for event_type, route in ROUTES.items()
        for field in route.fields
        if field.rpartition(".")[2] == name
    }


_JOB_IDS = _getters("job_id")
_TENANTS = _getters("tenant")


def envelope_for(
    event: Event,
    *,
    event_id: str,
    source: str,
    causation_id: str,
    correlation_id: str,
    index: int = 0,
    trace_headers: Mapping[str, str] | None = None,
) -> Envelope:
    """Wrap `event`, ready to publish.

    Parameters
    ----------
    event_id
        Derived from cause, kind and index; the broker drops a repeated one.
    source
        The service that publishes.
    causation_id, correlation_id
        The event handled, and the first of the chain.
    index
        Which of the outputs of its cause this is.

    Raises
    ------
    ContractError
        A routing field of the event is empty.
    """
    return Envelope(
        event_id=event_id,
        kind=KINDS[type(event)],
        source=source,
        subject=subject_of(event, source),
        causation_id=causation_id,
        correlation_id=correlation_id,
        index=index,
        ts_event_ns=ts_event_ns_of(event),
        payload=encode(event),
        job_id=_job_id_of(event),
        trace_headers=trace_headers or {},
    )


def dead_letter_for(
    entry: StoredEntry, *, event_id: str, service: str, error: ContractError
) -> Envelope:
    """Wrap what `service` could not read; its cause is the unreadable message, by id or `seq`."""
    return Envelope(
        event_id=event_id,
        kind=DEAD_LETTER_KIND,
        source=service,
        subject=dead_letter_subject(service),
        causation_id=entry.headers.get("ce-id", f"seq-{entry.seq}"),
        correlation_id=entry.headers.get("ce-correlationid", ""),
        index=0,
        ts_event_ns=0,
        payload=encode_dead_letter(entry, service, error),
    )


def is_dead_letter(entry: StoredEntry) -> bool:
    """Whether `entry` is one; it is part of the log, but not an event."""
    return on_subject(DEAD_LETTER_KIND, entry.subject)


def event_of(entry: StoredEntry) -> Event:
    """Decode the event of a stored entry.

    Raises
    ------
    ContractError
        A header is missing, the subject is not of the kind the header states, or the payload
        cannot be decoded.
    """
    envelope = entry.envelope()
    kind = envelope.kind
    event = decode_told(kind, entry.payload, envelope.event_id)
    if not on_subject(kind, entry.subject):
        raise ContractError(entry.subject, f"carries an event of kind {kind}")
    return event
