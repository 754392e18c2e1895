"""What only the adapter can tell for metrics: messages of its queues, and the use of quotas."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from spotline.adapters.clouds.aws.cloud import AwsCloud
from spotline.adapters.clouds.aws.quotas import VcpuQuota
from spotline.domain.market.offering import CapacityType
from spotline.runtime.cloud_metrics import CLOUD_MESSAGE
from spotline.runtime.metrics import CAPACITY_TYPE, Reader, Readings

# By kind: how the store counts it.
_KINDS = {
    "taken": "messages",
    "malformed": "messages_malformed",
    "of_others": "messages_of_others",
    "of_strangers": "events_of_strangers",
    "rebalance": "rebalance_recommendations",
    "queue_failure": "queue_failures",
}


def readings_of(cloud: AwsCloud) -> Mapping[str, Reader]:
    """Metrics by name, read when somebody asks."""

    def messages() -> Readings:
        counts = cloud.counts()
        return [(counts.get(name, 0), {CLOUD_MESSAGE: kind}) for kind, name in _KINDS.items()]

    def used() -> Readings:
        return _greatest(cloud, lambda quota: quota.used)

    def foreign() -> Readings:
        return _greatest(cloud, lambda quota: quota.foreign)

    return {
        "spotline.cloud.messages": messages,
        "spotline.quota.used": used,
        "spotline.quota.foreign": foreign,
    }


def _greatest(cloud: AwsCloud, part: Callable[[VcpuQuota], int]) -> Readings:
    """The greatest share by capacity type; a quota of nothing is used up."""
    readings = []
    for kind in CapacityType:
        shares = [
            part(quota) / quota.vcpus if quota.vcpus else 1.0
            for quota in cloud.quotas
            if quota.capacity_type is kind
        ]
        if shares:
            readings.append((max(shares), {CAPACITY_TYPE: kind.value}))
    return readings
