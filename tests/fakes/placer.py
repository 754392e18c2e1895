"""Regions, links and pipelines to place, a handler played with them, and a host without a broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from spotline.application.placer.handler import PlaceHandler
from spotline.application.placer.messages import pipeline_id_for
from spotline.application.placer.options import PlacerOptions
from spotline.application.spec import Context
from spotline.contracts.build import envelope_for
from spotline.contracts.envelope import Envelope
from spotline.contracts.errors import ProviderUnavailable
from spotline.domain.events.event import Event
from spotline.domain.events.placement import (
    LinkObserved,
    PipelineSubmitted,
    PlacementDecided,
    PlacementEnded,
    RegionObserved,
)
from spotline.domain.placement.graph import Link, Region
from spotline.domain.placement.interface import Residual
from spotline.domain.placement.submission import Pipeline
from spotline.domain.units import NS_PER_S

START_NS = 1_767_225_600_000_000_000


def at(seconds: float) -> int:
    """So many seconds after the start, nanoseconds since the epoch."""
    return START_NS + int(seconds * NS_PER_S)


def region(
    name: str, gpus: int = 8, price: float = 0.2, *, at_s: float = 0, **changes: object
) -> RegionObserved:
    observed = {key: changes.pop(key) for key in ("down", "more_follow") if key in changes}
    ahead = changes.pop("ahead", ())
    return RegionObserved(
        ts_event_ns=at(at_s),
        region=Region(region_id=name, gpus=gpus, energy_usd_per_kwh=price, **changes),
        energy_ahead_usd_per_kwh=ahead,
        **observed,
    )


def link(source: str, destination: str, bytes_per_s: float = 1e9, *, at_s: float = 0, **changes):
    return LinkObserved(
        ts_event_ns=at(at_s),
        link=Link(source=source, destination=destination, bytes_per_s=bytes_per_s, **changes),
    )


def both_ways(one: str, other: str, bytes_per_s: float = 1e9, *, at_s: float = 0, **changes):
    return (
        link(one, other, bytes_per_s, at_s=at_s, **changes),
        link(other, one, bytes_per_s, at_s=at_s, **changes),
    )


TENANT = "research"


def id_of(name: str = "one") -> str:
    """The job id of the pipeline of this name."""
    return pipeline_id_for(TENANT, name)


def pipeline(name: str = "one", **changes: object) -> Pipeline:
    """100 iterations of 8 s on its 8 GPUs (13.4 s on 4 of them)."""
    whole = Pipeline(
        job_id=id_of(name),
        tenant=TENANT,
        client_request_id=name,
        iterations=100,
        microbatches=18,
        compute_s=2.56,
        activation_bytes=0.65e6,
        min_gpus=4,
        max_gpus=8,
        checkpoint_gb=10.0,
        checkpoint_interval_iterations=10,
        restart_s=30.0,
    )
    return replace(whole, **changes)


def submitted(name: str = "one", *, at_s: float = 0, **changes: object) -> PipelineSubmitted:
    return PipelineSubmitted(pipeline=pipeline(name, **changes), ts_event_ns=at(at_s))


_CTX = Context(seq=1, now_ns=0, event_id="e" * 32, correlation_id="c")


class Played:
    """A placer's handler, fed by hand; checks after every event that nothing is over-committed."""

    def __init__(self, *events: Event, **options: object) -> None:
        self.handler = PlaceHandler(PlacerOptions(**options))
        self.state = self.handler.initial()
        self.decided: list[Event] = []
        for event in events:
            self.play(event)

    def play(self, event: Event, ctx: Context = _CTX) -> list[Event]:
        """What follows from an event."""
        self.handler.evolve(self.state, event)
        outcome = self.handler.decide(self.state, event, ctx)
        for output in outcome.events:
            self.handler.evolve(self.state, output)
        if not getattr(event, "more_follow", False):
            check_commitments(self.state)
        self.decided.extend(outcome.events)
        return list(outcome.events)

    def run(self, name: str = "one"):
        """How a pipeline stands."""
        return self.state.status(self.state.runs[id_of(name)])

    def path(self, name: str = "one") -> dict[str, int]:
        """GPUs by region; empty where it has no place."""
        placement = self.run(name).placement
        return {share.region_id: share.gpus for share in placement.path} if placement else {}


def check_commitments(state) -> None:
    """No region gives more GPUs than it has, no link more bandwidth."""
    graph = state.priced_graph().graph
    left = Residual.of(graph, [run.placement for run in state.running()])
    assert (left.gpus >= 0).all(), left.gpus
    assert (left.bytes_per_s >= 0).all(), left.bytes_per_s


def of_type(events, event_type):
    return [event for event in events if isinstance(event, event_type)]


def decisions(events) -> list[tuple[str, str]]:
    """Who, and what was decided or how it ended."""
    said = []
    for event in events:
        if isinstance(event, PlacementDecided):
            said.append((event.job_id, event.outcome.value))
        elif isinstance(event, PlacementEnded):
            said.append((event.job_id, event.end.value))
    return said


class FakePlacerHost:
    """Stores an observation once by its id and handles it at once; `down` refuses to store."""

    def __init__(self, *events: Event, **options: object) -> None:
        self._played = Played(**options)
        self.stored: dict[str, int] = {}
        self.listeners: list[Callable[[Event, Envelope, int], None]] = []
        self.down = False
        self._seq = 0
        for event in events:
            self.record(event)

    @property
    def state(self):
        return self._played.state

    def record(self, event: Event) -> int:
        """Store what came from elsewhere."""
        return self._apply(event, f"event-{self._seq}")

    async def publish_observation(self, event: Event, *, event_id: str, correlation_id: str) -> int:
        if self.down:
            raise ProviderUnavailable("the broker is away")
        if event_id not in self.stored:
            self.stored[event_id] = self._apply(event, event_id)
        return self.stored[event_id]

    def _apply(self, event: Event, event_id: str) -> int:
        for index, one in enumerate([event, *self._played.play(event)]):
            self._seq += 1
            envelope = envelope_for(
                one,
                event_id=f"{event_id}:{index}" if index else event_id,
                source="test",
                causation_id="",
                correlation_id="c",
            )
            for listener in self.listeners:
                listener(one, envelope, self._seq)
        return self._seq
