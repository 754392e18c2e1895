"""Who may say and hear what on the bus: the permissions of every identity, from one table. Pure.

A broker's configuration is made of them (`runtime.broker_access`). Whoever may publish anything
may name the subject that the broker answers on, and the broker does not check that one; so no
identity may ask for what would have it put somebody's message there (`DIRECT.GET`, making streams),
and those who are not ours, the tenants, may publish nothing at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from spotline.contracts.envelope import OPERATOR as RETRIED
from spotline.contracts.errors import ConfigError
from spotline.contracts.publishers import PUBLISHERS, RETRIES_BY, SERVICES, STORE
from spotline.contracts.subjects import (
    EVENT_TYPES,
    ONLY_IN_BATCHES,
    OUTPUT_KIND,
    PREFIX,
    ROUTES,
    StreamPart,
    batch_subject,
    dead_letter_subject,
    filter_of,
    health_subject,
    own_filter_of,
    stream_name,
    token,
)

FOLLOWERS = frozenset({"notifier"})
"""Services that publish no event: they read the log, and tell how they are."""

EVENT_LOG = "event_log"
HEALTH = "health"
OPERATOR = "operator"

SETS_UP = frozenset({STORE, "cloud_actuator"})
"""Who makes streams and brings them up to date: whoever knows whose the log is."""

IDENTITIES: tuple[str, ...] = (*sorted(SERVICES | FOLLOWERS), EVENT_LOG, HEALTH, OPERATOR, STORE)
"""All but the tenants'."""

TELLS_AGAIN: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "cloud_actuator": frozenset({"job.submitted", "job.cancelled"}),
        STORE: frozenset({"job.submitted", "job.cancelled", "cost"}),
    }
)
"""Kinds that a service publishes as they were, in the name of whose they are: the ledger has them."""

CONNECTIONS: Mapping[str, str] = MappingProxyType(
    {"explain": "allocator", "fan_out": "selector", "same_market": "market_ingest"}
)
"""Connections of a service that have a name of their own, and the identity that they have."""

TENANT = "tenant-"
"""What the identity of a tenant begins with."""

READERS = 8
"""How many consumers an identity may have that last as long as it reads."""

HISTORY = "history"
"""Where, in its inbox, a tenant gets what was decided before it listened."""

_API = "$JS.API."
_FAN_OUT = "fan_out"
_STATISTICS_PLACE = "event_log_statistics"


@dataclass(frozen=True, slots=True, kw_only=True)
class Permissions:
    """What an identity may publish and subscribe to; subjects with the broker's wildcards.

    Empty means nothing at all.
    """

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def inbox_prefix(identity: str) -> str:
    """What every inbox of an identity begins with: nobody else hears what it is answered."""
    return f"_INBOX_{identity}"


def reader_names(identity: str) -> tuple[str, ...]:
    """The names that an identity's passing consumers may have."""
    return tuple(f"{identity}-read-{number}" for number in range(READERS))


def snapshots_stream(partition: int) -> str:
    """The stream behind the object store that keeps a partition's snapshots."""
    return f"OBJ_spotline_snapshots_{partition}"


def worker_streams(partition: int) -> tuple[str, ...]:
    """The streams of the analytics' Faust app, its key-value bucket first."""
    app = f"spotline-analytics-{partition}"
    tables = ("observations", "issued", "counters")
    changelogs = [f"{app}-analytics-{table}-{partition}-changelog" for table in tables]
    topics = [f"{app}-__assignor-__leader", *changelogs]
    return (f"KV_FAUST_{app}", *(f"FAUST_{topic}" for topic in topics))


def permissions(partition: int = 0) -> Mapping[str, Permissions]:
    """What each of `IDENTITIES` may do in a partition."""
    return {
        identity: Permissions(
            publish=tuple(dict.fromkeys(_publish(identity, partition))),
            subscribe=tuple(dict.fromkeys(_subscribe(identity, partition))),
        )
        for identity in IDENTITIES
    }


def tenant_identity(tenant: str) -> str:
    """The identity of a tenant that reads its own decisions.

    Raises
    ------
    ConfigError
        Its name is no subject token: another tenant's would be written alike.
    """
    if not tenant or token(tenant) != tenant:
        raise ConfigError(
            f"tenant: an identity on the bus needs a name of a-z, 0-9, _ and -, was {tenant!r}: "
            "others are written as some other tenant's may be, who would see its decisions"
        )
    return TENANT + tenant


def tenant_subjects(tenant: str) -> tuple[str, ...]:
    """What plain clients follow of one tenant: decisions, and what became of them."""
    return tuple(
        f"{PREFIX}{kind}.{token(tenant)}.>"
        for kind in sorted(ONLY_IN_BATCHES)
        if ROUTES[EVENT_TYPES[kind]].fields[:1] == ("tenant",)
    )


def tenant_permissions(tenant: str) -> Permissions:
    """A tenant hears what is its own, and says nothing: not even a question."""
    inbox = f"{inbox_prefix(tenant_identity(tenant))}.>"
    return Permissions(publish=(), subscribe=(*tenant_subjects(tenant), inbox))


def history_subject(tenant: str) -> str:
    """Where the broker puts a tenant's decisions from the beginning on."""
    return f"{inbox_prefix(tenant_identity(tenant))}.{HISTORY}"


def own_subjects(service: str) -> tuple[str, ...]:
    """The subjects of the log on which a service may publish events, each by itself."""
    kinds = [
        kind
        for kind, may in PUBLISHERS.items()
        # Those of plain clients are put on their subjects by the fan-out alone.
        if (service in may or kind in TELLS_AGAIN.get(service, ())) and kind not in ONLY_IN_BATCHES
    ]
    return tuple(own_filter_of(EVENT_TYPES[kind], service) for kind in sorted(kinds))


def _publish(identity: str, partition: int) -> Iterator[str]:
    log = stream_name(partition)
    yield from _read(identity, log)
    yield f"{_API}CONSUMER.LIST.{log}"
    if identity in SERVICES:
        yield from own_subjects(identity)
        yield batch_subject(identity)
        yield dead_letter_subject(identity)
        yield health_subject(identity)
        yield f"{_API}INFO"
        yield from _place(log, identity)
    if identity in FOLLOWERS:
        yield health_subject(identity)
        yield f"{_API}INFO"
        # They keep no place: their health asks whether there is one.
        yield f"{_API}CONSUMER.INFO.{log}.{identity}"
    if identity in SETS_UP:
        yield from _set_up(partition)
    yield from _more(identity, partition)


def _more(identity: str, partition: int) -> Iterator[str]:
    """What only this identity may, beside what all of its kind do."""
    log = stream_name(partition)
    decisions, statistics, output = (
        stream_name(partition, part)
        for part in (StreamPart.DECISIONS, StreamPart.STATISTICS, StreamPart.OUTPUT)
    )
    match identity:
        case "allocator":
            yield f"{PREFIX}{OUTPUT_KIND}.>"
            yield from _read(identity, output)
        case "analytics":
            yield from _read(identity, statistics)
            for stream in worker_streams(partition):
                yield from _read(identity, stream)
                yield from _own(stream)
        case "forecaster":
            yield from _snapshots(snapshots_stream(partition), may_write=True)
        case "selector":
            yield from (filter_of(EVENT_TYPES[kind]) for kind in sorted(ONLY_IN_BATCHES))
            yield from _read(identity, decisions)
            yield from _place(log, _FAN_OUT)
        case "event_log":
            yield from _read(identity, statistics)
            yield from _place(log, EVENT_LOG)
            yield from _place(statistics, _STATISTICS_PLACE)
        case "health":
            yield health_subject("*")
            yield f"{_API}INFO"
            yield from (f"{_API}CONSUMER.INFO.{log}.{place}" for place in sorted(SERVICES))
        case "operator":
            for part in StreamPart:
                stream = stream_name(partition, part)
                yield from _read(identity, stream)
                yield f"{_API}CONSUMER.LIST.{stream}"
                yield f"{_API}CONSUMER.INFO.{stream}.*"
                yield f"{_API}STREAM.SNAPSHOT.{stream}"
                yield f"$JS.SNAPSHOT.ACK.{stream}.*"
            yield f"{_API}INFO"
            yield from _snapshots(snapshots_stream(partition), may_write=False)
        case "store":
            # A store is mended with its services away.
            yield from own_subjects(identity)
            yield from _snapshots(snapshots_stream(partition), may_write=True)
    if identity == RETRIES_BY:
        yield batch_subject(RETRIED)


def _subscribe(identity: str, partition: int) -> Iterator[str]:
    yield f"{inbox_prefix(identity)}.>"
    if identity == "analytics":
        # Changes of the app's group, as they come.
        bucket, *_ = worker_streams(partition)
        yield from _own(bucket)
    if identity == "allocator":
        yield health_subject("*")
    if identity == OPERATOR:
        yield f"{PREFIX}>"


def _read(identity: str, stream: str) -> Iterator[str]:
    """Look into a stream by consumers that end with the reading."""
    yield f"{_API}STREAM.INFO.{stream}"
    yield f"{_API}STREAM.MSG.GET.{stream}"
    for name in reader_names(identity):
        yield f"{_API}CONSUMER.CREATE.{stream}.{name}"
        yield f"{_API}CONSUMER.MSG.NEXT.{stream}.{name}"
        yield f"{_API}CONSUMER.DELETE.{stream}.{name}"


def _place(stream: str, name: str) -> Iterator[str]:
    """Keep a durable place in a stream."""
    yield f"{_API}CONSUMER.DURABLE.CREATE.{stream}.{name}"
    yield f"{_API}CONSUMER.MSG.NEXT.{stream}.{name}"
    yield f"{_API}CONSUMER.INFO.{stream}.{name}"
    yield f"{_API}CONSUMER.DELETE.{stream}.{name}"
    yield f"$JS.ACK.{stream}.{name}.>"
    # As servers that know of domains may write it.
    yield f"$JS.ACK.*.*.{stream}.{name}.>"


def _own(stream: str) -> Iterator[str]:
    """Write to a stream of one's own."""
    if stream.startswith("KV_"):
        yield f"$KV.{stream.removeprefix('KV_')}.>"
    else:
        topic = stream.removeprefix("FAUST_")
        yield f"faust.{topic}.*.*"
        yield f"faust-fence.{topic}.*"


def _snapshots(stream: str, *, may_write: bool) -> Iterator[str]:
    """Keep objects: nats-py reads them by a consumer without a name, and purges those before."""
    if may_write:
        yield f"$O.{stream.removeprefix('OBJ_')}.>"
        yield f"{_API}STREAM.PURGE.{stream}"
    yield f"{_API}STREAM.NAMES"
    for question in ("STREAM.INFO", "STREAM.MSG.GET", "CONSUMER.CREATE"):
        yield f"{_API}{question}.{stream}"
    for question in ("CONSUMER.CREATE", "CONSUMER.INFO", "CONSUMER.DELETE"):
        yield f"{_API}{question}.{stream}.>"
    yield f"$JS.FC.{stream}.>"


def _set_up(partition: int) -> Iterator[str]:
    yield filter_of(EVENT_TYPES["log.incarnation"])
    for stream in all_streams(partition):
        for question in ("CREATE", "INFO", "UPDATE"):
            yield f"{_API}STREAM.{question}.{stream}"
    decisions = stream_name(partition, StreamPart.DECISIONS)
    for question in ("DURABLE.CREATE", "INFO", "DELETE"):
        yield f"{_API}CONSUMER.{question}.{decisions}.*"


def all_streams(partition: int) -> Sequence[str]:
    """Every stream of a partition; the log last: what finds the log finds the others."""
    beside: Iterable[StreamPart] = (part for part in StreamPart if part is not StreamPart.LOG)
    return (
        *worker_streams(partition),
        snapshots_stream(partition),
        *(stream_name(partition, part) for part in beside),
        stream_name(partition),
    )
