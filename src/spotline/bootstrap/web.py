"""Serving the pages by themselves: of a recorded log."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from starlette.applications import Starlette

from spotline.adapters.eventlog.manifest import MANIFEST_FILE
from spotline.adapters.eventlog.reader import EventLogReader
from spotline.adapters.page.app import Frame, Pages
from spotline.adapters.page.asked import PageAsked
from spotline.adapters.page.desk import PageDesk
from spotline.adapters.page.making.replay import replay_asked
from spotline.adapters.page.pages import pages_with
from spotline.adapters.page.sources import PageSources, Workbench
from spotline.adapters.web.guarding import Guard, WebLimits
from spotline.adapters.web.serving import WebServer
from spotline.application.operations.fold import ParkedKey
from spotline.application.page.about import About, OtherLog, Stated
from spotline.application.page.applied import Applied, applied
from spotline.application.read_model.handler import SPEC
from spotline.bootstrap.replaying import LogReplays
from spotline.bootstrap.web_recorded import ListedOutlooks, RecordedExplainer, RecordedOutlooks
from spotline.contracts.batch import unpacked
from spotline.contracts.codec import json_of
from spotline.contracts.errors import ConfigError, ContractError
from spotline.replay.handlers import selector_options
from spotline.replay.parkings import recorded_parkings
from spotline.replay.recorded import readable_events

REPLAY_PATH = "/replay"


_MOST_LOGS = 32


def logs_in(folder: Path) -> tuple[Path, ...]:
    """The recorded log that a folder is, or those that are folders in it, by name.

    Raises
    ------
    ConfigError
        There are more than a server shows.
    """
    if (folder / MANIFEST_FILE).exists() or not folder.is_dir():
        return (folder,)
    found = tuple(sorted(inside.parent for inside in folder.glob(f"*/{MANIFEST_FILE}")))
    if len(found) > _MOST_LOGS:
        raise ConfigError(
            f"expected a log, or a folder of at most {_MOST_LOGS}, found {len(found)} in {folder}"
        )
    return found or (folder,)


async def serve_logs(folder: Path, *, address: str, told: Callable[[str], None]) -> None:
    """Serve a recorded log, or all of a folder, until cancelled; `told` gets a line for each.

    Each of several has an address of its own, the first that which was asked for; its page of
    replays leads to the others.

    Raises
    ------
    ConfigError
        The address is malformed or taken, or there are too many logs.
    ContractError
        A log cannot be read.
    """
    logs = logs_in(folder)
    host = address.rpartition(":")[0]
    known: dict[str, OtherLog] = {}

    async def serve(log: Path, at: str) -> None:
        def bound_to(bound: str) -> None:
            known[log.name] = OtherLog(name=log.name, address=f"http://{bound}/")
            told(f"{log.name}  http://{bound}/" if len(logs) > 1 else f"http://{bound}/")

        def others() -> tuple[OtherLog, ...]:
            return tuple(known[name] for name in sorted(known) if name != log.name)

        await serve_recorded(log, address=at, told=bound_to, others=others)

    try:
        async with asyncio.TaskGroup() as tasks:
            for place, log in enumerate(logs):
                at = f"{host}:0" if place else address
                tasks.create_task(serve(log, at), name=f"pages of {log.name}")
    except ExceptionGroup as group:
        # The first says enough: nothing is served where one cannot be.
        raise group.exceptions[0] from None


async def serve_recorded(
    log: Path,
    *,
    address: str,
    told: Callable[[str], None],
    others: Callable[[], tuple[OtherLog, ...]] = tuple,
) -> None:
    """Serve the pages of a recorded log until cancelled; `told` gets the bound address.

    `others` says which logs are served beside it.

    Raises
    ------
    ConfigError
        The address is malformed or taken.
    ContractError
        The log cannot be read.
    """
    # What is read of the log takes long: what is only reckoned does not wait for it.
    desk, bench, reading = PageDesk(), Workbench(), Workbench()
    replays, listed = LogReplays(log), ListedOutlooks(log)
    try:
        reader = EventLogReader(log)
        await asyncio.to_thread(desk.read, _applied(reader))
        # All that was folded stays: looking for garbage in it would double what a page costs.
        gc.freeze()
        about = about_log(reader)

        async def told_of(asked: PageAsked) -> About:
            if asked.path != REPLAY_PATH:
                return about
            shown = replays.answer(replay_asked(asked))
            return replace(about, replay=shown, others=others())

        sources = PageSources(
            explainer=RecordedExplainer(log, reading),
            outlooks=RecordedOutlooks(log, reading),
            outlooks_wait=True,
            listed=listed,
            desk=desk,
            bench=bench,
        )
        frame = Frame(source=f"recorded log {log}", recorded=True, about=told_of)
        app = Starlette(routes=Pages(desk, pages_with(sources), frame).routes())
        server = WebServer(Guard(app, WebLimits()), address=address)
        told(await server.start())
        try:
            await asyncio.Event().wait()
        finally:
            await server.stop()
    finally:
        replays.close()
        listed.close()
        reading.close()
        bench.close()
        desk.close()


def _applied(reader: EventLogReader) -> Iterator[Applied]:
    for recorded in readable_events(reader):
        # As a running system folds it: the same place is the same page.
        if isinstance(recorded.event, SPEC.consumes):
            seq, stored_ns = recorded.seq, recorded.stored_ns
            yield applied(recorded.event, recorded.envelope, seq, wall_ns=stored_ns)


def about_log(reader: EventLogReader) -> About:
    """What a log's manifest says of its run.

    Raises
    ------
    UnreadableLog
        There is none, or it cannot be read.
    ContractError
        It states settings that are none.
    """
    manifest = reader.manifest
    recorded = manifest.environment
    return About(
        selector=selector_options(manifest.settings),
        versions=(
            Stated(name="run", value=manifest.run_id),
            Stated(name="stream", value=manifest.stream),
            Stated(name="recording", value=manifest.status.value),
            Stated(name="entries", value=f"{manifest.first_seq:,} to {manifest.last_seq:,}"),
            Stated(name="incarnation", value=str(manifest.incarnation)),
            Stated(name="Spotline", value=recorded.spotline),
            Stated(name="decision version", value=str(recorded.decision_version)),
            Stated(name="Python", value=f"{recorded.python}, {recorded.platform}"),
            *(
                Stated(name=name, value=version)
                for name, version in sorted(recorded.packages.items())
            ),
            *(
                Stated(name=f"seed of {name}", value=str(seed))
                for name, seed in sorted(manifest.seeds.items())
            ),
            Stated(name="settings sha256", value=manifest.settings_sha256),
        ),
        settings=tuple(_settings_of(manifest.settings)),
        parked_content=_parked_content(reader),
    )


def _parked_content(reader: EventLogReader) -> dict[ParkedKey, str]:
    """What each entry that was ever parked holds, as JSON; what cannot be told is left out."""
    parked = recorded_parkings(reader)
    wanted = {event_id: (service, event_id) for service, event_id in parked}
    found: dict[ParkedKey, str] = {}
    if not wanted:
        return found
    for entry in reader:
        try:
            inside = unpacked(entry)
        except ContractError:
            continue
        for stored in inside:
            try:
                envelope = stored.envelope()
            except ContractError:
                continue
            key = wanted.get(envelope.event_id)
            content = None if key is None else json_of(envelope.kind, stored.payload)
            if key is not None and content is not None:
                found[key] = json.dumps(content, indent=1, sort_keys=True)
    return found


def _settings_of(settings: Mapping[str, Any]) -> Iterator[Stated]:
    """Every setting by its place, `service.name`, as JSON."""
    for service, stated in sorted(settings.items()):
        inside = stated if isinstance(stated, dict) else {"": stated}
        for name, value in sorted(inside.items()):
            text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
            yield Stated(name=f"{service}.{name}".rstrip("."), value=text)
