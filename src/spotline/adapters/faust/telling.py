"""What Faust's recovery and assignor are told of this worker's partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from faust.assignor.client_assignment import ClientAssignment
from faust.types import TP, AppT

from spotline.adapters.faust.leases import Group
from spotline.adapters.faust.topics import Topics, TopicStreams


async def tell_recovery(app: AppT, topics: Topics, kept: Iterable[TP]) -> None:
    """Tell recovery how far the partitions that are kept have come: it leaves them alone."""
    recovery: Any = cast(Any, app.tables).recovery
    for tp in kept:
        streams = topics.known(tp.topic)
        if streams is not None and tp.topic in app.tables.changelog_topics:
            last = await topics.last_offset(streams, tp.partition)
            if last is not None and recovery.active_offsets.get(tp) is not None:
                recovery.active_offsets[tp] = max(last, recovery.active_offsets[tp])


def tell_assignor(
    app: AppT, wanted: frozenset[TP], group: Group, subscribed: Mapping[str, TopicStreams]
) -> None:
    """Tell the assignor what Kafka would have told it; recovery and the web router ask it."""
    assignor: Any = app.assignor
    actives: dict[str, list[int]] = {}
    for tp in sorted(wanted):
        actives.setdefault(tp.topic, []).append(tp.partition)
    assignor._assignment = ClientAssignment(actives=actives, standbys={})
    assignor._active_tps = set(wanted)
    assignor._standby_tps = set()
    changelogs = app.tables.changelog_topics
    tables: dict[str, dict[str, list[int]]] = {}
    others: dict[str, dict[str, list[int]]] = {}
    for partition, lease in sorted(group.leases.items()):
        worker = group.workers.get(lease.owner)
        if worker is None or not worker.url:
            continue
        for name, streams in subscribed.items():
            if partition < streams.partitions:
                where = tables if name in changelogs else others
                where.setdefault(worker.url, {}).setdefault(name, []).append(partition)
    assignor.changelog_distribution = tables
    assignor.external_topic_distribution = others
