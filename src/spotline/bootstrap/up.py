"""All services until a signal, with their health and their log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from spotline.adapters.eventlog.manifest import Manifest, environment
from spotline.adapters.eventlog.writer import Recording
from spotline.adapters.nats.connection import redacted
from spotline.application.market_ingest.continuing import identity_of
from spotline.application.notify.target import NotifyTarget
from spotline.bootstrap.followers import geography_of
from spotline.bootstrap.installed import checked_store
from spotline.bootstrap.notifying import Notifying, notifying
from spotline.bootstrap.parts import open_part, open_stream
from spotline.bootstrap.process import stop_on_signals
from spotline.bootstrap.system import SystemOptions, running_system
from spotline.contracts.errors import LogCut
from spotline.contracts.subjects import StreamPart, stream_name
from spotline.runtime.exporting import scraped_metrics
from spotline.runtime.health import serve_health
from spotline.runtime.service import Listener

_log = structlog.get_logger(__name__)


def check_inputs(options: SystemOptions) -> None:
    """Read the files that services read once they start, so that nothing begins with a wrong one.

    Raises
    ------
    ContractError
        The geography or the knowledge base is absent, or not what it should be.
    ConfigError
        The store was made with something else, or its identity cannot be used.
    """
    geography = geography_of(options.geography)
    checked_store(
        options.store,
        identity_of(options.market, geography),
        partition=options.partition,
        from_now=options.ingest.wall_clock,
    )
    if options.identity is not None:
        options.identity.check()
    if options.knowledge is not None:
        from spotline.adapters.knowledge.store import read_knowledge

        read_knowledge(options.knowledge)
    # Last: it makes keys where there are none, and a start that fails leaves nothing behind.
    options.installed_identity()


async def run_up(
    options: SystemOptions,
    *,
    health_port: int,
    told: Callable[[Mapping[str, str]], None],
    applied: Listener | None = None,
    notify: Sequence[NotifyTarget] = (),
) -> None:
    """Serve until SIGINT or SIGTERM; record the stream into `store/log`.

    Where the log turns out to be cut or gone, all services start again on what there is.

    `told` gets the addresses, by name, once everything answers; `applied` hears what the allocator
    applies, from the beginning of the log; `notify` are told of what needs them.

    Raises
    ------
    ConfigError
        The store is in use by another process, or something cannot be bound.
    """
    stop_on_signals()
    while True:
        try:
            serving = _Serving(health_port=health_port, told=told, applied=applied, notify=notify)
            await _serve(options, serving)
        except (LogCut, BaseExceptionGroup) as error:
            cut = _cut_in(error)
            if cut is None:
                raise
            # What is left of the log is folded again, from its beginning, by services that know
            # nothing of what is lost.
            _log.error("log_cut", reason=str(cut), follows="all services start again")


def _cut_in(error: BaseException) -> LogCut | None:
    """What says that the log was cut; of several that ended at once, one may say it."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(_cut_in, error.exceptions)), None)
    return error if isinstance(error, LogCut) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Serving:
    """What `run_up` was given beside the options."""

    health_port: int
    told: Callable[[Mapping[str, str]], None]
    applied: Listener | None
    notify: Sequence[NotifyTarget]


async def _serve(options: SystemOptions, serving: _Serving) -> None:
    listeners = {} if serving.applied is None else {"allocator": serving.applied}
    scraped = scraped_metrics()
    async with (
        running_system(options, listeners=listeners) as system,
        serve_health(
            {"services": system.probes.overall},
            port=serving.health_port,
            metrics=scraped,
            alive=system.probes.alive,
        ) as port,
        open_stream(system.bus, name="event_log") as (connection, stream),
        notifying(
            Notifying(
                targets=serving.notify,
                bus=system.bus,
                store=options.store,
                selector=options.selector,
            )
        ),
    ):
        scheme = "http" if options.identity is None else "https"
        at = f"{scheme}://{system.http_address}"
        page = {"page": f"{at}/"} if system.http_address else {}
        if system.sign_in_path:
            page["sign in"] = f"{at}{system.sign_in_path}"
        http = {"HTTP": f"{at}/v1/jobs"} if system.http_address else {}
        serving.told(
            {
                **page,
                "gRPC": system.allocator_address,
                **http,
                "agents": system.agents_address,
                "configurator": system.configurator_address,
                "placer": system.placer_address,
                "analytics": system.analytics_address,
                "NATS": redacted(system.bus.nats_url),
                "health": f"http://127.0.0.1:{port}/healthz",
                "metrics": f"http://127.0.0.1:{port}/metrics",
                "log": str(options.store / "log"),
            }
        )
        manifest = Manifest(
            run_id=options.store.resolve().name,
            stream=stream_name(options.partition),
            environment=environment(),
            settings=options.settings(),
            started_ns=time.time_ns(),
            incarnation=stream.continuity.incarnation,
        )
        statistics = await open_part(connection, system.bus, StreamPart.STATISTICS)
        recording = Recording(stream, statistics, options.store / "log", manifest)
        recorded = asyncio.create_task(recording.run(), name="record")
        try:
            await asyncio.shield(recorded)
        except asyncio.CancelledError:
            # Asked to stop: the log ends with what is stored by now.
            await recording.stop()
            await recorded
            raise
