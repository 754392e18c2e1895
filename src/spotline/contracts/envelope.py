"""What surrounds a payload on the bus: CloudEvents headers, and the entry it becomes in a stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spotline.contracts.errors import ContractError

SPEC_VERSION = "1.0"
CONTENT_TYPE = "application/protobuf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """One message, ready to publish: identity, cause, and the encoded payload.

    `ts_event_ns` is when it happened in the market's time, 0 where it has none of its own.
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
    trace_headers: Mapping[str, str] = field(default_factory=dict)

    def headers(self) -> dict[str, str]:
        """CloudEvents binary-mode headers, the causation extensions and the deduplication id."""
        return {
            "ce-specversion": SPEC_VERSION,
            "ce-id": self.event_id,
            "ce-type": f"spotline.v1.{self.kind}",
            "ce-source": f"spotline/{self.source}",
            "ce-time": str(self.ts_event_ns),
            "ce-causationid": self.causation_id,
            "ce-correlationid": self.correlation_id,
            "ce-index": str(self.index),
            "content-type": CONTENT_TYPE,
            "Nats-Msg-Id": self.event_id,
            **self.trace_headers,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEntry:
    """One message as the stream holds it: `seq` is the order, `stored_ns` when it was stored."""

    seq: int
    stored_ns: int
    subject: str
    headers: Mapping[str, str]
    payload: bytes

    def envelope(self) -> Envelope:
        """Read the envelope back.

        Raises
        ------
        ContractError
            A header is missing or malformed.
        """
        headers = self.headers
        try:
            return Envelope(
                event_id=headers["ce-id"],
                kind=headers["ce-type"].removeprefix("spotline.v1."),
                source=headers["ce-source"].removeprefix("spotline/"),
                subject=self.subject,
                causation_id=headers.get("ce-causationid", ""),
                correlation_id=headers.get("ce-correlationid", ""),
                index=int(headers.get("ce-index", "0")),
                ts_event_ns=int(headers.get("ce-time", "0")),
                payload=self.payload,
            )
        except KeyError as error:
            raise ContractError(self.subject, f"header {error.args[0]} is missing") from error
        except ValueError as error:
            raise ContractError(self.subject, f"a header is malformed: {error}") from error
