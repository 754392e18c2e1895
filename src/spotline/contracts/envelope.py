"""What surrounds a payload on the bus: CloudEvents headers, and the entry it becomes in a stream."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from spotline.contracts.errors import ContractError
from spotline.domain.units import ns_from_rfc3339, rfc3339_of_ns

SPEC_VERSION = "1.0"
CONTENT_TYPE = "application/protobuf"


def derive_id(cause_id: str, kind: str, index: int = 0) -> str:
    """Hash (cause, kind, index) to 32 hexadecimal digits."""
    return hashlib.sha256(f"{cause_id}\x1f{kind}\x1f{index}".encode()).hexdigest()[:32]


OPERATOR = "operator"
"""The source of an event that a person had published again."""


def retry_id(event_id: str, service: str) -> str:
    """The id of a parked event that is published again for the service that had parked it."""
    return derive_id(event_id, f"retried:{service}")


def answer_id(call_id: str, left: int) -> str:
    """The id of the answer to a call that `left` others follow; the last has the call's own."""
    return derive_id(call_id, "before", left - 1) if left else call_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """One message, ready to publish: identity, cause, and the encoded payload.

    `ts_event_ns` is when it happened in the market's time, 0 where it has none of its own;
    `job_id` the job or pipeline that it is about, empty where it is about none. `stored_ns` is when
    the stream stored it, in wall time (0: it has not, or that is not known), `carrier` the service
    in whose batch it came (empty: in none); they are no part of it.
    """

    event_id: str
    kind: str
    source: str
    subject: str
    causation_id: str
    correlation_id: str
    index: int
    ts_event_ns: int
    payload: bytes
    job_id: str = ""
    trace_headers: Mapping[str, str] = field(default_factory=dict)
    stored_ns: int = field(default=0, compare=False)
    carrier: str = field(default="", compare=False)

    @property
    def carried_by_other(self) -> bool:
        """Whether it came in a batch of another than its source."""
        return self.carrier not in ("", self.source)

    def is_for(self, service: str) -> bool:
        """Whether a service is to take it: what is published again is for one that had parked it.

        All others have taken the event when it came first.
        """
        return self.source != OPERATOR or self.event_id == retry_id(self.causation_id, service)

    def headers(self) -> dict[str, str]:
        """CloudEvents binary-mode headers, the extensions and the deduplication id.

        `ce-time` and `ce-timens` (the same to the nanosecond, as an integer) are left out where
        the event has no time in the market, `ce-subject` where it is about no job.
        """
        own: dict[str, str] = {}
        if self.job_id:
            own["ce-subject"] = self.job_id
        if self.ts_event_ns:
            own["ce-time"] = rfc3339_of_ns(self.ts_event_ns)
            own["ce-timens"] = str(self.ts_event_ns)
        return {
            "ce-specversion": SPEC_VERSION,
            "ce-id": self.event_id,
            "ce-type": f"spotline.v1.{self.kind}",
            "ce-source": f"spotline/{self.source}",
            **own,
            "ce-causationid": self.causation_id,
            "ce-correlationid": self.correlation_id,
            "ce-index": str(self.index),
            "content-type": CONTENT_TYPE,
            "Nats-Msg-Id": self.event_id,
            **self.trace_headers,
        }


class CarriedHeaders(Mapping[str, str]):
    """The headers of an event that a batch carried, written out when somebody asks."""

    __slots__ = ("_headers", "envelope")

    def __init__(self, envelope: Envelope) -> None:
        self.envelope = envelope
        self._headers: dict[str, str] | None = None

    def _all(self) -> dict[str, str]:
        if self._headers is None:
            self._headers = self.envelope.headers()
        return self._headers

    def __getitem__(self, name: str) -> str:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return repr(self._all())


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEntry:
    """One message as the stream holds it: `seq` is the order, `stored_ns` when it was stored.

    `place` tells the events of a batch apart, which share a `seq`.
    """

    seq: int
    stored_ns: int
    subject: str
    headers: Mapping[str, str]
    payload: bytes
    place: int = 0

    def envelope(self) -> Envelope:
        """Read the envelope back.

        Raises
        ------
        ContractError
            A header is missing or malformed.
        """
        headers = self.headers
        if isinstance(headers, CarriedHeaders):
            carried = headers.envelope
            if carried.stored_ns == self.stored_ns:
                return carried
            return replace(carried, stored_ns=self.stored_ns)
        try:
            return Envelope(
                event_id=headers["ce-id"],
                kind=headers["ce-type"].removeprefix("spotline.v1."),
                source=headers["ce-source"].removeprefix("spotline/"),
                subject=self.subject,
                causation_id=headers.get("ce-causationid", ""),
                correlation_id=headers.get("ce-correlationid", ""),
                index=int(headers.get("ce-index", "0")),
                ts_event_ns=_market_time_ns(headers),
                payload=self.payload,
                job_id=headers.get("ce-subject", ""),
                stored_ns=self.stored_ns,
            )
        except KeyError as error:
            raise ContractError(self.subject, f"header {error.args[0]} is missing") from error
        except ValueError as error:
            raise ContractError(self.subject, f"a header is malformed: {error}") from error


def _market_time_ns(headers: Mapping[str, str]) -> int:
    """When it happened, ns since the epoch, 0 for no time of its own; reads older forms too.

    Before 0.3.0 `ce-time` held the nanoseconds; a foreign publisher may leave `ce-timens` out.
    """
    exact = headers.get("ce-timens")
    if exact is not None:
        return int(exact)
    said = headers.get("ce-time", "0")
    return int(said) if said.lstrip("-").isdecimal() else ns_from_rfc3339(said)
