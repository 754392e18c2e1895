"""What a service has set aside, so far as a retry has to be held against it.

A retry comes under a name of its own (`operator`), and so could anything that pretends to be one.
It is believed where it is what this service had set aside, byte for byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from spotline.application.unfit import Forged
from spotline.contracts.envelope import OPERATOR, Envelope
from spotline.contracts.publishers import why_forged
from spotline.domain.events.event import Event

# Of older ones a person can no more be asked to vouch.
_MOST = 1 << 13
_NOTE = "set-aside"


class SetAside:
    """The digests of the events that a service has parked of late, but for forged ones."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._digests: dict[str, str] = {}

    def keep(self, envelope: Envelope) -> None:
        """Remember an event that is parked."""
        self._digests[envelope.event_id] = _digest(envelope)
        if len(self._digests) > _MOST:
            del self._digests[next(iter(self._digests))]

    def check(self, event: Event, envelope: Envelope, own: str = "") -> None:
        """Refuse what nobody has published who may; `own` as in `why_forged`.

        Raises
        ------
        Forged
            Its source may not publish it, or it is a retry of nothing that was set aside.
        """
        if envelope.source == OPERATOR:
            self._check_retry(envelope)
            return
        forged = why_forged(event, envelope, own)
        if forged is not None:
            raise Forged(*forged)

    def _check_retry(self, envelope: Envelope) -> None:
        known = self._digests.get(envelope.causation_id)
        if known is None:
            expected = f"the id of an event that {self._service} has set aside"
            raise Forged("ce-causationid", expected, envelope.causation_id or "empty")
        found = _digest(envelope)
        if found != known:
            raise Forged("payload", f"that of {envelope.causation_id} ({known})", found)

    def noted(self) -> Sequence[str]:
        """A line for each, oldest first, which no id of an event looks like."""
        return [f"{_NOTE} {event_id} {digest}" for event_id, digest in self._digests.items()]

    def take_note(self, line: str) -> bool:
        """Remember what `noted` has written; False where it is no such line."""
        name, _, rest = line.partition(" ")
        event_id, _, digest = rest.rpartition(" ")
        if name != _NOTE or not event_id:
            return False
        self._digests[event_id] = digest
        return True


def _digest(envelope: Envelope) -> str:
    return hashlib.sha256(f"{envelope.kind}\x1f".encode() + envelope.payload).hexdigest()[:32]
