import subprocess
import sys
from dataclasses import replace

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from spotline.contracts.errors import ProviderUnavailable
from spotline.domain.events.capacity import SlotDecided
from spotline.domain.events.lifecycle import JobClosed, JobOutcome
from spotline.runtime.exporting import ENDPOINT_VARIABLE, shut_down
from spotline.runtime.metrics import COUNTED, INSTRUMENTS, Form, Metrics
from spotline.runtime.telemetry import Telemetry, telemetry_for
from spotline.runtime.watched import HostCounters
from tests.fakes.events import envelope, overdue
from tests.fakes.listed_telemetry import METRICS, name_pattern, span_problems
from tests.samples.events import SAMPLES

TYPES = {
    Form.COUNTER: "counter",
    Form.OBSERVED_COUNTER: "counter",
    Form.GAUGE: "gauge",
    Form.HISTOGRAM: "histogram",
}


@pytest.fixture
def traced():
    """Telemetry of two services, and the spans they make."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    yield Telemetry("forecaster", tracer), Telemetry("selector", tracer), exporter
    provider.shutdown()


@pytest.fixture
def metered():
    """Telemetry of a service, its metrics, and a way to read them: name -> attributes -> value."""
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    metrics = Metrics(provider.get_meter("test"))

    def read():
        found = {}
        data = reader.get_metrics_data()
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        value = point.count if hasattr(point, "count") else point.value
                        attributes = tuple(sorted(dict(point.attributes).items()))
                        found.setdefault(metric.name, {})[attributes] = value
        return found

    yield Telemetry("selector", metrics=metrics), metrics, read
    provider.shutdown()


# --- spans ------------------------------------------------------------------------------------


def test_a_consumers_span_links_to_the_producers(traced):
    producing, consuming, exporter = traced
    sent_envelope = producing.traced(envelope(overdue(1)))
    with consuming.handling(sent_envelope, sent_envelope.headers(), 7):
        onward = consuming.traced(envelope(overdue(2)))

    sent, sent_onward, handled = exporter.get_finished_spans()
    assert [link.context.span_id for link in handled.links] == [sent.context.span_id]
    assert handled.parent is None
    assert handled.kind is SpanKind.CONSUMER
    assert sent_onward.parent.span_id == handled.context.span_id
    trace_id = onward.trace_headers["traceparent"].split("-")[1]
    assert trace_id == f"{handled.context.trace_id:032x}"


def test_a_dead_letter_is_linked_to_the_producer_of_what_was_unreadable(traced):
    producing, consuming, exporter = traced
    unreadable = producing.traced(envelope(overdue(1)))

    consuming.traced(envelope(overdue(2)), cause=unreadable.headers())

    sent, letter = exporter.get_finished_spans()
    assert [link.context.span_id for link in letter.links] == [sent.context.span_id]


def test_a_servers_span_is_a_child_of_its_callers(traced):
    asking, answering, exporter = traced
    with asking.asking("pkg.Jobs/Get") as call:
        with answering.answering("pkg.Jobs/Get", call.headers) as answer:
            answer.code = "NOT_FOUND"
        call.code = "NOT_FOUND"

    server, client = exporter.get_finished_spans()
    assert server.parent.span_id == client.context.span_id
    assert (server.kind, client.kind) == (SpanKind.SERVER, SpanKind.CLIENT)
    # What is asked for may not exist: that is no fault of the server.
    assert (server.status.is_ok, client.status.is_ok) == (True, False)


def test_a_bug_fails_the_servers_span(traced):
    _, answering, exporter = traced

    def buggy():
        with answering.answering("pkg.Jobs/Get", {}) as answer:
            answer.code = "UNKNOWN"
            raise RuntimeError("a bug")

    with pytest.raises(RuntimeError):
        buggy()

    (server,) = exporter.get_finished_spans()
    assert not server.status.is_ok
    assert server.events[0].attributes["exception.message"] == "a bug"


def test_spans_and_attributes_are_those_that_are_listed(traced):
    producing, consuming, exporter = traced
    sent = producing.traced(envelope(overdue(1)))
    with consuming.handling(sent, sent.headers(), 7), consuming.calling("cloud.open_slot"):
        pass
    with consuming.asking("spotline.api.v1.JobService/Get") as call:
        call.code = "OK"
        with producing.answering("spotline.api.v1.JobService/Get", call.headers) as answer:
            answer.code = "OK"

    spans = exporter.get_finished_spans()
    assert len(spans) == 5
    for span in spans:
        assert span_problems(span.kind.name.lower(), span.name, span.attributes) == []


@pytest.mark.parametrize(
    ("kind", "name"),
    [("producer", "publish job.4f2a"), ("internal", "call 7"), ("server", "no/Method-1")],
)
def test_a_name_with_an_id_is_no_name(kind, name):
    assert name_pattern(kind).fullmatch(name) is None


# --- metrics ----------------------------------------------------------------------------------


def test_every_metric_is_listed_as_it_is():
    assert set(METRICS) == set(INSTRUMENTS)
    for one in INSTRUMENTS.values():
        row = METRICS[one.name]
        assert (row["type"], row["unit"], tuple(row["attributes"]), row["meaning"]) == (
            TYPES[one.form],
            one.unit,
            one.attributes,
            one.meaning,
        )


def test_no_label_can_be_an_id():
    labels = {label for one in INSTRUMENTS.values() for label in one.attributes}

    assert not any("id" in label.replace(".", "_").split("_") for label in labels)
    assert not labels & {"spotline.tenant", "spotline.seq", "spotline.correlation_id"}


@pytest.mark.parametrize(
    ("sample", "name", "attributes", "amount"),
    [
        ("JobSubmitted", "spotline.jobs.submitted", {}, 1),
        ("JobClosed", "spotline.jobs.closed", {"spotline.outcome": "completed"}, 1),
        ("CapacityLost", "spotline.instances.lost", {}, None),
        ("InterruptionNoticed", "spotline.instances.interrupted", {}, None),
        ("LaunchRefused", "spotline.instances.refused", None, None),
        ("LaunchRefused", "spotline.launch.failures", None, 1),
        ("AllocationAnswered", "spotline.allocations.answered", None, 1),
        ("AllocationDecided", "spotline.decisions", None, 1),
    ],
)
def test_a_recorded_event_is_counted_once(metered, sample, name, attributes, amount):
    telemetry, _, read = metered
    (event,) = [one for one in SAMPLES if type(one).__name__ == sample][:1]

    telemetry.recorded([event])

    ((labels, value),) = read()[name].items()
    assert set(dict(labels)) == set(INSTRUMENTS[name].attributes)
    if attributes is not None:
        assert dict(labels) == {"spotline.service": "selector", **attributes}
    if amount is None:
        wanted = getattr(event, "instance_ids", None)
        amount = len(wanted) if wanted is not None else event.requested - event.granted
    assert value == amount


def test_counters_of_what_may_happen_start_at_zero(metered):
    telemetry, _, read = metered
    telemetry.may_record([JobClosed, SlotDecided])

    closed = read()["spotline.jobs.closed"]
    assert {dict(labels)["spotline.outcome"] for labels in closed} == {
        outcome.value for outcome in JobOutcome
    }
    assert set(closed.values()) == {0}


@pytest.mark.parametrize("event_type", COUNTED, ids=lambda event_type: event_type.__name__)
def test_what_is_counted_is_one_of_what_was_expected(event_type):
    samples = [one for one in SAMPLES if type(one) is event_type]
    assert samples
    for event in samples:
        for counted in COUNTED[event_type]:
            amount, attributes = counted.of(event)
            assert amount > 0
            assert attributes in counted.each


def test_a_decision_is_timed_once_a_slot(metered):
    telemetry, _, read = metered
    opened = replace(envelope(overdue(1)), kind="market.slot")
    decided = SlotDecided(slot=1, revision=0, offset_s=0, commands=0)

    telemetry.recorded([decided])
    with telemetry.handling(opened, {}, 7):
        pass
    telemetry.recorded([decided, replace(decided, revision=1)])

    assert list(read()["spotline.decision.duration"].values()) == [1]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(None, "answered"), (ProviderUnavailable("later"), "postponed"), (OSError(), "failed")],
)
def test_attempts_at_a_call_are_counted_by_how_they_end(metered, error, outcome):
    telemetry, _, read = metered
    try:
        with telemetry.calling("allocate"):
            if error is not None:
                raise error
    except (ProviderUnavailable, OSError):
        pass

    (labels,) = read()["spotline.call.duration"]
    assert dict(labels) == {
        "spotline.service": "selector",
        "spotline.call": "allocate",
        "spotline.outcome": outcome,
    }


class Running:
    """A service to watch."""

    def __init__(self, handled):
        self.counters = HostCounters(handled=handled, dead_lettered=2, published=3)
        self.backlog, self.lag_s, self.started_s, self.healthy = 4, 0.5, 6.0, True


def test_every_service_of_a_process_is_shown_and_a_restarted_one_once(metered):
    _, metrics, read = metered
    metrics.watch("selector", Running(1))
    metrics.watch("placer", Running(7))
    metrics.watch("selector", Running(8))

    handled = {
        dict(labels)["spotline.service"]: v
        for labels, v in read()["spotline.messages.handled"].items()
    }
    assert handled == {"selector": 8, "placer": 7}
    assert set(read()["spotline.service.healthy"].values()) == {1}


def test_what_is_observed_is_shown_until_it_ends(metered):
    telemetry, _, read = metered
    end = telemetry.observe("spotline.spend", lambda: [(12.5, {})])

    during = read().get("spotline.spend")
    end()
    after = read().get("spotline.spend")

    assert during == {(("spotline.service", "selector"),): 12.5}
    assert after is None


# --- off --------------------------------------------------------------------------------------


def test_without_an_endpoint_nothing_is_told(monkeypatch):
    monkeypatch.delenv(ENDPOINT_VARIABLE, raising=False)
    # A command that another test ran in this process may have turned its metrics on.
    shut_down()
    telemetry = telemetry_for("selector")
    one = envelope(overdue(1))

    assert not telemetry.on
    assert telemetry.traced(one) is one
    assert telemetry.handling(one, {}, 1) is telemetry.calling("allocate")


def test_without_an_endpoint_no_sdk_and_no_exporter_is_imported():
    code = (
        "import sys\n"
        "import spotline.bootstrap.system, spotline.adapters.grpc.allocator.server\n"
        "from spotline.runtime.telemetry import telemetry_for\n"
        "assert not telemetry_for('selector').on\n"
        "wrong = ('opentelemetry.sdk', 'opentelemetry.exporter', 'prometheus_client')\n"
        "print([name for name in sys.modules if name.startswith(wrong)])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": "", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == "[]"
