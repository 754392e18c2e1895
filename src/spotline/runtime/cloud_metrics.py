"""Metrics of a cloud of the world: what its queue told, and how far its quotas are used."""

from __future__ import annotations

from collections.abc import Mapping

CLOUD_MESSAGE = "spotline.cloud_message"

CLOUD_COUNTS: Mapping[str, str] = {
    "spotline.cloud.messages": "Messages of clouds that were taken, and of those what led to nothing, by kind; queue_failure: a queue did not answer.",
}
CLOUD_GAUGES: Mapping[str, str] = {
    "spotline.quota.used": "The greatest share that is used of a cloud's quota, by us and others.",
    "spotline.quota.foreign": "The greatest share of a cloud's quota that others than we use.",
}
CLOUD_ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "spotline.cloud.messages": (CLOUD_MESSAGE,),
    "spotline.quota.used": ("spotline.capacity_type",),
    "spotline.quota.foreign": ("spotline.capacity_type",),
}
