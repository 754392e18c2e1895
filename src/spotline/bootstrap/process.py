"""A service as a process: settings, logging, signals, health, exit codes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import structlog
from pydantic import ValidationError

from spotline.adapters.nats.identities import OneIdentity
from spotline.bootstrap.auditing import AuditAt
from spotline.bootstrap.identity import (
    ApartIdentity,
    IdentityAt,
    InstalledIdentity,
    KeysAt,
    ServiceIdentities,
)
from spotline.bootstrap.parts import BusAddress, PartHooks, with_health
from spotline.bootstrap.stated_config import stated_config
from spotline.bootstrap.tables import tables_of_this_machine
from spotline.contracts.errors import (
    ConfigError,
    ContractError,
    LedgerDamaged,
    LogCut,
    ProviderUnavailable,
)
from spotline.runtime.collecting import collect_rarely
from spotline.runtime.log import configure_logging
from spotline.runtime.settings import ServiceSettings, problems_of, stated_by_file

_log = structlog.get_logger(__name__)

EXIT_OK, EXIT_FAILED, EXIT_CONFIG = 0, 1, 2

SettingsT = TypeVar("SettingsT", bound=ServiceSettings)


def main(
    settings_type: type[SettingsT],
    serve: Callable[[SettingsT, BusAddress, PartHooks], Awaitable[None]],
    *,
    plans: bool = False,
) -> int:
    """Read the settings, serve until SIGTERM or SIGINT, and return the exit code.

    A service that `plans` compiles its planners first, where nothing waits for it.
    0 after a signal, 2 where it cannot start and says why, 1 where it failed; a restart recovers.
    """
    try:
        config = stated_config(os.environ)
        with stated_by_file({} if config is None else config.variables()):
            settings = settings_type()
    except ValidationError as error:
        for problem in problems_of(settings_type, error):
            _say(problem)
        return EXIT_CONFIG
    except ContractError as error:
        return _told(error)
    configure_logging(settings.log_level)
    collect_rarely()
    if settings.otlp_endpoint:
        os.environ.setdefault("OTEL_EXPORTER_OTLP_ENDPOINT", settings.otlp_endpoint)
    try:
        bus = BusAddress(
            nats_url=settings.nats_url,
            partition=settings.partition,
            identity=bus_identity_of(settings),
        )
        installed = identity_of(settings)
    except (ConfigError, ContractError) as error:
        return _told(error)
    if plans:
        from spotline.bootstrap.planners import compile_planners

        compile_planners()

    async def run() -> None:
        stop_on_signals()
        with tables_of_this_machine():
            await with_health(
                lambda hooks: serve(settings, bus, hooks),
                bus,
                host=settings.health_host,
                port=settings.health_port,
                metrics=settings.metrics,
                limits=settings.health,
                identity=installed,
                audit=_audit_of(settings),
            )

    return run_to_exit_code(run())


def bus_identity_of(settings: ServiceSettings) -> OneIdentity | None:
    """As whom the service connects to the bus, None where its settings name no key; `ConfigError`."""
    if bool(settings.nats_seed) != bool(settings.nats_ca):
        raise ConfigError(
            "SPOTLINE_NATS_SEED and SPOTLINE_NATS_CA: expected both or neither, "
            f"found {settings.nats_seed!r} and {settings.nats_ca!r}"
        )
    if not settings.nats_seed:
        _log.warning("open_bus", detail="whoever reaches the broker may publish as any service")
        return None
    return OneIdentity(Path(settings.nats_seed), Path(settings.nats_ca))


def identity_of(settings: ServiceSettings) -> ServiceIdentities | None:
    """By what the service knows callers and is known, None where its settings name no keys."""
    if settings.identity_keys is not None:
        if settings.identity_store is not None or settings.identity_hosts:
            raise ConfigError(
                "SPOTLINE_IDENTITY_KEYS: expected neither SPOTLINE_IDENTITY_STORE nor "
                "SPOTLINE_IDENTITY_HOSTS beside it: keys that were handed out name their hosts"
            )
        return ApartIdentity(
            KeysAt(
                folder=settings.identity_keys,
                issuers=settings.identity_issuers,
                mtls=settings.identity_mtls,
            )
        )
    if settings.identity_store is None:
        _log.warning(
            "no_identity",
            detail="callers are not asked who they are, and nothing is encrypted",
        )
        return None
    hosts = tuple(name.strip() for name in settings.identity_hosts.split(",") if name.strip())
    return InstalledIdentity(
        IdentityAt(
            store=settings.identity_store,
            hosts=hosts,
            issuers=settings.identity_issuers,
            mtls=settings.identity_mtls,
        )
    )


def _audit_of(settings: ServiceSettings) -> AuditAt | None:
    """Beside the keys where no other store is named, None where there is neither."""
    store = settings.audit_store or settings.identity_store
    return None if store is None else AuditAt(store=store)


def stop_on_signals() -> None:
    """Cancel the current task on SIGTERM and SIGINT, so that it finishes the input in hand."""
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    if task is not None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, task.cancel)


def run_to_exit_code(work: Awaitable[None]) -> int:
    """Run `work` on a fresh loop; say what ended it, and return the exit code."""
    import uvloop

    async def awaited() -> None:
        await work

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(awaited())
    except (asyncio.CancelledError, KeyboardInterrupt):
        return EXIT_OK
    except BaseExceptionGroup as group:
        return _told(first_of(group))
    except (ConfigError, ContractError, LedgerDamaged, LogCut, ProviderUnavailable) as error:
        return _told(error)
    return EXIT_OK


def _told(error: BaseException) -> int:
    if isinstance(error, (ConfigError, ContractError, LedgerDamaged)):
        _say(str(error))
        return EXIT_CONFIG
    if isinstance(error, (LogCut, ProviderUnavailable)):
        _log.error("stopped", reason=str(error))
        return EXIT_FAILED
    # Not ours to explain: the traceback is the message, and the restart the remedy.
    raise error


def _say(line: str) -> None:
    for said in line.splitlines():
        sys.stderr.write(f"spotline: {said}\n")


def first_of(error: BaseException) -> BaseException:
    """The error itself, or the first of a group, however deep it lies."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
