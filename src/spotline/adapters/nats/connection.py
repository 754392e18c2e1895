"""A connection to NATS that is replaced when it breaks.

nats-py can reconnect by itself, but then sends what it had buffered, in whatever order that
leaves on the stream. Here a lost connection is gone with all it had not sent, and its users start
again from what they know to be stored.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import nats.errors
import nats.js.errors
import structlog
from nats.js import JetStreamContext

from spotline.adapters.nats.client import HeedfulClient
from spotline.adapters.nats.identities import BusIdentity
from spotline.contracts.errors import ConfigError, ProviderUnavailable
from spotline.runtime.broker import check_server_version
from spotline.runtime.patience import Patience
from spotline.runtime.time_limit import time_limit
from spotline.runtime.trouble import Trouble

_log = structlog.get_logger(__name__)

# While the services of a process start, on a busy machine, its loop may stand still for seconds.
CONNECT_TIMEOUT_S = 30.0

_FIRST_BACKOFF_S = 0.05
_LONGEST_BACKOFF_S = 0.5
_ATTEMPT_S = 5
_CLOSE_S = 2.0
# For one answer of the JetStream API.
_ANSWER_S = 5.0
# A peer that vanished without a word is noticed after two of these.
_PING_S = 5
_PINGS = 2
# nats-py waits without end to send what is pending if the connection breaks just then.
_FLUSH_S = 2.0

_DENIED, _NOT_LET_IN = "permissions violation", "authorization violation"

# What a broken or restarting server looks like; try again.
PASSING = (nats.errors.Error, OSError, TimeoutError)
# Of these, what will not get better.
FINAL = (
    nats.js.errors.BadRequestError,
    nats.js.errors.NotFoundError,
    nats.errors.MaxPayloadError,
    nats.errors.AuthorizationError,
)


def _is_refusal(error: Exception) -> bool:
    """Whether the server lets nobody in as whom we came; nats-py says so in words, or by class."""
    said = str(error).lower()
    return isinstance(error, nats.errors.AuthorizationError) or _NOT_LET_IN in said


class BrokerLink:
    """One established connection. Once lost, it stays lost; `ended` when nothing of it is left."""

    def __init__(self, client: HeedfulClient, identity: BusIdentity | None = None) -> None:
        self.client = client
        self.identity = identity
        self._lost = False
        self._callbacks: list[Callable[[], None]] = []
        self.ended = asyncio.Event()

    def jetstream(self) -> JetStreamContext:
        """Its JetStream API."""
        return self.client.jetstream(timeout=_ANSWER_S)

    @property
    def sets_up(self) -> bool:
        """Whether streams may be made on it."""
        return self.identity is None or self.identity.sets_up

    @contextmanager
    def consumer_name(self) -> Iterator[str | None]:
        """What a consumer that ends with its reader is to be called; None: as the server likes."""
        if self.identity is None:
            yield None
        else:
            with self.identity.consumer() as name:
                yield name

    @property
    def lost(self) -> bool:
        """Whether it is of no use any more.

        A client that fails while it closes (a reset under traffic) does not call back: it is closed,
        and its link is lost before that was noted.
        """
        return self._lost or bool(self.client.is_closed)

    @property
    def is_noted(self) -> bool:
        """Whether callbacks have been told of the loss."""
        return self._lost

    def when_lost(self, callback: Callable[[], None]) -> None:
        """Call back once, when this link is lost."""
        self._callbacks.append(callback)

    def forget(self, callback: Callable[[], None]) -> None:
        """Do not call back after all."""
        if callback in self._callbacks:
            self._callbacks.remove(callback)

    def lose(self) -> None:
        """Note that it is lost."""
        self._lost = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


def redacted(url: str) -> str:
    """`url`, or several with commas between, without what is secret in it: fit for a log."""
    return ",".join(_redacted(part) for part in url.split(","))


def _redacted(part: str) -> str:
    scheme, slashes, rest = part.rpartition("//")
    credentials, at, tail = rest.rpartition("@")
    if at:
        user, colon, _ = credentials.partition(":")
        # Without a password it is a token.
        return f"{scheme}{slashes}{user if colon else ''}{colon}***@{tail}"
    host, colon, port = rest.partition(":")
    if colon and not host.startswith("[") and not port.partition("/")[0].isdecimal():
        # No port: the beginning of a password that has a comma.
        return f"{scheme}{slashes}{host}:***"
    return part


def _credentials(url: str) -> tuple[str, dict[str, Any]]:
    """Split `url` into where to connect to and, decoded, as whom; nats-py does not decode.

    Raises
    ------
    ConfigError
        It is no URL.
    """
    if "," in url:
        return url, {}
    try:
        parts = urlsplit(url if "//" in url else f"nats://{url}")
        user, password, _ = parts.username, parts.password, parts.port
    except ValueError:
        # What is wrong is not told: it may be a part of the password.
        raise ConfigError(
            "the address of NATS must be nats://HOST:PORT, with USER:PASSWORD@ or TOKEN@ before the "
            "host where it asks for them and what is special in these percent-encoded, was "
            f"{redacted(url)}"
        ) from None
    if user is None:
        return url, {}
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    if password is None:
        return bare, {"token": unquote(user)}
    return bare, {"user": unquote(user), "password": unquote(password)}


class NatsConnection:
    """Keeps one connection to `url` open inside `async with`, reconnecting without end.

    The attribute `url` is without password or token, which in `url` are percent-encoded where they
    have characters that mean something there. `publishing` says whether what is published on it is
    stored, `denied` what the server last refused on this link. With an `identity` it connects over TLS, and proves that identity.

    Raises
    ------
    ProviderUnavailable
        On entering: no answer for `timeout_s`.
    ConfigError
        The server is too old, does not know the identity, or is not the one that was certified.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str = "spotline",
        timeout_s: float = CONNECT_TIMEOUT_S,
        identity: BusIdentity | None = None,
    ) -> None:
        self.url = redacted(url)
        self._server, self._credentials = _credentials(url)
        self._name = name
        self._identity = identity
        self._timeout_s = timeout_s
        self._link: BrokerLink | None = None
        self._connecting: asyncio.Task[BrokerLink] | None = None
        self._problem = ""
        self.denied = ""
        self.publishing = Trouble()

    async def __aenter__(self) -> Self:
        try:
            await self.link(timeout_s=self._timeout_s)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def link(self, *, timeout_s: float) -> BrokerLink:
        """Return the live link, waiting for it if need be.

        Raises
        ------
        ProviderUnavailable
            None within `timeout_s`; connecting goes on.
        """
        if self._link is not None and self.connected:
            return self._link
        if self._connecting is None or self._connecting.done():
            # Outlives an impatient caller; `close` ends it.
            self._connecting = asyncio.create_task(self._connect(), name="nats-connect")
        patience = Patience(timeout_s)
        while True:
            try:
                async with asyncio.timeout(patience.next_try_s()):
                    return await asyncio.shield(self._connecting)
            except TimeoutError as error:
                if patience.left_s() > 0:
                    continue
                raise ProviderUnavailable(
                    f"no answer from NATS at {self.url} within {timeout_s:.1f} s "
                    f"({self._problem or 'connecting'}); is it running?"
                ) from error

    @property
    def sets_up(self) -> bool:
        """Whether streams may be made on it."""
        return self._identity is None or self._identity.sets_up

    @property
    def connected(self) -> bool:
        """Whether there is a live link right now."""
        link = self._link
        if link is None:
            return False
        if link.lost and not link.is_noted:
            _log.warning("nats_connection_lost", url=self.url)
            link.lose()
        return not link.lost

    async def drop(self, link: BrokerLink) -> None:
        """Give up a link that does not answer; the next `link` is a new one."""
        link.lose()
        try:
            async with time_limit(_CLOSE_S):
                await link.client.close()
        except (TimeoutError, nats.errors.Error, OSError) as error:
            _log.debug("nats_close_failed", url=self.url, error=repr(error))
        finally:
            # Cut short, it leaves the socket open until the collector finds it.
            link.client.abandon()

    async def close(self) -> None:
        """Send what is pending and disconnect. Safe to repeat."""
        if self._connecting is not None and not self._connecting.done():
            self._connecting.cancel()
            await asyncio.wait((self._connecting,))
        link, self._link = self._link, None
        if link is None:
            return
        if not link.lost:
            await self.drop(link)
        # A client whose server went closes by itself, in a task of its own: a loop that ends
        # before that has leaves the socket open.
        with suppress(TimeoutError):
            async with time_limit(_CLOSE_S):
                await link.ended.wait()

    async def _connect(self) -> BrokerLink:
        backoff_s = _FIRST_BACKOFF_S
        while True:
            client = HeedfulClient()
            link = BrokerLink(client, self._identity)
            try:
                await self._dial(client, link)
            except ssl.SSLError as error:
                raise ConfigError(
                    f"NATS at {self.url} is not the one that was certified, or speaks no TLS: {error}"
                ) from error
            except asyncio.CancelledError:
                await self.drop(link)
                raise
            except PASSING as error:
                client.abandon()
                if _is_refusal(error):
                    if self._link is None:
                        raise ConfigError(self._refused()) from error
                    # Known before: its key was changed, and the new one may be there in a moment.
                    _log.warning("nats_identity_refused", url=self.url, identity=self._name)
                elif isinstance(error, FINAL):
                    raise
                if not isinstance(error, nats.errors.NoServersError):
                    self._problem = str(error) or type(error).__name__
                await asyncio.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, _LONGEST_BACKOFF_S)
                continue
            try:
                version = client.connected_server_version
                check_server_version(f"{version.major}.{version.minor}.{version.patch}", self.url)
            except ConfigError:
                await self.drop(link)
                raise
            if self._link is not None:
                _log.info("nats_reconnected", url=self.url)
            self._link = link
            return link

    def _refused(self) -> str:
        if self._identity is None:
            return (
                f"NATS at {self.url} lets nobody in without an identity: state one "
                "(SPOTLINE_NATS_SEED and SPOTLINE_NATS_CA, or user and password in the address)"
            )
        return (
            f"NATS at {self.url} does not know the key of {self._identity.name} in "
            f"{self._identity.seed}: the broker's configuration must have its public key"
        )

    async def _dial(self, client: HeedfulClient, link: BrokerLink) -> None:
        async def lost() -> None:
            if not link.is_noted:
                _log.warning("nats_connection_lost", url=self.url)
            link.lose()
            link.ended.set()

        async def noted(error: Exception) -> None:
            self._problem = str(error) or type(error).__name__
            if _DENIED in self._problem.lower():
                self.denied = self._problem
                _log.error("nats_permission_denied", connection=self._name, reason=self._problem)

        self.denied = ""
        shown = self._credentials if self._identity is None else self._identity.options()
        await client.connect(
            self._server,
            **shown,
            name=self._name,
            allow_reconnect=False,
            # Attempts are paced by `_connect`; nats-py would wait two seconds between its own.
            reconnect_time_wait=0,
            max_reconnect_attempts=1,
            connect_timeout=_ATTEMPT_S,
            ping_interval=_PING_S,
            max_outstanding_pings=_PINGS,
            flush_timeout=_FLUSH_S,
            closed_cb=lost,
            error_cb=noted,
        )
