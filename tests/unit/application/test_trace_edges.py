"""The table of trace edges says what the SPECs say."""

from __future__ import annotations

from spotline.application.allocator import handler as allocator
from spotline.application.analytics import handler as analytics
from spotline.application.cloud_actuator import handler as cloud_actuator
from spotline.application.configurator import handler as configurator
from spotline.application.forecaster import handler as forecaster
from spotline.application.market_ingest import handler as market_ingest
from spotline.application.placer import handler as placer
from spotline.application.read_model import handler as read_model
from spotline.application.selector import handler as selector
from spotline.contracts.subjects import KINDS
from spotline.domain.events.agreement import IncarnationBegun
from tests.fakes.trace_edges import TABLE, Edge, listed_edges

SPECS = tuple(
    module.SPEC
    for module in (
        market_ingest,
        forecaster,
        selector,
        allocator,
        configurator,
        placer,
        cloud_actuator,
        analytics,
        read_model,
    )
)
# What a feed says of a live market comes back to its service by the log.
SPECS = (*SPECS, market_ingest.LIVE_SPEC)
SERVICES = {spec.service for spec in SPECS}


def test_a_message_goes_from_who_produces_to_all_who_consume_it() -> None:
    flows = {
        Edge(KINDS[event_type], source.service, target.service)
        for source in SPECS
        for event_type in source.produces
        for target in SPECS
        if event_type in target.consumes
    }
    # Applied at once where it is decided; what is also observed comes round.
    own = {
        Edge(KINDS[event_type], spec.service, spec.service)
        for spec in SPECS
        for event_type in spec.decides
    }
    always, sometimes = listed_edges()
    listed = {edge for edge in always | sometimes if "/" not in edge.what}

    assert listed - flows == set()
    assert flows - listed <= own


def test_no_service_lists_an_event_twice() -> None:
    # A broker refuses a consumer whose subjects overlap: the service would not start.
    for spec in SPECS:
        for listed in (spec.consumes, spec.decides):
            assert len(set(listed)) == len(listed), spec.service


def test_every_event_that_is_produced_has_its_rows() -> None:
    produced = {(KINDS[event_type], spec.service) for spec in SPECS for event_type in spec.produces}

    assert sorted((row["kind"], row["from"]) for row in TABLE["messages"]) == sorted(produced)


def test_a_message_is_published_while_something_known_is_done() -> None:
    handled = {f"handle {row['kind']}" for row in TABLE["messages"]}
    # Stored by whoever opens the store, before any service runs.
    handled.add(f"handle {KINDS[IncarnationBegun]}")
    methods = {row["method"] for row in TABLE["calls"]}
    consumed = {
        (spec.service, f"handle {KINDS[event_type]}")
        for spec in SPECS
        for event_type in spec.consumes
    }
    for row in TABLE["messages"]:
        for within in row["within"]:
            assert within in handled | methods | {"nothing"}
            if within in handled:
                assert (row["from"], within) in consumed, (row["kind"], within)


def test_who_calls_and_answers_is_a_service_an_agent_or_a_client() -> None:
    for row in TABLE["calls"]:
        assert row["to"] in SERVICES
        assert row["from"] in SERVICES | {"agent", "client"}
