"""The streams behind a Faust app, as they are made: by the app, or before it by whoever may."""

from __future__ import annotations

from collections.abc import Mapping

from nats.js.api import KeyValueConfig, RetentionPolicy, StorageType, StreamConfig

from spotline.adapters.faust.names import stream_name, stream_subjects

PARTITIONS, COMPACTING = "faust.partitions", "faust.compacting"
"""What a stream's metadata say of its topic."""

_DUPLICATE_WINDOW_S = 120.0


def topic_stream(
    topic: str,
    partitions: int,
    *,
    replicas: int = 1,
    retention_s: float | None = None,
    compacting: bool = False,
) -> StreamConfig:
    """The stream that holds a topic; compacting, it keeps the last message of a key."""
    metadata: Mapping[str, str] = {
        PARTITIONS: str(partitions),
        COMPACTING: str(compacting).lower(),
    }
    return StreamConfig(
        name=stream_name(topic),
        subjects=stream_subjects(topic),
        storage=StorageType.FILE,
        retention=RetentionPolicy.LIMITS,
        num_replicas=replicas,
        max_age=retention_s or 0,
        max_msgs_per_subject=1 if compacting else -1,
        duplicate_window=min(_DUPLICATE_WINDOW_S, retention_s or _DUPLICATE_WINDOW_S),
        allow_direct=True,
        allow_msg_ttl=True,
        metadata=dict(metadata),
    )


def app_bucket(name: str, *, replicas: int = 1) -> KeyValueConfig:
    """The key-value bucket of an app: who works on what, and how far they came."""
    return KeyValueConfig(bucket=name, history=1, storage=StorageType.FILE, replicas=replicas)
