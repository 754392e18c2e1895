"""Whether a store is what was written: each of its parts, and whether they belong together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path

import nats.js.errors
from nats.js import JetStreamContext

from spotline.adapters.eventlog.reader import EventLogReader
from spotline.adapters.eventlog.segments import segments_of
from spotline.adapters.ledger.opening import ledger_url
from spotline.adapters.ledger.sql import SqlLedger
from spotline.adapters.ledger.threaded import ThreadedLedger
from spotline.adapters.nats.snapshots import NatsSnapshotStore
from spotline.adapters.nats.stream import NatsEventStream
from spotline.adapters.store_file import read_identity
from spotline.application.incarnations import LogRemembered, conclude
from spotline.bootstrap.auditing import verified_chains
from spotline.bootstrap.installed import LEDGER_FILE, LEDGER_OWNER, LOG_FOLDER, remembered_of
from spotline.bootstrap.store_opened import connected, refuse_absent
from spotline.contracts.batch import unpacked
from spotline.contracts.errors import (
    ConfigError,
    ContractError,
    LedgerDamaged,
    ProviderUnavailable,
    SpotlineError,
)
from spotline.runtime.retelling import missing_in
from spotline.runtime.snapshots import opened

_MOST_NAMED = 10
_REPAIR = "spotline store repair"
_RESTORE = "spotline store restore"


class CheckState(Enum):
    """What was found of a part."""

    WELL = "well"
    FOUND = "found"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was found of one part of a store; `continue_with` is the command that goes on from there."""

    part: str
    state: CheckState
    detail: str
    continue_with: str = ""

    def as_json(self) -> dict[str, str]:
        """The finding for `--json`."""
        return asdict(self) | {"state": self.state.value}


def exit_code_of(findings: list[Finding]) -> int:
    """0 all well, 1 something was found, 2 something cannot be read."""
    states = {finding.state for finding in findings}
    if CheckState.UNREADABLE in states:
        return 2
    return 1 if CheckState.FOUND in states else 0


async def check_store(store: Path, *, nats_url: str = "", partition: int = 0) -> list[Finding]:
    """Look at every part of a store; nothing is changed.

    Raises
    ------
    ConfigError
        There is no store.
    """
    refuse_absent(store)
    findings = [_identity(store)]
    async with _ledger(store, findings) as ledger:
        try:
            async with connected(store, nats_url=nats_url, partition=partition) as (_, stream):
                await _log(store, stream, ledger, findings)
        except (ConfigError, ProviderUnavailable) as error:
            findings.append(Finding(part="log", state=CheckState.UNREADABLE, detail=str(error)))
    findings += await asyncio.to_thread(_recorded, store)
    findings += await asyncio.to_thread(_audited, store)
    return findings


def _audited(store: Path) -> list[Finding]:
    """What each chain of the audit is found to be; none where nothing was recorded yet."""
    try:
        reports = verified_chains(store, {})
    except ConfigError as error:
        return [Finding(part="audit", state=CheckState.UNREADABLE, detail=str(error))]
    broken = [report for report in reports if report.broken is not None]
    if broken:
        return [
            Finding(
                part="audit",
                state=CheckState.FOUND,
                detail=f"{report.chain}: {report.broken}",
                continue_with=f"spotline audit verify --store {store}",
            )
            for report in broken
        ]
    records = sum(report.head.seq for report in reports)
    return [_well("audit", f"{records:,} records in {len(reports)} chains")] if reports else []


def _identity(store: Path) -> Finding:
    try:
        identity = read_identity(store)
    except ConfigError as error:
        return Finding(
            part="identity",
            state=CheckState.UNREADABLE,
            detail=str(error),
            continue_with=_RESTORE,
        )
    if identity is None:
        return _well("identity", "none yet: the next start gives it one")
    market = "no market yet" if identity.market is None else f"market {identity.market.source}"
    return _well(
        "identity",
        f"installation {identity.installation.installation_id}, incarnation {identity.incarnation}, "
        f"{market}, last used by Spotline {identity.last_used_by}",
    )


@asynccontextmanager
async def _ledger(store: Path, findings: list[Finding]) -> AsyncIterator[SqlLedger | None]:
    """The ledger where it can be looked at, with what was found of it."""
    path = store / LEDGER_FILE
    if not path.exists():
        findings.append(_well("ledger", "none yet"))
        yield None
        return
    try:
        ledger = await asyncio.to_thread(SqlLedger.looked_at, ledger_url(path), LEDGER_OWNER)
    except (LedgerDamaged, ConfigError, ProviderUnavailable) as error:
        findings.append(_unreadable("ledger", f"{path}: {error}"))
        yield None
        return
    try:
        readable = True
        try:
            await asyncio.to_thread(ledger.audit)
            held, spent = ledger.held(), ledger.total_micro_usd()
        except (LedgerDamaged, ProviderUnavailable) as error:
            findings.append(_unreadable("ledger", f"{path}: {error}"))
            readable = False
        else:
            findings.append(
                _well(
                    "ledger",
                    f"every row is what was written; {spent / 1e6:,.2f} USD charged, {len(held)} "
                    "instances held",
                )
            )
        yield ledger if readable else None
    finally:
        ledger.close()


async def _log(
    store: Path, stream: NatsEventStream, ledger: SqlLedger | None, findings: list[Finding]
) -> None:
    try:
        await stream.look()
    except nats.js.errors.NotFoundError:
        findings.append(_found("log", f"the stream {stream.name} is gone", _REPAIR))
        return
    findings.append(await _entries(stream))
    remembered: LogRemembered | None = None
    try:
        remembered = await asyncio.to_thread(remembered_of, store, ledger)
    except (ConfigError, LedgerDamaged) as error:
        findings.append(_found("belonging", str(error)))
    conclusion = conclude(await stream.seen(), remembered)
    if conclusion.detail:
        findings.append(_found("continuity", conclusion.detail, _REPAIR))
    else:
        whole = f"incarnation {conclusion.incarnation}, no floor is beyond its end"
        findings.append(_well("continuity", whole))
    findings.append(await _snapshots(stream))
    if ledger is not None:
        findings.append(await _admissions(stream, ledger))


async def _entries(stream: NatsEventStream) -> Finding:
    """Whether the log has every entry from its first to its last, and which cannot be read."""
    last_seq, following, unread = await stream.last_seq(), 1, []
    async for entry in stream.read((), last_seq=last_seq):
        if entry.seq != following:
            return _found("log", f"entries {following} to {entry.seq - 1} are missing", _RESTORE)
        following = entry.seq + 1
        try:
            for event in unpacked(entry):
                event.envelope()
        except ContractError:
            unread.append(entry.seq)
    if following <= last_seq:
        return _found("log", f"entries {following} to {last_seq} are missing", _RESTORE)
    some = ", ".join(map(str, unread[:_MOST_NAMED]))
    more = f"; {len(unread)} cannot be read, and were left out: {some}" if unread else ""
    return _well("log", f"{last_seq:,} entries, none is missing{more}")


async def _snapshots(stream: NatsEventStream) -> Finding:
    """Whether the snapshots can be loaded."""
    damaged = await damaged_snapshots(stream)
    if damaged:
        return _found("snapshots", f"cannot be loaded: {', '.join(damaged)}", _REPAIR)
    return _well("snapshots", "all can be loaded")


async def damaged_snapshots(stream: NatsEventStream) -> list[str]:
    """The names of the snapshots beside a log that are not what was written."""
    store = NatsSnapshotStore(stream.connection, partition=stream.partition)
    damaged = []
    for name in await stream.ask(lambda link: _names(link.jetstream(), stream.partition)):
        if name.endswith(".set_aside"):
            continue
        try:
            data = await store.get(name)
            if data is not None:
                opened(data)
        except ValueError as error:
            damaged.append(f"{name} ({error})")
    return damaged


async def _names(js: JetStreamContext, partition: int) -> list[str]:
    with suppress(nats.js.errors.NotFoundError):
        bucket = await js.object_store(f"spotline_snapshots_{partition}")
        return sorted(info.name for info in await bucket.list() if info.name)
    return []


async def _admissions(stream: NatsEventStream, ledger: SqlLedger) -> Finding:
    missing = await missing_in(stream, ThreadedLedger(ledger))
    if missing.unknown:
        named = ", ".join(missing.unknown[:_MOST_NAMED])
        return _found(
            "admissions",
            f"{len(missing.unknown)} admitted jobs are not in the log, and their submissions are not "
            f"in the ledger: {named}",
            _RESTORE,
        )
    if missing.lost:
        named = ", ".join(missing.lost[:_MOST_NAMED])
        return _found(
            "admissions", f"{len(missing.lost)} admitted jobs are not in the log: {named}", _REPAIR
        )
    return _well("admissions", "the log knows every job that the ledger admitted")


def _recorded(store: Path) -> list[Finding]:
    """Whether what was recorded can be read, by incarnation."""
    found = []
    folder = store / LOG_FOLDER
    if not folder.is_dir():
        return []
    for segment in segments_of(folder):
        name = f"recorded {segment.relative_to(store)}"
        try:
            entries = sum(1 for _ in EventLogReader(segment))
        except SpotlineError as error:
            found.append(_found(name, str(error)))
        else:
            found.append(_well(name, f"{entries:,} entries, none is missing"))
    return found


def _well(part: str, detail: str) -> Finding:
    return Finding(part=part, state=CheckState.WELL, detail=detail)


def _found(part: str, detail: str, continue_with: str = "") -> Finding:
    return Finding(part=part, state=CheckState.FOUND, detail=detail, continue_with=continue_with)


def _unreadable(part: str, detail: str) -> Finding:
    return Finding(part=part, state=CheckState.UNREADABLE, detail=detail, continue_with=_RESTORE)
