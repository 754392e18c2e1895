"""Small events, and envelopes around them, for tests of what carries events."""

from spotline.application.spec import derive_id
from spotline.contracts.build import envelope_for
from spotline.contracts.publishers import CAUSED, PUBLISHERS
from spotline.contracts.subjects import KINDS
from spotline.domain.events.forecast import ForecastOverdue
from spotline.domain.events.lifecycle import JobCancelled


def overdue(slot):
    return ForecastOverdue(slot=slot, waited_ms=slot * 7 + 1)


def cancelled(number):
    return JobCancelled(job_id=f"job-{number}", tenant="Team.A")


def envelope(event, *, event_id=None, source=None, causation_id="", index=0):
    """Wrap an event as one that a service has published which may, on a cause where it needs one."""
    kind = KINDS[type(event)]
    if source is None:
        source = min(PUBLISHERS[kind])
    if event_id is None and kind in CAUSED:
        causation_id = causation_id or derive_id(source, repr(event))
        event_id = derive_id(causation_id, kind, index)
    elif event_id is None:
        event_id = derive_id(source, repr(event))
    return envelope_for(
        event,
        event_id=event_id,
        source=source,
        causation_id=causation_id,
        correlation_id=event_id,
        index=index,
    )


def published(events):
    return [envelope(event) for event in events]
