"""What the ledger shows as metrics."""

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from spotline.adapters.ledger.figures import show_ledger
from spotline.domain.ledger.caps import Caps
from spotline.domain.ledger.intents import HeldInstance
from spotline.domain.market.offering import CapacityType
from spotline.runtime.metrics import Metrics
from spotline.runtime.telemetry import Telemetry


class FakeLedger:
    """Two jobs hold instances; a third is over, and spent most."""

    def held(self):
        jobs = ("a", CapacityType.SPOT), ("a", CapacityType.SPOT), ("b", CapacityType.ON_DEMAND)
        return [
            HeldInstance(
                instance_id=str(order),
                job_id=job_id,
                tenant="t",
                quota_pool="q",
                offering_id="o",
                capacity_type=capacity_type,
                order=order,
            )
            for order, (job_id, capacity_type) in enumerate(jobs, start=1)
        ]

    def spend_by_job(self):
        return {"a": 1_000_000, "b": 3_000_000, "over": 9_500_000}

    def total_micro_usd(self):
        return sum(self.spend_by_job().values())


def shown(caps):
    """Metrics by name while the ledger is shown, and after."""
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    telemetry = Telemetry("cloud_actuator", metrics=Metrics(provider.get_meter("test")))

    def read():
        data = reader.get_metrics_data()
        return {
            metric.name: {
                point.attributes.get("spotline.capacity_type", ""): point.value
                for point in metric.data.data_points
            }
            for resource in (data.resource_metrics if data is not None else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    end = show_ledger(telemetry, FakeLedger(), caps)
    during = read()
    end()
    after = read()
    provider.shutdown()
    return during, after


def test_spend_is_all_of_it_and_the_cap_that_of_running_jobs():
    during, after = shown(Caps(micro_usd_per_job=4_000_000))

    assert during == {
        "spotline.spend": {"": 13.5},
        "spotline.instances.held": {"spot": 2, "on_demand": 1},
        "spotline.spend.cap_used": {"": 0.75},
    }
    assert after == {}


def test_without_a_cap_none_is_near():
    during, _ = shown(Caps())

    assert "spotline.spend.cap_used" not in during
