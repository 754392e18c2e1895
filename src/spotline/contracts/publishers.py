"""Who may publish what: the one table of it.

Every service checks what it consumes by it, and a broker's permissions follow from it. Of a kind
that travels in batches `subjects.PRODUCERS` says it; here is the rest, and the check.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from spotline.contracts.envelope import Envelope, derive_id
from spotline.contracts.subjects import KINDS, PRODUCERS, SINGLE_KINDS, speaker_of, token
from spotline.domain.events import (
    agreement,
    allocation,
    capacity,
    freeze,
    lifecycle,
    limits,
    market,
    modes,
    parking,
    placement,
    statistics,
)
from spotline.domain.events.event import Event

STORE = "store"
"""Whoever opens a store says so in its log: that it goes on as another incarnation."""

RETRIES_BY = "allocator"
"""The service that publishes parked events again, in batches of the source `operator`."""

SERVICES: frozenset[str] = frozenset({*PRODUCERS, "analytics", "read_model"})
"""All that publish anything at all."""

_PARKS = SERVICES - {"analytics"}
_FREEZES = frozenset({"market_ingest", "selector", "allocator", "cloud_actuator"})
# Kinds that stand alone in the log: no batch says whose they are.
_SINGLE: Mapping[type[Event], frozenset[str]] = {
    market.MarketOpened: frozenset({"market_ingest"}),
    market.SlotOpened: frozenset({"market_ingest"}),
    placement.PipelineSubmitted: frozenset({"placer"}),
    placement.PipelineReleased: frozenset({"placer"}),
    placement.PlacementDecided: frozenset({"placer"}),
    placement.PlacementEnded: frozenset({"placer"}),
    statistics.MarketStatisticsIssued: frozenset({"analytics"}),
    statistics.PlatformStatisticsIssued: frozenset({"analytics"}),
    parking.EntryParked: _PARKS,
    parking.ParkedEntryRetried: frozenset({"allocator"}),
    parking.ParkedEntryDropped: frozenset({"allocator"}),
    freeze.BuyingFrozen: _FREEZES,
    freeze.BuyingUnfrozen: _FREEZES,
    agreement.AgreementChecked: frozenset({"cloud_actuator"}),
    agreement.IncarnationBegun: frozenset({STORE}),
    agreement.OrphanFound: frozenset({"cloud_actuator"}),
    agreement.OrphanSettled: frozenset({"cloud_actuator"}),
    agreement.OrphanReapRequested: frozenset({"allocator"}),
    modes.AccountModeSet: frozenset({"market_ingest", "allocator"}),
    limits.LimitSet: frozenset({"allocator"}),
}


def _table() -> Iterator[tuple[str, frozenset[str]]]:
    for event_type, kind in KINDS.items():
        if kind in SINGLE_KINDS:
            yield kind, _SINGLE[event_type]
        else:
            yield (
                kind,
                frozenset(name for name, produced in PRODUCERS.items() if event_type in produced),
            )


PUBLISHERS: Mapping[str, frozenset[str]] = MappingProxyType(dict(_table()))
"""By kind, the services that may publish it, alone or in batches of their own."""

CAUSED: frozenset[str] = frozenset(
    KINDS[event_type]
    for event_type in (
        allocation.AllocationDecided,
        capacity.ProvisioningCommanded,
        capacity.SlotDecided,
        lifecycle.JobAdmitted,
        lifecycle.JobRetryScheduled,
        lifecycle.JobClosed,
        placement.PlacementDecided,
        placement.PlacementEnded,
        placement.PipelineProvisioningCommanded,
    )
)
"""Kinds that are only ever decided on an entry of the log: their ids follow from that one's."""


def why_forged(event: Event, envelope: Envelope, own: str = "") -> tuple[str, str, str] | None:
    """What shows that nobody who may has published `event`; None for nothing.

    Parameters
    ----------
    own
        A service that publishes this kind beside those of the table: the one that asks.

    Returns
    -------
    tuple[str, str, str]
        The field of the envelope, what was expected there, and what was found.
    """
    source = envelope.source
    may = PUBLISHERS[KINDS[type(event)]]
    if source not in may and not (own and source == own):
        return "ce-source", f"{' or '.join(sorted(may))} for {envelope.kind}", repr(source)
    speaker = speaker_of(envelope.kind, envelope.subject)
    if speaker is not None and speaker != token(source):
        return "ce-source", f"{speaker}, on whose subject it stands", repr(source)
    if envelope.carried_by_other:
        return "ce-source", f"{envelope.carrier}, in whose batch it came", repr(source)
    if isinstance(event, parking.EntryParked) and event.service != source:
        return "service", f"{source}, who says it", repr(event.service)
    if envelope.kind not in CAUSED:
        return None
    if not envelope.causation_id:
        return "ce-causationid", f"the entry that a {envelope.kind} was decided on", "empty"
    expected = derive_id(envelope.causation_id, envelope.kind, envelope.index)
    if envelope.event_id != expected:
        return "ce-id", f"{expected}, which follows from its cause", envelope.event_id
    return None
